# SPDX-License-Identifier: Apache-2.0
"""Broken, slow and excessive HTTP: each connection gets its documented answer in bounded time and memory, and others are served."""

import contextlib
import resource
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from client import ENVD_PORT, JSON, STREAM, answers, envelope, wait_for
from hostile import GROWTH_KIB, MULTIPART, STREAMS, UNARY, WHOLE, client, http_head, is_error, place, sandbox  # noqa: F401  (fixtures)
from leaks import rss_kib
from service import opened

HEADER_S, BODY_S = 10, 60  # what the server waits


@pytest.fixture(scope="module", autouse=True)
def slow_bodies(place):
    slow = SlowBodies(place[1])
    yield slow
    slow.end()


# ---- many connections ----


def test_ten_thousand_idle_connections(place, client, record_property):
    service, _, witness = place
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(10_000, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 400), hard))
    before_kib, open_before = rss_kib(witness.worker), opened(witness.worker)
    before, sockets = set(open_before.values()), []

    def accepted():
        return sum(target.startswith("socket:") and target not in before for target in opened(witness.worker).values())

    try:
        for i in range(wanted):
            s = socket.create_connection(("127.0.0.1", client.port), timeout=60)
            if i % 10 == 0: # some have been used
                s.sendall(http_head("GET", "/health"))
            sockets.append(s)
        assert wait_for(lambda: accepted() >= wanted), accepted()
        grown = rss_kib(witness.worker) - before_kib
        print(f"{wanted} connections cost {grown} KiB, {grown * 1024 // wanted} bytes each")
        record_property("idle_connection_bytes", grown * 1024 // wanted)
        assert grown < GROWTH_KIB
        begin = time.monotonic()
        for _ in range(50):
            assert client.request("GET", "/health").status == 200
        assert witness.sandbox.works()
        print(f"50 requests beside them in {1000 * (time.monotonic() - begin):.0f} ms")
        assert answers(sockets[0], 1)[0].status == 200
    finally:
        for s in sockets:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert wait_for(lambda: len(opened(witness.worker)) <= len(open_before) + 10), (len(open_before), opened(witness.worker))


# ---- HTTP itself ----


FLOODS = {
    "many headers": (http_head("GET", "/health", *["X: y"] * 5000), 431),
    "a large header": (http_head("GET", "/health", "X: " + "y" * 40_000), 431),
    "large headers": (http_head("GET", "/health", *["X: " + "y" * 1000] * 50), 431),
    "endless header": (http_head("GET", "/health")[:-4] + b"\r\nX: " + b"y" * (1 << 20), 431),
    "endless name": (http_head("GET", "/health")[:-4] + b"\r\n" + b"y" * (1 << 20), 431),
    "a long target": (http_head("GET", "/" + "x" * 10_000), 414),
    "an endless target": (b"GET /" + b"x" * (1 << 20), 414),
    "an endless method": (b"G" * (1 << 20), 400),
    "no colon": (http_head("GET", "/health", "nonsense"), 400),
    "space before the colon": (http_head("GET", "/health", "X : y"), 400),
    "no name": (http_head("GET", "/health", ": y"), 400),
    "folded": (http_head("GET", "/health", "X: y", " z"), 400),
    "NUL": (http_head("GET", "/health", "X: a\0b"), 400),
    "bare CR": (http_head("GET", "/health", "X: a\rb"), 400),
    "bare LF": (b"GET /health HTTP/1.1\nHost: localhost\n\n", 400),
    "two hosts": (http_head("GET", "/health", "Host: other"), 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "both lengths": (http_head("POST", "/sandboxes", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "two lengths": (http_head("POST", "/sandboxes", "Content-Length: 5", "Content-Length: 6") + b"hello", 400),
    "negative length": (http_head("POST", "/sandboxes", "Content-Length: -1"), 400),
    "a length with a sign": (http_head("POST", "/sandboxes", "Content-Length: +5") + b"hello", 400),
    "length of 2^64": (http_head("POST", "/sandboxes", "Content-Length: 18446744073709551616"), 400),
    "hexadecimal length": (http_head("POST", "/sandboxes", "Content-Length: 0x5") + b"hello", 400),
    "unknown coding": (http_head("POST", "/sandboxes", "Transfer-Encoding: gzip"), (400, 501)),
    "coding behind chunked": (http_head("POST", "/sandboxes", "Transfer-Encoding: chunked, gzip"), (400, 501)),
    "hidden chunked": (http_head("POST", "/sandboxes", "Transfer-Encoding: xchunked"), (400, 501)),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505)),
    "HTTP/1.2": (b"GET /health HTTP/1.2\r\nHost: x\r\n\r\n", (400, 505)),
    "HTTP/9": (b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", (400, 505)),
    "HTTP/0.9": (b"GET /health\r\n\r\n", (400, 505)),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", 400),
    "unknown expectation": (http_head("POST", "/sandboxes", "Expect: miracles", "Content-Length: 0"), (400, 417)),
}


@pytest.mark.parametrize("name", FLOODS)
def test_broken_requests(client, name):
    data, expected = FLOODS[name]
    with client.dial(data) as s:
        got = answers(s, 2)
        assert len(got) == 1 and got[0].status in (expected if isinstance(expected, tuple) else (expected,)), got
        assert got[0].json["code"] == got[0].status and got[0].headers["Connection"] == "close"


BROKEN_CHUNKS = {"no number": b"x\r\n", "negative": b"-1\r\n", "too large a number": b"fffffffffffffffff\r\n", "no line end": b"1\r\naXX",
                 "bare LF": b"1\na\r\n", "prefix": b"0x1\r\na\r\n", "endless extension": b"1;" + b"x" * (1 << 20),
                 "endless trailer": b"0\r\nX: " + b"x" * (1 << 20), "many trailers": b"0\r\n" + b"X: y\r\n" * 5000 + b"\r\n"}


@pytest.mark.parametrize("name", BROKEN_CHUNKS)
def test_broken_chunks(client, name):
    head = http_head("POST", "/v2/sandboxes", f"X-API-KEY: {client.key}", f"Content-Type: {JSON}", "Transfer-Encoding: chunked")
    got = client.raw(head + BROKEN_CHUNKS[name], 2)
    assert len(got) == 1 and got[0].status in (400, 413, 431) and got[0].headers["Connection"] == "close", got


def test_methods_and_forms_of_targets(client, sandbox):
    for method in ("TRACE", "CONNECT", "PROPFIND", "BREW", "get", "M-SEARCH"):
        for target in ("/health", f"/sandboxes/{sandbox.id}", "*"):
            got = client.raw(http_head(method, target, f"X-API-KEY: {client.key}", "Connection: close"))
            assert got and got[0].status in (400, 404, 405, 501), (method, target, got)
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"):
        assert sandbox.request(method, "/process.Process/List").status in (404, 405, 501), method
    for method in ("GET", "PUT", "PATCH"):
        assert client.control(method, "/sandboxes/x/timeout").status in (404, 405), method
    got = client.raw(http_head("HEAD", "/health") + http_head("HEAD", "/health"), 2, head=True)
    assert [a.status for a in got] == [200, 200]
    got = client.raw(sandbox.head("HEAD", "/files?path=/etc/hostname") + sandbox.head("HEAD", "/files?path=/none"), 2, head=True)
    assert [a.status for a in got] == [200, 404]
    assert [a.status for a in client.raw(http_head("OPTIONS", "*"))][0] in (200, 204, 400, 404, 405)
    assert [a.status for a in client.raw(http_head("GET", "http://localhost/health"))] == [200]
    for target in ("http://", "http://[", "//health", "health", "https://" + "x" * 7000 + "/", "?", "http:///health", "localhost:80"):
        got = client.raw(http_head("GET", target, "Connection: close"))
        assert got and got[0].status in (400, 401, 404), (target, got)


def test_http_1_0(client):
    got = client.raw(b"GET /health HTTP/1.0\r\n\r\nGET /health HTTP/1.0\r\n\r\n", 2)
    assert [a.status for a in got] == [200]
    got = client.raw(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2, 2)
    assert got[0].status == 200
    assert client.raw(b"POST /sandboxes HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")[0].status in (400, 401)


def test_expect_continue(client):
    body = b'{"templateID":"no-such-template"}'
    head = http_head("POST", "/v2/sandboxes", f"X-API-KEY: {client.key}", f"Content-Type: {JSON}", f"Content-Length: {len(body)}", "Expect: 100-continue")
    with client.dial(head) as s:
        assert [a.status for a in answers(s, 1)] == [100]
        s.sendall(body)
        assert [a.status for a in answers(s, 1)] == [404]
    # Whoever is refused anyway is not asked for the body.
    got = client.raw(head.replace(client.key.encode(), b"wrong"))
    assert [a.status for a in got] == [401]


def test_pipelining(client, sandbox):
    got = client.raw(http_head("GET", "/health") * 100, 100)
    assert [a.status for a in got] == [200] * 100
    requests = []
    for i in range(100):
        path = f"/tmp/p{i}"
        requests += [sandbox.head("POST", f"/files?path={path}", {"Content-Type": "application/octet-stream", "Content-Length": "3"}) + b"%03d" % i,
                     sandbox.head("GET", f"/files?path={path}")]
    got = client.raw(b"".join(requests), 200, timeout=60)
    assert [a.status for a in got] == [200] * 200
    assert [a.body for a in got[1::2]] == [b"%03d" % i for i in range(100)]
    # Behind a broken one nothing is looked at.
    got = client.raw(http_head("GET", "/health") + http_head("GET", "/health", "X : y") + http_head("GET", "/health") * 10, 12)
    assert [a.status for a in got] == [200, 400]


def test_pipelining_without_reading(client):
    """Somebody who asks and asks and never reads: the worker stops reading as well."""
    with client.dial() as s:
        s.settimeout(1)
        sent, request = 0, http_head("GET", "/health") * 1000
        with contextlib.suppress(TimeoutError):
            while sent < 64 << 20:
                sent += s.send(request)
        assert sent < 64 << 20
    assert client.request("GET", "/health").status == 200


# ---- slowness ----


class SlowBodies:
    """Bodies that stop, begun at the beginning, because it is a minute until the server loses patience."""

    def __init__(self, client):
        self.client, self.sandbox, self.begin = client, client.create(timeout=3600), time.monotonic()
        control = http_head("POST", "/v2/sandboxes", f"X-API-KEY: {client.key}", f"Content-Type: {JSON}", "Content-Length: 100")
        heads = {
            "control": control + b'{"temp',
            "chunked": control.replace(b"Content-Length: 100", b"Transfer-Encoding: chunked") + b"5\r\n{",
            "unary": self.sandbox.head("POST", f"/{UNARY[0]}", {"Content-Type": JSON, "Content-Length": "100"}) + b"{",
            "stream": self.sandbox.head("POST", f"/{STREAMS[0]}", {"Content-Type": STREAM, "Content-Length": "100"}) + b"\0\0",
            "upload": self.sandbox.head("POST", "/files?path=/tmp/slow", {"Content-Type": "application/octet-stream", "Content-Length": "100"}) + b"x",
            "multipart": self.sandbox.head("POST", "/files", {"Content-Type": MULTIPART + "B", "Content-Length": "1000"}) + WHOLE[:40],
            "native": control.replace(b"/v2/", b"/cove/v1/") + b"{",
        }
        self.sockets = {name: client.dial(data, BODY_S + 60) for name, data in heads.items()}

    def end(self):
        for s in self.sockets.values():
            s.close()


def test_slow_headers(client):
    """Hundreds who don't finish their headers: each is told so in time."""
    beginnings = [b"G", b"GET /", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\nX: "]
    sockets = [client.dial(beginnings[i % 4], HEADER_S + 60) for i in range(400)]
    try:
        # A byte now and then buys no time.
        for _ in range(4):
            time.sleep(1)
            for s in sockets[:100]:
                with contextlib.suppress(ConnectionError): # some say something wrong with it
                    s.send(b"x")
            assert client.request("GET", "/health").status == 200
        for s in sockets:
            got = answers(s, 2)
            assert len(got) == 1 and got[0].status in (408, 400), got
    finally:
        for s in sockets:
            s.close()


def test_connections_that_come_and_go(place, client):
    """Half of a request, then a reset; thousands of times."""
    _, _, witness = place
    before = len(opened(witness.worker))
    def one(i):
        with client.dial(http_head("POST", "/v2/sandboxes", "Content-Length: 1000", f"X-API-KEY: {client.key}")[:20 + i % 200]) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(3000)))
    assert wait_for(lambda: len(opened(witness.worker)) <= before + 10), len(opened(witness.worker))


def test_clients_that_leave(place, client, sandbox):
    """In the middle of what they asked for: processes go on, all else is forgotten."""
    _, _, witness = place
    before = len(opened(witness.worker))
    big = {"process": {"cmd": "sh", "args": ["-c", "exec head -c 100000000 /dev/zero"]}}
    requests = [
        sandbox.head("POST", f"/{STREAMS[0]}", {"Content-Type": STREAM, "Content-Length": str(len(envelope(big)))}) + envelope(big),
        sandbox.head("GET", "/files?path=/dev/../usr/bin/python3"), sandbox.head("POST", "/files?path=/tmp/left", {
            "Content-Type": "application/octet-stream", "Content-Length": "1000000"}) + bytes(1000),
        sandbox.head("POST", "/files", {"Content-Type": MULTIPART + "B", "Content-Length": "1000000"}) + WHOLE[:60],
        http_head("POST", "/v2/sandboxes", f"X-API-KEY: {client.key}", f"Content-Type: {JSON}", "Content-Length: 34") + b'{"templateID":"base", "timeout":2}',
    ]
    for _ in range(10):
        for request in requests:
            s = client.dial(request)
            time.sleep(0.005)
            s.close()
    assert wait_for(lambda: len(opened(witness.worker)) <= before + 10), len(opened(witness.worker))
    # Output that nobody reads is dropped at a pace; they end.
    assert wait_for(lambda: not sandbox.processes(), 200), sandbox.processes()


# ---- names of sandboxes ----

ODD_IDS = ["x", "i" + "0" * 20, "i" + "0" * 19 + "Z", "..", "../x", "../../etc/passwd", "a;rm -rf /", "$(id)", "' OR 1=1 --", "%00", "a%00b", "%2e%2e%2f", "x" * 62, "x" * 10_000,
           "%", "%zz", "☃", "-", "--", "a-b-c", " ", "a b", "*", "\\", "%0d%0aX:%20y"]


@pytest.mark.parametrize("odd", ODD_IDS, ids=lambda v: repr(v)[:24])
def test_odd_ids(client, sandbox, odd):
    in_path = odd if "%" in odd else quote(odd, safe="")
    for method, target in (("GET", "/sandboxes/{}"), ("DELETE", "/sandboxes/{}"), ("POST", "/sandboxes/{}/timeout"), ("POST", "/v2/sandboxes/{}/connect"),
                           ("GET", "/sandboxes/{}/metrics"), ("GET", "/sandboxes/{}/logs"), ("POST", "/sandboxes/{}/pause")):
        answer = client.control(method, target.format(in_path), {"timeout": 5} if method == "POST" else None)
        assert answer.status in (400, 404, 414), (target, answer)
    for method, target in (("GET", "/cove/v1/sandboxes/{}"), ("DELETE", "/cove/v1/sandboxes/{}"), ("GET", "/cove/v1/sandboxes/{}/events"), ("GET", "/cove/v1/sandboxes/{}/verify"),
                           ("GET", "/cove/v1/sandboxes/{}/files?path=/etc/passwd")):
        answer = client.native(method, target.format(in_path))
        assert answer.status in (400, 404, 414), (target, answer)
    in_header = odd.encode().decode("latin-1")
    got = client.raw(http_head("GET", "/files?path=/etc/passwd", f"E2b-Sandbox-Id: {in_header}", f"E2b-Sandbox-Port: {ENVD_PORT}", "Connection: close"))
    assert got and got[0].status in (400, 502), got
    got = client.raw(http_head("GET", "/health", "Connection: close", host=f"{ENVD_PORT}-{in_header}.example.com"))
    assert got and got[0].status in (400, 502), got
    assert sandbox.health() == 204


@pytest.mark.parametrize("port", ["0", "-1", "65536", "99999999999999999999", "x", "", " 80", "0x50", "8 0", "49983x"])
def test_odd_ports(client, sandbox, port):
    got = client.raw(http_head("GET", "/health", f"E2b-Sandbox-Id: {sandbox.id}", f"E2b-Sandbox-Port: {port}", "Connection: close"))
    assert got and got[0].status in ((204, 502) if port == " 80" else (400,)), got


def test_wrong_keys_and_tokens(client, sandbox):
    for key in ("", "wrong", client.key[:-1], client.key + "0", client.key.upper(), "e2b_" + "0" * 40, "x" * 10_000, "☃".encode().decode("latin-1")):
        got = client.raw(http_head("GET", "/v2/sandboxes", f"X-API-KEY: {key}", "Connection: close"))
        assert is_error(got[0], 401), (key, got)
        got = client.raw(http_head("GET", "/cove/v1/sandboxes", f"Authorization: Bearer {key}", "Connection: close"))
        assert got[0].status == 401, (key, got)
    for token in ("", "wrong", sandbox.token[:-1], sandbox.token + "0", "x" * 10_000):
        for method, target in (("POST", f"/{UNARY[0]}"), ("POST", f"/{STREAMS[0]}"), ("GET", "/metrics"), ("GET", "/envs"), ("GET", "/files?path=/etc/passwd"),
                               ("POST", "/files?path=/tmp/x")):
            answer = sandbox.request(method, target, b"{}" if method == "POST" else None, {"X-Access-Token": token})
            assert answer.status == 401, (token, target, answer)
    for internal in ("/init", "/freeze", "/./init", "/%69nit", "/x/../init"):
        assert sandbox.request("POST", internal, {"accessToken": "mine"}).status == 404
    assert sandbox.works()


# ---- other ports ----


def test_upstreams_that_lie(client, sandbox):
    """Servers inside that speak HTTP badly, each on a port of its own."""
    lies = {
        8001: b"garbage\r\n\r\n", 8002: b"", 8003: b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort", 8004: b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000,
        8005: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 8006: b"HTTP/1.1 99 " + b"x" * 100 + b"\r\n\r\n",
        8007: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n", 8008: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello, there is more",
        8009: b"HTTP/1.1 100 Continue\r\n\r\n" * 2000, 8010: b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 8011: b"\0" * 100_000,
    }
    program = "import socket, threading, time\nlies = " + repr({k: v if len(v) < 5000 else None for k, v in lies.items()}) + """
lies[8004] = b"HTTP/1.1 200 OK\\r\\nX: " + b"y" * 200000
lies[8009] = b"HTTP/1.1 100 Continue\\r\\n\\r\\n" * 2000
lies[8011] = b"\\0" * 100000
def serve(port, lie):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", port))
    s.listen()
    print(port, flush=True)
    while True:
        c, _ = s.accept()
        c.recv(65536)
        try:
            c.sendall(lie)
            c.shutdown(socket.SHUT_WR)
            c.recv(65536)
        except OSError:
            pass
        c.close()
for port, lie in lies.items():
    threading.Thread(target=serve, args=(port, lie)).start()
"""
    with sandbox.start("python3", "-c", program, tag="liar") as stream:
        seen = b""
        for _, data in stream.output():
            seen += data
            if seen.count(b"\n") == len(lies):
                break
    try:
        for port, lie in lies.items():
            request = http_head("GET", "/", f"E2b-Sandbox-Id: {sandbox.id}", f"E2b-Sandbox-Port: {port}", "Connection: close")
            with client.dial(request) as s:
                data = b""
                with contextlib.suppress(ConnectionError):
                    while piece := s.recv(65536):
                        data += piece
                        if port == 8008:
                            break
            head = data.split(b"\r\n")[0]
            if port in (8003, 8007):
                assert head.startswith(b"HTTP/1.1 200") and b"0\r\n\r\n" not in data, (port, data[:300]) # cut, not ended
            elif port == 8008:
                assert head.startswith(b"HTTP/1.1 200") and data.endswith(b"\r\n\r\nhe"), data[-100:]
            else:
                assert head.startswith(b"HTTP/1.1 502"), (port, data[:300])
    finally:
        sandbox.unary("process.Process/SendSignal", {"process": {"tag": "liar"}, "signal": "SIGNAL_SIGKILL"})
    assert sandbox.request("GET", "/", headers={"E2b-Sandbox-Port": "8099"}).status == 502


# ---- at the end ----


def test_slow_bodies(slow_bodies, client):
    slow = slow_bodies
    for name, s in slow.sockets.items():
        got = answers(s, 2)
        assert len(got) == 1 and got[0].status == 408, (name, got)
    waited = time.monotonic() - slow.begin
    print(f"told after {waited:.0f} s")
    assert waited >= BODY_S - 1
    assert slow.sandbox.works()
