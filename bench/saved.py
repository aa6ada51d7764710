# SPDX-License-Identifier: Apache-2.0
"""
The rows "gvisor" and "microvm": saved memory of a Python with 200 MB, beside a start of such a sandbox from its files; of gvisor, what its kernel costs
beside a container and a plain runsc; of microvm, a boot of plain QEMU, too.
"""

import http.client
import json
import os
import re
import time

from pathlib import Path

from rig import MIB, Missing, children, cpu_seconds, pss, run

HOLDER = "import os, time\ndata = bytearray(os.urandom(1 << 20) * 200)\nopen('/tmp/up', 'w').write('x')\ntime.sleep(1e9)\n"
GETPPID = "import os, time\nbegin = time.perf_counter()\nfor _ in range(20000): os.getppid()\nprint((time.perf_counter() - begin) * 50)\n"


def ask(bench, method, path, body=None):
    """(answer, milliseconds)"""
    connection, begin = http.client.HTTPConnection(bench.service.address, timeout=300), time.monotonic()
    connection.request(method, f"/cove/v1/{path}", body if isinstance(body, bytes) else json.dumps(body or {}), {"X-API-KEY": os.environ["BENCH_KEY"]})
    answer = connection.getresponse()
    text = answer.read()
    took = (time.monotonic() - begin) * 1000
    if answer.status == 412 or (answer.status >= 400 and b"tier" in text):
        raise Missing(json.loads(text)["error"]["message"])
    assert answer.status < 300, (path, answer.status, text)
    return json.loads(text) if text else None, took


def timed(work):
    begin = time.monotonic()
    work()
    return (time.monotonic() - begin) * 1000


def gvisor(bench):
    """create, exec and a system call in gvisor beside a container and a plain runsc; a snapshot, creates, forks and a pause to disk with memory."""
    beside_container(bench)
    saved_in("gvisor", bench, {}, 220, 2500)


def beside_container(bench):
    report, load, rounds, tiers = bench.report, bench.load, 3 if bench.quick else 15, ("gvisor", "container")
    begun, sandboxes = {"one is ready": [], "none is": []}, {}

    def of(tier, work):
        os.environ["BENCH_TIER"] = tier
        try:
            return work()
        finally:
            del os.environ["BENCH_TIER"]

    for _ in range(rounds):
        of("container", lambda: load.numbers("cycle", 1)) # whoever uses another tier has no use for those of this one
        time.sleep(2)
        for samples in begun["none is"], begun["one is ready"]:
            samples.append(sum(of("gvisor", lambda: load.numbers("cycle", 1))[0][1:3]) / 1000)
            time.sleep(2)
    report.samples("gvisor", "create, to a first command's output", "ms", begun["one is ready"], budget=5)
    report.samples("gvisor", "the same where none is ready", "ms", begun["none is"], budget=150)
    plain = ["runsc", "--root", bench.scratch.path / "runsc", "--network=none", "--ignore-cgroups", "do"]
    report.samples("gvisor", "runsc do echo", "ms", [timed(lambda: run([*plain, "/bin/echo", "hi"])) for _ in range(rounds)])
    for tier in tiers:
        sandboxes[tier] = of(tier, bench.sandbox)
    execs, calls = {tier: [] for tier in tiers}, {tier: [] for tier in (*tiers, "a plain runsc")}
    for _ in range(rounds):
        for tier, sandbox in sandboxes.items():
            execs[tier] += [first / 1000 for first, _ in load.numbers("exec", 10, *sandbox)]
            calls[tier].append(float(run([bench.service.build / "cove", "exec", sandbox[0], "--", "python3", "-c", GETPPID], env=bench.service.env)))
        calls["a plain runsc"].append(float(run([*plain, "/usr/bin/python3", "-c", GETPPID])))
    for tier in tiers:
        report.samples("gvisor", f"echo in a live sandbox of {tier}, to first output", "ms", execs[tier])
    for where, samples in calls.items():
        report.samples("gvisor", f"a system call from Python in {where}", "us", samples)


def microvm(bench):
    """the same of a microvm of 512 MiB, and a kernel's first words in plain QEMU"""
    probes = json.loads(run([bench.service.build / "coved", "doctor", "--json"], env=bench.service.env, timeout=300))["probes"]
    spoke = next((re.search(r"spoke after (\d+) ms", p["detail"]) for p in probes if "microvm" in p["name"] and "spoke" in p["detail"]), None)
    if spoke:
        bench.report.value("microvm", "plain QEMU, until its kernel speaks", "ms", int(spoke[1]))
    plain(bench)
    holder = saved_in("microvm", bench, {"memory_bytes": 512 << 20}, 150, 400)
    alive(bench, holder, 10 if bench.quick else 50)


def monitors(bench):
    """Of machines: not those that wait for memory, in openat()."""
    found = {child for body in children(bench.service.pid) for child, name in children(body).items() if name.startswith("qemu")}
    return {pid for pid in found if not Path(f"/proc/{pid}/syscall").read_text().startswith("257 ")}


def own_memory(pid):
    """(all that is this process's alone, what of it is the machine's memory: the largest private mapping of a file), in MiB"""
    of_all, places, inode = 0, {}, None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ (\d+)", line)
        if head:
            inode = head[2] if head[1] == "rw-p" and head[2] != "0" else None
        name, size = line.split()[:2]
        if name == "Size:" and inode:
            places.setdefault(inode, [0, 0])[0] += int(size)
        if name in ("Private_Clean:", "Private_Dirty:"):
            of_all += int(size)
        if name == "Private_Dirty:" and inode:
            places[inode][1] += int(size)
    return of_all / 1024, max(places.values())[1] / 1024


