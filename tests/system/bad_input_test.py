# SPDX-License-Identifier: Apache-2.0
"""Broken messages: each gets its documented answer in bounded time and memory, and another sandbox does not notice."""

import base64
import contextlib
import gzip
import json
import random
import socket
import struct

import pytest
from client import JSON, STREAM, Failed, answers, envelope, wait_for
from hostile import MULTIPART, STREAMS, UNARY, WHOLE, client, file_part, http_head, is_error, multipart, place, sandbox  # noqa: F401  (fixtures)

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
    for target in ("/cove/v1/sandboxes", f"/cove/v1/sandboxes/{sandbox.id}/timeout"):
        for name, body in BROKEN_JSON.items():
            answer = client.native("POST", target, body)
            assert (answer.status, answer.json["error"]["code"]) == (413 if len(body) > 1 << 20 else 400, "invalid_argument"), (name, answer)


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
    {"process": {"cmd": "true", "cwd": 7}}, {"process": {"cmd": "true", "cwd": "/no/such/place"}}, {"process": {"cmd": "x" * 5000}}, {"process": {"cmd": "true"}, "tag": 5},
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


@pytest.mark.parametrize("program, code", [("/no/such/program", 127), ("no-such-program", 127), ("/etc/passwd", 126), ("/", 126)])
def test_programs_that_can_not_be_run(client, sandbox, program, code):
    """As where a shell starts everything: a process that ends at once and says why."""
    with sandbox.start(program, "an argument") as stream:
        exit_code, out, err = stream.rest()
    assert exit_code == code and not out and program.encode() in err, err


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
    assert sandbox.unary("process.Process/List", body, {"Content-Encoding": "gzip"}).status == 200
    assert sandbox.unary(UNARY[0], body, {"Content-Encoding": "br"}).json["code"] == "unimplemented"
    bomb = gzip.compress(b" " * (64 << 20))
    for method in UNARY:
        answer = sandbox.unary(method, bomb, {"Content-Encoding": "gzip"})
        assert (answer.status, answer.json["code"]) == (429, "resource_exhausted"), (method, answer)
    for data, code in ((bomb, "resource_exhausted"), (b"\x1f\x8b nothing", "invalid_argument")):
        with sandbox.stream(STREAMS[0], envelope(data, flags=1), {"Connect-Content-Encoding": "gzip"}) as stream, pytest.raises(Failed) as e:
            stream.next()
        assert e.value.code == code


def test_wrong_call_headers(client, sandbox):
    for timeout in ("-1", "x", "1e3", "99999999999", " ", "1.5"):
        assert sandbox.unary(UNARY[0], {}, {"Connect-Timeout-Ms": timeout}).json["code"] == "invalid_argument", timeout
    assert sandbox.unary(UNARY[0], {}, {"Connect-Timeout-Ms": "0"}).json["code"] == "deadline_exceeded"
    assert sandbox.unary(UNARY[0], {}, {"Connect-Protocol-Version": "2"}).json["code"] == "invalid_argument"
    for interval in ("-1", "x", "0", "99999999999999999999"):
        with sandbox.stream(STREAMS[0], TRUE, {"Keepalive-Ping-Interval": interval}) as stream:
            assert stream.rest()[0] == 0
    for user in ("no-such-user", "../root", "x" * 3000, "x" * 20_000, "ü", "root\n", "user ", "User", "-1", "4294967295"):
        basic = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        with sandbox.stream(STREAMS[0], TRUE, {"Authorization": basic}) as stream, pytest.raises(Failed) as e:
            stream.rest()
        assert e.value.code in ("unauthenticated", "invalid_argument"), user
    assert sandbox.unary(UNARY[0], {}, {"Authorization": "Basic " + base64.b64encode(b"a\0b:").decode()}).status == 401


# ---- multipart ----


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
    return client.dial(http_head("POST", f"/cove/v1/sandboxes/{sandbox.id}/exec", f"X-API-KEY: {client.key}", "Connection: upgrade", "Upgrade: cove-exec",
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
    assert wait_for(lambda: not sandbox.processes())


def test_broken_requests_of_the_command_line(client, sandbox):
    for spec in (b"", b"[]", b"{", b'{"cmd":"true","cmd":"true"}', {}, {"cmd": "true"}, {"cmd": []}, {"cmd": [5]}, {"cmd": [""]}, {"cmd": ["true"], "pty": "x"}, b" " * LARGE):
        with begin_exec(client, sandbox, spec) as s:
            got = answers(s)
            wanted = 413 if len(spec) > 1 << 20 else 400
            assert got and got[0].status == wanted and got[0].json["error"]["code"] == "invalid_argument", (spec if len(spec) < 100 else len(spec), got)
    assert client.native("POST", f"/cove/v1/sandboxes/{sandbox.id}/exec", {"cmd": "true"}).status in (400, 426)
