# SPDX-License-Identifier: Apache-2.0
"""What leaves: judged by what arrives on the offline internet of tests/network, on whose machine the command is run by an ordinary user."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

import pytest
from anybody import PYTHON
from conftest import settings
from world import World

KEY = "sk-live-0123456789abcdef"


@pytest.fixture(scope="module")
def world():
    if os.geteuid() != 0:
        pytest.skip("needs root")
    directory = tempfile.mkdtemp(prefix="cove-here-net-", dir="/var/tmp")
    os.chmod(directory, 0o755)
    world = World(directory)
    try:
        yield world.start()
    finally:
        world.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def on(world, here):
    """Runs on that machine, and returns (process, violations)."""
    def run(with_settings, line, **options):
        read, write = os.pipe()
        done = here.run(with_settings, "--violations-fd", write, "sh", "-c", line, pass_fds=[write],
                        before=["nsenter", "-t", world.machine.pid, "-m", "-n", "--"], **options)
        os.close(write)
        with os.fdopen(read) as told:
            return done, [json.loads(line) for line in told]
    run.here = here
    return run


def curl(url, *words):
    return " ".join(["curl -sS -m 8 -o /dev/null -w '%{http_code}'", *words, url])


def test_names_that_are_allowed_and_no_others(world, on):
    with world.watched() as seen:
        done, told = on(settings(allow=["allowed.test"]), f"{curl('https://allowed.test/')}; {curl('https://denied.test/')}; {curl('http://198.51.100.66/')}")
    assert done.stdout.startswith("200"), done.stderr
    assert not [e for e in seen if "denied" in json.dumps(e)], "not even a question"
    assert {"denied.test"} <= {t.get("name") for t in told} and all(t["type"] == "network" for t in told)


def test_nothing_is_allowed_without_a_list(world, on):
    with world.watched() as seen:
        done, _ = on(settings(), curl("https://allowed.test/") + "; " + curl("http://11.9.0.1/"))
    assert "200" not in done.stdout and not seen


@pytest.mark.parametrize("allow, deny, url, code", [
    (["*.allowed.test"], [], "https://sub.allowed.test/", "200"),
    (["*.allowed.test"], [], "https://allowed.test/", "000"),
    (["allowed.test"], [], "https://notallowed.test/", "000"),
    (["allowed.test:443"], [], "https://allowed.test/", "200"),
    (["allowed.test:443"], [], "http://allowed.test/", "403"),
    (["allowed.test"], ["allowed.test"], "https://allowed.test/", "000"),
    (["allowed.test"], ["*"], "https://allowed.test/", "000"),
    (["*.allowed.test"], ["SUB.allowed.test"], "https://sub.allowed.test/", "000"),
])
def test_lists(on, allow, deny, url, code):
    done, _ = on(settings(allow=allow, deny=deny), curl(url))
    assert done.stdout == code, done.stderr


def test_reasons_and_what_is_muted(on):
    for entry, host in (("denied.test", "denied.test"), ("*.denied.test:443", "sub.denied.test")):
        network = {"deniedDomainReasons": {entry: "ask the owner"}}
        _, told = on(settings(allow=["allowed.test"], deny=[entry], network=network), curl(f"https://{host}/"))
        assert told and told[0]["explanation"] == "ask the owner"
    _, told = on(settings(allow=["allowed.test"], ignoreViolations={"*": ["denied.test"]}), curl("https://denied.test/"))
    assert told == []


def masked(world, **more):
    return settings(allow=["api.test", "allowed.test"], network={"tlsTerminate": {"extraCaCertPaths": [str(world.directory / "ca.pem")]}},
                    credentials={"envVars": [{"name": "KEY", "mode": "mask", "injectHosts": ["api.test"]}],
                                 "files": [{"path": "~/token", "mode": "mask", "injectHosts": ["api.test"]}]}, **more)


def test_the_command_never_sees_what_is_masked(world, on):
    on.here.file("token", "tok-live-9876543210fedcba\n")
    line = ("echo $KEY; cat ~/token; cat /proc/*/environ | tr '\\0' '\\n' | grep KEY=; "
            "curl -sS -m 8 -o /dev/null -H \"Authorization: Bearer $KEY\" -H \"X-Api-Key: $(cat ~/token)\" https://api.test/headers")
    with world.watched() as seen:
        done, told = on(masked(world), line, env=on.here.environment(KEY=KEY))
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout and "tok-live" not in done.stdout and done.stdout.startswith("fake_value_")
    fields = dict([e for e in seen if e["what"] == "request"][-1]["fields"])
    assert fields["authorization"] == f"Bearer {KEY}" and fields["x-api-key"] == "tok-live-9876543210fedcba", fields


def test_a_stand_in_that_goes_elsewhere_is_told_and_stays_one(world, on):
    on.here.file("token", "tok-live-9876543210fedcba\n")
    with world.watched() as seen:
        _, told = on(masked(world), "curl -sS -m 8 -o /dev/null -H \"Authorization: Bearer $KEY\" http://allowed.test/", env=on.here.environment(KEY=KEY))
    assert KEY not in json.dumps(list(seen))
    assert [t for t in told if t["type"] == "credential"], told


# Each is a denial of its own, and more than a pipe holds.
MANY = """
import socket
for i in range(1500):
    with socket.create_connection(("198.51.100.66", 80), 5) as s:
        s.send(f"GET / HTTP/1.1\\r\\nHost: {'x' * 60}.{'x' * 60}.{i}.denied.test\\r\\n\\r\\n".encode())
        s.recv(1)
