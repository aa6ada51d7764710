# SPDX-License-Identifier: Apache-2.0
"""What is left of a user's work when processes of ours die, one at a time and all at once."""

import contextlib
import json
import math
import os
import random
import re
import signal
import sqlite3
import subprocess
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest
from client import Cut, Failed, Sandbox, wait_for
from leaks import BUILD, Footprint, boxes, groups, link, pids, pool, processes, read, running, stocked
from service import boxes_in

KILLS = 20
WINDOW = 256 * 1024
LINE = 8
GONE = (Cut, ConnectionError, TimeoutError, OSError)


def kill(pid, signum=signal.SIGKILL):
    os.kill(pid, signum)


def worker(service):
    return service.child("cove-api")


def is_up(client):
    try:
        return client.request("GET", "/health", timeout=2).status == 200
    except GONE:
        return False


def kill_worker(service, client):
    """Returns the seconds until another worker answers: what is promised is 1, and printed."""
    old, begin = worker(service), time.monotonic()
    kill(old)
    assert wait_for(lambda: worker(service) not in (None, old) and is_up(client), every=0.005), service.tail()
    return time.monotonic() - begin


@contextlib.contextmanager
def worker_held_down(service, client):
    """The worker is dead and nobody starts another one: coved is stopped."""
    coved = service.coved_pid
    kill(coved, signal.SIGSTOP)
    kill(worker(service))
    try:
        yield
    finally:
        kill(coved, signal.SIGCONT)
        assert wait_for(lambda: is_up(client), every=0.01), service.tail()


def first_process(service, sandbox):
    """The host's pid of the sandbox's first process: the agent."""
    namespace = sandbox.sh("readlink /proc/self/ns/pid")[1].decode().strip()
    assert namespace
    for pid in pids():
        status = read(f"/proc/{pid}/status")
        if link(f"/proc/{pid}/ns/pid") == namespace and re.search(r"^NSpid:.*\s1$", status, re.M):
            return pid
    raise AssertionError(f"no first process in {namespace}")


def is_whole(client, sandbox_id):
    answer = client.verify(sandbox_id)
    return answer.status == 200 and answer.json["intact"]


def happened(client, sandbox_id, kind):
    """The events of this kind, once there is one: they are stored a moment after they happen."""
    return wait_for(lambda: [e for e in client.events(sandbox_id) if e["kind"] == kind])


def event_time(event):
    return datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


def end_time(info):
    return datetime.fromisoformat(info["endAt"].replace("Z", "+00:00")).timestamp()


def groups_and_boxes(service, sandboxes=0):
    """How many there are, but for those of so many sandboxes."""
    return boxes_in(groups(service.state)) - sandboxes, len(boxes(service.state)) - sandboxes


def boxes_settled(service, sandboxes, ahead):
    """Boxes and control groups are those of the sandboxes and the ones made ahead of need, and no others."""
    assert wait_for(lambda: groups_and_boxes(service, sandboxes) == ahead), (groups_and_boxes(service, sandboxes), ahead)


@pytest.fixture(scope="module")
def module_service():
    with running() as (service, client):
        client.create().kill()
        assert wait_for(lambda: not client.list())
        service.ahead = stocked(service.state, 0, lambda: groups_and_boxes(service))
        yield service, client


@pytest.fixture
def live(module_service):
    """(service, client) with no sandboxes before and after."""
    service, client = module_service
    yield service, client
    client.remove_all()
    assert wait_for(lambda: not client.list())
    boxes_settled(service, 0, service.ahead)


# ---- the worker ----


