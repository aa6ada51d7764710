# SPDX-License-Identifier: Apache-2.0
"""
Our processes die at each point of the operations on state (base/fault.h), the disk fails or is full there, or somebody kills them when he likes: what is
listed afterwards works and has the content that it had, what was promised is there, and nothing is left over. Runs what `tools/compile faults` made.
"""

import contextlib
import hashlib
import http.client
import io
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from leaks import Footprint, read
from service import BUILD, Service, children, kept_templates, wait_until

FAULTS = Path(os.environ.get("COVE_FAULTS_BUILD", BUILD if BUILD.name == "faults" else BUILD / "faults"))
GIB = 1 << 30
SETTLE_S = 40 # until nothing more is on its way out; a loaded machine

# operation: points at which a process dies. Those of pool.* are in the process that does the work: a job of coved, or coved itself.
STORE = ["coved.snapshot.begin", "pool.cloned", "pool.stripped", "pool.noted", "pool.put", "pool.named", "coved.snapshot.frozen", "coved.snapshot.made",
         "core.store.asked", "core.store.answered"]
DEATHS = {
    "snapshot": [*STORE, "core.snapshot.added", "core.snapshot.committed"],
    "fork": ["coved.snapshot.frozen", "pool.put", "core.fork.stored", "core.fork.made", "core.store.answered"],
    "pause": ["core.pause.begun", "core.pause.answered", "coved.keep.reaped", "coved.keep.begin", "coved.keep.made", "pool.stripped", "pool.noted",
              "pool.put", "pool.named"],
    "freeze": ["core.pause.begun", "core.pause.answered", "coved.copy.begin", "pool.cloned", "pool.put", "pool.named"],
    "resume": ["core.resume.begun", "core.resume.created", "pool.made", "pool.filled"],
    "build": ["build.step.stored", "build.step.cached", "build.job.done", "coved.snapshot.begin", "pool.put", "coved.snapshot.made"],
    "image": ["image.fetch.begin", "image.unpack.begin", "image.job.unpacked", "coved.image.commit", "pool.made", "pool.noted", "pool.put", "pool.named"],
    "unname": ["core.template.removed"],
    "gc": ["core.gc.listed", "core.gc.dropped", "coved.drop.begin", "pool.trash"],
    "volume": ["core.volume.asked", "core.volume.made", "coved.volume.made", "pool.made", "pool.put", "pool.named"],
    "drop": ["core.volume.dropped", "coved.volume.dropped", "pool.trash"],
}
# What an operation is told there instead: EIO and ENOSPC.
ERRORS = {
    "snapshot": ["coved.snapshot", "pool.cloned", "pool.stripped", "pool.noted", "pool.put", "pool.named"],
    "pause": ["coved.keep", "pool.noted", "pool.put", "pool.named"],
    "resume": ["pool.filled"],
    "build": ["coved.snapshot", "pool.named"],
    "image": ["coved.image", "pool.made", "pool.noted", "pool.put", "pool.named"],
    "volume": ["pool.made", "pool.put", "pool.named"],
}
# Where clones copy, steps come in the same order but take other ways.
COPY_DEATHS = {"snapshot": ["pool.cloned", "pool.put"], "pause": ["pool.noted", "pool.put"], "resume": ["core.resume.created", "pool.filled"],
               "gc": ["pool.trash"], "volume": ["pool.made"]}


def content(mark):
    """What a sandbox has written: more than fits into a node of the file system, and different for each."""
    return (hashlib.sha256(mark.encode()).hexdigest() * 2000).encode()


