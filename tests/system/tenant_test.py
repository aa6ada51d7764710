# SPDX-License-Identifier: Apache-2.0
"""Keys and tenants, from the command line that makes them to the requests they are for."""

import contextlib
import http.client
import json
import os
import re
import select
import socket
import subprocess

import pytest
from leaks import own_service
from service import opened, read, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a service of its own needs root")


@pytest.fixture(scope="module")
def service():
    with own_service("tenants") as service:
        yield service


def ran(service, *arguments, **options):
    done = service.cove(*arguments, **options)
    assert done.returncode == 0, done
    return done.stdout.strip()


def refused(service, *arguments, status=1):
    done = service.cove(*arguments)
    assert done.returncode == status, done
    return done.stderr


def ask(service, key, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {"x-api-key": key, "content-type": "application/json", **headers})
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else None
    finally:
        connection.close()


def test_a_key_works_at_once_and_until_it_is_revoked(service):
    key = ran(service, "key", "create", "--name", "ci", "--scope", "use")
    assert key.startswith("e2b_") and len(key) == 44 and key != service.key
    assert ask(service, key, "GET", "/v2/sandboxes")[0] == 200
    assert ask(service, key, "GET", "/cove/v1/keys")[0] == 403
    assert "ci" in ran(service, "key", "ls") and key not in ran(service, "key", "ls", "--json")
    second = ran(service, "key", "rotate", "ci", "--grace", "1h")
    assert ask(service, key, "GET", "/v2/sandboxes")[0] == ask(service, second, "GET", "/v2/sandboxes")[0] == 200
    third = ran(service, "key", "rotate", "ci", "--grace", "0")
    assert ask(service, second, "GET", "/v2/sandboxes")[0] == 401
    assert "the key 'ci' already exists" in refused(service, "key", "create", "--name", "ci")
    assert ran(service, "key", "revoke", "ci") == "ci"
    assert ask(service, third, "GET", "/v2/sandboxes")[0] == 401
    assert ask(service, service.key, "GET", "/v2/sandboxes")[0] == 200
    assert "there is no key 'ci'" in refused(service, "key", "revoke", "ci")
    stored = list(service.state.glob("**/cove.db*"))
    assert stored and not any(word.encode() in path.read_bytes() for path in stored for word in (key, second, third))


def test_a_key_for_one_sandbox(service):
    one, other = service.create(), service.create()
    key = ran(service, "key", "create", "--name", "one", "--sandbox", one)
    assert ask(service, key, "GET", f"/cove/v1/sandboxes/{one}")[0] == 200
    assert ask(service, key, "GET", f"/cove/v1/sandboxes/{other}")[0] == 404
    for method, path in (("GET", "/v2/sandboxes"), ("POST", "/v2/sandboxes"), ("POST", f"/sandboxes/{one}/fork"), ("GET", "/cove/v1/templates")):
        assert ask(service, key, method, path, {} if method == "POST" else None)[0] == 403, path
    ran(service, "key", "revoke", "one")
    service.remove_all()


def test_a_limit_of_a_few_bytes_lacks_its_unit(service):
    for flag in ("memory", "disk"):
        assert f"--{flag} 32: a number alone counts bytes" in refused(service, "tenant", "create", "tiny", f"--{flag}", "32", status=2)
    ran(service, "tenant", "create", "tiny", "--memory", "0", "--disk", "1GiB")
    ran(service, "tenant", "rm", "tiny")


