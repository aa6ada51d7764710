# SPDX-License-Identifier: Apache-2.0
"""What it costs to pause, resume, snapshot, fork and build: the rows of sandboxes' state. Their time must not grow with what was changed."""

import gzip
import hashlib
import http.client
import io
import json
import os
import subprocess
import tarfile
import time

from report import median
from rig import MIB, TOP, Broken, Missing, kernel_memory, pss, rss, run

FILL = """import os, sys
mib, files = int(sys.argv[1]), int(sys.argv[2])
os.makedirs("/home/user/work", exist_ok=True)
for n in range(files):
    if n % 1000 == 0:
        os.makedirs(f"/home/user/work/{n // 1000}", exist_ok=True)
    with open(f"/home/user/work/{n // 1000}/{n}", "wb") as f:
        f.write(os.urandom(1024))
with open("/home/user/work/large", "wb") as f:
    for _ in range(mib):
        f.write(os.urandom(1 << 20))
"""


class State:
    """The program that times, and the API for what is not timed."""

    def __init__(self, bench):
        self.bench, self.program = bench, bench.out / "state"
        sources = [TOP / "bench" / name for name in ("client.c", "state.c")]
        newest = max(p.stat().st_mtime for p in [*sources, TOP / "bench/client.h"])
        if not self.program.exists() or self.program.stat().st_mtime < newest:
            run(["cc", "-std=c17", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-o", self.program, *sources])

    def lines(self, *argv, text=None, timeout=120):
        return [line.split() for line in run([self.program, *argv], timeout, input=text).splitlines()]

    def cove(self, *argv, timeout=600):
        return run([self.bench.build / "cove", *argv], timeout, env=self.bench.service.env)

    def call(self, method, path, body=None, wanted=(200, 201, 202, 204), headers=None, raw=None):
        connection = http.client.HTTPConnection(self.bench.service.address, timeout=60)
        data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        connection.request(method, path, data, {"X-API-KEY": os.environ["BENCH_KEY"], "Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status == 501:
            raise Missing(f"{method} {path}: not available in this build")
        if answer.status not in wanted:
            raise Broken(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    def fill(self, identity, mib, files):
        self.cove("exec", identity, "--", "python3", "-c", FILL, str(mib), str(files))

    def write_out(self):
        """Until nothing that was written waits for the disk."""
        os.sync()
        self.bench.service.settle()


def us(lines, at=0):
    return [float(line[at]) / 1000 for line in lines]


def pausing(bench):
    """Pause with memory, and resume."""
    state, (identity, token) = State(bench), bench.sandbox()
    n = 20 if bench.quick else 100
    state.lines("pause", 3, identity, token)
    lines = state.lines("pause", n, identity, token)
    bench.report.samples("pause", "pause", "ms", us(lines, 0), budget=2)
    bench.report.samples("pause", "resume", "ms", us(lines, 1))
    bench.report.samples("pause", "resume until an echo has ended", "ms", us(lines, 2), budget=3)


def snapshots(bench):
    """A snapshot of a live sandbox: little changed, and 1 GiB in 20,000 files and more; creates from one."""
    state, report, n = State(bench), bench.report, 5 if bench.quick else 20
    mib, files = (128, 2000) if bench.quick else (1024, 20000)
    small, large = bench.sandbox()[0], bench.sandbox()[0]
    state.fill(small, 1, 1)
    state.fill(large, mib, files)
    fresh = state.lines("snapshot", 1, large)
    state.write_out()
    made, took = [fresh[0][1]], {small: [], large: []}
    for _ in range(n):
        for identity, list_ in took.items():
            line = state.lines("snapshot", 1, identity)[0]
            list_.append(float(line[0]) / 1000)
            made.append(line[1])
    report.samples("snapshot", "of a sandbox with 1 MiB changed", "ms", took[small], budget=20)
    report.samples("snapshot", f"with {mib} MiB and {files} files changed", "ms", took[large], budget=20)
    report.value("snapshot", "that much / 1 MiB", "x", median(took[large]) / median(took[small]), budget=1.5)
    report.value("snapshot", f"the first one, while the {mib} MiB are not on disk yet", "ms", float(fresh[0][0]) / 1000)
    state.write_out()
    rounds, base, snapshot = 3 if bench.quick else 8, [], []
    for _ in range(rounds):
        for template, samples in (("base", base), (made[-1], snapshot)):
            bench.service.settle()
            state.lines("cycle", 2, template)
            bench.service.settle()
            samples += us(state.lines("cycle", 5, template))
    report.samples("snapshot", "create from the base template", "ms", base)
    report.samples("snapshot", "create from the large snapshot", "ms", snapshot)
    report.value("snapshot", "create: snapshot / base", "x", median(snapshot) / median(base), budget=1.1)
    state.lines("drop", text="".join(f"{name}\n" for name in made))


def forking(bench):
    """Forks of one sandbox: after a change, again without one, and 100 at once, each of which answers."""
    state, report = State(bench), bench.report
    identity = bench.sandbox()[0]
    state.fill(identity, 16, 500)
    state.write_out()
    one, again, calls, walls = [], [], [], []
    for _ in range(5 if bench.quick else 20):
        state.cove("exec", identity, "--", "sh", "-c", "date +%N > /home/user/changed")
        for samples in one, again:
            call, _, ids = state.lines("fork", 1, identity)
            samples.append(float(call[0]) / 1000)
            bench.load.kill(ids)
    for _ in range(1 if bench.quick else 5):
        bench.service.settle()
        call, wall, ids = state.lines("fork", 100, identity)
        calls.append(float(call[0]) / 1e6)
        walls.append(float(wall[0]) / 1e6)
        bench.load.kill(ids)
    report.samples("fork", "one, of files that have changed", "ms", one, budget=20)
    report.samples("fork", "another one of the same files", "ms", again, budget=6)
    report.samples("fork", "100 of one sandbox", "s", calls, budget=1)
    report.samples("fork", "100, until each has answered an echo", "s", walls)


def ready(bench):
    """Creates that find a sandbox that is there already."""
    state = State(bench)
    state.cove("warm", "base", "8")
    time.sleep(2)
    bench.service.settle()
    samples = []
    for _ in range(3 if bench.quick else 15):
        samples += us(state.lines("cycle", 6, "base"))
        time.sleep(0.3)
        bench.service.settle()
    state.cove("warm", "base", "0")
    bench.report.samples("warm", "create until the agent answers", "ms", samples, budget=1)


def density(bench):
    """Forks of one sandbox, live at a time."""
    state, report, n = State(bench), bench.report, 100 if bench.quick else 1000
    identity = bench.sandbox()[0]
    bench.service.settle()

    def figures(least):
        bench.service.settle()
        return {"agents": sum(pss(p) for p in bench.service.agents(least)), "cove-api": rss(bench.service.worker()),
                "coved": rss(bench.service.coved()) + rss(bench.service.pid), "kernel": kernel_memory()}

    before, ids, walls = figures(1), [], 0.0
    for at in range(0, n, 100):
        call, _, made = state.lines("fork", min(100, n - 1 - at), identity)  # with the one that they are forks of, n live at a time
        walls += float(call[0]) / 1e6
        ids += made
    after = figures(n)
    each = {name: (after[name] - before[name]) / len(ids) / MIB for name in before}
    report.value("density", f"memory of one of {n} forks: agent + our share", "MiB", each["agents"] + each["cove-api"] + each["coved"], budget=1.5,
                 note=", ".join(f"{name} {each[name] * 1024:.0f} KiB" for name in ("agents", "cove-api", "coved")))
    report.value("density", "the kernel's share of it, estimated", "MiB", each["kernel"])
    report.value("density", f"{n} forks, 100 at a time", "s", walls)
    report.value("density", f"{n} kills, 4 at a time", "s", bench.load.kill(ids) / 1e6)


# ---- builds ----

def context():
    """A gzipped tar of one file, and its hash as E2B's SDK makes one up: the service takes it as it comes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        info = tarfile.TarInfo("app.py")
        info.size, info.mode = 6, 0o644
        tar.addfile(info, io.BytesIO(b"print\n"))
    return gzip.compress(raw.getvalue()), hashlib.sha256(raw.getvalue()).hexdigest()


def build(state, name, steps):
    """Seconds from the request until the build is ready."""
    start = time.perf_counter()
    made = state.call("POST", "/v3/templates", {"name": name, "cpuCount": 2, "memoryMB": 1024})
    template, number = made["templateID"], made["buildID"]
    for step in steps:
        if step["type"] == "COPY":
            upload = state.call("GET", f"/templates/{template}/files/{step['filesHash']}")
            if not upload["present"]:
                url = upload["url"].split("/", 3)
                state.call("PUT", "/" + url[3], raw=context()[0], headers={"Content-Type": "application/octet-stream"})
    state.call("POST", f"/v2/templates/{template}/builds/{number}", {"fromTemplate": "base", "steps": steps})
    while True:
        status = state.call("GET", f"/templates/{template}/builds/{number}/status?logsOffset=0")
        if status["status"] == "ready":
            return time.perf_counter() - start
        if status["status"] == "error":
            raise Broken(f"build: {status.get('reason')}")
        if time.perf_counter() - start > 120:
            raise Broken("build: no end after 120 s")
        time.sleep(0.002)


def building(bench):
    """A template build of five steps, new and with every step cached."""
    state, mark = State(bench), f"{time.time():.0f}"
    steps = [{"type": "COPY", "args": ["app.py", "/app/", "", ""], "filesHash": context()[1]},
             *({"type": "RUN", "args": [f"echo {mark} {n} > /home/user/step{n}"]} for n in range(3)),
             {"type": "ENV", "args": ["MARK", mark]}]
    first = build(state, "bench-build", steps)
    cached = [build(state, "bench-build", steps) * 1000 for _ in range(5 if bench.quick else 20)]
    bench.report.value("build", "five steps, nothing cached", "s", first)
    bench.report.samples("build", "the same, every step cached", "ms", cached, budget=100)


LEFT_OUT = ("usr/share", "usr/include", "usr/lib/gcc", "usr/lib/python3", "usr/lib/python3.11", "var")


def archive(path, root):
    """An OCI layout of one layer: what runs of the base template, about 250 MB."""
    def digest(data):
        return hashlib.sha256(data).hexdigest()

    with subprocess.Popen(["tar", "-C", root, *(f"--exclude=./{name}" for name in LEFT_OUT), "-c", "."], stdout=subprocess.PIPE) as tar:
        plain = tar.stdout.read()
    blob = gzip.compress(plain, 1)
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(plain)}"]}}).encode()
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                           "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": f"sha256:{digest(config)}", "size": len(config)},
                           "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{digest(blob)}", "size": len(blob)}]}).encode()
    index = json.dumps({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": f"sha256:{digest(manifest)}",
                                                           "size": len(manifest), "platform": {"architecture": "amd64", "os": "linux"}}]}).encode()
    with tarfile.open(path, "w") as tar:
        for name, data in (("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), ("index.json", index),
                           *((f"blobs/sha256/{digest(b)}", b) for b in (config, manifest, blob))):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return len(plain)


def image(bench):
    """An OCI image from a file on disk, verified and unpacked into a layer."""
    state, path, times = State(bench), bench.scratch.path / "image.tar", []
    size = archive(path, bench.service.layer)
    for n in range(1 if bench.quick else 3):
        start = time.perf_counter()
        state.cove("template", "build", "--no-cache", "--name", f"bench-image{n}", "--from-oci", path)
        times.append(size / (time.perf_counter() - start) / 1e6)
        state.cove("template", "rm", f"bench-image{n}")
    bench.report.value("image", "OCI image, gzip, from a file to a template", "MB/s", median(times), 150, "more", note=f"of {size / 1e6:.0f} MB uncompressed, the whole command")


STATE_ROWS = {"pause": pausing, "snapshot": snapshots, "fork": forking, "warm": ready, "build": building, "image": image, "density": density}
