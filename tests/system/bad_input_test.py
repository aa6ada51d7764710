# SPDX-License-Identifier: Apache-2.0
"""
Broken, hostile and excessive input: each gets its documented answer in bounded time, the worker's memory does not grow, and another
sandbox does not notice.
"""

import base64
import contextlib
import gzip
import hashlib
import json
import os
import random
import resource
import socket
import struct
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from client import ENVD_PORT, JSON, STREAM, Cut, Failed, Stream, answers, envelope, wait_for
from leaks import descriptors, rss_kib, running

GROWTH_KIB = 64 * 1024
HEADER_S, BODY_S = 10, 60  # what the server waits
GONE = (Cut, ConnectionError, TimeoutError, OSError)


class Witness:
    """Another sandbox, used all along; and what the worker's memory does meanwhile."""

    def __init__(self, service, client):
        self.service, self.sandbox, self.stop = service, client.create(timeout=3600), False
        self.worker = service.child("cove-api")
        self.faults, self.slowest, self.runs, self.most_kib = [], 0, 0, 0
        self.sandbox.works()
        self.first_kib = rss_kib(self.worker)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stop:
            begin = time.monotonic()
            try:
                if not self.sandbox.works():
                    self.faults.append("it failed")
            except (*GONE, Failed, AssertionError) as e:
                self.faults.append(repr(e))
            self.slowest = max(self.slowest, time.monotonic() - begin)
            self.most_kib = max(self.most_kib, rss_kib(self.worker))
            self.runs += 1
            time.sleep(0.1)

    def end(self):
        self.stop = True
        self.thread.join(30)
        return self


@pytest.fixture(scope="module")
def place():
    """(service, client, witness); at the end the witness is asked."""
    with running() as (service, client):
        slow = SlowBodies(client)
        witness = Witness(service, client)
        service.slow_bodies = slow
        try:
            yield service, client, witness
        finally:
            slow.end()
            witness.end()
        print(f"{witness.runs} runs beside it, the slowest {witness.slowest * 1000:.0f} ms; memory {witness.first_kib} KiB, at most "
              f"{witness.most_kib}, at the end {rss_kib(witness.worker)}")
        assert not witness.faults, witness.faults[:5]
        assert service.child("cove-api") == witness.worker, "the worker died:\n" + service.tail()
        assert rss_kib(witness.worker) - witness.first_kib < GROWTH_KIB


@pytest.fixture
def client(place):
    yield place[1]
    service, _, witness = place
    assert service.child("cove-api") == witness.worker, "the worker died:\n" + service.tail()
    assert not witness.faults, witness.faults[:5]


@pytest.fixture(scope="module")
def sandbox(place):
    return place[1].create(timeout=3600)


def http_head(method, target, *headers, host="localhost"):
    return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode("latin-1")


def is_error(answer, status):
    """E2B's error body, whose code is the status."""
    return answer.status == status and answer.json["code"] == status and answer.json["message"]


# ---- many connections ----


def test_ten_thousand_idle_connections(place, client, record_property):
    service, _, witness = place
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(10_000, hard - 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 400), hard))
    before_kib, before = rss_kib(witness.worker), descriptors(witness.worker)
    sockets = []
    try:
        for i in range(wanted):
            s = socket.create_connection(("127.0.0.1", client.port), timeout=30)
            if i % 10 == 0: # some have been used
                s.sendall(http_head("GET", "/health"))
            sockets.append(s)
        assert wait_for(lambda: descriptors(witness.worker) >= before + wanted, 20), descriptors(witness.worker)
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
    assert wait_for(lambda: descriptors(witness.worker) <= before + 10, 20), descriptors(witness.worker)


# ---- JSON ----

DEEP = 100_000
LARGE = 5 << 20
BROKEN_JSON = {
    "truncated": b'{"templateID": "ba',
    "no end": b'{"templateID": "base"',
    "deep arrays": b'{"x":' + b"[" * DEEP,
    "deep objects": b'{"x":' * DEEP + b"1" + b"}" * DEEP,
    "well-formed but deep": b'{"x":' + b"[" * 1000 + b"]" * 1000 + b"}",
    "a key twice": b'{"templateID":"base","templateID":"base","process":{"pid":1},"process":{"pid":1}}',
    "not UTF-8": b'{"templateID":"\xff\xfe","path":"\xc3\x28"}',
    "overlong UTF-8": b'{"path":"\xc0\xaf"}',
    "surrogate in UTF-8": b'{"path":"\xed\xa0\x80"}',
    "half a surrogate pair": b'{"path":"\\ud800"}',
    "NUL": b'{"path":"a\x00b"}',
    "escaped NUL": b'{"path":"a\\u0000b"}',
    "no object": b'["templateID"]',
    "a string": b'"templateID"',
    "a number": b"1",
    "null": b"null",
    "two values": b'{"templateID":"base"} {"templateID":"base"}',
    "garbage behind": b'{"templateID":"base"}}',
    "byte order mark": b'\xef\xbb\xbf{"templateID":"base"}',
    "NaN": b'{"timeout":NaN,"x":NaN}',
    "too many values": b'{"x":[' + b"1," * 200_000 + b"1]}",
    "single quotes": b"{'templateID':'base'}",
    "a comment": b'{"templateID":"base"/*x*/}',
    "a trailing comma": b'{"templateID":"base",}',
    "garbage": bytes(range(256)) * 16,
    "too large": b'{"x":"' + b"x" * LARGE + b'"}',
    "large and broken": b"{" * LARGE,
}
UNARY = ["process.Process/List", "process.Process/SendInput", "process.Process/CloseStdin", "process.Process/SendSignal",
         "process.Process/Update", "filesystem.Filesystem/Stat", "filesystem.Filesystem/MakeDir", "filesystem.Filesystem/Move",
         "filesystem.Filesystem/ListDir", "filesystem.Filesystem/Remove", "filesystem.Filesystem/CreateWatcher",
         "filesystem.Filesystem/GetWatcherEvents", "filesystem.Filesystem/RemoveWatcher"]
