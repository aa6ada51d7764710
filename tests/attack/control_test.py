# SPDX-License-Identifier: Apache-2.0
"""Who may ask for what, what is written down about it, and whether it can be forged. Section 11 (M..)."""

import base64
import json
import os
import subprocess
import sys
import time

import pytest
from anybody import PYTHON
from client import Sandbox
from rig import answers, must, raw, text
from service import wait_until

BAD_IDS = ("../../../etc/passwd", "..", ".", "a;rm -rf /", "--flag", "-rf", "i" * 10000, "i%00", "%2e%2e%2f", "i3k\nX-Injected: 1", "i3k\r\nX: 1", "$(id)",
           "*", "i*", "%", "'", '"',
           "i' OR '1'='1", "\u202ei3k", "i\x00", "/etc", "I" + "A" * 20)


def test_M01_a_sandbox_can_not_testify(sandbox, service):
    """What it says looks like an event; what is written down says that the sandbox said so."""
    forged = '{"seq":1,"kind":"sandbox.kill","grade":"observed-host","source":"host","actor":"root","hash":"00"}'
    must(sandbox, f"echo '{forged}'; echo '{forged}' >&2")
    events = service.client.events(sandbox.id)
    said = [e for e in events if "observed-host" in json.dumps(e["data"])]
    assert said and all(e["grade"].startswith("claim") and e["source"] == "agent" for e in said if e["kind"] == "exec.output"), said
    assert not [e for e in events if e["kind"] == "sandbox.kill"]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert not must(sandbox, "find / -xdev -type s 2>/dev/null; true", user="root").strip()


def test_M02_a_record_that_was_changed(sandbox, service):
    """By somebody who may write to the database: the first event that is not what it was is named."""
    for _ in range(5):
        must(sandbox, "echo evidence")
    assert service.client.verify(sandbox.id).json["intact"] is True
    assert service.cove("log", "--verify", sandbox.id).returncode == 0
    events = service.client.events(sandbox.id)
    seq = next(e["seq"] for e in events if "evidence" in json.dumps(e["data"]))
    database = service.state / "api" / "cove.db"
    change = lambda sql, *values: subprocess.run(
        [sys.executable, "-c", "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1],timeout=60)\nc.execute(sys.argv[2],sys.argv[3:])\nc.commit()", database,
         sql, *map(str, values)],
        check=True, timeout=60)
    log = "log = (SELECT log FROM event_heads WHERE sandbox = ?)"
    owner = database.stat()
    change(f"UPDATE events SET data = replace(data, 'evidence', 'nothing!') WHERE {log} AND seq = ?", sandbox.id, seq)
    verdict = service.client.verify(sandbox.id).json
    assert verdict["intact"] is False and str(seq) in json.dumps(verdict), verdict
    assert service.cove("log", "--verify", sandbox.id).returncode != 0
    change(f"UPDATE events SET data = replace(data, 'nothing!', 'evidence') WHERE {log} AND seq = ?", sandbox.id, seq)
    assert service.client.verify(sandbox.id).json["intact"] is True
    for sql in (f"UPDATE events SET time = time + 1 WHERE {log} AND seq = ?",
                f"UPDATE events SET grade = 'observed-host' WHERE {log} AND seq = ? AND grade <> 'observed-host'",
                f"DELETE FROM events WHERE {log} AND seq = ?"):
        change(sql, sandbox.id, seq)
    verdict = service.client.verify(sandbox.id).json
    assert verdict["intact"] is False, verdict
    for part in database.parent.glob("cove.db*"):
        os.chown(part, owner.st_uid, owner.st_gid) # as root we may have made a new one
    assert sandbox.works()