def test_two_tenants(service):
    for name in ("acme", "umbrella"):
        assert ran(service, "tenant", "create", name) == name
    acme, umbrella = (ran(service, "key", "create", "--tenant", name, "--name", "admin", "--scope", "admin") for name in ("acme", "umbrella"))
    status, sandbox = ask(service, acme, "POST", "/v2/sandboxes", {"templateID": "base"})
    assert status == 201
    box = sandbox["sandboxID"]
    assert ask(service, umbrella, "GET", f"/sandboxes/{box}") == (404, {"code": 404, "message": f'Sandbox "{box}" doesn\'t exist or you don\'t have access to it'})
    assert ask(service, umbrella, "GET", f"/cove/v1/sandboxes/{box}/events")[0] == 404
    assert [s["sandboxID"] for s in ask(service, acme, "GET", "/v2/sandboxes")[1]] == [box] and ask(service, umbrella, "GET", "/v2/sandboxes")[1] == []
    assert ask(service, acme, "GET", "/cove/v1/tenants")[0] == 403

    # The command line of the machine sees all, or one.
    assert ran(service, "ls", "-q") == box == ran(service, "ls", "-q", "--tenant", "acme")
    assert ran(service, "ls", "-q", "--tenant", "umbrella") == "" == ran(service, "ls", "-q", env={"COVE_TENANT": "umbrella"})
    assert json.loads(ran(service, "ls", "--json"))[0]["tenant"] == "acme"
    assert "no sandbox" in refused(service, "exec", "--tenant", "umbrella", box, "true", status=125)
    assert ran(service, "exec", box, "--", "echo", "hi") == "hi" == ran(service, "exec", "--tenant", "acme", box, "--", "echo", "hi")
    assert "there is no tenant 'nobody'" in refused(service, "ls", "--tenant", "nobody")
    assert ask(service, service.key, "GET", "/cove/v1/sandboxes", **{"x-cove-tenant": "acme"})[0] == 403
    assert ask(service, service.key, "GET", f"/sandboxes/{box}")[0] == 404 # the default tenant's key

    # The same name is two volumes; what is dropped leaves its log to its owner alone.
    volumes = [ask(service, key, "POST", "/volumes", {"name": "data"})[1]["volumeID"] for key in (acme, umbrella)]
    assert volumes[0] != volumes[1]
    assert ask(service, acme, "DELETE", f"/volumes/{volumes[0]}")[0] == 204
    assert ask(service, umbrella, "GET", f"/cove/v1/sandboxes/{volumes[0]}/verify")[0] == 404
    assert ask(service, service.key, "GET", f"/cove/v1/sandboxes/{volumes[0]}/verify")[0] == 404
    assert ask(service, acme, "GET", f"/cove/v1/sandboxes/{volumes[0]}/verify")[0] == 200

    ran(service, "secret", "set", "TOKEN", "--tenant", "acme", input="one")
    ran(service, "secret", "set", "TOKEN", input="two")
    assert ran(service, "secret", "ls", "--tenant", "acme").split("\n")[1].startswith("TOKEN")
    assert "NAME" not in ran(service, "secret", "ls", "--tenant", "umbrella", "--json") and ran(service, "secret", "ls", "--tenant", "umbrella", "--json") == "[]"
    assert "there is no secret TOKEN" in refused(service, "run", "--tenant", "umbrella", "--secret", "TOKEN=a.test", "--", "true", status=2)
    ran(service, "secret", "rm", "TOKEN", "--tenant", "acme")
    ran(service, "secret", "rm", "TOKEN")

    # Another worker knows all of it.
    worker = service.child("cove-api")
    os.kill(worker, 9)
    assert wait_until(lambda: service.child("cove-api") not in (None, worker) and service.is_healthy())
    assert ask(service, acme, "GET", f"/sandboxes/{box}")[0] == 200
    assert ask(service, umbrella, "GET", f"/sandboxes/{box}")[0] == 404

    refusal = refused(service, "tenant", "rm", "acme")
    assert "tenant 'acme' has 1 sandboxes, 0 volumes and 0 templates" in refusal
    assert ask(service, acme, "DELETE", f"/sandboxes/{box}")[0] == 204
    assert ask(service, umbrella, "DELETE", f"/volumes/{volumes[1]}")[0] == 204
    assert ran(service, "tenant", "rm", "acme", "umbrella").split() == ["acme", "umbrella"]
    assert ask(service, acme, "GET", "/v2/sandboxes")[0] == 401
    assert [t["name"] for t in json.loads(ran(service, "tenant", "ls", "--json"))] == ["default"]


