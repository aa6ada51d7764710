# SPDX-License-Identifier: Apache-2.0
"""coved alone, spoken to in its own language (src/wire/supervisor.h): what cove-api could ask, and what it never would."""

import ctypes
import itertools
import os
import random
import shutil
import signal
import socket
import string
import struct
import subprocess
import time
from pathlib import Path

from leaks import Footprint, processes, read, stocked
from service import BUILD, coved_of, kept_templates, opened, wait_until

HERE = Path(__file__).resolve().parent
ID, LAYER, TEMPLATE, TEXT, VOLUME, PATH, TIER, NEST_PATH = 22, 72, 64, 256, 28, 1024, 16, 256

OK, CANCELED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS = range(7)
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = range(8, 15)

(CREATE, KILL, LIST, ATTACH, USAGE, PAUSE, RESUME, SNAPSHOT, WARM, LAYERS, LAYER_DROP, IMAGE, DIFF, VOLUMES, VOLUME_MAKE, VOLUME_DROP,
 VOLUME_MOUNT, POOL, VOLUME_USAGE, REWIND, NEST, OWNER, AGAIN) = range(1, 24)
(CREATED, DONE, LISTED, ATTACHED, USED, ENDED, STORED, A_LAYER, A_VOLUME, POOLED, EGRESS, RESTARTED) = range(64, 76)
REPEATED = 1 << 30

LIVES, FROZEN, KEPT = range(3)
KILLED, EXITED, SIGNALED, OOM, SHUTDOWN = range(1, 6)

REQUESTS = {
    CREATE: struct.Struct(f"@II{ID}s{LAYER}s{TEMPLATE}sQIIQI{TIER}s20x"),
    PAUSE: struct.Struct(f"@II{ID}sI"),
    SNAPSHOT: struct.Struct(f"@II{ID}s{LAYER}s{LAYER}sI"),
    WARM: struct.Struct(f"@II{LAYER}sIQIIQ{TIER}s"),
    LAYER_DROP: struct.Struct(f"@II{LAYER}s8x"),
    IMAGE: struct.Struct(f"@II{LAYER}s8x"),
    DIFF: struct.Struct(f"@II{LAYER}s{LAYER}s"),
    VOLUME_MAKE: struct.Struct(f"@II{VOLUME}sQ8x"),
    VOLUME_DROP: struct.Struct(f"@II{VOLUME}sQ8x"),
    VOLUME_MOUNT: struct.Struct(f"@II{ID}s{VOLUME}s{PATH}s{PATH}sII"),
    OWNER: struct.Struct(f"@II{VOLUME}sQQ"),
    VOLUME_USAGE: struct.Struct(f"@III{32 * VOLUME}s"),
    NEST: struct.Struct(f"@II{ID}s{NEST_PATH}sIIII{8 * (2 * NEST_PATH + 4)}s{LAYER}s33s3x"),
    **{one: struct.Struct(f"@II{ID}s2x") for one in (KILL, ATTACH, USAGE, RESUME)},
    **{one: struct.Struct("@II") for one in (LIST, LAYERS, VOLUMES, POOL, AGAIN)},
}
ANSWERS = {
    **{one: (struct.Struct(f"@IIi{TEXT}s"), "code message") for one in (CREATED, DONE, ATTACHED)},
    LISTED: (struct.Struct(f"@II{ID}sIQ"), "id life started"),
    USED: (struct.Struct("@IIi4xQQQQQQIIII"), "code cpu memory cache memory_limit disk disk_limit pids pids_limit pids_refused oom_kills"),
    ENDED: (struct.Struct(f"@II{ID}sIII"), "id cause status oom_kills"),
    STORED: (struct.Struct(f"@IIi{TEXT}s4xQQQI4x"), "code message frozen_usec total_usec layer_bytes is_unchanged"),
    A_LAYER: (struct.Struct(f"@II{LAYER}s{LAYER}sQI4x"), "layer below bytes in_use"),
    A_VOLUME: (struct.Struct(f"@II{VOLUME}s4xQQ"), "volume used limit"),
    POOLED: (struct.Struct("@IIIIQQ"), "kind limits total free"),
    EGRESS: (struct.Struct("@II"), ""),
    RESTARTED: (struct.Struct("@II"), ""),
}