class World:
    """One service, and what must be there."""

    def __init__(self, service):
        self.service = service
        self.points = Path(service.env["COVE_FAULTS"])
        self.marks = {}     # sandbox: what it has in its file
        self.n = 0
        self.volumes = {}   # name: mark
        self.templates = {} # name: mark

    # ---- asking, by somebody who may get no answer ----

    def ask(self, method, target, body=None):
        """(status, answer); status None: the connection ended first."""
        try:
            status, _, answer = self.service.request(method, f"/v1/{target}", body)
            return status, answer
        except (OSError, http.client.HTTPException):
            return None, None

    def must(self, method, target, body=None):
        end = time.monotonic() + SETTLE_S
        status, answer = self.ask(method, target, body)
        while status == 429 and time.monotonic() < end: # what is deleted comes back by and by, and needs room itself meanwhile
            time.sleep(0.2)
            status, answer = self.ask(method, target, body)
        assert status is not None and status < 300, (method, target, status, answer, self.service.tail())
        return answer

    def name(self, what):
        self.n += 1
        return f"{what}-{self.n}"

    # ---- things ----

    def sandbox(self, template="base", **more):
        return self.must("POST", "sandboxes", {"template": template, "timeout_ms": 600000, **more})["id"]

    def write(self, sandbox, path="/home/user/state"):
        mark = self.name("mark")
        self.must("PUT", f"sandboxes/{sandbox}/files?path={quote(path)}", content(mark))
        return mark

    def read(self, sandbox, path="/home/user/state"):
        return self.must("GET", f"sandboxes/{sandbox}/files?path={quote(path)}")

    def filled(self):
        sandbox = self.sandbox()
        self.marks[sandbox] = self.write(sandbox)
        return sandbox

    def works(self, sandbox):
        done = self.service.cove("exec", sandbox, "--", "sh", "-c", "echo alive; touch /home/user/new && rm /home/user/new")
        assert done.stdout == "alive\n" and done.returncode == 0, (sandbox, done, self.service.tail())

    # ---- faults ----

    def arm(self, point):
        (self.points / point).touch(0o666)

    def armed(self):
        return [p.name for p in self.points.iterdir()]

    def disarm(self):
        for p in self.points.iterdir():
            p.unlink(missing_ok=True)

    def revive(self):
        """The service answers again. True: coved had died."""
        coved = self.service.coved
        died = bool(wait_until(lambda: coved.poll() is not None, 0.3))
        if died:
            self.service.start(FAULTS / "coved")
        assert wait_until(self.service.is_healthy, 60), self.service.tail()
        return died

    # ---- what is there ----

    def settled(self):
        """All sandboxes, none of them on its way."""
        def all_of_them():
            found, page = [], self.must("GET", "sandboxes")
            while page["next"]:
                found += page["sandboxes"]
                page = self.must("GET", f"sandboxes?after={page['next']}")
            return found + page["sandboxes"]

        def look():
            found = all_of_them()
            return None if any(s["state"] not in ("running", "paused", "ended", "failed") for s in found) else [found]
        found = wait_until(look, SETTLE_S)
        assert found, all_of_them()
        return [s for s in found[0] if s["state"] in ("running", "paused")]

    def check_whole(self):
        """Whatever is listed works and has what was written before."""
        for s in self.settled():
            if s["state"] == "paused":
                self.must("POST", f"sandboxes/{s['id']}/resume", {})
            self.works(s["id"])
            mark = self.marks.get(s["id"]) or self.marks.get(s.get("fork_of", ""))
            if mark:
                assert self.read(s["id"]) == content(mark), s
        for snapshot in self.must("GET", "snapshots")["snapshots"]:
            self.check_template(snapshot["ref"], self.marks.get(snapshot.get("sandbox")))
        for template in self.must("GET", "templates")["templates"]:
            if template["id"] != "base" and template["status"] == "ready":
                self.check_template(template["id"], self.templates.get(template["name"]))
        volumes = self.must("GET", "volumes")["volumes"]
        for volume in volumes:
            sandbox = self.sandbox(volumes=[{"name": volume["name"], "path": "/mnt"}])
            mark = self.volumes.get(volume["name"])
            if mark:
                assert self.read(sandbox, "/mnt/state") == content(mark)
            self.works(sandbox)
            self.must("DELETE", f"sandboxes/{sandbox}")

    def check_template(self, ref, mark):
        sandbox = self.sandbox(ref)
        self.works(sandbox)
        if mark:
            assert self.read(sandbox) == content(mark), ref
        self.must("DELETE", f"sandboxes/{sandbox}")

    def listed(self):
        return {"sandboxes": {s["id"] for s in self.settled()}, "snapshots": {s["ref"] for s in self.must("GET", "snapshots")["snapshots"]},
                "templates": {t["name"] for t in self.must("GET", "templates")["templates"] if t["status"] == "ready"},
                "volumes": {v["name"] for v in self.must("GET", "volumes")["volumes"]}}

    # ---- what is left ----

    def pool(self):
        """The pool's directory as coved sees it, wherever it is mounted."""
        stage = Path(f"/proc/{self.service.coved.pid}/root/pool")
        return stage if stage.is_dir() else self.service.state / "pool"

    def in_pool(self, *parts):
        return sorted(str(p.relative_to(self.pool())) for part in parts for p in self.pool().glob(part))

    def needed_layers(self):
        """By the store: of templates and of the cache of builds, which is meant to stay; and what these stand on."""
        with contextlib.closing(sqlite3.connect(f"file:{next((self.service.state / 'api').glob('*.db'))}?mode=ro", uri=True)) as db:
            above = {row[0] for table in ("template_builds", "build_cache") for row in db.execute(f"SELECT layer FROM {table}")} - {""}
        needed = set()
        while above:
            needed |= above
            above = {read(self.pool() / "layers" / layer / "below").strip() for layer in above} - needed - {""}
        return needed

    def clear(self):
        """All that there is goes, by the API; what stays then is a leak."""
        for s in self.settled():
            self.must("DELETE", f"sandboxes/{s['id']}")
        assert wait_until(lambda: not self.settled(), SETTLE_S), (self.settled(), self.service.tail())
        for snapshot in self.must("GET", "snapshots")["snapshots"]:
            self.must("DELETE", f"snapshots?ref={quote(snapshot['ref'])}")
        for template in self.must("GET", "templates")["templates"]:
            if template["id"] != "base":
                self.must("DELETE", f"templates?ref={quote(template['id'])}")
        for volume in self.must("GET", "volumes")["volumes"]:
            self.must("DELETE", f"volumes/{volume['name']}")
        self.marks, self.volumes, self.templates = {}, {}, {}

    def lost_layers(self):
        self.ask("POST", "pool/collect", {})
        return sorted({p.split("/")[1] for p in self.in_pool("layers/layer-*")} - self.needed_layers())

    def lost_boxes(self):
        """Those that no process stands on."""
        agents = [name for name in self.service.processes().values() if name == "cove-agent"]
        return self.in_pool("boxes/*/*")[len(agents):]

    def leftovers(self):
        return self.in_pool("new/*", "trash/*", "kept/*", "volumes/*") + self.lost_boxes() + self.lost_layers()

    def check_no_leaks(self):
        self.clear()
        if self.lost_layers():
            # What a build that failed has made is kept for two minutes, in case that somebody wants it; a new worker knows of no such.
            os.kill(self.service.child("cove-api"), signal.SIGKILL)
            assert wait_until(self.service.is_healthy, 60), self.service.tail()
        assert wait_until(lambda: not self.leftovers(), SETTLE_S), (self.leftovers(), self.service.tail())
        mounts = [line for line in read("/proc/self/mountinfo").splitlines() if str(self.service.directory) in line]
        assert not mounts, mounts

    def begin(self):
        self.disarm()
        return self


