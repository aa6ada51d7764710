# SPDX-License-Identifier: Apache-2.0
"""
A service that dies where it is told to (base/fault.h), all that can be done to the state of its sandboxes, and what must be true whatever became of that:
what is listed works and has the content that it had, and nothing is left over. Runs what `tools/compile faults` made.
"""

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import signal
import sqlite3
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from archives import image_archive
from leaks import Footprint, loop_devices, read
from rebuilt import Rebuilt, differences
from service import BUILD, TIER, Service, below, coved_of, pool_on_btrfs, settled, wait_until

FAULTS = BUILD / "tests/faults"
SETTLE_S = 90 # until nothing more is on its way out; a loaded machine


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
        self.before = None  # coved and cove-api when something was armed
        self.rebuilt = Rebuilt() # of the record alone
        self.volumes = {}   # name: mark
        self.templates = {} # name: mark

    # ---- asking, by somebody who may get no answer ----

    def ask(self, method, target, body=None):
        """(status, answer); status None: the connection ended first."""
        try:
            status, _, answer = self.service.request(method, f"/cove/v1/{target}", body)
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

    def filled(self, **more):
        sandbox = self.sandbox(**more)
        self.marks[sandbox] = self.write(sandbox)
        return sandbox

    def works(self, sandbox):
        done = self.service.cove("exec", sandbox, "--", "sh", "-c", "echo alive; touch /home/user/new && rm /home/user/new")
        assert done.stdout == "alive\n" and done.returncode == 0, (sandbox, done, self.service.tail())

    # ---- faults ----

    def arm(self, point, with_keeper=False):
        """with_keeper: should it be coved that dies, then so does the keeper, and everything with it."""
        self.before = self.service.coved_pid, self.service.child("cove-api")
        for armed in [point, *(["keeper.lost"] if with_keeper else [])]:
            (self.points / armed).touch(0o666)

    def calm(self):
        """Boxes that are made ahead come by the pool's points, too: not any more."""
        settled(lambda: len(self.service.groups()), quiet=0.2)

    def armed(self):
        return [p.name for p in self.points.iterdir()]

    def disarm(self):
        for p in self.points.iterdir():
            p.unlink(missing_ok=True)

    def revive(self):
        """The service answers again. What had died: "keeper", "coved", "cove-api", or None, which is a process for a job."""
        keeper, (coved, worker) = self.service.coved, self.before or (None, None)
        def died():
            if keeper.poll() is not None:
                return "keeper"
            if coved and coved_of(keeper.pid) != coved:
                return "coved"
            return "cove-api" if worker and self.service.child("cove-api") != worker else None
        wait_until(died, 0.5)
        assert wait_until(lambda: keeper.poll() is not None or (self.service.is_healthy() and self.service.is_ready())), self.service.tail()
        who, self.before = died(), None
        if who == "keeper":
            self.service.start(FAULTS / "coved")
        (self.points / "keeper.lost").unlink(missing_ok=True)
        return who

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

    def look_at_record(self):
        """Where the state that the record alone gives and what the store says differ."""
        self.service.on_record()
        status, _, lines = self.service.request("GET", f"/cove/v1/events?hidden=1&from={self.rebuilt.cursor + 1}")
        assert status == 200, lines
        for line in lines.splitlines():
            self.rebuilt.take(json.loads(line))
        return differences(self.rebuilt, self.service.state / "api/cove.db")

    def check_whole(self):
        """Whatever is listed works and has what was written before, and the record says of everything what the store says."""
        assert wait_until(lambda: not self.look_at_record(), SETTLE_S), (self.look_at_record(), self.service.tail())
        templates = [(s["ref"], self.marks.get(s.get("sandbox"))) for s in self.must("GET", "snapshots")["snapshots"]]
        templates += [(t["id"], self.templates.get(t["name"])) for t in self.must("GET", "templates")["templates"]
                      if t["id"] != "base" and t["status"] == "ready"]
        with ThreadPoolExecutor(4) as several:
            for check, things in ((self.check_sandbox, self.settled()), (self.check_template, templates),
                                  (self.check_volume, self.must("GET", "volumes")["volumes"])):
                list(several.map(check, things))

    def check_sandbox(self, s):
        if s["state"] == "paused":
            self.must("POST", f"sandboxes/{s['id']}/resume", {})
        self.works(s["id"])
        mark = self.marks.get(s["id"]) or self.marks.get(s.get("fork_of", ""))
        if mark:
            assert self.read(s["id"]) in [content(m) for m in ([mark] if isinstance(mark, str) else mark)], s

    def check_template(self, thing):
        ref, mark = thing
        sandbox = self.sandbox(ref)
        self.works(sandbox)
        if mark:
            assert self.read(sandbox) == content(mark), ref
        self.must("DELETE", f"sandboxes/{sandbox}")

    def check_volume(self, volume):
        sandbox = self.sandbox(volumes=[{"name": volume["name"], "path": "/mnt"}])
        mark = self.volumes.get(volume["name"])
        if mark:
            assert self.read(sandbox, "/mnt/state") == content(mark)
        self.works(sandbox)
        self.must("DELETE", f"sandboxes/{sandbox}")

    def listed(self):
        return {"sandboxes": {s["id"] for s in self.settled()}, "snapshots": {s["ref"] for s in self.must("GET", "snapshots")["snapshots"]},
                "templates": {t["name"] for t in self.must("GET", "templates")["templates"] if t["status"] == "ready"},
                "volumes": {v["name"] for v in self.must("GET", "volumes")["volumes"]}}

    # ---- what is left ----

    def pool(self):
        """The pool's directory as coved sees it, wherever it is mounted."""
        stage = Path(f"/proc/{self.service.coved_pid}/root/pool")
        return stage if stage.is_dir() else self.service.state / "pool"

    def in_pool(self, *parts):
        pool = self.pool()
        return sorted(str(p.relative_to(pool)) for part in parts for p in below(pool, part))

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
            assert wait_until(self.service.is_healthy), self.service.tail()
        # Not often: to ask has coved look for lost layers, and what was deleted is swept when nothing was asked for a tenth of a second, or after two.
        assert wait_until(lambda: not self.leftovers(), SETTLE_S, every=0.25), (self.leftovers(), self.service.tail())
        mounts = [line for line in read("/proc/self/mountinfo").splitlines() if str(self.service.directory) in line]
        assert not mounts, mounts

    def begin(self):
        self.disarm()
        return self


