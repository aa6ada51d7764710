# SPDX-License-Identifier: Apache-2.0
"""Registries and archives that lie: each is told so, nothing of it is taken for an image, and nobody is asked who should not be."""

import contextlib
import gzip
import json
import socket
import time

import pytest
from rig import INDEX, LAYER, MANIFEST, Image, Registry, directory, entry, link, sha, tar


@pytest.fixture
def image():
    return Image((tar(directory("etc"), entry("etc/f", data=b"x" * 50000)), "gzip"), tar(entry("second", data=b"y" * 50000)))


def refused(result, code="invalid"):
    assert result.code == 1 and result.error == code and result.message, result
    return result.message


def test_digests_that_are_wrong(jobs, registry, image):
    name = registry.put(image)
    for blob in (image.manifest["config"], *image.manifest["layers"]):
        data, kind = registry.content[blob["digest"]]
        forged = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        registry.content[blob["digest"]] = (forged, kind)
        refused(jobs.pull(registry, name))
        registry.content[blob["digest"]] = (data, kind)
    other = Image(tar(entry("other")))
    registry.content[image.digest] = (other.text, MANIFEST)
    assert "not the one asked for" in refused(jobs.pull(registry, f"{registry.host}/test/image@{image.digest}"))


def test_a_manifest_of_an_index_that_is_another(jobs, registry, image):
    name = registry.put_index([(None, image)])
    registry.content[image.digest] = (Image(tar(entry("other"))).text, MANIFEST)
    refused(jobs.pull(registry, name))


def test_unpacked_digests_that_are_wrong(jobs, registry):
    for layer in ((tar(entry("f")), "gzip"), tar(entry("f"))):
        refused(jobs.pull(registry, registry.put(Image(layer, diff_ids=[sha(b"else")]))))
    assert "of 2 layers" in refused(jobs.pull(registry, registry.put(Image(tar(entry("f")), diff_ids=[sha(b"1"), sha(b"2")]))))


def test_sizes_that_are_wrong(jobs, registry, image):
    for delta in (-1, 1, -20000, 20000):
        lying = Image((tar(entry("etc/f", data=b"x" * 50000)), "gzip"), tar(entry("second", data=b"y" * 50000)))
        lying.manifest["layers"][1]["size"] += delta
        refused(jobs.pull(registry, registry.put(lying.seal())))
    for size in (-1, "5", None, 1.5):
        image.manifest["layers"][0]["size"] = size
        refused(jobs.pull(registry, registry.put(image.seal())))
    image.manifest["layers"][0]["size"] = 1 << 60
    refused(jobs.pull(registry, registry.put(image.seal())), "too_large")


@pytest.mark.parametrize("says, is_", [("+gzip", ""), ("+zstd", "gzip"), ("+gzip", "zstd"), ("", "gzip")])
def test_packing_that_is_another(jobs, registry, says, is_):
    image = Image((tar(entry("f", data=b"1" * 9999)), is_) if is_ else tar(entry("f", data=b"1" * 9999)))
    image.manifest["layers"][0]["mediaType"] = LAYER + says
    refused(jobs.pull(registry, registry.put(image.seal())))


def test_types_that_are_another(jobs, registry, image):
    name = registry.put(image)
    registry.content["latest"] = (image.text, INDEX)
    refused(jobs.pull(registry, name))
    both = json.dumps(image.manifest | {"manifests": [image.descriptor]}).encode()
    for kind in (MANIFEST, INDEX, "application/json", ""):
        registry.content["latest"] = (both, kind)
        refused(jobs.pull(registry, name))
    for kind, text in (("application/vnd.docker.distribution.manifest.v1+prettyjws", b"{}"), (MANIFEST, b'{"schemaVersion":1,"fsLayers":[]}')):
        registry.content["latest"] = (text, kind)
        refused(jobs.pull(registry, name), "unsupported")
    helm = Image(tar(entry("f")))
    helm.manifest["layers"][0]["mediaType"] = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    refused(jobs.pull(registry, registry.put(helm.seal())), "unsupported")


