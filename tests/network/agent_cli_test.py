# SPDX-License-Identifier: Apache-2.0
"""A coding agent as people use it, in a sandbox, against a stand-in for its model: the tool holds a sentinel, the wire carries the key."""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from service import end_with_parent

HERE = Path(__file__).resolve().parent
PORT = 9543
SENTINEL, KEY = "sk-cove-sentinel-0001", "sk-real-and-never-inside"
NO_WAY = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|E\w*UNREACH|SOCKET_TIMEOUT|FETCH_ERROR|\bE(?:429|5\d\d)\b|SELF_SIGNED_CERT_IN_CHAIN"
                    r"|UNABLE_TO_\w+|Exit handler never called|socket hang up")


def npm_ci(place, lock):
    for name in ("package.json", "package-lock.json"):
        shutil.copy(lock.parent / name, place)
    done = subprocess.run(["npm", "ci", "--prefix", place, "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress",
                           f"--cache={place / 'cache'}", "--fetch-retries=1", "--fetch-timeout=20000"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        reason = NO_WAY.search(done.stdout + done.stderr)
        assert reason, done.stderr
        pytest.skip(f"the registry can't be reached ({reason[0]})")


def installed(name):
    """Where the packages of this lock file are, installed from their registry; skips when there is no way to it."""
    place, lock = HERE.parent.parent / "build" / name.replace("_", "-"), HERE / name / "package-lock.json"
    if platform.machine() != "x86_64" or not shutil.which("npm"):
        pytest.skip("the agent's program is for x86-64, and comes with npm")
    stamp, wanted = place / "installed", hashlib.sha256(lock.read_bytes()).hexdigest()
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w", encoding="ascii") as turn: # files of tests run side by side
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            npm_ci(place, lock)
            stamp.write_text(wanted)
    return place / "node_modules"


def program():
    return installed("agent_cli") / "@anthropic-ai/claude-code-linux-x64/claude"


@contextlib.contextmanager
def model_of(world, **env):
    log = world.directory / "model.log"
    log.unlink(missing_ok=True)
    process = subprocess.Popen(["nsenter", "-t", str(world.internet.pid), "-n", sys.executable, HERE / "model_server.py", log,
                                world.directory / "server.pem", world.directory / "server.key", str(PORT)], preexec_fn=end_with_parent,
                               env={**os.environ, **env})
    end = time.monotonic() + 60
    while not (log.exists() and "ready" in log.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    try:
        yield log
    finally:
        process.kill()
        process.wait(60)


@pytest.fixture
def model(world):
    with model_of(world) as log:
        yield log


def test_a_coding_agent_never_holds_its_key(service, box, model):
    binary = program()
    assert service.cove("secret", "set", "MODEL", input=KEY + "\n").returncode == 0
    one = box({"default": "deny", "rules": [{"allow": "api.test", "ports": [PORT]}],
               "inject": [{"host": "api.test", "ports": [PORT], "placeholders": [{"sentinel": SENTINEL, "secret": "MODEL"}]}]},
              memory_bytes=3 << 30)
    assert service.cove("cp", binary, f"{one.id}:/home/user/agent", timeout=100).returncode == 0
    code, out = one.run(f"chmod 755 ~/agent && cd ~ && env ANTHROPIC_API_KEY={SENTINEL} ANTHROPIC_BASE_URL=https://api.test:{PORT} "
                        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 timeout 60 ./agent -p 'say so' --allowedTools Bash --output-format json </dev/null",
                        timeout=90)
    assert code == 0, out
    assert json.loads(out)["result"] == "it said: the-agent-was-here", out

    seen = [json.loads(line) for line in model.read_text().splitlines()]
    asked = [e for e in seen if e["path"].startswith("/v1/messages")]
    assert len(asked) >= 2 and {e["key"] for e in asked} == {KEY}, seen
    assert asked[-1]["results"] == ["the-agent-was-here"]

    assert KEY not in out
    assert KEY not in one.run("cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; grep -rsa real-and-never ~ /tmp /etc 2>/dev/null")[1]
    assert KEY not in service.cove("log", one.id).stdout
    requests = [e for e in one.events("net.request") if "/v1/messages" in e["data"]["url"]]
    assert requests and all(e["data"]["injected"] == ["MODEL"] for e in requests)
