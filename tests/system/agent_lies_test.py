# SPDX-License-Identifier: Apache-2.0
"""
The real service with agents that break their protocol (liar.c): who waits is answered in bounded time, the liar's sandbox ends with an
event, its neighbours and other services on the machine notice nothing.
"""

import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from client import Cut, Failed, wait_for
from leaks import rss_kib, running
from service import BUILD

HERE = Path(__file__).resolve().parent
UNARY_S, HELLO_S = 30, 5 # what the worker waits
FIRST_WORDS = ["mute", "half", "version", "garbage", "hangs-up", "dies"]
LIES = ["huge-frame", "unknown-stream", "unknown-type", "garbage", "output-without-start", "floods", "floods-with-nothing", "floods-with-credit",
        "ends-twice", "lies-about-the-end"]
GONE = ["closes", "dies"]


@pytest.fixture(scope="module")
def programs():
    """A directory like the build's, but for the agent."""
    with tempfile.TemporaryDirectory(prefix="test-liar-", dir=BUILD) as directory:
        os.chmod(directory, 0o755)
        for name in ("coved", "cove-api", "cove"):
            shutil.copy2(BUILD / name, directory)
        subprocess.run(["musl-gcc", "-static", "-O1", "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", HERE / "liar.c",
                        "-o", Path(directory) / "cove-agent"], check=True, timeout=60)
        yield directory


@pytest.fixture(scope="module")
def place(programs):
    """(service of liars, its client, a truthful neighbour, an honest sandbox of another service, what is never answered)"""
    with running(build=programs) as (service, client), running() as (_, other):
        base = (service.state / "templates" / "base.conf").read_text()
        for name in [*FIRST_WORDS, "hellos"]:
            text = base.replace("id = base", f"id = lie-{name}").replace("alias = base", f"alias = lie-{name}")
            (service.state / "templates" / f"lie-{name}.conf").write_text(text)
        neighbour, honest = client.create(timeout=3600), other.create(timeout=3600)
        first_kib = rss_kib(service.child("cove-api"))
        service.workers = 1
        unanswered = Unanswered(client)
        yield service, client, neighbour, honest, unanswered
        assert neighbour.works() and honest.works()
        started = service.log.read_text().count("cove-api: ready")
        assert started == service.workers, "the worker died:\n" + service.tail()
        grown = rss_kib(service.child("cove-api")) - first_kib
        print(f"the worker grew by {grown} KiB")
        assert grown < 64 * 1024


class Unanswered:
    """Requests of every kind to an agent that answers none; begun early, because it takes half a minute to lose patience."""

    def __init__(self, client):
        self.sandbox = client.create(timeout=3600)
        sb = self.sandbox
        def start():
            with sb.start("never-answers", timeout=60) as stream:
                return stream.rest()
        def watch():
            with sb.stream("filesystem.Filesystem/WatchDir", {"path": "/tmp"}, timeout=60) as stream:
                return stream.next()
        self.calls = {
            "start": start, "watch": watch,
            "stat": lambda: sb.unary("filesystem.Filesystem/Stat", {"path": "/tmp"}, timeout=60),
            "list": lambda: sb.unary("filesystem.Filesystem/ListDir", {"path": "/tmp"}, timeout=60),
            "remove": lambda: sb.unary("filesystem.Filesystem/Remove", {"path": "/tmp/x"}, timeout=60),
            "signal": lambda: sb.unary("process.Process/SendSignal", {"process": {"pid": 7}, "signal": "SIGNAL_SIGKILL"}, timeout=60),
            "download": lambda: sb.download("/etc/passwd", timeout=60),
            "upload": lambda: sb.upload("/tmp/x", b"x" * (1 << 20), timeout=60),
            "port": lambda: sb.request("GET", "/", headers={"E2b-Sandbox-Port": "8000"}, timeout=60),
        }
        self.results, self.seconds = {}, {}
        self.threads = [threading.Thread(target=self.run, args=item, daemon=True) for item in self.calls.items()]
        for thread in self.threads:
            thread.start()

    def run(self, name, call):
        begin = time.monotonic()
        try:
            self.results[name] = call()
        except (Cut, Failed, OSError, AssertionError) as e:
            self.results[name] = e
        self.seconds[name] = time.monotonic() - begin


