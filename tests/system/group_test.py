# SPDX-License-Identifier: Apache-2.0
"""Users of the service's group: each a tenant of their own, with their own secrets, and with directories of this machine that are theirs."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from env_test import git
from leaks import own_service
from service import BUILD

GROUP = 54321
DAEMON = 1 # an account with a group of its own that every machine has in its /etc/passwd; that of nobody, systemd knows without it


def as_user(service, uid, *arguments, groups=(), cwd="/", **more):
    options = {"capture_output": True, "text": True, "timeout": 120, "check": False, "cwd": cwd, "input": "", **more}
    env = {**service.env, "HOME": "/nonexistent"}
    return subprocess.run([service.cli, *arguments], user=uid, group=uid, extra_groups=list(groups), env=env, **options)


@pytest.fixture(scope="module")
def service():
    with tempfile.TemporaryDirectory(prefix="cove-test-group-") as top: # not pytest's, whose parent each pytest that starts closes to others
        top = Path(top)
        top.chmod(0o755)
        yield from served(top)


def served(top, group=GROUP):
    (top / "allowed").mkdir()
    config = top / "cove.yaml"
    config.write_text(f"group: '{group}'\nvolumes: {{host: [{top / 'allowed'}]}}\n")
    with own_service("group", COVE_CONFIG=str(config)) as service:
        service.directory.chmod(0o755)
        service.cli = top / "cove" # where others than root may execute it
        for name in ("cove", "cove-cli"):
            (top / name).write_bytes((BUILD / name).read_bytes())
            (top / name).chmod(0o755)
        service.allowed = top / "allowed"
        service.env["COVE_KITS"] = str(shutil.copytree(BUILD.parent / "kits", top / "kits"))
        yield service


def test_a_group_of_a_name():
    with tempfile.TemporaryDirectory(prefix="cove-test-group-") as top:
        Path(top).chmod(0o755)
        for service in served(Path(top), "daemon"):
            member, other = (as_user(service, 4001, "ls", groups=groups) for groups in ([DAEMON], []))
            assert (member.returncode, "not for uid 4001" in other.stderr) == (0, True), (member, other)


def test_each_is_a_tenant_and_others_are_nobody(service):
    refused = as_user(service, 4001, "ls")
    assert refused.returncode != 0 and "not for uid 4001" in refused.stderr, refused
    made = as_user(service, 4001, "run", "--keep", "--", "true", groups=[GROUP])
    assert made.returncode == 0, made
    mine, = as_user(service, 4001, "ls", "-q", groups=[GROUP]).stdout.split()
    assert as_user(service, 4002, "ls", "-q", groups=[GROUP]).stdout.split() == []
    assert "there is no sandbox" in as_user(service, 4002, "exec", mine, "true", groups=[GROUP]).stderr
    assert as_user(service, 4001, "exec", mine, "echo", "here", groups=[GROUP]).stdout == "here\n"
    for words in (["tenant", "ls"], ["pool"], ["ls", "--tenant", "default"], ["ls", "--tenant", "uid-4002"]):
        assert as_user(service, 4001, *words, groups=[GROUP]).returncode != 0, words
    assert {"uid-4001", "uid-4002"} <= {t["name"] for t in json.loads(service.cove("tenant", "ls", "--json").stdout)}
    assert mine in service.cove("ls", "-q").stdout # the machine's owner sees all
    assert "cli:uid=4001" in service.cove("log", mine, "--tenant", "uid-4001").stdout
    assert as_user(service, 4001, "rm", mine, groups=[GROUP]).returncode == 0


def test_secrets_are_each_ones_own(service):
    secret = lambda uid, *words, **more: as_user(service, uid, "secret", *words, groups=[GROUP], **more)
    assert as_user(service, 4001, "ls", groups=[GROUP]).returncode == 0 # who comes for the first time becomes a tenant
    assert secret(4001, "set", "KEY", input="one").returncode == 0
    assert service.cove("secret", "set", "OWNERS", input="two").returncode == 0
    names = lambda done: [one["name"] for one in json.loads(done.stdout)]
    assert names(secret(4001, "ls", "--json")) == ["KEY"] and names(secret(4002, "ls", "--json")) == []
    assert secret(4002, "rm", "KEY").returncode != 0 and secret(4001, "rm", "OWNERS").returncode != 0
    assert "_uid-4001.KEY" in names(service.cove("secret", "ls", "--json"))
    assert names(service.cove("secret", "ls", "--json", "--tenant", "uid-4001")) == ["KEY"]
    assert as_user(service, 4001, "secret", "ls").returncode != 0 # not in the group
    assert secret(4001, "rm", "KEY").returncode == 0 and service.cove("secret", "rm", "OWNERS").returncode == 0


@pytest.fixture
def repo(service):
    path = service.allowed.parent / "repository"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    git(path, "init", "-q", "-b", "main", ".")
    (path / "README").write_text("one\n")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    subprocess.run(["chown", "-R", f"{DAEMON}:{DAEMON}", path], check=True)
    return path


def test_an_agent_with_directories_that_are_theirs(service, repo):
    mine, roots = service.allowed / "mine", service.allowed / "roots"
    for path, owner in ((mine, DAEMON), (roots, 0)):
        path.mkdir(mode=0o755)
        (path / "note").write_text("note\n")
        os.chown(path, owner, owner)
    (mine / "secret").write_text("of root\n")
    (mine / "secret").chmod(0o600)
    shell = lambda *words: as_user(service, DAEMON, "shell", *words, groups=[GROUP], cwd=repo)
    script = (f"cd {mine}; cat note; echo new > new && chmod 6755 new; sudo -n cat secret; sudo -n sh -c 'echo x > roots'; sudo -n chown 0:0 new; "
              "sudo -n mknod dev c 1 3; ls -n new; ls")
    done = shell("--mount", str(mine), ".", "--", "-c", script)
    assert done.returncode == 0 and "of root" not in done.stdout and done.stdout.startswith("note\n"), done
    assert (mine / "new").read_text() == "new\n" and (mine / "new").stat().st_uid == DAEMON and not (mine / "dev").exists()
    assert all(path.stat().st_uid == DAEMON or path.name in ("secret", "note") for path in mine.iterdir()), done
    git_ = lambda *words: subprocess.run(["git", *words], cwd=repo, capture_output=True, text=True, check=True, user=DAEMON, group=DAEMON,
                                         env={**os.environ, "HOME": "/nonexistent"}).stdout.split()
    assert git_("branch", "--list", "cove/*") == ["cove/shell"]
    for words, told in ((["--mount", str(roots)], f"doesn't belong to uid {DAEMON}"), (["--mount", str(repo)], "volumes.host"), (["--mount", "/"], "")):
        refused = shell(*words, "--name", "other", ".", "--", "-c", "true")
        assert refused.returncode != 0 and told in refused.stderr, refused
    read_only = shell("--mount", f"{mine}:ro", "--name", "ro", ".", "--", "-c", f"cat {mine}/note; echo x > {mine}/x")
    assert read_only.stdout == "note\n" and not (mine / "x").exists(), read_only
    for name in ("shell", "ro"):
        assert as_user(service, DAEMON, "env", "abort", name, groups=[GROUP], cwd=repo).returncode == 0
    for volume in as_user(service, DAEMON, "volume", "ls", "-q", groups=[GROUP]).stdout.split():
        assert as_user(service, DAEMON, "volume", "rm", volume, groups=[GROUP]).returncode == 0


def test_a_directory_of_nobody_with_an_account(service, repo):
    nameless = service.allowed / "nameless"
    nameless.mkdir()
    for path in (nameless, repo):
        subprocess.run(["chown", "-R", "4001:4001", path], check=True)
    refused = as_user(service, 4001, "shell", "--mount", str(nameless), ".", "--", "-c", "true", groups=[GROUP], cwd=repo)
    assert refused.returncode != 0 and "uid 4001 has no account" in refused.stderr, refused
