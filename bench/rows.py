# SPDX-License-Identifier: Apache-2.0
"""The measurements, one function a row. Each takes the Bench (run) and adds lines to its report."""

import http.client
import json
import os
import re
import shutil
import time
from pathlib import Path

from egress import network
from environments import environments
from here import here
from https import https
from judge import judge
from observe import observe
from opensandbox import opensandbox
from report import column, median
from rig import MIB, Broken, Missing, children, cpu_seconds, forget_peak, kernel_memory, peak, pss, rss, run
from saved import gvisor, microvm
from state import STATE_ROWS

MS = 1000.0  # samples are microseconds


def ms(samples):
    return [s / MS for s in samples]


def peers(bench, names):
    for name in names:
        try:
            yield name, bench.peer(name)
        except Missing as why:
            bench.report.missing(bench.row, f"{name}: {why}")


def alternate(rounds, **work):
    """{name: samples} of each, a few at a time in turn, so that whatever else the machine does meets all alike; what one leaves to be
    taken down in the background has a moment to end before the next."""
    samples = {name: [] for name in work}
    for _ in range(rounds):
        for name, function in work.items():
            time.sleep(0.1)
            samples[name] += function()
    return samples


def spawner(bench, argv, n):
    return lambda: bench.load.numbers("spawn", n, "--", *argv)


# ---- start ----

def start(bench):
    """create + echo + its end event + kill on one kept-alive connection; beside docker run, runc run, bwrap."""
    report, load = bench.report, bench.load
    per_round = {"docker": 1, "runc": 2, "bwrap": 10}
    shell = ["chroot", bench.service.layer, "/bin/bash", "-l", "-c", "echo hi"]
    work = {"cove": lambda: load.numbers("cycle", 10), "bash": lambda: load.numbers("cycle", 10, "bash"), "alone": spawner(bench, shell, 10)}
    for name, peer in peers(bench, per_round):
        work[name] = spawner(bench, peer.run_argv(), per_round[name])
    for function in work.values():
        function()
    bench.service.settle()
    samples = alternate(5 if bench.quick else 30, **work)
    ours, bash, alone = samples.pop("cove"), samples.pop("bash"), samples.pop("alone")
    total = ms(column(ours, 0))
    report.samples("start", "create + echo + end + kill", "ms", total, budget=5, p99_budget=25)
    for at, part in enumerate(("of it: create", "of it: start to first output", "of it: start to end event", "of it: kill"), 1):
        report.samples("start", part, "ms", ms(column(ours, at)))
    report.samples("start", "the same with bash -l -c", "ms", ms(column(bash, 0)), p99_budget=10)
    for at, part in enumerate(("create", "start to first output", "start to end event", "kill"), 1):
        report.samples("start", f"of that: {part}", "ms", ms(column(bash, at)))
    report.samples("start", "bash -l -c alone, on the same files, without a sandbox", "ms", ms(column(alone, 1)))
    names = {"docker": "docker run --rm --network none", "runc": "runc run", "bwrap": "bwrap --unshare-all"}
    wanted = {"docker": 40, "runc": 1}
    for name, theirs in samples.items():
        theirs = ms(column(theirs, 1))
        report.samples("start", names[name], "ms", theirs)
        report.value("start", f"{name} / cove", "x", median(theirs) / median(total), wanted.get(name), "more")


def execute(bench):
    """A process in a live sandbox until its first output; beside docker exec."""
    report, load, sandbox = bench.report, bench.load, bench.sandbox()
    work = {"cove": lambda: load.numbers("exec", 20, *sandbox)}
    for name, peer in peers(bench, ["docker"]):
        work[name] = spawner(bench, peer.exec_argv(), 2)
    for function in work.values():
        function()
    samples = alternate(3 if bench.quick else 15, **work)
    first = ms(column(samples["cove"], 0))
    report.samples("exec", "echo, to first output", "ms", first, budget=1.5)
    report.samples("exec", "echo, to end event", "ms", ms(column(samples["cove"], 1)))
    bash = load.numbers("exec", 20 if bench.quick else 100, *sandbox, "bash")
    report.samples("exec", "bash -l -c echo, to first output", "ms", ms(column(bash, 0)))
    if "docker" in samples:
        theirs = ms(column(samples["docker"], 0))
        report.samples("exec", "docker exec, to first output", "ms", theirs)
        report.value("exec", "docker / cove", "x", median(theirs) / median(first), 30, "more")


