# SPDX-License-Identifier: Apache-2.0
"""cove pause and cove resume, and what a sandbox that stands still answers."""

import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest
from client import Client
from service import read, wait_until

ID = re.compile(r"i[a-z0-9]{20}")


def state(service, sandbox):
    return service.request("GET", f"/cove/v1/sandboxes/{sandbox}")[2]["state"]


def test_what_runs_stands_still_and_goes_on(service, sandbox):
    assert service.cove("exec", sandbox, "--", "sh", "-c", "(while :; do date +%s%N > now; sleep 0.02; done) >/dev/null 2>&1 &").returncode == 0
    assert wait_until(lambda: service.cove("exec", sandbox, "--", "cat", "now").stdout)
    assert service.cove("pause", sandbox).stdout == f"{sandbox}\n"
    assert state(service, sandbox) == "paused"
    begin = time.time_ns()
    time.sleep(0.5)
    assert service.cove("resume", sandbox).stdout == f"{sandbox}\n"
    end = time.time_ns()
    assert begin < end and wait_until(lambda: int(service.cove("exec", sandbox, "--", "cat", "now").stdout or 0) > end)


def test_one_that_is_paused_says_so_to_every_command(service, sandbox):
    assert service.cove("pause", sandbox).returncode == 0
    for arguments in (("exec", sandbox, "--", "true"), ("cp", f"{sandbox}:x", "/tmp/never"), ("pause", sandbox)):
        done = service.cove(*arguments)
        assert done.returncode in (1, 125) and "is paused" in done.stderr, (arguments, done)
    listed = service.cove("ls").stdout.splitlines()
    assert re.search(rf"{sandbox} +paused +base +\S+ +\S+ +- ", listed[1]), listed
    assert service.cove("rm", sandbox).stdout == f"{sandbox}\n"
    assert service.cove("resume", sandbox).returncode == 1


def test_several_at_a_time_and_json(service):
    boxes = [service.create() for _ in range(3)]
    done = service.cove("pause", "--json", *boxes)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"paused": boxes})
    done = service.cove("resume", "--json", "--timeout", "90s", *boxes, "i" + "0" * 20)
    assert (done.returncode, json.loads(done.stdout)) == (1, {"resumed": boxes})
    assert json.loads(done.stderr)["error"]["code"] == "not_found"
    assert service.request("GET", f"/cove/v1/sandboxes/{boxes[0]}")[2]["timeout_ms"] == 90000


def test_files_only_gives_the_memory_up(service, sandbox):
    boot = service.cove("exec", sandbox, "--", "cat", "/proc/sys/kernel/random/boot_id").stdout
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo kept > f; (sleep 1000 >/dev/null 2>&1 &)").returncode == 0
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    assert service.request("GET", f"/cove/v1/sandboxes/{sandbox}")[2]["has_memory"] is False
    assert service.cove("resume", sandbox).returncode == 0
    done = service.cove("exec", sandbox, "--", "sh", "-c", "cat f; pgrep sleep; cat /proc/sys/kernel/random/boot_id")
    kept, new = done.stdout.splitlines()
    assert kept == "kept" and new != boot.strip()


