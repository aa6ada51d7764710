# SPDX-License-Identifier: Apache-2.0
"""cove agent, shell and attach: kits, what a repository may ask for, the terminal, what comes back. The agents themselves: tests/network."""

import json
import os
import subprocess

import pytest
from env_test import git
from leaks import own_service
from service import BUILD, wait_until
from terminal import Terminal

KIT = "summary: a stand-in\ncommand: [sh, -c, '{script}', agent]\nallow: [a.test]\nenv: {{WORD: said}}\ncredentials:\n  MODEL_KEY: {{hosts: ['api.test:9443'], stand_in: sk-}}\ncaches: {{things: /home/user/things}}\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    kits = tmp_path_factory.mktemp("kits")
    script = 'echo "$WORD $MODEL_KEY $*"; echo new > new; git add new; git commit -q -m new; echo left > left; pwd'
    (kits / "fake.yaml").write_text(KIT.format(script=script))
    (kits / "sh.yaml").write_text("summary: one that waits\ncommand: [sh, -i]\n")
    (kits / "broken.yaml").write_text("summary: x\nmounts: [/]\n")
    with own_service("agent") as service:
        service.env["COVE_KITS"] = str(kits)
        service.kits = kits
        yield service


@pytest.fixture
def repo(service, tmp_path):
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q", "-b", "main", ".")
    (path / "README").write_text("one\n")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    yield path
    service.remove_all()
    for name in service.cove("volume", "ls", "-q").stdout.split():
        service.cove("volume", "rm", name)
    assert not list((path / ".git").glob("cove-in-*"))


def agent(service, repo, *arguments, status=0, **options):
    done = service.cove("agent", *arguments, cwd=repo, **options)
    assert status is None or done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def test_from_a_kit_to_a_review(service, repo):
    (repo / "loose").write_text("not committed\n")
    service.env["MODEL_KEY"] = "the-real-key"
    try:
        done = agent(service, repo, "fake", "--allow", "@npm", "--", "one", "two")
    finally:
        del service.env["MODEL_KEY"]
    word, stand_in, *rest = done.stdout.split("\n")[0].split()
    assert (word, rest) == ("said", ["one", "two"]) and stand_in.startswith("sk-") and done.stdout.split("\n")[1] == str(repo)
    assert "the-real-key" not in done.stdout + done.stderr
    for text in ("of the last commit: changes to 1 file stay out", "2 files changed", "1 commit\n", "cove env diff fake", "exit code 0"):
        assert text in done.stderr, done.stderr
    assert git(repo, "log", "-1", "--format=%s", "cove/fake") == "new" and not (repo / "new").exists()
    one = service.sandboxes()[0]["id"]
    policy = json.loads(service.cove("policy", "show", one, "--json").stdout)
    assert policy["default"] == "deny" and {"allow": "a.test"} in policy["rules"]
    assert [r["allow"] for r in policy["rules"]][:2] == [h for p in json.loads(service.cove("policy", "presets", "--json").stdout) if p["name"] == "@npm" for h in p["hosts"]]
    assert policy["inject"] == [{"host": "api.test", "ports": [9443], "placeholders": [{"sentinel": stand_in, "secret": "agent.MODEL_KEY"}]}]
    # The same name goes on in the same copy; a word that only a new one could follow is refused.
    told = json.loads(agent(service, repo, "fake", "--json", status=0).stdout)
    assert told["environment"] == "fake" and told["sandbox"] == one and told["status"] == 0 and told["commits"] == 1
    command, ours = told["commands"]
    assert ours["tag"] == "cove-env"
    assert command["argv"][0] == "sh" and command["exit_code"] == 0 and command["grade"] == "claimed" and len(told["hash"]) == 64
    assert "keeps what it was made with" in agent(service, repo, "fake", "--allow", "b.test", status=125).stderr
    assert service.cove("secret", "rm", "agent.MODEL_KEY").returncode == 0