def test_a_tenant_s_own_log(service):
    """What it does that concerns no sandbox is on record apart from what others do, for its administrators and for the operator."""
    ran(service, "tenant", "create", "noted")
    keys = {scope: ran(service, "key", "create", "--tenant", "noted", "--name", scope, "--scope", scope) for scope in ("use", "admin")}
    assert ask(service, keys["use"], "POST", "/templates/tags", {"target": "no-such", "tags": ["of-noted"]})[0] == 404
    assert ask(service, keys["use"], "GET", "/cove/v1/service/verify")[0] == 403
    assert ask(service, keys["admin"], "GET", "/cove/v1/service/verify")[1]["intact"]
    assert "of-noted" in ran(service, "log", "--service", "--tenant", "noted")
    assert ran(service, "log", "--verify", "--service", "--tenant", "noted").startswith("intact: ")
    assert "of-noted" not in ran(service, "log", "--service")
    ran(service, "tenant", "rm", "noted")


def test_limits(service):
    ran(service, "tenant", "create", "small", "--sandboxes", "1", "--memory", "1GiB", "--creates", "5")
    key = ran(service, "key", "create", "--tenant", "small", "--name", "k")
    status, box = ask(service, key, "POST", "/v2/sandboxes", {"templateID": "base"})
    assert status == 201
    status, told = ask(service, key, "POST", "/v2/sandboxes", {"templateID": "base"})
    assert status == 429 and "limit is 1 sandboxes" in told["message"]
    assert "your tenant's limit is 1 sandboxes" in refused(service, "run", "--tenant", "small", "--", "true", status=125)
    shown = json.loads(ran(service, "tenant", "show", "small", "--json"))
    assert shown["limits"]["sandboxes"] == shown["used"]["sandboxes"] == 1 and shown["limits"]["memory_bytes"] == 1 << 30
    told = ran(service, "tenant", "show", "small")
    assert "1 of 1" in told and "5 a minute" in told, told
    assert ask(service, key, "DELETE", f"/sandboxes/{box['sandboxID']}")[0] == 204
    assert ask(service, key, "POST", "/cove/v1/sandboxes", {"memory_bytes": 2 << 30})[0] == 403
    ran(service, "tenant", "set", "small", "--sandboxes", "0")
    made = [ask(service, key, "POST", "/v2/sandboxes", {"templateID": "base"})[0] for _ in range(6)]
    assert made.count(201) <= 5 and made[-1] == 429 # five in a minute, of which one was before, or memory
    ran(service, "tenant", "set", "small", "--memory", "0", "--creates", "0", "--disk", "1GiB")
    assert "set a size (of a sandbox: --disk or 'defaults.disk'" in refused(service, "volume", "create", "endless", "--tenant", "small")
    ran(service, "tenant", "set", "small", "--disk", "0")
    assert ask(service, key, "POST", "/v2/sandboxes", {"templateID": "base"})[0] == 201
    for box in ran(service, "ls", "-q", "--tenant", "small").split():
        ran(service, "rm", box)
    ran(service, "tenant", "rm", "small")


def test_bad_words_are_refused(service):
    for arguments in (("key", "create"), ("key", "create", "--name", "a", "b"), ("key", "rotate"), ("key", "revoke"), ("key", "nothing"), ("tenant",),
                      ("key", "create", "--name", "a", "--expires", "soon"), ("key", "ls", "--name", "a"), ("tenant", "create"), ("tenant", "set", "default"),
                      ("tenant", "set", "default", "--memory", "much"), ("tenant", "set", "default", "--cpus", "-1"), ("tenant", "ls", "x"), ("tenant", "nothing")):
        refused(service, *arguments, status=2)
    for arguments in (("key", "create", "--name", "a b"), ("key", "create", "--name", "a", "--scope", "all"), ("key", "create", "--name", "key-x"),
                      ("key", "create", "--name", "a", "--sandbox", "i0000"), ("tenant", "create", "A"), ("tenant", "create", "a/b"), ("tenant", "rm", "default"),
                      ("tenant", "show", "../keys"), ("key", "rotate", "../../x"), ("tenant", "create", "x" * 64)):
        refused(service, *arguments)
    for path, body in (("/cove/v1/keys", {"name": 1}), ("/cove/v1/keys", {"name": "a", "expires_ms": -1}), ("/cove/v1/keys", {"name": "a", "more": 1}), ("/cove/v1/keys", {}),
                       ("/cove/v1/keys", {"name": "a", "scope": "operator"}), ("/cove/v1/keys", {"name": "a\x00b"}), ("/cove/v1/tenants", {"name": "a", "sandboxes": "1"}),
                       ("/cove/v1/tenants", {"name": ""}), ("/cove/v1/tenants", {"name": "a", "nothing": 1}), ("/cove/v1/tenants", [])):
        assert service.request("POST", path, body)[0] == 400, (path, body)
    for key in ("", "e2b_", "x" * 5000, "e2b_" + "0" * 40, service.key[:-1], service.key + "0", "Bearer " + service.key):
        assert ask(service, key, "GET", "/v2/sandboxes")[0] == 401, key
    assert json.loads(ran(service, "key", "ls", "--json")) == [] and [t["name"] for t in json.loads(ran(service, "tenant", "ls", "--json"))] == ["default"]


