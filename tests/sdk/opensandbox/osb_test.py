# SPDX-License-Identifier: Apache-2.0
"""PyPI's opensandbox-cli: every command of osb that talks to a service."""

import json
import time

import pytest


@pytest.fixture
def made(osb, unique, tmp_path):
    """A sandbox's id."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"defaultAction": "deny", "egress": [{"action": "allow", "target": "api.example.com"}]}))
    sandbox = osb("sandbox", "create", "-i", "base", "-t", "5m", "-e", "A=1", "-m", f"test={unique['test']}", "--network-policy-file", policy, "--credential-proxy")["id"]
    yield sandbox
    osb("sandbox", "kill", sandbox)


def test_sandbox(osb, made, unique):
    assert [s["id"] for s in osb("sandbox", "list", "-m", f"test={unique['test']}", "-s", "Running")["items"]] == [made]
    assert osb("sandbox", "get", made)["status"]["state"] == "Running"
    assert osb("sandbox", "health", made)["healthy"] is True
    assert osb("sandbox", "metrics", made)["memory_total_in_mib"] > 0
    assert osb("sandbox", "endpoint", made, "-p", 8000)["endpoint"].endswith(f"/sandboxes/{made}/proxy/8000")
    before = osb("sandbox", "get", made)["expires_at"]
    osb("sandbox", "renew", made, "-t", "9m")
    assert osb("sandbox", "get", made)["expires_at"] > before
    osb("sandbox", "pause", made)
    assert osb("sandbox", "get", made)["status"]["state"] == "Paused"
    osb("sandbox", "resume", made)
    assert osb("command", "run", made, "--", "sh", "-c", "echo $A", form="raw") == "1\n"


def test_snapshot(osb, made):
    osb("file", "write", made, "/tmp/kept", "-c", "yes")
    snapshot = osb("snapshot", "create", made, "--name", "of-" + made)["id"]
    end = time.monotonic() + 20
    while osb("snapshot", "get", snapshot)["status"]["state"] != "Ready":
        assert time.monotonic() < end
    assert snapshot in [s["id"] for s in osb("snapshot", "list", "--sandbox-id", made)["items"]]
    copy = osb("sandbox", "create", "--snapshot-id", snapshot, "-t", "5m")["id"]
    assert osb("file", "cat", copy, "/tmp/kept", form="raw").strip() == "yes"
    osb("sandbox", "kill", copy)
    osb("snapshot", "delete", snapshot)
    osb("snapshot", "get", snapshot, status=1)


def test_command(osb, made):
    assert osb("command", "run", made, "--argv", "--", "printf", "%s", "$A", form="raw").strip() == "$A"
    started = osb("command", "run", made, "-d", "-w", "/usr", "--", "sh", "-c", "pwd; sleep 1000")["execution_id"]
    end = time.monotonic() + 20
    while (log := osb("command", "logs", made, started))["content"] != "/usr\n":
        assert time.monotonic() < end
    assert log["cursor"] == 5 and osb("command", "status", made, started)["running"] is True
    osb("command", "interrupt", made, started)
    while osb("command", "status", made, started)["running"]:
        assert time.monotonic() < end
    session = osb("command", "session", "create", made, "-w", "/tmp")["session_id"]
    assert osb("command", "session", "run", made, session, "--", "eval", "pwd; B=2", form="raw") == "/tmp\n"
    assert osb("command", "session", "run", made, session, "--", "eval", "echo $B", form="raw") == "2\n"
    osb("command", "session", "delete", made, session)


def test_file(osb, made, tmp_path):
    osb("file", "write", made, "/tmp/d/a.txt", "--mode", "0640", stdin="one two\n")
    assert osb("file", "cat", made, "/tmp/d/a.txt", form="raw") == "one two\n"
    osb("file", "replace", made, "/tmp/d/a.txt", "--old", "two", "--new", "2")
    osb("file", "chmod", made, "/tmp/d/a.txt", "--mode", "0600", "--owner", "nobody")
    info = osb("file", "info", made, "/tmp/d/a.txt")
    info = info["/tmp/d/a.txt"] if isinstance(info, dict) and "/tmp/d/a.txt" in info else info[0] if isinstance(info, list) else info
    assert (info["mode"], info["owner"], info["size"]) == (600, "nobody", 6)
    assert [f["path"] for f in osb("file", "search", made, "/tmp/d", "--pattern", "*.txt")] == ["/tmp/d/a.txt"]
    osb("file", "mv", made, "/tmp/d/a.txt", "/tmp/d/b.txt")
    (tmp_path / "up").write_bytes(bytes(range(256)))
    osb("file", "upload", made, tmp_path / "up", "/tmp/up")
    osb("file", "download", made, "/tmp/up", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == bytes(range(256))
    osb("file", "mkdir", made, "/tmp/e/f")
    osb("file", "rm", made, "/tmp/d/b.txt")
    osb("file", "rmdir", made, "/tmp/d", "/tmp/e")
    assert osb("command", "run", made, "--", "ls", "/tmp", form="raw") == "up\n"


def test_egress_and_vault(osb, made, tmp_path):
    osb("egress", "patch", made, "--rule", "allow=www.example.net")
    assert {r["target"] for r in osb("egress", "get", made)["egress"]} == {"api.example.com", "www.example.net"}
    vault, change = tmp_path / "vault.json", tmp_path / "change.json"
    vault.write_text(json.dumps({"credentials": [{"name": "k", "source": {"type": "inline", "value": "sk-live-of-osb"}}],
                                 "bindings": [{"name": "b", "match": {"hosts": ["api.example.com"]}, "auth": {"type": "bearer", "credential": "k"}}]}))
    change.write_text(json.dumps({"expectedRevision": 1, "bindings": {"delete": ["b"]}}))
    assert "sk-live" not in json.dumps(osb("credential-vault", "create", made, "--file", vault))
    assert [c["name"] for c in osb("credential-vault", "credential", "list", made)] == ["k"]
    assert osb("credential-vault", "credential", "get", made, "k")["name"] == "k"
    assert [b["name"] for b in osb("credential-vault", "binding", "list", made)] == ["b"]
    assert osb("credential-vault", "binding", "get", made, "b")["auth"]["type"] == "bearer"
    assert osb("credential-vault", "patch", made, "--file", change)["revision"] == 2
    assert osb("credential-vault", "get", made)["bindings"] == []
    osb("credential-vault", "delete", made)
    osb("credential-vault", "get", made, status=1)


@pytest.mark.parametrize("what, scope, part", [("logs", "container", "noise"), ("events", "lifecycle", "")])
def test_diagnostics(osb, unique, what, scope, part):
    sandbox = osb("sandbox", "create", "-i", "base", "-t", "5m", "--entrypoint", "sh", "--entrypoint", "-c", "--entrypoint", "echo noise; exec sleep 1000")["id"]
    end = time.monotonic() + 20
    while part not in (told := osb("diagnostics", what, sandbox, "-s", scope))["content"] or not told["content"]:
        assert time.monotonic() < end, told
    assert told["sandbox_id"] == sandbox and told["scope"] == scope
    osb("sandbox", "kill", sandbox)


def test_devops(osb, made):
    for of in "logs", "inspect", "summary":
        osb("devops", of, made, form=None)
    assert "sandbox.create" in osb("devops", "events", made, form=None)


def test_templates_of_another_kind_say_that_they_are_not_there(osb):
    assert "HTTP 404" in osb("template", "list", status=1)
