# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that are paused, resumed, cloned and brought back, through the whole service: what their users find inside afterwards."""

import contextlib
import json
import os
import signal
import socket
import threading
import time

import leaks
import pytest
from service import wait_until
from storage_test import prepared


def post(service, path, body=None):
    status, _, answer = service.request("POST", f"/cove/v1/{path}", body or {})
    return status, answer


def run(service, sandbox, script):
    done = service.cove("exec", sandbox, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout


def info(service, sandbox):
    return service.request("GET", f"/cove/v1/sandboxes/{sandbox}")[2]


def state(service, sandbox):
    return info(service, sandbox).get("state")


def events(service, sandbox):
    return [json.loads(line) for line in service.request("GET", f"/cove/v1/sandboxes/{sandbox}/events")[2].splitlines()]


def pause(service, sandbox, **how):
    status, answer = post(service, f"sandboxes/{sandbox}/pause", how)
    assert status == 200, answer
    assert answer["state"] == "paused"


def resume(service, sandbox, **how):
    status, answer = post(service, f"sandboxes/{sandbox}/resume", how)
    assert status == 200, answer
    assert answer["state"] == "running"


def counter(service, sandbox):
    """A process that counts in a file, ten times a second. Its pid."""
    script = "(n=0; while :; do n=$((n + 1)); echo $n > /tmp/m; mv /tmp/m /tmp/n; sleep 0.1; done) > /dev/null 2>&1 & echo $!"
    pid = run(service, sandbox, script).strip()
    run(service, sandbox, "until test -s /tmp/n; do sleep 0.05; done")
    return pid


@pytest.fixture
def own_service():
    """One that a test may stop and start again."""
    with leaks.own_service("asleep") as service:
        yield service
        service.remove_all()


def test_processes_stand_still_and_go_on(service, sandbox):
    pid = counter(service, sandbox)
    pause(service, sandbox)
    assert service.cove("exec", sandbox, "--", "true").returncode != 0
    status, answer = post(service, f"sandboxes/{sandbox}/pause")
    assert status == 400 and answer["error"]["code"] == "failed_precondition", answer
    time.sleep(0.5)
    resume(service, sandbox)
    before = int(run(service, sandbox, "cat /tmp/n"))
    assert run(service, sandbox, f"kill -0 {pid} && echo there") == "there\n"
    assert wait_until(lambda: int(run(service, sandbox, "cat /tmp/n")) > before)
    kinds = [e["kind"] for e in events(service, sandbox)]
    assert [k for k in kinds if k.startswith(("sandbox.pause", "sandbox.resume"))] == [
        "sandbox.pause", "sandbox.paused", "sandbox.resume", "sandbox.resumed"]


def test_a_stream_stays_open(service, sandbox):
    process = service.popen("exec", sandbox, "--", "sh", "-c", "echo one; until test -e /tmp/go; do sleep 0.1; done; echo two", stdout=-1, text=True)
    assert process.stdout.readline() == "one\n"
    pause(service, sandbox)
    time.sleep(0.5)
    assert process.poll() is None
    resume(service, sandbox)
    run(service, sandbox, "touch /tmp/go")
    assert process.stdout.readline() == "two\n"
    assert process.wait(60) == 0


def test_files_alone(service, sandbox):
    pid = counter(service, sandbox)
    boot = run(service, sandbox, "cat /proc/sys/kernel/random/boot_id; echo kept > /home/user/file")
    pause(service, sandbox, memory=False)
    resume(service, sandbox)
    assert run(service, sandbox, "cat /home/user/file") == "kept\n"
    assert run(service, sandbox, "cat /proc/sys/kernel/random/boot_id") != boot
    assert service.cove("exec", sandbox, "--", "sh", "-c", f"grep -q n= /proc/{pid}/cmdline").returncode != 0
    pause(service, sandbox)
    resume(service, sandbox, cold=True)
    assert run(service, sandbox, "cat /home/user/file") == "kept\n"


def test_paused_when_its_time_is_up(service):
    sandbox = service.create(on_timeout="pause")
    pid = counter(service, sandbox)
    status, answer = post(service, f"sandboxes/{sandbox}/timeout", {"timeout_ms": 500})
    assert status == 200, answer
    assert wait_until(lambda: state(service, sandbox) == "paused")
    expired = next(e for e in events(service, sandbox) if e["kind"] == "sandbox.expired")
    assert expired["actor"] == "timer"
    time.sleep(1.5)
    assert state(service, sandbox) == "paused"
    resume(service, sandbox, timeout_ms=60000)
    run(service, sandbox, f"kill -0 {pid}")
    sandbox = service.create(timeout_ms=500, on_timeout="pause", pause_memory=False)
    assert wait_until(lambda: state(service, sandbox) == "paused")
    assert info(service, sandbox)["has_memory"] is False


def test_killed_while_paused(service):
    for memory in (True, False):
        sandbox = service.create()
        pause(service, sandbox, memory=memory)
        assert service.cove("rm", sandbox).returncode == 0
        assert wait_until(lambda id=sandbox: state(service, id) in (None, "ended"))


def test_another_worker(own_service):
    service = own_service
    frozen, kept, running = (service.create() for _ in range(3))
    pid = counter(service, frozen)
    run(service, kept, "echo kept > /home/user/file")
    pause(service, frozen)
    pause(service, kept, memory=False)
    ends = info(service, running)["end_at"]
    os.kill(service.child("cove-api"), signal.SIGKILL)
    assert wait_until(service.is_healthy)
    assert [state(service, s) for s in (frozen, kept, running)] == ["paused", "paused", "running"]
    assert info(service, running)["end_at"] == ends
    resume(service, frozen)
    run(service, frozen, f"kill -0 {pid}")
    resume(service, kept)
    assert run(service, kept, "cat /home/user/file") == "kept\n"


@pytest.fixture(params=["copy", "btrfs"])
def service_on(request):
    """One that a test may stop and start again, with a pool of each kind."""
    with prepared(COVE_POOL=request.param) as service:
        try:
            yield service.start()
            service.remove_all()
        finally:
            if service.coved.poll() is None:
                assert service.stop() == 0, service.tail()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_another_coved(service_on, how):
    """What was in memory is gone, which is told; the files are there, however soon after the answer it came."""
    service = service_on
    frozen, again, kept = (service.create() for _ in range(3))
    for sandbox in (frozen, again, kept):
        run(service, sandbox, "echo kept > /home/user/file")
    pause(service, kept, memory=False)
    pause(service, again)
    time.sleep(1) # where clones are cheap there is a copy of its files now, which is not what it has in the end
    resume(service, again)
    run(service, again, "echo later > /home/user/file")
    pause(service, again)
    pause(service, frozen)
    service.coved.send_signal(how)
    service.coved.wait(60)
    for _ in range(2): # once more from what was made of it
        service.start()
        for sandbox, content in ((frozen, "kept\n"), (again, "later\n"), (kept, "kept\n")):
            assert (state(service, sandbox), info(service, sandbox)["has_memory"]) == ("paused", False), (sandbox, service.tail())
            resume(service, sandbox)
            assert run(service, sandbox, "cat /home/user/file") == content
            pause(service, sandbox, memory=False)
        for sandbox in (frozen, again):
            assert len([e for e in events(service, sandbox) if "lost" in e["data"] and e["kind"] == "sandbox.paused"]) == 1
        service.coved.kill()
        service.coved.wait(60)
    service.start()


def test_who_runs_again_is_not_what_it_was_when_paused(service_on):
    """Nothing that was noted of it while it stood still is taken for its files: it was running, and is lost."""
    service = service_on
    sandbox = service.create()
    pause(service, sandbox)
    resume(service, sandbox)
    service.coved.kill()
    service.coved.wait(60)
    service.start()
    assert state(service, sandbox) == "ended"


def test_deadlines_over_another_worker(own_service):
    service = own_service
    ends = service.create(timeout_ms=2500)
    never = service.create(timeout_ms=0)
    assert info(service, never)["end_at"] is None
    os.kill(service.child("cove-api"), signal.SIGKILL)
    assert wait_until(service.is_healthy)
    assert wait_until(lambda: state(service, ends) != "running")
    assert state(service, never) == "running"
    ended = next(e for e in events(service, ends) if e["kind"] == "sandbox.expired")
    assert ended["actor"] == "timer"


def test_forks_are_apart(own_service):
    service = own_service
    sandbox = service.create()
    run(service, sandbox, "echo before > /home/user/file")
    pid = counter(service, sandbox)
    status, answer = post(service, f"sandboxes/{sandbox}/fork", {"count": 3})
    assert status == 201, answer
    forks = [f["sandbox"]["id"] for f in answer["forks"]]
    run(service, sandbox, "echo original > /home/user/file")
    for i, fork in enumerate(forks):
        assert run(service, fork, "cat /home/user/file") == "before\n"
        run(service, fork, f"echo {i} > /home/user/file")
    assert [run(service, fork, "cat /home/user/file") for fork in forks] == ["0\n", "1\n", "2\n"]
    assert run(service, sandbox, "cat /home/user/file") == "original\n"
    run(service, sandbox, f"kill -0 {pid}")


def test_snapshot_of_a_paused_one(own_service):
    service = own_service
    sandbox = service.create()
    run(service, sandbox, "echo snapped > /home/user/file")
    for memory in (True, False):
        pause(service, sandbox, memory=memory)
        status, answer = post(service, f"sandboxes/{sandbox}/snapshots")
        assert status == 201, answer
        assert state(service, sandbox) == "paused"
        made = service.create(template=answer["ref"])
        assert run(service, made, "cat /home/user/file") == "snapped\n"
        status, _, refused = service.request("DELETE", f"/cove/v1/snapshots?ref={answer['ref']}")
        assert status in (400, 409) and made in json.dumps(refused)
        service.cove("rm", made)
        assert wait_until(lambda ref=answer["ref"]: service.request("DELETE", f"/cove/v1/snapshots?ref={ref}")[0] in (200, 204))
        resume(service, sandbox)


def bound(holder, port):
    with contextlib.suppress(OSError):
        holder.bind(("127.0.0.1", port))
        return True
    return False


def test_coved_is_killed_and_started_at_once(own_service):
    """Its workers end a moment after it, and hold its addresses until then; the last time it is we who hold one, so that it is long enough."""
    service = own_service
    key = service.key
    sandbox = service.create()
    pause(service, sandbox, memory=False)
    for left in reversed(range(10)):
        assert service.child("cove-api"), service.tail()
        service.coved.kill()
        service.coved.wait(60)
        if not left:
            holder = socket.socket()
            assert wait_until(lambda: bound(holder, service.port))
            holder.listen()
            threading.Timer(0.7, holder.close).start()
        service.start()
    assert service.key == key
    assert state(service, sandbox) == "paused", service.tail()
