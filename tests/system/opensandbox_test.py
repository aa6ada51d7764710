# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox's API from outside, on what its SDKs don't reach: ports of programs, terminals, images, hooks."""

import base64
import copy
import datetime
import http.client
import json
import os
import socket
import struct
import threading
import time

import pytest
from feed_test import kill_worker
from leaks import own_service, rss_kib
from service import wait_until
from websocket_test import Socket

# Says what it was asked, with the headers that "X-Back-" stands before; after an upgrade, what it is told.
ECHO = r"""
import socketserver, sys
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.rfile.readline()
        if b"upgrade: echo" in head.lower():
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
            while piece := self.rfile.readline():
                self.wfile.write(b"echo " + piece)
            return
        n = next((int(l.split(b":")[1]) for l in head.splitlines() if l.lower().startswith(b"content-length")), 0)
        body = head + b"|" + str(len(self.rfile.read(n))).encode()
        back = b"".join(l[7:] + b"\r\n" for l in head.splitlines() if l.lower().startswith(b"x-back-"))
        self.wfile.write(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n" % (back, len(body)) + body)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def service():
    with own_service("opensandbox") as service:
        yield service


class Box:
    def __init__(self, service, key=None, **more):
        self.service = service
        self.key = {"OPEN-SANDBOX-API-KEY": key or service.key}
        status, made = self.ask("POST", "/v1/sandboxes", {"image": {"uri": "base"}, "timeout": 300, **more})
        assert status == 202, made
        self.id = made["id"]

    def ask(self, method, target, body=None, headers=None):
        """(status, JSON or bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        connection.request(method, target, body if body is None or isinstance(body, bytes) else json.dumps(body), self.key if headers is None else headers)
        answer = connection.getresponse()
        self.headers, data = answer.headers, answer.read()
        return answer.status, json.loads(data) if "json" in answer.headers.get("Content-Type", "") else data

    def endpoint(self, port, **query):
        """(path, headers)."""
        asked = "&".join(f"{k}={v}" for k, v in query.items())
        status, answer = self.ask("GET", f"/v1/sandboxes/{self.id}/endpoints/{port}?{asked}")
        assert status == 200, answer
        host, _, path = answer["endpoint"].partition("/")
        assert host == f"127.0.0.1:{self.service.port}" and path.endswith(f"/proxy/{port}"), answer
        return "/" + path, answer.get("headers", {})

    def execd(self, method, target, body=None):
        path, headers = self.endpoint(44772)
        return self.ask(method, path + target, body, headers)

    def events(self, target, body):
        status, answer = self.execd("POST", target, body)
        assert status == 200, answer
        return [json.loads(line) for line in answer.decode().split("\n\n") if line]

    def run(self, command, **more):
        return "\n".join(e["text"] for e in self.events("/command", {"command": command, **more}) if e["type"] in ("stdout", "stderr"))

    def serve(self, port):
        self.run(f"cat >/tmp/echo.py <<'END'\n{ECHO}\nEND\nsetsid python3 /tmp/echo.py {port} >/dev/null 2>&1 </dev/null &")
        assert wait_until(lambda: self.ask("GET", f"/v1/sandboxes/{self.id}/proxy/{port}/")[0] == 200)

    def raw(self, target, headers, then):
        """What comes after an upgrade and a line."""
        with socket.create_connection(("127.0.0.1", self.service.port), timeout=60) as sock:
            more = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n{more}\r\n".encode())
            with sock.makefile("rb") as f:
                status = int(f.readline().split()[1])
                while f.readline().strip():
                    pass
                if status == 101:
                    sock.sendall(then)
                return status, f.readline()


def test_ports_of_programs_with_query_body_and_upgrade(service):
    box = Box(service)
    box.serve(8000)
    path, headers = box.endpoint(8000)
    assert headers == {}
    status, seen = box.ask("PUT", f"{path}/a%20b/c?d=e&f=%2F", b"x" * 3000000, {**box.key, "Authorization": "Bearer mine", "X-Mine": "1"})
    assert status == 200 and seen.startswith(b"PUT /a%20b/c?d=e&f=%2F HTTP/1.1\r\n") and seen.endswith(b"|3000000"), seen
    assert b"Bearer mine" in seen and service.key.encode() not in seen # what opens us stays outside, what opens the program goes in
    many = lambda n: box.ask("GET", path, headers={"X-Many": " ".join(f"{i:040}" for i in range(n))})[1]
    assert b"x-many" in many(64).lower() and b"x-many" not in many(65).lower() # each is compared with all sandboxes' tokens
    assert box.ask("GET", path, headers={})[1].startswith(b"GET / HTTP/1.1")
    assert box.raw(f"{path}/ws?x=y", {}, b"hello\n") == (101, b"echo hello\n")
    by_execd, token = box.endpoint(44772)
    assert box.ask("GET", f"{by_execd}/proxy/8000/q?r=s", headers=token)[1].startswith(b"GET /q?r=s HTTP/1.1")
    assert next(iter(token.values())).encode() not in box.ask("GET", f"{by_execd}/proxy/8000/", headers=token)[1]
    assert box.ask("GET", f"{by_execd}/proxy/8000/", headers={})[0] == 401
    assert box.ask("GET", f"{by_execd}/proxy/0/", headers=token)[0] == 501
    assert box.ask("GET", path.replace("8000", "8001"))[0] == 502


OF_ORIGIN = ("Alt-Svc", "Clear-Site-Data", "NEL", "Report-To", "Reporting-Endpoints", "Service-Worker-Allowed", "Strict-Transport-Security")


def test_a_program_decides_nothing_for_the_origin_that_it_shares(service):
    box = Box(service)
    box.serve(8000)
    path, _ = box.endpoint(8000)
    assert box.ask("GET", path, headers={f"X-Back-{name}": "/" for name in (*OF_ORIGIN, "X-Mine", "Set-Cookie")})[0] == 200
    assert "X-Mine" in box.headers and "Set-Cookie" in box.headers and not any(name in box.headers for name in OF_ORIGIN), box.headers


def test_a_program_gets_no_key_of_whatever_signs():
    key = "b64+/of/an+operator's:own=="
    with own_service("odd-key", COVE_API_KEY=key) as service:
        box = Box(service, key=key)
        box.serve(8000)
        path, _ = box.endpoint(8000)
        for shown in key, f"Bearer {key}", "Basic " + base64.b64encode(f"who:{key}".encode()).decode(), f"Token  {key} ":
            for name in "Authorization", "X-API-Key", "X-Mine":
                status, seen = box.ask("GET", path, headers={name: shown, "X-Kept": "kept of it"})
                assert status == 200 and b"kept of it" in seen and name.lower().encode() + b":" not in seen.lower(), (name, shown, seen)


def test_a_start_command_that_fails_is_a_start_that_failed(service):
    start = ["--start-cmd", '[ -z "$FAIL" ] || { echo told; exit 3; }; sleep 1000', "--ready-cmd", "sleep 1"]
    made = service.cove("template", "build", "--from-template", "base", *start, "--name", "fails")
    assert made.returncode == 0, made
    box = Box(service)
    status, answer = box.ask("POST", "/v1/sandboxes", {"image": {"uri": "fails"}, "timeout": 300, "env": {"FAIL": "1"}})
    box.ask("DELETE", f"/v1/sandboxes/{box.id}")
    assert (status, answer["code"]) == (500, "DOCKER::SANDBOX_START_FAILED") and "start command failed: told" in answer["message"], answer


def test_secure_access_and_signed_endpoints(service):
    box = Box(service, secureAccess=True)
    box.serve(8000)
    path, headers = box.endpoint(8000)
    assert list(headers) == ["OpenSandbox-Secure-Access"]
    assert box.ask("GET", path, headers={})[0] == 401
    status, seen = box.ask("GET", path, headers=headers)
    assert status == 200 and headers["OpenSandbox-Secure-Access"].encode() not in seen
    signed, headers = box.endpoint(8000, expires=int(time.time()) + 100)
    assert headers == {} and box.ask("GET", signed, headers={})[0] == 200
    assert box.raw(signed, {}, b"hello\n") == (101, b"echo hello\n")
    assert box.ask("GET", signed.replace("/proxy/8000", "/proxy/8001"), headers={})[0] == 401
    soon, _ = box.endpoint(8000, expires=int(time.time()) + 2)
    assert wait_until(lambda: box.ask("GET", soon, headers={})[0] == 401)
    assert box.ask("GET", path + "?x", headers={"e2b-traffic-access-token": "guessed"})[0] == 401


def test_a_paused_sandbox_is_woken_by_who_may_and_its_life_extended(service):
    box = Box(service, timeout=60, extensions={"timeout.pause": "true", "access.renew.extend.seconds": "600"})
    box.run("echo kept >/dev/shm/state")
    assert box.ask("POST", f"/v1/sandboxes/{box.id}/pause")[0] == 202
    path, headers = box.endpoint(44772)
    assert box.ask("GET", f"{path}/ping", headers={})[0] == 401
    assert box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["status"]["state"] == "Paused"
    assert box.ask("GET", f"{path}/ping", headers=headers)[0] == 200
    assert box.run("cat /dev/shm/state") == "kept"
    assert box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["expiresAt"] > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 500))
    other = Box(service)
    assert other.ask("POST", f"/v1/sandboxes/{other.id}/pause")[0] == 202
    path, headers = other.endpoint(44772)
    assert other.ask("GET", f"{path}/ping", headers=headers)[0] == 503


