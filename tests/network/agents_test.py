# SPDX-License-Identifier: Apache-2.0
"""`cove agent` with the real agents, against a stand-in for their models: each edits a repository and runs its tests, is denied a host, and never holds the key."""

import json
import re
import subprocess

import pytest
from agent_cli_test import PORT, installed, model_of, program
from service import TOP

KEY = "sk-real-and-never-inside"
COMMAND = ("echo right > answer; sh ./test.sh && echo the-tests-pass; curl -sS -m 5 https://denied.test/ 2>&1; "
           "git add -A; git commit -q -m fixed; git log --format=%s -1")
CODEX = ('model_providers.t={name="t",base_url="https://api.test:%d/v1",env_key="OPENAI_API_KEY",wire_api="responses"}' % PORT)
OPENCODE = json.dumps({"provider": {"anthropic": {"options": {"baseURL": f"https://api.test:{PORT}/v1"}}}, "model": "anthropic/claude-sonnet-4-5"})


def claude():
    return program(), f"[{program()}, --dangerously-skip-permissions", ["-p", "mend it"]


def codex():
    binary = installed("agent_kits") / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
    return binary.parent.parent, f"[{binary}, --dangerously-bypass-approvals-and-sandbox", ["exec", "-c", CODEX, "-c", "model_provider=t", "-m", "gpt-5-codex", "mend it"]


def gemini():
    directory = installed("agent_kits") / "@google/gemini-cli"
    return directory, f"[node, {directory}/bundle/gemini.js, --yolo", ["-m", "gemini-2.5-flash", "-p", "mend it"]


def opencode():
    binary = installed("agent_kits") / "opencode-linux-x64-baseline/bin/opencode"
    return binary, f"[{binary}", ["run", "mend it"]


AGENTS = {"claude": (claude, "ANTHROPIC_API_KEY", f"ANTHROPIC_BASE_URL: 'https://api.test:{PORT}'"),
          "codex": (codex, "OPENAI_API_KEY", "RUST_LOG: error"),
          "gemini": (gemini, "GEMINI_API_KEY", f"GOOGLE_GEMINI_BASE_URL: 'https://api.test:{PORT}'"),
          "opencode": (opencode, "ANTHROPIC_API_KEY", f"OPENCODE_CONFIG_CONTENT: '{OPENCODE}'")}


@pytest.fixture
def repo(tmp_path):
    path = tmp_path / "project"
    path.mkdir()
    run = lambda *a: subprocess.run(["git", "-c", "user.name=P", "-c", "user.email=p@example.org", *a], cwd=path, check=True, capture_output=True)
    run("init", "-q", "-b", "main", ".")
    (path / "answer").write_text("wrong\n")
    (path / "test.sh").write_text('test "$(cat answer)" = right\n')
    run("add", ".")
    run("commit", "-q", "-m", "first")
    return path


def kit(name, command, tmp_path):
    """The one that is shipped, with another host for its model, and its program where we have it."""
    text = (TOP / "kits" / f"{name}.yaml").read_text()
    text = re.sub(r"(?m)^template: .*", "template: base", text)
    text, n = re.subn(r"hosts: \[[^]]*\]", f"hosts: ['api.test:{PORT}']", text)
    text, m = re.subn(r"(?m)^command: \[[^],]*(, --(?:dang|yolo)[^],]*)?", f"command: {command}", text)
    assert n and m == 1
    (tmp_path / "kits").mkdir(exist_ok=True)
    (tmp_path / "kits" / f"{name}.yaml").write_text(text)
    return str(tmp_path / "kits")


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_mends_a_repository(world, service, repo, tmp_path, name):
    mends(world, service, repo, tmp_path, name, *AGENTS[name])


def mends(world, service, repo, tmp_path, name, what, variable, url, model=None):
    mounted, command, arguments = what()
    (repo / ".cove/kits").mkdir(parents=True)
    (repo / ".cove/kits" / f"{name}.yaml").write_text("env: {%s}\n" % url)
    subprocess.run("git add . && git -c user.name=P -c user.email=p@example.org commit -q -m kit", cwd=repo, shell=True, check=True)
    env = {"COVE_KITS": kit(name, command, tmp_path), variable: KEY}
    with model_of(world, MODEL_COMMAND=COMMAND, **(model or {})) as log:
        done = service.cove("agent", name, "--mount", f"{mounted}:copy", "--", *arguments, cwd=repo, env=env, timeout=110)
        seen = [json.loads(line) for line in log.read_text().splitlines()]
    assert done.returncode == 0 and "the-tests-pass" in done.stdout, (done, seen)
    assert re.search("refused +denied.test", done.stderr) and f"api.test:{PORT}" in done.stderr and f"cove env diff {name}" in done.stderr
    shown = subprocess.run(["git", "log", "-1", "--format=%s", "-p", f"cove/{name}"], cwd=repo, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("fixed"), done.stdout
    assert "+right" in shown and (repo / "answer").read_text() == "wrong\n"

    asked = [e for e in seen if re.search(r"/messages|/responses|[gG]enerateContent", e["path"])]
    assert len(asked) >= 2 and {e["key"] or e["authorization"] for e in asked} <= {KEY, f"Bearer {KEY}"}, seen
    one = service.sandboxes()[0]["id"]
    inside = service.cove("exec", one, "--", "sh", "-c", "cat /proc/*/environ /proc/*/cmdline 2> /dev/null | tr '\\0' '\\n'; grep -rsa real-and-neve[r] ~ /tmp /etc . 2> /dev/null; env").stdout
    assert variable in inside and "real-and-never" not in inside + done.stdout + done.stderr + service.cove("log", one).stdout
    service.remove_all()