def test_documents_that_are_none(jobs, registry, image):
    name = registry.put(image)
    for text in (b"", b"{", b"null", b"[]", b'"x"', b'{"layers":{}}', b'{"layers":[1],"config":2}', b"[" * 100000, b'{"a":' * 50000, b'{"layers":[],"layers":[]}',
                 b"\xff\xfe", json.dumps({"manifests": [{}] * 2000}).encode(), json.dumps({"layers": [image.manifest["layers"][0]] * 600, "config": image.manifest["config"]}).encode()):
        registry.content["latest"] = (text, "application/json")
        assert jobs.pull(registry, name).error in ("invalid", "not_found"), text[:40]
    for config in (b"{}", b"[]", b'{"rootfs":{"type":"layers","diff_ids":[1]}}', b"[" * 100000, json.dumps({**image.config, "config": {"Env": "x"}}).encode(),
                   json.dumps({**image.config, "config": {"Cmd": [1]}}).encode()):
        image.manifest["config"] = image.add(config, "x/y")
        refused(jobs.pull(registry, registry.put(image.seal())))
    image.manifest["config"] = image.add(json.dumps({**image.config, "config": {"Env": ["x" * 1000] * 300}}).encode(), "x/y")
    refused(jobs.pull(registry, registry.put(image.seal())), "too_large")


def test_indexes_without_end(jobs, registry, image):
    inner = {"schemaVersion": 2, "manifests": [image.descriptor]}
    for _ in range(5):
        text = json.dumps(inner).encode()
        registry.content[sha(text)] = registry.content["latest"] = (text, INDEX)
        inner = {"schemaVersion": 2, "manifests": [{"mediaType": INDEX, "digest": sha(text), "size": len(text)}]}
    registry.put(image, "other")
    refused(jobs.pull(registry, f"{registry.host}/test/image"))


def endless(handler, head=b"", block=b" " * 65536, pause=0.0):
    handler.send_response(200)
    handler.send_header("Content-Type", MANIFEST)
    handler.end_headers()
    handler.close_connection = True
    sent = 0
    try:
        handler.wfile.write(head)
        while sent < 400 << 20:
            handler.wfile.write(block)
            handler.wfile.flush()
            sent += len(block)
            time.sleep(pause)
    except OSError:
        pass
    return sent


def test_a_manifest_of_100_mb_and_bodies_without_end(jobs, registry, image):
    name, sent = registry.put(image), []
    registry.content["latest"] = (b" " * (100 << 20), MANIFEST)
    refused(jobs.pull(registry, name), "too_large")
    registry.on["/manifests/latest"] = lambda h: sent.append(endless(h, b"{"))
    refused(jobs.pull(registry, name), "too_large")
    del registry.on["/manifests/latest"]
    registry.put(image)
    registry.on["/blobs/" + image.manifest["layers"][0]["digest"]] = lambda h: sent.append(endless(h, image.blobs[image.manifest["layers"][0]["digest"]]))
    refused(jobs.pull(registry, name))
    registry.on["/blobs/" + image.manifest["config"]["digest"]] = lambda h: sent.append(endless(h, b"{"))
    refused(jobs.pull(registry, name))
    registry.on["/manifests/latest"] = lambda h: h.answer(404, b"x" * (5 << 20))
    refused(jobs.pull(registry, name), "not_found")


def test_bodies_that_drip(jobs, registry, image):
    name = registry.put(image)
    registry.on["/manifests/latest"] = lambda h: endless(h, b"{", b" ", 0.1)
    refused(jobs.pull(registry, name, options=("--stall-s", "1", "--timeout-s", "60")), "unavailable") # not only by the time that it may take
    refused(jobs.pull(registry, name, options=("--stall-s", "30", "--timeout-s", "2")), "timeout")


def test_headers_without_end(jobs, registry, image):
    name = registry.put(image)

    def headers(handler):
        handler.send_response(200)
        for i in range(100000):
            handler.send_header(f"X-{i}", "y" * 50)
        handler.end_headers()
    registry.on["/manifests/latest"] = headers
    assert jobs.pull(registry, name, options=("--timeout-s", "20")).error == "unavailable"