class Ticker:
    """Follows a process that writes numbered lines, coming back after each cut; every line must be there, in order."""

    SCRIPT = "i=0; while :; do printf '%07d\\n' $i; i=$((i+1)); sleep 0.004; done"

    def __init__(self, sandbox):
        self.sandbox, self.stop, self.fault, self.cuts = sandbox, False, None, 0
        self.next_offset, self.again = 0, 0
        self.first = sandbox.start("/bin/sh", "-c", self.SCRIPT, tag="ticker").started()
        self.pid = self.first.pid
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stop and not self.fault:
            try:
                by = {"tag": "ticker"} if self.cuts % 2 else {"pid": self.pid}
                with self.first if not self.cuts else self.sandbox.connect(timeout=10, **by) as stream:
                    self.take(stream)
            except GONE:
                self.cuts += 1
                time.sleep(0.01)
            except (Failed, AssertionError) as e:
                self.fault = repr(e)

    def take(self, stream):
        kept, at = b"", None
        for _, data in stream.output():
            kept += data
            if at is None:
                # The first whole line says where we are.
                begin = kept.find(b"\n") + 1
                if not begin or len(kept) < begin + LINE:
                    continue
                at = int(kept[begin:begin + LINE - 1]) * LINE - begin
                assert at <= self.next_offset, f"{self.next_offset - at} bytes were lost"
                self.again += self.next_offset - at
            whole = len(kept) - (at + len(kept)) % LINE
            skip = -at % LINE
            for i in range(skip, whole, LINE):
                assert int(kept[i:i + LINE]) == (at + i) // LINE, f"{kept[i:i + LINE]!r} at {at + i}"
            taken = max(whole, 0)
            at, kept = at + taken, kept[taken:]
            self.next_offset = max(self.next_offset, at)
            if self.stop:
                return

    def end(self):
        self.stop = True
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert not self.fault, self.fault


class Load:
    """Creates, kills and uploads until told to stop; knows which sandboxes there must be."""

    def __init__(self, client, target):
        self.client, self.target, self.stop = client, target, False
        self.must, self.may, self.faults, self.uploads, self.serial = {}, set(), [], 0, 0
        self.extended, self.ends = 0, 0
        self.threads = [threading.Thread(target=self.loop, args=(f,)) for f in (self.create, self.create, self.upload, self.burst, self.extend)]
        for thread in self.threads:
            thread.start()

    def loop(self, step):
        while not self.stop:
            try:
                step()
            except GONE:
                time.sleep(0.01)
            except Exception as e:  # pylint: disable=broad-except
                self.faults.append(repr(e))
                time.sleep(0.01)

    def create(self):
        self.serial += 1
        number = str(self.serial)
        self.may.add(number)
        sandbox = self.client.create(metadata={"number": number}, timeout=600)
        if int(number) % 10 == 0:
            self.must[sandbox.id] = (number, sandbox.info()["endAt"])
            return
        answer = sandbox.kill()
        assert answer.status == 204, answer
        self.may.discard(number)

    def upload(self):
        answer = self.target.upload("/home/user/upload", b"x" * (4 << 20), timeout=10)
        assert answer.status == 200, answer
        self.uploads += 1

    def extend(self):
        """Each new end is later than the one before: one that was confirmed may be outdone, never forgotten."""
        info = self.target.info()
        assert end_time(info) >= self.ends, f"{info['endAt']} is {self.ends - end_time(info)} s before an end that was confirmed"
        self.extended += 1
        ends = time.time() + 1000 + self.extended
        answer = self.target.set_timeout(1000 + self.extended)
        assert answer.status == 204, answer
        self.ends = ends

    def burst(self):
        status, out, _ = self.target.sh("head -c 3000000 /dev/zero", timeout=10)
        assert (status, len(out)) == (0, 3000000)

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def test_worker_is_killed_again_and_again_under_load(live, record_property):
    service, client = live
    steady = client.create(metadata={"name": "steady", "ünicode": "☃"}, timeout=1000)
    before = steady.info()
    ticker, load, times = Ticker(steady), Load(client, client.create(timeout=1000)), []
    dice = random.Random(20)
    try:
        for _ in range(KILLS):
            time.sleep(dice.uniform(0, 0.6))
            times.append(kill_worker(service, client))
    finally:
        load.end()
        ticker.end()
    print(f"back after {min(times) * 1000:.0f} to {max(times) * 1000:.0f} ms; {ticker.cuts} cuts, {ticker.next_offset} bytes followed, "
          f"{ticker.again} twice; {load.serial} creates, {load.uploads} uploads, {load.extended} new ends")
    record_property("slowest_restart_ms", round(max(times) * 1000))
    # What is refused rather than cut is said as unavailable: the worker was there, its sandbox not yet.
    assert not [f for f in load.faults if "503" not in f and "unavailable" not in f], load.faults[:5]
    assert steady.info() == before
    assert load.uploads > 0 and load.must

    listed = client.list()
    for sandbox_id, (number, end_at) in load.must.items():
        assert (listed[sandbox_id]["metadata"], listed[sandbox_id]["endAt"]) == ({"number": number}, end_at)
    unexpected = [s for i, s in listed.items() if i not in (steady.id, load.target.id, *load.must) and s["metadata"]["number"] not in load.may]
    assert not unexpected
    for sandbox_id in listed:
        assert Sandbox(client, sandbox_id, client.get(sandbox_id).json["envdAccessToken"]).works()
        assert is_whole(client, sandbox_id), client.verify(sandbox_id)
    assert client.kinds(steady.id).count("service.recovered") == KILLS
    boxes_settled(service, len(listed), service.ahead)


