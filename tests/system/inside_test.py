# SPDX-License-Identifier: Apache-2.0
"""What programs in a sandbox are told by the agent itself, on the port where E2B's look for its daemon."""

import json

import pytest
from client import Client, wait_for

ASK = """python3 -c '
import sys, urllib.request
for path in sys.argv[1:]:
    with urllib.request.urlopen("http://localhost:49983" + path, timeout=60) as answer:
        print(answer.status, answer.read().decode())
' """


@pytest.fixture
def client(service):
    return Client(service.port, service.key)


def ask(sandbox, *paths):
    code, out, err = sandbox.sh(ASK + " ".join(paths))
    assert code == 0, err
    return [line.split(" ", 1) for line in out.decode().splitlines()]


def test_health_variables_and_figures(client):
    sandbox = client.create(envVars={"COLOUR": "blue"})
    health, envs, metrics = ask(sandbox, "/health", "/envs", "/metrics")
    assert health[0] == "204"
    assert json.loads(envs[1]) == sandbox.request("GET", "/envs").json
    assert json.loads(envs[1])["COLOUR"] == "blue" and json.loads(envs[1])["E2B_SANDBOX_ID"] == sandbox.id
    ours, theirs = json.loads(metrics[1]), sandbox.request("GET", "/metrics").json
    assert ours.keys() == theirs.keys() and ours["disk_total"] > 0
    # What is used follows the samples from outside.
    assert wait_for(lambda: json.loads(ask(sandbox, "/metrics")[0][1])["mem_used"] > 0, 60, 1)
    assert abs(ours["ts"] - theirs["ts"]) < 60


def test_they_are_those_of_the_sandbox_that_asks(client):
    """Also of one that stood still, and of one that was made ahead of need."""
    sandboxes = [client.create(envVars={"COLOUR": colour}) for colour in ("blue", "red")]
    assert client.control("POST", f"/sandboxes/{sandboxes[0].id}/pause").status == 204
    assert client.control("POST", f"/sandboxes/{sandboxes[0].id}/connect", {"timeout": 60}).status == 201
    for sandbox, colour in zip(sandboxes, ("blue", "red")):
        envs = json.loads(ask(sandbox, "/envs")[0][1])
        assert envs["E2B_SANDBOX_ID"] == sandbox.id and envs["COLOUR"] == colour


def test_programs_inside_find_the_port_taken(client):
    sandbox = client.create()
    code, _, err = sandbox.sh("python3 -c 'import socket; socket.create_server((\"0.0.0.0\", 49983))'")
    assert code == 1 and b"Address already in use" in err