def mcp(bench):
    """The same as an MCP client asks for it: tools/call of exec, argv ["true"], on one kept-alive connection; and by a line for the shell."""
    sandbox = bench.sandbox()[0]
    connection = http.client.HTTPConnection(bench.service.address, timeout=30)
    version, headers = "2026-07-28", {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["BENCH_KEY"]}
    headers |= {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "exec"}
    meta = {"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}}

    def call(**what):
        params = {"name": "exec", "arguments": {"sandbox": sandbox, **what}, "_meta": meta}
        begin = time.monotonic()
        connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}), headers)
        answer = json.load(connection.getresponse())
        if answer["result"]["structuredContent"].get("exit_code") != 0:
            raise Broken(f"exec true: {answer}")
        return (time.monotonic() - begin) * 1e3

    for what, budget in ({"argv": ["true"]}, 3), ({"command": "true"}, None):
        for _ in range(10):
            call(**what)
        report = [call(**what) for _ in range(60 if bench.quick else 300)]
        bench.report.samples("mcp", f"tools/call exec, {json.dumps(what)}", "ms", report, budget=budget)
    connection.close()


# ---- many ----

def created(lines):
    return [line[1] for line in lines[:-1]], [float(line[0]) for line in lines[:-1]], float(lines[-1][1])


def burst(bench):
    """100 creates at concurrency 10."""
    walls, each = [], []
    for _ in range(2 if bench.quick else 5):
        bench.service.settle()
        ids, samples, wall = created(bench.load("create", 100, 10))
        walls.append(wall / 1e6)
        each += samples
        bench.load.kill(ids)
    bench.report.samples("burst", "100 creates, 10 at a time, all of them", "s", walls, budget=0.6)
    bench.report.samples("burst", "each of them", "ms", ms(each))


def crowd(bench):
    """Live idle sandboxes: what one costs, and whether the last is made as fast as the first."""
    service, report, n, edge = bench.service, bench.report, 100 if bench.quick else 500, 20 if bench.quick else 100
    ready = 10  # made ahead of need: they say nothing about how long the making takes

    def figures(least):
        service.settle()
        return {"agents": sum(pss(p) for p in service.agents(least)), "cove-api": rss(service.worker()), "coved": rss(service.coved()) + rss(service.pid),
                "kernel": kernel_memory()}

    before = figures(0)
    ids, samples, wall = created(bench.load("create", n, 1))
    after = figures(n)
    each = {name: (after[name] - before[name]) / n / MIB for name in before}
    ours = each["agents"] + each["cove-api"] + each["coved"]
    report.value("crowd", f"memory of one of {n} idle: agent + our share", "MiB", ours, budget=2,
                 note=", ".join(f"{name} {each[name] * 1024:.0f} KiB" for name in ("agents", "cove-api", "coved")))
    report.value("crowd", "the kernel's share of it, estimated", "MiB", each["kernel"], note="slabs, stacks, page tables, per-CPU")
    first, last = ms(samples[ready:ready + edge]), ms(samples[-edge:])
    report.samples("crowd", f"create, the first {edge} that are not ready yet", "ms", first)
    report.samples("crowd", f"create, the last {edge}", "ms", last)
    report.value("crowd", "last / first", "x", median(last) / median(first), budget=1.3)
    report.value("crowd", f"{n} creates, one after the other", "s", wall / 1e6)
    report.value("crowd", f"{n} kills, 4 at a time", "s", bench.load.kill(ids) / 1e6)


# ---- HTTP ----