def test_M03_a_writer_that_is_killed_in_the_middle(make, service):
    """The worker dies by SIGKILL while it writes: what is there afterwards is a whole beginning."""
    box = make()
    with box.start("sh", "-c", "i=0; while :; do echo line $i; i=$((i+1)); done", timeout=60) as stream:
        stream.started()
        for _ in range(3):
            time.sleep(0.15)
            service.may_replace_worker = True
            old = service.child("cove-api")
            os.kill(old, 9)
            assert wait_until(lambda: service.child("cove-api") not in (None, old) and service.is_healthy()), service.tail()
    assert wait_until(lambda: service.client.verify(box.id).status == 200)
    assert service.client.verify(box.id).json["intact"] is True
    seqs = [e["seq"] for e in service.client.events(box.id)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert box.works()


@pytest.mark.parametrize("box", BAD_IDS)
def test_M09_ids(service, box):
    from urllib.parse import quote
    for target in (quote(box, safe=""), box if box.isascii() and box.isprintable() and " " not in box else quote(box)):
        for method, path in (("GET", "/sandboxes/%s"), ("DELETE", "/sandboxes/%s"), ("POST", "/sandboxes/%s/timeout"), ("GET", "/cove/v1/sandboxes/%s"),
                             ("GET", "/cove/v1/sandboxes/%s/events"),
                             ("DELETE", "/cove/v1/sandboxes/%s"), ("GET", "/cove/v1/sandboxes/%s/verify"), ("PUT", "/cove/v1/sandboxes/%s/files?path=x"),
                             ("GET", "/sandboxes/%s/logs")):
            answer = raw(service.port, f"{method} {path % target} HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: {service.key}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode(errors="replace"))
            status = int(answer.split(b" ")[1]) if answer.startswith(b"HTTP/1.1 ") else None
            assert status in (400, 404, 405, 414, 431) or (status in (200, 401) and box in (".", "..")), (path, answer[:200])
            assert b"X-Injected" not in answer.split(b"\r\n\r\n")[0]
    if "\0" not in box:
        for command in (("exec", box, "--", "true"), ("rm", box), ("log", box), ("logs", box), ("cp", f"{box}:x", "/dev/null")):
            done = service.cove(*command, timeout=60)
            assert done.returncode not in (0, -6, -11), (command, done)


def test_M09_header_and_host_as_ids(service, canary):
    for box in BAD_IDS:
        if not (box.isascii() and box.isprintable()):
            continue
        for head in (f"E2b-Sandbox-Id: {box}\r\nE2b-Sandbox-Port: 49983\r\nHost: localhost", f"Host: 49983-{box[:200]}.localhost", f"Host: {box[:200]}"):
            answer = raw(service.port, f"GET /files?path=/etc/passwd HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n".encode())
            assert not answer or int(answer.split(b" ")[1]) >= 400, (head, answer[:200])


def test_M10_text_of_others_in_the_record(sandbox, service):
    """Control characters in arguments, variables, tags, user names, paths: escaped where they are stored, harmless where they are shown."""
    evil = "\x1b]0;owned\x07\r\n\u2028{\"seq\":1}\n"
    with sandbox.start("echo", evil, tag="t\nag\x1b[2J", envs={"E": evil}) as stream:
        stream.rest()
    sandbox.request("GET", "/files?path=%1b%5b2J%0aforged&username=%0aroot")
    log = service.cove("log", "--json", sandbox.id)
    assert log.returncode == 0
    lines = log.stdout.strip().split("\n")
    events = [json.loads(line) for line in lines]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1)) and "\x1b" not in log.stdout and "\x07" not in log.stdout
    assert "\x1b" not in text(service.log.read_bytes()), "the service's own log has it"
    plain = service.cove("logs", sandbox.id)
    assert plain.returncode == 0


def test_M12_no_weaker_boundary_than_asked_for(service):
    """A tier that can't be had, and names of tiers that there are not: refused, by every way to ask."""
    before = len(service.client.list())
    there = str(service.request("POST", "/cove/v1/sandboxes", {"tier": "none"})[2]).partition("(available: ")[2].partition(")")[0].split(", ")
    assert "container" in there
    for tier in {"microvm", "gvisor", "process", "none", "", "host", "privileged", "container\0", "CONTAINER"} - set(there):
        status, _, body = service.request("POST", "/cove/v1/sandboxes", {"tier": tier})
        assert 400 <= status < 600, (tier, body)
        status, _, body = service.request("POST", "/cove/v1/sandboxes", {"template": "base", "isolation": tier})
        assert 400 <= status < 600, (tier, body)
    for option in ({"privileged": True}, {"network": "host"}, {"pid": "host"}, {"mounts": [{"source": "/", "target": "/host"}]},
                   {"capabilities": ["SYS_ADMIN"]},
                   {"volumes": ["/:/host"]}, {"user": "root", "userns": "host"}, {"devices": ["/dev/kvm"]}, {"seccomp": "unconfined"}):
        status, _, body = service.request("POST", "/cove/v1/sandboxes", option)
        assert 400 <= status < 500, (option, body)
    for template in ("../base", "base/../base", "/etc", "base\0x", "base\n", "x" * 5000, "microvm", "-", "~root"):
        assert service.client.control("POST", "/v2/sandboxes", {"templateID": template}).status in (400, 404), template
    for option in ({"volumeMounts": [{"name": "x", "path": "/"}]}, {"autoPause": True}):
        answer = service.client.control("POST", "/v2/sandboxes", {"templateID": "base", **option})
        assert answer.status in (400, 404, 501, 201), answer
        if answer.status == 201:
            service.client.control("DELETE", f"/sandboxes/{answer.json['sandboxID']}")
    assert len(service.client.list()) == before


