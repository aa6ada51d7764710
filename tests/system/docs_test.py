# SPDX-License-Identifier: Apache-2.0
"""What docs/ promises to be usable as it is printed there: the check of an exported log, and the example of a configuration."""

import json
import re
import subprocess
import sys

import pytest
from client import Client
from leaks import own_service
from service import TOP, wait_until


def block(page, language):
    """The one block of code of this language on the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", (TOP / "docs" / page).read_text(), re.M | re.S)
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    config = tmp_path_factory.mktemp("docs") / "cove.yaml"
    config.write_text(block("CONFIGURATION.md", "yaml"))
    with own_service("docs", COVE_CONFIG=str(config), COVE_POOL="copy") as service:
        yield service


@pytest.fixture(scope="module")
def box():
    """A sandbox that has ended: (service, its log as lines)."""
    with own_service("docs-record") as service:
        client = Client(service.port, service.key)
        sandbox = client.create(timeout=600)
        sandbox.sh("printf '\\0\\033[1m\"\\\\ \\303\\244\\342\\202\\254 \\377'; echo err >&2; seq 3000; exit 3")
        sandbox.unary("filesystem.Filesystem/MakeDir", {"path": '/home/user/"ä€\u2028\n,"data":{}'})
        sandbox.unary("filesystem.Filesystem/Stat", {"path": "/nowhere"})
        assert service.cove("volume", "create", "kept").returncode == 0
        assert service.cove("rm", sandbox.id).returncode == 0
        lines = lambda: service.cove("log", "--json", sandbox.id, text=False).stdout.splitlines(keepends=True)
        assert wait_until(lambda: json.loads(lines()[-1])["kind"] == "sandbox.ended")
        yield service, lines()


def check(tmp_path, lines, *known):
    """(exit code, what it says) of the program that the page prints."""
    program = tmp_path / "verify.py"
    program.write_text(block("RECORD.md", "python"))
    done = subprocess.run([sys.executable, program, *known], input=b"".join(lines), capture_output=True, timeout=60, check=False)
    return done.returncode, (done.stdout + done.stderr).decode().strip()


def end_of(lines):
    last = json.loads(lines[-1])
    return f"{last['seq']} {last['hash']}"


def test_anybody_can_check_a_log(box, tmp_path):
    service, lines = box
    assert len(lines) > 8 and check(tmp_path, lines) == (0, end_of(lines))
    for log in ("--service", "kept"):
        told = service.cove("log", "--json", log, text=False).stdout.splitlines(keepends=True)
        assert check(tmp_path, told) == (0, end_of(told))


def test_what_was_done_to_a_log_is_found(box, tmp_path):
    _, lines = box
    (at,) = (i for i, line in enumerate(lines) if b'"kind":"exec.exit"' in line)
    other = lines[at].replace(b'"exit_code":3', b'"exit_code":0')
    changed = f"event {at + 1} was changed, or another stands in its place"
    assert other != lines[at] and check(tmp_path, [*lines[:at], other, *lines[at + 1:]]) == (1, changed)
    later = re.sub(rb'"time":"20..', b'"time":"2001', lines[at])
    assert check(tmp_path, [*lines[:at], later, *lines[at + 1:]]) == (1, changed)
    assert check(tmp_path, lines[:at] + lines[at + 1:]) == (1, f"event {at + 1} is missing")
    assert check(tmp_path, lines[at:]) == (1, "event 1 is missing")


def test_a_log_goes_on_from_what_is_known_of_it(box, tmp_path):
    _, lines = box
    first, rest = lines[:4], lines[4:]
    seq, known = end_of(first).split()
    assert check(tmp_path, rest, seq, known) == (0, end_of(lines))
    assert check(tmp_path, rest, seq, "0" * 64) == (1, "event 5 was changed, or another stands in its place")
    gap = b'{"gap":{"from":1,"to":4}}\n'
    assert check(tmp_path, [gap, *rest]) == (0, end_of(lines))
    assert check(tmp_path, [gap, rest[0], *rest[2:]]) == (1, "event 6 is missing")


def test_the_example_is_a_configuration(service):
    status, _, info = service.request("GET", "/cove/v1/info")
    assert status == 200 and info["domain"] == "sandboxes.example.org"
    assert info["limits"] == {"sandboxes": 200, "timeout_ms": 12 * 3600 * 1000}
    assert info["defaults"] == {"memory_bytes": 1 << 30, "cpu_milli": 1500, "timeout_ms": 600 * 1000}
    assert service.log.read_text().count(" error ") == 0
    # What the environment says counts, so nothing is where the file says.
    assert str(service.state) in service.log.read_text() and "/srv/cove" not in service.log.read_text()
