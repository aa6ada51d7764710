# SPDX-License-Identifier: Apache-2.0
"""The native API itself: what programs send that are not our command line, right and wrong."""

import hashlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest
from service import UnixConnection, read, wait_until

STARTED, STDOUT, STDERR, PTY, EXIT, ERROR = 1, 2, 3, 4, 5, 6
STDIN, STDIN_EOF, RESIZE, SIGNAL = 16, 17, 18, 19


def rss(pid):
    return int(read(f"/proc/{pid}/status").split("VmRSS:")[1].split()[0]) << 10


def tcp(service, method, target, headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request(method, target, body, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def files(sandbox, path, **query):
    return f"/cove/v1/sandboxes/{sandbox}/files?" + urllib.parse.urlencode({"path": path, **query})


def events(service, sandbox):
    return [json.loads(line) for line in service.request("GET", f"/cove/v1/sandboxes/{sandbox}/events")[2].splitlines()]


class Exec:
    """One exec stream, by hand."""

    def __init__(self, service, sandbox, spec):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(service.run / "cove.sock"))
        body = json.dumps(spec).encode()
        self.socket.sendall(b"POST /cove/v1/sandboxes/%s/exec HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: cove-exec\r\n"
                            b"Content-Length: %d\r\n\r\n" % (sandbox.encode(), len(body)) + body)
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.fill()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])

    def fill(self):
        data = self.socket.recv(65536)
        if not data:
            raise EOFError
        self.buffer += data

    def send(self, kind, payload=b""):
        self.socket.sendall(struct.pack("<BI", kind, len(payload)) + payload)

    def frame(self):
        while len(self.buffer) < 5 or len(self.buffer) < 5 + struct.unpack("<I", self.buffer[1:5])[0]:
            self.fill()
        kind, size = struct.unpack("<BI", self.buffer[:5])
        payload, self.buffer = self.buffer[5:5 + size], self.buffer[5 + size:]
        return kind, payload

    def rest(self):
        """All frames to the end: {kind: payloads joined}."""
        found = {}
        try:
            while True:
                kind, payload = self.frame()
                found[kind] = found.get(kind, b"") + payload
        except (EOFError, ConnectionResetError):
            return found

    def close(self):
        self.socket.close()


# ---- who may ----


def test_the_documented_client_runs_as_printed(service, sandbox):
    text = read(Path(__file__).parents[2] / "docs/API.md")
    program, said = re.search(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", text, re.M | re.S).groups()
    program = re.sub(r'run\("i\w+"', f'run("{sandbox}"', program.replace("7070", str(service.port)))
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "COVE_API_KEY": service.key}, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, said), done


def test_over_tcp_a_key_is_needed(service):
    assert tcp(service, "GET", "/cove/v1/health")[0] == 200
    status, answer = tcp(service, "GET", "/cove/v1/sandboxes")
    assert (status, answer["error"]["code"]) == (401, "unauthenticated")
    assert "cove key" in answer["error"]["hint"]
    for headers in ({"Authorization": f"Bearer {service.key}"}, {"authorization": f"bearer  {service.key}"}, {"X-API-KEY": service.key}):
        assert tcp(service, "GET", "/cove/v1/sandboxes", headers)[0] == 200
    for headers in ({"Authorization": f"Bearer {service.key}x"}, {"Authorization": f"Bearer {service.key[:-1]}"}, {"Authorization": "Bearer "},
                    {"Authorization": service.key}, {"X-API-KEY": ""}, {"X-API-KEY": "x", "Authorization": f"Bearer {service.key}"}):
        assert tcp(service, "GET", "/cove/v1/sandboxes", headers)[0] == 401, headers