def test_a_tenant_s_names_are_not_the_machine_s(service, tmp_path):
    """What `cove docker` and `cove env` go by is metadata, which every tenant gives its sandboxes as it likes."""
    ran(service, "tenant", "create", "squatter")
    key = ran(service, "key", "create", "--tenant", "squatter", "--name", "k")
    made = [ask(service, key, "POST", "/cove/v1/sandboxes", {"template": "base", "metadata": metadata})[1]["id"] for metadata in (
        {"docker.image": "base", "docker.name": "web"}, {"cove.repo": str(tmp_path), "cove.env": "fix"})]
    assert "No such container: web" in refused(service, "docker", "exec", "web", "true")
    assert "No such container" in refused(service, "docker", "rm", "-f", made[0][:8])
    assert ran(service, "docker", "ps", "-aq") == ""
    assert ran(service, "docker", "ps", "-aq", env={"COVE_TENANT": "squatter"}) == made[0]
    assert ran(service, "docker", "exec", "web", "echo", "hi", env={"COVE_TENANT": "squatter"}) == "hi"
    for words in ("init -q", "-c user.name=a -c user.email=a@b.test commit -q --allow-empty -m x", "update-ref refs/cove/base/fix HEAD", "update-ref refs/heads/cove/fix HEAD"):
        subprocess.run(["git", "-C", tmp_path, *words.split()], check=True, timeout=60)
    assert json.loads(ran(service, "env", "ls", "--json", cwd=tmp_path))[0]["sandbox"] is None
    assert json.loads(ran(service, "env", "ls", "--json", cwd=tmp_path, env={"COVE_TENANT": "squatter"}))[0]["sandbox"] == made[1]
    assert sorted(ran(service, "ls", "-q").split()) == sorted(made) # of all, as before
    for box in made:
        assert ask(service, key, "DELETE", f"/sandboxes/{box}")[0] == 204
    assert wait_until(lambda: {one["id"] for one in ask(service, key, "GET", "/cove/v1/sandboxes?state=ended")[1]["sandboxes"]} == set(made))
    assert set(made) <= set(ran(service, "ls", "--all", "-q").split())
    ran(service, "tenant", "create", "curious")
    other = ran(service, "key", "create", "--tenant", "curious", "--name", "k", "--scope", "read")
    assert ask(service, other, "GET", "/cove/v1/sandboxes?state=ended")[1]["sandboxes"] == []
    ran(service, "tenant", "rm", "squatter", "curious")


def half_sent(service, key, n_bytes):
    """A request for code to run, without its last byte."""
    s = socket.create_connection(("127.0.0.1", service.port), timeout=60)
    s.sendall(f"POST /run_code HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n"
              f"Content-Length: {n_bytes + 1}\r\n\r\n".encode())
    with contextlib.suppress(OSError): # it may be answered by now
        s.sendall(bytes(n_bytes))
    return s


