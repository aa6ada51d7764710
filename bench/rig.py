# SPDX-License-Identifier: Apache-2.0
"""What the measurements stand on: a scratch directory, a service of our own in it, the load program, and figures of processes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
MIB = 1 << 20


class Broken(Exception):
    """Something does not work; being slow never raises this."""


class Missing(Exception):
    """What a row compares with, or needs, is not to be had on this machine."""


def say(text):
    print(f"  {text}", file=sys.stderr, flush=True)


def run(argv, timeout=60, **more):
    try:
        result = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=timeout, **more)
    except FileNotFoundError as error:
        raise Missing(f"{argv[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise Broken(f"{' '.join(map(str, argv[:3]))}: no end after {timeout} s") from error
    if result.returncode != 0:
        raise Broken(f"{' '.join(map(str, argv[:3]))}: {(result.stderr or result.stdout).strip()[-500:] or result.returncode}")
    return result.stdout


def wait_gone(pid, seconds):
    """Until our child has ended; False when it has not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return True
        time.sleep(0.01)
    return False


# ---- processes ----

def proc_fields(pid, name="status"):
    """Figures of /proc/PID/status or smaps_rollup, in bytes where the kernel says kB."""
    fields = {}
    for line in Path(f"/proc/{pid}/{name}").read_text().splitlines():
        match = re.match(r"(\w+):\s+(\d+)( kB)?", line)
        if match:
            fields[match[1]] = int(match[2]) * (1024 if match[3] else 1)
    return fields


def rss(pid):
    return proc_fields(pid)["VmRSS"]


def pss(pid):
    return proc_fields(pid, "smaps_rollup")["Pss"]


def forget_peak(pid):
    Path(f"/proc/{pid}/clear_refs").write_text("5\n")


