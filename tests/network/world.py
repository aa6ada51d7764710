# SPDX-License-Identifier: Apache-2.0
"""An internet without one: two network namespaces of ours, joined by a veth pair. In `inside()` is the machine on which the service runs, with a
resolv.conf and a CA store of its own; in the other lives the canary (canary.py), on every address that anybody could want. The host's own namespace is not touched.
"""

import json
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "system")]

import sources  # noqa: E402
from service import COVED, Service, end_with_parent, wait_until  # noqa: E402

H2_PORT = 9443
DNS = "11.0.0.53"
ALLOWED, ALLOWED6 = "11.0.0.10", "2a00:11::10"
DENIED, DENIED6 = "11.0.0.66", "2a00:11::66"
OTHER = "11.0.0.20"
MACHINE, MACHINE6 = "11.9.0.2", "2a00:9::2"  # the service's machine, towards the canary
METADATA = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")
PRIVATE = ("10.0.0.5", "172.16.0.5", "192.168.7.5", "100.64.0.5", "fd12:3456::5")
PUBLIC = (DNS, ALLOWED, DENIED, OTHER, ALLOWED6, DENIED6, "1.1.1.1", "8.8.8.8", "9.9.9.9", "208.67.222.222")

ZONE = {
    "allowed.test": {"A": [ALLOWED], "AAAA": [ALLOWED6]},
    "*.allowed.test": {"A": [ALLOWED], "AAAA": [ALLOWED6]},
    "ok.allowed.test": {"CNAME": "x.denied.test"},
    "bad.allowed.test": {"A": [DENIED]},
    "api.test": {"A": [OTHER]},
    "tenant.test": {"A": [OTHER]},  # on the same address as api.test
    "denied.test": {"A": [DENIED], "AAAA": [DENIED6]},
    "*.denied.test": {"A": [DENIED]},
    "expired.test": {"A": [OTHER]},
    "old.test": {"A": [OTHER]},  # with a certificate that has expired
    "selfsigned.test": {"A": [OTHER]},
    "rebind.test": {"A": [ALLOWED, "127.0.0.1"], "each": True},
    "loopback.test": {"A": ["127.0.0.1"], "AAAA": ["::1"]},
    "metadata.test": {"A": ["169.254.169.254"]},
    "private.test": {"A": ["10.0.0.5"], "AAAA": ["fd12:3456::5"]},
    "zero.test": {"A": ["0.0.0.0"], "AAAA": ["::"]},
    "mapped.test": {"AAAA": ["::ffff:127.0.0.1"]},
    "nat64.test": {"AAAA": ["64:ff9b::7f00:1"]},
    "sixtofour.test": {"AAAA": ["2002:7f00:1::1"]},
    "machine.test": {"A": [MACHINE]},
    "one.one.one.one": {"A": ["1.1.1.1"]},
    "dns.google": {"A": ["8.8.8.8"]},
}
BAD = ("expired.test", "old.test", "selfsigned.test")  # the certificate of the first has another name
NAMES = sorted({name.removeprefix("*.") for name in ZONE} | {"*.allowed.test", "*.denied.test"})


def run(*argv, **options):
    return subprocess.run([str(a) for a in argv], **{"check": True, "capture_output": True, "text": True, "timeout": 60, **options})


