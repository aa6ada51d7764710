# SPDX-License-Identifier: Apache-2.0
"""What the attacks share: the probe, outside of a sandbox and inside, and how its answers are judged.

Every attack has a control run outside. Where that fails, the attack inside has proved nothing and is skipped, never passed.
"""

import contextlib
import errno
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))

from client import Client, Sandbox  # noqa: E402
from leaks import end_whole  # noqa: E402
from service import BUILD, Service, opened, read  # noqa: E402

PROBE = BUILD / "attack-probe"
PROBE_INSIDE = "/srv/probe" # not below /usr, which in tier process is the host's
USERS = ("root", "user")
MIB = 1 << 20
SECRET = "4f1c-only-the-host-has-this\n"


def build_probe():
    sources = sorted((HERE / "probe").glob("*.[ch]"))
    if PROBE.exists() and all(PROBE.stat().st_mtime > s.stat().st_mtime for s in sources):
        return
    subprocess.run(["musl-gcc", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Os", "-static", "-idirafter",
                    BUILD / "kernel-headers", *(s for s in sources if s.suffix == ".c"), "-o", PROBE], check=True, timeout=120)


class Outcome:
    """What became of one verb: an errno (0: it reached what it was after), or in words why there is none."""

    def __init__(self, line):
        self.verb, self.result, self.note = (line.split("\t") + ["", ""])[:3]
        self.errno = int(self.result) if self.result.lstrip("-").isdigit() else None
        self.reached = self.errno == 0

    @property
    def name(self):
        return self.result if self.errno is None else errno.errorcode.get(self.errno, "reached" if self.reached else self.result)

    def __repr__(self):
        return f"{self.verb}: {self.name} {self.note}".rstrip()


def outcomes(text):
    return {o.verb: o for o in map(Outcome, text.splitlines())}


def outside(*verbs, net=False):
    """The control run, as root on the host, in a mount namespace (and if asked a network) that is thrown away."""
    done = subprocess.run(["unshare", "-mn" if net else "-m", PROBE, *verbs], capture_output=True, text=True, timeout=120, check=False)
    return outcomes(done.stdout)


def install(sandbox):
    answer = sandbox.request("POST", f"/files?path={PROBE_INSIDE}&username=root", PROBE.read_bytes(), {"Content-Type": "application/octet-stream"})
    assert answer.status == 200, answer
    assert sandbox.sh(f"chmod 755 {PROBE_INSIDE}", user="root")[0] == 0
    return sandbox


def inside(sandbox, *verbs, user="root", timeout=200):
    with sandbox.start(PROBE_INSIDE, *verbs, user=user, timeout=timeout) as stream:
        code, out, err = stream.rest()
    assert code == 0, (code, out, err)
    return outcomes(out.decode())


def judge(attack, control, allowed=None):
    """attack: inside, control: outside. allowed: the names of errors that it may fail with; None: any."""
    assert not attack.reached, f"it worked: {attack}"
    assert attack.errno is not None, f"neither worked nor was refused: {attack}"
    if not control.reached:
        pytest.skip(f"proves nothing: it fails outside of a sandbox, too ({control})")
    assert allowed is None or attack.name in allowed, attack


def text(data):
    return data.decode(errors="replace") if isinstance(data, bytes) else data


def must(sandbox, script, user="user", timeout=120, code=0):
    """A script that has to end with this code; its output."""
    got, out, err = sandbox.sh(script, user=user, timeout=timeout)
    assert got == code, f"exit code {got}\n{text(out)[-2000:]}\n{text(err)[-2000:]}"
    return text(out)


@contextlib.contextmanager
def hog(sandbox, verb, user="user", wait=60):
    """A probe that takes all it gets and keeps it; yields how much that was."""
    with sandbox.start(PROBE_INSIDE, "-x", verb, user=user, timeout=wait) as stream:
        first = next((text(data) for _, data in stream.output()), "")
        yield int(first.split()[-1]) if first.split() else None
        if stream.pid:
            sandbox.unary("process.Process/SendSignal", {"process": {"pid": stream.pid}, "signal": "SIGNAL_SIGKILL"})


