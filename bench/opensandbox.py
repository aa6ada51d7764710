# SPDX-License-Identifier: Apache-2.0
"""The row "opensandbox": what OpenSandbox's SDKs wait for, request by request as the npm package sends them, over kept-alive connections."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import threading
import time

from report import median
from rig import MIB, Broken, forget_peak, peak, rss

LIMITS = {"cpu": "1", "memory": "2Gi"}
POOL = "base"


class Api:
    """One connection."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=60)
        self.key = {"OPEN-SANDBOX-API-KEY": os.environ["BENCH_KEY"], "Content-Type": "application/json"}

    def ask(self, method, path, body=None, headers=None, wanted=200):
        self.connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body), headers or self.key)
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status != wanted:
            raise Broken(f"{method} {path}: {answer.status} {data[:300]!r}")
        return json.loads(data) if data.startswith(b"{\"") and data.endswith(b"}") else data

    def create(self, **more):
        """As Sandbox.create does it: (id, path of execd, its headers)."""
        body = {"image": {"uri": "base"}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": LIMITS, "timeout": 600, "env": {}, "metadata": {}, "extensions": {},
                "secureAccess": False, **more}
        made = self.ask("POST", "/v1/sandboxes", body, wanted=202)["id"]
        execd = self.ask("GET", f"/v1/sandboxes/{made}/endpoints/44772?use_server_proxy=false")
        self.ask("GET", f"/v1/sandboxes/{made}/endpoints/18080?use_server_proxy=false")
        path = "/" + execd["endpoint"].partition("/")[2]
        self.ask("GET", path + "/ping", headers=execd["headers"])
        return made, path, execd["headers"]

    def kill(self, sandbox):
        self.ask("DELETE", f"/v1/sandboxes/{sandbox}", wanted=204)


def timed(work, n, pause=0.0):
    samples = []
    for _ in range(n):
        begin = time.monotonic()
        after = work()
        samples.append((time.monotonic() - begin) * 1e3)
        if after:
            after()
        time.sleep(pause)
    return samples


def creates(bench, api):
    def create():
        made = api.create()[0]
        return lambda: api.kill(made)

    timed(create, 5)
    bench.service.settle()
    samples = timed(create, 50 if bench.quick else 200, 0.02)  # boxes are made ahead of need: how fast is not what is measured
    bench.report.samples("opensandbox", "Sandbox.create: POST, two endpoints, ping", "ms", samples, budget=6)


def commands(bench, api):
    sandbox, path, headers = api.create()

    def echo():
        events = api.ask("POST", path + "/command", {"command": "echo hi"}, headers)
        if b'"execution_complete"' not in events:
            raise Broken(f"/command: {events[-300:]!r}")

    timed(echo, 10)
    bench.report.samples("opensandbox", "/command echo, to its end event", "ms", timed(echo, 60 if bench.quick else 300), budget=2)
    api.kill(sandbox)


def pool(bench, api):
    """100 of a pool that keeps as many ready as may be, 10 at a time."""
    n, ready, local, walls = 100, 64, threading.local(), []
    api.ask("POST", "/v1/pools", {"name": POOL, "capacitySpec": {"bufferMin": 0, "bufferMax": ready, "poolMin": 0, "poolMax": 2 * n}}, wanted=201)
    try:
        for _ in range(2 if bench.quick else 5):
            deadline = time.monotonic() + 60
            while api.ask("GET", f"/v1/pools/{POOL}")["status"]["available"] < ready:
                if time.monotonic() > deadline:
                    raise Broken("the pool is not filled")
                time.sleep(0.05)
            bench.service.settle()

            def create(_):
                mine = local.__dict__.setdefault("api", Api(bench.service.address))
                return mine.ask("POST", "/v1/sandboxes", {"extensions": {"poolRef": POOL}, "timeout": 600}, wanted=202)["id"]

            with concurrent.futures.ThreadPoolExecutor(10) as threads:
                begin = time.monotonic()
                made = list(threads.map(create, range(n)))
                walls.append(time.monotonic() - begin)
            for sandbox in made:
                api.kill(sandbox)
    finally:
        api.ask("DELETE", f"/v1/pools/{POOL}", wanted=204)
    bench.report.samples("opensandbox", f"{n} creates through a pool of {ready}, 10 at a time, all of them", "s", walls, budget=0.3)


def upload(bench, api):
    """As the SDKs do it: two parts, the second with the content."""
    size, piece = (128 if bench.quick else 1024) * MIB, os.urandom(MIB)
    sandbox, path, headers = api.create()
    metadata = json.dumps({"path": "/tmp/large", "mode": 644})
    head = "".join(f'--bench\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\nContent-Type: {kind}\r\n\r\n{content}' for name, kind, content in (
        ("metadata", "application/json", metadata + "\r\n"), ("file", "application/octet-stream", ""))).encode()
    tail, rates = b"\r\n--bench--\r\n", []
    before = {}
    for pid in (bench.service.worker(), bench.service.coved(), *bench.service.agents()):
        with contextlib.suppress(OSError, KeyError):  # of a sandbox that just ends
            forget_peak(pid)
            before[pid] = rss(pid)
    for _ in range(1 if bench.quick else 3):
        os.sync()
        begin, connection = time.monotonic(), http.client.HTTPConnection(bench.service.address, timeout=60)
        connection.putrequest("POST", path + "/files/upload")
        for name, value in {**headers, "Content-Type": "multipart/form-data; boundary=bench", "Content-Length": len(head) + size + len(tail)}.items():
            connection.putheader(name, value)
        connection.endheaders(head)
        for _ in range(size // MIB):
            connection.send(piece)
        connection.send(tail)
        answer = connection.getresponse()
        if answer.status != 200:
            raise Broken(f"upload: {answer.status} {answer.read()[:300]!r}")
        rates.append(size / 1e6 / (time.monotonic() - begin))
        connection.close()
    bench.report.value("opensandbox", f"upload of {size // MIB} MiB", "MB/s", median(rates), 400, "more", f"{len(rates)} times")
    grew = [peak(bench.service.worker()) - before[bench.service.worker()]]
    for pid, memory in before.items():
        with contextlib.suppress(OSError, KeyError):
            grew.append(peak(pid) - memory)
    bench.report.value("opensandbox", "most that a process of ours grew", "MiB", max(grew) / MIB, 16)
    api.kill(sandbox)


def opensandbox(bench):
    """OpenSandbox's API: a create as the npm SDK does it, a command, 100 creates through a pool, an upload."""
    api = Api(bench.service.address)
    for part in (creates, commands, pool, upload):
        part(bench, api)
