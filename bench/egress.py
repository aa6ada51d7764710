# SPDX-License-Identifier: Apache-2.0
"""What it costs that every connection of a sandbox is captured: the same TLS client (tls.c) in a sandbox and beside it, on the offline internet of
the network tests (two network namespaces; the host's own is not touched), against the same server."""

import contextlib
import json
import os
import shutil
import sys
import time

from here import ordinary
from report import median, percentile
from rig import MIB, TOP, Broken, Missing, cpu_seconds, kernel_memory, rss, run

PORT, NAME, NAMES_BELOW = 4443, "allowed.test", 40
RULES = [{"allow": NAME}, {"allow": f"*.{NAME}"}]
PASSED = {"default": "deny", "rules": RULES}
OPENED = {"default": "deny", "rules": RULES, "inject": [{"host": n, "headers": [{"name": "x-bench", "value": "${secret:BENCH}"}]} for n in (NAME, f"*.{NAME}")]}
VAULT = {"credentials": [{"name": "bench", "source": {"type": "inline", "value": "bench-value"}}],
         "bindings": [{"name": "bench", "match": {"hosts": [NAME], "ports": [PORT]},
                       "auth": {"type": "bearer", "credential": "bench", "substitutions": [{"credential": "bench", "placeholder": "__bench__", "in": ["query", "header", "body"]}]}}]}
# What a sandbox of a coding agent may have.
MANY = {"default": "deny", "rules": [{"allow": f"host{n}.example.com", "ports": [443]} for n in range(8)] + [{"deny": "10.0.0.0/8"}, {"allow": "*.example.org"}]}
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


class Net:
    """The internet, a service on its machine, and programs in three places."""

    def __init__(self, bench):
        os.environ |= {"COVE_BUILD": str(bench.build), "COVE_TEST_TEMPLATES": str(bench.prepared)}
        sys.path.insert(0, str(TOP / "tests" / "network"))
        import world  # what it imports reads the environment

        self.bench, self.world, self.address = bench, world.World(bench.scratch.path / "network"), world.ALLOWED
        self.program = bench.out / "tls"
        self.service, self.boxes = None, {}

    def start(self):
        source = TOP / "bench/tls.c"
        if not self.program.exists() or self.program.stat().st_mtime < source.stat().st_mtime:
            run(["cc", "-std=c17", "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-pthread", "-static", "-o", self.program, source, "-lssl", "-lcrypto"])
        self.world.directory.mkdir(mode=0o755)
        self.world.start()
        self.ca = self.world.directory / "ca.pem"
        self.world.beyond(self.program, "serve", self.world.directory / "server.pem", self.world.directory / "server.key", PORT)
        self.service = self.world.start_service()
        self.check(self.service.cove("secret", "set", "BENCH", input="bench-value"))
        for name, policy in (("passed", PASSED), ("opened", OPENED), ("vault", PASSED)):
            self.boxes[name] = self.service.create(network=policy, timeout_ms=3600000)
            if name == "vault":
                self.fill_vault(self.boxes[name])
            for source, inside in ((self.program, "tls"), (self.ca, "ca.pem")):
                self.check(self.service.cove("cp", source, f"{self.boxes[name]}:/tmp/{inside}"))
            names = " ".join([NAME, *(f"n{n}.{NAME}" for n in range(NAMES_BELOW))])
            self.check(self.service.cove("exec", self.boxes[name], "--", "sh", "-c", f"chmod +x /tmp/tls; for n in {names}; do getent ahosts $n > /dev/null || exit 1; done"))

    @staticmethod
    def check(done):
        if done.returncode:
            raise Broken((done.stderr or done.stdout).strip()[-500:])
        return done.stdout

    def fill_vault(self, sandbox):
        """As OpenSandbox's SDKs do it."""
        key = {"OPEN-SANDBOX-API-KEY": self.service.key}
        endpoint = self.service.request("GET", f"/v1/sandboxes/{sandbox}/endpoints/18080", headers=key)[2]
        status, _, answer = self.service.request("POST", "/" + endpoint["endpoint"].partition("/")[2] + "/credential-vault", VAULT, {**key, **endpoint["headers"]})
        if status != 201:
            raise Broken(f"the vault: {answer}")

    def egress(self):
        return self.service.child("cove-egress")

    def argv(self, where, command, *arguments):
        ca = {"direct": self.ca, "passed": "/tmp/ca.pem", "opened": BUNDLE, "vault": BUNDLE}[where]
        argv = [command, ca, self.address, PORT, *arguments]
        return [self.program, *argv] if where == "direct" else ["/tmp/tls", *argv]

    def __call__(self, where, command, *arguments):
        """Samples in microseconds."""
        argv = [str(a) for a in self.argv(where, command, *arguments)]
        done = self.world.there(*argv) if where == "direct" else self.service.cove("exec", self.boxes[where], "--", *argv)
        return [float(line) for line in self.check(done).split()]

    @contextlib.contextmanager
    def holding(self, where, n):
        argv = [str(a) for a in self.argv(where, "hold", NAME, n)]
        held = self.service.popen("exec", "-i", self.boxes[where], "--", *argv, stdin=-1, stdout=-1, stderr=-1, text=True)
        try:
            if held.stdout.readline() != "ready\n":
                raise Broken(f"{n} connections: {held.communicate(timeout=20)[1][-300:]}")
            yield
        finally:
            try:
                held.communicate("", timeout=20)
            except Exception:
                held.kill()
                held.communicate()
                raise

    def stop(self):
        self.world.stop()