def token(n=20):
    return "".join(random.choices(string.ascii_lowercase + string.digits, k=n))


def new_id():
    return "i" + token()


def new_layer():
    return "layer-" + token()


def new_volume():
    return "vol-" + token()


class Answer:
    """One message of coved's. `fds`: what came along."""

    def __init__(self, data, fds=()):
        self.type, self.tag = struct.unpack_from("@II", data)
        form, names = ANSWERS[self.type]
        assert len(data) == form.size, (self.type, len(data), form.size)
        for name, value in zip(names.split(), form.unpack(data)[2:]):
            if name == "code":
                value &= 0xFF  # above it: the reason
            setattr(self, name, value.split(b"\0")[0].decode() if isinstance(value, bytes) else value)
        self.fds = list(fds)

    def __repr__(self):
        return f"<{', '.join(f'{k}={v!r}' for k, v in vars(self).items())}>"


class Refused(Exception):
    def __init__(self, answer):
        super().__init__(f"{answer.code}: {getattr(answer, 'message', '')}")
        self.code, self.message = answer.code, getattr(answer, "message", "")


class Coved:
    """A coved whose cove-api is this test. `pool`: prepares the empty directory of the pool, a file system of its own for example."""

    tier = "container"

    def __init__(self, directory, **env):
        self.directory = Path(directory)
        self.state, self.run_dir = self.directory / "state", self.directory / "run"
        self.log = self.directory / "coved.log"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("COVE_", "E2B_"))}
        self.env.update(COVE_STATE=str(self.state), COVE_RUN=str(self.run_dir), COVE_LISTEN="127.0.0.1:0",
                        COVE_CONFIG=str(self.directory / "cove.yaml"), **{"COVE_OBSERVE_PROCESSES": "false", "COVE_OBSERVE_FILES": "false", **env})
        self.process, self.sock, self.friend = None, None, None # process: the keeper
        self.ended, self.tags, self.early = [], itertools.count(1), {}
        self.programs = self.directory / "programs"
        self.footprint = Footprint(self.state, self.run_dir)
        self.keep_mounts = self.footprint.keep_mounts
        self.base = None

    def make(self, build=BUILD):
        self.programs.mkdir()
        for program in ("coved", "cove-agent", "cove-image"):
            if (build / program).exists():
                shutil.copy(build / program, self.programs / program)
        shutil.copy(HERE / "api_standin.py", self.programs / "cove-api")
        (self.directory / "cove.yaml").write_text(f"tiers: {{allow: [{self.tier}]}}\n") # others are tried out at each start, which takes longer
        for path in (self.state, self.run_dir):
            path.mkdir(exist_ok=True)
        (self.state / "pool").mkdir(mode=0o700, exist_ok=True)
        return self

    def seed(self):
        """The base template's layer, as hard links where it is one file system."""
        kept = kept_templates() / "pool" / "layers"
        source = next(p for p in sorted(kept.iterdir()) if p.name.startswith("sha256-") and (p / "u").is_dir())
        target = self.state / "pool" / "layers"
        target.mkdir(exist_ok=True, parents=True)
        for way in ("-al", "-a"):
            if subprocess.run(["cp", way, source, target / source.name], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
            shutil.rmtree(target / source.name, ignore_errors=True)
        self.base = source.name
        return self

    # ---- life ----

    def start(self):
        def end_with_parent():
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)

        api = self.state / "api"
        api.mkdir(exist_ok=True)
        path = api / "test.sock"
        path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        os.chmod(path, 0o666)
        self.listener.listen()
        self.listener.settimeout(60)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.programs / "coved", "run"], env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True, preexec_fn=end_with_parent)
        self.ended, self.early = [], {}
        self.adopt()
        return self

    def adopt(self):
        """Takes the socket of the cove-api that coved started last."""
        self.drop_socket()
        try:
            self.friend, _ = self.listener.accept()
        except TimeoutError:
            raise AssertionError(f"no cove-api came\n{self.tail()}") from None
        _, fds, _, _ = socket.recv_fds(self.friend, 1, 1)
        self.sock = socket.socket(fileno=fds[0])
        self.sock.settimeout(60)

    def drop_socket(self):
        for one in (self.sock, self.friend):
            if one:
                one.close()
        self.sock = self.friend = None

    def new_worker(self):
        """cove-api dies, coved starts another."""
        self.drop_socket()
        self.early = {}
        self.adopt()

    @property
    def pid(self):
        """Of coved itself."""
        return wait_until(lambda: coved_of(self.process.pid))

    def await_restart(self):
        """Another coved goes on with this socket. Nothing is said to it yet."""
        while (m := self.receive()).type != RESTARTED:
            if m.type == ENDED:
                self.ended.append(m)
        return m.tag

    def restart(self):
        """coved alone dies."""
        os.kill(self.pid, signal.SIGKILL)
        self.send_raw(REQUESTS[AGAIN].pack(AGAIN, self.await_restart()))

    def kill(self):
        self.process.kill()
        self.process.wait(60)
        self.drop_socket()
        self.listener.close()

    def stop(self, seconds=60):
        """SIGTERM; cove-api ends when it is told to. The exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        self.drop_socket()
        self.listener.close()
        return code

    def tail(self):
        return "\n".join(read(self.log).splitlines()[-30:])

    # ---- messages ----

    def send_raw(self, data, fds=()):
        socket.send_fds(self.sock, [data], list(fds))

    def send(self, kind, *fields, fds=()):
        tag = next(self.tags)
        encoded = [f.encode() if isinstance(f, str) else f for f in fields]
        if kind & ~REPEATED in (CREATE, WARM):
            encoded.append(self.tier.encode())
        if kind & ~REPEATED == SNAPSHOT and len(encoded) == 2:
            encoded += [b"", 0] # like whatever it was; without its memory
        if kind & ~REPEATED == VOLUME_MOUNT and len(encoded) == 4:
            encoded.insert(3, b"") # all of it
            encoded.append(0xffffffff) # as nobody's in particular
        self.send_raw(REQUESTS[kind & ~REPEATED].pack(kind, tag, *encoded), fds)
        return tag

    def receive(self):
        data, fds, flags, _ = socket.recv_fds(self.sock, 8192, 4)
        if not data:
            raise ConnectionError(f"coved let go of us\n{self.tail()}")
        return Answer(data, fds)

    def one(self):
        """The next message that is an answer."""
        while True:
            m = self.receive()
            if m.type == ENDED:
                self.ended.append(m)
            elif m.type == EGRESS:
                for fd in m.fds:
                    os.close(fd)
            else:
                return m

    def answer(self, tag):
        """The answer to a request, with what was told before it in `items`; the answers to others are kept for those who ask."""
        items = self.early.setdefault(tag, [])
        while not items or items[-1].type in (LISTED, A_LAYER, A_VOLUME):
            m = self.one()
            self.early.setdefault(m.tag, []).append(m)
        del self.early[tag]
        items[-1].items = items[:-1]
        return items[-1]

    def ask(self, kind, *fields, fds=()):
        return self.answer(self.send(kind, *fields, fds=fds))

    def must(self, kind, *fields, fds=()):
        answer = self.ask(kind, *fields, fds=fds)
        if getattr(answer, "code", 0):
            for fd in answer.fds:
                os.close(fd)
            raise Refused(answer)
        return answer

    def await_end(self, sandbox, seconds=60):
        """How it ended, once that was told."""
        end = time.monotonic() + seconds
        while True:
            for m in self.ended:
                if m.id == sandbox:
                    return m
            assert time.monotonic() < end, f"{sandbox} did not end\n{self.tail()}"
            m = self.receive()
            if m.type == ENDED:
                self.ended.append(m)
            elif m.type != EGRESS:
                self.early.setdefault(m.tag, []).append(m)

    # ---- requests ----

    def send_create(self, sandbox, layer=None, memory=0, cpu=0, pids=0, disk=0, kept=0):
        layer = "" if kept and layer is None else self.base if layer is None else layer
        return self.send(CREATE, sandbox, layer, "base", memory, cpu, pids, disk, kept)

    def create(self, sandbox=None, **how):
        """Its id; the session's socket is closed."""
        sandbox = sandbox or new_id()
        answer = self.answer(self.send_create(sandbox, **how))
        for fd in answer.fds:
            os.close(fd)
        if answer.code:
            raise Refused(answer)
        return sandbox

    def resume_kept(self, sandbox, **how):
        self.create(sandbox, kept=1, **how)
        self.must(RESUME, sandbox) # its start is done
        return sandbox

    def remove(self, sandbox):
        self.must(KILL, sandbox)
        return self.await_end(sandbox)

    def pause(self, sandbox, memory=1):
        return self.must(PAUSE, sandbox, memory)

    def resume(self, sandbox):
        return self.must(RESUME, sandbox)

    def snapshot(self, sandbox, layer=None):
        layer = layer or new_layer()
        self.must(SNAPSHOT, sandbox, layer)
        return layer

    def list(self):
        """{id: life}"""
        return {m.id: m.life for m in self.must(LIST).items}

    def stocked(self, measure):
        """What is measured once all boxes are there that are made ahead of need."""
        return stocked(self.state, sum(life != KEPT for life in self.list().values()), measure)

    def layers(self):
        return {m.layer: m for m in self.must(LAYERS).items}

    def volumes(self):
        return {m.volume: m for m in self.must(VOLUMES).items}

    def volume_usage(self, *volumes, n=None):
        """What coved answers to a question about so many of these."""
        names = b"".join(v.encode().ljust(VOLUME, b"\0") for v in volumes)
        return self.answer(self.send(VOLUME_USAGE, len(volumes) if n is None else n, names))

    # ---- inside, from the host: no agent is asked ----

    def first_process(self, sandbox):
        """The host's pid of its first process: it holds the other end of a session of ours."""
        answer = self.must(ATTACH, sandbox)
        with socket.socket(fileno=answer.fds[0]) as session:
            peer = peer_of(os.fstat(session.fileno()).st_ino)
            end = time.monotonic() + 60
            while time.monotonic() < end:
                for pid in processes(self.state):
                    if holds(pid, f"socket:[{peer}]"):
                        return pid
                time.sleep(0.005)
        raise AssertionError(f"no process of {sandbox} took the session")

    def inside(self, pid, *argv, **options):
        """Runs a program in the namespaces and the control groups of a process, as its root."""
        enter = " ".join(f"echo $$ > {path}/cgroup.procs;" for path in control_groups(pid))
        line = f"{enter} exec nsenter -t {pid} -U -m -u -i -n -p -r -w -S 0 -G 0 -- \"$@\""
        options = {"capture_output": True, "text": True, "timeout": 120, "check": True, "stdin": subprocess.DEVNULL, **options}
        return subprocess.run(["sh", "-c", line, "sh", *argv], **options)

    def start_inside(self, pid, *argv, **options):
        enter = " ".join(f"echo $$ > {path}/cgroup.procs;" for path in control_groups(pid))
        line = f"{enter} exec nsenter -t {pid} -U -m -u -i -n -p -r -w -S 0 -G 0 -- \"$@\""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
        return subprocess.Popen(["sh", "-c", line, "sh", *argv], **options)


