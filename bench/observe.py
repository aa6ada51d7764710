# SPDX-License-Identifier: Apache-2.0
"""What it costs to record what processes inside execute and write: two services, one that does and one that doesn't, in turn. In processor time, of the
commands and of the services, which other load of the machine changes less than the time that passes."""

import json
import os
import time
from pathlib import Path

from report import median
from rig import Scratch, Service, children, run

USED = """
import os, resource, time
def used():
    return sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
"""
EXECS = USED + """
begin = used()
due = time.monotonic()
for _ in range(%d):
    if os.posix_spawn("/bin/true", ["true"], {}) and os.wait()[1]:
        raise SystemExit("true failed")
    due += %g
    time.sleep(max(0, due - time.monotonic()))
print(used() - begin)
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


def observe(bench):
    """Execs, files and a build inside, recorded and not."""
    rounds = 3 if bench.quick else 9
    work = {"1,000 execs": (EXECS % (1000, 0), 1), "execs, 100/s": (EXECS % (400, 0.01), None),
            "2,000 files": (FILES % 2000, None), "make of 10 files": (BUILD % 10, 3)}
    services, boxes, scratches = {}, {}, []
    try:
        for name in ("false", "true"):
            scratches.append(Scratch(bench.prepared.parent))
            services[name] = Service(bench.build, bench.prepared, scratches[-1])
            services[name].env.update(COVE_OBSERVE_PROCESSES=name, COVE_OBSERVE_FILES=name)
            services[name].start()
            boxes[name] = json.loads(cove(bench, services[name], "run", "--keep", "--timeout", "1h", "--json", "--", "true"))["sandbox"]
        for what, (script, budget) in work.items():
            took, served = ({name: [] for name in services} for _ in range(2))
            for i in range(rounds):
                for name in sorted(services, reverse=i % 2 == 1):
                    before = of_service(services[name])
                    inside = float(cove(bench, services[name], "exec", boxes[name], "--", "python3", "-c", script))
                    time.sleep(0.5)
                    served[name].append(of_service(services[name]) - before)
                    took[name].append(inside + served[name][-1])
            bench.report.samples("observe", what, "ms", [1000 * s for s in took["false"]])
            more = median(sorted(b / a for a, b in zip(took["false"], took["true"]))) - 1
            bench.report.value("observe", f"{what}, recorded: more", "%", 100 * more, budget)
            in_service = median(sorted(served["true"])) - median(sorted(served["false"]))
            bench.report.value("observe", f"{what}, recorded: of it in coved and cove-api", "ms", 1000 * in_service)
    finally:
        for service in services.values():
            service.stop()
        for scratch in scratches:
            scratch.close()


def of_service(service):
    """Of coved and cove-api; those who end meanwhile are not ours."""
    names = {"coved", "cove-api"}
    return sum(int(task.read_text().split()[0]) for pid, name in children(service.pid).items() if name in names
               for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def cove(bench, service, *words):
    return run([bench.build / "cove", *words], timeout=120, env={**os.environ, "COVE_RUN": str(service.run_dir)}).strip()