def test_keys(service, sandbox):
    """Without the key, or with nearly the key, nothing that knows or does anything answers."""
    wrong = [None, "", "x", service.key[:-1], service.key + "x", service.key.upper(), service.key[:-1] + ("0" if service.key[-1] != "0" else "1"),
             " " + service.key + "x", service.key + "\0", "e2b_" + "0" * 40]
    targets = [("GET", "/sandboxes"), ("GET", "/v2/sandboxes"), ("POST", "/v2/sandboxes"), ("GET", f"/sandboxes/{sandbox.id}"),
               ("DELETE", f"/sandboxes/{sandbox.id}"),
               ("GET", "/cove/v1/sandboxes"), ("GET", f"/cove/v1/sandboxes/{sandbox.id}/events"), ("POST", "/cove/v1/sandboxes"), ("GET", "/cove/v1/info"),
               ("DELETE", f"/cove/v1/sandboxes/{sandbox.id}"),
               ("POST", f"/cove/v1/sandboxes/{sandbox.id}/exec"), ("GET", f"/cove/v1/sandboxes/{sandbox.id}/files?path=/etc/passwd")]
    for method, target in targets:
        for key in wrong:
            headers = "" if key is None else f"X-API-KEY: {key}\r\n"
            answer = raw(service.port, f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            assert not answer or answer.split(b" ")[1] in (b"401", b"403", b"400"), (method, target, key, answer[:200])
        two = raw(service.port, f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: wrong\r\nX-API-KEY: {service.key}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        assert two.split(b" ")[1] in (b"401", b"403", b"400"), (method, target, two[:200])
    assert sandbox.works()


def test_tokens_are_of_one_sandbox(pair, service):
    """The token of one sandbox opens no other, nor does none, a piece of one, or the service's key."""
    one, other = pair
    for token in (one.token, "", other.token[:-1], other.token + "0", service.key, other.token.upper() if other.token.upper() != other.token else "x"):
        thief = Sandbox(service.client, other.id, token)
        assert thief.request("GET", "/files?path=/etc/passwd").status in (401, 403), token
        assert thief.unary("process.Process/List", {}).status in (401, 403), token
        assert thief.unary("filesystem.Filesystem/Remove", {"path": "/home/user"}).status in (401, 403), token
        with pytest.raises(AssertionError):
            thief.start("true")
    for path in ("/files?path=/etc/passwd&signature=v1_x&signature_expiration=99999999999", "/files?path=/etc/passwd&signature=",
                 "/files?path=/etc/passwd&username=root&signature=v1_"):
        answer = service.client.request("GET", path, None, {"E2b-Sandbox-Id": other.id, "E2b-Sandbox-Port": "49983"})
        assert answer.status in (400, 401, 403), answer
    assert one.works() and other.works()


def test_the_unix_socket_knows_who_asks(service, sandbox):
    """Over it no key is needed, by whom it belongs to; others of the host get nothing."""
    code = ("import socket,sys\ns=socket.socket(1)\ns.connect(sys.argv[1])\ns.sendall(b'GET /cove/v1/sandboxes HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n"
            "d=b''\nwhile True:\n p=s.recv(65536)\n if not p: break\n d+=p\nsys.stdout.buffer.write(d)")
    done = subprocess.run([PYTHON, "-c", code, str(service.run / "cove.sock")], user=65534, group=65534, extra_groups=[], capture_output=True,
                          timeout=60, check=False)
    assert sandbox.id.encode() not in done.stdout and b" 200 " not in done.stdout.split(b"\r\n")[0], done
    assert sandbox.id in [s["id"] for s in service.sandboxes()]


def test_files_of_the_service(service):
    """Key, database and pool are closed to other users of the host."""
    for path in (service.state / "key", service.state / "api" / "cove.db", service.state / "pool"):
        done = subprocess.run(["ls" if path.is_dir() else "cat", path], user=65534, group=65534, extra_groups=[], capture_output=True, check=False)
        assert done.returncode != 0, path
    for pid in (service.coved.pid, service.coved_pid, service.child("cove-api")):
        for name in ("environ", "mem", "maps", "fd"):
            done = subprocess.run(["ls" if name == "fd" else "cat", f"/proc/{pid}/{name}"], user=65534, group=65534, extra_groups=[], capture_output=True,
                                  check=False)
            assert done.returncode != 0, (pid, name)
        command = open(f"/proc/{pid}/cmdline", "rb").read()
        assert service.key.encode() not in command
    assert service.key not in service.log.read_text(errors="replace"), "the key is in the log"


def test_the_key_is_not_inside(sandbox, service):
    """Neither the service's key nor another sandbox's token is anywhere that a sandbox can look."""
    other = service.client.create()
    # Backwards, so that what looks for them is not what is found.
    needles = [secret[4:24][::-1] for secret in (service.key, other.token)]
    found = must(sandbox, f"""python3 - {' '.join(needles)} <<'END'
import glob, os, sys
needles = [n[::-1].encode() for n in sys.argv[1:]]
files = glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline')
for top in ('/run', '/etc', '/home', '/root', '/tmp', '/dev/shm', '/var/tmp', '/opt', '/srv', '/mnt'):
    files += [os.path.join(d, n) for d, _, names in os.walk(top) for n in names]
for path in files:
    try:
        data = open(path, 'rb').read(1 << 20)
    except OSError:
        continue
    if any(n in data for n in needles):
        print(path)
print(len(files) > 100)
END""", user="root")
    assert found.split() == ["True"], found


def test_answers_stay_with_their_asker(pair):
    """Two sandboxes used at once over many connections never see each other's output."""
    import threading
    errors = []

    def go(box, mark):
        for _ in range(30):
            code, out, _ = box.sh(f"echo {mark}; head -c 2000 /dev/zero | tr '\\0' {mark[0]}; cat /proc/sys/kernel/hostname")
            if code or not out.startswith(mark.encode()) or out.count(mark[0].encode()) < 2000:
                errors.append(out[:100])

    threads = [threading.Thread(target=go, args=(box, mark)) for box, mark in zip(pair * 2, ("aaaa", "bbbb", "cccc", "dddd"))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[:3]
    assert all(answers(box) < 5 for box in pair)


@pytest.fixture
def open_one(service, make):
    """A sandbox that was asked for without a token, as `cove run --open` does, the only one there is."""
    service.remove_all()
    made = Sandbox(service.client, service.create(secure=False), "")
    must(made, "echo mine > /home/user/file")
    yield made
    made.kill()


def test_files_want_a_key_even_when_one_sandbox_is_there(open_one, service):
    """Without an id nobody is meant: no key, no token, no signature, no file."""
    ask = service.client.request
    for host in ("localhost", "127.0.0.1", f"127.0.0.1:{service.port}", "sandbox.localhost", "x.test"):
        for method, body in (("GET", None), ("POST", b"--x--"), ("HEAD", None)):
            headers = {"Host": host, "Content-Type": "multipart/form-data; boundary=x"}
            assert ask(method, "/files?path=/home/user/file&username=root", body, headers).status == 401, (host, method)
    assert ask("GET", "/files?path=/home/user/file", None, {"X-API-KEY": service.key + "x"}).status == 401
    answer = ask("GET", "/files?path=/home/user/file", None, {"X-API-KEY": service.key})
    assert (answer.status, answer.body) == (200, b"mine\n")
    page = open_one.headers({"Sec-Fetch-Site": "same-site"})
    assert ask("POST", "/process.Process/List", {}, page).status == 403
    page = open_one.headers({"Sec-Fetch-Site": "cross-site"})
    assert ask("GET", "/files?path=/home/user/file", None, page).status == 403
    assert ask("POST", "/process.Process/List", {}, page).status == 403
    # To a name that is none of ours, over plain HTTP, browsers send no Sec-Fetch-Site.
    for host, origin in (("rebound.test", "http://rebound.test"), (f"49983-{open_one.id}.rebound.test", f"http://49983-{open_one.id}.rebound.test"),
                         ("localhost", "http://a.test"), ("localhost", "null")):
        page = open_one.headers({"Host": host, "Origin": origin})
        assert ask("POST", "/process.Process/List", {}, page).status == 403, (host, origin)
    page = open_one.headers({"Host": "localhost", "Origin": "http://localhost:3000"})
    assert ask("POST", "/process.Process/List", {}, page).status == 200


def test_the_id_alone_opens_nothing(service, make):
    """However it was made: by our own API, by E2B's of either version. Only who asks for it gets an open one, and 'cove ls' says so."""
    made = [service.create(), make().id]
    for path in ("/sandboxes", "/v2/sandboxes"):
        made.append(service.client.control("POST", path, {"templateID": "base"}).json["sandboxID"])
    for sandbox_id in made:
        thief = Sandbox(service.client, sandbox_id, "")
        assert thief.request("GET", "/files?path=/etc/passwd").status == 401, sandbox_id
        assert thief.unary("process.Process/List", {}).status == 401, sandbox_id
    assert "open" not in service.cove("ls").stdout
    opened = service.client.control("POST", "/sandboxes", {"templateID": "base", "secure": False}).json["sandboxID"]
    assert [line for line in service.cove("ls").stdout.splitlines() if "running, open" in line][0].startswith(opened)
    assert Sandbox(service.client, opened, "").unary("process.Process/List", {}).status == 200


def test_the_name_of_a_port_opens_ports_alone(service, make):
    sandbox = make()
    must(sandbox, "cd /tmp && echo page > index.html && (setsid python3 -m http.server 8000 >/dev/null 2>&1 &) ; for i in $(seq 100); do"
                  " (echo > /dev/tcp/127.0.0.1/8000) 2>/dev/null && break; sleep 0.1; done")
    url = service.cove("url", sandbox.id, "8000").stdout.strip()
    name = url.removeprefix("http://").split("/")[0]
    alias = name.split(".")[0].removeprefix("8000-")
    assert sandbox.id not in url and alias != sandbox.id
    answer = service.client.request("GET", "/index.html", None, {"Host": name})
    assert (answer.status, answer.body) == (200, b"page\n")
    for headers in ({"Host": name.replace("8000-", "49983-", 1)}, {"E2b-Sandbox-Id": alias, "E2b-Sandbox-Port": "49983"}):
        for token in (sandbox.token, ""):
            answer = service.client.request("GET", "/files?path=/etc/passwd", None, {**headers, "X-Access-Token": token})
            assert answer.status == 502 and sandbox.id.encode() not in answer.body, answer
    answer = service.client.request("GET", "/", None, {"Host": name.replace("8000-", "9-", 1)})
    assert answer.status == 502 and sandbox.id.encode() not in answer.body, answer
    assert service.client.get(alias).status == 404
    assert service.request("GET", f"/cove/v1/sandboxes/{alias}")[0] == 404


def test_a_program_behind_a_port_gets_no_token(service, make):
    sandbox = make()
    server = ("import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n def do_GET(self):\n  self.send_response(200); self.end_headers();"
              " self.wfile.write(str(self.headers).encode())\nhttp.server.HTTPServer(('127.0.0.1', 8001), H).serve_forever()")
    sandbox.start("python3", "-c", server).started()
    headers = {"X-API-KEY": service.key, "Authorization": f"Bearer {service.key}", "E2b-Traffic-Access-Token": "t", "E2b-Sandbox-Port": "8001"}
    seen = sandbox.request("GET", "/", None, headers).body.decode()
    assert "e2b-sandbox-id" in seen.lower(), seen
    assert sandbox.token not in seen and service.key not in seen, seen
    for more in ({"Authorization": f"Token {service.key}"}, {"Authorization": service.key}, {"Cookie": f"k={service.key}; t={sandbox.token}"},
                 {"X_API_KEY": service.key, "X_Access_Token": f"{sandbox.token}, {sandbox.token}"}, {"Proxy-Authorization": f"Bearer {service.key}"},
                 {"Referer": f"http://x/?t={sandbox.token}&y"}, {"X-Other": f"[{service.key}]"}):
        seen = sandbox.request("GET", "/", None, {**headers, **more}).body.decode()
        assert sandbox.token not in seen and service.key not in seen, (more, seen)
    hidden, own = (base64.b64encode(f"x:{word}".encode()).decode() for word in (service.key, "mine"))
    assert hidden not in sandbox.request("GET", "/", None, {**headers, "Authorization": f"Basic {hidden}"}).body.decode()
    assert own in sandbox.request("GET", "/", None, {**headers, "Authorization": f"Basic {own}"}).body.decode()
    twice = (f"GET / HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {sandbox.id}\r\nE2b-Sandbox-Port: 8001\r\n" + f"X-Access-Token: {'a' * 40}\r\n" * 3
             + f"Authorization: Bearer {service.key}\r\nX-Access-Token: {sandbox.token}\r\nConnection: close\r\n\r\n").encode()
    seen = raw(service.port, twice).decode()
    assert " 200 " in seen.splitlines()[0] and sandbox.token not in seen and service.key not in seen, seen
    seen = sandbox.request("GET", "/", None, {**headers, "X-Access-Token": "da39a3ee5e6b4b0d3255bfef95601890afd80709"}).body.decode()
    assert "da39a3ee5e6b4b0d3255bfef95601890afd80709" in seen
    seen = sandbox.request("GET", "/", None, {**headers, "X-Access-Token": "eyJhbGciOiJIUzI1NiJ9.e30.sig"}).body.decode()
    assert "eyJhbGciOiJIUzI1NiJ9.e30.sig" in seen, "a program's own token is its own"
