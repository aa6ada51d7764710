# SPDX-License-Identifier: Apache-2.0
"""Images of one layer for tests, as `docker save` writes them."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile

PROGRAMS = ("sh", "id", "mkdir", "chown", "chmod", "cat", "ls", "tar", "od", "tr", "dirname", "rm", "mv", "readlink", "gzip", "touch")
DIRECTORIES = ("tmp", "root", "proc", "sys", "dev", "run", "home", "etc")


def with_libraries(programs):
    """Their paths on this machine, and those of what they are linked with."""
    wanted = set(filter(None, map(shutil.which, programs)))
    for program in list(wanted):
        linked = subprocess.run(["ldd", os.path.realpath(program)], capture_output=True, text=True, check=False).stdout
        wanted |= {part for line in linked.splitlines() for part in line.split() if part.startswith("/")}
    return sorted(wanted)


def put(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def docker_archive(path, files, programs=(), env=(), **config):
    """files: {name: bytes}; programs: of this machine, with what they need, the shell first; config: more of its configuration."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in DIRECTORIES:
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name, data in files.items():
            put(tar, name, data)
        wanted = with_libraries(programs)
        for name in wanted:
            tar.add(os.path.realpath(name), name.lstrip("/"))
        if programs and "/bin/sh" not in wanted:
            info = tarfile.TarInfo("bin/sh")
            info.type, info.linkname = tarfile.SYMTYPE, shutil.which("sh")
            tar.addfile(info)
    layer = layer.getvalue()
    diff = "sha256:" + hashlib.sha256(layer).hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Env": list(env), **config}, "rootfs": {"type": "layers", "diff_ids": [diff]}}).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": name, "RepoTags": ["tiny:latest"], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        put(tar, name, config)
        put(tar, "layer.tar", layer)
        put(tar, "manifest.json", json.dumps(manifest).encode())


def image_archive(path, mark=""):
    """One in which a shell runs."""
    files = {"etc/passwd": b"root:x:0:0::/root:/bin/sh\n", "etc/group": b"root:x:0:\n", "mark": str(mark).encode()}
    docker_archive(path, files, PROGRAMS, ["FROM_IMAGE=yes", "PATH=/usr/bin:/bin"])