def test_a_resume_whose_rules_nobody_enforces_leaves_it_paused(service):
    sandbox = service.create(network={"default": "deny", "rules": []})
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo kept > f").returncode == 0
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    coved, egress = service.coved_pid, service.child("cove-egress")
    os.kill(coved, signal.SIGSTOP) # so that the one fails before the other has a box
    try:
        os.kill(egress, signal.SIGKILL)
        assert wait_until(lambda: "cove-egress: its socket is closed" in service.tail()), service.tail()
        resuming = service.popen("resume", sandbox, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
    finally:
        os.kill(coved, signal.SIGCONT)
    assert "cove-egress" in resuming.communicate(timeout=60)[1] and resuming.returncode == 1
    assert state(service, sandbox) == "paused"
    assert wait_until(lambda: service.cove("resume", sandbox).returncode == 0), service.tail()
    assert service.cove("exec", sandbox, "--", "cat", "f").stdout == "kept\n"


def test_run_pauses_at_its_timeout_when_told(service):
    done = service.cove("run", "--timeout", "3s", "--pause-on-timeout", "--", "sh", "-c", "echo up; sleep 100")
    assert (done.returncode, done.stdout) == (124, "up\n")
    sandbox = ID.search(done.stderr)[0]
    assert f"cove resume {sandbox}" in done.stderr and state(service, sandbox) == "paused"
    assert service.cove("resume", "--timeout", "1m", sandbox).returncode == 0
    assert service.cove("exec", sandbox, "--", "pgrep", "-x", "sleep").returncode == 0


def test_a_command_outside_waits_for_what_stands_still(service, sandbox):
    process = service.popen("exec", sandbox, "--", "sh", "-c", "echo up; read x; echo got $x", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"up\n"
        assert service.cove("pause", sandbox).returncode == 0
        process.stdin.write(b"it\n")
        process.stdin.flush()
        assert service.cove("resume", sandbox).returncode == 0
        assert process.communicate(timeout=60)[0] == b"got it\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(60)


@pytest.fixture
def server(service):
    """A template whose start command is a server; files say whether it starts, and how soon it is ready."""
    start = "cd /home/user; test ! -e broken || exit 3; exec python3 -m http.server 8000"
    ready = "test ! -e /home/user/slow && curl -sf -o /dev/null http://127.0.0.1:8000/"
    done = service.cove("template", "build", "--name", "a-server", "--from-template", "base", "--start-cmd", start, "--ready-cmd", ready, timeout=100)
    assert done.returncode == 0, done
    yield "a-server"
    service.remove_all()
    assert service.cove("template", "rm", "a-server").returncode == 0


def served(service, sandbox):
    """What the server inside answers, and how many there are."""
    return service.cove("exec", sandbox, "--", "sh", "-c", "curl -s http://127.0.0.1:8000/f; pgrep -fc '^python3 -m http.server'").stdout


def resumed(service, sandbox):
    lines = service.request("GET", f"/cove/v1/sandboxes/{sandbox}/events")[2].splitlines()
    return [e["data"] for e in map(json.loads, lines) if e["kind"] == "sandbox.resumed"][-1]


def test_the_start_command_runs_again_when_only_files_were_kept(service, server):
    sandbox = service.create(template=server)
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo kept >f").returncode == 0
    assert served(service, sandbox) == "kept\n1\n"
    for how in ([], ["--files-only"], ["--files-only"]):
        assert service.cove("pause", *how, sandbox).returncode == 0
        assert service.cove("resume", sandbox).returncode == 0
        assert served(service, sandbox) == "kept\n1\n"
    assert service.request("POST", f"/cove/v1/sandboxes/{sandbox}/pause", {})[0] == 200
    assert service.request("POST", f"/cove/v1/sandboxes/{sandbox}/resume", {"cold": True})[0] == 200
    assert resumed(service, sandbox)["memory"] is False
    assert served(service, sandbox) == "kept\n1\n"


def test_a_start_command_that_fails_is_the_templates_fault(service):
    """A client that is told to try again would, and fail each time."""
    start, ready = "test -z \"$BROKEN\" || { echo no luck; exit 3; }; touch /tmp/up; exec sleep 1000", "test -e /tmp/up"
    done = service.cove("template", "build", "--name", "fragile", "--from-template", "base", "--no-memory", "--start-cmd", start, "--ready-cmd", ready, timeout=100)
    assert done.returncode == 0, done
    template = json.loads(service.cove("template", "show", "--json", "fragile").stdout)["id"]
    status, _, body = service.request("POST", "/cove/v1/sandboxes", {"template": "fragile", "env": {"BROKEN": "1"}})
    error = body["error"]
    assert (status, error["code"]) == (400, "failed_precondition") and "hint" not in error, body
    assert f"'cove template show {template}'" in error["message"] and error["message"].endswith("start command failed: no luck "), error
    answer = Client(service.port, service.key).control("POST", "/sandboxes", {"templateID": "fragile", "envVars": {"BROKEN": "1"}})
    assert answer.status == 400 and "start command failed: no luck" in answer.json["message"], answer
    service.remove_all()
    assert service.cove("template", "rm", "fragile").returncode == 0


def test_a_resume_waits_until_its_server_is_ready(service, server):
    sandbox = service.create(template=server)
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo kept >f; touch slow").returncode == 0
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    answers = []
    asking = [threading.Thread(target=lambda: answers.append(service.request("POST", f"/cove/v1/sandboxes/{sandbox}/resume", {})[0])) for _ in range(2)]
    for thread in asking:
        thread.start()
    assert wait_until(lambda: state(service, sandbox) == "resuming")
    time.sleep(0.5)
    assert state(service, sandbox) == "resuming" and not answers
    assert "is resuming" in service.cove("exec", sandbox, "--", "true").stderr
    slow = [path for pid in service.processes() if os.path.exists(path := f"/proc/{pid}/root/home/user/slow")]
    os.unlink(slow[0]) # from outside: nobody else is let in
    for thread in asking:
        thread.join(60)
    assert answers == [200, 200] and served(service, sandbox) == "kept\n1\n"


def test_a_sandbox_that_dies_while_it_is_resumed_is_paused_again(service, server):
    sandbox = service.create(template=server)
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo kept >f; touch slow").returncode == 0
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    for last in [False] * 10 + [True]: # whoever hears of it first, coved or cove-api
        resume = service.popen("resume", sandbox, stderr=subprocess.PIPE, text=True)
        assert wait_until(lambda: state(service, sandbox) == "resuming")
        inside = wait_until(lambda: [pid for pid in service.processes() if os.path.exists(f"/proc/{pid}/root/home/user/slow")])
        if last:
            os.unlink(f"/proc/{inside[0]}/root/home/user/slow")
        else:
            os.kill(next(pid for pid in inside if re.search(r"^NSpid:\t.*\t1$", read(f"/proc/{pid}/status"), re.MULTILINE)), signal.SIGKILL)
        assert resume.wait(60) == (0 if last else 1), resume.stderr.read()
        assert state(service, sandbox) == ("running" if last else "paused")
    assert served(service, sandbox) == "kept\n1\n"


def test_a_server_that_does_not_start_keeps_nobody_from_his_files(service, server):
    sandbox = service.create(template=server)
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo kept >f; touch broken").returncode == 0
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    done = service.cove("resume", sandbox)
    assert (done.returncode, done.stdout) == (0, f"{sandbox}\n")
    assert re.match(f"cove resume: {sandbox} runs without what its template starts: .*start command failed.*\n  mend it inside, then ", done.stderr), done
    assert "start command failed" in resumed(service, sandbox)["start_failed"]
    assert "start command failed" in service.request("GET", f"/cove/v1/sandboxes/{sandbox}")[2]["start_failed"]
    assert service.cove("exec", sandbox, "--", "sh", "-c", "cat f; rm broken").stdout == "kept\n"
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    done = service.cove("resume", sandbox)
    assert (done.returncode, done.stderr) == (0, "")
    assert not {"start_failed", "volumes_failed"} & service.request("GET", f"/cove/v1/sandboxes/{sandbox}")[2].keys()
    assert "start_failed" not in resumed(service, sandbox) and served(service, sandbox) == "kept\n1\n"