# ---- operations: begun with something to work on; each returns its status and checks what it promised ----

def do_snapshot(w, sandbox):
    status, answer = w.ask("POST", f"sandboxes/{sandbox}/snapshots", {})
    return status, answer, lambda: answer["ref"] in w.listed()["snapshots"]


def do_fork(w, sandbox):
    status, answer = w.ask("POST", f"sandboxes/{sandbox}/fork", {"count": 2})
    if status == 201:
        for fork in answer["forks"]:
            if "sandbox" in fork:
                w.marks[fork["sandbox"]["id"]] = w.marks[sandbox]
    return status, answer, lambda: True


def do_pause(w, sandbox):
    status, answer = w.ask("POST", f"sandboxes/{sandbox}/pause", {"memory": False})
    return status, answer, lambda: sandbox in w.listed()["sandboxes"]


def do_freeze(w, sandbox):
    status, answer = w.ask("POST", f"sandboxes/{sandbox}/pause", {})
    return status, answer, lambda: True # a copy of the files comes later; until then the death of coved takes them along


def do_resume(w, sandbox):
    status, answer = w.ask("POST", f"sandboxes/{sandbox}/resume", {})
    return status, answer, lambda: True


def build(w, *arguments):
    name = w.name("made")
    done = w.service.cove("template", "build", "--name", name, "--memory", "512MiB", *arguments, timeout=90)
    return (200 if done.returncode == 0 else None), done, lambda: name in w.listed()["templates"]