STREAMS = ["process.Process/Start", "process.Process/Connect", "filesystem.Filesystem/WatchDir"]


@pytest.mark.parametrize("target", ["/sandboxes", "/v2/sandboxes", "/sandboxes/{}/timeout", "/sandboxes/{}/refreshes", "/sandboxes/{}/connect",
                                    "/v2/sandboxes/{}/connect"])
def test_broken_json_for_the_control_plane(client, sandbox, target):
    before = client.list().keys()
    for name, body in BROKEN_JSON.items():
        answer = client.control("POST", target.format(sandbox.id), body, {"Content-Type": JSON})
        assert is_error(answer, 413 if len(body) > 1 << 20 else 400), (name, answer)
    assert client.list().keys() == before


@pytest.mark.parametrize("method", UNARY)
def test_broken_json_for_unary_calls(client, sandbox, method):
    for name, body in BROKEN_JSON.items():
        answer = sandbox.unary(method, body)
        if name == "too large" and method.endswith("SendInput"):
            continue # not for this one, which carries data
        expected = (429, "resource_exhausted") if len(body) >= LARGE and answer.status != 400 else (400, "invalid_argument")
        assert (answer.status, answer.json["code"]) == expected and answer.json["message"], (name, answer)


@pytest.mark.parametrize("method", STREAMS)
def test_broken_json_for_streams(client, sandbox, method):
    for name, body in BROKEN_JSON.items():
        with sandbox.stream(method, envelope(body)) as stream, pytest.raises(Failed) as e:
            stream.next()
        assert e.value.code == ("resource_exhausted" if len(body) >= LARGE else "invalid_argument"), (name, e.value)


def test_broken_json_for_the_native_api(client, sandbox):
    for target in ("/v1/sandboxes", f"/v1/sandboxes/{sandbox.id}/timeout"):
        for name, body in BROKEN_JSON.items():
            answer = client.native("POST", target, body)
            assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_argument"), (name, answer)


WRONG_FIELDS = [
    {"templateID": 7}, {"templateID": None}, {"templateID": ["base"]}, {}, {"templateID": ""}, {"templateID": "../base"},
    {"templateID": "x" * 100_000}, {"templateID": "base", "timeout": -1}, {"templateID": "base", "timeout": 0},
    {"templateID": "base", "timeout": 1e99}, {"templateID": "base", "timeout": 2 ** 63}, {"templateID": "base", "timeout": "60"},
    {"templateID": "base", "timeout": 10 ** 9}, {"templateID": "base", "metadata": {"a": 1}}, {"templateID": "base", "metadata": ["a"]},
    {"templateID": "base", "metadata": {str(i): "x" for i in range(2000)}}, {"templateID": "base", "metadata": {"x": "y" * 500_000}},
    {"templateID": "base", "envVars": {"": "x"}}, {"templateID": "base", "envVars": {"A=B": "x"}}, {"templateID": "base", "envVars": {"A": None}},
    {"templateID": "base", "autoPause": "yes"}, {"templateID": "base", "network": 5},
]


@pytest.mark.parametrize("body", WRONG_FIELDS, ids=lambda b: json.dumps(b)[:40])
def test_wrong_fields_of_create(client, body):
    before = client.list().keys()
    answer = client.control("POST", "/v2/sandboxes", body)
    assert is_error(answer, 400), answer
    assert client.list().keys() == before


WRONG_STARTS = [
    {}, {"process": None}, {"process": []}, {"process": {"cmd": ""}}, {"process": {"cmd": 5}}, {"process": {"cmd": "true", "args": "x"}},
    {"process": {"cmd": "true", "args": [1]}}, {"process": {"cmd": "true", "envs": {"A=B": "x"}}}, {"process": {"cmd": "true", "envs": []}},
    {"process": {"cmd": "true", "cwd": 7}}, {"process": {"cmd": "true", "cwd": "/no/such/place"}}, {"process": {"cmd": "/no/such/program"}},
    {"process": {"cmd": "/etc/passwd"}}, {"process": {"cmd": "/"}}, {"process": {"cmd": "x" * 5000}}, {"process": {"cmd": "true"}, "tag": 5},
    {"process": {"cmd": "true"}, "pty": {"size": {"cols": -1, "rows": 5}}}, {"process": {"cmd": "true"}, "pty": {"size": {"cols": 1 << 40, "rows": 5}}},
    {"process": {"cmd": "true"}, "pty": "yes"}, {"process": {"cmd": "true"}, "stdin": "yes"}, {"process": {"cmd": "true"}, "tag": "x" * 5000},
    {"process": {"cmd": "true", "args": ["x" * 200_000]}},
]


