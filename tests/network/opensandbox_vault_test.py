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


def substitution(name, placeholder, *places):
    return {"credential": name, "placeholder": placeholder, "in": list(places)}


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


# ---- substitutions and plain HTTP ----

AWKWARD = 'vault "value\\ & a=b/../ü'
URL, FORM, JSON = "vault%20%22value%5C%20%26%20a%3Db%2F..%2F%C3%BC", "vault+%22value%5C+%26+a%3Db%2F..%2F%C3%BC", '"vault \\"value\\\\ & a=b/../ü"'


@pytest.fixture
def swapping(box, service):
    made = Vault(service, box, ["api.test", "allowed.test", "tenant.test"])
    swap = lambda *places: {"type": "passthrough", "substitutions": [substitution("id", "__key__", *places), substitution("key", "__key__2", *places)]}
    awkward = lambda *places: {"type": "passthrough", "substitutions": [substitution("awkward", "__key__", *places)]}
    bindings = [binding("query", "/query", swap("query")), binding("path", "/tenant/*", swap("path")), binding("header", "/header", swap("header")),
                binding("body", "/body/*", swap("body"), methods=["POST"]), binding("odd", "/odd/*", awkward("path", "query", "body")),
                binding("h2", "/*", swap("path", "query", "header", "body"), host="allowed.test", ports=[9443]),
                binding("plain", "/plain/*", {"type": "bearer", "credential": "bearer", "substitutions": [substitution("id", "__key__", "query", "body")]}, schemes=["http"]),
                binding("headers", "/headers", swap("header"))]
    credentials = [credential(name) for name in VALUES] + [credential("awkward", AWKWARD)]
    status, state = made.vault("POST", {"credentials": credentials, "bindings": bindings})
    assert status == 201, state
    assert "__key__" not in json.dumps(state) and {b["auth"]["type"] for b in state["bindings"]} == {"bearer", "passthrough"}
    assert state["bindings"][0]["match"] == {"hosts": ["api.test"], "schemes": ["https"], "methods": ["GET", "POST", "PUT", "PATCH", "DELETE"], "paths": ["/query"]}
    return made


def seen_of(world, made, *curl):
    _, out, seen = requests(world, made.box, *curl)
    assert not any(value in out for value in VALUES.values()), out
    return seen


def test_placeholders_become_values_where_they_were_bound_and_nowhere_else(world, swapping):
    made, key, other = swapping, VALUES["id"], VALUES["key"]
    encoded = other.replace("$", "%24")
    (seen,) = seen_of(world, made, "https://api.test/query?a=__key__&b=__key__2&c=x__key__", "-H", "x-a: __key__")
    assert seen["path"] == f"/query?a={key}&b={encoded}&c=x{key}" and values(seen, "x-a") == ["__key__"]
    (seen,) = seen_of(world, made, "https://api.test/tenant/__key__/x?tenant=__key__")
    assert seen["path"] == f"/tenant/{key}/x?tenant=__key__"
    (seen,) = seen_of(world, made, "https://api.test/header?q=__key__", "-H", "x-any: a __key__2 b")
    assert values(seen, "x-any") == [f"a {other} b"] and seen["path"] == "/header?q=__key__"
    (seen,) = seen_of(world, made, "https://api.test/elsewhere?q=__key__", "-H", "x-any: __key__")
    assert key not in str(seen)
    (seen,) = seen_of(world, made, "-k", "https://tenant.test/query?a=__key__") # on the same address
    assert seen["path"] == "/query?a=__key__"
    (seen,) = seen_of(world, made, "http://api.test/query?a=__key__")
    assert seen["path"] == "/query?a=__key__"
    for host in ("api.test", "API.TEST"): # by its address, with a Host of another one
        seen = requests(world, made.box, "-k", "--resolve", "tenant.test:443:11.0.0.20", "https://tenant.test/query?a=__key__", "-H", f"Host: {host}")[2]
        assert key not in str(seen)
    events = str(made.box.events())
    assert "/query?a=__key__" in events and not any(value in events for value in VALUES.values())