def test_output_and_exits_of_meanwhile_are_there_afterwards(live):
    service, client = live
    sandbox = client.create(timeout=600, envVars={"KEPT": "yes"})
    agent = first_process(service, sandbox)
    assert sandbox.upload("/home/user/go", b"").status == 200
    meanwhile = "until test -s /home/user/go; do sleep 0.05; done; "
    def begin(script, **more):
        with sandbox.start("/bin/sh", "-c", script, **more) as stream:
            return stream.started().pid
    with sandbox.start("/bin/sh", "-c", f"echo early; {meanwhile} echo late; exit 7", tag="exits") as watched:
        assert next(watched.output()) == ("stdout", b"early\n")
        killed = begin(f"{meanwhile} kill -9 $$")
        quiet = begin(f"{meanwhile} echo out; echo err >&2; touch /home/user/quiet; sleep 1000", tag="quiet")
        flood = begin(f"{meanwhile} seq -f %07g 0 199999; sleep 0.2; exit 3", tag="flood")
        reader = begin("read line; echo got $line; exit 5", stdin=True)
        before, running_before = sandbox.info(), sandbox.processes()
        with worker_held_down(service, client):
            # There is nobody to ask: from the host it is told to go on, and seen to have ended.
            inside = f"/proc/{agent}/root"
            with open(f"{inside}/home/user/go", "r+b") as go:
                go.write(b"on")
            ended = [f"{inside}/proc/{pid}" for pid in (watched.pid, killed, flood)]
            assert wait_for(lambda: os.path.exists(f"{inside}/home/user/quiet") and not any(map(os.path.exists, ended)))
        with pytest.raises(Cut):
            watched.next()
    assert sandbox.info() == before
    listed = sandbox.processes()
    assert {p["pid"] for p in listed} == {quiet, reader}
    assert [p for p in running_before if p["pid"] in (quiet, reader)] == listed
    with sandbox.connect(tag="exits") as stream:
        assert stream.rest() == (7, b"late\n", b"")
    with sandbox.connect(pid=killed) as stream:
        assert stream.rest()[0] == -1
        assert stream.exit["status"] == "signal: killed"
    with sandbox.connect(tag="quiet") as stream:
        got = dict(data for _, data in zip(range(2), stream.output()))
        assert got == {"stdout": b"out\n", "stderr": b"err\n"}
    whole = b"".join(b"%07d\n" % i for i in range(200000))
    with sandbox.connect(tag="flood") as stream:
        status, out, _ = stream.rest()
        assert status == 3 and len(out) == WINDOW and whole.endswith(out)
    answer = sandbox.unary("process.Process/SendInput", {"process": {"pid": reader}, "input": {"stdin": "eWVzCg=="}})
    assert answer.status == 200, answer
    with sandbox.connect(pid=reader) as stream:
        assert stream.rest() == (5, b"got yes\n", b"")
    assert sandbox.sh("echo $KEPT")[1] == b"yes\n"
    exits = [e["data"] for e in client.events(sandbox.id) if e["kind"] == "exec.exit"]
    assert any(d["pid"] == flood and d["output_bytes"] == len(whole) and d["exit_code"] == 3 for d in exits), exits
    assert is_whole(client, sandbox.id)