def test_the_actor_is_on_record(service, sandbox):
    service.request("POST", f"/cove/v1/sandboxes/{sandbox}/timeout", {"timeout_ms": 60000})
    key = {"Authorization": f"Bearer {service.key}"}
    status, answer = tcp(service, "POST", f"/cove/v1/sandboxes/{sandbox}/timeout", key, json.dumps({"timeout_ms": 90000}))
    assert (status, answer["timeout_ms"]) == (200, 90000)
    def actors():
        return [e["actor"] for e in events(service, sandbox) if e["kind"] == "sandbox.timeout"]
    assert wait_until(lambda: len(actors()) == 2) # what was done is on record within milliseconds, not at once
    assert actors() == ["cli:uid=0", f"native:{hashlib.sha256(service.key.encode()).hexdigest()[:8]}"]


# ---- requests ----


@pytest.mark.parametrize("method, target, status, code", [
    ("GET", "/cove/v1/nothing", 404, "not_found"),
    ("GET", "/cove/v1/sandboxes/", 404, "not_found"),
    ("GET", "/cove/v1/sandboxes//events", 404, "not_found"),
    ("GET", "/cove/v1/sandboxes/i0/more/parts", 404, "not_found"),
    ("GET", "/cove/v1/sandboxes/i00000000000000000000", 404, "not_found"),
    ("GET", "/cove/v1/sandboxes/" + "x" * 4000, 404, "not_found"),
    ("GET", "/cove/v1/sandboxes/..%2f..%2fetc", 404, "not_found"),
    ("DELETE", "/cove/v1/sandboxes/i00000000000000000000", 404, "not_found"),
    ("GET", "/cove/v1/sandboxes/i00000000000000000000/events", 404, "not_found"),
    ("GET", "/cove/v1/sandboxes/i00000000000000000000/verify", 404, "not_found"),
    ("GET", "/cove/v1/sandboxes/nothing/verify", 404, "not_found"),
    ("GET", "/cove/v1/sandboxes?limit=x", 400, "invalid_argument"),
    ("GET", "/cove/v1/sandboxes?after=x", 400, "invalid_argument"),
    ("GET", "/cove/v1/sandboxes?after=1-2-3", 400, "invalid_argument"),
    ("PUT", "/cove/v1/sandboxes", 405, "unimplemented"),
])
def test_wrong_requests_are_told(service, method, target, status, code):
    got, headers, answer = service.request(method, target)
    assert (got, answer["error"]["code"]) == (status, code)
    assert answer["error"]["message"]
    assert (headers.get("allow") is not None) == (status == 405)


@pytest.mark.parametrize("body", [
    b"[", b"[]", b"1", b'{"template":1}', b'{"template":"base","template":"base"}', b'{"memory":5}', b'{"memory_bytes":-1}',
    b'{"memory_bytes":1.5}', b'{"env":{"A":1}}', b'{"env":[]}', b'{"env":{"A=B":"x"}}', b'{"metadata":{"a":null}}', b'{"template":"\xff"}',
    b'{"timeout_ms":99999999999999999}', b'{"template":"a\\u0000b"}', b"{" + b'"a":{' * 2000 + b"}" * 2001, b'{"x":"' + b"y" * (1 << 20) + b'"}',
])
def test_wrong_bodies_are_refused(service, body):
    status, _, answer = service.request("POST", "/cove/v1/sandboxes", body)
    assert status in (400, 413), answer
    assert service.sandboxes() == []


@pytest.mark.parametrize("route, query", [("events", "follow=maybe"), ("logs", "follow=2"), ("events", "follow=TRUE"), ("events", "follow=%00"),
                                          ("events", "from=x"), ("events", "from=1&follow=yes")])
def test_wrong_queries_are_refused(service, sandbox, route, query):
    status, _, answer = service.request("GET", f"/cove/v1/sandboxes/{sandbox}/{route}?{query}")
    assert (status, answer["error"]["code"]) == (400, "invalid_argument")
    assert query.rpartition("&")[2].split("=")[0] in answer["error"]["message"]


@pytest.mark.parametrize("query", ["", "follow=0", "follow=false"])
def test_what_is_not_followed_ends(service, sandbox, query):
    status, _, text = service.request("GET", f"/cove/v1/sandboxes/{sandbox}/events?{query}")
    assert status == 200 and b"sandbox.create" in text