def test_private_hosts_are_not_asked(jobs, registry, image):
    """The registry is allowed, what it points at is not: a service of this machine would be within reach."""
    victim = Registry("127.0.0.3")
    try:
        name = registry.put(image)
        port = victim.host.split(":")[1]
        for host in (victim.host, f"localhost:{port}", f"[::ffff:127.0.0.3]:{port}", f"2130706435:{port}", f"0x7f000003:{port}", f"127.3:{port}", "169.254.169.254", "10.0.0.1", "[fe80::1]", "[64:ff9b::7f00:3]"):
            for scheme in ("http", "https"):
                registry.on["/blobs/" + image.manifest["layers"][0]["digest"]] = lambda h, u=f"{scheme}://{host}/x": h.answer(302, b"", {"Location": u})
                result = jobs.pull(registry, name)
                assert result.error in ("denied", "unavailable", "invalid"), (host, result)
        registry.on.clear()
        for location in ("file:///etc/passwd", "ftp://127.0.0.3/", "gopher://127.0.0.3/", "//127.0.0.3/x", "", "\x01", "http://u:p@127.0.0.3/"):
            registry.on["/manifests/latest"] = lambda h, u=location: h.answer(301, b"", {"Location": u})
            assert jobs.pull(registry, name).code == 1
        for realm in (f"http://{victim.host}/token", f"https://{victim.host}/token", "file:///etc/shadow", "nonsense", ""):
            registry.on["/manifests/latest"] = lambda h, u=realm: h.answer(401, b"", {"WWW-Authenticate": f'Bearer realm="{u}"'})
            assert jobs.pull(registry, name, auth={"username": "u", "password": "secret"}).code == 1
        assert victim.requests == []
        assert jobs.run({"image": name}).error == "denied" # nor is a registry that nobody allowed
        assert jobs.run({"image": name, "insecure": ["https://" + registry.host]}).error == "unavailable" # it does not speak TLS
        assert jobs.run({"image": "169.254.169.254/x", "insecure": ["169.254.169.254"]}).error == "denied" # not even then
    finally:
        victim.close()


def test_redirects_without_end(jobs, registry, image):
    name = registry.put(image)
    registry.on["/manifests/latest"] = lambda h: h.answer(302, b"", {"Location": h.path})
    before = len(registry.requests)
    refused(jobs.pull(registry, name), "unavailable")
    assert len(registry.requests) - before <= 7


def test_token_services_that_lie(jobs, registry, image):
    name = registry.put(image)
    registry.on["/manifests/latest"] = lambda h: h.answer(401, b"", {"WWW-Authenticate": f'Bearer realm="http://{registry.host}/token"'})
    for body in (b"", b"{}", b"[]", b'{"token":1}', b'{"token":""}', b'{"token":"a\\r\\nX-Evil: 1"}', b"[" * 30000):
        registry.on["/token"] = lambda h, b=body: h.answer(200, b)
        assert jobs.pull(registry, name, options=("--timeout-s", "2")).error in ("unavailable", "timeout"), body
    registry.on["/token"] = lambda h: h.answer(200, b'{"token":"' + b"x" * 100000 + b'"}')
    refused(jobs.pull(registry, name), "too_large")
    registry.on["/token"] = lambda h: h.answer(200, b'{"token":"fine"}')
    refused(jobs.pull(registry, name), "unauthenticated")
    registry.on["/token"] = lambda h: h.answer(401, b"")
    refused(jobs.pull(registry, name), "unauthenticated")


def test_ranges_that_were_not_asked_for(jobs, registry, image):
    name = registry.put(image)
    registry.on["/manifests/latest"] = lambda h: h.answer(206, image.text, {"Content-Range": "bytes 5-9/10", "Content-Type": MANIFEST})
    refused(jobs.pull(registry, name))