def turns(net, rounds, command, *arguments, places=("direct", "passed", "opened")):
    """{place: samples}, a few of each in turn."""
    found = {place: [] for place in places}
    for place in places:
        net(place, command, *arguments)
    for _ in range(rounds):
        for place, samples in found.items():
            samples += net(place, command, *arguments)
    return {place: [s / 1000 for s in samples] for place, samples in found.items()}


def added(report, what, found, place, budget=None):
    ours, direct = median(found[place]), median(found["direct"])
    # Four processes take turns on each of these: on a busy machine the medians are about the others.
    least = percentile(found[place], 0.1) - percentile(found["direct"], 0.1)
    report.value("network", f"{what} adds", "ms", ours - direct, budget, note=f"{ours:.2f} against {direct:.2f} ms direct; the fastest tenth {least:+.2f}; "
                 f"p99 {percentile(found[place], 0.99):.1f} against {percentile(found['direct'], 0.99):.1f} ms")


def latency(bench, net):
    report, rounds = bench.report, 2 if bench.quick else 8
    below = [f"n{n}.{NAME}" for n in range(NAMES_BELOW)]
    found = {place: [s / 1000 for s in net(place, "new", *below, "--", NAMES_BELOW)] for place in ("direct", "opened")}
    added(report, "opened, the first to a name,", found, "opened", 3)
    found = turns(net, rounds, "new", NAME, "--", 100)  # so many that starting the client is over
    report.samples("network", "connect, handshake, request: direct", "ms", found["direct"])
    added(report, "the same out of a sandbox, passed through,", found, "passed", 0.3)
    added(report, "opened,", found, "opened", 3)
    found = turns(net, rounds, "kept", NAME, 500, places=("direct", "passed", "opened", "vault"))
    report.samples("network", "request on a kept-alive connection: direct", "ms", found["direct"])
    added(report, "passed through,", found, "passed", 0.3)
    added(report, "opened,", found, "opened", 0.5)
    added(report, "opened for OpenSandbox's credential vault,", found, "vault", 2)