def test_verify_by_command_line_after_a_crash(live):
    service, client = live
    sandbox = client.create()
    sandbox.sh("echo one")
    kill_worker(service, client)
    sandbox.sh("echo two")
    kill_worker(service, client)
    done = service.cove("log", "--verify", sandbox.id)
    assert done.returncode == 0, done.stderr
    kinds = client.kinds(sandbox.id)
    assert kinds.count("service.recovered") == 2 and kinds.count("exec.exit") == 2


def test_worker_is_killed_while_it_recovers(live):
    """Again and again before it is ready: nothing is lost by half a recovery, nothing done twice."""
    service, client = live
    sandboxes = [client.create(metadata={"number": str(i)}, timeout=1000) for i in range(20)]
    for sandbox in sandboxes[:10]:
        with sandbox.start("/bin/sh", "-c", "echo out; sleep 1000", tag="sleeper") as stream:
            stream.started()
    before, dice = client.list(), random.Random(3)
    for _ in range(8):
        old = worker(service)
        kill(old)
        assert wait_for(lambda: worker(service) not in (None, old), every=0.0005) # pylint: disable=cell-var-from-loop
        time.sleep(dice.uniform(0, 0.03))
    kill_worker(service, client)
    assert client.list() == before
    for sandbox in sandboxes:
        assert sandbox.works() and is_whole(client, sandbox.id)
    for sandbox in sandboxes[:10]:
        assert [p.get("tag") for p in sandbox.processes()] == ["sleeper"]
        answer = sandbox.unary("process.Process/SendSignal", {"process": {"tag": "sleeper"}, "signal": "SIGNAL_SIGTERM"})
        assert answer.status == 200, answer
        assert wait_for(lambda s=sandbox: [e for e in happened(client, s.id, "exec.exit") if e["data"].get("signal") == signal.SIGTERM])
        assert len([e for e in client.events(sandbox.id) if e["kind"] == "exec.output"]) == 1


# ---- expiry ----


def test_timeouts_do_not_feel_a_restart(live):
    service, client = live
    restart = kill_worker(service, client)
    sandboxes = [client.create(timeout=5 + math.ceil(20 * restart)) for _ in range(3)] # longer than two restarts take
    infos = [s.info() for s in sandboxes]
    time.sleep(0.5)
    kill_worker(service, client)
    time.sleep(0.3)
    kill_worker(service, client)
    assert [s.info() for s in sandboxes] == infos
    # Whoever begins to count anew after a restart is outdone by one that ends later than these should, and sooner than they would then.
    marker = client.native("POST", "/cove/v1/sandboxes", {"timeout_ms": round(1000 * (end_time(infos[-1]) + 0.4 - time.time()))}).json["id"]
    late = []
    for sandbox, info in zip(sandboxes, infos):
        assert wait_for(lambda s=sandbox: s.health() == 502)
        expired = happened(client, sandbox.id, "sandbox.expired")
        assert len(expired) == 1
        late.append(event_time(expired[0]) - end_time(info))
    print("expired late by", [f"{s * 1000:.1f} ms" for s in late])
    assert all(s > -0.001 for s in late), late
    last, = happened(client, marker, "sandbox.expired")
    assert all(event_time(happened(client, s.id, "sandbox.expired")[0]) <= event_time(last) for s in sandboxes)