def test_fields_that_nobody_knows_are_named(service, sandbox):
    base = f"/cove/v1/sandboxes/{sandbox}"
    upgrade = {"Connection": "upgrade", "Upgrade": "cove-exec"}
    for target, body, name, headers in (("/cove/v1/sandboxes", {"memory": 5}, "memory", None), (base + "/timeout", {"timeout_ms": 5000, "timeout": 1}, "timeout", None),
                                        (base + "/exec", {"cmd": ["true"], "envs": {}}, "envs", upgrade),
                                        (base + "/exec", {"cmd": ["true"], "pty": {"cols": 80}}, "cols", upgrade)):
        status, _, answer = service.request("POST", target, body, headers) if headers else service.request("POST", target, body)
        assert (status, answer["error"]["code"]) == (400, "invalid_argument"), target
        assert f'"{name}"' in answer["error"]["message"]
    kinds = [e["kind"] for e in events(service, sandbox)]
    assert "exec.start" not in kinds and "sandbox.timeout" not in kinds


def test_ps_inside_shows_the_agent_by_its_name(service, sandbox):
    shown = service.cove("exec", sandbox, "--", "sh", "-c", "cat /proc/1/comm; tr '\\0' ' ' </proc/1/cmdline")
    assert shown.stdout.split() == ["cove-agent", "cove-agent"]


def test_a_sandbox_is_described(service):
    status, _, made = service.request("POST", "/cove/v1/sandboxes", {"template": "base", "memory_bytes": 300 << 20, "cpu_milli": 700,
                                                                "timeout_ms": 60000, "env": {"SECRET": "s3cr3t"}, "metadata": {"a": "1", "b": "\u00fc\n"}})
    assert status == 201
    assert (made["state"], made["memory_bytes"], made["cpu_milli"], made["timeout_ms"]) == ("running", 300 << 20, 700, 60000)
    assert (made["metadata"], made["ended_at"], made["end_cause"]) == ({"a": "1", "b": "\u00fc\n"}, None, None)
    assert "s3cr3t" not in json.dumps(made)
    assert service.request("GET", f"/cove/v1/sandboxes/{made['id']}")[2] == made
    stream = Exec(service, made["id"], {"cmd": ["sh", "-c", "echo $SECRET"]})
    assert stream.rest()[STDOUT] == b"s3cr3t\n"
    stream.close()
    status, _, later = service.request("POST", f"/cove/v1/sandboxes/{made['id']}/timeout", {"timeout_ms": 1000, "extend_only": True})
    assert (status, later["end_at"]) == (200, made["end_at"])
    status, _, gone = service.request("DELETE", f"/cove/v1/sandboxes/{made['id']}")
    assert (status, gone["id"]) == (200, made["id"])
    def after():
        return service.request("GET", f"/cove/v1/sandboxes/{made['id']}")
    assert wait_until(lambda: after()[2]["state"] == "ended")
    assert (after()[0], after()[2]["end_cause"]) == (200, "killed")
    assert service.request("DELETE", f"/cove/v1/sandboxes/{made['id']}")[0] == 404
    assert service.request("POST", f"/cove/v1/sandboxes/{made['id']}/timeout", {"timeout_ms": 1})[0] == 404


def test_lists_come_in_pages(service):
    ids = [service.create() for _ in range(5)][::-1]
    seen, after = [], ""
    for _ in range(10):
        _, _, page = service.request("GET", f"/cove/v1/sandboxes?limit=2{after}")
        assert len(page["sandboxes"]) <= 2
        seen += [s["id"] for s in page["sandboxes"]]
        if not page["next"]:
            break
        after = f"&after={page['next']}"
    assert seen == ids


