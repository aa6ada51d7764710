# SPDX-License-Identifier: Apache-2.0
"""What is done to templates, secrets and the pool stands in the log of the service."""

import http.client
import json
import os
import signal
import subprocess

import pytest
from anybody import PYTHON
from leaks import own_service
from service import wait_until


@pytest.fixture(scope="module")
def service():
    with own_service("service-log") as service:
        yield service


def events(service, *flags):
    done = service.cove("log", "--service", "--json", *flags)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_kind(service, kind, begin=1):
    return [e for e in events(service, "--from", str(begin)) if e["kind"] == kind]


def test_who_did_what(service, tmp_path):
    begin = events(service)[-1]["seq"] + 1
    actor = f"cli:uid={os.getuid()}"
    (tmp_path / "Dockerfile").write_text("FROM e2bdev/base\nRUN echo logged > /logged\n")
    built = service.cove("template", "build", "--name", "logged", tmp_path)
    assert built.returncode == 0, built
    template = built.stdout.split()[-1]
    (request,), (build,), (ready,) = (of_kind(service, kind, begin) for kind in ("template.request", "template.build", "template.built"))
    assert request["data"]["name"] == "logged" and build["data"]["template"] == ready["data"]["template"] == template
    assert ready["cause"] == build["seq"] and build["actor"] == request["actor"] == actor

    (tmp_path / "Dockerfile").write_text("FROM e2bdev/base\nRUN exit 7\n")
    assert service.cove("template", "build", "--name", "logged", tmp_path).returncode == 1
    (failed,) = of_kind(service, "template.failed", begin)
    assert "exit" in failed["data"]["reason"] and failed["cause"] == of_kind(service, "template.build", begin)[1]["seq"]

    box = service.create(template="logged")
    refused = service.cove("template", "rm", "logged")
    assert refused.returncode == 1 and box in refused.stderr
    service.remove_all()
    assert service.cove("template", "rm", "logged").returncode == 0
    first, second = of_kind(service, "template.remove", begin)
    assert [e["cause"] for e in of_kind(service, "service.refused", begin)] == [first["seq"]] and second["actor"] == actor

    assert service.cove("secret", "set", "LOGGED", input="not-for-the-log").returncode == 0
    assert service.cove("secret", "rm", "LOGGED").returncode == 0
    assert wait_until(lambda: of_kind(service, "secret.removed", begin))
    assert [(e["actor"], e["data"]) for e in of_kind(service, "secret.set", begin)] == [(actor, {"name": "LOGGED"})]
    assert service.cove("gc").returncode == 0
    assert of_kind(service, "pool.collected", begin)[-1]["cause"] == of_kind(service, "pool.collect", begin)[-1]["seq"]
    assert "not-for-the-log" not in service.cove("log", "--service").stdout


def test_it_is_a_chain_and_can_be_followed(service):
    last = events(service)[-1]["seq"]
    assert service.cove("log", "--verify", "--service").stdout == f"intact: {last} events, 1 to {last}\n"
    follower = service.popen("log", "-f", "--service", "--json", "--from", str(last + 1), stdout=-1, text=True)
    try:
        assert service.cove("warm", "base", "0").returncode == 0
        told = json.loads(follower.stdout.readline())
        assert (told["kind"], told["seq"], told["data"]) == ("pool.warm", last + 1, {"template": "base", "count": 0})
    finally:
        follower.kill()
        follower.communicate()
    assert service.cove("log", "--service", "i3k").returncode == 2
    assert service.cove("log").returncode == 2


def ask(service, headers, path="/cove/v1/sandboxes", body=None):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return json.loads(answer.read()) if body else answer.status
    finally:
        connection.close()