def holds(pid, what):
    return what in opened(pid).values()


def peer_of(inode):
    """The inode of the other end of a unix socket: sock_diag, UNIX_DIAG_PEER."""
    show_peer, unix_diag_peer = 4, 2
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as netlink:
        request = struct.pack("@BBHIIIII", socket.AF_UNIX, 0, 0, 0xffffffff, inode, show_peer, 0xffffffff, 0xffffffff)
        netlink.send(struct.pack("@IHHII", 16 + len(request), 20, 1, 1, 0) + request)
        data = netlink.recv(65536)
    length, kind = struct.unpack_from("@IH", data)
    assert kind == 20, "the kernel does not tell sockets' peers"
    at = 16 + 16
    while at + 4 <= length:
        size, attribute = struct.unpack_from("@HH", data, at)
        if attribute == unix_diag_peer:
            return struct.unpack_from("@I", data, at + 4)[0]
        at += (size + 3) & ~3
    raise AssertionError("a socket without a peer")


def control_groups(pid):
    """Its directories below /sys/fs/cgroup, in each hierarchy that our groups are in."""
    found = []
    for line in read(f"/proc/{pid}/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if "/cove-" in path:
            found.append(Path("/sys/fs/cgroup") / (controllers if number != "0" else "") / path.lstrip("/"))
    return found