def here(bench, net):
    """The same out of `cove here`, as an ordinary user of that machine."""
    with ordinary(bench.build) as (programs, user):
        for source in (net.program, net.ca):
            shutil.copy(source, programs)
            (programs / source.name).chmod(0o755)
        (programs / "settings.json").write_text(json.dumps({"network": {"allowedDomains": [NAME], "deniedDomains": []},
                                                            "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}))
        client = f"./tls new ca.pem {net.address} {PORT} {NAME} -- 100"
        places = {"direct": ["sh", "-c", client],
                  "here": [programs / "cove-here", "-s", programs / "settings.json", "sh", "-c", f"getent ahosts {NAME} > /dev/null; {client}"]}
        found = {place: [] for place in places}
        for _ in range(2 if bench.quick else 8):
            for place, argv in places.items():
                found[place] += [float(line) / 1000 for line in net.check(net.world.there(*map(str, [*user, *argv]))).split()]
    added(bench.report, "connect, handshake, request out of cove here", found, "here", 0.5)


def bulk(bench, net):
    """One connection at full speed. Three processes share two cores, so what one core of cove-egress carries is counted by the time that it used."""
    report, size = bench.report, (256 if bench.quick else 1024) * MIB
    rates, cores = {"direct": [], "passed": [], "opened": []}, {"passed": [], "opened": []}
    for _ in range(2 if bench.quick else 5):
        for place, samples in rates.items():
            used = cpu_seconds(net.egress())
            (took,) = net(place, "bulk", NAME, size)
            samples.append(size / took)
            used = cpu_seconds(net.egress()) - used
            if place in cores:
                if used <= 0:
                    raise Broken(f"{place}: cove-egress had no part in {size // MIB} MiB")
                cores[place].append(size / 1e6 / used)
    direct = median(rates["direct"])
    report.value("network", f"{size // MIB} MiB over one TLS connection: direct", "MB/s", direct, better="more", note="client and server on a core each")
    for place, words, budget in (("passed", "passed through", 0.6), ("opened", "opened", 0.3)):
        rate, core = median(rates[place]), median(cores[place])
        report.value("network", f"{words}: MB of a core-second of cove-egress", "MB", core, better="more", note=f"{rate:.0f} MB/s on the clock, the cores shared by three, {rate / direct:.2f} of direct")
        report.value("network", f"{words}: one core of it / direct", "x", core / direct, budget, "more")


def memory(bench, net):
    n = 200 if bench.quick else 1000
    for place, words in (("passed", "passed through"), ("opened", "opened")):
        time.sleep(0.5)
        before, kernel = rss(net.egress()), kernel_memory()
        with net.holding(place, n):
            time.sleep(0.5)
            grown, kernel = rss(net.egress()) - before, kernel_memory() - kernel
        bench.report.value("network", f"cove-egress' memory for one of {n} open connections, {words}", "KiB", grown / n / 1024, 64,
                           note=f"{grown / MIB:.1f} MiB in all; the kernel's, client and server included: {kernel / n / 1024:.0f} KiB")


def creation(bench, net):
    """A few of each kind in turn, and all of them stay until the end."""
    report, n, rounds = bench.report, 50 if bench.quick else 200, 1 if bench.quick else 2
    specs = {"default": {}, "rules": {"network": MANY}, "opened": {"network": OPENED}}
    bodies = {name: json.dumps({"timeout_ms": 600000, **spec}).encode() for name, spec in specs.items()}  # ahead: what Python takes for it is not ours
    found = {name: [] for name in specs}
    for _ in range(rounds):
        ids = []
        for _ in range(n // 10):
            for name, body in bodies.items():
                for _ in range(10):
                    started = time.monotonic()
                    status, _, sandbox = net.service.request("POST", "/cove/v1/sandboxes", body)
                    found[name].append((time.monotonic() - started) * 1000)
                    if status != 201:
                        raise Broken(str(sandbox)[-300:])
                    ids.append(sandbox["id"])
                    time.sleep(0.02)  # boxes are made ahead of need: how fast is not what is measured
        for one in ids:
            net.service.request("DELETE", f"/cove/v1/sandboxes/{one}")
        time.sleep(1)
    report.samples("network", f"create, one of {n} with the default policy", "ms", found["default"])
    report.samples("network", f"create, one of {n} with {len(MANY['rules'])} rules", "ms", found["rules"])
    report.value("network", "with rules / default", "x", median(found["rules"]) / median(found["default"]), 1.08)
    report.samples("network", f"create, one of {n} with a CA of its own", "ms", found["opened"])


def network(bench):
    """HTTPS out of sandboxes, passed through and opened, beside the same without one: delay, throughput, memory, creates."""
    net = Net(bench)
    try:
        net.start()
        for part in (latency, here, bulk, memory, creation):
            part(bench, net)
    except (AssertionError, OSError) as why:
        if isinstance(why, FileNotFoundError):
            raise Missing(str(why)) from why
        raise Broken(str(why)[-500:]) from why
    finally:
        net.stop()