@pytest.mark.parametrize("message", WRONG_STARTS, ids=lambda m: json.dumps(m)[:60])
def test_wrong_starts(client, sandbox, message):
    with sandbox.stream("process.Process/Start", message) as stream, pytest.raises(Failed) as e:
        stream.rest()
    assert e.value.code == "invalid_argument" and e.value.message, e.value
    assert not sandbox.processes()


# ---- Connect framing ----

TRUE = {"process": {"cmd": "true", "args": []}}
BROKEN_FRAMES = {
    "end flag": (envelope(TRUE, flags=2), "invalid_argument"),
    "compressed flag": (envelope(gzip.compress(json.dumps(TRUE).encode()), flags=1), "internal"),
    "compressed and end": (envelope(TRUE, flags=3), ("internal", "invalid_argument")),
    "unknown flag": (envelope(TRUE, flags=0x80), "invalid_argument"),
    "all flags but compressed": (envelope(TRUE, flags=0xfe), "invalid_argument"),
    "says shorter": (envelope(TRUE, length=10), "invalid_argument"),
    "says longer": (envelope(TRUE, length=1000), "invalid_argument"),
    "says 4 GiB": (envelope(TRUE, length=0xffffffff), ("invalid_argument", "resource_exhausted")),
    "says 2 GiB": (envelope(TRUE, length=0x80000000), ("invalid_argument", "resource_exhausted")),
    "says nothing": (envelope(TRUE, length=0), "invalid_argument"),
    "two": (envelope(TRUE) * 2, "invalid_argument"),
    "two, one empty": (envelope(TRUE) + envelope(b""), "invalid_argument"),
    "and an end": (envelope(TRUE) + envelope(b"{}", flags=2), "invalid_argument"),
    "no body": (b"", "unimplemented"),
    "half a head": (b"\0\0\0", "invalid_argument"),
    "only a head": (struct.pack(">BI", 0, 50), "invalid_argument"),
    "empty message": (envelope(b""), "invalid_argument"),
    "bare JSON": (json.dumps(TRUE).encode(), ("invalid_argument", "resource_exhausted")),
    "zeros": (bytes(10_000), "invalid_argument"),
    "too large": (envelope(b" " * LARGE), "resource_exhausted"),
}


@pytest.mark.parametrize("name", BROKEN_FRAMES)
def test_broken_frames(client, sandbox, name):
    body, codes = BROKEN_FRAMES[name]
    for method in STREAMS:
        with sandbox.stream(method, body) as stream, pytest.raises(Failed) as e:
            stream.next()
        assert e.value.code in codes, e.value
    assert not sandbox.processes()


def test_broken_frames_of_a_client_stream(client, sandbox):
    start = {"start": {"process": {"pid": 99999}}}
    for body in (b"\0\0", envelope(start, length=0xffffffff), envelope(start, flags=1), envelope(start, flags=0x40), envelope(b"[]"),
                 envelope({"data": {"input": {"stdin": "eA=="}}}), envelope(start), envelope(b" " * LARGE), envelope({}) * 1000):
        with sandbox.stream("process.Process/StreamInput", body) as stream, pytest.raises(Failed):
            while stream.next() is not None:
                pass


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/proto", "application/connect+proto", "application/grpc", "application/grpc-web+json",
                                          "multipart/form-data; boundary=x", "application/jsonx", ";;;", "x" * 5000])
def test_wrong_content_types(client, sandbox, content_type):
    for method in UNARY[:2] + STREAMS:
        answer = sandbox.request("POST", f"/{method}", b"{}", {"Content-Type": content_type})
        assert answer.status == 415, (method, answer)
    for swapped, method in ((STREAM, UNARY[0]), (JSON, STREAMS[0])):
        assert sandbox.request("POST", f"/{method}", b"{}", {"Content-Type": swapped}).status == 415
    assert is_error(client.control("POST", "/v2/sandboxes", b'{"templateID":"base"}', {"Content-Type": content_type}), 400)


def test_compressed_calls(client, sandbox):
    body = gzip.compress(b"{}")
    assert sandbox.unary(UNARY[0], body, {"Content-Encoding": "gzip"}).json["code"] == "unimplemented"
    with sandbox.stream(STREAMS[0], envelope(body, flags=1), {"Connect-Content-Encoding": "gzip"}) as stream, pytest.raises(Failed) as e:
        stream.next()
    assert e.value.code == "unimplemented"


def test_wrong_call_headers(client, sandbox):
    for timeout in ("-1", "x", "1e3", "99999999999", " ", "1.5"):
        assert sandbox.unary(UNARY[0], {}, {"Connect-Timeout-Ms": timeout}).json["code"] == "invalid_argument", timeout
    assert sandbox.unary(UNARY[0], {}, {"Connect-Timeout-Ms": "0"}).json["code"] == "deadline_exceeded"
    assert sandbox.unary(UNARY[0], {}, {"Connect-Protocol-Version": "2"}).json["code"] == "invalid_argument"
    for interval in ("-1", "x", "0", "99999999999999999999"):
        with sandbox.stream(STREAMS[0], TRUE, {"Keepalive-Ping-Interval": interval}) as stream:
            assert stream.rest()[0] == 0
    for user in ("no-such-user", "../root", "x" * 3000, "x" * 20_000, "ü", "root\n", "user ", "User", "0"):
        basic = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        with sandbox.stream(STREAMS[0], TRUE, {"Authorization": basic}) as stream, pytest.raises(Failed) as e:
            stream.rest()
        assert e.value.code in ("unauthenticated", "invalid_argument"), user
    assert sandbox.unary(UNARY[0], {}, {"Authorization": "Basic " + base64.b64encode(b"a\0b:").decode()}).status == 401


