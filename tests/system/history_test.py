# SPDX-License-Identifier: Apache-2.0
"""The log of a sandbox that lives is shortened, and nothing that counts is lost by it."""

import json
import os
import signal

import pytest
from client import Client
from leaks import own_service
from service import wait_until

KEPT = 1000


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    config = tmp_path_factory.mktemp("history") / "cove.yaml"
    config.write_text(f"keep: {{events: {KEPT}}}\n")
    with own_service("history", COVE_CONFIG=str(config)) as service:
        yield service


def log(service, sandbox):
    done = service.cove("log", sandbox, "--json")
    assert done.returncode == 0, done
    return [e for e in map(json.loads, done.stdout.splitlines()) if "gap" not in e]


def flood(sandbox, n):
    for number in range(n // 2):
        assert sandbox.unary("filesystem.Filesystem/MakeDir", {"path": f"/home/user/d{number}"}).status in (200, 409)


def test_a_process_outlives_the_record_of_its_beginning(service):
    client = Client(service.port, service.key)
    sandbox = client.create(timeout=3600)
    pids = []
    for script in ("echo one; sleep 3600", "seq 20000; sleep 3600"):
        with sandbox.start("/bin/sh", "-c", script) as stream:
            pids.append(stream.started().pid)
    assert sandbox.sh("seq 20000")[0] == 0
    starts = [e["seq"] for e in log(service, sandbox.id) if e["kind"] == "exec.start"]
    assert len(starts) == 3
    for number in range(KEPT + 3000):
        assert sandbox.unary("filesystem.Filesystem/Stat", {"path": f"/nowhere/{number}"}).status == 404
    assert wait_until(lambda: log(service, sandbox.id)[0]["seq"] > starts[-1])
    assert wait_until(lambda: len(log(service, sandbox.id)) <= KEPT + 2000)
    events = log(service, sandbox.id)
    assert [e["seq"] for e in events] == list(range(events[0]["seq"], events[-1]["seq"] + 1))
    assert {"log.pruned", "exec.carried"} <= {e["kind"] for e in events}
    carried = {e["cause"]: e["data"]["pid"] for e in events if e["kind"] == "exec.carried"}
    assert carried == dict(zip(starts, pids))
    assert service.cove("log", "--verify", sandbox.id).returncode == 0

    # The next worker knows whose they are, and that they are not the same.
    worker = service.child("cove-api")
    os.kill(worker, signal.SIGKILL)
    assert wait_until(lambda: service.child("cove-api") not in (None, worker))
    assert wait_until(lambda: service.cove("ls").returncode == 0)
    for pid in reversed(pids):
        signals = {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}
        assert wait_until(lambda: sandbox.unary("process.Process/SendSignal", signals).status == 200)
    ends = lambda: {e["cause"]: e["data"] for e in log(service, sandbox.id) if e["kind"] == "exec.exit"}
    assert wait_until(lambda: len(ends()) == 2), ends()
    assert {cause: end["pid"] for cause, end in ends().items()} == carried
    assert [ends()[cause]["output_bytes"] for cause in starts[:2]] == [4, 108894]
    sandbox.kill()
