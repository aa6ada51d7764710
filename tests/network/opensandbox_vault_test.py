# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox's credential vault: what arrives at hosts, and that its values are seen nowhere else."""

import json
import os
from pathlib import Path

import pytest
from intercept_test import requests, values
from service import UnixConnection, read, wait_until

VALUES = {"bearer": "vault-value-bearer-11", "basic": "dmF1bHQ6dmFsdWUtMjI=", "key": "vault-$value-key-33", "id": "vault-value-id-44", "spare": "vault-value-spare-55"}
VAULT = "/credential-vault"


class Vault:
    """A sandbox of OpenSandbox with its egress service."""

    def __init__(self, service, box, allow):
        self.service, self.key = service, {"OPEN-SANDBOX-API-KEY": service.key}
        policy = {"defaultAction": "deny", "egress": [{"action": "allow", "target": target} for target in allow]}
        status, made = self.ask("POST", "/v1/sandboxes", {"image": {"uri": "base"}, "timeout": 600, "networkPolicy": policy, "credentialProxy": {"enabled": True}})
        assert status == 202, made
        self.box = box(existing=made["id"])
        answer = self.ask("GET", f"/v1/sandboxes/{made['id']}/endpoints/18080")[1]
        self.path, self.key = "/" + answer["endpoint"].partition("/")[2], answer["headers"]

    def ask(self, method, path, body=None):
        connection = UnixConnection(str(self.service.run / "cove.sock")) # TCP is in the namespace of the world
        connection.request(method, path, body and json.dumps(body), self.key)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert not any(value in text for value in VALUES.values()), text
        return answer.status, json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text

    def vault(self, method, body=None, rest=""):
        return self.ask(method, self.path + VAULT + rest, body)


def credential(name, value=None):
    return {"name": name, "source": {"type": "inline", "value": value or VALUES[name]}}


def binding(name, path, auth, host="api.test", **more):
    return {"name": name, "match": {"hosts": [host], "paths": [path], **more}, "auth": auth}


BINDINGS = [
    binding("one", "/bearer/*", {"type": "bearer", "credential": "bearer"}),
    binding("two", "/basic/*", {"type": "basic", "credential": "basic"}),
    binding("three", "/key/*", {"type": "apiKey", "name": "X-Api-Key", "credential": "key"}, methods=["GET", "POST"]),
    binding("four", "/custom/*", {"type": "customHeaders", "headers": [{"name": "X-Client-Id", "credential": "id"}, {"name": "X-Client-Key", "credential": "key"}]}),
]


@pytest.fixture
def made(box, service):
    made = Vault(service, box, ["api.test"])
    assert made.vault("GET")[0] == 404
    status, state = made.vault("POST", {"credentials": [credential(name) for name in VALUES], "bindings": BINDINGS})
    assert status == 201 and state["revision"] == 1, state
    assert {c["name"] for c in state["credentials"]} == set(VALUES) and [b["name"] for b in state["bindings"]] == ["one", "two", "three", "four"]
    return made


def sent(world, made, path, header):
    seen = requests(world, made.box, f"https://api.test{path}")[2]
    return [value for request in seen for value in values(request, header)]


def test_all_kinds_arrive_and_changes_hold_at_once(world, made):
    assert sent(world, made, "/bearer/x", "authorization") == [f"Bearer {VALUES['bearer']}"]
    assert sent(world, made, "/basic/x", "authorization") == [f"Basic {VALUES['basic']}"]
    assert sent(world, made, "/key/x", "x-api-key") == [VALUES["key"]]
    assert sent(world, made, "/custom/x", "x-client-id") == [VALUES["id"]] and sent(world, made, "/custom/x", "x-client-key") == [VALUES["key"]]
    assert not sent(world, made, "/other", "authorization")
    status, state = made.vault("PATCH", {"expectedRevision": 1, "credentials": {"replace": [credential("bearer", VALUES["spare"])]},
                                         "bindings": {"delete": ["two"], "add": [binding("five", "/late/*", {"type": "bearer", "credential": "basic"})]}})
    assert status == 200 and state["revision"] == 2, state
    assert sent(world, made, "/bearer/x", "authorization") == [f"Bearer {VALUES['spare']}"]
    assert not sent(world, made, "/basic/x", "authorization")
    assert sent(world, made, "/late/x", "authorization") == [f"Bearer {VALUES['basic']}"] # of a value that was sealed before
    assert made.ask("PATCH", f"{made.path}/policy", [{"action": "allow", "target": "other.test"}])[0] == 200
    assert made.vault("GET")[1]["revision"] == 2 and sent(world, made, "/key/x", "x-api-key") == [VALUES["key"]]
    assert made.vault("DELETE")[0] == 204 and made.vault("GET")[0] == 404
    assert not sent(world, made, "/bearer/x", "authorization")


