# SPDX-License-Identifier: Apache-2.0
"""Terminal sessions played again from the record."""

import json
import time

import pytest
from client import Client
from leaks import own_service
from service import wait_until

SIZE = {"size": {"cols": 100, "rows": 30}}


@pytest.fixture(scope="module")
def service():
    with own_service("replay") as service:
        yield service


@pytest.fixture(scope="module")
def sandbox(service):
    return Client(service.port, service.key).create(timeout=3600)


def session(sandbox, script):
    """Runs it in a terminal; the seq of its exec.start, and what it wrote."""
    with sandbox.start("/bin/sh", "-c", script, pty=SIZE) as stream:
        out = stream.rest()[1]
    wait_until(lambda: sandbox.client.kinds(sandbox.id)[-1] == "exec.exit")
    return next(e["seq"] for e in sandbox.client.events(sandbox.id)[::-1] if e["kind"] == "exec.start"), out


def cast_of(service, sandbox, seq, *flags):
    done = service.cove("replay", sandbox.id, str(seq), "--cast", "-", *flags)
    assert done.returncode == 0, done.stderr
    head, *events = map(json.loads, done.stdout.splitlines())
    return head, events


def test_a_cast_has_its_bytes_and_its_pace(service, sandbox):
    began = time.monotonic()
    seq, out = session(sandbox, "printf 'one\\n'; sleep 1; printf 'zw\\303\\266lf\\n'; sleep 0.5; printf '\\033[31mred'")
    took = time.monotonic() - began
    head, events = cast_of(service, sandbox, seq)
    assert head["version"] == 2 and (head["width"], head["height"]) == (100, 30) and abs(head["timestamp"] - time.time()) < 60
    assert "".join(text for _, _, text in events).encode() == out
    assert all(kind == "o" for _, kind, _ in events)
    at = {text.strip(): t for t, _, text in events}
    assert 0.5 < at["zwölf"] - at["one"] and 0.2 < at["\x1b[31mred"] - at["zwölf"] and at["\x1b[31mred"] < took
    _, fast = cast_of(service, sandbox, seq, "--speed", "2", "--idle", "0.4")
    assert abs(fast[-1][0] - events[-1][0] * 0 - 0.4) < 0.1 + fast[0][0] # two waits of 0.4 s, at double speed


def test_it_is_played_at_its_pace(service, sandbox):
    seq, out = session(sandbox, "echo a; sleep 1; echo b")
    begin = time.monotonic()
    done = service.cove("replay", sandbox.id, text=False)
    took = time.monotonic() - begin
    assert done.returncode == 0 and done.stdout.startswith(out) and took > 0.5 # the first may be read late, and the second in time
    begin = time.monotonic()
    assert service.cove("replay", sandbox.id, str(seq), "--speed", "0.2", text=False).stdout.startswith(out)
    assert time.monotonic() - begin > 2.5


def test_long_sessions_come_from_what_was_kept(service, sandbox):
    seq, out = session(sandbox, "i=0; while [ $i -lt 1500 ]; do echo line $i; sleep 0.002; i=$((i+1)); done")
    assert len(out) > 9000
    _, events = cast_of(service, sandbox, seq)
    assert "".join(text for _, _, text in events).encode() == out
    exit_event = next(e for e in sandbox.client.events(sandbox.id) if e["kind"] == "exec.exit" and e["cause"] == seq)
    assert 20 < len(exit_event["data"]["pace"]) // 2 <= 512 and sum(exit_event["data"]["pace"][1::2]) == len(out)


def test_the_newest_sandbox_is_played(service, sandbox):
    session(sandbox, "echo of the newest")
    done = service.cove("replay", "--last", "--cast", "-")
    assert done.returncode == 0 and "of the newest" in done.stdout, done
    assert service.cove("replay", "--last", sandbox.id).returncode == 2


def test_what_can_not_be_played(service, sandbox):
    assert sandbox.works() # no terminal
    seq = next(e["seq"] for e in sandbox.client.events(sandbox.id)[::-1] if e["kind"] == "exec.start")
    done = service.cove("replay", sandbox.id, str(seq))
    assert done.returncode == 1 and "did not start a terminal" in done.stderr
    with sandbox.start("/bin/sh", "-c", "echo on; sleep 60", pty=SIZE) as stream:
        stream.started()
        assert wait_until(lambda: "still running" in service.cove("replay", sandbox.id).stderr)
    assert service.cove("replay", sandbox.id, "--speed", "0").returncode == service.cove("replay", sandbox.id, "x").returncode == 2
