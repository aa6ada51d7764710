# SPDX-License-Identifier: Apache-2.0
"""Sandboxes outlive coved: it dies, or makes way for another program, and they go on, with their processes, networks and open connections."""

import contextlib
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from client import Cut, wait_for
from leaks import BUILD, processes, read, running
from service import coved_of, opened, settled
from supervisor import (AGAIN, ALREADY_EXISTS, CREATE, KEPT, LIVES, NOT_FOUND, PAUSE, REPEATED, REQUESTS, SNAPSHOT, VOLUME_DROP, VOLUME_MAKE, Coved,
                        new_id, new_layer, new_volume)

BACK_S = 2
COUNTER = "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done"


@pytest.fixture(scope="module")
def module_service():
    with running(name="outlive") as (service, client):
        yield service, client


def counted(stream, n=5):
    """The next lines of COUNTER; none is missing."""
    text, lines = b"", []
    for _, data in stream.output():
        text += data
        lines = text.split(b"\n")[:-1]
        if len(lines) >= n:
            break
    numbers = [int(line) for line in lines]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers[-1]


class Upgraded:
    """A connection to a port of a sandbox that stays open."""

    def __init__(self, sandbox, port):
        self.sock = sandbox.client.dial()
        headers = {**sandbox.headers(), "E2b-Sandbox-Port": str(port), "Connection": "Upgrade", "Upgrade": "echo"}
        self.sock.sendall(("GET / HTTP/1.1\r\nHost: localhost\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n").encode())
        self.file = self.sock.makefile("rb")

    def close(self):
        self.file.close()
        self.sock.close()


SWITCHING = """
import socket, threading
s = socket.create_server(("0.0.0.0", 9000))
def serve(c):
    f = c.makefile("rb")
    while f.readline() not in (b"\\r\\n", b""): pass
    c.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n")
    for line in f: c.sendall(b"echo " + line)
while True:
    threading.Thread(target=serve, args=s.accept()[:1], daemon=True).start()
"""


@contextlib.contextmanager
def echoing(sandbox):
    """A function that sends a line over one connection that stays open, and returns what comes back."""
    sandbox.upload("/home/user/server.py", SWITCHING.encode())
    with sandbox.start("python3", "/home/user/server.py", tag="server") as stream:
        stream.started()
    assert wait_for(lambda: sandbox.sh("cat /proc/net/tcp | grep -c ':2328 '")[1].strip() != b"0")
    connection = Upgraded(sandbox, 9000)
    assert connection.file.readline().startswith(b"HTTP/1.1 101"), "the port did not answer"
    while connection.file.readline() not in (b"\r\n", b""):
        pass

    def say(line):
        connection.sock.sendall(line + b"\n")
        return connection.file.readline()
    yield say
    connection.close()


def state_of(service, sandbox):
    return service.request("GET", f"/cove/v1/sandboxes/{sandbox.id}")[2]


def pids_of(service):
    return {name: service.child(name) for name in ("cove-api", "cove-egress")}


def ended(client, sandbox):
    return wait_for(lambda: next((e["data"] for e in client.events(sandbox.id) if e["kind"] == "sandbox.ended"), None))


def test_everything_goes_on_and_the_service_is_back_at_once(live):
    service, client = live
    busy, paused, kept = client.create(timeout=600), client.create(timeout=600), client.create(timeout=600)
    for sandbox in (paused, kept):
        with sandbox.start("/bin/sh", "-c", COUNTER, tag="counter") as stream:
            counted(stream)
    assert service.cove("pause", paused.id).returncode == 0 and service.cove("pause", "--files", kept.id).returncode in (0, 2)
    background = busy.sh("sleep 1000 & echo $!")[1].strip().decode()
    was, workers = client.list(), pids_of(service)
    with busy.start("/bin/sh", "-c", COUNTER, tag="counter") as stream, echoing(busy) as say:
        last = counted(stream)
        assert say(b"before") == b"echo before\n"
        times = []
        for round_ in range(3):
            times.append(service.kill_coved())
            assert counted(stream) > last, "the stream goes on"
            last = counted(stream)
            assert say(b"%d" % round_) == b"echo %d\n" % round_
            assert client.list() == was and pids_of(service) == workers
            assert busy.sh(f"kill -0 {background} && echo there")[1] == b"there\n"
            fresh = client.create()
            assert fresh.works() and fresh.kill().status == 204
            assert ended(client, fresh)["cause"] == "killed"
            time.sleep(1)
        print(f"back after {[round(t * 1000) for t in times]} ms")
    assert min(times) < BACK_S
    assert state_of(service, paused)["state"] == "paused"
    assert service.cove("resume", paused.id).returncode == 0
    with paused.connect(tag="counter") as stream:
        counted(stream)
    assert service.cove("pause", busy.id).returncode == 0
    service.kill_coved()
    assert state_of(service, busy)["state"] == "paused"
    assert service.cove("resume", busy.id).returncode == 0 and busy.works()
    for sandbox in (busy, paused):
        assert client.verify(sandbox.id).json["intact"]


