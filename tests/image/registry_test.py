# SPDX-License-Identifier: Apache-2.0
"""Registries that keep to the rules: platforms, credentials, redirects, connections that break."""

import base64
import json
import socket
import time

import pytest
from rig import MANIFEST, Image, Registry, directory, entry, tar, tree

DOCKER = "application/vnd.docker.distribution.manifest."


@pytest.fixture(scope="module")
def image():
    return Image((tar(directory("etc"), entry("etc/os-release", data=b"ID=test\n")), "gzip"), (tar(entry("big", data=bytes(range(256)) * 8000)), "zstd"), tar(entry("plain", data=b"p")),
                 config={"Env": ["PATH=/bin", "Q=\"\\\u20ac"], "Cmd": ["sh"], "Entrypoint": None, "WorkingDir": "/etc", "User": "1000:1000"})


def good(result):
    assert result.code == 0 and result.ok, result
    return result


def test_a_pull(jobs, registry, image):
    result = good(jobs.pull(registry, registry.put(image)))
    assert result.ok["digest"] == image.digest and result.ok["config"] == {
        "env": ["PATH=/bin", "Q=\"\\\u20ac"], "cmd": ["sh"], "entrypoint": [], "workdir": "/etc", "user": "1000:1000"}
    assert sorted(tree(result.root)) == [".", "big", "etc", "etc/os-release", "plain"]
    phases = [(line["phase"], line.get("index")) for line in result.lines if "phase" in line]
    assert [p for i, p in enumerate(phases) if i == 0 or p != phases[i - 1]] == [("resolve", None), ("pull", 0), ("unpack", 0), ("pull", 1), ("unpack", 1), ("pull", 2), ("unpack", 2)]
    assert result.lines[-2]["unpacked"] == result.ok["bytes"] and result.lines[-2]["layers"] == 3
    good(jobs.pull(registry, f"{registry.host}/test/image@{image.digest}"))


def test_docker_types(jobs, registry, image):
    docker = Image((tar(entry("f", data=b"1")), "gzip"))
    docker.manifest["mediaType"] = DOCKER + "v2+json"
    docker.manifest["layers"][0]["mediaType"] = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    good(jobs.pull(registry, registry.put(docker.seal())))
    name = registry.put_index([({"os": "linux", "architecture": "amd64"}, docker)], mediaType=DOCKER + "list.v2+json")
    registry.content["latest"] = (registry.content["latest"][0], DOCKER + "list.v2+json; charset=utf-8")
    good(jobs.pull(registry, name))


def test_platforms(jobs, registry):
    images = {arch: Image(tar(entry(arch)), arch=arch.split("-")[0]) for arch in ("amd64", "arm64", "arm-v6", "arm-v7")}
    entries = [({"os": "unknown", "architecture": "unknown"}, images["amd64"])]
    entries += [({"os": "linux", "architecture": a.split("-")[0]} | ({"variant": a.split("-")[1]} if "-" in a else {}), image) for a, image in images.items()]
    name = registry.put_index(entries)
    for platform, file in (("linux/amd64", "amd64"), ("linux/arm64", "arm64"), ("linux/arm/v7", "arm-v7"), ("linux/arm/v6", "arm-v6"), ("linux/arm", "arm-v6")):
        result = good(jobs.pull(registry, name, platform=platform))
        assert (result.root / file).exists(), platform
        assert result.ok["digest"] == images[file].digest
    assert jobs.pull(registry, name, platform="windows/amd64").error == "not_found"
    assert jobs.pull(registry, name, platform="linux/arm/v5").error == "not_found"
    assert jobs.pull(registry, registry.put(images["arm64"]), platform="linux/amd64").error == "not_found"


def challenge(registry, header):
    def answer(handler):
        if "Authorization" in handler.headers:
            return False
        handler.answer(401, b"", {"WWW-Authenticate": header})
    registry.on["/manifests/latest"] = answer


def test_basic_credentials(jobs, registry, image):
    name = registry.put(image)
    challenge(registry, 'Basic realm="x"')
    good(jobs.pull(registry, name, auth={"username": "u", "password": "p:\u00e4"}))
    assert base64.b64decode(registry.requests[1][1]["Authorization"].split()[1]).decode() == "u:p:\u00e4"
    result = jobs.pull(registry, name)
    assert result.error == "unauthenticated" and '"auth"' in result.message
    registry.on["/manifests/latest"] = lambda h: h.answer(401, b"", {"WWW-Authenticate": "Basic realm=x"})
    assert jobs.pull(registry, name, auth={"username": "u", "password": "wrong"}).error == "unauthenticated"