def test_bodies_in_one_piece_in_many_and_in_all_their_forms(world, swapping):
    made, key = swapping, VALUES["id"]
    post = lambda data, *more, path="/body/x", host="https://api.test": seen_of(world, made, host + path, "-X", "POST", "--data-binary", data, *more)[0]
    json_type, form_type = ("-H", "Content-Type: application/json"), ("-H", "Content-Type: application/x-www-form-urlencoded")
    seen = post('{"a":"__key__","b":"__key__2"}', *json_type)
    assert seen["body"] == json.dumps({"a": key, "b": VALUES["key"]}, separators=(",", ":")) and values(seen, "content-length") == [str(seen["length"])]
    seen = post("a=__key__", *form_type, "-H", "Transfer-Encoding: chunked")
    assert seen["body"] == f"a={key}" and not values(seen, "content-length")
    seen = post("a=__key__", *form_type, "-H", "Expect: 100-continue")
    assert seen["body"] == f"a={key}" and not values(seen, "expect")
    for kind, form in (("application/vnd.x+json; charset=utf-8", JSON[1:-1]), (form_type[1][14:], FORM), ("text/plain", AWKWARD)):
        seen = post("__key__", "-H", f"Content-Type: {kind}", path="/odd/x?q=__key__")
        assert seen["body"].encode("latin-1").decode() == form and seen["path"] == f"/odd/x?q={URL}", seen
    for more in (("-H", "Content-Type: multipart/form-data; boundary=__key__"), ("-H", "Content-Encoding: gzip"), ("-X", "PUT")):
        assert post("__key__", *more)["body"] == "__key__"
    made.box.run("head -c 1048576 /dev/zero | tr '\\0' x >most; (head -c 1048569 most; printf __key__) >fits; (cat most; printf __key__) >over; "
                 "(printf __key__; printf '\\377') >binary")
    for name, more, length in (("fits", (), 1048569 + len(key)), ("fits", ("-H", "Transfer-Encoding: chunked"), 1048569 + len(key)), ("over", (), 1048583),
                               ("over", ("-H", "Transfer-Encoding: chunked"), 1048583), ("binary", (), 8)):
        assert post(f"@{name}", "-H", "Content-Type: text/plain", *more)["length"] == length, (name, more)
    script = """
import socket, ssl, time
s = ssl.create_default_context().wrap_socket(socket.create_connection((host, 443), 20), server_hostname=host)
head = f"POST /body/x HTTP/1.1\\r\\nHost: {host}\\r\\nContent-Length: 9\\r\\nConnection: close\\r\\n\\r\\n".encode()
for piece in (head + b"a__", b"k", b"ey_", b"_b"):
    s.sendall(piece)
    time.sleep(0.2)
print(s.recv(100))
"""
    with world.watched() as seen:
        code, out = made.box.python(script, host="api.test")
    assert [e["body"] for e in seen if e["what"] == "request"] == [f"a{key}b"], out


def test_a_value_in_a_path_leads_to_no_other_one(world, swapping):
    code, out, seen = requests(world, swapping.box, "https://api.test/odd/__key__", "-w", "%{http_code}")
    assert out.endswith("403") and not seen and "vault" not in out, out
    denied = swapping.box.events("net.denied")[-1]["data"]
    assert denied["path"] == "/odd/__key__" and "vault" not in str(denied), denied


def test_substitution_over_http2(world, swapping):
    made, key = swapping, VALUES["id"]
    url = "https://allowed.test:9443/v/__key__?q=__key__"
    (seen,) = seen_of(world, made, "--http2", url, "--data-binary", '{"a":"__key__"}', "-H", "Content-Type: application/json", "-H", "x-a: __key__")
    assert seen["version"] == "2.0" and seen["path"] == f"/v/{key}?q={key}" and seen["headers"]["x-a"] == key
    assert json.loads(seen["body"]) == {"a": key} and seen["headers"]["content-length"] == str(seen["length"])
    made.box.run("head -c 1048576 /dev/zero | tr '\\0' x >most; (head -c 1048569 most; printf __key__) >fits; (cat most; printf __key__) >over")
    for name, length in (("fits", 1048569 + len(key)), ("over", 1048583)):
        (seen,) = seen_of(world, made, "--http2", url, "--data-binary", f"@{name}", "-H", "Content-Type: text/plain")
        assert seen["length"] == length
    many = f"-o /dev/null {url} " * 20 # in one connection, whose window is smaller than one of them
    with world.watched() as seen:
        done = made.box.run(f"curl -sS --http2 -Z {many} -w '%{{http_code}} ' --data-binary @fits -H 'Content-Type: text/plain' 2>/dev/null")
    assert done[1].split() == ["200"] * 20, done
    assert {e["length"] for e in seen if e["what"] == "request"} == {1048569 + len(key)} and len([e for e in seen if e["what"] == "connection"]) == 1


