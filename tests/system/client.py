# SPDX-License-Identifier: Apache-2.0
"""The E2B API with nothing but the standard library: sandboxes, processes as streams, files, and bytes as one likes on a socket."""

import base64
import http.client
import json
import socket
import struct
import time
from urllib.parse import quote

JSON, STREAM = "application/json", "application/connect+json"
ENVD_PORT = 49983


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


def envelope(message, flags=0, length=None):
    """One message of a Connect stream; its length can be a lie."""
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data) if length is None else length) + data


def answers(sock, n=1, head=False):
    """Up to n answers that come in on a socket; interim ones count."""
    with sock.makefile("rb") as f:
        found = []
        try:
            while len(found) < n and (answer := read_answer(f, head)):
                found.append(answer)
        except ConnectionError:
            pass
        return found


def whole(response):
    """Its body. One that ends in the middle, as when who sends it is killed, is a connection that ended."""
    try:
        return response.read()
    except http.client.IncompleteRead as e:
        raise ConnectionResetError(repr(e)) from None


def read_answer(f, head):
    line = f.readline(65536)
    if not line:
        return None
    version, status = line.split()[:2]
    assert version == b"HTTP/1.1", line
    headers = http.client.parse_headers(f)
    status = int(status)
    if head or status < 200 or status in (204, 304):
        return Answer(status, headers, b"")
    if headers.get("Transfer-Encoding") == "chunked":
        body = b""
        while size := int(f.readline(64), 16):
            body += f.read(size)
            f.readline(8)
        f.readline(8)
        return Answer(status, headers, body)
    length = headers.get("Content-Length")
    return Answer(status, headers, f.read() if length is None else f.read(int(length)))


class Cut(Exception):
    """The stream ended without its last envelope."""


class Failed(Exception):
    """The stream's last envelope says why."""

    def __init__(self, error):
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code, self.message = error.get("code"), error.get("message", "")


class Ended(Failed, Cut):
    """Because the sandbox did: clients are told in the stream, where they are still there."""