def test_who_was_turned_away(service):
    begin = events(service)[-1]["seq"] + 1
    wrong = service.key[:-1] + ("x" if service.key[-1] != "x" else "y")
    assert [ask(service, {"Authorization": f"Bearer {wrong}"}) for _ in range(50)] == [401] * 50
    assert ask(service, {}) == 401
    assert ask(service, {"X-API-Key": service.key}) == 200
    path = service.run / "cove.sock"
    stranger = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{path}'); s.send(b'GET /cove/v1/info HTTP/1.0\\r\\n\\r\\n'); print(s.recv(12).decode())"
    mode = path.stat().st_mode
    path.chmod(0o666) # the socket itself keeps strangers out
    try:
        done = subprocess.run([PYTHON, "-c", stranger], user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False)
    finally:
        path.chmod(mode)
    assert done.stdout.endswith(" 403\n"), done
    assert wait_until(lambda: len(of_kind(service, "service.denied", begin)) == 3)
    found = of_kind(service, "service.denied", begin)
    assert [e["data"] for e in found] == [{"from": "127.0.0.1", "api": "native", "why": "wrong key", "count": 1},
                                          {"from": "127.0.0.1", "api": "native", "why": "no key", "count": 1},
                                          {"from": "uid=65534", "api": "native", "why": "wrong user", "count": 1}]
    assert {(e["source"], e["grade"], e["actor"], e["cause"]) for e in found} == {("host", "observed-host", "", 0)}
    os.kill(service.child("cove-api"), signal.SIGTERM) # what was counted is told at the end of a worker
    assert wait_until(lambda: service.is_healthy() and len(of_kind(service, "service.denied", begin)) == 4), service.tail()
    assert of_kind(service, "service.denied", begin)[-1]["data"] == {"from": "others", "count": 49}
    log = service.cove("log", "--service").stdout
    assert wrong not in log and service.key[:8] not in log


def test_who_was_turned_away_from_a_sandbox(service):
    """By the API that the E2B SDKs speak: its key, a sandbox's tokens, a link's signature. Nothing is told of a visitor who tries nothing."""
    key = {"X-API-Key": service.key, "Content-Type": "application/json"}
    sandbox = ask(service, key, "/sandboxes", {"templateID": "base", "secure": True, "network": {"allowPublicTraffic": False}})
    begin = events(service)[-1]["seq"] + 1
    envd, port = ({"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": number} for number in ("49983", "8000"))
    right, wrong = {"X-Access-Token": sandbox["envdAccessToken"]}, {"X-Access-Token": "wrong-and-never-told"}
    file = "/files?path=/etc/hostname&username=user"
    tries = [
        ((key, "/sandboxes"), 200, None),
        (({}, "/sandboxes"), 401, "no key"),
        (({"X-API-Key": "wrong-and-never-told"}, "/sandboxes"), 401, "wrong key"),
        (({**envd, **right}, "/metrics"), 200, None),
        ((envd, "/metrics"), 401, "no token"),
        (({**envd, **wrong}, "/metrics"), 401, "wrong token"),
        (({**envd, **right}, file), 200, None),
        ((envd, file), 401, "no token"),
        (({**envd, **wrong}, file), 401, "wrong token"),
        ((envd, f"{file}&signature=v1_wrong-and-never-told"), 401, "wrong token"),
        ((wrong, file), 401, "wrong token"),
        (({"Authorization": "Bearer wrong-and-never-told"}, "/volumecontent/v00000000000000000000/file?path=/x"), 401, "wrong token"),
        ((port, "/"), 403, None),
        (({**port, "E2b-Traffic-Access-Token": "wrong-and-never-told"}, "/"), 403, "wrong token"),
    ]
    for arguments, status, _ in tries:
        assert ask(service, *arguments) == status, arguments
    os.kill(service.child("cove-api"), signal.SIGTERM)
    reasons = [why for _, _, why in tries if why]
    assert wait_until(lambda: service.is_healthy() and len(of_kind(service, "service.denied", begin)) == len(set(reasons)) + 1), service.tail()
    found = [e["data"] for e in of_kind(service, "service.denied", begin)]
    assert found[:-1] == [{"from": "127.0.0.1", "api": "e2b", "why": why, "count": 1} for why in dict.fromkeys(reasons)]
    assert found[-1] == {"from": "others", "count": len(reasons) - len(set(reasons))}
    assert "never-told" not in service.cove("log", "--service").stdout
    service.request("DELETE", f"/cove/v1/sandboxes/{sandbox['sandboxID']}")