def test_timeout_that_passed_meanwhile_fires_at_once(live):
    service, client = live
    soon, later = client.create(timeout=1), client.create(timeout=600)
    with worker_held_down(service, client):
        time.sleep(1.5)
    back = time.monotonic()
    assert wait_for(lambda: soon.health() == 502)
    print(f"expired {1000 * (time.monotonic() - back):.0f} ms after the worker was back")
    assert happened(client, soon.id, "sandbox.expired")
    assert later.health() == 204 and set(client.list()) == {later.id}


# ---- the agent ----


def test_agent_is_killed(live):
    service, client = live
    victim, others = client.create(), [client.create() for _ in range(3)]
    tickers = [Ticker(s) for s in others]
    agent = first_process(service, victim)
    try:
        with victim.start("sleep", "1000") as stream, victim.start("sh", "-c", "while :; do echo; sleep 0.01; done") as loud:
            stream.started()
            loud.started()
            kill(agent)
            begin = time.monotonic()
            with pytest.raises(Cut):
                list(stream.output())
            with pytest.raises(Cut):
                list(loud.output())
        assert wait_for(lambda: victim.health() == 502)
        print(f"all knew after {1000 * (time.monotonic() - begin):.0f} ms")
        assert client.get(victim.id).status == 404
        assert set(client.list()) == {s.id for s in others}
        ended, = happened(client, victim.id, "sandbox.ended")
        assert (ended["grade"], ended["data"]["cause"], ended["data"]["status"]) == ("observed-kernel", "signaled", signal.SIGKILL)
        assert all(s.works() for s in others)
    finally:
        for ticker in tickers:
            ticker.end()
    assert [t.cuts for t in tickers] == [0, 0, 0]
    assert is_whole(client, victim.id)


def test_an_agent_that_takes_its_time_to_die_died_of_its_own(live):
    """Its socket is closed, and coved asked to kill it, while the kernel still waits for a process of its namespace."""
    service, client = live
    victim = client.create()
    agent = first_process(service, victim)
    freezer = re.search(":freezer:(.*)", read(f"/proc/{agent}/cgroup"))
    if not freezer:
        pytest.skip("version 2 of control groups lets a frozen process be killed")
    held = Path(f"/sys/fs/cgroup/freezer{freezer[1]}/held")
    with victim.start("sleep", "1000") as stream:
        stream.started()
        sleeper, = (p for p in processes(service.state) if link(f"/proc/{p}/ns/pid") == link(f"/proc/{agent}/ns/pid") and read(f"/proc/{p}/comm") == "sleep\n")
        held.mkdir()
        try:
            (held / "cgroup.procs").write_text(str(sleeper))
            (held / "freezer.state").write_text("FROZEN")
            kill(agent)
            assert wait_for(lambda: victim.health() == 502)
            time.sleep(1) # twice as long as the service waits before it asks for the kill
            assert not {"sandbox.ended", "sandbox.failed"} & set(client.kinds(victim.id))
        finally:
            (held / "freezer.state").write_text("THAWED")
            assert wait_for(lambda: not read(held / "cgroup.procs"))
            held.rmdir()
    ended, = happened(client, victim.id, "sandbox.ended")
    assert (ended["data"]["cause"], ended["data"]["status"]) == ("signaled", signal.SIGKILL)


# ---- coved ----


BUSY = ["trap '' TERM INT HUP; while :; do :; done", "trap '' TERM; exec sleep 1000", "setsid sleep 1000 & setsid sh -c 'while :; do sleep 1; done' &",
        "while :; do dd if=/dev/zero of=f bs=1M count=20 2>/dev/null; done", "for i in $(seq 50); do sleep 1000 & done; wait",
        "sleep 1000 & kill -STOP $!; wait"]