def test_what_a_tenant_s_requests_hold_is_bounded(service):
    """Bodies that don't end, however many connections they come by, leave room for others' and for the service."""
    for name in ("greedy", "modest"):
        ran(service, "tenant", "create", name)
    greedy, modest = (ran(service, "key", "create", "--tenant", name, "--name", "k") for name in ("greedy", "modest"))
    mib, worker = 1 << 20, service.child("cove-api")
    before = int(re.search(r"VmRSS:\s+(\d+)", read(f"/proc/{worker}/status"))[1])
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(half_sent(service, greedy, 15 * mib)) for _ in range(20)]
        answered = [s for s in held if select.select([s], [], [], 0.2)[0]]
        assert 2 < len(answered) < 6 and answered[0].recv(100).startswith(b"HTTP/1.1 429 "), len(answered)
        grown = int(re.search(r"VmRSS:\s+(\d+)", read(f"/proc/{worker}/status"))[1]) - before
        assert 200 * 1024 < grown < 320 * 1024, grown
        theirs = stack.enter_context(half_sent(service, modest, 15 * mib))
        theirs.sendall(b"}")
        assert theirs.recv(100).startswith(b"HTTP/1.1 400 ") # all of it was read, and is no JSON
    wait_until(lambda: ask(service, greedy, "GET", "/v2/sandboxes")[0] == 200)
    with half_sent(service, greedy, 15 * mib) as s:
        assert not select.select([s], [], [], 0.5)[0]
        s.sendall(b"}")
        assert s.recv(100).startswith(b"HTTP/1.1 400 ")
    assert service.child("cove-api") == worker
    ran(service, "tenant", "rm", "greedy", "modest")


def test_what_a_tenant_does_not_read_is_bounded(service):
    """Answers of five megabytes, which wait for as long as their client takes a byte now and then."""
    for name in ("hoarder", "reader"):
        ran(service, "tenant", "create", name)
    hoarder, reader = (ran(service, "key", "create", "--tenant", name, "--name", "k") for name in ("hoarder", "reader"))
    metadata = {f"k{i}": "x" * 1200 for i in range(100)}
    boxes = [ask(service, hoarder, "POST", "/v2/sandboxes", {"templateID": "base", "metadata": metadata})[1]["sandboxID"] for _ in range(40)]

    def asked():
        s = stack.enter_context(socket.socket())
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(20)
        s.connect(("127.0.0.1", service.port))
        s.sendall(f"GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {hoarder}\r\n\r\n".encode())
        return s.recv(12)

    with contextlib.ExitStack() as stack:
        seen = [asked() for _ in range(80)]
        assert 40 < seen.count(b"HTTP/1.1 200") < 70 and set(seen) == {b"HTTP/1.1 200", b"HTTP/1.1 429"}, seen
        assert ask(service, reader, "GET", "/v2/sandboxes") == (200, [])
    assert wait_until(lambda: ask(service, hoarder, "GET", "/v2/sandboxes")[0] == 200)
    for box in boxes:
        assert ask(service, hoarder, "DELETE", f"/sandboxes/{box}")[0] == 204
    ran(service, "tenant", "rm", "hoarder", "reader")


def test_what_a_tenant_s_streams_hold_is_bounded(service):
    """Lists of four megabytes, which come whether or not their client reads."""
    for name in ("hoarder", "reader"):
        ran(service, "tenant", "create", name)
    hoarder, reader = (ran(service, "key", "create", "--tenant", name, "--name", "k") for name in ("hoarder", "reader"))
    box = ask(service, hoarder, "POST", "/v2/sandboxes", {"templateID": "base"})[1]["sandboxID"]
    ran(service, "exec", box, "--", "sh", "-c", "mkdir /tmp/many; cd /tmp/many; seq -f %0100.0f 10000 | xargs touch")

    def listed():
        s = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=20))
        s.sendall(f"GET /cove/v1/sandboxes/{box}/entries?path=/tmp/many HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {hoarder}\r\n\r\n".encode())
        return s

    with contextlib.ExitStack() as stack:
        for _ in range(100): # of bodies it has all that it may have, but for 15 MiB
            if select.select([stack.enter_context(half_sent(service, hoarder, 15 << 20))], [], [], 0.2)[0]:
                break
        worker = service.child("cove-api")
        others = len(opened(worker))
        assert {listed().recv(12) for _ in range(16)} == {b"HTTP/1.1 200"}
        assert wait_until(lambda: len(opened(worker)) <= others + 8)
        assert ask(service, reader, "GET", "/v2/sandboxes") == (200, [])
    with contextlib.ExitStack() as stack: # all of that was given back
        s, last = listed(), b""
        while not last.endswith(b"\r\n0\r\n\r\n"):
            data = s.recv(1 << 20)
            assert data, "cut"
            last = (last + data)[-7:]
    assert ask(service, hoarder, "DELETE", f"/sandboxes/{box}")[0] == 204
    ran(service, "tenant", "rm", "hoarder", "reader")