def first_process(service, sandbox):
    namespace = sandbox.sh("readlink /proc/self/ns/pid")[1].decode().strip()
    for pid in processes(service.state):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") == namespace and read(f"/proc/{pid}/status").split("NSpid:")[1].splitlines()[0].split()[-1] == "1":
                return pid
    raise AssertionError(f"no first process of {sandbox.id}")


@contextlib.contextmanager
def no_coved(service):
    """It is killed, and the keeper is kept from starting another one."""
    pid = service.coved_pid
    os.kill(service.coved.pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    try:
        assert wait_for(lambda: "State:\tZ" in read(f"/proc/{pid}/status"))
        yield
    finally:
        os.kill(service.coved.pid, signal.SIGCONT)
        assert wait_for(service.is_ready), service.tail()


def test_ends_of_meanwhile_are_told_with_their_status(live):
    service, client = live
    sandbox, lives = client.create(), client.create()
    first = first_process(service, sandbox)
    with no_coved(service):
        os.kill(first, signal.SIGKILL)
        assert wait_for(lambda: "State:\tZ" in read(f"/proc/{first}/status"))
    assert ended(client, sandbox)["cause"] == "signaled" and client.get(sandbox.id).status == 404
    assert lives.works()
    assert wait_for(lambda: not os.path.exists(f"/proc/{first}")), "the keeper reaps it in the end"


def test_what_is_asked_while_there_is_no_coved_is_done_by_the_next(live):
    service, client = live
    sandbox, doomed = client.create(timeout=600), client.create(timeout=600)
    results = {}

    def ask(name, fn):
        thread = threading.Thread(target=lambda: results.__setitem__(name, fn()))
        thread.start()
        return thread
    with no_coved(service):
        threads = [ask("create", client.create), ask("pause", lambda: service.cove("pause", sandbox.id).returncode), ask("kill", lambda: doomed.kill().status),
                   ask("volume", lambda: service.request("POST", "/cove/v1/volumes", {"name": "meanwhile"})[0])]
        time.sleep(0.5)
        assert not results
    for thread in threads:
        thread.join(60)
    assert results["create"].works() and (results["pause"], results["kill"], results["volume"]) == (0, 204, 201), results
    assert state_of(service, sandbox)["state"] == "paused"
    assert service.cove("volume", "rm", "meanwhile").returncode == 0


def test_boxes_that_died_before_they_were_anybodys_are_given_to_nobody(live):
    """All that waited, of which coved hears at once with the create."""
    service, client = live
    client.create().kill()
    waiting = lambda: {pid for pid, name in processes(service.state).items() if name in ("cove-agent", "cove-blank")}
    assert len(settled(waiting, quiet=1)) >= 10
    results, coved = {}, service.coved_pid
    os.kill(coved, signal.SIGSTOP)
    try:
        thread = threading.Thread(target=lambda: results.__setitem__("made", client.create()))
        thread.start()
        time.sleep(0.5)
        killed = waiting()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: all("State:\tZ" in read(f"/proc/{pid}/status") or not os.path.exists(f"/proc/{pid}") for pid in killed))
    finally:
        os.kill(coved, signal.SIGCONT)
    thread.join(60)
    assert results["made"].works()


def test_nothing_leaks_over_many_deaths(live):
    service, client = live
    client.create().kill()
    keeper = settled(lambda: len(opened(service.coved.pid)), quiet=1)
    before = service.settle()
    for _ in range(3):
        sandboxes = [client.create() for _ in range(3)]
        service.kill_coved()
        assert sandboxes[0].kill().status == 204
        service.kill_coved()
        for sandbox in sandboxes[1:]:
            assert sandbox.works() and sandbox.kill().status == 204
    assert wait_for(lambda: not client.list())
    client.create().kill()
    assert wait_for(lambda: len(opened(service.coved.pid)) <= keeper), (keeper, opened(service.coved.pid))
    def more():
        now = service.counts()
        return {what: (was, now[what]) for what, was in before.items() if now[what] > was and not what.startswith("descriptors of cove-api")}
    assert wait_for(lambda: not more()), more()