def start_busy(client):
    sandboxes = []
    for i, script in enumerate(BUSY):
        sandbox = client.create(metadata={"number": str(i)})
        with sandbox.start("/bin/sh", "-c", script, user="root" if i % 2 else "user") as stream:
            stream.started()
        sandboxes.append(sandbox)
    return sandboxes


def test_stopping_leaves_nothing(record_property):
    with running() as (service, client):
        sandboxes = start_busy(client)
        with sandboxes[0].start("sleep", "1000") as stream:
            stream.started()
            footprint = service.footprint.look()
            assert len(footprint.namespaces) > 7 * len(sandboxes)
            begin = time.monotonic()
            assert service.stop() == 0
            record_property("stop_ms", round(1000 * (time.monotonic() - begin)))
            print(f"stopped {len(sandboxes)} sandboxes in {time.monotonic() - begin:.2f} s")
            with pytest.raises(Cut):
                list(stream.output())
        # Not a moment later: it said that it was done.
        assert footprint.left() == []
        complaints = [line for line in service.tail(100).splitlines() if " error " in line or " warning " in line]
        on_a_slow_disk = "are not deleted yet: the next start continues"
        assert not [line for line in complaints if "out-of-memory killer" not in line and on_a_slow_disk not in line], complaints
        service.start()
        assert client.list() == {}
        for sandbox in sandboxes:
            ended, = happened(client, sandbox.id, "sandbox.ended")
            assert ended["data"]["cause"] == "shutdown"
            assert is_whole(client, sandbox.id)