def test_info_and_metrics(service, sandbox):
    _, _, info = service.request("GET", "/cove/v1/info")
    assert info["sandboxes"] == 1
    assert info["limits"]["timeout_ms"] > 0
    assert info["pid"] == service.child("cove-api")
    assert wait_until(lambda: service.request("GET", f"/cove/v1/sandboxes/{sandbox}/metrics")[2]["samples"])
    sample = service.request("GET", f"/cove/v1/sandboxes/{sandbox}/metrics")[2]["samples"][0]
    assert sample["memory_used"] > 0 and sample["memory_total"] >= sample["memory_used"]


# ---- events ----


def sse(lines, count):
    """That many events of an open stream: [{field: value}]."""
    events, event = [], {}
    while len(events) < count:
        line = lines.readline().decode().rstrip("\n")
        if not line and event:
            events.append(event)
            event = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value
    return events


def test_events_stream_and_go_on_where_they_were(service, sandbox):
    connection = UnixConnection(str(service.run / "cove.sock"))
    connection.request("GET", f"/cove/v1/sandboxes/{sandbox}/events?follow=1", headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    assert answer.headers["content-type"] == "text/event-stream"
    first = sse(answer, 2)
    assert [e["id"] for e in first] == ["1", "2"]
    assert (first[0]["event"], json.loads(first[0]["data"])["seq"]) == ("sandbox.create", 1)
    service.cove("exec", sandbox, "--", "true")
    live = sse(answer, 3)
    assert [e["event"] for e in live] == ["exec.start", "exec.started", "exec.exit"]
    connection.close()

    connection = UnixConnection(str(service.run / "cove.sock"))
    connection.request("GET", f"/cove/v1/sandboxes/{sandbox}/events?follow=1&from=1", headers={"Accept": "text/event-stream", "Last-Event-ID": "3"})
    answer = connection.getresponse()
    assert [e["id"] for e in sse(answer, 2)] == ["4", "5"]
    service.request("DELETE", f"/cove/v1/sandboxes/{sandbox}")
    rest = answer.read().decode() # the stream ends with the sandbox
    assert "event: sandbox.ended" in rest
    connection.close()
    status, _, answer = service.request("GET", f"/cove/v1/sandboxes/{sandbox}/events?from=1000")
    assert (status, answer["error"]["code"]) == (400, "out_of_range")


def test_a_long_log_is_read_at_the_readers_pace(service, sandbox):
    for _ in range(80):
        stream = Exec(service, sandbox, {"cmd": ["sh", "-c", "head -c 14000 /dev/zero | tr '\\0' x"]})
        assert EXIT in stream.rest()
        stream.close()
    api = service.child("cove-api")
    before = rss(api)
    connection = UnixConnection(str(service.run / "cove.sock"))
    connection.request("GET", f"/cove/v1/sandboxes/{sandbox}/events")
    answer = connection.getresponse()
    time.sleep(0.5)
    assert rss(api) - before < 8 << 20
    seqs = [json.loads(line)["seq"] for line in answer.read().splitlines()]
    connection.close()
    assert seqs == list(range(1, len(seqs) + 1)) and len(seqs) > 300


def test_logs_are_lines_for_people(service, sandbox):
    service.cove("exec", sandbox, "--", "echo", "something")
    lines = [json.loads(line) for line in service.request("GET", f"/cove/v1/sandboxes/{sandbox}/logs")[2].splitlines()]
    assert all(set(line) == {"seq", "at", "level", "logger", "message"} for line in lines)
    assert any("something" in line["message"] for line in lines)
    assert lines == sorted(lines, key=lambda line: line["at"])


# ---- exec ----


def test_exec_speaks_frames(service, sandbox):
    stream = Exec(service, sandbox, {"cmd": ["sh", "-c", "cat; echo err >&2; exit 3"], "stdin": True})
    assert stream.status == 101
    kind, payload = stream.frame()
    assert (kind, json.loads(payload)["pid"] > 1) == (STARTED, True)
    stream.send(STDIN, b"one ")
    stream.send(STDIN)
    stream.send(STDIN, b"two")
    stream.send(STDIN_EOF)
    rest = stream.rest()
    stream.close()
    assert (rest[STDOUT], rest[STDERR], json.loads(rest[EXIT])) == (b"one two", b"err\n", {"code": 3})


def test_exec_with_a_terminal(service, sandbox):
    stream = Exec(service, sandbox, {"cmd": ["sh", "-c", "stty -echo; stty size; read line; stty size; echo got $line"],
                                     "pty": {"columns": 90, "rows": 33}})
    seen = b""
    while b"33 90\r\n" not in seen:
        seen += stream.frame()[1]
    stream.send(RESIZE, struct.pack("<HH", 91, 34))
    stream.send(STDIN, b"text\r")
    rest = stream.rest()
    stream.close()
    assert rest[PTY] == b"34 91\r\ngot text\r\n"
    assert json.loads(rest[EXIT]) == {"code": 0}


def test_exec_passes_signals(service, sandbox):
    stream = Exec(service, sandbox, {"cmd": ["sleep", "100"]})
    stream.frame()
    stream.send(SIGNAL, bytes([signal.SIGUSR1]))
    assert json.loads(stream.rest()[EXIT]) == {"signal": int(signal.SIGUSR1)}
    stream.close()


def test_exec_kills_at_its_timeout(service, sandbox):
    stream = Exec(service, sandbox, {"cmd": ["sleep", "100"], "timeout_ms": 300})
    assert json.loads(stream.rest()[ERROR])["code"] == "deadline_exceeded"
    stream.close()


@pytest.mark.parametrize("frame", [
    b"\x00\x00\x00\x00\x00",
    b"\x02\x01\x00\x00\x00x",               # a kind of the service's
    b"\x10\xff\xff\xff\xff",                # too long
    b"\x11\x01\x00\x00\x00x",
    b"\x12\x04\x00\x00\x00\x00\x00\x01\x00", # no columns
    b"\x12\x03\x00\x00\x00abc",
    b"\x13\x01\x00\x00\x00\x00",            # no signal
    b"\x13\x01\x00\x00\x00\x41",
    b"\x13\x00\x00\x00\x00",
])
def test_exec_cuts_who_breaks_the_protocol(service, sandbox, frame):
    stream = Exec(service, sandbox, {"cmd": ["sleep", "100"], "stdin": True})
    assert stream.frame()[0] == STARTED
    stream.socket.sendall(frame)
    assert stream.rest() == {}
    stream.close()
    assert service.request("GET", "/cove/v1/health")[0] == 200
    assert len(service.request("GET", f"/cove/v1/sandboxes/{sandbox}/processes")[2]["processes"]) == 1


@pytest.mark.parametrize("spec", [{}, {"cmd": []}, {"cmd": "ls"}, {"cmd": [""]}, {"cmd": ["ls"], "env": 1}, {"cmd": ["ls"], "pty": {"rows": 0}},
                                  {"cmd": ["ls"], "timeout_ms": -1}])
def test_exec_refuses_wrong_specs(service, sandbox, spec):
    stream = Exec(service, sandbox, spec)
    assert stream.status == 400
    stream.close()


def test_exec_needs_the_upgrade(service, sandbox):
    status, _, answer = service.request("POST", f"/cove/v1/sandboxes/{sandbox}/exec", {"cmd": ["true"]})
    assert (status, "Upgrade" in answer["error"]["message"]) == (400, True)


def test_a_client_that_leaves_does_not_touch_the_process(service, sandbox):
    stream = Exec(service, sandbox, {"cmd": ["sh", "-c", "sleep 0.5; touch done; sleep 100"], "tag": "mine"})
    stream.frame()
    stream.close()
    assert wait_until(lambda: service.request("HEAD", files(sandbox, "done"))[0] == 200)
    _, _, answer = service.request("GET", f"/cove/v1/sandboxes/{sandbox}/processes")
    assert [(p["cmd"][0], p["tag"], p["user"]) for p in answer["processes"]] == [("sh", "mine", "user")]


def test_a_process_that_reads_nothing_stops_its_writer(service, sandbox):
    api = service.child("cove-api")
    stream = Exec(service, sandbox, {"cmd": ["sleep", "100"], "stdin": True})
    stream.frame()
    before = rss(api)
    stream.socket.settimeout(1)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 64 << 20:
            stream.send(STDIN, b"x" * 65536)
            sent += 65536
    assert sent < 16 << 20
    assert rss(api) - before < 8 << 20
    stream.close()


def test_many_streams_at_once(service, sandbox):
    streams = [Exec(service, sandbox, {"cmd": ["sh", "-c", f"echo {i}; cat"], "stdin": True}) for i in range(40)]
    for i, stream in enumerate(streams):
        stream.send(STDIN, str(i).encode())
        stream.send(STDIN_EOF)
    for i, stream in enumerate(streams):
        rest = stream.rest()
        assert (rest[STDOUT], json.loads(rest[EXIT])) == (f"{i}\n{i}".encode(), {"code": 0})
        stream.close()


# ---- files ----


def test_files_go_in_and_out(service, sandbox):
    data = os.urandom(5 << 20)
    status, _, entry = service.request("PUT", files(sandbox, "dir/\u00fc x"), data)
    assert (status, entry["path"], entry["size"], entry["owner"], entry["mode"]) == (200, "/home/user/dir/\u00fc x", len(data), "user", "0644")
    status, headers, content = service.request("GET", files(sandbox, "dir/\u00fc x"))
    assert (status, content == data) == (200, True)
    assert (headers["x-cove-type"], headers["x-cove-size"], headers["x-cove-mode"]) == ("file", str(len(data)), "0644")
    assert service.request("GET", files(sandbox, "~/dir/\u00fc x", offset=5, length=10))[2] == data[5:15]
    assert service.request("HEAD", files(sandbox, "dir"))[1]["x-cove-type"] == "directory"
    assert service.request("PUT", files(sandbox, "/root/f", user="root"), b"")[2]["owner"] == "root"
    assert service.request("GET", files(sandbox, "/root/f", user="root"))[2] == b""
    lines = [json.loads(line) for line in service.request("GET", f"/cove/v1/sandboxes/{sandbox}/entries?path=.&depth=2")[2].splitlines()]
    assert {"dir", "\u00fc x", ".bashrc"} <= {line["name"] for line in lines}
    assert service.request("DELETE", files(sandbox, "dir"))[0] == 204
    assert service.request("HEAD", files(sandbox, "dir"))[0] == 404


@pytest.mark.parametrize("method, query, status", [
    ("GET", "", 400), ("GET", "path=", 400), ("GET", "path=%00", 400), ("GET", "path=a%00b", 400), ("GET", "path=%zz", 400),
    ("GET", "path=" + "a" * 4096, 400), ("GET", "path=" + "a/" * 3000, 400), ("GET", "path=none", 404), ("GET", "path=/etc", 400),
    ("GET", "path=/dev/null", 400), ("GET", "path=/tmp/fifo", 400), ("GET", "path=a&user=nobody-here", 400),
    ("GET", "path=a&user=" + "u" * 300, 400), ("GET", "path=a&offset=x", 400), ("PUT", "path=/tmp", 400),
    ("DELETE", "path=/", 400),
])
def test_wrong_paths_are_told(service, sandbox, method, query, status):
    service.cove("exec", sandbox, "--", "mkfifo", "/tmp/fifo")
    got, _, answer = service.request(method, f"/cove/v1/sandboxes/{sandbox}/files?{query}", b"x" if method == "PUT" else None)
    assert got == status, answer
    assert answer["error"]["message"]


@pytest.mark.parametrize("method, route", [("GET", "files"), ("PUT", "files"), ("DELETE", "files"), ("GET", "entries")])
def test_a_user_that_is_not_there_is_no_matter_of_keys(service, sandbox, method, route):
    status, _, answer = service.request(method, f"/cove/v1/sandboxes/{sandbox}/{route}?path=a&user=no%22such", b"x" if method == "PUT" else None)
    assert (status, answer) == (400, {"error": {"code": "invalid_argument", "message": "there is no user 'no\"such' in the sandbox"}})
    assert service.request("HEAD", files(sandbox, "a", user="nosuch"))[0] == 400


def test_a_link_does_not_lead_out_of_the_sandbox(service, sandbox, tmp_path):
    (tmp_path / "secret").write_text("of the host")
    service.cove("exec", sandbox, "--", "sh", "-c", f"ln -s {tmp_path}/secret l; ln -s ../../../../../../{tmp_path}/secret m")
    for path in ("l", "m", f"/../../..{tmp_path}/secret", f"/proc/1/root{tmp_path}/secret"):
        assert service.request("GET", files(sandbox, path))[0] in (400, 403, 404), path


def test_an_upload_that_is_cut_is_not_taken_for_whole(service, sandbox):
    connection = UnixConnection(str(service.run / "cove.sock"))
    connection.putrequest("PUT", files(sandbox, "part"))
    connection.putheader("content-length", "1000000")
    connection.endheaders()
    connection.send(b"x" * 1000)
    wait_until(lambda: service.request("HEAD", files(sandbox, "part"))[0] == 200, 5)
    connection.close()
    def outcome():
        seen = events(service, sandbox)
        seq = next((e["seq"] for e in seen if e["kind"] == "file.write"), None)
        return seq and [e["kind"] for e in seen if e["cause"] == seq]
    assert wait_until(outcome) == ["file.failed"]


def test_big_files_stream(service, sandbox):
    """256 MiB each way move the memory of our processes by a few MiB only, with a slow client too."""
    api, size = service.child("cove-api"), 256 << 20
    before, most, done = rss(api), [0], threading.Event()

    def watch():
        while not done.wait(0.02):
            most[0] = max(most[0], rss(api))
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        connection = UnixConnection(str(service.run / "cove.sock"), timeout=60)
        connection.putrequest("PUT", files(sandbox, "/tmp/big"))
        connection.putheader("content-length", str(size))
        connection.endheaders()
        for _ in range(size >> 20):
            connection.send(bytes(1 << 20))
        assert json.loads(connection.getresponse().read())["size"] == size
        connection.request("GET", files(sandbox, "/tmp/big"))
        answer = connection.getresponse()
        time.sleep(1)
        assert sum(len(piece) for piece in iter(lambda: answer.read(1 << 20), b"")) == size
        connection.close()
    finally:
        done.set()
        watcher.join()
    assert most[0] - before < 16 << 20


# ---- survival ----


def test_the_worker_may_be_killed(service, sandbox):
    """What runs goes on, its output is not lost, and the next request finds the service again."""
    stream = Exec(service, sandbox, {"cmd": ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done; touch finished; sleep 100"]})
    stream.frame()
    assert wait_until(lambda: "$ sh -c" in service.cove("logs", sandbox).stdout) # what happened is on record within milliseconds, not at once
    pid = service.child("cove-api")
    os.kill(pid, signal.SIGKILL)
    assert stream.rest().keys() <= {STDOUT}
    stream.close()
    start = time.monotonic()
    assert wait_until(service.is_healthy)
    assert wait_until(lambda: service.child("cove-api") not in (None, pid))
    assert [s["id"] for s in service.sandboxes()] == [sandbox], f"after {time.monotonic() - start:.1f} s"
    assert service.cove("exec", sandbox, "--", "echo", "again").stdout == "again\n"
    assert wait_until(lambda: service.request("HEAD", files(sandbox, "finished"))[0] == 200)
    assert "$ sh -c" in service.cove("logs", sandbox).stdout
    assert service.cove("log", "--verify", sandbox).returncode == 0
