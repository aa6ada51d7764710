# SPDX-License-Identifier: Apache-2.0
"""What it costs to record what processes inside execute and write: two services, one that does and one that doesn't, in turn. In processor time, of the
commands and of the services, which other load of the machine changes less than the time that passes."""

import json
import os
import subprocess
import time
from pathlib import Path

from report import median
from rig import Broken, Scratch, Service, children, run

USED = """
import os, resource, sys, time
def used():
    return sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
"""
EXECS = USED + """
for line in sys.stdin:
    n, pause = int(line.split()[0]), float(line.split()[1])
    begin = used()
    due = time.monotonic()
    for _ in range(n):
        if os.posix_spawn("/bin/true", ["true"], {}) and os.wait()[1]:
            raise SystemExit("true failed")
        due += pause
        time.sleep(max(0, due - time.monotonic()) if pause else 0)
    print(used() - begin, flush=True)
"""
FILES = USED + """
os.makedirs("/home/user/files", exist_ok=True)
begin = used()
for i in range(%d):
    with open(f"/home/user/files/{i}", "w") as f:
        f.write("x")
print(used() - begin)
"""
BUILD = USED + """
import subprocess
os.makedirs("/home/user/build", exist_ok=True)
os.chdir("/home/user/build")
for i in range(%d):
    open(f"m{i}.c", "w").write("#include <stdio.h>\\n#include <stdlib.h>\\n#include <string.h>\\n" +
                               "".join(f"int f{i}_{j}(int x) {{ return printf(\\"%%d\\", x * {j}); }}\\n" for j in range(100)))
open("Makefile", "w").write("all: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n%%.o: %%.c\\n\\tcc -O2 -c -o $@ $<\\n")
subprocess.run("rm -f *.o; make -s -j2", shell=True, check=True)
subprocess.run("rm -f *.o", shell=True, check=True)
begin = used()
subprocess.run(["make", "-s", "-j2"], check=True)
print(used() - begin)
"""
STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
PROGRAMS = 2  # in the kernel, for each exec: at its beginning and at its end
SETTLES = 2.5  # seconds in which coved reads what is left


def observe(bench):
    """Execs, files and a build inside, recorded and not."""
    services, boxes, scratches = {}, {}, []
    stats = STATS.read_text()
    try:
        STATS.write_text("1")
        for name in ("false", "true"):
            scratches.append(Scratch(bench.prepared.parent))
            services[name] = Service(bench.build, bench.prepared, scratches[-1])
            services[name].env.update(COVE_OBSERVE_PROCESSES=name, COVE_OBSERVE_FILES=name)
            services[name].start()
            boxes[name] = json.loads(cove(bench, services[name], "run", "--keep", "--timeout", "1h", "--json", "--", "true"))["sandbox"]
        for what, n, pause in (("1,000 execs", 1000, 0), ("execs, 100/s", 400, 0.01)):
            execs(bench, services, boxes, what, n, pause)
        for what, script, budget in (("2,000 files", FILES % 2000, None), ("make of 10 files", BUILD % 10, 3)):
            whole(bench, services, boxes, what, script, budget)
    finally:
        STATS.write_text(stats)
        for service in services.values():
            service.stop()
        for scratch in scratches:
            scratch.close()


def execs(bench, services, boxes, what, n, pause):
    """The commands' own time scatters by more than the budget, so what recording costs is measured where it arises: in coved and cove-api, as the
    difference between the services, and in the kernel, which takes the time of its programs. These run for whatever the whole machine executes; what is
    not recorded costs there what it costs in the round of the service that records nothing."""
    loops = {name: subprocess.Popen([bench.build / "cove", "exec", "-i", boxes[name], "--", "python3", "-c", EXECS], text=True, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, env=environment(service)) for name, service in services.items()}
    samples = []
    for i in range(1 + (4 if bench.quick else 15)):
        got = {name: execs_once(services, name, loops[name], n, pause) for name in sorted(services, reverse=i % 2 == 1)}
        if i: # the first warms up
            inside, served, kernel, runs = zip(got["false"], got["true"])
            others = (runs[1] - PROGRAMS * n) * kernel[0] / runs[0]
            samples.append((inside[0], served[1] - served[0], kernel[1] - others))
    for loop in loops.values():
        loop.communicate("")
    inside, served, kernel = ([1e6 * s[at] / n for s in samples] for at in range(3))
    more = sorted(100 * (s + k) / median(inside) for s, k in zip(served, kernel))
    quarter = len(more) // 4
    bench.report.samples("observe", what, "us each", inside)
    bench.report.samples("observe", f"{what}, recorded: in coved and cove-api", "us each", served)
    bench.report.samples("observe", f"{what}, recorded: in the kernel", "us each", kernel)
    bench.report.samples("observe", f"{what}, recorded: more", "%", more, budget=1, note=f"half of them {more[quarter]:.2f} to {more[-1 - quarter]:.2f}")


def execs_once(services, name, loop, n, pause):
    """Seconds inside, in coved and cove-api, and in the kernel, and how often its programs ran."""
    before = of_service(services[name]), *of_kernel(services["true"])
    loop.stdin.write(f"{n} {pause}\n")
    loop.stdin.flush()
    line = loop.stdout.readline()
    if not line:
        raise Broken("the programs inside could not be started")
    time.sleep(SETTLES)
    after = of_service(services[name]), *of_kernel(services["true"])
    return float(line), *(b - a for a, b in zip(before, after))


def whole(bench, services, boxes, what, script, budget):
    took, served = ({name: [] for name in services} for _ in range(2))
    for i in range(3 if bench.quick else 9):
        for name in sorted(services, reverse=i % 2 == 1):
            before = of_service(services[name])
            inside = float(cove(bench, services[name], "exec", boxes[name], "--", "python3", "-c", script))
            time.sleep(SETTLES)
            served[name].append(of_service(services[name]) - before)
            took[name].append(inside + served[name][-1])
    bench.report.samples("observe", what, "ms", [1000 * s for s in took["false"]])
    more = median(sorted(b / a for a, b in zip(took["false"], took["true"]))) - 1
    bench.report.value("observe", f"{what}, recorded: more", "%", 100 * more, budget)
    in_service = median(sorted(served["true"])) - median(sorted(served["false"]))
    bench.report.value("observe", f"{what}, recorded: of it in coved and cove-api", "ms", 1000 * in_service)


def of_service(service):
    """Of coved and cove-api; those who end meanwhile are not ours."""
    names = {"coved", "cove-api"}
    return sum(int(task.read_text().split()[0]) for pid, name in children(service.pid).items() if name in names
               for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def of_kernel(service):
    """The programs that coved has in the kernel: their time, and how often they ran."""
    took = {}
    for pid in (pid for pid, name in children(service.pid).items() if name == "coved"):
        for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
            try:
                fields = dict(line.split(":\t", 1) for line in entry.read_text().splitlines() if ":\t" in line)
            except OSError:
                continue
            if "run_time_ns" in fields:
                took[fields["prog_id"]] = int(fields["run_time_ns"]) / 1e9, int(fields["run_cnt"])
    return tuple(sum(column) for column in zip(*took.values())) or (0, 0)


def environment(service):
    return {**os.environ, "COVE_RUN": str(service.run_dir)}


def cove(bench, service, *words):
    return run([bench.build / "cove", *words], timeout=120, env=environment(service)).strip()