def test_credentials_are_not_repeated(jobs, registry, image):
    """Whatever a server makes of what it was sent, no line of the job's and nothing on stderr holds it."""
    user, password = "someone", "pa/ss+word%of&mine"
    pair, alone = (base64.b64encode(text.encode()).decode() for text in (f"{user}:{password}", password))
    quoted = "".join(f"%{byte:02x}" for byte in password.encode())
    layer = "/blobs/" + image.manifest["layers"][0]["digest"]
    name = registry.put(image)

    def refused(auth, *secrets):
        result = jobs.pull(registry, name, auth=auth)
        assert result.code == 1 and result.message, result
        told = (result.raw.decode() + result.stderr).lower()
        assert not [s for s in secrets if s.lower() in told], result
        return result

    def echoes(status, header=None):
        def answer(handler):
            sent = handler.headers.get("Authorization")
            if not sent:
                return handler.answer(401, b"", {"WWW-Authenticate": header or "Basic realm=x"})
            return handler.answer(status, f"{sent.split()[1]} {password} {alone} {quoted}".encode())
        return answer
    secrets = (password, pair, alone, quoted, pair[:20], alone[:20])
    login = {"username": user, "password": password}
    # The token service, asked with them.
    service = f'Bearer realm="http://{registry.host}/token"'
    registry.on["/manifests/latest"] = echoes(403, service)
    registry.on["/token"] = echoes(429)
    assert "answers 429" in refused(login, *secrets).message
    # Its URL, which the registry chooses.
    for text in (alone, quoted):
        challenge(registry, f'Bearer realm="http://{registry.host}/{text}/token"')
        registry.on["/token"] = lambda h: h.answer(500, b"no")
        refused(login, *secrets)
    # The registry: with them, and with a token that was given or fetched.
    for status in (400, 403):
        registry.on["/manifests/latest"] = echoes(status)
        refused(login, *secrets)
        registry.on["/manifests/latest"] = lambda h, status=status: h.answer(status, h.headers["Authorization"].encode())
        refused({"token": "a-given-token"}, "a-given-token")
        registry.on["/token"] = lambda h: h.answer(200, b'{"token": "a-fetched-token"}')
        registry.on["/manifests/latest"] = echoes(status, service)
        refused(login, "a-fetched-token", *secrets)
    # Where it sends us, and what it says a thing is.
    del registry.on["/manifests/latest"]
    given = {"token": "agiventoken"}
    registry.on[layer] = lambda h: h.answer(307, b"", {"Location": "http://AGivenToken.invalid/"})
    assert "not shown" in refused(given, "agiventoken").message
    registry.on["/manifests/latest"] = lambda h: h.answer(200, b"{}", {"Content-Type": "text/agiventoken"})
    refused(given, "agiventoken")
    registry.on["/manifests/latest"] = lambda h: h.answer(200, b'{"a": agiventoken}', {"Content-Type": MANIFEST})
    refused(given, "agiventoken")
    # Without any, the server's words are of use.
    registry.on["/manifests/latest"] = lambda h: h.answer(400, b"too many of you")
    assert "too many of you" in jobs.pull(registry, name).message


def test_bearer_tokens(jobs, registry, image):
    name = registry.put(image)
    challenge(registry, f'Bearer realm="http://{registry.host}/token",service="a b",scope="repository:test/image:pull"')
    registry.on["/token"] = lambda h: h.answer(200, json.dumps({"token": "abc.def", "expires_in": 60}).encode())
    good(jobs.pull(registry, name))
    path, headers = registry.requests[1]
    assert path == "/token?service=a%20b&scope=repository:test/image:pull" and "Authorization" not in headers
    assert {h.get("Authorization") for p, h in registry.requests[2:] if p.startswith("/v2")} == {"Bearer abc.def"}
    good(jobs.pull(registry, name, auth={"username": "u", "password": "p"}))
    assert [h["Authorization"] for p, h in registry.requests if p.startswith("/token") and "Authorization" in h] == ["Basic dTpw"]
    registry.requests.clear()
    good(jobs.pull(registry, name, auth={"token": "given"}))
    assert not any(p.startswith("/token") for p, _ in registry.requests)


def test_a_token_that_expires_is_asked_for_again(jobs, registry, image):
    name, tokens = registry.put(image), []

    def token(handler):
        tokens.append(f"t{len(tokens)}")
        handler.answer(200, json.dumps({"access_token": tokens[-1]}).encode())

    def blob(handler):
        if handler.headers.get("Authorization") == "Bearer t1":
            return False
        handler.answer(401, b"", {"WWW-Authenticate": f'Bearer realm="http://{registry.host}/token"'})
    challenge(registry, f'Bearer realm="http://{registry.host}/token"')
    registry.on["/token"] = token
    registry.on[image.manifest["layers"][1]["digest"]] = blob
    good(jobs.pull(registry, name))
    assert tokens == ["t0", "t1"]


