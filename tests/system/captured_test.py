# SPDX-License-Identifier: Apache-2.0
"""Networks of sandboxes, seen from both ends: what coved does with namespaces, cove-egress and the socket between the workers.

The cove-egress of these tests is egress_standin.py.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from client import wait_for
from egress_standin import Seen
from leaks import BUILD, link, read, running, stocked
from service import opened

HERE = Path(__file__).resolve().parent
OWNER = 1000
RESOLVER = "10.200.0.1"


@contextlib.contextmanager
def programs():
    """A directory with copies of the programs, but without cove-egress."""
    with tempfile.TemporaryDirectory(prefix="test-programs-", dir=BUILD) as directory:
        os.chmod(directory, 0o755) # the unprivileged workers pass through
        for name in ("coved", "cove-api", "cove-agent"):
            shutil.copy(BUILD / name, directory)
        yield Path(directory)


@contextlib.contextmanager
def captured(**env):
    """(service, client, Seen) with the stand-in as its cove-egress."""
    with programs() as directory:
        shutil.copy(HERE / "egress_standin.py", directory / "cove-egress")
        (directory / "cove-egress").chmod(0o755)
        with running(build=directory, **env) as (service, client):
            seen = Seen(service)
            assert wait_for(lambda: seen.of("start")), service.tail()
            yield service, client, seen


@pytest.fixture(scope="module")
def module_net():
    with captured() as (service, client, seen):
        yield service, client, seen


@pytest.fixture
def net(module_net):
    service, client, seen = module_net
    yield module_net
    client.remove_all()
    assert wait_for(lambda: not client.list())
    ended = {e["id"] for e in seen.of("net")}
    assert wait_for(lambda: ended == {e["id"] for e in seen.of("drop")})


def named(service, name):
    return next((pid for pid in service.children() if read(f"/proc/{pid}/comm").strip() == name), None)


def connect(address, port, say=""):
    """A script for inside: prints the first line that it is sent."""
    return f"""python3 -c "
import socket
s = socket.create_connection(('{address}', {port}), 60)
print(s.makefile().readline().strip())
s.sendall(b'{say or 'nothing'}')
" """


def test_tcp_arrives_with_its_destination(net):
    service, client, seen = net
    box = client.create()
    for address, port in (("198.51.100.66", 443), ("2001:db8::66", 80), ("169.254.169.254", 80)):
        code, out, err = box.sh(connect(address, port, f"hello {port}"))
        assert (code, out.decode().strip()) == (0, str((address, port))), err
        assert seen.of("tcp", id=box.id, to=[address, port])
    assert wait_for(lambda: seen.of("data", text="hello 443"))


def test_names_are_resolved(net):
    _, client, seen = net
    box = client.create()
    assert box.sh("cat /etc/resolv.conf")[1].decode().startswith(f"nameserver {RESOLVER}\n")
    assert box.sh("getent ahostsv4 some.name.test")[1].decode().split()[0] == "198.51.100.10"
    assert seen.of("dns", id=box.id, name="some.name.test")
    assert box.sh("echo 'nameserver 8.8.8.8' >/etc/resolv.conf; getent ahostsv4 other.test", user="root")[1].split()[0] == b"198.51.100.10"


def test_sandboxes_do_not_share_a_network(net):
    _, client, seen = net
    one, two = client.create(), client.create()
    with one.start("python3", "-c", "import socket,time; s=socket.create_server(('10.200.0.2', 8000)); print('up', flush=True); time.sleep(200)") as up:
        next(up.output())
        assert one.sh("python3 -c \"import socket; socket.create_connection(('10.200.0.2', 8000), 5)\"")[0] == 0
        assert two.sh("python3 -c \"import socket; socket.create_connection(('10.200.0.2', 8000), 5)\"")[0] != 0
    assert one.sh("readlink /proc/self/ns/net")[1] != two.sh("readlink /proc/self/ns/net")[1]
    assert len(seen.of("net", id=one.id)) == len(seen.of("net", id=two.id)) == 1