def test_a_tenant_does_not_take_all_feeds(service):
    """Each of them is woken by each event of everybody."""
    for name in ("all-ears", "one-ear"):
        ran(service, "tenant", "create", name)
    greedy, modest = (ran(service, "key", "create", "--tenant", name, "--name", "k", "--scope", "read") for name in ("all-ears", "one-ear"))

    def feed(key):
        s = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=60))
        s.sendall(f"GET /cove/v1/events?follow=true&last=0 HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {key}\r\n\r\n".encode())
        return s.recv(12)

    with contextlib.ExitStack() as stack:
        assert [feed(greedy) for _ in range(129)] == [b"HTTP/1.1 200"] * 128 + [b"HTTP/1.1 429"]
        assert feed(modest) == b"HTTP/1.1 200"
    with contextlib.ExitStack() as stack:
        assert wait_until(lambda: feed(greedy) == b"HTTP/1.1 200")
    ran(service, "tenant", "rm", "all-ears", "one-ear")


def test_a_tenant_does_not_take_all_verifications(service):
    """They go on without their client, so whoever asks and leaves could make others wait as long as it likes."""
    ran(service, "tenant", "create", "doubter")
    doubter = ran(service, "key", "create", "--tenant", "doubter", "--name", "k")
    box = ask(service, doubter, "POST", "/v2/sandboxes", {"templateID": "base"})[1]["sandboxID"]
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    for i in range(2000): # a log that takes some time
        connection.request("POST", f"/cove/v1/sandboxes/{box}/timeout", json.dumps({"timeout_ms": 100000 + i}), {"x-api-key": doubter, "content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    connection.close()
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=60)) for _ in range(200)]
        for s in asked:
            s.sendall(f"GET /cove/v1/sandboxes/{box}/verify HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {doubter}\r\n\r\n".encode())
        seen = [s.recv(12) for s in asked]
    assert set(seen) == {b"HTTP/1.1 200", b"HTTP/1.1 429"} and seen.count(b"HTTP/1.1 200") >= 16, seen
    assert ask(service, doubter, "GET", f"/cove/v1/sandboxes/{box}/verify")[1]["intact"] # there is room again
    assert ask(service, doubter, "DELETE", f"/sandboxes/{box}")[0] == 204
    ran(service, "tenant", "rm", "doubter")


def test_an_operator_sees_the_environments_of_all_tenants(service, tmp_path):
    """By the sandbox that was made here for it, not by what labels say."""
    ran(service, "tenant", "create", "acme")
    acme = {"COVE_TENANT": "acme"}
    for words in ("init -q", "config user.name a", "config user.email a@b.test", "commit -q --allow-empty -m x"):
        subprocess.run(["git", "-C", tmp_path, *words.split()], check=True, timeout=60)
    made = json.loads(ran(service, "env", "create", "fix", "--json", cwd=tmp_path, env=acme))["sandbox"]
    listed = lambda env: [(one["sandbox"], one["state"]) for one in json.loads(ran(service, "env", "ls", "--json", cwd=tmp_path, env=env))]
    assert listed(acme) == listed({}) == [(made, "running")]
    assert "there is an environment fix" in service.cove("env", "create", "fix", cwd=tmp_path).stderr
    assert ran(service, "env", "run", "fix", "--", "pwd", cwd=tmp_path) == str(tmp_path)
    ran(service, "env", "abort", "fix", cwd=tmp_path)
    assert ran(service, "ls", "-q") == ""
    left = subprocess.run(["git", "-C", tmp_path, "for-each-ref", "refs/cove", "refs/heads/cove"], check=True, capture_output=True, text=True, timeout=60)
    assert left.stdout == ""
    for kept in ran(service, "snapshot", "ls", "-q", "--tenant", "acme").split():
        ran(service, "snapshot", "rm", kept, "--tenant", "acme")
    ran(service, "tenant", "rm", "acme")