def test_the_id_of_an_open_sandbox_is_not_enough_for_a_page_or_its_policy(service):
    box = Box(service)
    status, made = box.ask("POST", "/sandboxes", {"templateID": "base", "secure": False}, {"X-API-KEY": service.key, "Content-Type": "application/json"})
    assert status == 201 and "envdAccessToken" not in made, made
    top = f"/v1/sandboxes/{made['sandboxID']}/proxy"
    assert box.ask("POST", f"{top}/44772/command", {"command": "touch /tmp/ran"}, {})[0] == 200
    for site in ("cross-site", "same-site"):
        page = {"Origin": "http://a.test", "Sec-Fetch-Site": site, "Content-Type": "text/plain"}
        assert box.ask("POST", f"{top}/44772/command", {"command": "rm /tmp/ran"}, page)[0] == 401
        assert box.ask("GET", f"{top}/44772/files/download?path=/etc/hostname", headers=page)[0] == 401
    rebound = {"Host": "rebound.test", "Origin": "http://rebound.test", "Content-Type": "application/json"}
    assert box.ask("POST", f"{top}/44772/command", {"command": "rm /tmp/ran"}, rebound)[0] == 401
    assert box.ask("GET", f"{top}/44772/files/info?path=/tmp/ran", headers={"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert box.ask("POST", f"{top}/18080/policy", {"defaultAction": "allow"}, {})[0] == box.ask("GET", f"{top}/18080/policy", headers={})[0] == 401
    assert box.ask("POST", f"{top}/18080/policy", {"defaultAction": "deny"})[0] == 200
    assert box.ask("DELETE", f"/v1/sandboxes/{made['sandboxID']}")[0] == 204


def test_a_key_that_reads_wakes_nothing_and_gets_into_no_program(service):
    made = service.cove("key", "create", "--name", "reader", "--scope", "read")
    assert made.returncode == 0, made
    reader = {"OPEN-SANDBOX-API-KEY": made.stdout.strip()}
    box = Box(service, secureAccess=True, timeout=60, extensions={"timeout.pause": "true", "access.renew.extend.seconds": "600"})
    box.serve(8000)
    assert box.ask("POST", f"/v1/sandboxes/{box.id}/renew-expiration", {"expiresAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))})[0] == 200
    ends, top = box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["expiresAt"], f"/v1/sandboxes/{box.id}/proxy"
    assert box.ask("POST", f"{top}/8000/", b"x", reader)[0] == 401
    assert box.ask("GET", f"{top}/44772/ping", headers=reader)[0] == 200
    assert box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["expiresAt"] == ends
    assert box.ask("POST", f"/v1/sandboxes/{box.id}/pause")[0] == 202
    assert box.ask("GET", f"{top}/44772/ping", headers=reader)[0] == 503 and box.ask("GET", f"{top}/8000/", headers=reader)[0] == 401
    assert box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["status"]["state"] == "Paused"
    assert box.ask("GET", f"{top}/8000/")[0] == 200


def test_a_fork_has_the_files_and_a_token_of_its_own(service):
    box = Box(service)
    box.run("echo one >/root/note")
    status, fork = box.ask("POST", f"/v1/sandboxes/{box.id}/fork", {"timeout": 120})
    assert status == 202 and fork["id"] != box.id and fork["image"] == {"uri": "base"}, fork
    assert box.ask("GET", f"/v1/sandboxes/{fork['id']}/proxy/44772/ping", headers=box.endpoint(44772)[1])[0] == 401
    box.run("echo two >/root/note")
    box.id = fork["id"]
    assert box.run("cat /root/note") == "one"


STDIN, STDOUT, STDERR, REPLAY = range(4)


class Terminal(Socket):
    """A terminal's WebSocket."""

    def __init__(self, box, terminal, **query):
        path, headers = box.endpoint(44772)
        more = "&".join(f"{k}={v}" for k, v in query.items())
        super().__init__(box.service, f"{path}/pty/{terminal}/ws?{more}", headers=headers)

    def read(self, until):
        """(what came up to the frame that has these bytes, the last JSON); kinds of frames beside."""
        seen, self.kinds = b"", []
        while True:
            frame = self.frame()
            assert frame, seen
            code, payload = frame
            self.kinds.append(payload[0] if code == 2 else json.loads(payload)["type"] if code == 1 else code)
            seen += payload[9:] if code == 2 and payload[0] == REPLAY else payload[1:] if code == 2 else payload
            if until in seen:
                return seen

    def type(self, text):
        self.send(2, bytes([STDIN]) + text.encode())


@pytest.fixture(scope="module")
def box(service):
    return Box(service, timeout=3000)


def terminal_of(box, **more):
    status, made = box.execd("POST", "/pty", more)
    assert status == 201, made
    return made["session_id"]


def status_of(box, terminal):
    return box.execd("GET", f"/pty/{terminal}")[1]


def test_a_terminal_outlives_its_client_and_replays(box):
    terminal = terminal_of(box, cwd="/usr")
    assert status_of(box, terminal) == {"session_id": terminal, "running": False, "output_offset": 0, "launch_attempted": False, "launch_failed": False}
    with Terminal(box, terminal) as ws:
        assert ws.status == 101
        ws.read(b'"mode":"pty"')
        ws.type("stty -echo; PS1=; tty; pwd; X=kept\n")
        assert b"/dev/pts/" in ws.read(b"/usr\r\n")
        ws.send(1, json.dumps({"type": "resize", "cols": 91, "rows": 33}).encode())
        ws.type("stty size\n")
        ws.read(b"33 91\r\n")
        ws.send(1, b'{"type":"ping"}')
        ws.read(b'"pong"')
        ws.send(1, b'{"type":"dance"}')
        ws.read(b"INVALID_FRAME")
        with Terminal(box, terminal) as other:
            assert other.status == 409
    told = lambda: status_of(box, terminal)["output_offset"]
    offset = wait_until(lambda: (before := told()) and time.sleep(0.2) is None and told() == before and before) # the shell's prompt has come, too
    with Terminal(box, terminal, since=offset) as ws:
        ws.read(b'"connected"')
        assert REPLAY not in ws.kinds
        ws.type("echo $X\n")
        ws.read(b"kept\r\n")
    with Terminal(box, terminal, since=offset) as ws: # the one before may still be leaving
        ws = ws if ws.status == 101 else Terminal(box, terminal, since=offset, takeover=1)
        assert b"kept\r\n" in ws.read(b'"connected"') and ws.kinds[0] == REPLAY
        with Terminal(box, terminal, takeover=1) as taker:
            taker.read(b'"connected"')
            while (frame := ws.frame())[0] == 2: # what the shell said after that
                pass
            assert frame == (8, struct.pack(">H", 4001) + b"TAKEN_OVER")
            taker.type("sleep 1000\n")
            time.sleep(0.2)
            taker.send(1, b'{"type":"signal","signal":"SIGINT"}')
            taker.type("\nexit 7\n")
            taker.read(b'"exit_code":7')
            assert taker.frame()[0] == 8
    assert not status_of(box, terminal)["running"]
    assert box.execd("DELETE", f"/pty/{terminal}")[0] == 200
    assert box.execd("DELETE", f"/pty/{terminal}")[0] == 404


def test_pipes_have_stderr_apart_and_a_slow_reader_costs_nothing(box):
    terminal = terminal_of(box, command="cat >&2; echo over")
    with Terminal(box, terminal, pty=0) as ws:
        ws.read(b'"mode":"pipe"')
        ws.type("to cat\n")
        ws.read(b"to cat\n")
        assert ws.kinds[-1] == STDERR
    assert box.execd("DELETE", f"/pty/{terminal}")[0] == 200
    before = rss_kib(box.service.child("cove-api"))
    slow = terminal_of(box, command="yes 0123456789abcdef | head -c 200000000")
    with Terminal(box, slow, pty=0) as ws:
        ws.read(b'"connected"')
        time.sleep(2)
        assert rss_kib(box.service.child("cove-api")) < before + 20000
        n = 0
        while (frame := ws.frame()) and frame[0] == 2:
            n += len(frame[1]) - 1
        assert n == 200000000 and b'"exit"' in frame[1]
    assert box.execd("POST", "/pty", {"cwd": 1})[0] == 400
    full = Box(box.service)
    assert [full.execd("POST", "/pty")[0] for _ in range(65)] == [201] * 64 + [429]
    with Terminal(box, "a" * 20) as ws:
        assert b"SESSION_GONE" in ws.frame()[1] if ws.status == 101 else ws.status == 404
    assert box.execd("GET", f"/pty/{'a' * 20}")[0] == 404 # it is none, and takes the place of none


def test_events_wait_for_a_client_that_begins_to_read_late(box):
    """An event is 57 bytes for one of output."""
    path, headers = box.endpoint(44772)
    assert box.execd("POST", "/command", {"command": "echo"})[0] == 200 # what the first one costs
    before = rss_kib(box.service.child("cove-api"))
    connection = http.client.HTTPConnection("127.0.0.1", box.service.port, timeout=60)
    connection.request("POST", path + "/command", json.dumps({"command": "yes '' | head -c 300000"}), headers)
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    time.sleep(3)
    assert rss_kib(box.service.child("cove-api")) < before + 8000
    kinds = [json.loads(event)["type"] for event in connection.getresponse().read().split(b"\n\n") if event]
    assert kinds.count("stdout") == 300000 and kinds[-1] == "execution_complete"


def test_a_command_with_an_operation_id_is_run_once_and_resumed(box):
    path, headers = box.endpoint(44772)
    headers = {**headers, "X-EXECD-OPERATION-ID": "one"}
    command = {"command": "echo run >>/tmp/runs; for i in 1 2 3 4; do echo $i; sleep 0.5; done; exit 3"}
    connection = http.client.HTTPConnection("127.0.0.1", box.service.port, timeout=60)
    connection.request("POST", path + "/command", json.dumps(command), headers)
    answer = connection.getresponse()
    seen = first_events(answer, 2)
    assert [e["eid"] for e in seen] == [1, 2] and seen[0]["type"] == "init", seen
    connection.close()
    status, rest = box.ask("POST", path + f"/command?after_eid={seen[-1]['eid']}", command, headers)
    rest = [json.loads(line) for line in rest.decode().split("\n\n") if line]
    assert status == 200 and [e.get("text") for e in rest if e["type"] == "stdout"] == ["2", "3", "4"]
    assert rest[-1]["error"]["evalue"] == "3" and [e["eid"] for e in rest if "eid" in e] == [3, 4, 5, 6]
    identity = seen[0]["text"]
    status, again = box.ask("GET", f"{path}/command/{identity}/resume?after_eid=5", headers=headers)
    assert status == 200 and again.count(b'"eid"') == 1
    assert box.ask("GET", f"{path}/command/{identity}/resume?after_eid=7", headers=headers)[0] == 409
    assert box.ask("POST", f"{path}/command", {"command": "true"}, headers)[0] == 409
    assert box.ask("POST", f"{path}/command", {**command, "uid": 1000}, headers)[0] == 409 == box.ask("POST", f"{path}/command", {**command, "envs": {"A": "b"}}, headers)[0]
    assert box.run("cat /tmp/runs") == "run"
    for text, operation in ("#" * 5000 + "\necho a", "x" * 128), ("#" * 5000 + "\necho b", "x" * 129):
        assert f'"text":"{text[-1]}"'.encode() in box.ask("POST", f"{path}/command", {"command": text}, {**headers, "X-EXECD-OPERATION-ID": operation})[1]
    assert box.ask("POST", f"{path}/command", {"command": "#" * 5000 + "\necho b"}, {**headers, "X-EXECD-OPERATION-ID": "x" * 128})[0] == 409
    plain = next(e["text"] for e in box.events("/command", {"command": "true"}))
    assert box.ask("GET", f"{path}/command/{plain}/resume", headers=headers)[0] == 410
    made = [box.ask("POST", f"{path}/pty", {}, headers) for _ in range(2)]
    assert [m[0] for m in made] == [201, 200] and made[0][1] == made[1][1]
    assert box.ask("DELETE", f"{path}/pty/{made[0][1]['session_id']}", headers=headers)[0] == 200


def test_a_line_that_is_too_long_to_be_kept_ends_nothing(box):
    """65,536 control characters are more than is kept of a command, once they are escaped."""
    path, headers = box.endpoint(44772)
    api = box.service.child("cove-api")
    command = {"command": "echo first; head -c 65536 /dev/zero | tr '\\0' '\\1'; echo; echo last"}
    status, answer = box.ask("POST", path + "/command", command, {**headers, "X-EXECD-OPERATION-ID": "long"})
    events = [json.loads(line) for line in answer.decode().split("\n\n") if line]
    assert status == 200 and [e["text"][:5] for e in events if e["type"] == "stdout"] in (["first", "\1" * 5, "last"], ["first", "\1" * 5, "\n", "last"])
    long = next(e["eid"] for e in events if e.get("text", "").startswith("\1"))
    resume = f"{path}/command/{events[0]['text']}/resume?after_eid="
    assert box.ask("GET", f"{resume}{long - 1}", headers=headers)[0] == 410
    status, answer = box.ask("GET", f"{resume}{long}", headers=headers)
    assert status == 200 and b'"last"' in answer and box.service.child("cove-api") == api


def test_a_sandbox_does_not_take_the_operation_ids_of_others(service):
    mine, other = Box(service), Box(service)
    def command(box, i):
        path, headers = box.endpoint(44772)
        return box.ask("POST", path + "/command", {"argv": ["true"]}, {**headers, "X-EXECD-OPERATION-ID": f"many{i}"})[0]
    assert [command(mine, i) for i in range(65)] == [200] * 64 + [429]
    assert command(other, 0) == 200 == command(mine, 0)


def test_a_tenant_does_not_take_the_operation_ids_of_others(service):
    """256 are one tenant's, wherever they are; and of the 256 that wait for images, half."""
    def ran(*arguments):
        done = service.cove(*arguments)
        assert done.returncode == 0, done
        return done.stdout.strip()
    def command(box, i):
        path, headers = box.endpoint(44772)
        return box.ask("POST", path + "/command", {"argv": ["true"]}, {**headers, "X-EXECD-OPERATION-ID": f"more{i}"})[0]
    def key_of(tenant):
        ran("tenant", "create", tenant)
        return ran("key", "create", "--tenant", tenant, "--name", "all", "--scope", "admin")
    greedy, other = key_of("greedy"), key_of("other")
    theirs = Box(service, key=other)
    def pulled(key): # from nowhere: it fails, and is told for a while
        return theirs.ask("POST", "/v1/sandboxes", {"image": {"uri": "127.0.0.1:1/nothing"}, "timeout": 300, "entrypoint": ["true"]},
                          {"OPEN-SANDBOX-API-KEY": key})[0]
    assert [pulled(greedy) for _ in range(129)] == [202] * 128 + [429] and pulled(other) == 202
    assert 429 in [command(box, i) for box in (Box(service, key=greedy) for _ in range(5)) for i in range(64)]
    assert command(theirs, 0) == 200
    assert theirs.ask("DELETE", f"/v1/sandboxes/{theirs.id}")[0] == 204


def test_what_terminals_are_of_is_bounded(service):
    """A command of four megabytes is kept until its terminal is gone."""
    def key_of(tenant):
        assert service.cove("tenant", "create", tenant).returncode == 0
        return service.cove("key", "create", "--tenant", tenant, "--name", "k").stdout.strip()
    mine, other = Box(service, key=key_of("typist")), Box(service, key=key_of("quiet"))
    def made(box, command):
        path, headers = box.endpoint(44772)
        return box.ask("POST", path + "/pty", {"command": command}, headers)[0]
    seen = [made(mine, "#" * 4190000) for _ in range(64)]
    assert set(seen) == {201, 429} and 50 < seen.count(201) < 63, seen
    assert made(other, "#" * 4190000) == 201
    for box in (mine, other):
        assert box.ask("DELETE", f"/v1/sandboxes/{box.id}")[0] == 204


def operation_of(box, path, headers, **more):
    """A new id of the sandbox's instance."""
    status, instance = box.ask("GET", path + "/execution/instance", headers=headers)
    assert status == 200 and box.headers["Cache-Control"] == "no-store" and set(instance) == {"instance_id", "issued_at", "retention_seconds", "capacity"}, instance
    assert abs(instance["issued_at"] - time.time()) < 60 and (instance["retention_seconds"], instance["capacity"]) == (86400, 1024)
    instance |= more
    return f"{instance['instance_id']}.{instance['issued_at']}.{os.urandom(8).hex()}"


def test_an_operation_makes_a_command_once(box):
    path, headers = box.endpoint(44772)
    operation = operation_of(box, path, headers)

    def make(operation=operation, **more):
        body = {"operation_id": operation, "command": "echo run >>/tmp/made; sleep 1; exit 3", "background": True, **more}
        return box.ask("POST", f"{path}/command/operations", body, headers)

    def found(kind="command", operation=operation, headers=headers):
        return box.ask("GET", f"{path}/execution/operation?kind={kind}", headers={**headers, "X-EXECD-OPERATION-ID": operation})

    assert found()[0] == 404 and found()[1]["code"] == "operation_not_found"
    answers = [None] * 8
    threads = [threading.Thread(target=lambda i: answers.__setitem__(i, Box.ask(copy.copy(box), "POST", f"{path}/command/operations", {
        "command": "echo run >>/tmp/made; sleep 1; exit 3", "background": True, "operation_id": operation}, headers)), args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} <= {200, 202} and {(a["id"], a["kind"]) for _, a in answers} == {(answers[0][1]["id"], "command")}, answers
    status, made = found()
    assert status == 200 and made["state"] == "created" and set(made) == {"id", "kind", "state", "expires_at"}, made
    assert made["expires_at"].endswith("Z") and made == make(envs={}, cwd=None, timeout=None)[1]
    for other in ({"command": "true"}, {"background": False}, {"cwd": "/"}, {"timeout": 5000}, {"envs": {"A": "b"}}, {"uid": 0}):
        assert make(**other)[0] == 409 and make(**other)[1]["code"] == "operation_conflict", other
    assert wait_until(lambda: not (status := box.execd("GET", f"/command/status/{made['id']}")[1])["running"] and status["exit_code"] == 3)
    assert make()[:2] == (200, made) and box.run("cat /tmp/made") == "run"
    # Others' are not seen: of another kind, by another principal, of another sandbox.
    assert found("pty")[0] == 404
    assert found(headers=box.key)[0] == (404 if "OPEN-SANDBOX-API-KEY" not in headers else 200)
    other = Box(box.service)
    elsewhere, theirs = other.endpoint(44772)
    assert other.ask("POST", f"{elsewhere}/command/operations", {"operation_id": operation, "command": "true"}, theirs)[1]["code"] == "operation_instance_mismatch"
    # What is wrong is refused, and makes nothing.
    instance, second, token = operation.split(".")
    for bad, status, code in (("", 400, "INVALID_REQUEST_BODY"), (7, 400, "INVALID_REQUEST_BODY"), ("a", 400, "invalid_operation_id"), (f"{instance}.{second}", 400, "invalid_operation_id"),
                              (f"{instance}.{second}.short", 400, "invalid_operation_id"), (f"{instance}.{second}.{'x' * 129}", 400, "invalid_operation_id"),
                              (f"{instance}.{second}.{token}.{token}", 400, "invalid_operation_id"), (f"{instance}.0{second}.{token}", 400, "invalid_operation_id"),
                              (f"{instance}.-1.{token}", 400, "invalid_operation_id"), (f"{instance}.{2**64}.{token}", 400, "invalid_operation_id"),
                              (f"{instance}.{int(second) + 3600}.{token}", 400, "invalid_operation_id"), (f"{'a' * 32}.{second}.{token}", 409, "operation_instance_mismatch"),
                              (f"{instance}.{int(second) - 86401}.{token}", 410, "operation_expired"), (f"{instance}.0.{token}", 410, "operation_expired")):
        got, answer = make(bad)
        assert got == status and answer["code"] == code, (bad, got, answer)
        if isinstance(bad, str) and bad:
            assert found(operation=bad)[0] == status, bad
    for wrong in ({"unheard": 1}, {"argv": ["true"]}, {"command": None}, {"gid": 1}, {"timeout": 0}):
        assert make(operation_of(box, path, headers), **wrong)[0] == 400, wrong
    assert found("code")[1]["code"] == "invalid_operation_kind" and found("")[0] == 400
    assert box.ask("GET", f"{path}/execution/operation?kind=command", headers=headers)[0] == 400
    # One that can't start has failed, and does not start later.
    failing = operation_of(box, path, headers)
    status, failed = make(failing, cwd="/nowhere")
    assert status == 200 and failed["state"] == "failed", failed
    assert box.run("mkdir /nowhere") == "" and make(failing, cwd="/nowhere") == (200, failed)
    told = box.execd("GET", f"/command/status/{failed['id']}")[1]
    assert told["exit_code"] == -1 and told["error"] and not told["running"], told
    # Nobody needs to wait, in the foreground either; what it wrote is there for a while.
    status, made = make(operation_of(box, path, headers), background=False, command="sleep 0.5; echo late")
    assert wait_until(lambda: not box.execd("GET", f"/command/status/{made['id']}")[1]["running"])
    assert b'"text":"late"' in box.ask("GET", f"{path}/command/{made['id']}/resume", headers=headers)[1]
    assert box.run("cat /tmp/made") == "run"


def test_an_operation_makes_a_terminal_that_starts_once(box):
    path, headers = box.endpoint(44772)
    body = {"operation_id": operation_of(box, path, headers), "command": "echo once >>/tmp/terminals; echo told; exit 7"}
    status, made = box.ask("POST", f"{path}/pty/operations", body, headers)
    assert status == 200 and (made["kind"], made["state"]) == ("pty", "created"), made
    assert box.ask("POST", f"{path}/pty/operations", {**body, "cwd": ""}, headers) == (200, made)
    assert box.ask("POST", f"{path}/pty/operations", {**body, "cwd": "/"}, headers)[0] == 409
    assert box.ask("POST", f"{path}/pty/operations", {**body, "envs": {}}, headers)[0] == 400
    for _ in range(2):
        with Terminal(box, made["id"], since=0) as ws:
            assert b"told" in ws.read(b'"exit_code":7')
    assert box.run("cat /tmp/terminals") == "once"
    assert status_of(box, made["id"])["launch_attempted"] and not status_of(box, made["id"])["launch_failed"]
    assert box.execd("DELETE", f"/pty/{made['id']}")[0] == 200
    assert box.ask("POST", f"{path}/pty/operations", body, headers) == (200, made) and box.execd("GET", f"/pty/{made['id']}")[0] == 404


def test_a_sandbox_has_so_many_operations(service):
    box = Box(service)
    path, headers = box.endpoint(44772)
    first = operation_of(box, path, headers)
    for i in range(1024):
        operation = first if not i else f"{first}{i}"
        assert box.ask("POST", f"{path}/command/operations", {"operation_id": operation, "argv": ["true"], "background": True}, headers)[0] == 200, i
    status, answer = box.ask("POST", f"{path}/command/operations", {"operation_id": f"{first}-more", "argv": ["true"], "background": True}, headers)
    assert (status, answer["code"]) == (503, "operation_capacity_exceeded")
    assert box.ask("POST", f"{path}/command/operations", {"operation_id": first, "argv": ["true"], "background": True}, headers)[0] == 200


def test_what_became_of_commands_is_known_after_a_restart(service):
    box = Box(service)
    path, headers = box.endpoint(44772)
    commands = {"echo a; exit 3": {}, "echo b; touch /tmp/b; exec sleep 1000": {}, "kill -9 $$": {}, "sleep 1000": {"timeout": 200}, "true; true": {"background": False}}
    ids = {command: next(e["text"] for e in box.events("/command", {"command": command, "background": True, **more}) if e["type"] == "init") for command, more in commands.items()}
    operation = operation_of(box, path, headers)
    box.ask("POST", f"{path}/command/operations", {"operation_id": operation, "command": "sleep 1000", "background": True}, headers)
    argv = next(e["text"] for e in box.events("/command", {"argv": ["/bin/echo", "x"], "background": True}) if e["type"] == "init")

    def told():
        return [box.execd("GET", f"/command/status/{one}")[1] for one in (*ids.values(), argv)], [box.execd("GET", f"/command/{one}/logs") for one in (*list(ids.values())[:4], argv)]

    assert wait_until(lambda: [s.get("exit_code") for s in told()[0]] == [3, None, -1, -1, 0, 0] and box.run("ls /tmp/b"))
    before = told()
    kill_worker(service)
    assert wait_until(lambda: box.execd("GET", "/ping")[0] == 200)
    after = told()
    for was, then in zip(before[0], after[0], strict=True):
        for moment in ("started_at", "finished_at"):
            assert abs(seconds(was.pop(moment, None)) - seconds(then.pop(moment, None))) < 5
        assert was == then
    assert before[1] == after[1]
    status, answer = box.ask("GET", f"{path}/execution/operation?kind=command", headers={**headers, "X-EXECD-OPERATION-ID": operation})
    assert (status, answer["code"]) == (409, "operation_instance_mismatch")
    for unknown in ("x" * 20, "x", "x" * 200, "X" * 20, "%22"):
        assert box.execd("GET", f"/command/status/{unknown}")[0] == 404
    assert Box(service).execd("GET", f"/command/status/{argv}")[0] == 404
    box.run("pkill -f '^sleep 1000'; true")
    assert wait_until(lambda: box.execd("GET", f"/command/status/{list(ids.values())[1]}")[1].get("error", "").startswith("signal"))


# A runner of code that fails with the name that it is given (src/sandbox/code/frame.h).
FAILS = r"""#!/usr/bin/python3
import struct, sys
def say(kind, *parts):
    payload = b"".join(parts)
    sys.stdout.buffer.write(struct.pack("<IB", len(payload), kind) + payload)
    sys.stdout.buffer.flush()
def text(s):
    return struct.pack("<I", len(s)) + s
say(1)
while head := sys.stdin.buffer.read(5):
    payload = sys.stdin.buffer.read(struct.unpack("<I", head[:4])[0])
    name = payload[12:12 + struct.unpack("<I", payload[8:12])[0]]
    say(5, text(name), text(b"/ by zero"), text(name + b": / by zero"))
    say(7, payload[:8])
"""


def test_an_exception_of_java_has_the_name_that_theirs_gives_it(service):
    box = Box(service, env={"COVE_CODE": "/opt/fails python java"})
    box.run(f"mkdir -p /opt/fails; cat >/opt/fails/start <<'END'\n{FAILS}\nEND\nchmod 755 /opt/fails/start")
    status, context = box.execd("POST", "/code/context", {"language": "java"})
    assert status == 200, context
    for at, name, told in (({"language": "java"}, "java.lang.ArithmeticException", "EvalException"), ({"id": context["id"]}, "java.lang.ArithmeticException", "EvalException"),
                           ({"language": "java"}, "CompilationException", "CompilationException"), ({"language": "python"}, "json.JSONDecodeError", "json.JSONDecodeError")):
        failed = next(e for e in box.events("/code", {"code": name, "context": at}) if e["type"] == "error")
        assert failed["error"] == {"ename": told, "evalue": "/ by zero", "traceback": [f"{name}: / by zero"]}, failed


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else 0


def first_events(answer, n):
    """The first n events of a stream that goes on."""
    seen = b""
    while seen.count(b"\n\n") < n:
        seen += answer.read1(65536)
    return [json.loads(line) for line in seen.split(b"\n\n")[:n]]


def test_directories_of_the_host_are_those_that_the_operator_allows(tmp_path):
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for path in (allowed / "data" / "part", other):
        path.mkdir(parents=True)
    tmp_path.chmod(0o755)
    (allowed / "data" / "part" / "note").write_text("from outside\n")
    (other / "secret").write_text("secret\n")
    (allowed / "way").symlink_to(other)
    config = tmp_path / "cove.yaml"
    config.write_text(f"volumes: {{host: [{allowed}]}}\n")

    def mount(path, **more):
        return {"name": "v", "mountPath": "/mnt/v", "host": {"path": str(path)}, **more}

    with own_service("host-paths", COVE_CONFIG=str(config)) as service:
        box = Box(service, volumes=[mount(allowed / "data")])
        assert box.run("cat /mnt/v/part/note; stat -c %u /mnt/v/part/note; echo from inside >/mnt/v/back; chmod 4755 /mnt/v/back") == "from outside\n0"
        assert (allowed / "data" / "back").read_text() == "from inside\n"
        part = Box(service, volumes=[mount(allowed, subPath="data/part", readOnly=True)])
        assert "Read-only" in part.run("ls /mnt/v; touch /mnt/v/new")
        claim = {"name": "c", "mountPath": "/mnt/c", "pvc": {"claimName": "claim"}}
        whole = Box(service, volumes=[claim])
        whole.run("mkdir -p /mnt/c/a/b; echo deep >/mnt/c/a/b/note; ln -s / /mnt/c/way")
        assert Box(service, volumes=[{**claim, "subPath": "a/b"}]).run("cat /mnt/c/note") == "deep"
        for volume in (mount(other), mount("/"), mount(tmp_path), mount(f"{allowed}x"), mount(allowed / "way"), mount(allowed, subPath="way"), mount(allowed / "none"),
                       mount(allowed, subPath="../other"), {**claim, "subPath": "way"}, {**claim, "subPath": "none"}, {**claim, "subPath": "a/b/note"}):
            status, answer = box.ask("POST", "/v1/sandboxes", {"image": {"uri": "base"}, "timeout": 60, "volumes": [volume]})
            assert status in (400, 403, 404), (volume, status, answer)
        assert box.ask("POST", f"/v1/sandboxes/{box.id}/pause")[0] == 202
        assert box.ask("POST", f"/v1/sandboxes/{box.id}/resume")[0] == 202
        assert box.run("cat /mnt/v/back") == "from inside"
        assert service.kill_coved() < 30
        assert box.run("cat /mnt/v/back") == "from inside"


def test_a_pool_gives_ready_sandboxes_with_a_policy(service):
    box = Box(service)
    assert box.ask("POST", "/v1/pools", {"name": "base", "capacitySpec": {"bufferMax": 3, "bufferMin": 1, "poolMax": 10, "poolMin": 0}})[0] == 201
    assert wait_until(lambda: box.ask("GET", "/v1/pools/base")[1]["status"]["available"] == 3)
    status, made = box.ask("POST", "/v1/sandboxes", {"extensions": {"poolRef": "base"}, "timeout": 60, "networkPolicy": {"defaultAction": "deny", "egress": []}})
    assert status == 202 and made["status"]["state"] == "Running", made
    box.id = made["id"]
    path, headers = box.endpoint(18080)
    assert box.ask("GET", f"{path}/policy", headers=headers)[1]["policy"] == {"defaultAction": "deny", "egress": []}
    assert box.run("echo ok") == "ok"
    assert made["allocation"]["poolRef"] == "base" and box.ask("GET", "/v1/pools/base")[1]["status"]["allocated"] == 1
    capacity = {"bufferMax": 1, "bufferMin": 1, "poolMax": 2, "poolMin": 0}
    assert box.ask("PUT", "/v1/pools/base", {"capacitySpec": {**capacity, "bufferMax": 3}})[0] == 422
    assert box.ask("PUT", "/v1/pools/base", {"capacitySpec": capacity})[1]["capacitySpec"]["poolMax"] == 2
    asked = {"extensions": {"poolRef": "base"}, "timeout": 60}
    other = box.ask("POST", "/v1/sandboxes", asked)[1]["id"]
    status, answer = box.ask("POST", "/v1/sandboxes", asked)
    assert status == 429 and box.headers["Retry-After"] == "1" and "poolMax" in answer["message"], answer
    assert service.kill_coved() < 30
    assert wait_until(lambda: box.ask("POST", "/v1/sandboxes", asked)[0] == 429)
    assert box.ask("DELETE", f"/v1/sandboxes/{other}")[0] == 204
    assert wait_until(lambda: box.ask("POST", "/v1/sandboxes", asked)[0] == 202)
    assert box.ask("DELETE", "/v1/pools/base")[0] == 204
    assert box.ask("POST", "/v1/sandboxes", {"extensions": {"poolRef": "base"}})[0] == 404


def diagnostics(box, kind, scope):
    status, answer = box.ask("GET", f"/v1/sandboxes/{box.id}/diagnostics/{kind}?scope={scope}")
    assert status == 200 and answer["sandboxId"] == box.id and answer["kind"] == kind and answer["scope"] == scope, answer
    return answer


def status_after(box, reason):
    assert wait_until(lambda: box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["status"]["reason"] == reason)
    return box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["status"]


def goes_on(box):
    """Its periodic hook does."""
    before = int(box.run("wc -l </tmp/ticks"))
    return wait_until(lambda: int(box.run("wc -l </tmp/ticks")) > before + 1)


def test_hooks_run_before_the_entrypoint_and_by_their_schedule(service):
    hooks = {
        "preStart": {"command": ["/bin/sh", "-c", "sleep 0.5; echo \"$1\" >/tmp/pre", "sh", "it's \"$HOME\""], "timeoutSeconds": 10},
        "periodic": [
            {"name": "tick", "schedule": "@every 1s", "command": ["/bin/sh", "-c", "cat /tmp/pre >>/tmp/ticks; echo ticked; exit 4"]},
            {"name": "never", "schedule": "0 0 29 2 *", "command": ["touch", "/tmp/never"]},
        ],
    }
    box = Box(service, entrypoint=["/bin/sh", "-c", "cat /tmp/pre; echo bad >&2; exit 3"], lifecycle=hooks)
    assert status_after(box, "ENTRYPOINT_ENDED")["message"] == "exit status 3"
    assert wait_until(lambda: box.run("wc -l </tmp/ticks; ls /tmp/never 2>/dev/null").strip() >= "2")
    assert box.run("sort -u /tmp/ticks") == "it's \"$HOME\""
    content = diagnostics(box, "logs", "container")["content"]
    assert "stdout it's \"$HOME\"\n" in content and "stderr bad\n" in content and '"exit_code":3' in content and "stdout ticked" in content
    assert "never" not in content and "wc -l" not in content
    assert box.ask("POST", f"/v1/sandboxes/{box.id}/pause")[0] == 202 and box.ask("POST", f"/v1/sandboxes/{box.id}/resume")[0] == 202
    assert goes_on(box)
    worker = service.child("cove-api")
    os.kill(worker, 9)
    assert wait_until(lambda: service.child("cove-api") not in (None, worker) and service.is_ready())
    assert goes_on(box)
    metadata = box.ask("PATCH", f"/v1/sandboxes/{box.id}/metadata", {"a": "b"})[1]
    assert metadata["metadata"] == {"a": "b"} and metadata["status"]["message"] == "exit status 3"
    fork = box.ask("POST", f"/v1/sandboxes/{box.id}/fork")[1]
    assert fork["metadata"] == {"a": "b"} and fork["status"]["reason"] is None


def test_a_hook_that_fails_or_takes_too_long_keeps_the_entrypoint_from_starting(service):
    for command, said in (["/bin/sh", "-c", "echo why; exit 9"], "exit status 9"), (["sleep", "100"], "exit status 137"), (["/none"], "exit status 127"):
        box = Box(service, entrypoint=["touch", "/tmp/started"], lifecycle={"preStart": {"command": command, "timeoutSeconds": 1}})
        assert status_after(box, "PRE_START_FAILED")["state"] == "Failed"
        assert f"stderr preStart: {said}\n" in diagnostics(box, "logs", "container")["content"]
        assert "No such file" in box.run("ls /tmp/started")
    for hooks in (
        {"preStart": {"command": []}},
        {"preStart": {"command": ["true"], "timeoutSeconds": 10801}},
        {"prePause": {"command": ["true"]}},
        {"periodic": [{"name": "a", "schedule": "@every 1d", "command": ["true"]}]},
        {"periodic": [{"name": "a", "schedule": "60 * * * *", "command": ["true"]}]},
        {"periodic": [{"name": "a", "schedule": "* * * *", "command": ["true"]}]},
        {"periodic": [{"name": "a", "schedule": "@daily", "command": ["true"], "timeoutSeconds": 301}]},
        {"periodic": [{"name": "a", "schedule": "@daily", "command": ["true"]}] * 2},
    ):
        status, answer = box.ask("POST", "/v1/sandboxes", {"image": {"uri": "base"}, "timeout": 60, "lifecycle": hooks})
        assert status in (400, 422) and "lifecycle" in answer["message"], answer


# What `date` and `sleep` are for the periodic hooks of the next test: it is always five past seven on a Tuesday, the 29th of February, and minutes are short.
CLOCK = r"""
printf '#!/bin/sh\nexec /bin/date -u -d "2028-02-29 07:05" "$@"\n' >/usr/local/bin/date
printf '#!/bin/sh\nexec /bin/sleep 0.3\n' >/usr/local/bin/sleep
chmod 755 /usr/local/bin/date /usr/local/bin/sleep
"""


def test_schedules_mean_what_cron_means(service):
    fires = {"5 7 * * *": True, "*/5 7 29 2 *": True, "0,5 6-8 * * 2": True, "5 7 1 * 2": True, "5 7 29 * 3": True, "5 7 1 * 3": False, "5 7 * * 7": False, "0-4,6-59 * * * *": False,
             "5/10 * * * ?": True, "@hourly": False, "5 7 29 1,3-12 *": False, "5 7 1 1 2": False, "@every 1m": True}
    hooks = [{"name": f"h{i}", "schedule": schedule, "command": ["touch", f"/tmp/fired-{i}"]} for i, schedule in enumerate(fires)]
    box = Box(service)
    box.run(CLOCK)
    snapshot = box.ask("POST", f"/v1/sandboxes/{box.id}/snapshots", {})[1]["id"]
    box = Box(service, image=None, snapshotId=snapshot, lifecycle={"periodic": hooks})
    wanted = sorted(f"/tmp/fired-{i}" for i, does in enumerate(fires.values()) if does)
    fired = lambda: sorted(box.run("ls /tmp/fired-*").split("\n"))
    assert wait_until(lambda: fired() == wanted), (fired(), wanted)
    time.sleep(1)
    assert fired() == wanted
    assert box.ask("DELETE", f"/v1/sandboxes/{box.id}")[0] == 204 and wait_until(lambda: box.ask("DELETE", f"/v1/snapshots/{snapshot}")[0] == 204)
    for wrong in ("* * * *", "* * * * * *", "5, * * * *", ", * * * *", "5-1 * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*-5 * * * *", "*/0 * * * *", "a * * * *",
                  "@every 1d", "@every 500ms", "@every", "@reboot", " ", ",".join(["0-59"] * 9) + " * * * *"):
        status, answer = box.ask("POST", "/v1/sandboxes", {"image": {"uri": "base"}, "lifecycle": {"periodic": [{"name": "a", "schedule": wrong, "command": ["true"]}]}})
        assert status == 400 and "schedule" in answer["message"], (wrong, answer)


def test_the_guard_reads_hooks_and_the_entrypoint_behind_one(service):
    fine, bad = ["/bin/sh", "-c", "echo \"it's\" >>/tmp/ran; [ $# = 0 ]", "sh"], ["/usr/bin/touch", "/tmp/forbidden"]
    rules = "by_risk: {unknown: deny}\nrules: [{argv: [touch, /tmp/forbidden], verdict: deny}]\n"
    assert service.cove("guard", "set", "-", input=rules).returncode == 0
    try:
        def made(pre=fine, entrypoint=fine, periodic=fine):
            return Box(service, entrypoint=entrypoint, lifecycle={"preStart": {"command": pre}, "periodic": [{"name": n, "schedule": s, "command": periodic} for n, s in
                                                                                                                 (("often", "@every 1s"), ("cron", "5 7 29 2 *"))]})

        box = made()
        assert status_after(box, "ENTRYPOINT_ENDED")["message"] == "exit status 0"
        assert wait_until(lambda: int(box.run("grep -c \"^it's$\" /tmp/ran")) > 3) # nothing of what is around them is beyond the guard
        for which in "pre", "entrypoint", "periodic":
            box = made(**{which: bad})
            denied = lambda: [e for e in map(json.loads, service.cove("log", "--json", box.id).stdout.splitlines()) if e["kind"] == "guard.denied"] # noqa: B023
            assert wait_until(lambda: len(denied()) == (2 if which == "periodic" else 1)), json.dumps(denied(), indent=1) # noqa: B023
            if which != "periodic":
                assert "denied" in status_after(box, "ENTRYPOINT_ENDED")["message"]
            else:
                assert diagnostics(box, "logs", "container")["content"].count("guard.denied") == 2
            time.sleep(1.5)
            assert "No such file" in box.run("ls /tmp/forbidden")
        status = status_after(Box(service, lifecycle={"periodic": [{"name": "often", "schedule": "@every 1s", "command": bad}]}), "PERIODIC_HOOK_FAILED")
        assert status["state"] == "Running" and status["message"].startswith("periodic:often: exec.start is denied by rule"), status
    finally:
        service.cove("guard", "rm")


def test_diagnostics_by_scope_and_by_a_signed_address(service):
    box = Box(service)
    box.run("echo written; exit 5")
    assert wait_until(lambda: "stdout written\n" in diagnostics(box, "logs", "process")["content"])
    assert "exec.exit" in diagnostics(box, "events", "process")["content"] and "sandbox.create" not in diagnostics(box, "events", "process")["content"]
    assert "sandbox.create" in diagnostics(box, "events", "lifecycle")["content"]
    assert diagnostics(box, "events", "container")["content"] == "" == diagnostics(box, "logs", "runtime")["content"]
    assert box.ask("GET", f"/v1/sandboxes/{box.id}/diagnostics/logs?scope=kernel")[0] == 400
    for i in range(30):
        box.run(f"head -c 3000 /dev/zero | tr '\\0' x; echo; echo line {i}")
    assert wait_until(lambda: b"stdout line 29\n" in box.ask("GET", f"/v1/sandboxes/{box.id}/diagnostics/summary")[1])
    long = diagnostics(box, "logs", "all")
    assert long["delivery"] == "url" and "content" not in long and long["expiresAt"] > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()), long
    target = long["contentUrl"].removeprefix(f"http://127.0.0.1:{service.port}")
    status, text = box.ask("GET", target, headers={})
    assert status == 200 and b"stdout line 29\n" in text and len(text) >= long["contentLength"]
    head, signature = target.split("/diagnostics")[0].rsplit("-", 1)
    for forged in (target.replace(signature, "0" * 32), target.replace(f"{head}-", f"{head}0-"), target.replace(box.id, Box(service).id), f"/v1/sandboxes/{box.id}/diagnostics/logs/content?scope=all"):
        assert box.ask("GET", forged, headers={})[0] == 401, forged
    status, text = box.ask("GET", f"/v1/sandboxes/{box.id}/diagnostics/logs?tail=2")
    assert status == 200 and text.count(b"\n") == 2 and box.headers["Deprecation"] == "true" and b"exec.exit" in text
    assert box.ask("GET", f"/v1/sandboxes/{box.id}/diagnostics/inspect")[0] == 200


def test_a_sandbox_without_bash(service):
    box = Box(service)
    assert box.run("echo ${BASH_VERSION:+bash}") == "bash"
    box.run("mv /bin/bash /bin/hidden")
    for _ in range(3):
        assert box.run("echo ${BASH_VERSION:-none}; exit 3") == "none"
    assert box.events("/command", {"command": "exit 3"})[-1]["error"]["evalue"] == "3"
    box.run("mv /bin/hidden /bin/bash")
    assert box.run("echo ${BASH_VERSION:+bash}") == "bash"
    status, answer = box.execd("POST", "/command", {"command": "true", "cwd": "/nowhere"})
    assert status == 400 and "/nowhere" in answer["message"], answer


def multipart(*parts):
    """(body, its content type); each part is (name, bytes)."""
    body = b"".join(b'--x\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\n\r\n%s\r\n' % (name.encode(), data) for name, data in parts)
    return body + b"--x--\r\n", "multipart/form-data; boundary=x"


def test_what_is_wrong_is_refused_in_their_words(box):
    for query, status, code in (("page=10000&pageSize=200", 200, None), ("page=-1", 422, "SANDBOX::INVALID_PARAMETER"), ("page=99999999999999999999", 422, "SANDBOX::INVALID_PARAMETER"),
                                ("metadata=novalue", 400, "INVALID_METADATA_FORMAT"), ("metadata=%zz", 400, "INVALID_METADATA_FORMAT")):
        got, answer = box.ask("GET", f"/v1/sandboxes?{query}")
        assert got == status and answer.get("code") == code, (query, answer)
        assert got != 200 or answer["items"] == [] and answer["pagination"]["page"] == 10000
    for body in (b"{", b"7", b""):
        status, answer = box.ask("POST", "/v1/sandboxes", body, {**box.key, "Content-Type": "application/json"})
        assert status == 422 and set(answer) == {"code", "message"}, (body, status, answer)
    for body in ({}, {"image": {"uri": "base"}, "snapshotId": "x"}):
        assert box.ask("POST", "/v1/sandboxes", body)[0] == 400, body
    for pair in ({"a": "x" * 64}, {"-a": "b"}, {"a": "b c"}, {"/a": "b"}, {"p..q/a": "b"}, {"p./a": "b"}, {"opensandbox.io/image": "b"}, {"x" * 254 + "/a": "b"}):
        for method, target, body in ("POST", "/v1/sandboxes", {"image": {"uri": "base"}, "metadata": pair}), ("PATCH", f"/v1/sandboxes/{box.id}/metadata", pair):
            status, answer = box.ask(method, target, body)
            assert status == 400 and answer["code"] == "SANDBOX::INVALID_METADATA_LABEL", (pair, answer)
    assert box.ask("PATCH", f"/v1/sandboxes/{box.id}/metadata", {"p.q/a": "B-1_2.c", "e": ""})[1]["metadata"]["p.q/a"] == "B-1_2.c"
    for field, wanted in (({"platform": {"os": "windows", "arch": "amd64"}}, 400), ({"platform": {"os": "linux", "arch": "arm64"}}, 400), ({"timeout": "60"}, 422), ({"timeout": 0}, 422),
                          ({"resourceLimits": {"cpu": "much"}}, 400), ({"resourceLimits": {"gpu": "1"}}, 400), ({"extensions": {"access.renew.extend.seconds": "86401"}}, 400),
                          ({"env": {"a": 1}}, 422), ({"metadata": {"a": 1}}, 422), ({"networkPolicy": {"egress": "all"}}, 422), ({"unheard": 1}, 400)):
        status, answer = box.ask("POST", "/v1/sandboxes", {"image": {"uri": "base"}, **field})
        assert status == wanted and answer["code"] == "SANDBOX::INVALID_PARAMETER" and set(answer) == {"code", "message"}, (field, answer)


def test_parts_that_do_not_pair_and_cursors_of_another_sandbox(box):
    path, headers = box.endpoint(44772)
    meta, file = ("metadata", b'{"path":"/tmp/up/a"}'), ("file", b"content")
    for parts, code in (((file,), "INVALID_FILE"), ((meta, meta), "INVALID_FILE_METADATA"), ((meta,), "INVALID_REQUEST_BODY"), ((meta, file, file), "INVALID_FILE"), ((), "INVALID_REQUEST_BODY"),
                        ((("metadata", b"{"), file), "INVALID_FILE_METADATA"), ((("metadata", b'{"path":""}'), file), "INVALID_FILE_METADATA")):
        body, kind = multipart(*parts)
        status, answer = box.ask("POST", f"{path}/files/upload", body, {**headers, "Content-Type": kind})
        assert status == 400 and answer["code"] == code, (parts, answer)
    body, kind = multipart(meta, file)
    assert box.ask("POST", f"{path}/files/upload", body[:-8], {**headers, "Content-Type": kind})[0] == 400
    assert box.ask("POST", f"{path}/files/upload", body, {**headers, "Content-Type": kind})[0] == 200 and box.run("cat /tmp/up/a") == "content"
    command = next(e["text"] for e in box.events("/command", {"command": "echo mine", "background": True}))
    assert wait_until(lambda: box.execd("GET", f"/command/{command}/logs?cursor=0") == (200, b"mine\n"))
    assert box.execd("GET", f"/command/{command}/logs?cursor=1000000") == (200, b"") and box.execd("GET", f"/command/{command}/logs?cursor=-1")[0] == 400
    other = Box(box.service)
    assert other.execd("GET", f"/command/{command}/logs?cursor=0")[0] == 400 and other.execd("GET", f"/command/status/{command}")[0] == 404
    assert other.execd("DELETE", f"/command?id={command}")[0] == 500


def test_what_this_api_notes_of_a_sandbox_is_shown_by_no_other(service):
    box = Box(service, metadata={"team": "red"}, entrypoint=["sleep", "1000"])
    assert box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["entrypoint"] == ["sleep", "1000"]
    key = {"X-API-KEY": service.key}
    other = service.create() # by an API that has no entrypoint
    listed = box.ask("GET", "/v1/sandboxes")[1]["items"]
    assert {one["id"]: one["entrypoint"] for one in listed if one["id"] in (box.id, other)} == {box.id: ["sleep", "1000"], other: []}
    shown = [next(one for one in box.ask("GET", "/v2/sandboxes?metadata=team%3Dred", headers=key)[1] if one["sandboxID"] == box.id),
             box.ask("GET", f"/sandboxes/{box.id}", headers=key)[1]]
    assert [one["metadata"] for one in shown] == [{"team": "red"}] * 2
    assert box.ask("GET", "/v2/sandboxes?metadata=opensandbox.io%252Fimage%3Dbase", headers=key)[1] == []
    assert wait_until(lambda: box.ask("GET", f"/events/sandboxes/{box.id}", headers=key)[1])
    assert {json.dumps(e["eventData"]["sandbox_metadata"]) for e in box.ask("GET", f"/events/sandboxes/{box.id}", headers=key)[1]} == {'{"team": "red"}'}
    bare = Box(service)
    assert "metadata" not in box.ask("GET", f"/sandboxes/{bare.id}", headers=key)[1]


def test_a_policy_has_an_end(box):
    path, headers = box.endpoint(18080)
    rules = [{"action": "deny", "target": f"h{n}.example"} for n in range(1025)]
    assert box.ask("PATCH", f"{path}/policy", rules, headers)[0] == 413
    for body in (b"[", b"{}", b"[]", b"[7]", b'[{"action":"deny"}]', b'[{"action":"ask","target":"a.example"}]', b'[{"action":"deny","target":"a b"}]'):
        assert box.ask("PATCH", f"{path}/policy", body, headers)[0] == 400, body


def test_extensions_are_none_and_say_so(box):
    path, headers = box.endpoint(18080)
    assert box.ask("GET", f"{path}/capabilities", headers=headers) == (200, {"protocolVersion": "extensions.opensandbox.io/v1alpha1", "resources": []})
    nothing = {"revision": 0, "resources": [], "conditions": []}
    assert box.ask("GET", f"{path}/extensions", headers=headers) == (200, nothing)
    route = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "a"}, "spec": {}}
    for body, status in (({"resources": []}, 200), ({"resources": [], "expectedRevision": 0}, 200), ({"resources": [], "expectedRevision": 1}, 409),
                         ({"resources": [route]}, 422), ({"resources": {}}, 400)):
        got, answer = box.ask("PUT", f"{path}/extensions", body, headers)
        assert got == status and (got == 400 or "code" in answer or answer == nothing), (body, got, answer)
    assert box.ask("GET", f"{path}/capabilities", headers={})[0] == 401


def test_a_policy_that_changes_while_its_sandbox_goes(service):
    for _ in range(10):
        box = Box(service)
        path, headers = box.endpoint(18080)
        seen = []
        racer = threading.Thread(target=lambda box=box: seen.append(Box.ask(box, "DELETE", f"/v1/sandboxes/{box.id}", headers=box.key)[0]))
        asker = Asker(service)
        racer.start()
        for n in range(5):
            status, _ = asker.ask("PATCH", f"{path}/policy", [{"action": "allow", "target": f"a{n}.example"}], headers)
            assert status in (200, 404, 409, 503), status
        racer.join(60)
        assert seen == [204] and box.ask("GET", f"/v1/sandboxes/{box.id}")[0] == 404


class Asker(Box):
    """One who has no sandbox."""

    def __init__(self, service):
        self.service, self.key = service, {}