def wrk(bench, address, connections, pid, cpus):
    """Requests per second, and the share of a core that the server used; cpus: (server's, client's), None: wherever they like."""
    if not shutil.which("wrk"):
        raise Missing("wrk is not installed")
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(pid, {cpus[0]} if cpus else every)
    used, started = cpu_seconds(pid), time.monotonic()
    argv = ["wrk", "-t1", f"-c{connections}", "-d1s" if bench.quick else "-d5s", "--latency", f"http://{address}/health"]
    client = ["taskset", "-c", str(cpus[1])] if cpus else []
    text = run([*client, *argv])
    share = (cpu_seconds(pid) - used) / (time.monotonic() - started)
    os.sched_setaffinity(pid, every)
    if "Non-2xx" in text or "Socket errors" in text:
        raise Broken(f"wrk had errors: {text[-300:]}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]), share, re.search(r"^\s+50%\s+(\S+)", text, re.M)[1]


def health(bench):
    """GET /health of the control plane, one worker, kept-alive connections; beside a bare epoll loop that parses nothing."""
    report, worker, address = bench.report, bench.service.worker(), bench.service.address
    cpus = sorted(os.sched_getaffinity(0))
    pinned = (cpus[0], cpus[1]) if len(cpus) > 1 else None
    floor = bench.load.start("serve")
    try:
        floor_address = "127.0.0.1:" + floor.stdout.readline().strip()
        for connections in (32, 1):
            rate, share, latency = wrk(bench, address, connections, worker, pinned)
            report.value("health", f"{connections} connections, worker and client on a core each", "/s", rate, better="more",
                         note=f"worker {share:.0%} of its core, median {latency}")
            bare, share, _ = wrk(bench, floor_address, connections, floor.pid, pinned)
            report.value("health", "bare epoll loop that parses nothing, so", "/s", bare, note=f"{share:.0%} of its core")
            report.value("health", "cove / bare", "x", rate / bare, better="more")
        rate, share, latency = wrk(bench, address, 32, worker, None)
        report.value("health", "32 connections, nothing pinned", "/s", rate, 80000, "more", f"worker {share:.0%} of a core, median {latency}")
    finally:
        floor.kill()
        floor.communicate()


def connections(bench):
    """Idle kept-alive connections."""
    n, worker = 1000 if bench.quick else 10000, bench.service.worker()
    before = rss(worker)
    load = bench.load.start("idle", n)
    try:
        took = load.stdout.readline()
        if not took:
            raise Broken(load.communicate()[1].strip())
        grown = rss(worker) - before
        bench.report.value("connections", f"cove-api's memory for one of {n} idle", "KiB", grown / n / 1024, note=f"{grown / MIB:.1f} MiB in all")
        bench.report.value("connections", "connect and first answer, one after the other", "us", float(took) / n)
    finally:
        load.communicate("")
    deadline = time.monotonic() + 5
    while rss(worker) - before > grown / 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    bench.report.value("connections", "cove-api's growth after they left", "MiB", (rss(worker) - before) / MIB)


# ---- streams ----

def files(bench):
    """1 GiB up and down through /files as octet-stream; what our processes grow by meanwhile."""
    report, load, service = bench.report, bench.load, bench.service
    size, sandbox, path = (128 if bench.quick else 1024) * MIB, bench.sandbox(), "/home/user/large"
    watched = {"cove-api": service.worker(), "coved": service.coved(), **{f"agent {pid}": pid for pid in service.agents()}}
    before = {name: rss(pid) for name, pid in watched.items()}
    for pid in watched.values():
        forget_peak(pid)
    rates = {"up": [], "down": []}
    for _ in range(1 if bench.quick else 3):
        for way, samples in rates.items():
            os.sync()
            (took,), = load.numbers(way, *sandbox, path, size)
            samples.append(size / took)
    growth = {name: peak(pid) - before[name] for name, pid in watched.items()}
    for way, samples in rates.items():
        report.value("files", f"{size // MIB} MiB {way}", "MB/s", median(samples), 500, "more", f"{len(samples)} times")
    agents = max(v for name, v in growth.items() if name.startswith("agent"))
    report.value("files", "most that a process of ours grew", "MiB", max(growth.values()) / MIB, 16,
                 note=f"cove-api {growth['cove-api'] / MIB:.1f}, coved {growth['coved'] / MIB:.1f}, agent {agents / MIB:.1f} MiB")
    disk(bench, size)
    copy(bench, size)


def disk(bench, size):
    """A plain program's write and read of as much on the same disk: the cache of a sandbox with 1 GiB of memory is smaller than the file."""
    large, piece = bench.scratch.path / "large", bytes(MIB)
    os.sync()
    started = time.monotonic()
    with open(large, "wb", buffering=0) as f:
        for _ in range(size // MIB):
            f.write(piece)
        os.fsync(f.fileno())
        wrote, started = size / 1e6 / (time.monotonic() - started), time.monotonic()
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with open(large, "rb", buffering=0) as f:
        while f.read(MIB):
            pass
    read = size / 1e6 / (time.monotonic() - started)
    large.unlink()
    bench.report.value("files", "this disk: write and fsync", "MB/s", wrote)
    bench.report.value("files", "this disk: read, uncached", "MB/s", read)


def copy(bench, size):
    """docker cp of as much."""
    for _, docker in peers(bench, ["docker"]):
        large = bench.scratch.path / "large"
        with open(large, "wb") as f:
            f.truncate(size)
        started = time.monotonic()
        docker.copy_in(large, "/root/large")
        rate_in, started = size / 1e6 / (time.monotonic() - started), time.monotonic()
        docker.copy_out("/root/large", large)
        rate_out = size / 1e6 / (time.monotonic() - started)
        large.unlink()
        bench.report.value("files", "docker cp, in", "MB/s", rate_in)
        bench.report.value("files", "docker cp, out", "MB/s", rate_out)


def find_below(pid, name):
    for child, called in children(pid).items():
        if called == name:
            return child
        found = find_below(child, name)
        if found:
            return found
    return None


def slow(bench):
    """A process that writes without end to a client that reads 1 MiB/s: memory stays flat, it blocks, nothing is lost."""
    service, seconds = bench.service, 4 if bench.quick else 10
    sandbox = bench.sandbox()
    watched = {"cove-api": service.worker(), **{str(pid): pid for pid in service.agents()}}
    before = {name: rss(pid) for name, pid in watched.items()}
    for pid in watched.values():
        forget_peak(pid)
    load = bench.load.start("slow", *sandbox, MIB, seconds)
    try:
        time.sleep(seconds / 2)
        growth = {name: peak(pid) - before[name] for name, pid in watched.items()}
        writer = find_below(service.pid, "seq")
        wrote = int(re.search(r"wchar: (\d+)", Path(f"/proc/{writer}/io").read_text())[1]) if writer else 0
        out, errors = load.communicate(timeout=seconds + 60)
    except BaseException:
        load.kill()
        load.communicate()
        raise
    if load.returncode != 0:
        raise Broken(errors.strip())
    if not writer:
        raise Broken("the writing process was gone while its output was read")
    read = int(out)
    later = {name: peak(pid) - before[name] for name, pid in watched.items()}
    agents = max(v for name, v in later.items() if name != "cove-api")
    bench.report.value("slow", f"cove-api grew in {seconds} s by", "MiB", later["cove-api"] / MIB, 8, note=f"half-way {growth['cove-api'] / MIB:.2f} MiB")
    bench.report.value("slow", "the agent grew by", "MiB", agents / MIB, 2)
    bench.report.value("slow", "read, in order, nothing missing", "MiB", read / MIB, note="on the wire")
    bench.report.value("slow", "written half-way, ahead of the reader", "MiB", (wrote - read / 2 * 3 / 4) / MIB, 16, note="a process that does not block is GiB ahead")


# ---- at rest ----

def append(bench):
    """One event: row, hash, chain; the store's batches as the loop makes them."""
    src, libs = bench.top / "src", bench.build / "src"
    program = bench.out / "append"
    run(["cc", "-std=c17", "-O2", "-D_GNU_SOURCE", "-I", src, "-o", program, bench.top / "bench/append.c", libs / "libguard.a",
         libs / "libevent.a", libs / "libstore.a", libs / "libbase.a", "-lsqlite3", "-lcrypto", "-ljansson"])
    for batch, events in ((1, 2000 if bench.quick else 20000), (100, 20000 if bench.quick else 200000)):
        path = bench.scratch.path / f"events-{batch}.db"
        took = [float(line) / batch for line in run([program, path, events, batch, 0]).splitlines()]
        bench.report.samples("events", f"append one, committed in batches of {batch}", "us", took)
    judged = [float(line) / batch for line in run([program, bench.scratch.path / "events-judged.db", events, batch, 200]).splitlines()]
    more = median(judged) - median(took)
    bench.report.value("events", "more, judged by 200 rules and all rails", "us", more, 20)


def rest(bench):
    """Memory of our processes, nothing having happened yet."""
    service = bench.service
    service.settle()
    found = {"cove-api": (rss(service.worker()), 20), "coved": (rss(service.coved()), 4), "keeper": (rss(service.pid), None)}
    bench.load.numbers("exec", 1, *bench.sandbox())
    service.settle()
    found["cove-agent"] = max(rss(p) for p in service.agents()), 2
    for name, (size, budget) in found.items():
        bench.report.value("rest", f"{name}, resident", "MiB", size / MIB, budget)


ROWS = {"rest": rest, "start": start, "here": here, "exec": execute, "mcp": mcp, "env": environments, "burst": burst, "crowd": crowd, "health": health,
        "connections": connections, "files": files, "slow": slow, "events": append, "https": https, "opensandbox": opensandbox, "judge": judge,
        "network": network, "observe": observe, "gvisor": gvisor, "microvm": microvm, **STATE_ROWS}
