# SPDX-License-Identifier: Apache-2.0
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from rig import BUILD, SECRET, attacked, build_probe, descriptors, install, outside  # noqa: E402
from service import prepare_templates  # noqa: E402


def pytest_sessionstart(session):
    """Here and not in a fixture: it takes longer than a test may."""
    if os.geteuid() == 0 and not session.config.option.collectonly:
        prepare_templates()
        build_probe()


class Canary:
    """Things of the host that attacks are after: a process, a port, an abstract socket, a file."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.file = self.directory / "canary"
        self.file.write_text(SECRET)
        self.file.chmod(0o644)
        self.process = subprocess.Popen(["sleep", "1000"], user=65534, group=65534, extra_groups=[], start_new_session=True)
        self.tcp = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.name = f"cove-attack-canary-{os.getpid()}"
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.name)
        self.abstract.listen(8)
        self.path = self.directory / "canary.sock"
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.path))
        self.path.chmod(0o777)
        self.unix.listen(8)
        for s in (self.tcp, self.udp, self.abstract, self.unix):
            s.setblocking(False)

    @property
    def port(self):
        return self.tcp.getsockname()[1]

    @property
    def udp_port(self):
        return self.udp.getsockname()[1]

    def visitors(self):
        """How many came since the last call."""
        count = 0
        for s in (self.tcp, self.abstract, self.unix):
            while True:
                try:
                    s.accept()[0].close()
                    count += 1
                except BlockingIOError:
                    break
        while True:
            try:
                self.udp.recv(2048)
                count += 1
            except BlockingIOError:
                return count

    def close(self):
        self.process.kill()
        self.process.wait()
        for s in (self.tcp, self.udp, self.abstract, self.unix):
            s.close()


@pytest.fixture(scope="session")
def canary():
    with tempfile.TemporaryDirectory(prefix="cove-canary-") as directory:
        os.chmod(directory, 0o755)
        c = Canary(directory)
        yield c
        assert c.process.poll() is None, "the canary process was killed"
        assert c.file.read_text() == SECRET
        c.close()


@pytest.fixture(scope="session")
def session_service(canary):
    with attacked(canary, BUILD) as service:
        yield service


@pytest.fixture
def service(session_service, canary):
    """The service; after each test its sandboxes are removed, what it holds is what it held before, and the canary has seen nobody."""
    canary.visitors()
    session_service.may_replace_worker = False
    pids = {name: session_service.child(name) for name in ("cove-api",)} | {"coved": session_service.coved_pid}
    yield session_service
    session_service.client.remove_all()
    # A checkpoint by a connection of its own leaves one descriptor, which SQLite keeps for the next one.
    if session_service.may_replace_worker:
        session_service.held |= descriptors(session_service)
    spare = any(d.endswith("/cove.db") for d in descriptors(session_service) - session_service.held)
    session_service.baseline["descriptors of cove-api"] = len(session_service.held) + spare
    leaks = session_service.leaks()
    assert not leaks, leaks + sorted(descriptors(session_service) - session_service.held)
    assert canary.visitors() == 0, "somebody reached a socket of the host"
    assert canary.process.poll() is None, "the canary process was killed"
    now = {"cove-api": session_service.child("cove-api"), "coved": session_service.coved_pid}
    if session_service.may_replace_worker:
        pids["cove-api"] = now["cove-api"]
        session_service.held = descriptors(session_service)
    assert session_service.coved.poll() is None and now == pids, f"a process of the service was replaced: {session_service.tail()}"


@pytest.fixture
def make(service):
    """Makes sandboxes that have the probe."""
    return lambda **fields: install(service.client.create(**fields))


@pytest.fixture
def sandbox(make):
    return make()


@pytest.fixture
def pair(make):
    """Two sandboxes: the attacker's and its neighbour's."""
    return make(), make()


@pytest.fixture(scope="session")
def control():
    """outside() with its answers kept: {verb: outcome}."""
    kept = {}

    def run(*verbs, net=False):
        new = [v for v in verbs if v not in kept]
        if new:
            kept.update(outside(*new, net=net))
        return {v: kept[v] for v in verbs}

    return run