def test_cove_egress_is_nobody(net):
    service, _, seen = net
    start, pid = seen.of("start")[-1], named(service, "cove-egress")
    api = read(f"/proc/{named(service, 'cove-api')}/status")
    assert start["uid"] == start["gid"] > 1000 and start["groups"] == []
    assert start["uid"] != int(re.search(r"^Uid:\s+(\d+)", api, re.M)[1])
    assert set(start["caps"]) == {"0" * 16} and start["no_new_privs"] == "1"
    assert start["options"] == ["--control-fd", "--log-level", "--owner-uid", "--pulse-fd", "--state-fd", "--vault-fd"]
    assert start["net"] == link("/proc/self/ns/net") and start["mnt"] == link("/proc/self/ns/mnt")
    assert start["environment"].keys() <= {"LC_CTYPE"} # the interpreter's own
    assert len(start["fds"]) == 3 + 4 + 3, start["fds"] # its log, its selector and the directory that it looked into
    assert re.search(r"^Max core file size\s+[01]\s+[01]\s", read(f"/proc/{pid}/limits"), re.M)
    state = os.stat(service.state / "egress")
    assert state.st_uid == start["uid"] and stat.S_IMODE(state.st_mode) == 0o700


def test_the_vault_is_the_owner_s(net):
    service, _, seen = net
    path = service.run / "vault.sock"
    found = path.lstat()
    assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600 and found.st_uid == int(seen.of("start")[0]["owner"])
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))
        assert s.recv(1) == b""
    assert seen.of("vault")[-1]["uid"] == 0
    script = f"import socket; socket.socket(socket.AF_UNIX).connect('{path}')"
    stranger = subprocess.run(["python3", "-c", script], user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False)
    assert "PermissionError" in stranger.stderr


def test_a_new_cove_egress_is_told_of_all_networks(net):
    service, client, seen = net
    boxes = [client.create() for _ in range(3)]
    old = named(service, "cove-egress")
    with boxes[0].start("python3", "-c", "import socket; s=socket.create_connection(('198.51.100.1', 443)); f=s.makefile(); print(f.readline().strip(), flush=True); "
                        "print(repr(f.read()))") as stream:
        output = stream.output()
        assert b"198.51.100.1" in next(output)[1]
        os.kill(old, signal.SIGSTOP)
        os.kill(old, signal.SIGKILL)
        assert next(output)[1].strip() == b"''" # an open stream ends
    assert wait_for(lambda: named(service, "cove-egress") not in (None, old)), service.tail()
    for box in boxes:
        assert box.sh(connect("198.51.100.2", 443))[1].decode().strip() == "('198.51.100.2', 443)"
        assert len(seen.of("net", id=box.id)) == 2


def test_while_cove_egress_is_down_nothing_gets_out(net):
    service, client, seen = net
    box = client.create()
    os.kill(service.coved_pid, signal.SIGSTOP) # nobody starts another one
    old = named(service, "cove-egress")
    os.kill(old, signal.SIGKILL)
    try:
        assert wait_for(lambda: re.search(r"^State:\tZ", read(f"/proc/{old}/status"), re.M)) # it says nothing more
        before = len(seen.all())
        with box.start("python3", "-c", "import socket; s=socket.create_connection(('198.51.100.3', 443), 30); print('in the queue', flush=True); "
                       "print(s.makefile().readline().strip())") as stream:
            output = stream.output()
            assert next(output)[1].strip() == b"in the queue"
            assert len(seen.all()) == before
            os.kill(service.coved_pid, signal.SIGCONT)
            assert next(output)[1].decode().strip() == "('198.51.100.3', 443)"
    finally:
        os.kill(service.coved_pid, signal.SIGCONT)


def test_each_new_worker_gets_a_new_socket(net):
    service, _, seen = net
    for name in ("cove-api", "cove-egress"):
        before, old = len(seen.of("api")), named(service, name)
        os.kill(old, signal.SIGKILL)
        assert wait_for(lambda: named(service, name) not in (None, old) and len(seen.of("api")) == before + 1), service.tail()
    assert wait_for(lambda: service.is_healthy())