def do_build(w, _):
    directory = Path(w.service.directory) / w.name("context")
    directory.mkdir()
    (directory / "Dockerfile").write_text(f"FROM e2bdev/base\nRUN echo {w.n} >/one\nRUN cp /one /two\n")
    return build(w, str(directory))


def do_image(w, _):
    directory = Path(w.service.directory) / w.name("context")
    directory.mkdir()
    image_archive(directory / "tiny.tar", w.n)
    return build(w, "--from-oci", str(directory / "tiny.tar"))


def do_unname(w, sandbox):
    ref = w.must("GET", "snapshots")["snapshots"][0]["ref"]
    status, answer = w.ask("DELETE", f"snapshots?ref={quote(ref)}")
    return status, answer, lambda: ref not in w.listed()["snapshots"]


def do_gc(w, _):
    status, answer = w.ask("POST", "pool/collect", {})
    return status, answer, lambda: True


def do_volume(w, _):
    name = w.name("volume")
    status, answer = w.ask("POST", "volumes", {"name": name, "limit_bytes": 1 << 24})
    return status, answer, lambda: name in w.listed()["volumes"]


def do_drop(w, _):
    name = w.must("GET", "volumes")["volumes"][0]["name"]
    status, answer = w.ask("DELETE", f"volumes/{name}")
    return status, answer, lambda: name not in w.listed()["volumes"]


