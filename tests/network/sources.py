# SPDX-License-Identifier: Apache-2.0
"""What clients fetch from the canary (a repository, a package for pip, one for npm), and clients that are not in the base template, from PyPI."""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
sys.path.append(str(TOP / "tests" / "sdk"))
from installed import NO_WAY, pip  # noqa: E402

DOWNLOAD_LIMIT_S = 240
SYSTEM_STORE = Path("/etc/ssl/certs/java/cacerts")  # of Java, in Debian and its like


class Missing(Exception):
    """A client that can't be had here."""


def publish(files):
    """Into the directory that the canary serves."""
    files.mkdir()
    git_repository(files)
    python_package(files / "simple" / "cove-probe")
    npm_package(files / "npm")


def git_repository(files):
    work, env = files / "work", {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    who = ["-c", "user.name=canary", "-c", "user.email=canary@allowed.test", "-c", "init.defaultBranch=main"]

    def git(*arguments):
        subprocess.run(["git", *who, *arguments], env=env, check=True, capture_output=True, timeout=30)

    git("init", "-q", work)
    (work / "hello.txt").write_text("hello from git\n")
    (work / "large.bin").write_bytes(os.urandom(2_000_000))
    git("-C", work, "add", ".")
    git("-C", work, "commit", "-q", "-m", "first")
    git("clone", "-q", "--bare", work, files / "repo.git")
    git("clone", "-q", "--bare", work, files / "foreign.git")
    for name in ("repo.git", "foreign.git"):
        git("-C", files / name, "config", "http.receivepack", "true")


def python_package(directory):
    directory.mkdir(parents=True)
    name = "cove_probe-1.0-py3-none-any.whl"
    with zipfile.ZipFile(directory / name, "w") as wheel:
        wheel.writestr("cove_probe.py", "print('hello from pip')\n")
        wheel.writestr("cove_probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: cove-probe\nVersion: 1.0\n")
        wheel.writestr("cove_probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: canary\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("cove_probe-1.0.dist-info/RECORD", "cove_probe.py,,\ncove_probe-1.0.dist-info/METADATA,,\ncove_probe-1.0.dist-info/WHEEL,,\n")
    (directory / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{name}">{name}</a></body></html>\n')


def npm_package(directory):
    directory.mkdir()
    packed = io.BytesIO()
    manifest = {"name": "cove-probe", "version": "1.0.0", "main": "index.js"}
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in (("package.json", json.dumps(manifest)), ("index.js", "console.log('hello from npm')\n")):
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    (directory / "cove-probe-1.0.0.tgz").write_bytes(packed.getvalue())
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()
    dist = {"tarball": "https://allowed.test/files/npm/cove-probe-1.0.0.tgz", "integrity": integrity}
    (directory / "cove-probe").write_text(json.dumps({"name": "cove-probe", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**manifest, "dist": dist}}}))


# ---- clients that are compiled here ----


def go_program(source, into):
    """A static program of one file that uses the standard library alone."""
    if not shutil.which("go"):
        raise Missing("there is no go")
    into.mkdir(parents=True, exist_ok=True)
    (into / "main.go").write_text(source)
    env = {**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": "", "GOTOOLCHAIN": "local"}
    # Most of the time goes to the standard library, which the user's own cache may have.
    subprocess.run(["go", "build", "-o", into / "client", into / "main.go"], env=env, check=True, capture_output=True, timeout=DOWNLOAD_LIMIT_S)
    return into / "client"


def java_home():
    """A JDK that was installed from a distribution's packages."""
    for home in sorted(Path("/usr/lib/jvm").glob("*")):
        if not home.is_symlink() and (home / "bin" / "javac").exists() and (home / "lib" / "modules").exists() and SYSTEM_STORE.exists():
            return home
    raise Missing("there is no JDK below /usr/lib/jvm")


def java_program(name, source, into):
    """(home, archive of the runtime as it is installed, class file)"""
    home = java_home()
    into.mkdir(parents=True, exist_ok=True)
    (into / f"{name}.java").write_text(source)
    subprocess.run([home / "bin" / "javac", "--release", "17", "-d", into, into / f"{name}.java"], check=True, capture_output=True, timeout=DOWNLOAD_LIMIT_S)
    archive = into / f"{home.name}.tar"
    if not archive.exists():
        wanted = [home, *Path("/etc").glob("java-*")]
        without = [f"--exclude={home}/{part}" for part in ("jmods", "legal", "man", "include", "lib/src.zip", "lib/ct.sym", "demo")]
        subprocess.run(["tar", "-C", "/", "-P", *without, "--transform", "s,^/,,S", "-cf", archive, *wanted], check=True, timeout=60)
    return home, archive, into / f"{name}.class"


# ---- clients from a registry ----


def wheels(lock, into):
    """The wheels of a lock file for the base template's Python 3.11, downloaded the first time only."""
    stamp, wanted = into / "complete", hashlib.sha256(lock.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        into.mkdir(parents=True, exist_ok=True)
        for old in into.glob("*.whl"):
            old.unlink()
        platforms = [f"{kind}_{os.uname().machine}" for kind in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")]
        try:
            done = subprocess.run([*pip(), "download", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:",
                                   "--python-version", "3.11", *[f"--platform={p}" for p in platforms], "-d", into, "-r", lock], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise Missing("PyPI: no end of the download") from error
        if done.returncode:
            reason = NO_WAY.search(done.stderr)
            if reason:
                raise Missing(f"PyPI can't be reached ({reason[0]})")
            raise AssertionError(f"pip download: {done.stderr[-2000:]}")
        stamp.write_text(wanted)
    return sorted(into.glob("*.whl"))