def test_the_maker_of_namespaces_is_replaced(net):
    service, client, seen = net
    old = named(service, "cove-netmaker")
    status = read(f"/proc/{old}/status")
    assert re.search(r"^Uid:\s+(\d+)", status, re.M)[1] not in ("0", str(seen.of("start")[0]["uid"]))
    assert re.search(r"^CapPrm:\s+(\w+)", status, re.M)[1] == re.search(r"^CapEff:\s+(\w+)", status, re.M)[1] == f"{1 << 21 | 1 << 12:016x}"
    assert re.search(r"^CapBnd:\s+(\w+)", status, re.M)[1] == "0" * 16 and "NoNewPrivs:\t1" in status
    assert link(f"/proc/{old}/ns/net") not in (link("/proc/self/ns/net"), "")
    assert wait_for(lambda: len(opened(old)) == 3 + 3) # its socket, the way back, a procfs; more while it makes one
    for _ in range(3):
        pid = named(service, "cove-netmaker")
        os.kill(pid, signal.SIGKILL)
        boxes = [client.create() for _ in range(30)] # more than were made ahead
        for box in (boxes[0], boxes[-1]):
            assert box.sh(connect("198.51.100.4", 443))[1].decode().strip() == "('198.51.100.4', 443)"
        assert wait_for(lambda: named(service, "cove-netmaker") not in (None, pid))
        client.remove_all()


def test_a_maker_that_hangs_holds_nobody_for_ever(net):
    service, client, _ = net
    pid = named(service, "cove-netmaker")
    os.kill(pid, signal.SIGSTOP)
    begin = time.monotonic()
    boxes = [client.create() for _ in range(30)]
    print(f"30 sandboxes in {time.monotonic() - begin:.1f} s")
    assert wait_for(lambda: named(service, "cove-netmaker") not in (None, pid))
    assert boxes[-1].sh(connect("198.51.100.4", 443))[0] == 0


def test_each_has_its_namespace_and_none_is_left(net):
    service, client, _ = net
    found = set()
    for _ in range(3):
        boxes = [client.create() for _ in range(12)]
        names = {box.sh("readlink /proc/self/ns/net")[1].decode().strip() for box in boxes}
        assert len(names) == 12
        found |= names
        client.remove_all()
        assert wait_for(lambda: not client.list())
    pids = [service.coved_pid, named(service, "cove-egress"), named(service, "cove-netmaker")]
    # The kernel may use a number again for one that is in stock: what is held is in the end no more than that.
    held = lambda: {target for pid in pids for target in opened(pid).values()} & found
    assert wait_for(lambda: len(held()) <= 14), held()


def test_descriptors_come_back(net):
    service, client, seen = net
    for _ in range(2):
        boxes = [client.create() for _ in range(6)]
        client.remove_all()
        time.sleep(0.5)
    measure = lambda: (len(opened(service.coved_pid)), len(opened(named(service, "cove-egress"))), len(opened(named(service, "cove-netmaker"))))
    assert wait_for(lambda: len(seen.of("drop", id=boxes[-1].id)))
    before = stocked(service.state, 0, measure)
    for _ in range(3):
        for box in [client.create() for _ in range(15)]:
            assert box.sh(connect("198.51.100.5", 80))[0] == 0
        client.remove_all()
    assert wait_for(lambda: all(now <= was for now, was in zip(measure(), before))), (before, measure())


def test_without_cove_egress_there_is_loopback():
    with programs() as directory, running(build=directory) as (service, client):
        box = client.create()
        assert box.sh("cat /etc/resolv.conf; tail -n +2 /proc/net/route")[1] == b""
        assert "Network is unreachable" in box.sh(connect("198.51.100.66", 443))[2].decode()
        assert not (service.run / "vault.sock").exists()
        assert named(service, "cove-netmaker") is None and named(service, "cove-egress") is None


def test_an_egress_that_does_not_start_costs_no_sandbox():
    """It ends as soon as it is started, again and again."""
    with captured() as (service, client, seen):
        directory = Path(link(f"/proc/{service.coved_pid}/exe")).parent
        (directory / "cove-egress").write_text("#!/bin/false\n")
        os.kill(named(service, "cove-egress"), signal.SIGKILL)
        assert wait_for(lambda: read(service.log).count("cove-egress ended") >= 4), service.tail()
        before = len(seen.all())
        box = client.create()
        assert box.sh("echo fine")[1] == b"fine\n"
        assert box.sh("timeout 1 python3 -c \"import socket; print(socket.create_connection(('198.51.100.6', 80)).recv(10))\"")[0] == 124
        assert len(seen.all()) == before