class Stream:
    """The events of one process (or watch) on a connection of their own."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response
        self.pid = self.exit = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        # The response shares the socket; only both let go of it.
        self.response.close()
        self.connection.close()

    def timeout(self, seconds):
        self.connection.sock.settimeout(seconds)

    def exactly(self, n):
        try:
            data = self.response.read(n)
        except (http.client.IncompleteRead, ConnectionError) as e:
            raise Cut(repr(e)) from None
        if len(data) < n:
            raise Cut(f"{len(data)} of {n} bytes")
        return data

    def next(self):
        """The next event; None after the last one."""
        flags, length = struct.unpack(">BI", self.exactly(5))
        message = json.loads(self.exactly(length))
        if flags & 2:
            if "error" in message:
                raise (Ended if message["error"].get("code") == "unavailable" else Failed)(message["error"])
            return None
        return message.get("event", message)

    def output(self):
        """Yields (channel, bytes) until the process ends; self.exit is its end event then."""
        while True:
            event = self.next()
            if event is None:
                return
            if "start" in event:
                self.pid = event["start"]["pid"]
            elif "end" in event:
                self.exit = event["end"]
            elif "data" in event:
                for channel, text in event["data"].items():
                    yield channel, base64.b64decode(text)

    def started(self):
        while self.pid is None:
            event = self.next()
            assert event is not None, "the stream ended without a start"
            if "start" in event:
                self.pid = event["start"]["pid"]
        return self

    def rest(self):
        """(exit code or -1, stdout, stderr) once it has ended."""
        out = {"stdout": b"", "stderr": b"", "pty": b""}
        for channel, data in self.output():
            out[channel] += data
        return self.exit.get("exitCode", 0), out["stdout"] + out["pty"], out["stderr"]


class Client:
    """One service, as somebody with its key. Every call has a connection of its own: it has to survive the service's death."""

    def __init__(self, port, key, timeout=60):
        self.port, self.key, self.timeout = port, key, timeout

    # ---- plain HTTP ----

    def connection(self, timeout=None):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout or self.timeout)

    def request(self, method, target, body=None, headers=None, timeout=None):
        connection = self.connection(timeout)
        try:
            headers = dict(headers or {})
            if body is not None and not isinstance(body, (bytes, bytearray)):
                body = json.dumps(body).encode()
                headers.setdefault("Content-Type", JSON)
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, whole(answer))
        finally:
            connection.close()

    def control(self, method, target, body=None, headers=None, timeout=None):
        return self.request(method, target, body, {"X-API-KEY": self.key, **(headers or {})}, timeout)

    def native(self, method, target, body=None):
        return self.control(method, target, body)

    def dial(self, data=b"", timeout=60):
        """A connection on which these bytes were sent, whatever became of them."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        try:
            s.sendall(data)
        except (ConnectionError, TimeoutError):
            pass # it was refused before all of it was sent; the answer is there all the same
        return s

    def raw(self, data, n=1, timeout=60, head=False):
        """Sends bytes; the first n answers, fewer when the connection ends before. head: they have no bodies."""
        with self.dial(data, timeout) as s:
            return answers(s, n, head)

    # ---- control plane ----

    def create(self, **fields):
        answer = self.control("POST", "/v2/sandboxes", {"templateID": "base", **fields})
        assert answer.status == 201, answer
        return Sandbox(self, answer.json["sandboxID"], answer.json["envdAccessToken"])

    def get(self, sandbox_id):
        return self.control("GET", f"/sandboxes/{sandbox_id}")

    def list(self):
        """{id: what the list says}, all pages."""
        found, token = {}, ""
        while True:
            answer = self.control("GET", f"/v2/sandboxes?limit=100{token}")
            assert answer.status == 200, answer
            found.update((s["sandboxID"], s) for s in answer.json)
            if "X-Next-Token" not in answer.headers:
                return found
            token = "&nextToken=" + quote(answer.headers["X-Next-Token"])

    def events(self, sandbox_id):
        """The event log, also of a sandbox that has ended, with what has happened until now."""
        time.sleep(0.005) # as Service.on_record()
        self.request("GET", "/health")
        answer = self.native("GET", f"/cove/v1/sandboxes/{sandbox_id}/events")
        assert answer.status == 200, answer
        return [json.loads(line) for line in answer.body.splitlines() if line.strip()]

    def kinds(self, sandbox_id):
        return [e["kind"] for e in self.events(sandbox_id)]

    def verify(self, sandbox_id):
        return self.native("GET", f"/cove/v1/sandboxes/{sandbox_id}/verify")

    def post(self, path, body=None):
        answer = self.native("POST", f"/cove/v1/{path}", body if body is not None else {})
        return answer.status, answer.json

    def tier(self, sandbox_id):
        return self.native("GET", f"/cove/v1/sandboxes/{sandbox_id}").json["tier"]

    def remove_all(self):
        for sandbox_id in self.list():
            self.control("DELETE", f"/sandboxes/{sandbox_id}")


class Sandbox:
    def __init__(self, client, sandbox_id, token):
        self.client, self.id, self.token = client, sandbox_id, token

    def headers(self, more=None):
        return {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(ENVD_PORT), "X-Access-Token": self.token, **(more or {})}

    def request(self, method, target, body=None, headers=None, timeout=None):
        return self.client.request(method, target, body, self.headers(headers), timeout)

    def head(self, method, target, headers=None):
        """The bytes of a request's head, for whoever writes the rest by hand."""
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in self.headers(headers).items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    # ---- its life ----

    def info(self):
        answer = self.client.get(self.id)
        assert answer.status == 200, answer
        return answer.json

    def kill(self):
        return self.client.control("DELETE", f"/sandboxes/{self.id}")

    def set_timeout(self, seconds):
        return self.client.control("POST", f"/sandboxes/{self.id}/timeout", {"timeout": seconds})

    def health(self):
        return self.request("GET", "/health").status

    def works(self):
        return self.sh("true")[0] == 0

    # ---- processes ----

    def unary(self, method, body, headers=None, timeout=None):
        return self.request("POST", f"/{method}", body, {"Content-Type": JSON, "Connect-Protocol-Version": "1", **(headers or {})}, timeout)

    def stream(self, method, message, headers=None, timeout=60):
        """A server stream; `message` may be bytes that only look like a request."""
        connection = self.client.connection(timeout)
        body = message if isinstance(message, bytes) else envelope(message)
        try:
            connection.request("POST", f"/{method}", body, self.headers({"Content-Type": STREAM, "Connect-Protocol-Version": "1", **(headers or {})}))
            response = connection.getresponse()
            if response.status != 200:
                raise AssertionError(Answer(response.status, response.headers, response.read()))
            return Stream(connection, response)
        except BaseException:
            connection.close()
            raise

    def start(self, cmd, *args, tag=None, stdin=False, envs=None, user=None, timeout=60, **more):
        message = {"process": {"cmd": cmd, "args": list(args), "envs": envs or {}}, "stdin": stdin, **more}
        if tag:
            message["tag"] = tag
        headers = {"Authorization": "Basic " + base64.b64encode(f"{user}:".encode()).decode()} if user else {}
        return self.stream("process.Process/Start", message, headers, timeout)

    def connect(self, pid=None, tag=None, timeout=60):
        return self.stream("process.Process/Connect", {"process": {"tag": tag} if tag else {"pid": pid}}, timeout=timeout)

    def sh(self, script, timeout=60, **more):
        """(exit code, stdout, stderr)"""
        with self.start("/bin/sh", "-c", script, timeout=timeout, **more) as stream:
            return stream.rest()

    def processes(self):
        answer = self.unary("process.Process/List", {})
        assert answer.status == 200, answer
        return answer.json.get("processes", [])

    # ---- files ----

    def download(self, path, headers=None, timeout=None):
        return self.request("GET", f"/files?path={quote(path)}", headers=headers, timeout=timeout)

    def upload(self, path, data, headers=None, timeout=None):
        return self.request("POST", f"/files?path={quote(path)}", data, {"Content-Type": "application/octet-stream", **(headers or {})}, timeout)


def wait_for(condition, seconds=60, every=0.02):
    """The condition's last value, true or not."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(every)