# ---- operations: begun with something to work on; each returns its status and checks what it promised ----

def do_create(w, _):
    status, answer = w.ask("POST", "sandboxes", {"template": "base", "timeout_ms": 600000})
    return status, answer, lambda: answer["id"] in w.listed()["sandboxes"]


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


def do_rewind(w, sandbox):
    seq = w.must("GET", f"sandboxes/{sandbox}/checkpoints")["checkpoints"][-1]["seq"]
    before = w.marks[sandbox]
    w.marks[sandbox] = (before, w.write(sandbox)) # whole in any case; which of them, only an answer says
    status, answer = w.ask("POST", f"sandboxes/{sandbox}/rewind", {"seq": seq})
    if status == 200:
        w.marks[sandbox] = before
    return status, answer, lambda: w.must("GET", f"sandboxes/{sandbox}")["state"] == "running"


def do_remove(w, sandbox):
    w.marks.pop(sandbox)
    status, answer = w.ask("DELETE", f"sandboxes/{sandbox}")
    return status, answer, lambda: wait_until(lambda: sandbox not in w.listed()["sandboxes"])


def do_thaw(w, sandbox):
    status, answer = w.ask("POST", f"sandboxes/{sandbox}/resume", {})
    return status, answer, lambda: w.must("GET", f"sandboxes/{sandbox}")["state"] == "running"


def do_mount(w, _):
    name = w.name("volume")
    w.must("POST", "volumes", {"name": name})
    status, answer = w.ask("POST", "sandboxes", {"template": "base", "timeout_ms": 600000, "volumes": [{"name": name, "path": "/mnt"}]})
    return status, answer, lambda: answer["id"] in w.listed()["sandboxes"]


def build(w, *arguments):
    name = w.name("made")
    done = w.service.cove("template", "build", "--name", name, "--memory", "512MiB", *arguments, timeout=200)
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

OPERATIONS = {name[3:]: fn for name, fn in list(globals().items()) if name.startswith("do_")}


def before(w, operation):
    """What the operation needs."""
    if operation in ("build", "image", "volume", "create", "mount"):
        return None
    if operation == "drop":
        w.must("POST", "volumes", {"name": w.name("volume")})
        return None
    sandbox = w.filled(**({"checkpoint": "action"} if operation == "rewind" else {}))
    if operation == "thaw":
        w.must("POST", f"sandboxes/{sandbox}/pause", {})
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
        service.run.mkdir()
        # The other tiers are tried out at each start, runsc by five starts of its own; here coved starts some hundred times.
        (directory / "cove.yaml").write_text(f"tiers: {{allow: [container{f', {TIER}' if TIER else ''}]}}\n{config or ''}")
        service.env["COVE_CONFIG"] = str(directory / "cove.yaml")
        if kind != "copy": # there, links do, and start() makes them
            pool_on_btrfs(service.state, first_size)
        service.start(FAULTS / "coved")
        yield World(service)
        if service.coved.poll() is None:
            footprint.look()
            assert service.stop() == 0, service.tail()
        assert wait_until(lambda: not footprint.left()), footprint.left()
        assert wait_until(lambda: loop_devices(service.state) == []), loop_devices(service.state)
    finally:
        if service.coved and service.coved.poll() is None:
            service.stop()
        wait_until(lambda: not loop_devices(service.state), 20)
        service.remove()
