# SPDX-License-Identifier: Apache-2.0
"""
A machine whose way out is looked into by an authority that no sandbox knows, as behind a company's proxy: with three lines of configuration apt, pip and npm
work in sandboxes and in builds. Who is refused something is told where he looks.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import Box, why_not
from world import World

pytestmark = pytest.mark.timeout(300)

MIRROR = "https://allowed.test/files"
LIST = f"echo 'deb [trusted=yes] {MIRROR}/apt ./' | sudo tee /etc/apt/sources.list"
CLIENTS = {
    "apt": f"{LIST} >/dev/null && sudo apt-get update -qq && sudo apt-get install -qq -y cove-probe >/dev/null && cove-probe",
    "pip": "pip install --quiet cove-probe && python3 -m cove_probe",
    "npm": "cd $(mktemp -d) && npm install --silent cove-probe && node -e \"require('cove-probe')\"",
}


def deb(to):
    """A repository for apt with one package."""
    root = to / "package"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "DEBIAN/control").write_text("Package: cove-probe\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <n@example.org>\nDescription: a probe\n")
    (root / "usr/bin/cove-probe").write_text("#!/bin/sh\necho hello from apt\n")
    (root / "usr/bin/cove-probe").chmod(0o755)
    (to / "apt").mkdir()
    for argv in (["dpkg-deb", "--root-owner-group", "-b", root, to / "apt/cove-probe.deb"],):
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
    size = (to / "apt/cove-probe.deb").stat().st_size
    digest = subprocess.run(["sha256sum", to / "apt/cove-probe.deb"], check=True, capture_output=True, text=True, timeout=60).stdout.split()[0]
    (to / "apt/Packages").write_text((root / "DEBIAN/control").read_text() + f"Filename: ./cove-probe.deb\nSize: {size}\nSHA256: {digest}\n")


@pytest.fixture(scope="module")
def behind():
    if why_not():
        pytest.skip(why_not())
    directory = tempfile.mkdtemp(prefix="cove-behind-")
    os.chmod(directory, 0o755)
    world = World(directory)
    try:
        world.start()
        deb(Path(directory) / "files")
        config = Path(directory) / "cove.yaml"
        config.write_text(f"network: {{trust: {world.directory}/ca.pem, allow: [allowed.test]}}\n"
                          f"mirrors: {{pip: {MIRROR}/simple, npm: {MIRROR}/npm/}}\n"
                          "builds: {allow: [allowed.test]}\n")
        world.start_service(COVE_CONFIG=str(config))
        yield world
    finally:
        world.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def inside(behind):
    box = Box(behind, behind.service)
    yield box
    box.kill()


@pytest.mark.parametrize("client", CLIENTS)
def test_in_a_sandbox(inside, client):
    code, out = inside.run(CLIENTS[client], timeout=100)
    assert code == 0 and f"hello from {client}" in out, out


@pytest.mark.parametrize("client", CLIENTS)
def test_in_a_build(behind, tmp_path, client):
    (tmp_path / "Dockerfile").write_text(f"FROM base\nRUN {CLIENTS[client]}\n")
    done = behind.service.cove("template", "build", "--name", "behind", str(tmp_path))
    assert done.returncode == 0 and f"hello from {client}" in done.stderr, done


def test_without_the_configuration_none_of_it_works(world, service):
    """The control run: the same offline internet, another service."""
    box = Box(world, service)
    code, out = box.run("curl -sS https://allowed.test/", timeout=60)
    box.kill()
    assert code != 0 and "certificate" in out, out


def test_a_build_step_that_is_refused_says_so(behind, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN curl -sS https://denied.test/\n")
    done = behind.service.cove("template", "build", "--name", "refused", str(tmp_path))
    assert done.returncode == 1
    assert "denied denied.test" in done.stderr and "--allow denied.test of 'cove template build'" in done.stderr, done.stderr
    allowed = behind.service.cove("template", "build", "--name", "refused", "--allow", "denied.test", str(tmp_path))
    assert allowed.returncode == 0, allowed


def test_a_build_step_that_meets_a_closed_address_is_told_of_it(behind, tmp_path):
    """A rule about the name alone doesn't open it. What tries again is told once."""
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN curl -4sS http://private.test/; curl -4sS http://private.test/\n")
    done = behind.service.cove("template", "build", "--name", "closed", "--allow", "private.test", str(tmp_path))
    told = [line for line in done.stderr.splitlines() if "network policy denied" in line]
    assert done.returncode == 1 and len(told) == 1 and "--allow private.test --allow 10.0.0.5 of 'cove template build'" in told[0], done.stderr
    followed = behind.service.cove("template", "build", "--name", "closed", "--allow", "private.test", "--allow", "10.0.0.5", str(tmp_path))
    assert "network policy denied" not in followed.stderr, followed.stderr


def test_a_program_that_is_refused_is_explained(behind):
    done = behind.service.cove("run", "--", "curl", "-sS", "https://denied.test/")
    assert done.returncode != 0 and "cove run: network: denied.test" in done.stderr and "--allow denied.test" in done.stderr, done
    assert "denied.test" in behind.service.cove("net", "--last").stdout
    done = behind.service.cove("run", "--", "curl", "-sS", "https://allowed.test/")
    assert done.returncode == 0 and "denied" not in done.stderr, done


def test_who_asks_for_another_policy_has_that(behind):
    done = behind.service.cove("run", "--net", "allow", "--", "curl", "-sS", "https://denied.test/")
    assert done.returncode == 0, done