def test_however_many_there_are(live):
    """The keeper has several descriptors of each, and the next coved gets one with a high number."""
    service, client = live
    with ThreadPoolExecutor(4) as pool:
        sandboxes = list(pool.map(lambda _: client.create(), range(230)))
        assert max(map(int, os.listdir(f"/proc/{service.coved.pid}/fd"))) > 1023
        service.kill_coved()
        assert sandboxes[0].works() and sandboxes[-1].works()
        assert {answer.status for answer in pool.map(lambda sandbox: sandbox.kill(), sandboxes)} == {204}


def test_a_dying_cove_api_is_replaced_by_a_coved_that_took_over(live):
    service, client = live
    sandbox = client.create(timeout=600)
    service.kill_coved()
    for name in ("cove-api", "cove-egress"):
        old = service.child(name)
        os.kill(old, signal.SIGKILL)
        assert wait_for(lambda n=name, o=old: service.child(n) not in (None, o) and service.is_ready()), service.tail()
    assert sandbox.works() and client.create().works()


def test_with_the_keeper_everything_ends():
    with running(name="outlive") as (service, client):
        sandbox = client.create()
        with sandbox.start("sleep", "1000") as stream:
            stream.started()
            service.kill_coved()
            service.coved.kill()
            service.coved.wait()
            assert wait_for(lambda: not processes(service.state)), processes(service.state)
            with pytest.raises(Cut):
                list(stream.output())
        service.start()
        assert client.list() == {} and client.create().works()


def test_stop_ends_what_a_dead_coved_left():
    """Also when it is told while there is none."""
    with running(name="outlive") as (service, client):
        sandbox = client.create()
        service.footprint.look()
        with no_coved_then(service, signal.SIGTERM):
            pass
        assert service.coved.wait(60) == 0, service.tail()
        assert wait_for(lambda: not service.footprint.left()), service.footprint.left()
        service.start()
        assert ended(client, sandbox)["cause"] in ("shutdown", "lost")


