# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from world import World  # noqa: E402
from service import prepare_templates  # noqa: E402


def pytest_sessionstart(session):
    """Here and not in a fixture: it takes longer than a test may."""
    if os.geteuid() == 0 and not session.config.option.collectonly:
        prepare_templates()


def why_not():
    if os.geteuid() != 0:
        return "needs root"
    for program in ("ip", "openssl", "nsenter", "unshare", "curl", "git"):
        if not shutil.which(program):
            return f"there is no {program}"
    made = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return made.stderr.strip() or None if made.returncode else None


@pytest.fixture(scope="session")
def world():
    reason = why_not()
    if reason:
        pytest.skip(f"no offline internet: {reason}")
    directory = tempfile.mkdtemp(prefix="cove-network-")
    os.chmod(directory, 0o755)
    world = World(directory)
    try:
        yield world.start()
    finally:
        world.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def service(world):
    return world.start_service()


RAW = r"""
import socket, ssl, sys, time
try:
    s = socket.create_connection((host, port), 20)
    if sni:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        s = context.wrap_socket(s, server_hostname=sni)
    for at in range(0, len(data), step or len(data)):
        s.sendall(data[at:at + (step or len(data))])
        time.sleep(pause)
    end = time.monotonic() + patience
    while (left := end - time.monotonic()) > 0:
        s.settimeout(left)
        got = s.recv(65536)
        if not got:
            print("<end>", end="")
            break
        print(got.decode("latin-1"), end="")
        end = min(end, time.monotonic() + wait)
except (OSError, ssl.SSLError) as error:
    print(f"<{type(error).__name__}: {error}>", end="")
"""


class Box:
    """A sandbox under one policy."""

    def __init__(self, world, service, existing=None, **spec):
        self.world, self.service = world, service
        self.id = existing or service.create(timeout_ms=0, **spec)

    def run(self, command, timeout=100):
        """(exit code, output with errors)"""
        done = self.service.cove("exec", self.id, "--", "bash", "-c", command, timeout=timeout)
        return done.returncode, done.stdout + done.stderr

    def curl(self, *arguments):
        done = self.service.cove("exec", self.id, "--", "curl", "-sS", "-m", "20", *arguments, timeout=100)
        return done.returncode, done.stdout, done.stderr

    def put(self, path, inside, user="user"):
        done = self.service.cove("cp", "-u", user, str(path), f"{self.id}:{inside}", timeout=110)
        assert done.returncode == 0, done.stderr

    def trust(self, certificate):
        """As an administrator inside would: in the bundle that the programs of the base template read."""
        self.put(certificate, "/tmp/trusted.pem")
        assert self.run("cat /tmp/trusted.pem | sudo tee -a /etc/ssl/certs/ca-certificates.crt > /dev/null")[0] == 0

    def python(self, script, timeout=100, **values):
        """(exit code, output) of a script inside that finds these values as variables."""
        code = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + script
        done = self.service.cove("exec", "-i", self.id, "--", "python3", "-", input=code, timeout=timeout)
        return done.returncode, done.stdout + done.stderr

    def raw(self, data, host="allowed.test", port=80, sni=None, pause=0.0, step=0, wait=3.0, patience=20.0):
        """What comes back, as latin-1, for bytes that no well-bred client sends. sni: in TLS, and unverified; step: so many bytes at a time; patience: seconds until the first comes, wait: for the rest."""
        code, out = self.python(RAW, data=data.encode("latin-1") if isinstance(data, str) else data, host=host, port=port, sni=sni, pause=pause, step=step, wait=wait, patience=patience)
        assert code == 0, out
        return out

    def events(self, kind=""):
        status, _, body = self.service.request("GET", f"/cove/v1/sandboxes/{self.id}/events")
        assert status == 200, body
        found = body["events"] if isinstance(body, dict) else [__import__("json").loads(line) for line in body.splitlines() if line]
        return [e for e in found if e["kind"].startswith(kind)]

    def kill(self):
        self.service.request("DELETE", f"/cove/v1/sandboxes/{self.id}")


@pytest.fixture
def box(world, service):
    """box(**spec): makes sandboxes that end with the test."""
    made = []

    def make(policy=None, **spec):
        made.append(Box(world, service, **({"network": policy} if policy else {}), **spec))
        return made[-1]

    yield make
    for one in made:
        one.kill()