# ---- multipart ----


def multipart(*parts, boundary=b"B", end=True):
    """Parts are (headers, content)."""
    body = b"".join(b"--" + boundary + b"\r\n" + headers + b"\r\n\r\n" + content + b"\r\n" for headers, content in parts)
    return body + (b"--" + boundary + b"--\r\n" if end else b"")


def file_part(name, content=b"x"):
    return b'Content-Disposition: form-data; name="file"; filename="' + name + b'"', content


WHOLE = multipart(file_part(b"/tmp/whole"))
MULTIPART = "multipart/form-data; boundary="
BROKEN_MULTIPART = {
    "no boundary": ("multipart/form-data", WHOLE),
    "empty boundary": (MULTIPART, WHOLE),
    "boundary of 71": (MULTIPART + "b" * 71, WHOLE),
    "boundary of 5000": (MULTIPART + "b" * 5000, WHOLE),
    "another boundary": (MULTIPART + "C", WHOLE),
    "mixed": ("multipart/mixed; boundary=B", WHOLE),
    "no body": (MULTIPART + "B", b""),
    "only the end's beginning": (MULTIPART + "B", b"--B"),
    "unterminated": (MULTIPART + "B", multipart(file_part(b"/tmp/bad"), end=False)),
    "cut in a part": (MULTIPART + "B", WHOLE[:-12]),
    "cut in a header": (MULTIPART + "B", WHOLE[:30]),
    "huge header": (MULTIPART + "B", multipart((b"X: " + b"x" * 100_000 + b"\r\n" + file_part(b"/tmp/bad")[0], b"x"))),
    "many headers": (MULTIPART + "B", multipart((b"X: y\r\n" * 5000 + file_part(b"/tmp/bad")[0], b"x"))),
    "endless header": (MULTIPART + "B", b"--B\r\nX: " + b"x" * (1 << 20)),
    "no colon": (MULTIPART + "B", multipart((b"nonsense", b"x"))),
    "10,000 parts": (MULTIPART + "B", multipart(*[(b'Content-Disposition: form-data; name="other"', b"x")] * 10_000)),
    "10,000 files": (MULTIPART + "B", multipart(*[file_part(b"/tmp/many/%d" % i) for i in range(10_000)])),
    "the same file twice": (MULTIPART + "B", multipart(file_part(b"/tmp/bad"), file_part(b"/tmp/bad"))),
    "no filename": (MULTIPART + "B", multipart((b'Content-Disposition: form-data; name="file"', b"x"))),
    "NUL in a name": (MULTIPART + "B", multipart(file_part(b"/tmp/a\0b"))),
    "name too long": (MULTIPART + "B", multipart(file_part(b"/tmp/" + b"x/" * 2500))),
    "a directory": (MULTIPART + "B", multipart(file_part(b"/tmp"))),
    "garbage": (MULTIPART + "B", random.Random(1).randbytes(1 << 20)),
    "wrong type": ("text/plain", b"x"),
    "no type": ("", b"x"),
}


@pytest.mark.parametrize("name", BROKEN_MULTIPART)
def test_broken_multipart(client, sandbox, name):
    content_type, body = BROKEN_MULTIPART[name]
    answer = sandbox.request("POST", "/files", body, {"Content-Type": content_type})
    assert is_error(answer, 400), answer


def test_odd_multipart(client, sandbox):
    nested = multipart(file_part(b"/tmp/inner"), boundary=b"C")
    for parts, expected in (([], {}), ([file_part(b"/tmp/nested", nested)], {"/tmp/nested": nested}),
                            ([(b'content-disposition:form-data;name="x";filename="y"', b"no file")], {}),
                            ([file_part(b"/tmp/empty", b"")], {"/tmp/empty": b""}),
                            ([file_part(b"/tmp/../tmp/./dots")], {"/tmp/../tmp/./dots": b"x"}),
                            ([file_part(b"/tmp/like\r\n--B-boundary".replace(b"\r\n", b"_"), b"\r\n--\r\n--A\r\n--")], {"/tmp/like_--B-boundary": b"\r\n--\r\n--A\r\n--"})):
        answer = sandbox.request("POST", "/files", multipart(*parts), {"Content-Type": MULTIPART + "B"})
        assert answer.status == 200 and {e["path"] for e in answer.json} == expected.keys(), answer
        for path, content in expected.items():
            assert sandbox.download(path).body == content


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
    got = client.raw(b"".join(requests), 200, timeout=30)
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
            "native": control.replace(b"/v2/", b"/v1/") + b"{",
        }
        self.sockets = {name: client.dial(data, BODY_S + 20) for name, data in heads.items()}

    def end(self):
        for s in self.sockets.values():
            s.close()


