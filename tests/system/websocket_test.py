# SPDX-License-Identifier: Apache-2.0
"""Events over a WebSocket: by a client of a few lines, so that its frames can be what they like."""

import base64
import hashlib
import json
import os
import socket
import struct

import pytest
from client import Client
from leaks import own_service, rss_kib
from service import wait_until

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


@pytest.fixture(scope="module")
def service():
    with own_service("websocket") as service:
        yield service


class Socket:
    def __init__(self, service, target, version="13", key=None, headers=None):
        self.key = key or base64.b64encode(os.urandom(16)).decode()
        self.sock = socket.create_connection(("127.0.0.1", service.port), timeout=60)
        self.file = self.sock.makefile("rb")
        more = "".join(f"{k}: {v}\r\n" for k, v in (headers or {"X-API-Key": service.key}).items())
        self.sock.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n{more}Connection: Upgrade\r\nUpgrade: websocket\r\n"
                          f"Sec-WebSocket-Version: {version}\r\nSec-WebSocket-Key: {self.key}\r\n\r\n".encode())
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.sock.close()

    def frame(self):
        """(opcode, payload), or None at the end."""
        head = self.file.read(2)
        if len(head) < 2:
            return None
        assert head[0] & 0x80 and not head[1] & 0x80 # whole, and not masked
        n = head[1]
        if n >= 126:
            n, = struct.unpack(">H" if n == 126 else ">Q", self.file.read(2 if n == 126 else 8))
        return head[0] & 15, self.file.read(n)

    def events(self, n):
        found = []
        while len(found) < n:
            code, payload = self.frame()
            assert code == TEXT, (code, payload)
            found.append(json.loads(payload))
        return found

    def send(self, code, payload=b"", masked=True):
        mask = os.urandom(4) if masked else b""
        body = bytes(b ^ mask[i % 4] for i, b in enumerate(payload)) if masked else payload
        self.sock.sendall(bytes([0x80 | code, (0x80 if masked else 0) | len(payload)]) + mask + body)


def test_history_then_live_then_the_end(service):
    client = Client(service.port, service.key)
    box = client.create()
    assert box.sh("printf %20000d 1")[0] == 0 # an event of more than 125 bytes, others of more than 64 KiB there are none
    history = client.events(box.id)
    with Socket(service, f"/cove/v1/sandboxes/{box.id}/events?follow=1") as ws:
        assert ws.status == 101
        assert ws.headers["sec-websocket-accept"] == base64.b64encode(hashlib.sha1(ws.key.encode() + GUID).digest()).decode()
        assert ws.events(len(history)) == history
        ws.send(TEXT, b"anything")
        ws.send(PING, b"there?")
        assert ws.frame() == (PONG, b"there?")
        assert box.sh("true")[0] == 0
        assert [e["seq"] for e in ws.events(3)] == [history[-1]["seq"] + i for i in range(1, 4)]
        box.kill()
        last = []
        while (got := ws.frame())[0] == TEXT:
            last.append(json.loads(got[1]))
        assert last[-1]["kind"] == "sandbox.ended" and got == (CLOSE, struct.pack(">H", 1000))
        ws.send(CLOSE, struct.pack(">H", 1000))
        assert ws.frame() is None


def test_goes_on_behind_a_cursor(service):
    client = Client(service.port, service.key)
    with Socket(service, "/cove/v1/events?from=1&follow=1") as ws:
        cursor = ws.events(1)[0]["cursor"]
    box = client.create()
    with Socket(service, f"/cove/v1/events?from={cursor + 1}&follow=1&kind=sandbox.started") as ws:
        while (event := ws.events(1)[0])["sandbox"] != box.id:
            assert event["kind"] == "sandbox.started" and event["cursor"] > cursor
    box.kill()


def test_handshakes_that_are_none(service):
    for wrong in ({"version": "8"}, {"key": "short"}, {"key": "!!!"}):
        with Socket(service, "/cove/v1/events?follow=1", **wrong) as ws:
            assert ws.status == 400, wrong
    with Socket(service, "/cove/v1/sandboxes/i00000000000000000000/events") as ws:
        assert ws.status == 404


def test_frames_that_are_none_end_it(service):
    for code, payload, masked in ((TEXT, b"x", False), (3, b"x", True), (PING, b"x" * 125, False)):
        with Socket(service, "/cove/v1/events?last=0&follow=1") as ws:
            ws.send(code, payload, masked)
            ws.sock.settimeout(10)
            try:
                while ws.frame():
                    pass
            except ConnectionError:
                pass
    with Socket(service, "/cove/v1/events?last=0&follow=1") as ws: # a message without end
        try:
            ws.sock.sendall(bytes([TEXT, 0xff]) + struct.pack(">Q", 1 << 40) + b"mask" + b"x" * 100000)
            while ws.frame():
                pass
        except ConnectionError:
            pass
    assert wait_until(service.is_healthy)


def test_pings_of_who_reads_nothing_cost_nothing(service):
    """Each is answered, but not for a client that takes no answer."""
    ping = bytes([0x80 | PING, 0x80 | 125]) + bytes(4) + bytes(125)
    worker = service.child("cove-api")
    before, sockets = rss_kib(worker), [Socket(service, "/cove/v1/events?last=0&follow=1&kind=none") for _ in range(16)]
    try:
        for ws in sockets:
            for _ in range(64):
                ws.sock.sendall(ping * 1000)
        assert wait_until(service.is_healthy)
        grown = rss_kib(worker) - before
        print(f"{len(sockets)} clients that sent 8 MB of pings each cost {grown} KiB")
        assert grown < 32 * 1024
        for ws in sockets: # they are not cut, and heard again once they read
            for _ in range(1000):
                assert ws.frame() == (PONG, bytes(125))
    finally:
        for ws in sockets:
            ws.__exit__()