def end_of(client, sandbox_id):
    """The events once its end is among them."""
    assert wait_for(lambda: {"sandbox.failed", "sandbox.ended"} & set(client.kinds(sandbox_id))), client.kinds(sandbox_id)
    return client.events(sandbox_id)


def answers(sandbox):
    """It does again, or not yet: a worker that takes over refuses what it has not got to."""
    try:
        return run(sandbox, "true") == 0
    except (AssertionError, OSError):
        return False


def run(sandbox, command, headers=None):
    """What a client sees of it: its exit code, or why there is none. A sandbox that ends cuts its connections, also before their answer."""
    try:
        with sandbox.stream("process.Process/Start", {"process": {"cmd": command}}, headers) as stream:
            return stream.rest()[0]
    except (Cut, Failed, ConnectionError) as e:
        return e


@pytest.mark.parametrize("lie", FIRST_WORDS)
def test_lies_before_the_first_word(place, lie):
    service, client, neighbour, honest, _ = place
    begin = time.monotonic()
    answer = client.control("POST", "/v2/sandboxes", {"templateID": f"lie-{lie}", "metadata": {"lie": lie}})
    seconds = time.monotonic() - begin
    assert answer.status == 503 and answer.json["message"], answer
    assert lie not in ("mute", "half") or seconds >= HELLO_S - 0.5
    print(f"{answer.json['message']} after {seconds:.2f} s")
    assert lie not in [s.get("metadata", {}).get("lie") for s in client.list().values()]
    assert neighbour.works() and honest.works()
    assert service.coved.poll() is None


def test_hello_without_end(place):
    _, client, neighbour, honest, _ = place
    answer = client.control("POST", "/v2/sandboxes", {"templateID": "lie-hellos"})
    assert answer.status == 201 # the first one is true
    assert "agent.violation" in [e["kind"] for e in end_of(client, answer.json["sandboxID"])]
    assert neighbour.works() and honest.works()


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_a_command(place, lie):
    _, client, neighbour, honest, _ = place
    sandbox = client.create()
    assert sandbox.works()
    result = run(sandbox, lie)
    # Only what was whole before the lie was told counts.
    assert result == 0 if lie == "ends-twice" else isinstance(result, Exception), result
    assert wait_for(lambda: sandbox.health() == 502)
    events = end_of(client, sandbox.id)
    violations = [e for e in events if e["kind"] == "agent.violation"]
    assert len(violations) == 1 and violations[0]["grade"] == "observed-host" and violations[0]["data"]["what"]
    assert [e["data"]["cause"] for e in events if e["kind"] == "sandbox.failed"] == ["failed"]
    assert client.get(sandbox.id).status == 404
    assert client.verify(sandbox.id).json["intact"]
    assert neighbour.works() and honest.works()
    print(violations[0]["data"]["what"])


def test_file_that_is_written_before_it_is_there(place):
    """The agent takes no byte of what is longer than its window, and says that all is well."""
    _, client, neighbour, honest, _ = place
    sandbox = client.create()
    try:
        status = sandbox.upload("/written", b"x" * (1 << 20)).status
    except OSError:
        status = None # cut, as all connections of a sandbox that ends
    assert status in (None, 502, 503), status
    assert wait_for(lambda: sandbox.health() == 502)
    kinds = [e["kind"] for e in end_of(client, sandbox.id)]
    assert kinds.count("agent.violation") == 1 and "file.done" not in kinds, kinds
    assert neighbour.works() and honest.works()


@pytest.mark.parametrize("way", GONE)
def test_agents_that_leave(place, way):
    _, client, neighbour, honest, _ = place
    sandbox = client.create()
    assert isinstance(run(sandbox, way), Exception)
    assert wait_for(lambda: sandbox.health() == 502)
    events = {e["kind"]: e for e in end_of(client, sandbox.id)}
    assert "agent.violation" not in events
    if way == "dies": # its end may be known before its socket is seen to close
        ended = events["sandbox.ended"]["data"]
        assert (ended["cause"], ended["status"]) == ("exited", 42), ended
    else:
        assert "agent.lost" in events and "sandbox.failed" in events
    assert neighbour.works() and honest.works()


