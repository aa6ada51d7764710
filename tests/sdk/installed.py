# SPDX-License-Identifier: Apache-2.0
"""Installs SDKs into build/sdk, at the versions and hashes of lock files, the first time only."""

import ensurepip
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
INSTALLED = TOP / "build" / "sdk"
INSTALL_LIMIT_S = 900
INSTALL_TRIES = 3
WHEELS = [Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels")]

# What package clients say when there is no way to the registry, as opposed to one that answers something else.
NO_WAY = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|FETCH_ERROR"
                    r"|ERR_STREAM_PREMATURE_CLOSE|socket hang up|Exit handler never called|\bE(?:429|5\d\d)\b|HTTP error (?:429|5\d\d)"
                    r"|NewConnectionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|MaxRetryError|ProtocolError|IncompleteRead"
                    r"|CERTIFICATE_VERIFY_FAILED|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_(?:GET_ISSUER_CERT|VERIFY_LEAF)\w*"
                    r"|error sending request|HTTP status (?:client error \(429|server error)"
                    r"|Temporary failure in name resolution|Network is unreachable|Connection refused|Connection broken")


class Unreachable(Exception):
    """The registry can't be reached."""


class Failed(Exception):
    """Something that should work does not."""


def say(text):
    print(text, flush=True)


def install_step(what, command):
    """A registry's bad minute is not a failure of ours: tried again, then what it said decides."""
    for attempt in range(1, INSTALL_TRIES + 1):
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=INSTALL_LIMIT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise Unreachable(f"{what}: no end of the installation after {INSTALL_LIMIT_S} s") from error
        if done.returncode == 0:
            return
        say(f"{what}: attempt {attempt} of {INSTALL_TRIES} to install it failed:\n{done.stdout[-3000:]}")
        time.sleep(2 * attempt if attempt < INSTALL_TRIES else 0)
    reason = NO_WAY.search(done.stdout)
    if reason:
        raise Unreachable(f"{what}: the registry can't be reached ({reason[0]})")
    raise Failed(f"{what}: {' '.join(command[:4])} failed:\n{done.stdout[-3000:]}")


def install(what, lock_files, commands):
    """Runs `commands` unless `what` is installed already from these very files."""
    wanted = hashlib.sha256(b"".join(p.read_bytes() for p in lock_files) + repr(commands).encode()).hexdigest()
    stamp = INSTALLED / f"{what}.installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    stamp.unlink(missing_ok=True)
    say(f"installing {what} into {INSTALLED.relative_to(TOP)}")
    start = time.monotonic()
    for command in commands:
        install_step(what, [str(a) for a in command])
    stamp.write_text(wanted)
    say(f"installed {what} in {time.monotonic() - start:.0f} s")


def pip():
    """The one pip for all that is downloaded: Python's own, out of the wheel that makes environments. Debian's Python has none to call."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with open(INSTALLED / "pip.lock", "w", encoding="utf-8") as lock: # several test programs may begin at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (INSTALLED / "pip" / "pip").exists():
            shutil.rmtree(INSTALLED / "pip", ignore_errors=True)
            wheel = next(w for home in WHEELS for w in sorted(home.glob("pip-*.whl")))
            with zipfile.ZipFile(wheel) as z:
                z.extractall(INSTALLED / "pip.new")
            (INSTALLED / "pip.new").rename(INSTALLED / "pip")
    return [sys.executable, INSTALLED / "pip" / "pip", "--disable-pip-version-check"]


def uv(*command):
    """uv pip COMMAND: it fills environments in a tenth of the time that pip takes, and links what several of them have."""
    home = INSTALLED / "uv"
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with open(INSTALLED / "uv.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install("uv", [HERE / "uv.txt"], [[*pip(), "--retries", "1", "--timeout", "20", "install", "-q", "--no-compile", "--require-hashes", "--only-binary", ":all:",
                                           "--upgrade", "--target", home, "-r", HERE / "uv.txt"]])
    index = os.environ.get("PIP_INDEX_URL")
    return [home / "bin" / "uv", "--cache-dir", INSTALLED / "uv-cache", "--no-config", "--no-progress", "pip", *command, "--quiet",
            "--only-binary", ":all:", *(["--default-index", index] if index else [])]


def python_packages(what, lock):
    """A virtual environment with exactly the packages of a lock file; returns its bin directory."""
    home, command = INSTALLED / what, uv("sync", lock, "--require-hashes", "--python", INSTALLED / what / "bin" / "python")
    with open(INSTALLED / f"{what}.lock", "w", encoding="utf-8") as one:  # several test programs may want it at the same time
        fcntl.flock(one, fcntl.LOCK_EX)
        if not (home / "bin" / "python").exists():
            venv.create(home)
        install(what, [lock], [command])
    return home / "bin"


def node_path():
    """PATH with a Node that can run the SDK (20.19, or 22.12 and later; Debian 12 has 18) and npm: the machine's, else one from PyPI."""
    path = os.environ["PATH"]
    if shutil.which("node") and shutil.which("npm"):
        version = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
        numbers = [int(n) for n in re.findall(r"\d+", version)[:2]]
        if [20, 19] <= numbers < [21] or [22, 12] <= numbers:
            return path
    return f"{python_packages('node', HERE / 'node' / 'requirements.txt')}:{path}"


def node_packages(what, source, path):
    """The packages of a package-lock.json, in a directory of their own, which it returns."""
    home = INSTALLED / what
    home.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, home)
    install(what, [source / "package-lock.json"],
            [["env", f"PATH={path}", shutil.which("npm", path=path), "ci", "--prefix", home, "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress",
              f"--cache={INSTALLED / 'npm-cache'}", "--fetch-retries=1", "--fetch-timeout=20000"]])
    return home