@contextlib.contextmanager
def no_coved_then(service, number):
    pid = service.coved_pid
    os.kill(service.coved.pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    assert wait_for(lambda: "State:\tZ" in read(f"/proc/{pid}/status"))
    os.kill(service.coved.pid, number)
    yield
    os.kill(service.coved.pid, signal.SIGCONT)


@pytest.fixture(name="programs")
def fixture_programs():
    """Programs of one's own, to be replaced while they run."""
    directory = tempfile.mkdtemp(prefix="test-programs-", dir=BUILD)
    os.chmod(directory, 0o755)
    for name in ("coved", "cove", "cove-api", "cove-egress", "cove-agent", "cove-image"):
        shutil.copy(BUILD / name, directory)
    yield Path(directory)
    shutil.rmtree(directory)


def replace(program, how):
    """As install(1) does it: another file under the same name."""
    new = program.with_suffix(".new")
    shutil.copy(program, new)
    how(new)
    new.rename(program)


def reload(service):
    """USR2, until what lies there now has taken over."""
    old = service.coved_pid
    os.kill(service.coved.pid, signal.SIGUSR2)
    assert wait_for(lambda: coved_of(service.coved.pid) not in (None, old) and service.is_ready()), service.tail()


def test_another_program_takes_over(programs):
    with running(name="outlive", build=programs) as (service, client):
        sandbox = client.create(timeout=600)
        with sandbox.start("/bin/sh", "-c", COUNTER) as stream, echoing(sandbox) as say:
            last = counted(stream)
            replace(programs / "coved", lambda path: path.open("ab").write(b"another"))
            reload(service)
            assert os.stat(f"/proc/{service.coved_pid}/exe").st_ino == (programs / "coved").stat().st_ino
            assert os.stat(f"/proc/{service.coved.pid}/exe").st_ino != (programs / "coved").stat().st_ino, "the keeper stays the one that it was"
            assert counted(stream) > last and say(b"after") == b"echo after\n"
        assert sandbox.works() and client.create().works()


def test_a_reload_says_which_parts_are_those_of_before(programs):
    with running(name="outlive", build=programs) as (service, _):
        assert "of before" not in service.cove("reload").stdout
        replace(programs / "cove-api", lambda path: path.open("ab").write(b"another"))
        told = service.cove("reload").stdout
        keeper = re.search(r"^cove-api is still the program of before\..*kill -USR1 (\d+)$", told, re.M)
        assert keeper and "cove-egress" not in told, told
        os.kill(int(keeper[1]), signal.SIGUSR1)
        assert wait_for(lambda: "of before" not in service.cove("reload").stdout)


def test_a_program_that_would_not_do_is_not_started(programs):
    with running(name="outlive", build=programs) as (service, client):
        sandbox, coved = client.create(timeout=600), service.coved_pid
        shutil.copy(programs / "coved", programs / "good")
        replace(programs / "coved", lambda path: path.write_text("#!/bin/sh\nexit 1\n"))
        os.kill(service.coved.pid, signal.SIGUSR2)
        assert wait_for(lambda: "can't take over, or" in read(service.log)), service.tail()
        assert service.coved_pid == coved and sandbox.works()
        # One that dies over it all the same leaves what runs alone, until there is one that does not.
        os.kill(coved, signal.SIGKILL)
        assert wait_for(lambda: read(service.log).count("coved ended") >= 3), service.tail()
        assert sandbox.works()
        (programs / "good").rename(programs / "coved")
        assert wait_for(service.is_ready), service.tail()
        assert sandbox.works() and client.create().works()


@pytest.mark.parametrize("how", ["it dies at once", "its program is gone"])
def test_a_keeper_that_has_no_coved_ends_everything(programs, how):
    with running(name="outlive", build=programs) as (service, client):
        client.create().start("sleep", "1000").started()
        frozen = client.create(timeout=600)
        assert service.cove("pause", frozen.id).returncode == 0
        service.footprint.look()
        if how == "it dies at once":
            replace(programs / "coved", lambda path: path.write_text("#!/bin/sh\nexit 1\n"))
        else:
            (programs / "coved").unlink()
        os.kill(service.coved_pid, signal.SIGKILL)
        assert wait_for(lambda: read(service.log).count("coved ended") >= 3), service.tail()
        os.kill(service.coved.pid, signal.SIGTERM)
        assert service.coved.wait(60) > 0
        left = lambda: [what for what in service.footprint.left() if not what.startswith("pool ")] # files are the next start's
        assert wait_for(lambda: not left()), left()
        shutil.copy(BUILD / "coved", programs / "coved.new")
        (programs / "coved.new").rename(programs / "coved")
        service.start()
        assert client.create().works()


# ---- in coved's own language ----


@pytest.fixture(name="coved")
def fixture_coved():
    directory = tempfile.mkdtemp(prefix="test-outlive-", dir=BUILD)
    os.chmod(directory, 0o755)
    one = Coved(directory, COVE_POOL="copy").make().seed().start()
    try:
        yield one
        assert one.stop() == 0, one.tail()
        assert wait_for(lambda: not one.footprint.left()), one.footprint.left()
    finally:
        if one.process.poll() is None:
            one.kill()
        shutil.rmtree(directory)


def code_of(coved, kind, *fields):
    answer = coved.ask(kind, *fields)
    for fd in answer.fds:
        os.close(fd)
    return answer.code


def test_what_is_asked_again_is_not_done_twice(coved):
    sandbox, stopped, layer, volume = coved.create(), coved.create(), new_layer(), new_volume()
    coved.must(SNAPSHOT, sandbox, layer)
    coved.must(VOLUME_MAKE, volume, 0)
    coved.must(PAUSE, stopped, 0)
    coved.restart()
    assert coved.list() == {sandbox: LIVES, stopped: KEPT}
    again = [(CREATE, sandbox, coved.base, "base", 0, 0, 0, 0, 0), (SNAPSHOT, sandbox, layer), (VOLUME_MAKE, volume, 0)]
    for kind, *fields in again:
        assert code_of(coved, kind, *fields) == ALREADY_EXISTS
        assert code_of(coved, kind | REPEATED, *fields) == 0
    assert code_of(coved, PAUSE, stopped, 0) == code_of(coved, PAUSE | REPEATED, stopped, 0) == 0 # kept already; a memory of it would go
    coved.must(VOLUME_DROP, volume, 0)
    assert code_of(coved, VOLUME_DROP, volume, 0) == NOT_FOUND and code_of(coved, VOLUME_DROP | REPEATED, volume, 0) == 0
    assert coved.list() == {sandbox: LIVES, stopped: KEPT}
    assert coved.remove(coved.resume_kept(stopped)).id == stopped


def test_nothing_is_heard_before_a_worker_knows_whom_it_talks_to(coved):
    sandbox, early = coved.create(), new_id()
    os.kill(coved.pid, signal.SIGKILL)
    tag = coved.await_restart()
    coved.send_create(early)
    coved.send_raw(REQUESTS[AGAIN].pack(AGAIN, tag ^ 1)) # of a coved that is gone, too
    coved.send_create(early)
    coved.send_raw(REQUESTS[AGAIN].pack(AGAIN, tag))
    assert coved.list() == {sandbox: LIVES}
    assert coved.create(early) == early and coved.list() == {sandbox: LIVES, early: LIVES}