def test_waiting_calls_are_answered_when_the_lie_comes(place):
    _, client, _, _, _ = place
    sandbox, results = client.create(), {}
    calls = {"start": lambda: run(sandbox, "never-answers"), "stat": lambda: sandbox.unary("filesystem.Filesystem/Stat", {"path": "/"}),
             "upload": lambda: sandbox.upload("/x", b"x" * 100_000), "download": lambda: sandbox.download("/x")}
    def wait(name, call):
        try:
            results[name] = call()
        except OSError as e:
            results[name] = e
    threads = [threading.Thread(target=wait, args=item) for item in calls.items()]
    for thread in threads:
        thread.start()
    assert wait_for(lambda: run(sandbox, "counts-who-waits") == len(calls))
    assert isinstance(run(sandbox, "huge-frame"), Exception)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert all(isinstance(r, Exception) for r in results.values()) and len(results) == len(calls), results


def test_agent_that_reads_no_more_can_be_killed(place):
    _, client, neighbour, _, _ = place
    sandbox = client.create()
    with sandbox.start("silent") as stream:
        stream.started()
        uploads = [threading.Thread(target=lambda: pytest.raises(OSError, sandbox.upload, "/x", b"x" * (4 << 20))) for _ in range(8)]
        for upload in uploads:
            upload.start()
        time.sleep(0.3)
        assert sandbox.kill().status == 204
        with pytest.raises(Cut):
            stream.next()
        for upload in uploads:
            upload.join(60)
            assert not upload.is_alive()
    assert sandbox.health() == 502 and neighbour.works()


def test_honest_failures_are_no_lies(place):
    _, client, _, _, _ = place
    sandbox = client.create()
    assert run(sandbox, "fails").code == "internal"
    assert sandbox.works()


def test_half_a_frame_is_waited_for(place):
    _, client, neighbour, _, _ = place
    sandbox = client.create()
    assert run(sandbox, "half-a-frame", {"Connect-Timeout-Ms": "1000"}).code == "deadline_exceeded"
    assert sandbox.kill().status == 204 and neighbour.works()


def test_requests_that_are_never_answered(place):
    _, client, neighbour, _, unanswered = place
    for thread in unanswered.threads:
        thread.join(UNARY_S + 60)
        assert not thread.is_alive()
    for name, result in unanswered.results.items():
        print(f"{name}: {unanswered.seconds[name]:.1f} s: {result!r}"[:150])
    for name, result in unanswered.results.items(): # those that were given up by us, as too late, are neither
        if isinstance(result, Exception):
            assert isinstance(result, Failed) and result.code == "deadline_exceeded", (name, result)
        else:
            assert result.status in (502, 504), (name, result)
    assert unanswered.sandbox.kill().status == 204
    assert neighbour.works()


def test_worker_takes_over_liars(place):
    """A new worker meets agents that say nothing to it, or lie about what runs."""
    service, client, neighbour, honest, _ = place
    will_be = {lie: client.create(timeout=3600) for lie in ("mute-next", "lies-about-processes", "hangs-up-next")}
    for lie, sandbox in will_be.items():
        assert run(sandbox, lie) == 0
    os.kill(service.child("cove-api"), 9)
    service.workers += 1
    assert wait_for(lambda: answers(neighbour))
    for lie, sandbox in will_be.items():
        assert wait_for(lambda s=sandbox: s.health() == 502), lie
        kinds = [e["kind"] for e in end_of(client, sandbox.id)]
        assert ("agent.violation" if lie == "lies-about-processes" else "agent.lost") in kinds, (lie, kinds)
        assert "sandbox.failed" in kinds and "service.recovered" in kinds
    assert neighbour.works() and honest.works()
    assert not {s.id for s in will_be.values()} & client.list().keys()
