# SPDX-License-Identifier: Apache-2.0
"""The row "https": what TLS costs, beside the same without."""

import os
import re
import shutil
import socket
import ssl
import time

from rig import MIB, Broken, Missing, cpu_seconds, rss, run

DOMAIN = "bench.localhost"


def rate(bench, url, pid, cpus, *more):
    """(requests per second, share of the worker's core, median)"""
    os.sched_setaffinity(pid, {cpus[0]})
    used, started = cpu_seconds(pid), time.monotonic()
    text = run(["taskset", "-c", str(cpus[-1]), "wrk", "-t1", "-c32", "-d1s" if bench.quick else "-d5s", "--latency", *more, f"{url}/health"])
    share = (cpu_seconds(pid) - used) / (time.monotonic() - started)
    os.sched_setaffinity(pid, os.sched_getaffinity(0))
    if "Non-2xx" in text or "Socket errors" in text:
        raise Broken(f"wrk had errors: {text[-300:]}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]), share, re.search(r"^\s+50%\s+(\S+)", text, re.M)[1]


def idle(bench, port, pid):
    """Memory of the worker for each of many idle connections, KiB."""
    n, context, held = 500 if bench.quick else 2000, ssl._create_unverified_context(), []
    before = rss(pid)
    try:
        for _ in range(n):
            s = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10), server_hostname=f"api.{DOMAIN}")
            held.append(s)
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            if not s.recv(65536).startswith(b"HTTP/1.1 200"):
                raise Broken("no answer over TLS")
        return n, (rss(pid) - before) / n / 1024
    finally:
        for s in held:
            s.close()


def https(bench):
    """GET /health over TLS: kept-alive, and a connection for each; beside plain HTTP."""
    if not shutil.which("wrk"):
        raise Missing("wrk is not installed")
    service, report, cpus = bench.service, bench.report, sorted(os.sched_getaffinity(0))
    port = int(service.env["COVE_LISTEN_TLS"].split(":")[1])
    old = service.worker()
    run([service.build / "cove", "domain", "set", DOMAIN], env=service.env)
    try:
        deadline = time.monotonic() + 20
        while service.worker() in (None, old) or not service.answers():
            if time.monotonic() > deadline:
                raise Broken(f"no cove-api with the domain:\n{service.log()}")
            time.sleep(0.05)
        pid, urls = service.worker(), {"HTTP": f"http://{service.address}", "HTTPS": f"https://127.0.0.1:{port}"}
        for what, more in (("kept-alive", ()), ("a connection each", ("-H", "Connection: close"))):
            found = {}
            for name, url in urls.items():
                found[name], share, latency = rate(bench, url, pid, cpus, *more)
                report.value("https", f"{name}, {what}", "/s", found[name], better="more", note=f"worker {share:.0%} of its core, median {latency}")
            report.value("https", f"HTTPS / HTTP, {what}", "x", found["HTTPS"] / found["HTTP"], better="more")
        before = rss(pid)
        n, each = idle(bench, port, pid)
        report.value("https", f"cove-api's memory for one of {n} idle with TLS", "KiB", each)
        time.sleep(0.5)
        report.value("https", "cove-api's growth after they left", "MiB", (rss(pid) - before) / MIB)
    finally:
        run([service.build / "cove", "domain", "unset"], env=service.env)