def test_slow_headers(client):
    """Hundreds who don't finish their headers: each is told so in time."""
    beginnings = [b"G", b"GET /", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\nX: "]
    sockets = [client.dial(beginnings[i % 4], HEADER_S + 15) for i in range(400)]
    begin = time.monotonic()
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
        assert time.monotonic() - begin < HEADER_S + 10
    finally:
        for s in sockets:
            s.close()


def test_connections_that_come_and_go(place, client):
    """Half of a request, then a reset; thousands of times."""
    _, _, witness = place
    before = descriptors(witness.worker)
    def one(i):
        with client.dial(http_head("POST", "/v2/sandboxes", "Content-Length: 1000", f"X-API-KEY: {client.key}")[:20 + i % 200]) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(3000)))
    assert wait_for(lambda: descriptors(witness.worker) <= before + 10, 10), descriptors(witness.worker)


def test_clients_that_leave(place, client, sandbox):
    """In the middle of what they asked for: processes go on, all else is forgotten."""
    _, _, witness = place
    before = descriptors(witness.worker)
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
    assert wait_for(lambda: descriptors(witness.worker) <= before + 10, 10), descriptors(witness.worker)
    # Output that nobody reads is dropped at a pace; they end.
    assert wait_for(lambda: not sandbox.processes(), 60), sandbox.processes()


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
    for method, target in (("GET", "/v1/sandboxes/{}"), ("DELETE", "/v1/sandboxes/{}"), ("GET", "/v1/sandboxes/{}/events"), ("GET", "/v1/sandboxes/{}/verify"),
                           ("GET", "/v1/sandboxes/{}/files?path=/etc/passwd")):
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
        got = client.raw(http_head("GET", "/v1/sandboxes", f"Authorization: Bearer {key}", "Connection: close"))
        assert got[0].status == 401, (key, got)
    for token in ("", "wrong", sandbox.token[:-1], sandbox.token + "0", "x" * 10_000):
        for method, target in (("POST", f"/{UNARY[0]}"), ("POST", f"/{STREAMS[0]}"), ("GET", "/metrics"), ("GET", "/envs"), ("GET", "/files?path=/etc/passwd"),
                               ("POST", "/files?path=/tmp/x")):
            answer = sandbox.request(method, target, b"{}" if method == "POST" else None, {"X-Access-Token": token})
            assert answer.status == 401, (token, target, answer)
    for internal in ("/init", "/freeze", "/./init", "/%69nit", "/x/../init"):
        assert sandbox.request("POST", internal, {"accessToken": "mine"}).status == 404
    assert sandbox.works()


# ---- paths ----


@pytest.fixture(scope="module")
def trap(sandbox):
    """A sandbox full of traps."""
    script = """
        mkdir -p /tmp/t && cd /tmp/t && ln -s /etc/shadow shadow && ln -s / root && ln -s ../../../../../../../../etc/passwd up && ln -s loop loop
        ln -s /proc/1/root proc-root && ln -s /proc/self/fd fds && ln -s /nowhere broken && mkfifo fifo && mkdir dir && echo file > file
        i=0; p=deep; while [ $i -lt 100 ]; do mkdir -p $p; p=$p/d; i=$((i+1)); done
        ln -s /dev/zero zero-link; chmod 000 dir; echo secret > own; chmod 600 own; chown -h user: *
    """
    assert sandbox.sh(script, user="root")[0] == 0
    return sandbox