def test_what_conflicts_or_is_not_allowed_changes_nothing(made):
    one = {"type": "bearer", "credential": "bearer"}
    for status, patch in (
            (409, {"expectedRevision": 7, "credentials": {"delete": ["spare"]}}),
            (409, {"credentials": {"add": [credential("bearer")]}}),
            (404, {"credentials": {"replace": [credential("none", "x")]}}),
            (404, {"credentials": {"delete": ["none"]}}),
            (409, {"credentials": {"delete": ["bearer"]}}),
            (404, {"bindings": {"delete": ["none"]}}),
            (409, {"bindings": {"add": [binding("one", "/x", one)]}}),
            (400, {"bindings": {"add": [binding("new", "/bearer/*", one)]}}),
            (400, {"bindings": {"add": [binding("new", "/new", one, host="other.test")]}}),
            (400, {"bindings": {"add": [binding("new", "/new", one, host="198.51.100.1")]}}),
            (400, {"bindings": {"add": [binding("new", "/new", one, schemes=["http"])]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {"type": "bearer", "credential": "none"})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {"type": "digest", "credential": "bearer"})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {"type": "apiKey", "credential": "bearer", "name": "Host"})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {"type": "apiKey", "credential": "bearer"})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {"type": "customHeaders", "headers": [{"credential": "bearer"}]})]}}),
            (400, {"bindings": {"add": [binding("new", "new", one)]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {"type": "bearer", "credential": "none", "headers": [{"name": "X", "credential": "bearer"}]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {"type": "customHeaders", "headers": [{"name": "X", "credential": "key"}, {}, {"name": "Y", "credential": "none"}]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {**one, "value": "x"})]}}), # would be read back
            (400, {"bindings": {"add": [binding("new", "/new", one, note="x")]}}),
            (400, {"bindings": {"add": [binding("new", "/new", one) | {"revision": 9}]}}),
            (400, {"bindings": {"add": [{"name": "new", "match": {"hosts": ["api.test"], "paths": [7]}, "auth": one}]}}),
            (400, {"bindings": {"add": [binding("new", "/bearer/deep", one)]}}),
            (400, {"bindings": {"add": [binding("new", "/new", one, host="credential-vault.invalid")]}}),
            (501, {"bindings": {"add": [binding("new", "/new", {"type": "passthrough"})]}}),
            (400, {"credentials": {"add": [credential("new", "a\nb")]}}),
            (400, {"credentials": {"add": [{"name": "new", "source": {"type": "file", "value": "x"}}]}}),
            (400, {"credentials": {"add": ["new"]}}),
            (400, {"bindings": {"add": [7]}}),
            (400, {"bindings": 7})):
        got = made.vault("PATCH", patch)
        assert got[0] == status and isinstance(got[1], str), (patch, got)
    assert made.ask("PATCH", f"{made.path}/policy", [{"action": "allow", "target": "credential-vault.invalid"}])[0] == 200
    assert made.vault("PATCH", {"bindings": {"add": [binding("new", "/new", one, host="credential-vault.invalid")]}})[0] == 400
    assert made.vault("POST", {"credentials": [], "bindings": []})[0] == 409
    assert made.vault("GET")[1]["revision"] == 1
    assert made.vault("GET", rest="/credentials/key")[1] == {"name": "key", "sourceType": "inline", "revision": 1}
    assert made.vault("GET", rest="/bindings/three")[1]["auth"] == BINDINGS[2]["auth"]
    assert made.vault("GET", rest="/bindings/none")[0] == 404
    assert len(made.vault("GET", rest="/bindings")[1]["bindings"]) == 4


def test_values_are_sealed_and_outlive_the_workers(world, made):
    service = made.service
    for name in ("cove-api", "cove-egress"):
        pid = service.child(name)
        os.kill(pid, 9)
        assert wait_until(lambda: service.child(name) not in (None, pid) and service.is_ready())
    assert made.vault("GET")[1]["revision"] == 1
    assert wait_until(lambda: sent(world, made, "/key/x", "x-api-key") == [VALUES["key"]])
    kept = [service.log, *(path for path in Path(service.state).rglob("*") if "pool" not in path.parts and path.is_file() and not path.is_symlink())]
    assert not [path for path in kept if any(value in read(path) for value in VALUES.values())]
    text = str(service.request("GET", f"/cove/v1/sandboxes/{made.box.id}")[2]) + service.cove("log", made.box.id).stdout + service.cove("policy", "show", made.box.id).stdout
    assert not any(value in text for value in VALUES.values())
    assert not any(value in made.box.run("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")[1] for value in VALUES.values())