def peak(pid):
    """The most memory since forget_peak()."""
    return proc_fields(pid)["VmHWM"]


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid):
    """{pid: name} of the processes whose parent is this one."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 1:].split()
        if int(rest[1]) == pid:
            found[int(entry.name)] = name
    return found


def kernel_memory():
    """What the kernel keeps for itself: slabs, stacks, page tables, per-CPU areas."""
    fields = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split(":")
        fields[name] = int(value.split()[0]) * 1024
    return sum(fields.get(name, 0) for name in ("SUnreclaim", "KernelStack", "PageTables", "Percpu"))


# ---- scratch ----

def remove_empty(top):
    """Directories that hold no files of anybody (control groups never do); they may be busy for a moment."""
    for _ in range(40):
        for directory, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:
                pass
        if not top.exists():
            return True
        time.sleep(0.05)
    return False


class Scratch:
    """A directory of our own beside the template (for hard links), and what was there before us, so that nothing stays."""

    CGROUPS = Path("/sys/fs/cgroup")

    def __init__(self, beside):
        self.path = Path(tempfile.mkdtemp(prefix="cove-bench-", dir=beside))
        self.path.chmod(0o711)
        self.cgroups = self.top_cgroups()
        self.made = [d for d in (Path("/run/containerd"), Path("/run/docker")) if not d.exists()]

    def top_cgroups(self):
        """Groups at the top of each hierarchy, and in the group that we run in, where cgroup v2 makes coved and docker put theirs."""
        tops = [self.CGROUPS, *(d for d in self.CGROUPS.iterdir() if d.is_dir())]
        return {d for top in tops for d in top.iterdir() if d.is_dir()}

    def mounts(self):
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [m for m in (line.split()[4] for line in lines) if m.startswith(f"{self.path}/")]

    def close(self):
        for mount in reversed(self.mounts()):
            subprocess.run(["umount", "-l", mount], check=False)
        ours = [g for g in self.top_cgroups() - self.cgroups if g.name == "docker" or g.parent == self.CGROUPS / "systemd"]
        for directory in [*ours, *self.made]:
            if not remove_empty(directory):
                say(f"could not remove {directory}")
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path.exists() or self.mounts():
            say(f"could not remove all of {self.path}")


# ---- the service ----

class Service:
    """coved, with a state directory of its own and the storage pool that it would have by itself; COVE_POOL is honoured."""

    def __init__(self, build, prepared, scratch):
        self.build, self.dir = build, scratch.path / "cove"
        self.state, self.run_dir = self.dir / "state", self.dir / "run"
        self.state.mkdir(parents=True)
        self.run_dir.mkdir()
        for directory in self.dir, self.state:
            directory.chmod(0o755)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % s.getsockname()[1]
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            tls = "127.0.0.1:%d" % s.getsockname()[1]
        self.env = {**os.environ, "COVE_STATE": str(self.state), "COVE_RUN": str(self.run_dir), "COVE_LISTEN": self.address,
                    "COVE_LISTEN_TLS": tls}
        self.env.pop("COVE_API_KEY", None)
        guest = next((g for g in (build / "guest", TOP / "build/guest") if g.is_dir()), None) # of tools/guest
        if guest:
            self.env = {"COVE_MICROVM_GUEST": str(guest), "COVE_MICROVM_EMULATE": "true", **self.env}
        run([build / "coved", "prepare", "--from", prepared], timeout=300, env=self.env)
        digest = re.search(r"^layer = (\S+)", (prepared / "templates/base.conf").read_text(), re.M)[1]
        self.layer = prepared / "pool/layers" / digest / "u"
        self.pid = 0

    def start(self):
        ready, told = os.pipe()
        os.set_inheritable(told, True)
        log = open(self.dir / "log", "wb")
        process = subprocess.Popen([self.build / "coved", "run", "--ready-fd", str(told)], env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log, close_fds=True, pass_fds=[told], start_new_session=True)
        os.close(told)
        self.pid = process.pid
        with open(ready, "rb", buffering=0) as pipe:
            if pipe.read(6) != b"ready\n":
                raise Broken(f"coved did not start:\n{self.log()}")
        key = (self.state / "key").read_text().strip()
        self.reach = {"BENCH_ADDRESS": self.address, "BENCH_KEY": key}
        os.environ |= self.reach
        deadline = time.monotonic() + 10
        while self.worker() is None or not self.answers():
            if time.monotonic() > deadline:
                raise Broken(f"cove-api does not answer:\n{self.log()}")
            time.sleep(0.02)

    def log(self):
        return "\n".join((self.dir / "log").read_text(errors="replace").splitlines()[-15:])

    def answers(self):
        host, port = self.address.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=2) as s:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                return s.recv(12) == b"HTTP/1.1 200"
        except OSError:
            return False

    def coved(self):
        """The pid of coved itself; self.pid is its keeper's, whose children boxes are too."""
        named = [pid for pid, name in children(self.pid).items() if name == "coved"]
        return min(pid for pid in named if proc_fields(pid)["Uid"] == os.getuid())  # the effective one changes while it clones

    def worker(self):
        return next((pid for pid, name in children(self.pid).items() if name == "cove-api"), None)

    def agents(self, least=1):
        """Executed from memory, which shows in the name that the kernel gives them. Of fewer than there must be, no figure would be true."""
        found = [pid for pid, name in children(self.pid).items() if name.startswith(("cove-agent", "memfd:cove-ag"))]
        if len(found) < least:
            raise Broken(f"of {least} agents only {len(found)} are to be seen")
        return found

    def settle(self):
        """Until the service has done its work ahead of need: nothing runs that we did not ask for."""
        quiet, before, deadline = 0, None, time.monotonic() + 10
        while quiet < 5 and time.monotonic() < deadline:
            now = (cpu_seconds(self.coved()), len(children(self.pid)))
            quiet, before = (quiet + 1 if now == before else 0), now
            time.sleep(0.05)

    def stop(self):
        if not self.pid:
            return
        os.kill(self.pid, signal.SIGTERM)
        if not wait_gone(self.pid, 40):
            say("coved did not end; it is killed")
            os.kill(self.pid, signal.SIGKILL)
            wait_gone(self.pid, 5)
        self.pid = 0


# ---- the load program ----

class Load:
    SOURCES = ("client.c", "load.c")

    def __init__(self, out):
        out.mkdir(parents=True, exist_ok=True)
        self.program = out / "load"
        sources = [TOP / "bench" / name for name in self.SOURCES]
        newest = max(p.stat().st_mtime for p in [*sources, TOP / "bench/client.h"])
        if not self.program.exists() or self.program.stat().st_mtime < newest:
            run(["cc", "-std=c17", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-pthread", "-o", self.program, *sources])

    def __call__(self, *argv, text=None, timeout=90):
        """Lines of words."""
        return [line.split() for line in run([self.program, *argv], timeout, input=text).splitlines()]

    def numbers(self, *argv, **more):
        return [[float(word) for word in line] for line in self(*argv, **more)]

    def start(self, *argv):
        return subprocess.Popen([self.program, *map(str, argv)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def sandbox(self):
        (_, identity, *token), _ = self("create", 1, 1)
        return identity, token[0] if token else ""

    def kill(self, ids, connections=4):
        return float(self("kill", connections, text="".join(f"{i}\n" for i in ids))[-1][1])
