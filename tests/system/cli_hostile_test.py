# SPDX-License-Identifier: Apache-2.0
"""The command line against a service that means harm, or is none: nothing it says moves the cursor, ends the program, or is taken for an answer."""

import functools
import json
import os
import re
import socketserver
import subprocess
import threading
from http.server import BaseHTTPRequestHandler

import pytest
from service import BUILD
from terminal import Terminal

ID = "i" + "0" * 20
EVIL = "T\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\x00\r\nx"
MEMBERS = ("id name ref state status template template_alias started_at end_at created_at updated_at at time kind grade actor message level reason step start_cmd "
           "ready_cmd user workdir tag build default allow deny host path address verdict suggestion layer sandbox version data detail end_cause cmd method url proto "
           "secret why change type limit_bytes memory_bytes cpu_milli mounted bytes seq cause from to exit_code total_bytes free_bytes layers_n n_rules port").split()
LISTS = "sandboxes templates volumes snapshots forks layers rules inject addresses lines tags output args injected ports methods headers placeholders".split()
SHAPES = {"text": EVIL, "numbers": 2**63 - 1, "negative": -1, "nothing": None, "lists": [[]], "objects": {"id": EVIL, "message": EVIL}, "truth": True}
KINDS = ("exec.start", "exec.output", "exec.exit", "net.open", "net.close", "net.flows", "net.request", "net.denied", "net.misuse", "net.policy", "net.down",
         "net.unresolved", "sandbox.ended", "limit.oom", "volume.create")
COMMANDS = [["ls"], ["ls", "-q"], ["log", ID], ["logs", ID], ["net", ID], ["log", "--verify", ID], ["policy", "show", ID], ["policy", "check", ID, "https://a.test/"],
            ["policy", "set", ID, "--net", "deny"], ["pool"], ["gc"], ["template", "ls"], ["template", "ls", "-q"], ["template", "show", "x"], ["volume", "ls"],
            ["volume", "ls", "-q"], ["volume", "create", "x"], ["snapshot", "ls"], ["snapshot", "ls", "-q"], ["snapshot", ID], ["fork", ID], ["diff", ID], ["version"],
            ["pause", ID], ["rm", "--all"], ["warm", "x", "1"], ["exec", ID, "true"], ["run", "true"], ["cp", f"{ID}:x", "out"], ["exec", "i", "true"],
            ["docker", "ps", "-a"], ["docker", "ps", "-a", "--format", "{{.Command}} {{json .}}"], ["docker", "images"], ["docker", "inspect", "x"], ["docker", "rm", "-f", "x"],
            ["docker", "run", "x", "true"]]


def content(value, whole=True):
    """An answer that has every member that any command looks for, all of them this; not whole: without the lists of such, which no event has."""
    one = {name: value for name in MEMBERS}
    deep = {**one, **{name: [one, value] for name in LISTS}, "data": {**one, "output": [{"stdout": value, "stderr": value, "pty_base64": value}], "args": [value]},
            "metadata": dict.fromkeys(("k", "docker.image", "docker.name", "docker.command"), value), "sandbox": one, "error_": one}
    return {**deep, **{name: [deep] for name in LISTS}, "build": deep, "probes": [deep]} if whole else deep


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        self.rfile.read(length)
        status, body = self.server.answer_to(self.path)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = answer

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


class Liar(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """As much of Service as Terminal asks for."""
    daemon_threads = True

    def __init__(self, directory):
        self.directory = directory
        self.answer_to = lambda path: (200, b"{}")
        super().__init__(str(directory / "cove.sock"), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def options(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("COVE_", "E2B_"))}
        return {"cwd": self.directory, "env": {**env, "COVE_RUN": str(self.directory), "COVE_STATE": str(self.directory), "COVE_CONFIG": "/dev/null", **more}}

    def popen(self, *arguments, env, **options):
        return subprocess.Popen([BUILD / "cove", *arguments], **self.options(**env), **options)

    def cove(self, *arguments):
        return subprocess.run([BUILD / "cove", *arguments], **self.options(), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)

    def handle_error(self, *_):
        pass


@pytest.fixture(scope="module")
def liar(tmp_path_factory):
    with Liar(tmp_path_factory.mktemp("liar")) as server:
        yield server
        server.shutdown()


@functools.cache
def spoken(shape, whole=True):
    """content() as JSON, megabytes that are asked for hundreds of times; open at its end, because what is said again there counts."""
    return json.dumps(content(SHAPES[shape], whole)).encode()[:-1]


def say(shape, status=200):
    value, one, line = SHAPES[shape], spoken(shape), spoken(shape, whole=False)

    def and_also(said, **more):
        return said + b", " + json.dumps(more).encode()[1:]

    def answer_to(path):
        if path == f"/cove/v1/sandboxes/{ID}" and status == 200: # it lives, so that more is asked
            return 200, json.dumps({"id": ID, "state": "running"}).encode()
        if "/events" in path:
            return status, b"\n".join([line + b"}", *(and_also(line, kind=kind) for kind in KINDS), b'{"gap": ' + line + b"}}", b""])
        if "/diff" in path:
            return status, (and_also(line, change="added", type="file") + b"\n") * 2
        if status >= 400:
            return status, json.dumps({"error": {"code": value, "message": value, "hint": value}}).encode()
        return status, and_also(one, id=ID) if path == "/cove/v1/sandboxes" and shape == "text" else one + b"}"
    return answer_to


def quiet(seen):
    """Without what progress writes."""
    return re.sub(rb"\r\x1b\[K", b"", seen)


@pytest.mark.parametrize("shape, status", [*((shape, 200) for shape in SHAPES), ("text", 400), ("lists", 400), ("objects", 500)])
def test_nothing_moves_the_cursor(liar, shape, status):
    liar.answer_to = say(shape, status)
    for command in COMMANDS:
        seen, code = Terminal(liar, *command).rest()
        assert 0 <= code < 128 and b"Sanitizer" not in seen, (command, code, seen)
        for bad in (b"\x1b", b"\x07", "\x9b".encode(), "\u202e".encode(), b"\0"):
            assert bad not in quiet(seen), (command, seen)


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b"\xff\xfe", b'"x"', b"[" * 100000, b'{"a":' * 5000, b"1e999", b"{}\n{}\n", b"x" * (1 << 20)],
                         ids=lambda b: repr(b[:6]) + str(len(b)))
def test_what_is_no_answer_is_an_error_or_nothing(liar, body):
    for status in (200, 404):
        liar.answer_to = lambda path: (status, body)
        for command in COMMANDS:
            done = liar.cove(*command, "--json") if command[0] not in ("exec", "run", "docker") else liar.cove(*command)
            assert 0 <= done.returncode < 128, (command, done)
            for line in done.stdout.splitlines() + (done.stderr.splitlines() if command[0] not in ("exec", "run", "docker") else []):
                json.loads(line)


def test_a_list_without_an_end_is_refused(liar):
    page = json.dumps({"sandboxes": [{"id": ID}] * 1000, "next": "1-" + ID}).encode()
    asked = []
    liar.answer_to = lambda path: asked.append(path) or (200, page if len(asked) < 5 else json.dumps({"sandboxes": [], "next": "2-" + ID}).encode())
    done = liar.cove("ls", "-q")
    assert done.returncode == 1 and b"without end" in done.stderr and done.stdout == b"", done
    liar.answer_to = lambda path: (200, json.dumps({"sandboxes": [{"id": ID}], "next": "1 HTTP/1.1\r\nx: y\r\n\r\n"}).encode())
    done = liar.cove("ls", "-q")
    assert done.returncode == 1 and b"without end" in done.stderr