def test_blobs_elsewhere_get_no_credentials(jobs, registry, image):
    store = Registry("127.0.0.2")
    try:
        store.put(image)
        name = registry.put(image)
        challenge(registry, 'Basic realm="x"')
        for layer in image.manifest["layers"]:
            registry.on["/blobs/" + layer["digest"]] = lambda h: h.answer(307, b"", {"Location": f"http://{store.host}/v2/x/blobs/{h.path.split('/')[-1]}?X-Signature=1"})
        good(jobs.pull(registry, name, insecure=[registry.host, store.host], auth={"username": "u", "password": "p"}))
        assert len(store.requests) == 3 and not any("Authorization" in headers for _, headers in store.requests)
        store.on["/blobs/" + image.manifest["layers"][0]["digest"]] = lambda h: h.answer(401, b"", {"WWW-Authenticate": 'Basic realm="give me"'})
        store.requests.clear()
        assert jobs.pull(registry, name, insecure=[registry.host, store.host], auth={"username": "u", "password": "p"}).error == "unauthenticated"
        assert not any("Authorization" in headers for _, headers in store.requests)
        # The same host may be asked again with them.
        registry.on["/blobs/" + image.manifest["layers"][0]["digest"]] = lambda h: h.answer(302, b"", {"Location": "/v2/elsewhere/blobs/x" + h.path.split("/")[-1]})
        registry.content["x" + image.manifest["layers"][0]["digest"]] = (image.blobs[image.manifest["layers"][0]["digest"]], "x/y")
        good(jobs.pull(registry, name, insecure=[registry.host, store.host], auth={"username": "u", "password": "p"}))
    finally:
        store.close()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_breaks_is_continued(jobs, registry, ranges):
    image = Image(tar(entry("big", data=bytes(range(251)) * 40000)))
    name, digest = registry.put(image), image.manifest["layers"][0]["digest"]
    data, asked = image.blobs[digest], []

    def breaking(handler):
        start = int(handler.headers["Range"][6:].split("-")[0]) if ranges and "Range" in handler.headers else 0
        asked.append(start)
        if len(asked) > 3:
            return False if ranges else handler.answer(200, data)
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(data) - start))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.end_headers()
        handler.wfile.write(data[start:start + 3000000])
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
    registry.on["/blobs/" + digest] = breaking
    result = good(jobs.pull(registry, name))
    assert (result.root / "big").stat().st_size == 251 * 40000 and len(asked) >= 4
    assert asked[1] > 0 if ranges else set(asked) == {0}


def test_errors_that_pass_are_tried_again(jobs, registry, image):
    name, count = registry.put(image), []

    def busy(handler):
        count.append(time.monotonic())
        return False if len(count) > 2 else handler.answer((503, 429)[len(count) - 1], b"later", {"Retry-After": "1"})
    registry.on["/manifests/latest"] = busy
    good(jobs.pull(registry, name))
    assert len(count) == 3 and count[1] - count[0] >= 1
    registry.on["/manifests/latest"] = lambda h: h.answer(500, b"broken for good")
    before = len(registry.requests)
    result = jobs.pull(registry, name)
    assert result.error == "unavailable" and "broken for good" in result.message and len(registry.requests) - before == 5


def test_what_is_not_there(jobs, registry, image):
    registry.put(image)
    assert jobs.pull(registry, f"{registry.host}/test/image:none").error == "not_found"
    assert jobs.pull(registry, f"{registry.host}/test/image@sha256:{'0' * 64}").error == "not_found"
    registry.on["/manifests/latest"] = lambda h: h.answer(403, b'{"errors":[{"code":"DENIED"}]}')
    assert jobs.pull(registry, f"{registry.host}/test/image").error == "denied"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{unused.getsockname()[1]}"
        assert jobs.run({"image": host + "/x", "insecure": [host]}).error == "unavailable"


def test_requests_that_are_none(jobs, registry):
    for request in (b"", b"{", b"[]", b"{}", b'{"image":1}', b'{"image":"x","archive":true}', b'{"image":"UPPER"}', b'{"image":"x","extra":1}', b'{"image":"x","image":"y"}',
                    b'{"image":"x","platform":"linux"}', b'{"image":"x","auth":{}}', b'{"image":"x","auth":{"username":"u"}}', b'{"image":"x","auth":{"username":"u","password":"a\\r\\nb"}}',
                    b'{"image":"x","insecure":["a b"]}', b'{"archive":true}', b"[" * 60000):
        assert jobs.run(request).error == "invalid", request[:60]
    with jobs.started(b'{"image":"' + b"x" * 200000 + b'"}') as (process, _, _):
        assert process.wait(60) == 1