"""


def test_who_does_not_read_what_was_denied_stops_nothing(world, on):
    here, (read, write) = on.here, os.pipe()
    argv = here.argv(settings(allow=["allowed.test"]), "--violations-fd", write, PYTHON, "-c", MANY, before=["nsenter", "-t", world.machine.pid, "-m", "-n", "--"])
    done = subprocess.run(argv, pass_fds=[write], cwd=here.home, env=here.environment(), timeout=60, check=False)
    os.close(write)
    with os.fdopen(read) as told:
        lines = told.read().splitlines()
    assert done.returncode == 0 and len(lines) > 100 and all(json.loads(line)["type"] == "network" for line in lines[:-1])


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_person_at_a_terminal_is_told_what_was_refused(world, on, is_terminal):
    here, (ours, theirs) = on.here, os.openpty() if is_terminal else os.pipe()
    lines = f"for i in $(seq 20); do getent hosts $i.denied.test; done; {curl('http://198.51.100.66/')} -H \"Host: a$(printf '\\033')b\""
    argv = here.argv(settings(allow=["allowed.test"]), "sh", "-c", lines, before=["nsenter", "-t", world.machine.pid, "-m", "-n", "--"])
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, cwd=here.home, env=here.environment(), timeout=60, check=False)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError): # EIO: the terminal's end
        while data := os.read(ours, 65536):
            said += data
    os.close(ours)
    line = next((line for line in said.decode().splitlines() if line.startswith("cove here:")), "")
    assert bool(line) == is_terminal and "\033" not in line, (done, said)
    if is_terminal:
        assert line.startswith("cove here: the network policy refused 1.denied.test, 2.denied.test, ") and line.endswith(" and others; --allow HOST allows one"), said


def test_lists_that_change(world, on):
    here, (ours, theirs) = on.here, os.pipe()
    argv = here.argv(settings(), "--control-fd", ours, "sh", "-c", "echo up; while read l; do " + curl("https://allowed.test/") + "; echo; done",
                     before=["nsenter", "-t", world.machine.pid, "-m", "-n", "--"])
    one = subprocess.Popen(argv, pass_fds=[ours], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=here.environment(), cwd=here.home, bufsize=1)
    os.close(ours)

    def ask(with_settings):
        if with_settings is not None:
            os.write(theirs, with_settings.encode() + b"\n")
            time.sleep(0.3)
        one.stdin.write("\n")
        return one.stdout.readline().strip()
    assert one.stdout.readline() == "up\n"
    assert ask(None) == "000"
    assert ask(json.dumps(settings(allow=["allowed.test"]))) == "200"
    assert ask("nonsense") == "200"
    assert ask(json.dumps(settings())) == "000"
    one.stdin.close()
    assert one.wait(60) == 0
    os.close(theirs)


def test_the_channel_that_dies_first_ends_the_command(world, on):
    ours, theirs = os.pipe()
    os.close(theirs)
    done = on.here.run(None, "--control-fd", ours, "sleep", "30", pass_fds=[ours])
    os.close(ours)
    assert done.returncode == -15


def test_without_its_engine_nothing_goes_out(world, on):
    here = on.here
    argv = here.argv(settings(allow=["allowed.test"]), "sh", "-c", "echo up; read l; " + curl("https://allowed.test/"),
                     before=["nsenter", "-t", world.machine.pid, "-m", "-n", "--"])
    one = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=here.environment(), cwd=here.home)
    assert one.stdout.readline() == "up\n"
    engine = [int(pid) for pid in open(f"/proc/{one.pid}/task/{one.pid}/children").read().split() if open(f"/proc/{pid}/comm").read() == "cove-egress\n"]
    os.kill(engine[0], 9)
    with world.watched() as seen:
        assert one.communicate("\n", timeout=60)[0] == "000"
    assert not seen