def test_second_service_on_the_same_state_does_no_harm(live):
    service, client = live
    sandbox = client.create()
    done = subprocess.run([BUILD / "coved", "run"], env=service.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "another coved runs" in done.stderr, done.stderr
    assert sandbox.works() and is_up(client)
    assert service.cove("ls").returncode == 0


def power_cut(service, everything):
    """SIGKILL to coved, or to all that it has as fast as one can."""
    victims = [service.coved.pid]
    if everything:
        victims += [pid for pid in processes(service.state) if pid != service.coved.pid]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            kill(pid)
    service.coved.wait(60)


def database_is_sound(service):
    with contextlib.closing(sqlite3.connect(service.state / "api" / "cove.db")) as db:
        return db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("everything", [False, True], ids=["coved", "everything"])
def test_power_cut(everything):
    with running() as (service, client):
        key = (service.state / "key").read_bytes()
        sandboxes = start_busy(client)
        gone = client.create()
        assert gone.kill().status == 204
        with sandboxes[0].start("sleep", "1000") as stream:
            stream.started()
            service.footprint.look()
            power_cut(service, everything)
            # Nothing of it runs on without its supervisor.
            assert wait_for(lambda: not processes(service.state)), processes(service.state)
            with pytest.raises(Cut):
                list(stream.output())
        assert pool(service.state), "a test that proves nothing: nothing was left to clean up"
        assert database_is_sound(service)
        mark = service.log.stat().st_size
        service.start()
        said = service.log.read_bytes()[mark:].decode()
        lost = re.search(r"(\d+) lost or ended", said)
        assert "an earlier coved died" in said and lost and int(lost[1]) in (len(sandboxes), len(sandboxes) + 1), said
        assert (service.state / "key").read_bytes() == key
        assert client.list() == {}
        for sandbox in sandboxes:
            answer = client.native("GET", f"/cove/v1/sandboxes/{sandbox.id}")
            assert (answer.json["state"], answer.json["end_cause"]) == ("ended", "lost"), answer
            last = client.events(sandbox.id)[-1]
            assert (last["kind"], last["data"]["cause"]) == ("sandbox.ended", "lost")
            assert sandbox.health() == 502 and client.get(sandbox.id).status == 404
            assert is_whole(client, sandbox.id)
        assert [e["data"]["cause"] for e in happened(client, gone.id, "sandbox.ended")] == ["killed"]
        assert client.create().works()
        footprint = Footprint(service.state, service.run)
        assert wait_for(lambda: not any("trash" in line for line in footprint.left()))
        assert database_is_sound(service)


def test_coved_is_killed_while_50_sandboxes_are_made():
    with running() as (service, client):
        made, refused, begun = [], [], threading.Barrier(51)
        def one(number):
            begun.wait()
            try:
                made.append(client.create(metadata={"number": str(number)}).id)
            except GONE as e:
                refused.append(repr(e))
            except AssertionError as e:
                refused.append(str(e))
        threads = [threading.Thread(target=one, args=(n,)) for n in range(50)]
        for thread in threads:
            thread.start()
        begun.wait()
        time.sleep(0.03)
        service.footprint.look()
        power_cut(service, everything=False)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        print(f"{len(made)} made, {len(refused)} not")
        assert wait_for(lambda: not processes(service.state)), processes(service.state)
        service.start()
        assert client.list() == {}
        with contextlib.closing(sqlite3.connect(service.state / "api" / "cove.db")) as db:
            rows = dict(db.execute("SELECT id, end_cause FROM sandboxes WHERE ended_at > 0").fetchall())
            assert db.execute("SELECT count(*) FROM sandboxes WHERE ended_at = 0").fetchone() == (0,)
        assert set(made) <= set(rows), "a client was told of a sandbox that the store does not know"
        assert set(rows.values()) <= {"lost", "failed"}, rows
        for sandbox_id in rows:
            assert is_whole(client, sandbox_id)
        assert client.create().works()


# ---- the store ----


def check_refuses_what_it_cannot_record(client, sandbox, code):
    """The store takes nothing: reading works, ending works, all else is refused and says why."""
    before = sandbox.info()
    # The first one may fall into the last batch that nobody knew would be lost.
    answers = [client.control("POST", "/v2/sandboxes", {"templateID": "base"}) for _ in range(3)]
    assert {a.status for a in answers} == {code} and all("message" in a.json for a in answers), answers
    for _ in range(2):
        with pytest.raises(Failed):
            sandbox.sh("touch /tmp/unrecorded")
    assert sandbox.upload("/tmp/unrecorded", b"x").status == code
    assert sandbox.set_timeout(5000).status == code
    assert sandbox.info() == before and sandbox.health() == 204
    assert client.request("GET", "/health").status == 200
    assert is_whole(client, sandbox.id)
    doomed = [i for i in client.list() if i != sandbox.id]
    assert doomed
    for sandbox_id in doomed:
        assert client.control("DELETE", f"/sandboxes/{sandbox_id}").status == 204
    assert set(client.list()) == {sandbox.id}
    return before


def is_well(sandbox):
    try:
        return sandbox.works()
    except (Failed, *GONE):
        return False


def check_is_well_again(service, client, sandbox):
    assert wait_for(lambda: is_well(sandbox))
    assert sandbox.sh("test -e /tmp/unrecorded")[0] == 1
    assert sandbox.set_timeout(5000).status == 204
    another = client.create()
    assert another.works()
    kill_worker(service, client)
    assert set(client.list()) == {sandbox.id, another.id}
    assert is_whole(client, sandbox.id) and is_whole(client, another.id)
    assert database_is_sound(service)


@contextlib.contextmanager
def full_disk(service):
    filler = service.state / "api" / "filler"
    try:
        with open(filler, "wb", buffering=0) as f:
            size = 1 << 20
            while size:
                try:
                    f.write(b"x" * size)
                except OSError:
                    size //= 2
        yield
    finally:
        filler.unlink()


def test_full_disk_under_the_store():
    with running(store_size="6m") as (service, client):
        sandbox, other = client.create(timeout=1000), client.create()
        assert sandbox.works() and other.works()
        with full_disk(service):
            before = check_refuses_what_it_cannot_record(client, sandbox, 429)
            kill_worker(service, client)
            assert sandbox.info() == before and set(client.list()) == {sandbox.id}
        check_is_well_again(service, client, sandbox)


def test_what_frees_room_is_done_and_recorded_on_a_full_disk():
    """By room that is kept for it alone, until that is used up; it is made again when there is room."""
    with running(store_size="24m") as (service, client):
        reserve = service.state / "api" / "cove.db.reserve"
        def kept():
            return reserve.stat().st_blocks * 512
        def told():
            lines = service.cove("events", "--json").stdout.splitlines()
            return {e["kind"] for e in map(json.loads, lines) if e.get("actor")}
        assert wait_for(lambda: kept() == 4 << 20), kept()
        killed, lives = client.create(timeout=1000), client.create(timeout=1000)
        snapshot = service.cove("snapshot", lives.id).stdout.strip()
        assert service.cove("volume", "create", "old").returncode == 0
        with full_disk(service):
            # Whoever comes first doesn't know yet that it is full.
            for command in (["snapshot", "rm", snapshot], ["volume", "rm", "old"], ["gc"], ["rm", killed.id]):
                done = service.cove(*command)
                assert done.returncode == 0, (command, done)
            refused = client.control("POST", "/v2/sandboxes", {"templateID": "base"})
            assert refused.status == 429 and "the store's disk is full" in str(refused.json), refused
            assert {"template.remove", "volume.drop", "pool.collect", "sandbox.kill"} <= told(), told()
            # What of it wasn't needed is taken back, and is nobody else's.
            assert wait_for(lambda: kept() > 7 << 19), kept()
            rest = kept()
            answers = [client.control("POST", "/v2/sandboxes", {"templateID": "base"}).status for _ in range(60)]
            assert 429 in answers and kept() == rest, (answers, kept())
            kill_worker(service, client)
            assert service.cove("gc").returncode == 0 and lives.id in client.list()
        assert wait_for(lambda: kept() == 4 << 20), kept()
        assert wait_for(lambda: is_well(lives)) and b"the store takes writes again" in service.log.read_bytes()
        assert database_is_sound(service)
        lives.kill()


def test_what_ends_on_a_full_disk_is_recorded_when_there_is_room():
    with running(store_size="6m") as (service, client):
        killed, lives = client.create(), client.create(timeout=1000)
        def cause(sandbox):
            with contextlib.closing(sqlite3.connect(service.state / "api" / "cove.db")) as db:
                return db.execute("SELECT end_cause FROM sandboxes WHERE id = ? AND ended_at > 0", [sandbox.id]).fetchone()
        with full_disk(service):
            assert killed.kill().status == 204
            assert set(client.list()) == {lives.id}
            assert wait_for(lambda: b"the disk is full" in service.log.read_bytes())
            assert cause(killed) is None
        assert wait_for(lambda: cause(killed) == ("killed",)), cause(killed)
        kill_worker(service, client)
        assert cause(killed) == ("killed",)
        assert is_whole(client, killed.id) and lives.works() and database_is_sound(service)


def test_store_that_cannot_be_written():
    with running() as (service, client):
        sandbox, _ = client.create(timeout=1000), client.create()
        files = [service.state / "api" / name for name in ("cove.db", "cove.db-wal")]
        if subprocess.run(["chattr", "+i", *files], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            pytest.skip("this file system has no immutable files")
        try:
            check_refuses_what_it_cannot_record(client, sandbox, 500)
            # Without its store the worker can't know who lives: it says so and tries again. Nothing ends meanwhile.
            mark = service.log.stat().st_size
            kill(worker(service))
            assert wait_for(lambda: b"open the store" in service.log.read_bytes()[mark:])
        finally:
            subprocess.run(["chattr", "-i", *files], check=True)
        assert wait_for(lambda: is_up(client))
        check_is_well_again(service, client, sandbox)