def test_plain_http_only_where_a_binding_says_so_and_the_address_is_the_hosts(world, swapping):
    made, bearer = swapping, f"Bearer {VALUES['bearer']}"
    (seen,) = seen_of(world, made, "http://api.test/plain/x?q=__key__", "--data-binary", "__key__", "-H", "Content-Type: text/plain")
    assert values(seen, "authorization") == [bearer] and seen["path"] == f"/plain/x?q={VALUES['id']}" and seen["body"] == VALUES["id"]
    (seen,) = seen_of(world, made, "--resolve", "api.test:80:11.0.0.20", "http://api.test/plain/x") # never resolved in this sandbox, but rightly
    assert values(seen, "authorization") == [bearer]
    for curl in (("https://api.test/plain/x",), ("http://api.test/plain",), ("http://api.test/other",), ("http://tenant.test/plain/x",),
                 ("http://api.test/plain/%2e%2e/other",), ("http://api.test/plain/x", "-H", "X-Original-URL: /other")):
        assert not [v for e in requests(world, made.box, "--path-as-is", *curl)[2] for v in values(e, "authorization")], curl
    # An address that a rule opens, with the Host of the binding: the name isn't its own.
    assert made.ask("PATCH", f"{made.path}/policy", [{"action": "allow", "target": "11.0.0.66"}])[0] == 200
    (seen,) = seen_of(world, made, "--resolve", "api.test:80:11.0.0.66", "http://api.test/plain/x?q=__key__")
    assert seen["address"] == "11.0.0.66" and not values(seen, "authorization") and seen["path"] == "/plain/x?q=__key__"
    seen = seen_of(world, made, "http://allowed.test/plain/x", "-H", "Host: api.test")
    assert not [v for e in seen for v in values(e, "authorization")]


def test_the_head_of_an_answer_does_not_give_values_back(world, swapping):
    assert swapping.vault("PATCH", {"bindings": {"add": [binding("back", "/redirect", {"type": "apiKey", "name": "x-key", "credential": "id", "substitutions": [
        substitution("key", "__two__", "query")]})]}})[0] == 200
    code, out, (seen,) = requests(world, swapping.box, "-i", "https://api.test/redirect?to=https://x.test/__two__")
    assert values(seen, "x-key") == [VALUES["id"]] and "https://x.test/[REDACTED]" in out and VALUES["key"] not in out, out


    assert swapping.vault("PATCH", {"bindings": {"add": [binding("tell", "/tell", {"type": "apiKey", "name": "x-key", "credential": "basic"})]}})[0] == 200
    code, out, (seen,) = requests(world, swapping.box, "-i", "--http1.1", "https://api.test/tell", "-H", "Host: api.test.")
    assert values(seen, "x-key") == [VALUES["basic"]] and seen["host"] == "api.test", seen
    assert out.splitlines()[0] == "HTTP/1.1 200 OK" and "x-back: [REDACTED]" in out, out


def test_trailers_that_come_late_do_not_give_values_back(world, swapping):
    if not world.h2:
        pytest.skip("there is no node to serve HTTP/2 with")
    at = "https://allowed.test:9443"
    urls = " ".join(f"-o /dev/null {at}{path}" for path in ("/hold", *(f"/{n}" for n in range(120)), "/release"))
    with world.watched() as seen:
        done = swapping.box.run(f"curl -sS --http2 -Z --parallel-max 4 -D heads -H 'x-key: __key__' {urls}; cat heads")
    assert len([e for e in seen if e["what"] == "connection"]) == 1 and {e["headers"]["x-key"] for e in seen if e["what"] == "request"} == {VALUES["id"]}
    assert "x-back: [REDACTED]" in done[1] and VALUES["id"] not in done[1], done


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
            (400, {"bindings": {"add": [binding("new", "/new", one, schemes=["ftp"])]}}),
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
            (400, {"bindings": {"add": [binding("new", "/new", {"type": "passthrough", "credential": "key"})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {**one, "substitutions": [substitution("none", "x", "path")]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {**one, "substitutions": [substitution("key", "", "path")]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {**one, "substitutions": [substitution("key", "a b", "path")]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {**one, "substitutions": [substitution("key", "x" * 513, "path")]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {**one, "substitutions": [substitution("key", "x")]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {**one, "substitutions": [substitution("key", "x", "trailer")]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {**one, "substitutions": [{**substitution("key", "x", "path"), "value": "y"}]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", {**one, "substitutions": [substitution("key", f"p{n}", "path") for n in range(21)]})]}}),
            (400, {"bindings": {"add": [binding("new", "/new", one) | {"substitutions": []}]}}),
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
    assert made.vault("GET", rest="/bindings/three")[1]["auth"] == {"type": "apiKey", "name": "X-Api-Key"}
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
    kept = [service.log]
    for path, directories, names in os.walk(service.state):
        directories[:] = [name for name in directories if name != "pool"] # with the files of the base template
        kept += [Path(path, name) for name in names if Path(path, name).is_file() and not Path(path, name).is_symlink()]
    assert len(kept) > 1
    assert not [path for path in kept if any(value in read(path) for value in VALUES.values())]
    text = str(service.request("GET", f"/cove/v1/sandboxes/{made.box.id}")[2]) + service.cove("log", made.box.id).stdout + service.cove("policy", "show", made.box.id).stdout
    assert not any(value in text for value in VALUES.values())
    assert not any(value in made.box.run("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")[1] for value in VALUES.values())