LONG = "/tmp/" + "x/" * 2100
NOT_FILES = ["", "/", "/tmp", "/tmp/t", "/tmp/t/fifo", "/dev/zero", "/dev/random", "/dev/null", "/dev/tty", "/dev/ptmx", "/dev/full", "/tmp/t/zero-link", "/proc", "/proc/1/fd",
             "/tmp/t/loop", "/tmp/t/broken", "/no/such/file", "/tmp/t/file/x", LONG, "/" + "x" * 300, "/tmp/t/\0x", "/tmp/t/dir/x",
             "/proc/1/mem", "/proc/kcore", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/self/fd/0", "/tmp/t/fds/0", "/sys/kernel/debug", "~nobody/x", "/proc/self/mem"]


@pytest.mark.parametrize("path", NOT_FILES, ids=lambda p: repr(p)[:40])
def test_paths_that_are_no_files_to_read(client, trap, path):
    answer = trap.download(path, timeout=10)
    assert answer.status in (400, 403, 404, 500), answer
    assert is_error(answer, answer.status)


def test_paths_stay_inside(client, trap):
    for path in ("/tmp/t/../../../../../etc/hostname", "../../../../../../etc/hostname", "/tmp/t/root/etc/hostname", "//etc///hostname", "/./etc/./hostname"):
        answer = trap.download(path)
        assert answer.status == 200 and answer.body.startswith(b"cove-"), (path, answer)
    assert trap.download("/tmp/t/up").body == trap.sh("cat /etc/passwd")[1]
    host = open("/etc/machine-id", "rb").read() if os.path.exists("/etc/machine-id") else b"\n"
    assert len(host) < 2 or trap.download("/proc/1/root/etc/machine-id").body != host


def test_proc_files_end(client, trap):
    for path in ("/proc/cpuinfo", "/proc/self/status", "/proc/self/maps", "/proc/mounts", "/proc/version"):
        answer = trap.download(path, timeout=10)
        assert answer.status == 200 and answer.body, (path, answer)
    # The agent reads for the owner of the sandbox, as root of it; its own environment holds nothing.
    assert set(trap.download("/proc/1/environ").body.decode().strip("\0").split("\0")) >= {"E2B_SANDBOX=true"}
    assert b"COVE" not in trap.download("/proc/1/environ").body


NOT_TO_WRITE = ["", "/", "/tmp", "/tmp/t/fifo", "/dev/full", "/dev/zero", "/dev/sda", "/proc/x", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/self/mem", "/proc/1/oom_score_adj",
                "/sys/x", "/tmp/t/loop", "/tmp/t/file/x", LONG, "/" + "x" * 300, "/tmp/a\0b", "/tmp/t/zero-link", "/dev/ptmx", "/dev/tty", "/proc/self/fd/0"]


@pytest.mark.parametrize("path", NOT_TO_WRITE, ids=lambda p: repr(p)[:40])
def test_paths_that_cannot_be_written(client, trap, path):
    answer = trap.upload(path, b"x" * 100_000, timeout=10)
    assert answer.status in (400, 403, 404, 500, 507), answer
    assert is_error(answer, answer.status)


@pytest.mark.parametrize("path", ["/tmp/t/fifo", "/dev/zero", "/proc/self/mem", "/proc/kcore", "/tmp/t/loop", "/tmp/t/broken", "/tmp/t/\0x", LONG, "x" * 300, "", "/"],
                         ids=lambda p: repr(p)[:30])
def test_file_calls_answer_for_any_path(client, trap, path):
    for method, field in (("Stat", "path"), ("ListDir", "path"), ("MakeDir", "path"), ("CreateWatcher", "path")):
        answer = trap.unary(f"filesystem.Filesystem/{method}", {field: path}, timeout=10)
        assert answer.status in (200, 400, 403, 404, 409, 500), (method, answer)
        assert answer.status == 200 or answer.json["code"] in ("invalid_argument", "not_found", "already_exists", "permission_denied", "failed_precondition",
                                                                  "internal"), (method, answer)
    for source, destination in ((path, "/proc/x"), ("/tmp/t/file", path.rstrip("/") + "/x" if path.strip("/") else "/proc/y")):
        answer = trap.unary("filesystem.Filesystem/Move", {"source": source, "destination": destination}, timeout=10)
        assert answer.status in (400, 403, 404, 409, 500), (source, destination, answer)
    with trap.stream("filesystem.Filesystem/WatchDir", {"path": path}, timeout=10) as stream:
        with contextlib.suppress(Failed):
            assert "start" in stream.next()


def test_calls_about_directories(client, trap):
    call = lambda method, body: trap.unary(f"filesystem.Filesystem/{method}", body, timeout=20)
    for depth in (0, 1, 99, 1000, 0xffffffff):
        answer = call("ListDir", {"path": "/tmp/t/deep", "depth": depth})
        assert answer.status == 200 and len(answer.json["entries"]) == min(max(depth, 1), 99), (depth, answer)
    for depth in (-1, 1 << 32, "x", 1.5, None):
        assert call("ListDir", {"path": "/tmp/t/deep", "depth": depth}).status in ((200,) if depth is None else (400,)), depth
    answer = call("ListDir", {"path": "/", "depth": 1000})
    assert answer.status in (200, 400, 429, 500), answer
    assert call("Remove", {"path": "/"}).json["code"] in ("invalid_argument", "permission_denied")
    assert call("Remove", {"path": "/proc"}).status in (400, 403, 500)
    assert call("Remove", {"path": "/tmp/t/root/"}).status in (200, 400, 403)
    assert call("Move", {"source": "/tmp/t", "destination": "/tmp/t/deep/inside"}).status in (400, 500)
    assert call("RemoveWatcher", {"watcherId": "../x"}).json["code"] == "not_found"
    assert call("GetWatcherEvents", {"watcherId": "x" * 10_000}).json["code"] == "not_found"
    assert trap.works()


def test_watchers_are_bounded(client, trap):
    answers_ = [trap.unary("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}) for _ in range(300)]
    refused = [a for a in answers_ if a.status != 200]
    assert all(a.json["code"] == "resource_exhausted" for a in refused), refused[:1]
    for a in answers_:
        if a.status == 200:
            assert trap.unary("filesystem.Filesystem/RemoveWatcher", {"watcherId": a.json["watcherId"]}).status == 200


# ---- signatures ----


def sign(sandbox, path, operation, user="", expiration=None):
    text = f"{path}:{operation}:{user}:{sandbox.token}" + (f":{expiration}" if expiration is not None else "")
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def test_signatures(client, sandbox):
    assert sandbox.upload("/tmp/signed", b"signed").status == 200
    def get(query, method="GET", headers=None):
        body = b"x" if method == "POST" else None
        return client.request(method, "/files?" + query, body, {"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": str(ENVD_PORT),
                                                              "Content-Type": "application/octet-stream", **(headers or {})})
    good, soon = quote(sign(sandbox, "/tmp/signed", "read"), safe=""), int(time.time()) + 100
    assert get(f"path=/tmp/signed&signature={good}").body == b"signed"
    expiring = quote(sign(sandbox, "/tmp/signed", "read", expiration=soon), safe="")
    assert get(f"path=/tmp/signed&signature={expiring}&signature_expiration={soon}").status == 200
    past = soon - 1000
    bad = [
        "path=/tmp/signed", "path=/tmp/signed&signature=", f"path=/tmp/signed&signature={good[:-1]}", f"path=/tmp/signed&signature={good}A",
        f"path=/tmp/signed&signature={good.swapcase()}", f"path=/etc/passwd&signature={good}", f"path=/tmp/../tmp/signed&signature={good}",
        f"path=/tmp/signed&username=root&signature={good}", f"path=/tmp/signed&signature={good}&signature_expiration={soon}",
        f"path=/tmp/signed&signature={expiring}&signature_expiration={soon + 1}", f"path=/tmp/signed&signature={expiring}",
        f"path=/tmp/signed&signature={quote(sign(sandbox, '/tmp/signed', 'read', expiration=past), safe='')}&signature_expiration={past}",
        f"path=/tmp/signed&signature={quote(sign(sandbox, '/tmp/signed', 'write'), safe='')}", "path=/tmp/signed&signature=" + "A" * 7000,
        f"path=/tmp/signed&signature=v1_{'%00' * 43}", f"path=/tmp/signed&signature={good[3:]}", f"path=/tmp/signed&signature=v2_{good[3:]}",
    ]
    for query in bad:
        assert is_error(get(query), 401), (query, get(query))
    for query in (f"path=/tmp/signed&path=/etc/passwd&signature={good}", f"path=/tmp/signed&signature={good}&signature={good}",
                  f"path=/tmp/signed&signature={expiring}&signature_expiration=x", f"path=/tmp/signed&signature={expiring}&signature_expiration=-1",
                  f"path=/tmp/signed&signature={expiring}&signature_expiration=99999999999999999999", f"path=%zz&signature={good}"):
        assert get(query).status in (400, 401), (query, get(query))
    assert get(f"path=/tmp/signed&signature={good}", "POST").status == 401
    assert get(f"path=/tmp/signed&signature={good}", headers={"X-Access-Token": "wrong"}).status in (200, 401)
    assert sandbox.download("/tmp/signed").body == b"signed"


# ---- ranges and compression ----

RANGES = {
    "bytes=0-0": (206, b"0"), "bytes=-1": (206, b"9"), "bytes=5-": (206, b"56789"), "bytes=9-9": (206, b"9"), "bytes=0-9": (206, b"0123456789"),
    "bytes=3-100": (206, b"3456789"), "bytes=-100": (206, b"0123456789"), "bytes=0-18446744073709551615": (206, b"0123456789"),
    "bytes=10-": (416, None), "bytes=10-20": (416, None), "bytes=-0": (416, None), "bytes=18446744073709551615-": (416, None), "bytes=99999999999999999999-": (416, None),
    "bytes=5-2": (200, None), "bytes=": (200, None), "bytes=-": (200, None), "bytes=a-b": (200, None), "bytes=0-1,3-4": (200, None), "bytes": (200, None), "": (200, None),
    "lines=0-1": (200, None), "bytes=--1": (200, None), "bytes=0x0-1": (200, None), "bytes=1-2-3": (200, None), "bytes=" + "0-0," * 4000 + "0-0": (200, None),
    "bytes=0-0;": (200, None), "bytes=1 - 2": (206, b"12"),
}


@pytest.mark.parametrize("value", RANGES, ids=lambda v: v[:30])
def test_ranges(client, sandbox, value):
    assert sandbox.upload("/tmp/digits", b"0123456789").status == 200
    status, body = RANGES[value]
    answer = sandbox.download("/tmp/digits", {"Range": value})
    if status == 206:
        assert (answer.status, answer.body) == (206, body) and answer.headers["Content-Range"].endswith("/10"), answer
    else:
        # What is no valid range may be ignored or refused.
        assert answer.status in {200: (200, 400, 416), 416: (416,)}[status], answer
        assert answer.status != 200 or answer.body == b"0123456789"


def test_gzip_bombs(place, client, sandbox):
    _, _, witness = place
    before = rss_kib(witness.worker)
    size = 128 << 20
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(deflater.compress(bytes(1 << 20)) for _ in range(size >> 20)) + deflater.flush()
    answer = sandbox.upload("/tmp/bomb", bomb, {"Content-Encoding": "gzip"}, timeout=60)
    assert answer.status == 200, answer # it is the sandbox's disk; ours is not the memory
    assert sandbox.sh("stat -c %s /tmp/bomb; rm /tmp/bomb")[1] == b"%d\n" % size
    twice = gzip.compress(bomb)
    assert sandbox.upload("/tmp/bomb2", twice, {"Content-Encoding": "gzip"}).status == 200
    assert sandbox.download("/tmp/bomb2").body == bomb
    for name, body in {"cut": bomb[:-20], "no gzip": b"x" * 10_000, "only a head": bomb[:10], "bad sum": bomb[:-8] + b"\0" * 8, "empty": b"", "garbage behind": gzip.compress(b"x") + b"y" * 100}.items():
        answer = sandbox.upload("/tmp/bad", body, {"Content-Encoding": "gzip"}, timeout=60)
        assert is_error(answer, 400), (name, answer)
    assert sandbox.upload("/tmp/bad", bomb, {"Content-Encoding": "br"}).status in (400, 415)
    assert sandbox.upload("/tmp/bad", bomb, {"Content-Encoding": "gzip, gzip"}).status in (400, 415)
    answer = sandbox.request("POST", "/files", gzip.compress(WHOLE[:-9] + bytes(32 << 20)), {"Content-Type": MULTIPART + "B", "Content-Encoding": "gzip"}, timeout=60)
    assert is_error(answer, 400), answer
    print(f"bombs grew the worker by {rss_kib(witness.worker) - before} KiB")


def test_metadata_headers(client, sandbox):
    for headers, expected in (({"X-Metadata-a": "x" * 4000}, 200), ({"X-Metadata-a": "x" * 5000}, 400), ({"X-Metadata-" + "k" * 247: "v"}, 400), ({"X-Metadata-a": "\xff"}, 400),
                              ({f"X-Metadata-{i}": "x" * 100 for i in range(50)}, 400), ({"X-Metadata-a": "tab\there"}, 400)):
        answer = sandbox.upload("/tmp/metadata", b"x", headers)
        assert answer.status == expected, (list(headers)[:2], answer)


def test_queries(client, sandbox):
    for query in ("limit=0", "limit=-1", "limit=101", "limit=x", "limit=99999999999999999999", "nextToken=x", "nextToken=" + "A" * 5000, "order=up", "state=gone", "startedAfter=yesterday",
                  "metadata=%ZZ", "metadata=%25ZZ"):
        answer = client.control("GET", f"/v2/sandboxes?{query}")
        assert answer.status in (200, 400), (query, answer)
        assert answer.status == 200 or is_error(answer, 400)
    for query in ("start=x", "start=-1", "start=99999999999999999999", "end=1&start=2", "limit=-5"):
        for what in ("metrics", "logs"):
            answer = client.control("GET", f"/sandboxes/{sandbox.id}/{what}?{query}")
            assert answer.status in (200, 400), (query, what, answer)
    for query in ("from=x", "from=-1", "from=99999999999999999999"):
        answer = client.native("GET", f"/v1/sandboxes/{sandbox.id}/events?{query}")
        assert answer.status in (200, 400), (query, answer)


# ---- the command line's stream ----


def frame(kind, payload=b"", length=None):
    return struct.pack("<BI", kind, len(payload) if length is None else length) + payload


STDOUT, EXIT, ERROR, STDIN, STDIN_EOF, RESIZE, SIGNAL = 2, 5, 6, 16, 17, 18, 19
BROKEN_EXEC_FRAMES = {
    "unknown kind": frame(99), "kind zero": frame(0), "the service's kind": frame(STDOUT, b"x"), "too long": frame(STDIN, b"x", 1 << 20), "4 GiB": frame(STDIN, b"", 0xffffffff),
    "short resize": frame(RESIZE, b"\1"), "empty terminal": frame(RESIZE, b"\0\0\0\0"), "no signal": frame(SIGNAL), "signal 0": frame(SIGNAL, b"\0"), "signal 255": frame(SIGNAL, b"\xff"),
    "two signals": frame(SIGNAL, b"\1\1"), "garbage": random.Random(2).randbytes(100_000), "half a frame": frame(STDIN, b"x", 5000),
}


def begin_exec(client, sandbox, spec):
    body = spec if isinstance(spec, bytes) else json.dumps(spec).encode()
    return client.dial(http_head("POST", f"/v1/sandboxes/{sandbox.id}/exec", f"X-API-KEY: {client.key}", "Connection: upgrade", "Upgrade: cove-exec",
                                 f"Content-Type: {JSON}", f"Content-Length: {len(body)}") + body)


@pytest.mark.parametrize("name", BROKEN_EXEC_FRAMES)
def test_broken_frames_of_the_command_line(client, sandbox, name):
    with begin_exec(client, sandbox, {"cmd": ["sleep", "1000"], "stdin": True}) as s:
        got = s.recv(4096)
        assert got.startswith(b"HTTP/1.1 101"), got
        while b"pid" not in got:
            got += s.recv(4096)
        s.sendall(BROKEN_EXEC_FRAMES[name])
        if name == "half a frame":
            s.shutdown(socket.SHUT_WR) # it leaves within one: the process goes on
        else:
            # The stream ends, with the reason or without; it does not hang.
            with contextlib.suppress(ConnectionError):
                while s.recv(65536):
                    pass
    for process in sandbox.processes():
        sandbox.unary("process.Process/SendSignal", {"process": {"pid": process["pid"]}, "signal": "SIGNAL_SIGKILL"})
    assert wait_for(lambda: not sandbox.processes(), 5)


def test_broken_requests_of_the_command_line(client, sandbox):
    for spec in (b"", b"[]", b"{", b'{"cmd":"true","cmd":"true"}', {}, {"cmd": "true"}, {"cmd": []}, {"cmd": [5]}, {"cmd": [""]}, {"cmd": ["true"], "pty": "x"}, b" " * LARGE):
        with begin_exec(client, sandbox, spec) as s:
            got = answers(s)
            assert got and got[0].status == 400 and got[0].json["error"]["code"] == "invalid_argument", (spec if len(spec) < 100 else len(spec), got)
    assert client.native("POST", f"/v1/sandboxes/{sandbox.id}/exec", {"cmd": "true"}).status in (400, 426)


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
            with client.dial(request, 15) as s:
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


def test_slow_bodies(place, client):
    slow = place[0].slow_bodies
    for name, s in slow.sockets.items():
        got = answers(s, 2)
        assert len(got) == 1 and got[0].status == 408, (name, got)
    waited = time.monotonic() - slow.begin
    print(f"told after {waited:.0f} s")
    assert waited >= BODY_S - 1
    assert slow.sandbox.works()