def holder(*namespaces):
    """A process that holds new namespaces until it is killed."""
    process = subprocess.Popen(["unshare", *namespaces, "--", "sh", "-c", "echo; exec sleep 100000"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               preexec_fn=end_with_parent)
    process.stdout.read(1)
    return process


class World:
    def __init__(self, directory):
        self.directory = Path(directory)
        self.log = self.directory / "canary.log"
        self.told, self.read = [], 0  # what is in the log up to there
        self.machine = self.internet = self.canary = self.h2 = None
        self.service = None

    # ---- up and down ----

    def start(self):
        self.machine, self.internet = holder("--net", "--mount"), holder("--net")
        self.make_certificates()
        self.join()
        self.give_files()
        zone = self.directory / "zone.json"
        zone.write_text(json.dumps(ZONE))
        sources.publish(self.directory / "files")
        certificate = (self.directory / "server.pem", self.directory / "server.key")
        self.canary = self.beyond(sys.executable, HERE / "canary.py", self.log, *certificate, zone, DNS)
        wanted = 1
        if shutil.which("node"):
            self.h2 = self.beyond("node", HERE / "h2.mjs", self.log, *certificate, H2_PORT)
            wanted = 2
        assert wait_until(lambda: len(self.events("ready")) == wanted), "the canary did not start"
        return self

    def beyond(self, *argv):
        """A server on the internet, until its stdin ends."""
        return subprocess.Popen(["nsenter", "-t", str(self.internet.pid), "-n", *map(str, argv)], stdin=subprocess.PIPE, preexec_fn=end_with_parent)

    def stop(self):
        if self.service:
            self.service.stop()
            self.service.remove()
        for process in (self.canary, self.h2, self.machine, self.internet):
            if process:
                process.kill()
                process.wait(60)

    def ip(self, process, *arguments):
        run("nsenter", "-t", process.pid, "-n", "ip", *arguments)

    def join(self):
        self.ip(self.machine, "link", "add", "wan", "type", "veth", "peer", "name", "lan", "netns", str(self.internet.pid))
        for process, name in ((self.machine, "wan"), (self.internet, "lan")):
            run("nsenter", "-t", process.pid, "-n", "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", f"net.ipv6.conf.{name}.accept_dad=0")
            self.ip(process, "link", "set", "lo", "up")
            self.ip(process, "link", "set", name, "up")
        self.ip(self.machine, "addr", "add", f"{MACHINE}/24", "dev", "wan")
        self.ip(self.machine, "addr", "add", f"{MACHINE6}/64", "dev", "wan", "nodad")
        self.ip(self.internet, "addr", "add", "11.9.0.1/24", "dev", "lan")
        self.ip(self.internet, "addr", "add", "2a00:9::1/64", "dev", "lan", "nodad")
        self.ip(self.machine, "route", "add", "default", "via", "11.9.0.1")
        self.ip(self.machine, "-6", "route", "add", "default", "via", "2a00:9::1")
        for address in PUBLIC + METADATA + PRIVATE:
            self.ip(self.internet, "addr", "add", f"{address}/{128 if ':' in address else 32}", "dev", "lo", *(["nodad"] if ":" in address else []))

    def make_certificates(self):
        d = self.directory
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=Canary CA",
            "-keyout", d / "ca.key", "-out", d / "ca.pem")
        run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=canary", "-keyout", d / "server.key",
            "-out", d / "server.csr")
        names = [n for n in NAMES if n not in BAD]
        addresses = [a for a in PUBLIC]
        (d / "san").write_text("subjectAltName=" + ",".join([f"DNS:{n}" for n in names] + [f"IP:{a}" for a in addresses]))
        run("openssl", "x509", "-req", "-in", d / "server.csr", "-CA", d / "ca.pem", "-CAkey", d / "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", d / "san", "-out", d / "server.pem")
        (d / "san-old").write_text("subjectAltName=DNS:old.test")
        (d / "ca.conf").write_text("[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
        (d / "index").write_text("")
        (d / "serial").write_text("1000\n")
        run("openssl", "ca", "-batch", "-notext", "-config", "ca.conf", "-in", "server.csr", "-cert", "ca.pem", "-keyfile", "ca.key", "-startdate",
            "20200101000000Z", "-enddate", "20200201000000Z", "-extfile", "san-old", "-out", "old.test.pem", cwd=d)
        run("openssl", "req", "-x509", "-key", d / "server.key", "-days", "2", "-subj", "/CN=selfsigned.test", "-addext",
            "subjectAltName=DNS:selfsigned.test", "-out", d / "selfsigned.test.pem")

    def give_files(self):
        """In the machine's mount namespace alone."""
        d = self.directory
        (d / "resolv.conf").write_text(f"nameserver {DNS}\noptions timeout:1 attempts:2\n")
        store = Path("/etc/ssl/certs/ca-certificates.crt")
        (d / "store.pem").write_bytes((store.read_bytes() if store.exists() else b"") + b"\n" + (d / "ca.pem").read_bytes())
        into = ["nsenter", "-t", str(self.machine.pid), "-m", "--"]
        run(*into, "mount", "--make-rprivate", "/")
        run(*into, "mount", "--bind", (d / "resolv.conf"), Path("/etc/resolv.conf").resolve())
        run(*into, "mount", "--bind", (d / "store.pem"), store)

    # ---- the service ----

    def start_service(self, **env):
        self.service = Service(self.directory / "service")
        self.service.env.update(env, COVE_TIER_PROCESS="/usr")
        self.service.directory.mkdir()
        wrapper = self.directory / "coved-there"
        coved = COVED.resolve()
        wrapper.write_text(f'#!/bin/sh\nexec nsenter -t {self.machine.pid} -m -n -- {coved} "$@"\n')
        wrapper.chmod(0o755)
        return self.service.start(wrapper)

    def there(self, *argv, **options):
        """A command on the machine, outside of any sandbox: the control run."""
        return run("nsenter", "-t", self.machine.pid, "-m", "-n", "--", *argv, **{"check": False, **options})

    # ---- the log ----

    def events(self, what=None, since=0.0):
        if not self.log.exists():
            return []
        with open(self.log, "rb") as log:
            log.seek(self.read)
            lines = log.read()
        lines = lines[:lines.rfind(b"\n") + 1]  # the last one may be half written yet
        self.read += len(lines)
        self.told += map(json.loads, filter(None, lines.split(b"\n")))
        return [e for e in self.told if e["at"] >= since and (what is None or e["what"] == what)]

    @contextmanager
    def watched(self, settle=0.15):
        """with world.watched() as seen: ...; afterwards seen holds what reached the canary meanwhile."""
        seen, since = [], time.time()
        yield seen
        time.sleep(settle)
        seen += self.events(since=since)