def hog_outside(verb):
    """The same on the host, as root, for a moment; how much it was."""
    with subprocess.Popen([PROBE, "-x", verb], stdout=subprocess.PIPE, text=True) as process:
        words = process.stdout.readline().split()
        process.kill()
    return int(words[-1]) if words else None


def answers(sandbox, bound=60):
    """Another sandbox runs `true`; how long that took. The bound is for hanging, not for slowness."""
    begin = time.monotonic()
    code, _, err = sandbox.sh("true", timeout=bound)
    assert code == 0, err
    return time.monotonic() - begin


def raw(port, data, timeout=20):
    """Bytes to the service and back, until it closes."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as s:
        try:
            s.sendall(data)
            while piece := s.recv(65536):
                got += piece
        except (ConnectionError, TimeoutError):
            pass
    return got


def alive(process):
    return process.poll() is None and Path(f"/proc/{process.pid}").exists()


CONFIG = "defaults: {memory: 384MiB, cpus: 1, pids: 200, timeout: 10m}\n"

# What coved is started with, as if by a careless person: open files, a socket, a directory. None of it may get any further.
WRAPPER = """#!/bin/bash
exec 60</etc/shadow 61</ 62<>/dev/tcp/127.0.0.1/{port} 63>{canary}
export COVE_ATTACK_SECRET=never-seen-inside
exec {coved} "$@"
"""


def descriptors(service):
    """Of the worker, numbers included: {"7 socket:[1234]"}."""
    return {f"{number} {target}" for number, target in opened(service.child("cove-api")).items()}


@contextlib.contextmanager
def attacked(canary, programs):
    """One service, of these programs, for many attacks; when it is stopped, nothing of it may be left on the machine."""
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    directory = tempfile.mkdtemp(prefix="test-attack-", dir=BUILD) # beside the templates, so that layers can be linked
    os.chmod(directory, 0o755)
    service = Service(directory)
    config = Path(directory) / "cove.yaml"
    config.write_text(CONFIG)
    service.env["COVE_CONFIG"] = str(config)
    wrapper = Path(directory) / "start"
    wrapper.write_text(WRAPPER.format(port=canary.port, canary=Path(directory) / "leaked", coved=Path(programs) / "coved"))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    try:
        service.start(wrapper)
        canary.visitors() # the wrapper's own
        service.client = Client(service.port, service.key)
        first = install(service.client.create())
        assert first.works()
        service.client.remove_all()
        service.baseline = service.settle()
        service.held = descriptors(service)
        yield service
        end_whole(service)
    finally:
        if service.coved and service.coved.poll() is None:
            service.stop()
        service.remove()


def small(service, memory=128 * MIB, cpu_milli=1000):
    """A sandbox with limits of its own and the probe."""
    box = service.create(memory_bytes=memory, cpu_milli=cpu_milli)
    token = service.client.get(box).json.get("envdAccessToken") or ""
    return install(Sandbox(service.client, box, token))


def rss(service):
    """Anonymous memory of coved and the worker."""
    pids = (service.coved_pid, service.child("cove-api"))
    return sum(int((re.search(r"^RssAnon:\s*(\d+)", read(f"/proc/{pid}/status"), re.M) or [0, 0])[1]) * 1024 for pid in pids)


class Watch:
    """A neighbour that answers `true` again and again while something else goes on; and how much the service grows meanwhile."""

    def __init__(self, service, neighbour):
        self.service, self.neighbour = service, neighbour
        self.times, self.errors, self.grown, self.stop = [], [], 0, threading.Event()

    def __enter__(self):
        self.begin = rss(self.service)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self

    def run(self):
        while not self.stop.is_set():
            try:
                self.times.append(answers(self.neighbour))
            except Exception as error:
                self.errors.append(repr(error))
            self.grown = max(self.grown, rss(self.service) - self.begin)
            self.stop.wait(0.1)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(60)
        times = sorted(self.times)
        print(f"the neighbour answered {len(times)} times, median {times[len(times) // 2] * 1000:.0f} ms, slowest {times[-1] * 1000:.0f} ms; "
              f"the service grew by {self.grown / MIB:.1f} MiB" if times else f"no answer: {self.errors}")
        assert not self.errors, self.errors
        assert times
