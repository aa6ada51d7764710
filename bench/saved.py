# SPDX-License-Identifier: Apache-2.0
"""The rows "gvisor" and "microvm": saved memory of a Python with 200 MB, beside a start of such a sandbox from its files; of microvm, a boot of plain QEMU, too."""

import http.client
import json
import os
import re
import time

from rig import Missing, run

HOLDER = "import os, time\ndata = bytearray(os.urandom(1 << 20) * 200)\nopen('/tmp/up', 'w').write('x')\ntime.sleep(1e9)\n"


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


def gvisor(bench):
    """snapshot, create, forks and a pause to disk of a gvisor sandbox with its memory; beside a start from its files."""
    saved_in("gvisor", bench, {}, 220, 2500)


def microvm(bench):
    """the same of a microvm of 512 MiB, and a kernel's first words in plain QEMU"""
    probes = json.loads(run([bench.service.build / "coved", "doctor", "--json"], env=bench.service.env, timeout=300))["probes"]
    spoke = next((re.search(r"spoke after (\d+) ms", p["detail"]) for p in probes if "microvm" in p["name"] and "spoke" in p["detail"]), None)
    if spoke:
        bench.report.value("microvm", "plain QEMU, until its kernel speaks", "ms", int(spoke[1]))
    saved_in("microvm", bench, {"memory_bytes": 512 << 20}, 150, 400)


def saved_in(tier, bench, spec, one_ms, twenty_ms):
    report, rounds = bench.report, 3 if bench.quick else 9
    holder = ask(bench, "POST", "sandboxes", {"tier": tier, "timeout_ms": 3600000, **spec})[0]["id"]
    bench.ids.append(holder)
    ask(bench, "PUT", f"sandboxes/{holder}/files?path=/home/user/holder.py", HOLDER.encode())
    inside = lambda sandbox, command: run([bench.service.build / "cove", "exec", sandbox, "--", "sh", "-c", command], env=bench.service.env)
    inside(holder, "setsid python3 holder.py >/dev/null 2>&1 </dev/null & until [ -e /tmp/up ]; do sleep 0.1; done")
    saved, restored, cold = [], [], []
    for _ in range(rounds):
        snapshot, took = ask(bench, "POST", f"sandboxes/{holder}/snapshots", {"memory": True})
        saved.append(took)
        for memory, samples in ((True, restored), (False, cold)):
            time.sleep(1) # a box is made ahead meanwhile
            begin = time.monotonic()
            made, _ = ask(bench, "POST", "sandboxes", {"template": snapshot["ref"], "memory": memory})
            if not memory:
                inside(made["id"], "setsid python3 holder.py >/dev/null 2>&1 </dev/null & until [ -s /tmp/up ] && pgrep python3; do sleep 0.01; done")
            samples.append((time.monotonic() - begin) * 1000)
            ask(bench, "DELETE", f"sandboxes/{made['id']}")
        ask(bench, "DELETE", f"snapshots?ref={snapshot['ref']}")
    report.samples(tier, "snapshot with memory of a Python with 200 MB", "ms", saved)
    report.samples(tier, "create from it: that Python goes on", "ms", restored, budget=one_ms)
    report.samples(tier, "create from its files, and start such a Python", "ms", cold)
    forks, took = ask(bench, "POST", f"sandboxes/{holder}/fork", {"memory": True, "count": 20})
    made = [f["sandbox"]["id"] for f in forks["forks"] if "sandbox" in f]
    bench.ids += made
    report.value(tier, f"fork with memory, 20 at once ({len(made)} made)", "ms", took, budget=twenty_ms)
    report.value(tier, "pause to disk", "ms", ask(bench, "POST", f"sandboxes/{holder}/pause", {"to": "disk"})[1])
    report.value(tier, "resume from there", "ms", ask(bench, "POST", f"sandboxes/{holder}/resume")[1])