def test_a_key_from_the_vault(service, repo):
    assert service.cove("secret", "set", "MODEL_KEY", input="the-real-key\n").returncode == 0
    try:
        done = agent(service, repo, "fake")
        stand_in = done.stdout.split()[1]
        policy = json.loads(service.cove("policy", "show", service.sandboxes()[0]["id"], "--json").stdout)
    finally:
        assert service.cove("secret", "rm", "MODEL_KEY").returncode == 0
    assert stand_in.startswith("sk-") and "the-real-key" not in done.stdout + done.stderr
    assert policy["inject"][0]["placeholders"] == [{"sentinel": stand_in, "secret": "MODEL_KEY"}], policy


def test_the_operators_kit_replaces_the_one_that_comes_along(service, repo, tmp_path):
    (tmp_path / "etc/cove/kits").mkdir(parents=True)
    (tmp_path / "etc/cove/kits/fake.yaml").write_text("summary: the operator's\ncommand: [echo, operator]\n")
    in_etc = lambda *words: subprocess.run(["unshare", "-m", "sh", "-c", f"mount -t overlay -o lowerdir={tmp_path}/etc:/etc none /etc && exec \"$@\"", "sh", BUILD / "cove", *words],
                                           cwd=repo, env={**os.environ, **service.env}, capture_output=True, text=True, timeout=100, check=False)
    assert "fake    the operator's" in in_etc("agent", "--list").stdout and "fake    a stand-in" in service.cove("agent", "--list").stdout
    assert in_etc("agent", "fake", "--", "word").stdout == "operator word\n"


def test_the_first_start_builds_the_template(service, repo, tmp_path):
    (tmp_path / "recipes/recipe").mkdir(parents=True)
    (tmp_path / "recipes/recipe/Dockerfile").write_text("FROM base\nRUN echo made > /made\n")
    (tmp_path / "recipes/recipe/recipe").write_text("version: 1\nsummary: x\n")
    (service.kits / "built.yaml").write_text("summary: x\ntemplate: recipe\ncommand: [cat, /made]\ncredentials: {MODEL_KEY: {hosts: [api.test]}}\n")
    env = {"COVE_TEMPLATES": str(tmp_path / "recipes")}
    first, second = (agent(service, repo, "built", "--name", name, status=None, env=env) for name in ("one", "two"))
    (service.kits / "built.yaml").unlink()
    assert first.stdout == second.stdout == "made\n"
    assert "the template recipe is built first" in first.stderr and "RUN echo made" in first.stderr and "built first" not in second.stderr, first
    assert 0 <= first.stderr.find("the agent has no key") < first.stderr.find("is built first"), first # said before what takes minutes
    assert "cove secret set MODEL_KEY" in first.stderr, first


def test_a_snapshot_is_no_template_of_a_kit(service, repo):
    """Whoever works in a sandbox, by MCP, may give a snapshot any name that is free."""
    (service.kits / "planted.yaml").write_text("summary: x\ntemplate: planted\ncommand: ['true']\n")
    assert service.cove("run", "--keep", "true").returncode == 0
    box = service.sandboxes()[0]["id"]
    assert service.cove("snapshot", box, "planted").returncode == 0
    refused = agent(service, repo, "planted", status=125)
    assert "planted is a snapshot" in refused.stderr, refused
    agent(service, repo, "planted", "--template", "planted")
    (service.kits / "planted.yaml").unlink()
    service.remove_all()
    assert service.cove("snapshot", "rm", "planted").returncode == 0