def image_archive(path, mark):
    """A docker-archive of one layer, made of a few programs of this machine."""
    layer, wanted = io.BytesIO(), set()
    for program in filter(None, map(shutil.which, ("sh", "id", "mkdir", "chown", "chmod", "cat", "ls", "tar", "od", "tr", "dirname", "rm", "mv", "readlink",
                                                "touch"))):
        wanted.add(program)
        linked = subprocess.run(["ldd", os.path.realpath(program)], capture_output=True, text=True, check=False).stdout
        wanted |= {part for line in linked.splitlines() for part in line.split() if part.startswith("/")}
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name, text in (("etc/passwd", "root:x:0:0::/root:/bin/sh\n"), ("etc/group", "root:x:0:\n"), ("mark", str(mark))):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
        for name in ("tmp", "root", "proc", "sys", "dev", "run", "home"):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for name in sorted(wanted):
            tar.add(os.path.realpath(name), name.lstrip("/"))
        if "/bin/sh" not in wanted:
            info = tarfile.TarInfo("bin/sh")
            info.type, info.linkname = tarfile.SYMTYPE, shutil.which("sh")
            tar.addfile(info)
    layer = layer.getvalue()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/bin:/bin"]},
                         "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
    digest = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{"Config": f"{digest}.json", "RepoTags": ["tiny:latest"], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in ((f"{digest}.json", config), ("layer.tar", layer), ("manifest.json", manifest)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


OPERATIONS = {name[3:]: fn for name, fn in list(globals().items()) if name.startswith("do_")}


def before(w, operation):
    """What the operation needs."""
    if operation in ("build", "image", "volume"):
        return None
    if operation == "drop":
        w.must("POST", "volumes", {"name": w.name("volume")})
        return None
    sandbox = w.filled()
    if operation == "resume":
        w.must("POST", f"sandboxes/{sandbox}/pause", {"memory": False})
    if operation in ("unname", "gc"):
        ref = w.must("POST", f"sandboxes/{sandbox}/snapshots", {})["ref"]
        w.must("DELETE", f"sandboxes/{sandbox}")
        assert wait_until(lambda: sandbox not in w.listed()["sandboxes"], SETTLE_S)
        if operation == "gc":
            w.must("DELETE", f"snapshots?ref={quote(ref)}")
    return sandbox


# ---- services ----

@contextlib.contextmanager
def world(kind, first_size=None, config=None):
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    if not (FAULTS / "coved").exists():
        pytest.skip(f"{FAULTS} is not built: tools/compile faults")
    if kind == "btrfs" and not (shutil.which("mkfs.btrfs") and Path("/dev/loop-control").exists() and "btrfs" in read("/proc/filesystems")):
        pytest.skip("no btrfs, or no loop devices")
    directory = Path(tempfile.mkdtemp(prefix="test-crash-", dir=BUILD))
    directory.chmod(0o755)
    service = Service(directory)
    points = directory / "points"
    points.mkdir()
    points.chmod(0o777)
    service.env.update(COVE_POOL=kind, COVE_FAULTS=str(points))
    footprint = Footprint(service.state, service.run)
    try:
        service.state.mkdir()
        service.run.mkdir()
        if config:
            (directory / "cove.yaml").write_text(config)
            service.env["COVE_CONFIG"] = str(directory / "cove.yaml")
        if first_size:
            with open(service.state / "pool.btrfs", "wb") as f:
                f.truncate(first_size)
            subprocess.run(["mkfs.btrfs", "-q", "-m", "single", service.state / "pool.btrfs"], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([FAULTS / "coved", "prepare", "--from", kept_templates()], env=service.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done
        service.start(FAULTS / "coved")
        yield World(service)
        if service.coved.poll() is None:
            footprint.look()
            assert service.stop() == 0, service.tail()
        assert wait_until(lambda: not footprint.left(), 20), footprint.left()
        loops = [of for of in Path("/sys/block").glob("loop*/loop/backing_file") if read(of).startswith(str(service.state))]
        assert not loops, loops
    finally:
        if service.coved and service.coved.poll() is None:
            service.stop()
        wait_until(lambda: not any(read(of).startswith(str(service.state)) for of in Path("/sys/block").glob("loop*/loop/backing_file")), 20)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def on_btrfs():
    with world("btrfs") as w:
        yield w


@pytest.fixture(scope="module")
def on_copies():
    with world("copy") as w:
        yield w


def die_at(w, operation, point):
    w.begin()
    subject = before(w, operation)
    time.sleep(0.2) # boxes that are made ahead come by the pool's points, too
    w.arm(point)
    status, answer, kept = OPERATIONS[operation](w, subject)
    assert wait_until(lambda: not w.armed(), 15), f"nobody came by {point}: {status} {answer}\n{w.service.tail()}"
    coved_died = w.revive()
    if status is not None and status < 300:
        assert kept(), (operation, point, answer)
    if not coved_died and operation not in ("unname", "gc", "drop") and subject and not point.startswith(("coved.keep", "pool.")):
        assert subject in w.listed()["sandboxes"] # the death of a worker is no sandbox's
    w.check_whole()


PAIRS = [(operation, point) for operation, points in DEATHS.items() for point in points]


@pytest.mark.parametrize("operation,point", PAIRS, ids=lambda v: v)
def test_a_death(on_btrfs, operation, point):
    die_at(on_btrfs, operation, point)
    on_btrfs.check_no_leaks()


@pytest.mark.parametrize("point", ["core.resume.begun", "core.resume.created", "core.mount.asked", "core.mount.answered", "core.resume.furnished",
                                   "core.launch.started"])
def test_a_death_in_the_middle_of_a_start_on_kept_files(on_btrfs, point):
    """Whoever takes over starts it from the beginning: all volumes are there, and its template's server runs, once."""
    w = on_btrfs.begin()
    template, start = w.name("roused"), "echo started >>/home/user/starts; exec sleep 1234567"
    done = w.service.cove("template", "build", "--name", template, "--memory", "512MiB", "--start-cmd", start, "--ready-cmd", "pgrep -x sleep",
                          "--from-template", "base", timeout=90)
    assert done.returncode == 0, done
    mounts = [{"name": w.name("volume"), "path": path} for path in ("/mnt/a", "/home/user/b")]
    for mount in mounts:
        w.must("POST", "volumes", {"name": mount["name"]})
    sandbox = w.sandbox(template, volumes=mounts)
    for mount in mounts:
        w.volumes[mount["name"]] = w.write(sandbox, f"{mount['path']}/state")
    w.marks[sandbox] = w.write(sandbox)
    w.must("POST", f"sandboxes/{sandbox}/pause", {"memory": False})
    time.sleep(0.2)
    w.arm(point)
    assert w.ask("POST", f"sandboxes/{sandbox}/resume", {}) == (None, None)
    assert not w.armed() and not w.revive()
    if point == "core.resume.begun": # coved had not been asked
        w.must("POST", f"sandboxes/{sandbox}/resume", {})
    assert wait_until(lambda: w.must("GET", f"sandboxes/{sandbox}")["state"] == "running", SETTLE_S), w.service.tail()
    for mount in mounts:
        assert w.read(sandbox, f"{mount['path']}/state") == content(w.volumes[mount["name"]])
    done = w.service.cove("exec", sandbox, "--", "sh", "-c", "grep -c ' /mnt/a \\| /home/user/b ' /proc/mounts; pgrep -xc sleep")
    assert done.stdout == "2\n1\n", done
    w.check_whole()
    w.check_no_leaks()


@pytest.mark.parametrize("operation,point", [(o, p) for o, points in COPY_DEATHS.items() for p in points], ids=lambda v: v)
def test_a_death_where_clones_copy(on_copies, operation, point):
    die_at(on_copies, operation, point)
    on_copies.check_no_leaks()


@pytest.mark.parametrize("operation,point", [(o, f"{p}.{how}") for o, points in ERRORS.items() for p in points for how in ("full", "fail")],
                         ids=lambda v: v)
def test_an_error(on_btrfs, operation, point):
    w = on_btrfs.begin()
    subject = before(w, operation)
    time.sleep(0.2)
    w.arm(point)
    status, answer, kept = OPERATIONS[operation](w, subject)
    assert not w.armed(), f"nobody came by {point}: {status} {answer}\n{w.service.tail()}"
    assert w.service.coved.poll() is None and w.service.is_healthy(), w.service.tail()
    if operation in ("build", "image"):
        assert status is None and re.search("full|No space left|Input/output error|ended unexpectedly", answer.stderr), answer
    elif status is None or status >= 300:
        wanted = "resource_exhausted" if point.endswith(".full") else "internal"
        assert status is not None and answer["error"]["code"] == wanted, (status, answer)
    else:
        assert kept(), answer
    w.check_whole()
    w.check_no_leaks()


def swap_file(directory):
    """A machine's swap, for as long as the test. It is everybody's, so only who says COVE_TEST_SWAP=1 gets it; without one, only what has a file is given."""
    if os.environ.get("COVE_TEST_SWAP") != "1":
        return None
    swap = directory / "swap"
    subprocess.run(["dd", "if=/dev/zero", f"of={swap}", "bs=1M", "count=256"], check=True, stderr=subprocess.DEVNULL)
    swap.chmod(0o600)
    made = [subprocess.run([tool, swap], capture_output=True, check=False).returncode for tool in ("mkswap", "swapon")]
    assert made == [0, 0], "this machine allows no swap"
    return swap


HOLDER = b"""
import hashlib, os, time
held = os.urandom(64 << 20)
with open("file", "wb") as f: # as much in the page cache
    f.write(held)
    os.fsync(f.fileno())
os.symlink(hashlib.sha256(held).hexdigest(), "ready")
while not os.path.exists("go"):
    time.sleep(0.05)
os.symlink(hashlib.sha256(held).hexdigest(), "again")
"""


def memory_of(service, argument):
    """The function that tells what is used by the control group of the process with this argument."""
    for pid in (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()):
        if read(f"/proc/{pid}/cmdline").split("\0")[-2:-1] != [argument]:
            continue
        for line in read(f"/proc/{pid}/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            for file in (f"/sys/fs/cgroup/memory{path}/memory.usage_in_bytes", f"/sys/fs/cgroup{path}/memory.current"):
                if controllers in ("", "memory") and Path(file).exists():
                    return lambda file=file: int(read(file)) >> 20
    raise AssertionError(f"no process with the argument {argument}: {service.processes()}")


def test_paused_ones_give_their_memory_when_it_is_short(on_btrfs):
    """The machine is said to be short of memory, once for each point that is armed."""
    w = on_btrfs.begin()
    boxes = [w.sandbox() for _ in range(2)]
    for box in boxes:
        w.must("PUT", f"sandboxes/{box}/files?path=/home/user/holder.py", HOLDER)
        done = w.service.cove("exec", box, "--", "sh", "-c", f"python3 holder.py {box} >/dev/null 2>&1 & until test -h ready; do sleep 0.05; done")
        assert done.returncode == 0, done
    used = [memory_of(w.service, box) for box in boxes]
    swap = swap_file(w.service.directory)
    try:
        for box in boxes:
            w.must("POST", f"sandboxes/{box}/pause", {})
        before = [of() for of in used]
        assert min(before) >= 128
        time.sleep(2.5)
        assert all(of() > had - 16 for of, had in zip(used, before)) # nothing is taken while there is enough
        w.arm("coved.memory.short.fail")
        least = 100 if swap else 40
        assert wait_until(lambda: used[0]() < before[0] - least, 20), (swap, before, [of() for of in used], w.service.tail())
        assert wait_until(lambda: f"paused sandbox {boxes[0]} has given back" in read(w.service.log), 10)
        assert used[1]() > before[1] - 16 # one at a time, the one that was paused first
        for box in boxes:
            w.must("POST", f"sandboxes/{box}/resume", {})
            script = "touch go; until test -h again; do sleep 0.05; done; test $(readlink ready) = $(readlink again) && sha256sum file"
            done = w.service.cove("exec", box, "--", "sh", "-c", f"readlink ready; {script}")
            first, second = done.stdout.splitlines()
            assert second.split()[0] == first
    finally:
        if swap:
            subprocess.run(["swapoff", swap], check=True)
            swap.unlink()
    w.check_no_leaks()


@pytest.mark.timeout(300)
def test_the_process_that_lets_the_pool_grow_dies():
    with world("btrfs", first_size=3 * GIB // 2) as w:
        w.arm("pool.grow.file")
        sandbox = w.filled()
        before = (w.service.state / "pool.btrfs").stat().st_size
        w.service.cove("exec", sandbox, "--", "sh", "-c", "head -c 700000000 /dev/urandom >/home/user/big", timeout=100)
        assert wait_until(lambda: not w.armed(), 20), w.service.tail()
        # The file has grown and the file system in it has not: the next one goes on.
        assert wait_until(lambda: "the storage pool has grown" in read(w.service.log), 20), w.service.tail()
        assert (w.service.state / "pool.btrfs").stat().st_size > before
        w.check_whole()
        w.check_no_leaks()


@pytest.mark.timeout(300)
def test_a_pool_that_is_full_in_the_middle_of_everything():
    """Without a reserve, so that nothing is refused beforehand."""
    with world("btrfs", first_size=2 * GIB, config="pool: {size: 2GiB}\ndisk_reserve: 1MiB\ndefaults: {disk: 0}\n") as w:
        for operation in ("snapshot", "fork", "pause", "freeze", "resume", "build", "image", "volume", "drop", "unname", "gc"):
            subject = before(w, operation)
            ballast = w.sandbox()
            filled = w.service.popen("exec", ballast, "--", "sh", "-c", "cat /dev/zero >/home/user/a; cat /dev/zero >/home/user/b; echo full",
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            try:
                if random.random() < 0.5: # while it fills up, or when it has
                    time.sleep(random.random())
                else:
                    filled.wait(100)
                status, answer, kept = OPERATIONS[operation](w, subject)
            finally:
                if filled.poll() is None:
                    filled.kill()
                filled.wait()
                filled.stdout.close()
            if operation in ("drop", "unname", "gc"):
                assert status is not None and status < 300, (operation, status, answer) # what frees room always can
            if status is not None and status < 300:
                assert kept(), (operation, answer)
            elif operation not in ("build", "image"):
                assert status is not None and answer["error"]["code"] in ("resource_exhausted", "internal", "aborted", "not_found"), (operation, status, answer)
            assert w.service.coved.poll() is None, w.service.tail()
            w.must("DELETE", f"sandboxes/{ballast}")
            assert wait_until(lambda: w.must("GET", "pool")["free_bytes"] > 300 << 20, SETTLE_S), w.must("GET", "pool")
            assert wait_until(lambda: w.ask("POST", "sandboxes", {})[0] in (200, 201), 20)
            w.check_whole()
            w.check_no_leaks()


def load(w, seed, stop, problems):
    """Whatever can be done to a sandbox, in some order; an answer may stay out, a wrong content never."""
    chance = random.Random(seed)
    while not stop.is_set():
        try:
            status, made = w.ask("POST", "sandboxes", {"timeout_ms": 600000})
            if status != 201:
                time.sleep(0.05)
                continue
            sandbox, mark = made["id"], f"load-{seed}-{chance.random()}"
            if w.ask("PUT", f"sandboxes/{sandbox}/files?path=/home/user/state", content(mark))[0] not in (200, 201, 204):
                continue
            w.marks[sandbox] = mark
            for _ in range(4):
                operation = chance.choice(["snapshot", "fork", "pause", "resume", "freeze", "volume", "gc"])
                body = {"fork": {"count": 2}, "pause": {"memory": False}, "volume": {"name": f"load-{seed}-{chance.random()}"}}.get(operation, {})
                target = {"snapshot": f"sandboxes/{sandbox}/snapshots", "freeze": f"sandboxes/{sandbox}/pause", "volume": "volumes",
                          "gc": "pool/collect"}.get(operation, f"sandboxes/{sandbox}/{operation}")
                status, answer = w.ask("POST", target, body)
                if status == 201 and operation == "fork":
                    w.marks.update({f["sandbox"]["id"]: mark for f in answer["forks"] if "sandbox" in f})
                if status is not None and status >= 500 and not stop.is_set() and "error" not in (answer or {}):
                    problems.append((operation, status, answer))
            w.ask("DELETE", f"sandboxes/{sandbox}")
        except (ValueError, KeyError, TypeError) as e: # an answer that is none of ours
            problems.append(repr(e))


@pytest.mark.timeout(300)
def test_deaths_at_any_time():
    chance = random.Random(int(os.environ.get("CRASH_SEED", time.time())))
    with world("btrfs") as w:
        stop, problems = threading.Event(), []
        threads = [threading.Thread(target=load, args=(w, i, stop, problems)) for i in range(4)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 20
        try:
            while time.monotonic() < end:
                time.sleep(chance.uniform(0.1, 1.5))
                victims = [pid for pid in children(w.service.coved.pid) if read(f"/proc/{pid}/comm").strip() in ("cove-api", "coved", "cove-egress")]
                victim = chance.choice([*victims, w.service.coved.pid])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                if w.service.coved.poll() is not None or (victim == w.service.coved.pid and w.service.coved.wait(10)):
                    w.service.start(FAULTS / "coved")
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        w.revive()
        assert not problems, problems
        w.check_whole()
        w.check_no_leaks()
