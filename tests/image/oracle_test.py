# SPDX-License-Identifier: Apache-2.0
"""The same image through a real registry, and unpacked by umoci from what skopeo fetched: the trees must be alike to a container."""

import os
import shutil
import subprocess
import tarfile
import urllib.request

import pytest
from layers_test import CAPABILITY
from rig import Image, directory, entry, link, tar, tree, wait_until
from service import reserve_port

PROGRAMS = ("docker-registry", "skopeo", "umoci")

CONFIG = """version: 0.1
log: {{accesslog: {{disabled: true}}, level: error}}
storage: {{filesystem: {{rootdirectory: {storage}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture(scope="module")
def real_registry(tmp_path_factory):
    for program in PROGRAMS:
        if not shutil.which(program):
            pytest.skip(f"there is no {program}: install the packages of the test group")
    where = tmp_path_factory.mktemp("registry")
    port = reserve_port()
    (where / "config.yml").write_text(CONFIG.format(storage=where / "storage", port=port))
    with open(where / "log", "wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", where / "config.yml"], stdout=log, stderr=log)

    def answers():
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5).status == 200
        except OSError:
            return False
    try:
        assert wait_until(answers), (where / "log").read_text()
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def run(*argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def push(image, registry, name, where, *options):
    """From our layout into the registry, by skopeo."""
    (where / "layout.tar").write_bytes(image.layout(names=("it",)))
    run("skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", *options, f"oci-archive:{where}/layout.tar:it", f"docker://{registry}/{name}")


def by_umoci(registry, name, where):
    run("skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", f"docker://{registry}/{name}", f"oci:{where}/oci:it")
    run("umoci", "unpack", "--image", f"{where}/oci:it", where / "bundle")
    return tree(where / "bundle" / "rootfs")


def real_files():
    """A layer as people have them: part of this machine's own files."""
    import io
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as t:
        for top in ("/etc/alternatives", "/usr/share/zoneinfo", "/usr/lib/python3/dist-packages"):
            if os.path.isdir(top):
                t.add(top)
        t.add("/usr/bin/env")
    return out.getvalue()


def layers():
    ping, data = entry("bin/ping", data=b"#!", mode=0o755)
    ping.pax_headers = {"SCHILY.xattr.security.capability": CAPABILITY.decode("latin-1")}
    first = tar(directory("./", mode=0o755), directory("bin"), directory("etc"), directory("tmp", mode=0o1777), directory("gone"), entry("gone/f"), entry("gone/g"), directory("opaque"),
                entry("opaque/old"), directory("opaque/sub"), entry("opaque/sub/old"), entry("etc/passwd", data=b"root:x:0:0::/:/bin/sh\n"), entry("bin/su", data=b"su", mode=0o4755),
                link("sbin", "bin"), link("bin/sh", "bin/su", hard=True), (ping, data), entry("etc/shadow", mode=0o640, gid=42), directory("home/u", uid=1000, gid=1000),
                entry("home/u/" + "n" * 200, uid=1000, gid=1000, pax_headers={"SCHILY.xattr.user.note": "hi"}), entry("fifo", tarfile.FIFOTYPE, mode=0o600), entry("was-file"), directory("was-dir"),
                entry("was-dir/in"), link("etc/mtab", "/proc/mounts"), link("dangling", "nowhere"))
    second = tar(entry(".wh.gone"), directory("opaque", mode=0o700), entry("opaque/.wh..wh..opq"), entry("opaque/new", data=b"n"), link("bin/bash", "bin/su", hard=True),
                 directory("was-file"), entry("was-file/x"), entry("was-dir", data=b"f"), entry("sbin/tool", data=b"through a link", mode=0o755), entry("etc/passwd", data=b"changed", mode=0o600))
    third = tar(entry("etc/.wh.shadow"), entry("opaque/.wh.new"), directory("tmp", mode=0o1777, uid=5), entry("home/u/.wh..wh..opq"))
    return first, second, third


@pytest.mark.parametrize("how", ["", "gzip", "zstd"])
def test_layers_of_every_kind(jobs, real_registry, tmp_path, how):
    name = f"kinds/{how or 'plain'}:1"
    image = Image(*[(layer, how) if how else layer for layer in layers()])
    push(image, real_registry, name, tmp_path)
    result = jobs.run({"image": f"{real_registry}/{name}", "insecure": [real_registry]})
    assert result.code == 0, result
    ours = tree(result.root)
    if how == "zstd": # this umoci does not read it: what it makes of the plain layers is the same image
        push(Image(*layers()), real_registry, name, tmp_path)
    theirs = by_umoci(real_registry, name, tmp_path)
    assert ours == theirs


def test_real_files(jobs, real_registry, tmp_path):
    push(Image((real_files(), "gzip"), tar(entry("usr/bin/.wh.env"), entry("etc/alternatives/.wh..wh..opq"), entry("etc/alternatives/new"))), real_registry, "real/files:1", tmp_path)
    result = jobs.run({"image": f"{real_registry}/real/files:1", "insecure": [real_registry]})
    assert result.code == 0 and result.ok["entries"] > 500, result
    assert tree(result.root) == by_umoci(real_registry, "real/files:1", tmp_path)


def test_what_skopeo_writes(jobs, real_registry, tmp_path):
    """Docker's manifest types, and both kinds of archive, as skopeo makes them from one image."""
    image = Image((layers()[0], "gzip"), (layers()[1], "gzip"))
    push(image, real_registry, "s/image:2", tmp_path, "--format", "v2s2")
    pulled = jobs.run({"image": f"{real_registry}/s/image:2", "insecure": [real_registry]})
    assert pulled.ok, pulled
    expected = tree(pulled.root)
    digest = run("skopeo", "inspect", "--tls-verify=false", "--format", "{{.Digest}}", f"docker://{real_registry}/s/image:2").strip()
    assert pulled.ok["digest"] == digest
    for kind in ("docker-archive", "oci-archive"):
        archive = tmp_path / (kind + ".tar")
        run("skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", f"docker://{real_registry}/s/image:2", f"{kind}:{archive}:s/image:2")
        result = jobs.archive(archive)
        assert result.ok, result
        assert tree(result.root) == expected