def test_a_submodules_filters_do_not_run_here(service, repo, tmp_path):
    out = tmp_path / "ran-here"
    sub = repo / "sub"
    sub.mkdir()
    git(sub, "init", "-q", ".")
    (sub / "f").write_text("1\n")
    (sub / ".gitattributes").write_text("* filter=evil\n")
    git(sub, "add", ".")
    git(sub, "commit", "-q", "-m", "sub")
    (repo / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n')
    git(repo, "add", "sub", ".gitmodules")
    git(repo, "commit", "-q", "-m", "a submodule")
    git(sub, "config", "filter.evil.clean", f"touch '{out}'; cat")
    (sub / "f").write_text("2\n")
    agent(service, repo, "fake")
    assert not out.exists()


def test_caches_are_of_one_repository(service, repo, tmp_path):
    other = tmp_path / "other"
    subprocess.run(["git", "clone", "-q", repo, other], check=True)
    agent(service, repo, "fake", "--name", "a")
    agent(service, repo, "fake", "--name", "b")
    agent(service, other, "fake", "--name", "c")
    volumes = service.cove("volume", "ls", "-q").stdout.split()
    assert len(volumes) == 2 and all(v.startswith("cache-things-") for v in volumes)
    run = lambda where, name, script: service.cove("env", "run", name, "--", "sh", "-c", script, cwd=where).stdout
    assert run(repo, "a", "echo kept > ~/things/x") == "" and run(repo, "b", "cat ~/things/x") == "kept\n" and run(other, "c", "ls ~/things") == ""


def test_what_is_no_kit_or_no_operand(service, repo):
    assert "there is no kit none" in agent(service, repo, "none", status=125).stderr
    assert "mounts" in agent(service, repo, "broken", status=125).stderr
    assert "not the name of a kit" in agent(service, repo, "../fake", "--name", "x", status=125).stderr
    assert "volumes.host" in agent(service, repo, "fake", "--mount", str(repo), status=125).stderr
    assert "volumes.host" in agent(service, repo, "fake", "--template", "none-such", "--mount", str(repo), status=125).stderr # before it is built
    assert "--mount PATH:copy gives" in agent(service, repo, "fake", "--mount", str(repo), status=125).stderr
    missing, file = str(repo / "missing"), str(repo / "README") # told before a template is looked for
    for mount in (missing, f"{missing}:ro", f"{missing}:copy"):
        assert f"--mount {missing}: No such file" in agent(service, repo, "fake", "--template", "none-such", "--mount", mount, status=125).stderr
    assert f"{file}:copy" in agent(service, repo, "fake", "--template", "none-such", "--mount", file, status=125).stderr
    assert "one operand too many" in agent(service, repo, "fake", ".", "more", status=2).stderr
    assert "which agent" in agent(service, repo, status=2).stderr
    assert "fake    a stand-in" in agent(service, repo, "--list").stdout
    assert {k["name"] for k in json.loads(agent(service, repo, "--list", "--json").stdout)} == {"fake", "sh", "broken"}
    assert service.sandboxes() == [] and git(repo, "for-each-ref", "refs/cove/") == ""


WIDER = {"allow: [evil.test]": "connect to evil.test", "credentials: {MODEL_KEY: {hosts: [evil.test]}}": "MODEL_KEY at [\"evil.test\"]",
         "caches: {all: /home/user/all}": "share between environments the directory /home/user/all"}


@pytest.mark.parametrize("wish", WIDER)
def test_a_repository_gets_no_more_than_a_person_gives(service, repo, wish):
    (repo / ".cove/kits").mkdir(parents=True)
    (repo / ".cove/kits/fake.yaml").write_text("env: {WORD: theirs}\nsetup: ['echo set > up']\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "a kit")
    assert agent(service, repo, "fake", "--name", "narrow").stdout.startswith("theirs ")
    (repo / ".cove/kits/fake.yaml").write_text(wish + "\n")
    git(repo, "commit", "-q", "-am", "a wish")
    refused = agent(service, repo, "fake", "--name", "wide", status=125)
    assert WIDER[wish] in refused.stderr and "--trust-repository" in refused.stderr and len(service.sandboxes()) == 1
    terminal = Terminal(service, "agent", "fake", "--name", "wide", "--from", git(repo, "rev-parse", "HEAD"), str(repo))
    terminal.expect(b"Allow it? [y/N] ")
    terminal.send(b"n\n")
    seen, status = terminal.rest()
    assert status == 125 and b"not allowed" in seen and len(service.sandboxes()) == 1
    agent(service, repo, "fake", "--name", "wide", "--trust-repository")
    assert len(service.sandboxes()) == 2


def test_settings_of_the_repository_are_asked_about_too(service, repo):
    (repo / ".cove").mkdir()
    (repo / ".cove/env.yaml").write_text("allow: [evil.test]\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "settings")
    assert "connect to evil.test" in agent(service, repo, "sh", status=125, input="exit\n").stderr and service.sandboxes() == []
    agent(service, repo, "sh", "--trust-repository", input="exit\n")


def test_a_copy_to_read(service, repo, tmp_path):
    more = tmp_path / "more things"
    more.mkdir()
    (more / "tool").write_text("#!/bin/sh\necho tool\n")
    (more / "tool").chmod(0o755)
    done = agent(service, repo, "sh", "--mount", f"{more}:copy", input=f"'{more}/tool'; echo x > '{more}/tool' || echo refused; rm -r '{more}' || echo kept\n", status=None)
    assert done.stdout.split() == ["tool", "refused", "kept"]


def test_left_alone_and_come_back_to(service, repo):
    terminal = Terminal(service, "agent", "sh", "--name", "one", str(repo))
    terminal.send(b"(while sleep 1; do echo be''at; done) & echo fi''rst; cat\n")
    terminal.expect(b"first")
    terminal.send(b"\x10\x11")
    terminal.expect(b"'cove attach one' comes back")
    assert terminal.end() == (0, True)
    assert "already running in one" in agent(service, repo, "sh", "--name", "one", status=125, input="").stderr
    service.kill_coved()
    assert "needs a terminal" in service.cove("attach", "one", cwd=repo, input="").stderr
    one = service.sandboxes()[0]["id"]
    again = Terminal(service, "attach", one) # from wherever
    again.expect(b"beat") # it is connected, and no longer a terminal that echoes
    again.send(b"typed\x10\x10here\n")
    again.expect(b"here")
    again.send(b"\x04")
    again.send(b"kill %1; echo by > by''e; exit 7\n")
    seen, status = again.rest()
    assert status == 7 and b"1 file changed" in seen and b"cove env diff one" in seen
    assert "no agent is running" in service.cove("attach", "one", cwd=repo, input="").stderr
    assert "there is no sandbox" in service.cove("attach", "nothing", cwd=repo).stderr


def test_its_worker_starts_anew(service, repo):
    terminal = Terminal(service, "agent", "sh", "--name", "two", str(repo))
    terminal.send(b"(while sleep 1; do echo be''at; done) & echo fi''rst\n")
    terminal.expect(b"first")
    os.kill(service.child("cove-api"), 9)
    terminal.expect(b"cove attach two")
    assert terminal.end()[0] == 125 and wait_until(lambda: service.cove("ls").returncode == 0)
    one = service.sandboxes()[0]["id"]
    again = Terminal(service, "attach", one)
    again.expect(b"beat")
    again.send(b"kill %1; echo sec''ond; exit 0\n")
    again.expect(b"second")
    assert again.rest()[1] == 0


def test_a_shell(service, repo):
    (service.kits / "shell.yaml").write_text((BUILD.parent / "kits/shell.yaml").read_text())
    done = service.cove("shell", str(repo), "--", "-c", "pwd; echo x > x")
    assert done.stdout == f"{repo}\n" and "cove env diff shell" in done.stderr
    assert "works on a Git" not in done.stderr and service.cove("shell", "/").returncode == 125
    done = service.cove("shell", str(repo), "--", "sh", "-c", 'echo "$1"; exit 3', "sh", "a  b")
    assert (done.returncode, done.stdout) == (3, "a  b\n"), done
    (repo / "below").mkdir()
    (repo / "below/file").write_text("x")
    assert service.cove("shell", "--", "pwd", cwd=repo / "below").stdout == f"{repo}\n", "it is not in the commit"
    subprocess.run(["git", "-C", repo, "add", "-A"], check=True)
    subprocess.run(["git", "-C", repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "below"], check=True)
    assert service.cove("shell", "--name", "later", "--", "pwd", cwd=repo / "below").stdout == f"{repo}/below\n"
