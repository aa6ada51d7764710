# SPDX-License-Identifier: Apache-2.0
"""
Whom others would have to wait for: a descriptor that somebody gives away, which takes as long to be closed as its owner likes, and a file that
somebody has a lease on.
"""

import contextlib
import ctypes
import os
import resource
import signal
import socket
from pathlib import Path

import pytest
from client import Client
from service import opened, wait_until

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_PIDFD_GETFD = 438
SO_PASSRIGHTS = 83 # Linux 6.16
CONTROL = 3 # of an agent: its socket to coved

# A connection with more under way than its peer takes, which is to be closed within an hour.
SLOW = """
import socket, struct
listener = socket.create_server(("127.0.0.1", 0))
slow = socket.create_connection(listener.getsockname())
peer, _ = listener.accept()
slow.setblocking(False)
try:
    while True:
        slow.send(bytes(65536))
except BlockingIOError:
    pass
slow.setblocking(True)
slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
"""


@pytest.fixture
def client(service):
    return Client(service.port, service.key)


@pytest.fixture
def volume(service):
    assert service.cove("volume", "create", "shared").returncode == 0
    yield "shared"
    service.remove_all()
    assert service.cove("volume", "rm", "shared").returncode == 0


def taken(pid, number):
    """A descriptor of another process's."""
    of = os.pidfd_open(pid)
    try:
        fd = LIBC.syscall(SYS_PIDFD_GETFD, of, number, 0)
        assert fd >= 0, os.strerror(ctypes.get_errno())
        return socket.socket(fileno=fd)
    finally:
        os.close(of)


def agent_in_use(service):
    """(pid, number of its session's socket)"""
    def sessions():
        agents = [pid for pid, name in service.processes().items() if name == "cove-agent"]
        # Behind the session's, which came first, is the one on which it answers programs inside.
        sockets = [(pid, [n for n, target in opened(pid).items() if target.startswith("socket:") and n != CONTROL]) for pid in agents]
        return [(pid, min(numbers)) for pid, numbers in sockets if numbers]
    # Those that are made ahead meanwhile may have more for a moment.
    found = wait_until(lambda: seen if len(seen := sessions()) == 1 else None)
    assert found, sessions()
    return found[0]


def run(sandbox, script, user):
    with sandbox.start("python3", "-c", script, user=user) as stream:
        code, out, err = stream.rest()
    assert code == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("user", ["user", "root"])
def test_to_close_what_a_sandbox_has_opened_takes_no_time(service, client, user):
    """Left in a unix socket that nobody has any more, it would be the kernel's one thread for that which waits, on the whole machine."""
    sandbox = client.create()
    try:
        assert run(sandbox, SLOW + "slow.close(); print('closed')", user) == "closed\n"
        left = "a, b = socket.socketpair(); socket.send_fds(b, [b'x'], [a.fileno(), slow.fileno(), peer.fileno()]); print('left')"
        assert run(sandbox, SLOW + left, user) == "left\n"
        assert sandbox.works()
    finally:
        sandbox.kill()


def test_who_may_only_read_a_volume_keeps_nobody_from_writing(service, volume):
    """A lease holds up whoever opens the file, for as long as the machine gives its holder to return it."""
    client = Client(service.port, service.key)
    reader, writer = (client.native("POST", "/cove/v1/sandboxes", {"volumes": [{"name": volume, "path": "/v", "read_only": only}]}).json["id"]
                      for only in (True, False))
    assert service.cove("exec", writer, "--", "touch", "/v/file").returncode == 0
    take = "import fcntl; fcntl.fcntl(open('/v/file'), fcntl.F_SETLEASE, fcntl.F_RDLCK)"
    done = service.cove("exec", reader, "--", "python3", "-c", take)
    assert done.returncode == 1 and "PermissionError" in done.stderr, done
    assert service.cove("exec", writer, "--", "sh", "-c", "echo more >> /v/file", timeout=60).returncode == 0


def test_an_agent_that_is_not_ours_any_more_gives_coved_no_descriptors(service, client):
    sandbox = client.create()
    try:
        with taken(agent_in_use(service)[0], CONTROL) as control, open("/dev/null", "rb") as some:
            with pytest.raises(BrokenPipeError):
                socket.send_fds(control, [b"x"], [some.fileno()], socket.MSG_NOSIGNAL)
        assert sandbox.works()
    finally:
        sandbox.kill()


def test_an_agent_that_is_not_ours_any_more_gives_cove_api_no_descriptors(service, client):
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
        except OSError:
            pytest.skip("this kernel can't refuse them")
    sandbox = client.create()
    try:
        with taken(*agent_in_use(service)) as session, open("/dev/null", "rb") as some:
            with pytest.raises(PermissionError):
                socket.send_fds(session, [b"x"], [some.fileno()], socket.MSG_NOSIGNAL)
        assert sandbox.works()
    finally:
        sandbox.kill()


def test_running_out_of_them_is_told_and_passes(service):
    """Wherever in the making of a box they run out, and however often."""
    pid = service.coved_pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    service.settle()
    told = set()
    try:
        for spare in range(12):
            free = sorted(set(range(4096)) - set(opened(pid)))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[spare], before[1]))
            for _ in range(20):
                status, _, body = service.request("POST", "/cove/v1/sandboxes", {})
                if status != 201:
                    told.add((status, body["error"]["code"]))
                    break
            else:
                pytest.fail("they don't run out")
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert told == {(429, "resource_exhausted")}
    assert all([service.create() for _ in range(12)])


def is_gone(directory):
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()


def test_cove_api_needs_no_thread_later(service, sandbox):
    """A machine without process ids has none for it."""
    os.kill(service.child("cove-api"), signal.SIGKILL) # the next one has not needed any yet
    assert wait_until(lambda: service.child("cove-api") and service.is_healthy())
    pid = service.child("cove-api")
    group = next(p for p in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")) if p.exists()) / f"test-{os.getpid()}"
    group.mkdir()
    try:
        if not (group / "pids.max").exists():
            pytest.skip("no control groups that count processes")
        (group / "pids.max").write_text("1")
        (group / "cgroup.procs").write_text(str(pid))
        assert service.request("GET", f"/cove/v1/sandboxes/{sandbox}/verify")[0] == 200
        assert service.child("cove-api") == pid
    finally:
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: is_gone(group))
    assert wait_until(lambda: service.child("cove-api") not in (None, pid) and service.is_healthy())
