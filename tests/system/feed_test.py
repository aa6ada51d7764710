# SPDX-License-Identifier: Apache-2.0
"""The feed: all events in one order, for followers who come, go, are slow, and see cove-api killed under them."""

import hashlib
import http.client
import json
import os
import signal
import threading

import pytest
from client import Client
from leaks import own_service
from service import wait_until

FOLLOWERS, KILLS = 20, 3


@pytest.fixture(scope="module")
def service():
    with own_service("feed") as service:
        yield service


class Follower(threading.Thread):
    """Remembers one number and goes on behind it, whatever happens to the service."""

    def __init__(self, service, stops):
        super().__init__(daemon=True)
        self.service, self.stops, self.after, self.seen, self.faults = service, stops, 0, {}, []
        self.start()

    def run(self):
        while not self.stops(self):
            try:
                self.follow()
            except (OSError, http.client.HTTPException):
                pass

    def follow(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=5)
        headers = {"X-API-Key": self.service.key, "Accept": "text/event-stream", "Last-Event-ID": str(self.after)}
        connection.request("GET", "/cove/v1/events?follow=1&hidden=1", headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            self.faults.append(answer.read())
        fields = {}
        while answer.status == 200 and not self.stops(self):
            line = answer.readline().decode().rstrip("\n")
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                self.take(fields)
                fields = {}
            elif not line and answer.isclosed():
                break
        connection.close()

    def take(self, fields):
        event = json.loads(fields["data"])
        if fields["event"] == "gap":
            self.faults.append(event)
            return
        if event["cursor"] != self.after + 1 or int(fields["id"]) != event["cursor"] or fields["event"] != event["kind"]:
            self.faults.append((self.after, event))
        self.after = event["cursor"]
        self.seen[self.after] = event["sandbox"], event["seq"]


def feed(service, *flags):
    done = service.cove("events", "--json", *flags)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def log_of(service, box):
    return [json.loads(line) for line in service.cove("log", "--json", box).stdout.splitlines()]


def kill_worker(service):
    worker = service.child("cove-api")
    os.kill(worker, signal.SIGKILL)
    assert wait_until(lambda: service.child("cove-api") not in (None, worker))
    assert wait_until(lambda: service.cove("ls").returncode == 0)


def test_every_follower_has_every_event_once(service):
    client = Client(service.port, service.key)
    last = [None]
    followers = [Follower(service, lambda f: last[0] is not None and f.after >= last[0]) for _ in range(FOLLOWERS)]
    boxes = [client.create(timeout=3600) for _ in range(3)]
    for _ in range(KILLS):
        for number in range(40):
            assert boxes[number % 3].sh(f"echo {number}")[0] == 0
        kill_worker(service)
    for box in boxes:
        box.kill()
        assert wait_until(lambda box=box: log_of(service, box.id)[-1]["kind"] == "sandbox.ended")
    last[0] = feed(service, "--hidden", "--last", "1")[0]["cursor"]
    for follower in followers:
        follower.join(60)
        assert not follower.is_alive() and follower.faults == [] and follower.after >= last[0]

    # All of them saw the same, and it is what the logs have.
    seen = followers[0].seen
    assert all(f.seen[c] == seen[c] for f in followers for c in range(1, last[0] + 1))
    for box in boxes:
        of_box = [seq for _, (name, seq) in sorted(seen.items()) if name == box.id]
        assert of_box == [e["seq"] for e in log_of(service, box.id)]
        assert service.cove("log", "--verify", box.id).returncode == 0


def test_history_kinds_and_what_is_hidden(service):
    client = Client(service.port, service.key)
    box = client.create()
    assert box.sh("true")[0] == 0
    box.kill()
    shown = feed(service, "--from", "1")
    everything = feed(service, "--from", "1", "--hidden")
    assert [e["cursor"] for e in everything] == list(range(1, everything[-1]["cursor"] + 1))
    assert {e["cursor"] for e in shown} <= {e["cursor"] for e in everything}
    assert {e["sandbox"] for e in shown} >= {box.id, "service"}
    ended = feed(service, "--from", "1", "--kind", "sandbox.ended,exec.exit")
    assert {e["kind"] for e in ended} == {"sandbox.ended", "exec.exit"}
    begin = everything[-1]["cursor"] - 2
    assert [e["cursor"] for e in feed(service, "--from", str(begin), "--hidden")][:3] == [begin, begin + 1, begin + 2]
    assert service.cove("events", "--from", "0").returncode == 2
    assert service.cove("events", "--kind", "a&b=c").returncode == 2
    beyond = service.cove("events", "--from", str(everything[-1]["cursor"] + 1000))
    assert beyond.returncode == 1 and "the feed ends with" in beyond.stderr
    answer = client.request("GET", "/cove/v1/events", headers={"Last-Event-ID": "7x", "X-API-Key": service.key})
    assert answer.status == 400, answer
    assert client.request("GET", "/cove/v1/events").status == 401


def test_the_command_goes_on_when_the_worker_was_killed(service):
    follower = service.popen("events", "-f", "--json", "--last", "1", "--hidden", stdout=-1, text=True)
    try:
        before = json.loads(follower.stdout.readline())["cursor"]
        kill_worker(service)
        assert service.cove("warm", "base", "0").returncode == 0
        kinds = []
        while "pool.warm" not in kinds:
            event = json.loads(follower.stdout.readline())
            assert event["cursor"] == before + 1
            before = event["cursor"]
            kinds.append(event["kind"])
        assert "service.started" in kinds
    finally:
        follower.kill()
        follower.communicate()


def test_a_long_output_is_kept_whole_under_its_digest(service):
    client = Client(service.port, service.key)
    box = client.create()
    script = "seq 400000; seq 50000 >&2"  # longer than what the agent or a message holds
    assert box.sh(script, timeout=120)[0] == 0
    events = log_of(service, box.id)
    start = next(e["seq"] for e in events if e["kind"] == "exec.start")
    (out, err) = next(e for e in events if e["kind"] == "exec.exit")["data"]["artefacts"]
    expected = {"stdout": "".join(f"{n}\n" for n in range(1, 400001)), "stderr": "".join(f"{n}\n" for n in range(1, 50001))}
    kill_worker(service)
    for artefact in out, err:
        text = expected[artefact["channel"]]
        assert artefact["bytes"] == len(text) and "cut" not in artefact
        assert artefact["sha256"] == hashlib.sha256(text.encode()).hexdigest()
        answer = client.native("GET", f"/cove/v1/sandboxes/{box.id}/artefacts/{artefact['sha256']}")
        assert answer.status == 200 and answer.body.decode() == text
        assert service.cove("log", "--output", str(start), "--channel", artefact["channel"], box.id).stdout == text
    other = client.create()
    assert client.native("GET", f"/cove/v1/sandboxes/{other.id}/artefacts/{out['sha256']}").status == 404
    assert client.native("GET", f"/cove/v1/sandboxes/{box.id}/artefacts/..%2F..%2Fcove.db").status == 404


def test_the_events_of_a_time(service):
    """What happened then, with no cursor known: in each direction, and between two times."""
    first, second = (service.cove("run", "--keep", "--json", "--", "true") for _ in range(2))
    assert first.returncode == second.returncode == 0, (first, second)
    every = [json.loads(line) for line in service.cove("events", "--json", "--from", "1", "--kind", "sandbox.create").stdout.splitlines()]
    at = every[-1]["time"]

    def seen(*arguments):
        done = service.cove("events", "--json", "--kind", "sandbox.create", *arguments)
        assert done.returncode == 0, done
        return [json.loads(line)["cursor"] for line in done.stdout.splitlines()]

    cursors = [e["cursor"] for e in every]
    assert seen("--since", at) == cursors[-1:] and seen("--until", at) == cursors[:-1]
    assert seen("--since", every[-2]["time"], "--until", at) == cursors[-2:-1]
    assert seen("--since", "1h") == seen("--since", at[:10]) == cursors or at[11:13] == "00"
    assert seen("--until", "1h") == []
    for wrong in (["--since", "yesterday"], ["--until", "x"], ["--since", "1h", "--from", "1"]):
        done = service.cove("events", *wrong)
        assert done.returncode == 2, done
    service.remove_all()
