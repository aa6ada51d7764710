# SPDX-License-Identifier: Apache-2.0
"""E2B's events API: the list of what became of sandboxes, and webhooks, whose receivers are dead, slow, or where nobody may be told."""

import base64
import contextlib
import hashlib
import http.server
import json
import os
import signal
import socket
import sqlite3
import threading
import time

import pytest
from client import Client
from leaks import own_service
from service import wait_until

SECRET = "s3cret"
ALL = [f"sandbox.lifecycle.{kind}" for kind in ("created", "updated", "paused", "resumed", "checkpointed", "killed")]


@pytest.fixture(scope="module")
def service():
    with own_service("webhook", COVE_WEBHOOKS_ALLOW="127.0.0.1") as service:
        yield service


@pytest.fixture
def client(service):
    return Client(service.port, service.key)


class Receiver:
    """A webhook's target that says no as often as it is told to."""

    def __init__(self, refusals=0):
        self.refusals, self.got, this = refusals, [], self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                is_refused, this.refusals = this.refusals > 0, this.refusals - 1
                this.got.append((is_refused, dict(self.headers), body))
                self.send_response(500 if is_refused else 204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?x=1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def told(self, sandbox):
        return [e for refused, _, body in self.got if not refused and (e := json.loads(body))["sandboxId"] == sandbox]

    def types(self, sandbox):
        return [e["type"].rsplit(".", 1)[1] for e in self.told(sandbox)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def register(client, url, **fields):
    body = {"name": "hook", "url": url, "enabled": True, "events": ALL, "signatureSecret": SECRET, **fields}
    answer = client.control("POST", "/events/webhooks", body)
    assert answer.status == 201, answer
    return answer.json["id"]


def live(client):
    """The life of a sandbox, all of it."""
    sandbox = client.create(metadata={"a": "b"})
    assert sandbox.set_timeout(200).status == 204
    assert client.control("POST", f"/sandboxes/{sandbox.id}/pause").status == 204
    assert client.control("POST", f"/sandboxes/{sandbox.id}/connect", {"timeout": 100}).status in (200, 201)
    assert sandbox.kill().status == 204
    return sandbox.id


LIFE = ["created", "updated", "paused", "resumed", "killed"]


def test_the_list(client):
    sandbox = live(client)

    def events(query=""):
        answer = client.control("GET", f"/events/sandboxes/{sandbox}{query}")
        assert answer.status == 200, answer
        return answer.json

    assert wait_until(lambda: len(events()) == len(LIFE))
    assert [e["type"] for e in events()] == [f"sandbox.lifecycle.{t}" for t in LIFE[::-1]]
    assert events("?orderAsc=true") == events()[::-1]
    assert events("?offset=1&limit=2") == events()[1:3]
    created, updated, *_, killed = events("?orderAsc=true")
    assert created["version"] == "v1" and created["eventData"]["sandbox_metadata"] == {"a": "b"} and created["sandboxTemplateId"]
    assert updated["eventData"]["set_timeout"] > updated["timestamp"]
    assert killed["eventData"]["execution"]["execution_time"] > 0 and len({e["id"] for e in events()}) == len(LIFE)
    everything = client.control("GET", "/events/sandboxes?limit=100").json
    assert [e for e in everything if e["sandboxId"] == sandbox] == events()
    assert client.control("GET", "/events/sandboxes?limit=0").status == client.control("GET", "/events/sandboxes?limit=101").status == 400
    assert client.control("GET", "/events/sandboxes/i00000000000000000000").status == 404


def test_told_in_order_and_signed(client):
    with Receiver(refusals=2) as receiver:
        hook = register(client, receiver.url)
        sandbox = live(client)
        assert wait_until(lambda: receiver.types(sandbox) == LIFE), receiver.got
        for _, headers, body in receiver.got:
            wants = base64.urlsafe_b64encode(hashlib.sha256(SECRET.encode() + body).digest()).decode().rstrip("=")
            assert headers["e2b-signature"] == wants and headers["e2b-webhook-id"] == hook and headers["e2b-signature-version"] == "v1"
        assert len({headers["e2b-delivery-id"] for _, headers, _ in receiver.got}) == len(receiver.got) == len(LIFE) + 2
        assert receiver.told(sandbox) == client.control("GET", f"/events/sandboxes/{sandbox}?orderAsc=true").json
        assert client.control("DELETE", f"/events/webhooks/{hook}").status == 200
        n = len(receiver.got)
        live(client)
        time.sleep(0.5)
        assert len(receiver.got) == n


def test_changes_and_what_is_refused(client):
    with Receiver() as receiver:
        hook = register(client, receiver.url, events=["sandbox.lifecycle.killed"], enabled=False)
        sandbox = live(client)
        changed = client.control("PATCH", f"/events/webhooks/{hook}", {"enabled": True, "name": "other"})
        assert changed.status == 200 and changed.json["name"] == "other" and changed.json["events"] == ["sandbox.lifecycle.killed"]
        assert "ecret" not in changed.body.decode() and changed.json in client.control("GET", "/events/webhooks").json
        assert wait_until(lambda: receiver.types(sandbox) == ["killed"]) # what was held back meanwhile
        for wrong in ({"url": "ftp://127.0.0.1/"}, {"url": "http://u@127.0.0.1/"}, {"url": "http://a/\r\nx: y"}, {"events": ["sandbox.lifecycle.born"]},
                      {"events": []}, {"name": ""}, {"enabled": "yes"}, {"signatureSecret": ""}):
            assert client.control("PATCH", f"/events/webhooks/{hook}", wrong).status == 400, wrong
        assert client.control("DELETE", f"/events/webhooks/{hook}").status == 200
        assert client.control("GET", f"/events/webhooks/{hook}").status == 404


def test_dead_targets_delay_nobody(client):
    with Receiver() as receiver, socket.create_server(("127.0.0.1", 0)) as silent: # takes connections, and never says a word
        dead = [register(client, f"http://127.0.0.1:{silent.getsockname()[1]}/"), register(client, "http://127.0.0.1:1/")]
        hook = register(client, receiver.url)
        begin = time.monotonic()
        sandbox = live(client)
        assert wait_until(lambda: receiver.types(sandbox) == LIFE)
        assert time.monotonic() - begin < 15 # when the silent one is given up
        for one in [*dead, hook]:
            assert client.control("DELETE", f"/events/webhooks/{one}").status == 200


def test_a_killed_worker_forgets_nothing(service, client):
    with Receiver(refusals=3) as receiver:
        hook = register(client, receiver.url)
        sandbox = live(client)
        assert wait_until(lambda: receiver.got)
        os.kill(service.child("cove-api"), signal.SIGKILL)
        assert wait_until(service.is_healthy)
        assert wait_until(lambda: len(set(map(json.dumps, receiver.told(sandbox)))) == len(LIFE)), receiver.got
        seen = list(dict.fromkeys(receiver.types(sandbox))) # told twice at most where the worker died
        assert seen == LIFE
        assert client.control("DELETE", f"/events/webhooks/{hook}").status == 200


def test_tenants_are_apart(service, client):
    assert service.cove("tenant", "create", "hooks").returncode == 0
    key = service.cove("key", "create", "--tenant", "hooks", "--name", "k", "--scope", "admin").stdout.strip()
    other = Client(service.port, key)
    with Receiver() as ours, Receiver() as theirs:
        hook, their_hook = register(client, ours.url), register(other, theirs.url)
        sandbox = live(client)
        their_sandbox = live(other)
        assert wait_until(lambda: ours.types(sandbox) == LIFE and theirs.types(their_sandbox) == LIFE)
        assert not ours.types(their_sandbox) and not theirs.types(sandbox)
        assert other.control("GET", f"/events/webhooks/{hook}").status == other.control("DELETE", f"/events/webhooks/{hook}").status == 404
        assert other.control("GET", f"/events/sandboxes/{sandbox}").status == 404
        assert {e["sandboxId"] for e in other.control("GET", "/events/sandboxes?limit=100").json} == {their_sandbox}
        assert client.control("DELETE", f"/events/webhooks/{hook}").status == 200
        assert other.control("DELETE", f"/events/webhooks/{their_hook}").status == 200


def test_what_others_do_costs_a_quiet_webhook_nothing(service, client):
    """It passes what isn't its tenant's, as a list does, in parts; and does so once."""
    assert service.cove("tenant", "create", "quiet").returncode == 0
    other = Client(service.port, service.cove("key", "create", "--tenant", "quiet", "--name", "k").stdout.strip())
    hook, sandbox, n = register(other, "http://127.0.0.1:1/"), client.create(), 2500

    def cursor():
        with contextlib.closing(sqlite3.connect(service.state / "api" / "cove.db", timeout=60)) as store:
            return store.execute("SELECT cursor FROM webhooks WHERE id = ?", (hook,)).fetchone()[0]

    before, body = cursor(), b'{"timeout":300}'
    one = f"POST /sandboxes/{sandbox.id}/timeout HTTP/1.1\r\nHost: x\r\nX-API-Key: {client.key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(n // 250):
        assert {answer.status for answer in client.raw((one.encode() + body) * 250, 250)} == {204}
    assert wait_until(lambda: cursor() > before + n - 1000), (before, cursor())

    def pages(query):
        return [event for at in range(0, n + 100, 100) for event in
                client.control("GET", f"/events/sandboxes/{sandbox.id}?limit=100&offset={at}{query}").json]

    assert [event["type"].rsplit(".", 1)[1] for event in pages("&orderAsc=true")] == ["created", *["updated"] * n]
    assert pages("&orderAsc=true") == pages("")[::-1] and len({event["id"] for event in pages("")}) == n + 1
    assert other.control("GET", "/events/sandboxes").json == []
    assert other.control("DELETE", f"/events/webhooks/{hook}").status == 200
    sandbox.kill()


def test_nothing_that_is_not_public_is_reached():
    """Refused when it's made; and when it's delivered, where the configuration allowed it before."""
    with own_service("webhook-closed", COVE_WEBHOOKS_ALLOW="127.0.0.1,169.254.169.254") as service, Receiver() as receiver:
        urls = [receiver.url, f"http://127.0.0.1:{service.port}/cove/v1/health", "http://169.254.169.254/latest/meta-data/"]
        hooks = [register(Client(service.port, service.key), url) for url in urls]
        service.stop()
        del service.env["COVE_WEBHOOKS_ALLOW"]
        service.start()
        client = Client(service.port, service.key)
        body = {"name": "hook", "enabled": True, "events": ALL, "signatureSecret": SECRET}
        for url in [*urls, "http://[::1]:80/", "http://[::ffff:10.0.0.1]", "http://localhost:80/", "https://93.184.215.14/", "http://a b/", "http://1.2/", "http:///x"]:
            refused = client.control("POST", "/events/webhooks", {**body, "url": url})
            assert refused.status == 400, (url, refused)
            assert client.control("PATCH", f"/events/webhooks/{hooks[0]}", {"url": url}).status == 400, url
        refused = client.control("POST", "/events/webhooks", {**body, "url": receiver.url})
        assert "webhooks.allow has 127.0.0.1" in refused.json["message"], refused
        for url in ("http://93.184.215.14:81/", "http://[2606:4700::1]/x", "https://hooks.example:8443?x"):
            client.control("DELETE", f"/events/webhooks/{register(client, url, enabled=False)}")
        live(client)
        answer = client.request("GET", "/metrics", headers={"X-API-Key": service.key})
        assert wait_until(lambda: b'cove_queue_depth{queue="webhooks"} 3\n' in client.request(
            "GET", "/metrics", headers={"X-API-Key": service.key}).body), answer
        time.sleep(1.5) # a second try
        assert not receiver.got
        assert client.control("PATCH", f"/events/webhooks/{hooks[0]}", {"enabled": False}).status == 200
