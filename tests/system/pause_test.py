# SPDX-License-Identifier: Apache-2.0
"""cove pause and cove resume, and what a sandbox that stands still answers."""

import json
import re
import subprocess
import time

from service import wait_until

ID = re.compile(r"i[a-z0-9]{20}")


def state(service, sandbox):
    return service.request("GET", f"/v1/sandboxes/{sandbox}")[2]["state"]


def test_what_runs_stands_still_and_goes_on(service, sandbox):
    assert service.cove("exec", sandbox, "--", "sh", "-c", "(while :; do date +%s%N > now; sleep 0.02; done) >/dev/null 2>&1 &").returncode == 0
    assert wait_until(lambda: service.cove("exec", sandbox, "--", "cat", "now").stdout, 10)
    assert service.cove("pause", sandbox).stdout == f"{sandbox}\n"
    assert state(service, sandbox) == "paused"
    begin = time.time_ns()
    time.sleep(0.5)
    assert service.cove("resume", sandbox).stdout == f"{sandbox}\n"
    end = time.time_ns()
    assert begin < end and wait_until(lambda: int(service.cove("exec", sandbox, "--", "cat", "now").stdout or 0) > end, 10)


def test_one_that_is_paused_says_so_to_every_command(service, sandbox):
    assert service.cove("pause", sandbox).returncode == 0
    for arguments in (("exec", sandbox, "--", "true"), ("cp", f"{sandbox}:x", "/tmp/never"), ("pause", sandbox)):
        done = service.cove(*arguments)
        assert done.returncode in (1, 125) and "is paused" in done.stderr, (arguments, done)
    listed = service.cove("ls").stdout.splitlines()
    assert re.search(rf"{sandbox} +paused +base +\S+ +- ", listed[1]), listed
    assert service.cove("rm", sandbox).stdout == f"{sandbox}\n"
    assert service.cove("resume", sandbox).returncode == 1


def test_several_at_a_time_and_json(service):
    boxes = [service.create() for _ in range(3)]
    done = service.cove("pause", "--json", *boxes)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"paused": boxes})
    done = service.cove("resume", "--json", "--timeout", "90s", *boxes, "i" + "0" * 20)
    assert (done.returncode, json.loads(done.stdout)) == (1, {"resumed": boxes})
    assert json.loads(done.stderr)["error"]["code"] == "not_found"
    assert service.request("GET", f"/v1/sandboxes/{boxes[0]}")[2]["timeout_ms"] == 90000


def test_files_only_gives_the_memory_up(service, sandbox):
    boot = service.cove("exec", sandbox, "--", "cat", "/proc/sys/kernel/random/boot_id").stdout
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo kept > f; (sleep 1000 >/dev/null 2>&1 &)").returncode == 0
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    assert service.request("GET", f"/v1/sandboxes/{sandbox}")[2]["has_memory"] is False
    assert service.cove("resume", sandbox).returncode == 0
    done = service.cove("exec", sandbox, "--", "sh", "-c", "cat f; pgrep sleep; cat /proc/sys/kernel/random/boot_id")
    kept, new = done.stdout.splitlines()
    assert kept == "kept" and new != boot.strip()


def test_run_pauses_at_its_timeout_when_told(service):
    done = service.cove("run", "--timeout", "1s", "--pause-on-timeout", "--", "sh", "-c", "echo up; sleep 100")
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
        assert process.communicate(timeout=20)[0] == b"got it\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(10)