def alive(bench, holder, count):
    """Clones of one machine that live at the same time: each has answered, and still does."""
    report, before, names = bench.report, monitors(bench), []
    begin = time.monotonic()
    forks = ask(bench, "POST", f"sandboxes/{holder}/fork", {"memory": True, "count": count})[0]["forks"]
    ids = [f["sandbox"]["id"] for f in forks if "sandbox" in f]
    bench.ids += ids
    made = time.monotonic() - begin
    for _ in range(2):
        names.append({run([bench.service.build / "cove", "exec", one, "--", "hostname"], timeout=300, env=bench.service.env) for one in ids})
        names[-1].add(len(ids))
    answered, clones = time.monotonic() - begin, monitors(bench) - before
    own = [own_memory(pid) for pid in clones]
    assert names[0] == names[1] and len(names[0]) == count + 1 == len(own) + 1, (count, len(names[0]) - 1, len(own))
    report.value("microvm", f"{count} clones of one machine, all live: until all are made", "s", made)
    report.value("microvm", "until each has answered twice, one after the other", "s", answered)
    report.value("microvm", "memory that is one's alone, but for the pages that its machine wrote", "MiB", sum(all_ - guest for all_, guest in own) / count, budget=18)
    report.value("microvm", "the pages that its machine wrote", "MiB", sum(guest for _, guest in own) / count)
    report.value("microvm", "proportional set size of one, with what all share", "MiB", sum(map(pss, clones)) / count / MIB)
    report.value("microvm", "processor time of one's monitor until then", "s", sum(map(cpu_seconds, clones)) / count)


def plain(bench):
    """Of a machine without saved memory, while one waits."""
    samples = []
    os.environ["BENCH_TIER"] = "microvm"
    for _ in range(4 if bench.quick else 10):
        samples += bench.load.numbers("cycle", 1)
        time.sleep(3) # the next one is made, and rehearses
    del os.environ["BENCH_TIER"]
    both = [sum(one[1:3]) / 1000 for one in samples[1:]]
    bench.report.samples("microvm", "create without memory, while one waits, to a first command's output", "ms", both, budget=40)
    bench.report.samples("microvm", "of it: the create", "ms", [one[1] / 1000 for one in samples[1:]])


def saved_in(tier, bench, spec, one_ms, twenty_ms):
    report, rounds = bench.report, 3 if bench.quick else 9
    holder = ask(bench, "POST", "sandboxes", {"tier": tier, "timeout_ms": 3600000, **spec})[0]["id"]
    bench.ids.append(holder)
    ask(bench, "PUT", f"sandboxes/{holder}/files?path=/home/user/holder.py", HOLDER.encode())
    inside = lambda sandbox, command: run([bench.service.build / "cove", "exec", sandbox, "--", "sh", "-c", command], env=bench.service.env)
    inside(holder, "setsid python3 holder.py >/dev/null 2>&1 </dev/null & until [ -e /tmp/up ]; do sleep 0.1; done")
    saved, restored, ahead, cold = [], [], [], []
    for left in reversed(range(rounds)):
        snapshot, took = ask(bench, "POST", f"sandboxes/{holder}/snapshots", {"memory": True})
        saved.append(took)
        for memory, samples in ((True, restored), (False, cold)):
            time.sleep(2)
            begin = time.monotonic()
            made, _ = ask(bench, "POST", "sandboxes", {"template": snapshot["ref"], "memory": memory})
            if not memory:
                inside(made["id"], "setsid python3 holder.py >/dev/null 2>&1 </dev/null & until [ -s /tmp/up ] && pgrep python3; do sleep 0.01; done")
            samples.append((time.monotonic() - begin) * 1000)
            ask(bench, "DELETE", f"sandboxes/{made['id']}")
        if left:
            ask(bench, "DELETE", f"snapshots?ref={snapshot['ref']}")
    for _ in range(rounds + 1):
        made, took = ask(bench, "POST", "sandboxes", {"template": snapshot["ref"], "memory": True})
        ahead.append(took)
        ask(bench, "DELETE", f"sandboxes/{made['id']}")
        time.sleep(13 if len(ahead) == 1 else 3) # what was made ahead for others is kept for ten seconds
    ask(bench, "DELETE", f"snapshots?ref={snapshot['ref']}")
    report.samples(tier, "snapshot with memory of a Python with 200 MB", "ms", saved)
    report.samples(tier, "create from it: that Python goes on", "ms", restored, budget=one_ms)
    report.samples(tier, "the same once more: one waits", "ms", ahead[1:])
    report.samples(tier, "create from its files, and start such a Python", "ms", cold)
    for text in ("the first one", "once one waits") if tier == "microvm" else ("one",):
        forks, took = ask(bench, "POST", f"sandboxes/{holder}/fork", {"memory": True})
        one = forks["forks"][0]["sandbox"]["id"]
        report.value(tier, f"fork with memory, {text}", "ms", took)
        report.value(tier, "its first command", "ms", timed(lambda: inside(one, "true")))
        ask(bench, "DELETE", f"sandboxes/{one}")
        time.sleep(3)
    for text in ("", ", again: some wait") if tier == "microvm" else ("",):
        forks, took = ask(bench, "POST", f"sandboxes/{holder}/fork", {"memory": True, "count": 20})
        made = [f["sandbox"]["id"] for f in forks["forks"] if "sandbox" in f]
        report.value(tier, f"fork with memory, 20 at once ({len(made)} made){text}", "ms", took, budget=twenty_ms)
        for one in made:
            ask(bench, "DELETE", f"sandboxes/{one}")
        time.sleep(10)
    report.value(tier, "pause to disk", "ms", ask(bench, "POST", f"sandboxes/{holder}/pause", {"to": "disk"})[1])
    report.value(tier, "resume from there", "ms", ask(bench, "POST", f"sandboxes/{holder}/resume")[1])
    return holder
