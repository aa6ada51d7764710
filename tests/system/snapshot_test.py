# SPDX-License-Identifier: Apache-2.0
"""cove snapshot, fork, diff, gc and pool."""

import json
import re

import pytest

ID = re.compile(r"i[a-z0-9]{20}")


def sh(service, sandbox, script):
    done = service.cove("exec", sandbox, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def snapshots(service):
    """Forgets all that a test has left."""
    yield
    service.remove_all()
    left = service.cove("snapshot", "ls", "-q").stdout.split()
    for name in {ref.removesuffix(":default") if not ref.startswith("local/") else ref.rpartition(":")[0] for ref in left}:
        assert service.cove("snapshot", "rm", name).returncode == 0
    assert service.cove("gc").returncode == 0


def test_a_snapshot_keeps_what_was(service, sandbox, snapshots):
    sh(service, sandbox, "echo then > f")
    name = service.cove("snapshot", sandbox, "kept:v1").stdout.strip()
    assert name.endswith("kept:v1")
    plain = service.cove("snapshot", sandbox).stdout.strip()
    sh(service, sandbox, "echo now > f")
    for ref in (name, "kept:v1", plain):
        assert service.cove("run", "--template", ref, "--", "cat", "f").stdout == "then\n"
    assert service.cove("snapshot", "ls", "-q", "--sandbox", sandbox).stdout.split() == [plain, name]
    listed = json.loads(service.cove("snapshot", "ls", "--json").stdout)
    assert [(s["ref"], s["sandbox"]) for s in listed] == [(plain, sandbox), (name, sandbox)]
    assert service.cove("snapshot", sandbox, "no name").returncode == 1
    assert sh(service, sandbox, "cat f") == "now\n"


def test_a_snapshot_that_is_used_is_not_removed(service, sandbox, snapshots):
    name = service.cove("snapshot", sandbox, "used").stdout.strip()
    user = ID.search(service.cove("run", "--keep", "--template", name, "--", "true").stderr)[0]
    done = service.cove("snapshot", "rm", name)
    assert done.returncode == 1 and user in done.stderr and "cove rm" in done.stderr
    assert service.cove("rm", user).returncode == 0
    assert service.cove("snapshot", "rm", name).stdout == f"{name}\n"
    assert "cove snapshot ls" in service.cove("snapshot", "rm", name).stderr
    assert service.cove("run", "--template", name, "--", "true").returncode == 125
    assert service.cove("snapshot", "rm", "base").returncode == 1


def test_tags_of_a_name_are_removed_one_by_one_or_together(service, sandbox, snapshots):
    for tag in ("", ":v1", ":v2"):
        assert service.cove("snapshot", sandbox, f"many{tag}").returncode == 0
    assert service.cove("snapshot", "rm", "many:v1").returncode == 0
    assert [ref.rpartition(":")[2] for ref in service.cove("snapshot", "ls", "-q").stdout.split()] == ["v2", "default"]
    done = service.cove("snapshot", "rm", "many:default")
    assert done.returncode == 1 and "other tags" in done.stderr
    assert service.cove("snapshot", "rm", "many").returncode == 0
    assert service.cove("snapshot", "ls", "-q").stdout == ""


def test_forks_have_the_files_and_their_own_life(service, sandbox, snapshots):
    sh(service, sandbox, "echo before > f")
    forks = service.cove("fork", "-n", "4", "--timeout", "5m", sandbox).stdout.split()
    assert len(set(forks)) == 4 and all(ID.fullmatch(f) for f in forks)
    sh(service, forks[0], "echo mine > f")
    assert [sh(service, box, "cat f") for box in (sandbox, *forks)] == ["before\n", "mine\n"] + 3 * ["before\n"]
    answer = json.loads(service.cove("fork", "--json", sandbox).stdout)
    assert len(answer["forks"]) == 1 and answer["forks"][0]["sandbox"]["state"] == "running"
    assert service.cove("fork", "-n", "0", sandbox).returncode == 2
    assert service.cove("fork", "i" + "0" * 20).returncode == 1


def test_diff_tells_what_was_added_changed_and_deleted(service, sandbox, snapshots):
    sh(service, sandbox, "echo a > a; mkdir d; echo b > d/b; sudo rm /etc/motd; echo x | sudo tee -a /etc/issue")
    lines = service.cove("diff", sandbox).stdout.splitlines()
    assert {"A /home/user/a", "A /home/user/d/", "A /home/user/d/b", "D /etc/motd", "M /etc/issue"} <= set(lines)
    assert [line[2:] for line in lines] == sorted(line[2:] for line in lines)
    name = service.cove("snapshot", sandbox, "one").stdout.strip()
    sh(service, sandbox, "rm a; echo bb > d/b; echo c > c")
    assert service.cove("diff", name, sandbox).stdout == "D /home/user/a\nA /home/user/c\nM /home/user/d/b\n"
    back = [json.loads(line) for line in service.cove("diff", "--json", sandbox, name).stdout.splitlines()]
    assert {(e["change"], e["path"]) for e in back} == {("added", "/home/user/a"), ("deleted", "/home/user/c"), ("modified", "/home/user/d/b")}
    assert service.cove("diff", name, name).stdout == ""
    assert "cove snapshot ls" in service.cove("diff", "no-such-thing").stderr


def test_what_nobody_needs_goes(service, sandbox, snapshots):
    before = {e["layer"] for e in json.loads(service.cove("gc", "--dry-run", "--json").stdout)["layers"]}
    name = service.cove("snapshot", sandbox, "short").stdout.strip()
    layer = json.loads(service.cove("snapshot", "ls", "--json").stdout)[0]["layer"]
    assert layer not in service.cove("gc", "--dry-run").stdout
    assert service.cove("snapshot", "rm", name).returncode == 0
    found = json.loads(service.cove("gc", "--dry-run", "--json").stdout)["layers"]
    assert {e["layer"] for e in found} - before <= {layer} and not any(e["dropped"] for e in found)
    assert service.cove("gc").returncode == 0
    assert json.loads(service.cove("gc", "--json").stdout) == {"layers": []}


def test_the_pool_says_what_it_is(service):
    pool = json.loads(service.cove("pool", "--json").stdout)
    assert pool["kind"] in ("btrfs", "reflink", "copy") and 0 < pool["free_bytes"] <= pool["total_bytes"] and pool["layers"] >= 1
    assert f"kind    {pool['kind']}\n" in service.cove("pool").stdout


def test_some_are_kept_ready(session_service):
    """Without the look at leaks: what was made ahead goes as others take it."""
    service = session_service
    try:
        assert service.cove("warm", "base", "2").returncode == 0
        assert service.cove("run", "--", "echo", "taken").stdout == "taken\n"
    finally:
        assert service.cove("warm", "base", "0").returncode == 0
    assert "cove template ls" in service.cove("warm", "nothing", "1").stderr
    assert service.cove("warm", "base", "1000").returncode == 2
    for _ in range(4):
        assert service.cove("run", "--", "true").returncode == 0