def test_answers_that_are_no_http(jobs):
    for answer in (b"", b"\0" * 1000, b"SSH-2.0-x\r\n", b"HTTP/1.1 999999 x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzzz\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            host = "127.0.0.1:%d" % server.getsockname()[1]
            with jobs.started({"image": host + "/x", "insecure": [host]}, options=("--timeout-s", "3")) as (process, ours, _):
                server.settimeout(0.2)
                end = time.monotonic() + 60
                while process.poll() is None and time.monotonic() < end:
                    try:
                        connection, _ = server.accept()
                    except OSError:
                        continue
                    with connection, contextlib.suppress(ConnectionError): # it may be tired of waiting
                        connection.recv(65536)
                        connection.sendall(answer)
                assert process.poll() == 1, answer
                assert json.loads(ours.recv(65536).splitlines()[-1])["error"]["code"] in ("unavailable", "timeout", "invalid"), answer


def test_a_file_of_ever_more_holes(jobs):
    """The reader keeps its map of them in memory: ten times what it takes in the layer, which packs to nothing."""
    body = b"12000000\n" + b"0\n0\n" * 12000000
    fields = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "f", "GNU.sparse.realsize": "10"}
    image = Image((tar(entry("GNUSparseFile.0/f", data=body + bytes(-len(body) % 512), pax_headers=fields)), "gzip"))
    assert "out of memory" in refused(jobs.archive(image.layout()), "internal")


def test_whiteouts_of_all_over_and_over(jobs):
    """Each looks at what the layer itself has put there."""
    many = 10000
    upper = tar(directory("d"), *(entry(f"d/{i}") for i in range(many)), *(entry("d/.wh..wh..opq") for _ in range(many)))
    image = Image(tar(directory("d"), entry("d/lower")), (upper, "gzip"))
    result = jobs.archive(image.layout(), options=("--timeout-s", "60"))
    assert result.ok and len(list((result.root / "d").iterdir())) == many, result


def test_archives(jobs, image):
    good = image.layout()
    assert jobs.archive(good).ok
    for what in (good, gzip.compress(good), image.docker_archive()):
        assert jobs.archive(what).ok
    for broken in (b"", b"x", good[:1000], b"\0" * 1024, tar(entry("f")), gzip.compress(good)[:-20], gzip.compress(good)[:50] + b"garbage", good[:1100] + b"\xff" * 40 + good[1140:]):
        result = jobs.archive(broken)
        assert result.code == 1 and result.error in ("invalid", "not_found"), result
    image.blobs[image.manifest["layers"][1]["digest"]] += b"more"
    refused(jobs.archive(image.layout()))
    forged = Image(tar(entry("f", data=b"1" * 5000)))
    digest = forged.manifest["layers"][0]["digest"]
    forged.blobs[digest] = forged.blobs[digest][:600] + b"2" + forged.blobs[digest][601:]
    refused(jobs.archive(forged.layout()))
    refused(jobs.archive(gzip.compress(bytes(3 << 20)), options=("--max-bytes", "1000000")), "too_large")


def test_archives_of_several_images(jobs):
    a, b = Image(tar(entry("a"))), Image(tar(entry("b")))
    both = a.layout(b, names=("x:1", "x:2"))
    assert "ref" in refused(jobs.archive(both))
    assert jobs.archive(both, ref="x:2").ok["digest"] == b.digest
    refused(jobs.archive(both, ref="x:3"), "not_found")
    result = jobs.archive(a.docker_archive(), ref="test/image:latest")
    assert result.ok["digest"] == sha(json.dumps(a.config).encode())
    refused(jobs.archive(a.docker_archive(), ref="else"), "not_found")


def test_links_in_archives(jobs, image):
    """Old docker-archives hold a layer twice, once as a link."""
    config, layer = json.dumps(Image(tar(entry("f"))).config).encode(), tar(entry("f"))
    listing = json.dumps([{"Config": "c.json", "RepoTags": None, "Layers": ["b/layer.tar"]}]).encode()
    for target in ("../a/layer.tar",):
        assert jobs.archive(tar(entry("a/layer.tar", data=layer), link("b/layer.tar", target), entry("c.json", data=config), entry("manifest.json", data=listing))).ok
    for target in ("../../../../etc/passwd", "/etc/passwd", "layer.tar", "../b/layer.tar"):
        assert jobs.archive(tar(entry("a/layer.tar", data=layer), link("b/layer.tar", target), entry("c.json", data=config), entry("manifest.json", data=listing))).error == "not_found"
