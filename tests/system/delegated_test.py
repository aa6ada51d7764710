# SPDX-License-Identifier: Apache-2.0
"""Where systemd gives its unit's control group to the service (Delegate=yes), sandboxes lie in it, and its limits hold for them. Without systemd: the group is made here."""

import contextlib
import os
import re
import signal
from pathlib import Path

import pytest
from leaks import own_service
from service import AHEAD, boxes_in, children, read, wait_until

TOP = Path("/sys/fs/cgroup")
UNIT = TOP / "cove-test.slice" / "cove-test.service"
MIB = 1 << 20


def move_to(group, pid):
    (group / "cgroup.procs").write_text(str(pid))


@contextlib.contextmanager
def inside(group):
    """What is started meanwhile begins there."""
    own = TOP / read("/proc/self/cgroup").strip().removeprefix("0::/")
    move_to(group, os.getpid())
    try:
        yield
    finally:
        move_to(own, os.getpid())


@pytest.fixture(params=[True, False], ids=["given", "not given"])
def unit(request):
    """Its group, as systemd makes it: (directory, is it given to its service?)."""
    if os.geteuid() != 0 or not (TOP / "cgroup.controllers").exists():
        pytest.skip("needs root, and control groups of version 2 alone")
    UNIT.mkdir(parents=True)
    for of in (TOP, UNIT.parent):
        for controller in ("memory", "cpu", "pids"):
            (of / "cgroup.subtree_control").write_text(f"+{controller}")
    if request.param:
        os.setxattr(UNIT, "trusted.delegate", b"1")
    yield UNIT, request.param
    for path in sorted(UNIT.parent.rglob("*"), reverse=True): # as systemd does when the unit has ended
        if path.is_dir():
            path.rmdir()
    UNIT.parent.rmdir()


def path_of(pid):
    return read(f"/proc/{pid}/cgroup").strip().removeprefix("0::")


def test_where_groups_lie(unit):
    group, is_given = unit
    with contextlib.ExitStack() as ends:
        with inside(group):
            service = ends.enter_context(own_service("delegated"))
        service.settle()
        name = f"/{group.relative_to(TOP)}"
        sandbox = service.create()
        done = service.cove("exec", sandbox, "--", "sh", "-c", "sleep 1234567 & cat /proc/self/cgroup")
        assert done.stdout == "0::/\n", done
        groups = [path for path in service.groups() if boxes_in([path])]
        assert len(groups) > AHEAD
        if not is_given:
            assert not [path for path in groups if path.startswith(str(group))] and path_of(service.coved_pid) == name
            return
        assert not [path for path in groups if not re.fullmatch(rf"{re.escape(str(group))}/cove-[0-9a-f]{{8}}/\d+", path)], groups
        assert {path_of(pid) for pid in (service.coved.pid, service.coved_pid, service.child("cove-api"))} == {f"{name}/init"}
        assert read(group / "cgroup.procs") == "" and set(read(group / "cgroup.subtree_control").split()) >= {"cpu", "memory", "pids"}

        # The unit's limit is one for all sandboxes together, also above each one's own.
        now = int(read(group / "memory.current"))
        (group / "memory.max").write_text(str(now + 64 * MIB))
        eat = "b = []\nfor _ in range(256): b.append(bytearray(b'x') * (1 << 20))\nprint('all of it')"
        done = service.cove("exec", sandbox, "--", "python3", "-c", eat)
        assert "all of it" not in done.stdout and done.returncode != 0, done
        (group / "memory.max").write_text("max")
        assert service.coved.poll() is None and service.is_healthy(), service.tail()
        assert service.cove("exec", service.create(), "--", "echo", "alive").stdout == "alive\n"


def test_what_a_dead_coved_leaves(unit):
    group, is_given = unit
    if not is_given:
        pytest.skip("as everywhere")
    with contextlib.ExitStack() as ends:
        with inside(group):
            service = ends.enter_context(own_service("delegated"))
        service.settle()
        service.create()
        ours = children(service.coved.pid)
        os.kill(service.coved.pid, signal.SIGKILL)
        service.coved.wait()
        assert wait_until(lambda: not [pid for pid in ours if Path(f"/proc/{pid}").exists()])
        assert wait_until(lambda: "populated 0" in read(group / "cgroup.events")) # nothing survives it
        for path in sorted(group.rglob("*"), reverse=True): # as systemd does before it starts the next one
            if path.is_dir():
                path.rmdir()
        (group / "cgroup.subtree_control").write_text("-memory -cpu -pids")
        with inside(group):
            service.start()
        assert service.cove("exec", service.create(), "--", "echo", "alive").stdout == "alive\n"
