# SPDX-License-Identifier: Apache-2.0
"""cove env: copies of a repository in sandboxes, and what comes back of them."""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest
from leaks import own_service
from service import wait_until
from terminal import Terminal

MARK = "ran-here"


@pytest.fixture(scope="module")
def service():
    with own_service("env") as service:
        yield service


def git(repo, *arguments, check=True, **more):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=Here", "-c", "user.email=here@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=repo, capture_output=True, text=True, env=env, check=False, **more)
    assert not check or done.returncode == 0, (arguments, done.stderr)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A repository with two commits, to be copied."""
    path = tmp_path_factory.mktemp("first")
    git(path, "init", "-q", "-b", "main", ".")
    git(path, "config", "user.name", "Person")
    git(path, "config", "user.email", "person@example.org")
    (path / "README").write_text("one\n")
    (path / "src").mkdir()
    (path / "src" / "f").write_text("f\n" * 50)
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    (path / "README").write_text("two\n")
    git(path, "commit", "-q", "-a", "-m", "second")
    return path


@pytest.fixture
def repo(service, first, tmp_path):
    path = tmp_path / "a repository"
    shutil.copytree(first, path)
    git(path, "update-index", "-q", "--refresh")
    yield path
    service.remove_all()
    assert not list((path / ".git").glob("cove-in-*"))


def env(service, repo, *arguments, status=0):
    done = service.cove("env", "--repo", repo, *arguments)
    assert status is None or done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def inside(service, repo, name, script, status=0):
    return env(service, repo, "run", name, "--", "sh", "-c", script, status=status)


def test_services_are_there_before_its_setup_and_in_forks(service, repo):
    (repo / ".cove").mkdir()
    served = "services: {db: {template: base, command: 'cd /tmp; echo $WORD >page; exec python3 -m http.server 5432', env: {WORD: said}, ports: [5432], ready: test -s /tmp/page}}\n"
    (repo / ".cove/env.yaml").write_text(served + "setup: ['curl -s http://db:5432/page >set-up']\nchecks: ['curl -s --retry 9 --retry-connrefused http://db:5432/page']\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "served")
    env(service, repo, "create", "fix")
    assert inside(service, repo, "fix", "cat set-up").stdout == "said\n" and "service db: running" in env(service, repo, "status", "fix").stdout
    assert [s["state"] for s in json.loads(env(service, repo, "status", "fix", "--json").stdout)["services"]] == ["running"]
    inside(service, repo, "fix", "git add -A; git commit -qm more")
    proposal = json.loads(env(service, repo, "propose", "fix", "--json").stdout)
    assert [one["exit_code"] for one in proposal["checks"]] == [0], proposal["checks"]
    for wrong in ("services: [db]\n", "services: {db: base}\n", "services: {db: {image: base, ports: x}}\n", "services: {db: {template: base, command: exit 3, ports: [1]}}\n"):
        (repo / ".cove/env.yaml").write_text(wrong)
        git(repo, "commit", "-q", "-a", "-m", "wrong")
        assert env(service, repo, "create", "wrong", status=1).stderr and "wrong" not in env(service, repo, "list").stdout


def test_from_a_copy_to_a_merge(service, repo):
    git(repo, "config", "user.name", who := 'A "B" \\ C; #')
    env(service, repo, "create", "fix")
    assert inside(service, repo, "fix", "pwd; git log --format=%s; git status --short").stdout == f"{repo}\nsecond\nfirst\n"
    inside(service, repo, "fix", "echo three > README; echo new > new; git stash -q -u; git stash pop -q; git worktree list > /dev/null")
    assert (repo / "README").read_text() == "two\n" and git(repo, "rev-parse", "cove/fix") == git(repo, "rev-parse", "main")
    assert "README" in env(service, repo, "diff", "fix", "--stat").stdout and "+three" in env(service, repo, "diff", "fix").stdout
    assert "'cove env commit fix'" in env(service, repo, "apply", "fix", status=1).stderr
    assert "not committed" in env(service, repo, "rm", "fix", status=1).stderr
    env(service, repo, "commit", "fix", "-m", "third")
    assert git(repo, "log", "-1", "--format=%s by %an", "cove/fix") == f"third by {who}"
    for _ in range(4): # a person looks, and no agent is stuck
        env(service, repo, "diff", "fix")
    assert "stuck" not in service.cove("ls").stdout
    assert "third" in env(service, repo, "log", "fix").stdout and "1 commit on" in env(service, repo, "status", "fix").stdout
    assert [line.split()[0::3] for line in env(service, repo, "list").stdout.splitlines()[1:]] == [["fix", "1"]]
    assert env(service, repo, "ls").stdout == env(service, repo, "list").stdout
    assert "there is no action 'lst': create" in env(service, repo, "lst", status=2).stderr
    # The host went on.
    (repo / "other").write_text("here\n")
    git(repo, "add", "other")
    git(repo, "commit", "-q", "-m", "here")
    env(service, repo, "rebase", "fix")
    assert git(repo, "log", "--format=%s", "cove/fix").split() == ["third", "here", "second", "first"]
    assert env(service, repo, "apply", "fix").stdout == "fix is applied\n"
    assert (repo / "README").read_text() == "three\n" and git(repo, "rev-parse", "main") == git(repo, "rev-parse", "cove/fix")
    # What was rebased came out of the environment, what it was rebased onto didn't.
    why = lambda what: service.cove("why", "--repo", repo, what).stdout
    assert "names this commit" in why("README:1") and "no environment" in why("other:1")
    assert inside(service, repo, "fix", "exit 7", status=7)
    assert env(service, repo, "exec", "fix", "--", "pwd").stdout == f"{repo}\n"
    assert env(service, repo, "delete", "fix").stdout == "fix is removed\n"
    assert service.sandboxes() == [] and git(repo, "branch", "--list", "cove/*")
    assert git(repo, "for-each-ref", "refs/cove/") == "" and git(repo, "fsck", "--strict", "--no-dangling") == ""


def test_an_older_commit_a_shell_and_a_rebase_inside(service, repo):
    env(service, repo, "create", "old", "--from", "main~1")
    packed = [json.loads(line) for line in service.cove("log", "--json", service.sandboxes()[0]["id"]).stdout.splitlines()]
    assert "exec.input" not in [event["kind"] for event in packed] # however large it is, the copy is two events
    assert [event["data"]["path"].rsplit("/", 1)[1] for event in packed if event["kind"] == "file.write"][:2] == ["new.pack", "new.idx"]
    packs = "cd .git/objects/pack; stat -c '%a %s' *.pack > /tmp/p; ls; git verify-pack *.pack && git fsck --strict"
    assert inside(service, repo, "old", packs).stdout.count("pack-") == 2
    assert inside(service, repo, "old", "git log --format=%s; cat README").stdout == "first\none\n"
    assert "not a terminal" in env(service, repo, "shell", "old", status=2).stderr
    terminal = Terminal(service, "env", "--repo", repo, "shell", "old")
    terminal.expect(b"$ ")
    terminal.send(b"echo a > a; git add a; git commit -q -m in-a-shell; pwd; exit 7\n")
    shown, status = terminal.rest()
    assert status == 7 and str(repo).encode() in shown and git(repo, "log", "-1", "--format=%s", "cove/old") == "in-a-shell"
    inside(service, repo, "old", "git checkout -q -b side HEAD~1; echo s > s; git add s; git commit -q -m side; git rebase -q cove/old; "
                                 "git checkout -q cove/old; git merge -q side; git worktree add -q /tmp/other; git worktree list")
    assert git(repo, "log", "--format=%s", "cove/old").split() == ["side", "in-a-shell", "first"]
    env(service, repo, "abort", "old")


def test_as_a_patch_squashed_or_not_at_all(service, repo):
    env(service, repo, "create", "a", "--shallow")
    assert inside(service, repo, "a", "git log --format=%s").stdout == "second\n"
    inside(service, repo, "a", "echo a > README; printf '\\000\\001' > binary; git add .; git commit -q -m a; echo b > b")
    env(service, repo, "create", "b")
    inside(service, repo, "b", "echo b > README; git commit -q -am b")
    assert "-a\n+b\n" in env(service, repo, "compare", "a", "b").stdout
    env(service, repo, "apply", "a", "--patch")
    assert (repo / "b").exists() and (repo / "binary").read_bytes() == b"\0\1" and git(repo, "rev-list", "--count", "main") == "2"
    git(repo, "reset", "-q", "--hard")
    git(repo, "clean", "-fdq")
    env(service, repo, "apply", "b", "--squash")
    assert git(repo, "diff", "--cached", "--name-only") == "README"
    git(repo, "commit", "-q", "-m", "squashed")
    for how in ((), ("--squash",)):
        refused = env(service, repo, "apply", "a", *how, status=1).stderr
        assert "both changed README\n" in refused and "rebase a" in refused
        assert git(repo, "status", "--short") == "" and (repo / "README").read_text() == "b\n"
    # The person's own merge isn't undone, resolved or not; nor is what they have staged.
    git(repo, "branch", "side", "HEAD~1")
    git(repo, "worktree", "add", "-q", repo.parent / "side", "side")
    (repo.parent / "side/README").write_text("side\n")
    git(repo.parent / "side", "commit", "-q", "-a", "-m", "side")
    git(repo, "merge", "side", check=False)
    assert "not finished" in env(service, repo, "apply", "a", status=1).stderr and git(repo, "status", "--short") == "UU README"
    (repo / "README").write_text("mine\n")
    git(repo, "add", "README")
    assert "not concluded" in env(service, repo, "apply", "a", status=1).stderr and git(repo, "status", "--short") == "M  README"
    git(repo, "merge", "--quit")
    assert "overwritten" in env(service, repo, "apply", "a", "--squash", status=1).stderr and git(repo, "status", "--short") == "M  README"
    git(repo, "reset", "-q", "--hard")
    git(repo, "checkout", "-q", "cove/a")
    assert "checked out at " in env(service, repo, "abort", "a", status=1).stderr and git(repo, "rev-parse", "HEAD") == git(repo, "rev-parse", "cove/a")
    git(repo, "checkout", "-q", "main")
    env(service, repo, "abort", "a")
    env(service, repo, "abort", "b")
    assert "no environment b" in env(service, repo, "abort", "b", status=1).stderr
    assert git(repo, "branch", "--list", "cove/*") == "" and service.sandboxes() == []


def test_commits_of_the_persons_own_are_not_written_over(service, repo):
    env(service, repo, "create", "mine")
    for base in ("", "echo a > a; git add a; git commit -q -m a"): # of which nothing was received yet, or something
        inside(service, repo, "mine", base or "true")
        received = git(repo, "rev-parse", "cove/mine")
        own = git(repo, "commit-tree", "-p", "cove/mine", "-m", "own", "cove/mine^{tree}")
        git(repo, "branch", "-f", "cove/mine", own)
        for arguments in (["diff", "mine"], ["rm", "mine"], ["apply", "mine"]):
            refused = env(service, repo, *arguments, status=1).stderr
            assert "didn't come from the environment" in refused and git(repo, "rev-parse", "cove/mine") == own, refused
        kept = refused.splitlines()[-1].split("'")[1]
        subprocess.run(kept, shell=True, cwd=repo, check=True)
        assert git(repo, "rev-parse", "mine") == own and git(repo, "rev-parse", "cove/mine") == received
        git(repo, "branch", "-D", "mine")
    inside(service, repo, "mine", "git commit -q --amend -m other") # what was rewritten inside is so here
    assert git(repo, "log", "--format=%s", "cove/mine").split() == ["other", "second", "first"]
    env(service, repo, "abort", "mine")


def test_settings_are_those_of_the_commit(service, repo):
    (repo / ".cove").mkdir()
    (repo / ".cove/env.yaml").write_text("setup: ['echo ready > set-up', 'test \"$WORD\" = said']\nenv: {WORD: said}\nallow: [example.org]\n"
                                         "profiles: {other: {env: {WORD: other}}}\n")
    env(service, repo, "create", "before")
    assert inside(service, repo, "before", "ls set-up", status=2)
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "settings")
    env(service, repo, "create", "with")
    assert inside(service, repo, "with", "cat set-up").stdout == "ready\n"
    assert "ended with 1" in env(service, repo, "create", "other", "--profile", "other", status=1).stderr
    assert "no such profile" in env(service, repo, "create", "third", "--profile", "third", status=1).stderr
    (repo / ".cove/env.yaml").write_text("secrets: {KEY: [example.org]}\n")
    git(repo, "commit", "-q", "-a", "-m", "wrong")
    assert "secrets" in env(service, repo, "create", "wrong", status=1).stderr
    assert len(service.sandboxes()) == 2 and git(repo, "branch", "--list", "cove/wrong", "cove/other") == ""


def test_an_agents_commit_is_no_persons_word(service, repo):
    """Who works in an environment may begin another one with what was committed there, by MCP. Nothing that HEAD has not is taken for reviewed."""
    env(service, repo, "create", "first")
    inside(service, repo, "first", "mkdir -p .cove .github/workflows; printf 'allow: [example.org]\\nchecks: []\\n' > .cove/env.yaml; echo x > "
                                   ".github/workflows/x.yml; "
                                   "git add .; git commit -q -m 'opens all'")
    policy = lambda made: json.loads(service.cove("policy", "show", json.loads(made.stdout)["sandbox"], "--json").stdout)
    made = env(service, repo, "create", "second", "--from", "cove/first", "--json")
    assert "stay closed" in made.stderr and policy(made)["default"] == "deny" and policy(made)["rules"] == []
    inside(service, repo, "second", "echo more >> README; git commit -q -am more")
    shown = env(service, repo, "diff", "second")
    assert "+more" in shown.stdout and "+allow: [example.org]" in shown.stdout and ".github/workflows/x.yml (CI)" in shown.stderr
    assert "opens all" in env(service, repo, "log", "second").stdout
    assert ".github/workflows/x.yml (CI)" in env(service, repo, "propose", "second").stdout
    assert ".github/workflows/x.yml (CI)" in env(service, repo, "apply", "second").stderr and (repo / ".github/workflows/x.yml").exists()
    opened = env(service, repo, "create", "third", "--json") # now it is the person's
    assert [rule["allow"] for rule in policy(opened)["rules"]] == ["example.org"] and "stay closed" not in opened.stderr


def test_what_nobody_looked_at_is_not_applied(service, repo):
    """A process that goes on inside waits for the review."""
    env(service, repo, "create", "late")
    inside(service, repo, "late", "echo good >> README; git commit -q -am good")
    assert "+good" in env(service, repo, "diff", "late").stdout
    box = service.sandboxes()[0]["id"]
    more = lambda line: service.cove("exec", "-w", repo, box, "--", "sh", "-c", line)
    assert more("echo evil >> README; git commit -q -am evil").returncode == 0
    refused = env(service, repo, "apply", "late", status=1)
    assert "has changed since" in refused.stderr and (repo / "README").read_text() == "two\n"
    assert "+evil" in env(service, repo, "diff", "late").stdout
    assert more("echo worse >> README").returncode == 0
    assert "has changed since" in env(service, repo, "apply", "late", "--patch", status=1).stderr and (repo / "README").read_text() == "two\n"
    env(service, repo, "apply", "late")
    assert (repo / "README").read_text() == "two\ngood\nevil\n"


def test_what_a_repository_says_moves_no_cursor(service, repo):
    (repo / ".cove").mkdir()
    (repo / ".cove/env.yaml").write_text('setup: ["true # \\e]0;owned\\a"]\nchecks: ["true # \\u202e\\e[2J"]\n')
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "settings")
    seen, status = Terminal(service, "env", "--repo", repo, "create", "loud").rest()
    assert status == 0 and b"setup: true # " in seen and b"owned" in seen, seen
    inside(service, repo, "loud", "echo more >> README; git commit -q -am more")
    proposed, status = Terminal(service, "env", "--repo", repo, "propose", "loud").rest()
    assert status == 0 and b"check: true # " in proposed, proposed
    for bad in (b"\x1b]", b"\x1b[2J", b"\x07", "\u202e".encode()):
        assert bad not in seen + proposed, (bad, seen, proposed)


@pytest.mark.parametrize("link", ["/proc/version", "../../../../../../../../proc/version"])
def test_a_devcontainers_file_is_none_of_here(service, repo, link):
    """A complaint about a line would tell of it."""
    (repo / "Dockerfile").symlink_to(link)
    (repo / ".devcontainer.json").write_text('{"build": {"dockerfile": "Dockerfile"}}')
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "a link")
    refused = env(service, repo, "create", "dev", status=1)
    assert "no such file" in refused.stderr and "Linux" not in refused.stderr and "LINUX" not in refused.stderr, refused


def test_a_devcontainer(service, repo):
    place = repo / ".devcontainer"
    place.mkdir()
    (place / "Dockerfile").write_text("FROM base\nARG WORD=none\nCOPY tool /usr/local/bin/tool\nRUN chmod +x /usr/local/bin/tool && echo $WORD > /etc/word\n")
    (place / "tool").write_text("#!/bin/sh\necho tool $(cat /etc/word) $A\n")
    (place / "devcontainer.json").write_text('// ours\n{"name": "x", "build": {"dockerfile": "Dockerfile", "args": {"WORD": "said",}}, "features": {},\n'
                                             '"containerEnv": {"A": "${containerWorkspaceFolder}"}, "forwardPorts": [3000], "remoteUser": "root",\n'
                                             '"postCreateCommand": {"one": "tool > made", "two": ["touch", "it\'s"]}}')
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "a devcontainer")
    made = env(service, repo, "create", "dev")
    assert "is built first" in made.stderr and "port 3000" in made.stderr, made.stderr
    said = f"root\ntool said {repo}\nit's\n?? \"it's\"\n?? made\n".replace('"', "")
    assert inside(service, repo, "dev", "id -un; cat made; ls \"it's\"; git status --short").stdout == said
    assert "is built" not in env(service, repo, "create", "again").stderr
    for name in ("dev", "again"):
        env(service, repo, "abort", name)
    (place / "devcontainer.json").write_text('{"image": "x", "features": {"ghcr.io/devcontainers/features/go:1": {}}}')
    git(repo, "commit", "-q", "-a", "-m", "features")
    assert "ghcr.io/devcontainers/features/go:1 is not installed" in env(service, repo, "create", "dev", status=1).stderr and service.sandboxes() == []
    for wrong, said in (('"image": "e2bdev/base", "remoteUser": "vscode"', "no account vscode to work as\n"), ('"build": {"dockerfile": "../x"}',
                                                                                                               "below the build's context\n")):
        (place / "devcontainer.json").write_text("{" + wrong + "}")
        git(repo, "commit", "-q", "-a", "-m", "wrong")
        assert env(service, repo, "create", "dev", status=1).stderr.endswith(said) and service.sandboxes() == []
    (place / "devcontainer.json").write_text('{"image": "e2bdev/base", "containerEnv": {"A": "b"}}')
    git(repo, "commit", "-q", "-a", "-m", "an image")
    env(service, repo, "create", "image")
    assert inside(service, repo, "image", "echo $A").stdout == "b\n"
    env(service, repo, "abort", "image")
    for template in json.loads(service.cove("template", "ls", "--json").stdout):
        if template["name"].startswith("devcontainer-"):
            service.cove("template", "rm", template["name"])


TREE = "git update-ref HEAD $(git commit-tree -p HEAD -m x $(git hash-object -t tree -w --literally --stdin < tree)); git symbolic-ref HEAD > /dev/null"
ENTRY = ("b=$(git hash-object -w README); "
         "python3 -c \"import sys; sys.stdout.buffer.write(b'%s\\0' + bytes.fromhex('$b'))\" > /tmp/tree && cd . && cp /tmp/tree tree; ")
LINK = "ln -s '%s' link; git add link; git commit -q -m link"
REFUSED = {
    "gitlink": "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -q -m sub",
    "gitmodules": "printf '[submodule \"s\"]\\n\\tpath = s\\n\\turl = ext::touch " + MARK + "\\n' > .gitmodules; git add .; git commit -q -m m",
    "gitmodules as a link": ENTRY % "120000 .gitmodules" + TREE,
    "absolute link": LINK % "/etc/passwd",
    "link out": LINK % "src/../../out",
    "link out, over another one": "ln -s . here; ln -s here/here/../../out link; git add here link; git commit -q -m links",
    "link into .git": LINK % ".git/hooks",
    "link, then undone": LINK % "/etc" + "; git rm -q link; git commit -q -m undone",
    "link that is not committed": "ln -s /etc/passwd link",
    ".git in a tree": ENTRY % "100644 .git" + TREE,
    ".GIT in a tree": ENTRY % "100644 .GIT" + TREE,
    "git~1 in a tree": ENTRY % "100644 git~1" + TREE,
    ".. in a tree": ENTRY % "100644 .." + TREE,
    "slash in a tree": ENTRY % "100644 ../x" + TREE,
    "no commit": "git update-ref --no-deref HEAD $(git hash-object -w --stdin < README) 2> /dev/null || git symbolic-ref HEAD refs/heads/none",
    "git that lies": "mkdir -p ~/bin; printf '#!/bin/sh\\nhead -c 100000 /dev/urandom\\n' > /tmp/git; chmod +x /tmp/git; sudo -n cp /tmp/git "
                     "/usr/local/bin/git",
}


BLAMED = {"gitlink": "sub", "gitmodules": ".gitmodules", "absolute link": "link", "link out": "link", "link out, over another one": "link",
          "link into .git": "link", "link, then undone": "link",
          "link that is not committed": "link"}


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_refused_leaves_nothing_here(service, repo, how):
    env(service, repo, "create", "evil")
    inside(service, repo, "evil", "ln -s ../README src/good; echo good >> README; git add .; git commit -q -m good")
    before = git(repo, "for-each-ref"), git(repo, "count-objects", "-v").split("garbage")[0]
    done = inside(service, repo, "evil", REFUSED[how], status=None)
    assert done.returncode == 125, (done.returncode, done.stdout, done.stderr)
    assert (git(repo, "for-each-ref"), git(repo, "count-objects", "-v").split("garbage")[0]) == before
    sandbox = service.sandboxes()[0]["id"]
    told = [json.loads(line) for line in service.cove("log", "--json", sandbox).stdout.splitlines()]
    violations = [event["data"] for event in told if event["kind"] == "env.violation"]
    if how == "no commit":
        assert violations == []
    else:
        assert "refused: " in done.stderr, done.stderr
        assert len(violations) == 1 and violations[0]["environment"] == "evil" and violations[0]["reason"] in done.stderr.replace("\n", "\\x0a"), violations
        assert violations[0].get("path") == BLAMED.get(how), violations
        assert ("commit" in violations[0]) == (how != "git that lies")
        fed = service.cove("events", "--kind", "env.violation", "--json").stdout
        assert any(json.loads(line)["sandbox"] == sandbox for line in fed.splitlines()), fed
        assert "env.violation" in service.cove("log", sandbox).stdout
    assert git(repo, "fsck", "--strict", "--no-dangling") == "" and git(repo, "status", "--short") == ""
    env(service, repo, "abort", "evil")


# A git inside that gives this commit and this pack.
GIVES = ("printf '#!/bin/sh\\ncase \"$*\" in *pack-objects*) cat /tmp/pack;; *commit-tree*) cat /tmp/commit;; esac\\n' > /tmp/git; chmod +x /tmp/git; "
         "sudo -n cp /tmp/git /usr/local/bin/git")
TREES = """t=$(git mktree < /dev/null)
for i in $(seq 40); do t=$(printf '040000 tree %s\\ta\\n040000 tree %s\\tb\\n' $t $t | git mktree); done
c=$(git commit-tree -p HEAD -m x $t); git commit-tree -p $c -m 'not committed' $t > /tmp/commit
printf '%s\\n^%s\\n' $(cat /tmp/commit) $(git rev-parse HEAD) | git pack-objects -q --revs --stdout > /tmp/pack; """
DELTA = """git rev-parse HEAD > /tmp/commit; python3 - <<END
import hashlib, struct, zlib
def number(n, bits, first):
    out = [first | n & (1 << bits) - 1]
    n >>= bits
    while n:
        out[-1] |= 128
        out.append(n & 127)
        n >>= 7
    return bytes(out)
base = number(1, 4, 3 << 4) + zlib.compress(b"x")
delta = number(1, 7, 0) + number(%d, 7, 0) + b"\\x90\\1"
pack = b"PACK" + struct.pack(">II", 2, 2) + base + number(len(delta), 4, 6 << 4) + bytes([len(base)]) + zlib.compress(delta)
open("/tmp/pack", "wb").write(pack + hashlib.sha1(pack).digest())
END
"""


@pytest.mark.parametrize("how", ["trees", "delta"])
def test_a_pack_takes_no_end_of_time_nor_of_memory(service, repo, tmp_path, how):
    """2^40 directories in 40 trees, looked at for a second here; an object of most of this machine's memory in 60 bytes."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\ncase \" $* \" in *' log '*) exec prlimit --cpu=1:2 {shutil.which('git')} \"$@\";; esac\n"
                                      f"exec {shutil.which('git')} \"$@\"\n")
    (tmp_path / "bin/git").chmod(0o755)
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 * 3
    env(service, repo, "create", "evil")
    script = (TREES if how == "trees" else DELTA % most) + GIVES
    done = service.cove("env", "--repo", repo, "run", "evil", "--", "sh", "-c", script, env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert done.returncode and ("takes too long" if how == "trees" else "ut of memory") in done.stderr, done.stderr
    told = [json.loads(line) for line in service.cove("log", "--json", service.sandboxes()[0]["id"]).stdout.splitlines()]
    assert [e["data"]["reason"] for e in told if e["kind"] == "env.violation"][-1] in done.stderr
    env(service, repo, "abort", "evil")


RUNS = """
for h in pre-commit post-commit post-merge post-checkout reference-transaction pre-push
do printf '#!/bin/sh\\ntouch %(out)s\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done
git config core.fsmonitor 'touch %(out)s'; git config core.pager 'touch %(out)s'
git config diff.external 'touch %(out)s'; git config core.editor 'touch %(out)s'
git config filter.here.smudge 'touch %(out)s'; git config filter.here.clean 'touch %(out)s'
git config diff.here.textconv 'touch %(out)s'; git config alias.status '!touch %(out)s'
git config merge.here.driver 'touch %(out)s'; git config uploadpack.packObjectsHook 'touch %(out)s'
git config core.sshCommand 'touch %(out)s'; mkdir -p .git/info
echo '* filter=here diff=here merge=here' > .git/info/attributes; echo /proc/1/root > .git/objects/info/alternates; echo "$PWD" > .git/commondir.x
echo '* filter=here diff=here merge=here' > .gitattributes; echo changed > README
mkdir nested; cd nested; git init -q .; echo n > n; git add n; git commit -q -m n; cd ..
git -c core.fsmonitor=false -c core.hooksPath=/dev/null add .gitattributes README; git -c core.hooksPath=/dev/null -c core.fsmonitor=false commit -q -m runs
git replace HEAD HEAD^ 2> /dev/null; true
"""


def test_nothing_runs_here(service, repo, tmp_path):
    """Drivers of these names are configured here as well: attributes that came from inside must not reach them while Cove works, nor hooks of here."""
    out = tmp_path / MARK
    for key in ("filter.here.smudge", "filter.here.clean", "filter.here.process", "diff.here.textconv", "merge.here.driver", "core.fsmonitor", "diff.external"):
        git(repo, "config", key, f"touch '{out}'; cat")
    for hook in ("post-merge", "post-checkout", "reference-transaction", "post-index-change", "pre-merge-commit", "commit-msg", "prepare-commit-msg"):
        path = repo / ".git/hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch '{out}'\n")
        path.chmod(0o755)
    env(service, repo, "create", "runs")
    done = inside(service, repo, "runs", RUNS % {"out": out}, status=None)
    assert done.returncode == 0, done.stderr
    for arguments in (["status", "runs"], ["diff", "runs"], ["diff", "runs", "--stat"], ["log", "runs"], ["list"], ["apply", "runs", "--patch"]):
        env(service, repo, *arguments)
        assert not out.exists(), arguments
    assert "nested" not in env(service, repo, "diff", "runs", "--stat").stdout
    for key in ("filter.here.smudge", "filter.here.clean", "filter.here.process", "core.fsmonitor"):
        git(repo, "config", "--unset", key)
    git(repo, "-c", "core.hooksPath=/dev/null", "checkout", "-q", "-f", "main")
    git(repo, "-c", "core.hooksPath=/dev/null", "clean", "-fdq")
    for key in ("filter.here.smudge", "filter.here.clean", "filter.here.process", "core.fsmonitor"):
        git(repo, "config", key, f"touch '{out}'; cat")
    env(service, repo, "apply", "runs")
    assert not out.exists() and (repo / "README").read_text() == "changed\n"


@pytest.mark.parametrize("key", ["filter.a=b.smudge", "merge.a=b.driver", "hook.a=b.command"])
def test_what_can_not_be_switched_off_is_refused(service, repo, tmp_path, key):
    """For git -c, a key ends with the first '='."""
    out = tmp_path / MARK
    git(repo, "config", key, f"touch '{out}'; cat")
    refused = env(service, repo, "create", "equals", status=None)
    assert refused.returncode != 0 and key in refused.stderr and not out.exists(), refused


def test_what_git_complains_of_is_not_kept_without_end(service, repo, tmp_path):
    """Of a pack made for that it complains of each object, which are millions."""
    (tmp_path / "bin").mkdir()
    wrapper, size = tmp_path / "bin" / "git", tmp_path / "size"
    wrapper.write_text(f"""#!/bin/sh
for word; do [ "$word" != index-pack ] || {{ tr '\\0' w </dev/zero | head -c 1000000 >&2; stat -L -c %s /proc/$$/fd/2 >'{size}'; }}; done
exec {shutil.which("git")} "$@"
""")
    wrapper.chmod(0o755)
    env(service, repo, "create", "complains")
    done = service.cove("env", "--repo", repo, "run", "complains", "--", "sh", "-c", "echo three > README; git commit -qam third",
                        env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert done.returncode == 0 and "third" in env(service, repo, "log", "complains").stdout, done
    assert int(size.read_text()) <= 4096


def test_risky_places_are_named(service, repo):
    env(service, repo, "create", "risky")
    inside(service, repo, "risky", "mkdir -p .github/workflows .vscode .husky; echo x > .husky/pre-commit; echo x > package-lock.json; echo x > Cargo.lock; "
                                   "echo x > .github/workflows/x.yml; echo x > .vscode/tasks.json; echo x > Makefile; chmod +x README; "
           "mkdir .cargo .zed; echo x > .cargo/config.toml; echo x > .zed/tasks.json; echo x > Justfile; echo x > vite.config.mjs; echo x > "
           "sitecustomize.py; echo x > lefthook.yml; echo x > compose.yaml; "
           "ln -s README link; printf 'a \\342\\200\\256 b\\n' > hidden; printf 'x\\000y' > bytes; printf 'e\\033[31m' > \"$(printf 'na\\033me')\"")
    said = env(service, repo, "diff", "risky", "--stat").stderr
    for what in (".husky/pre-commit (a Git hook", "package-lock.json (which packages", "Cargo.lock (which packages", "look first: bytes (binary)",
                 ".github/workflows/x.yml (CI)", ".vscode/tasks.json (an editor", "Makefile (a build", ".cargo/config.toml (a build",
                 ".zed/tasks.json (an editor", "Justfile (a build", "vite.config.mjs (a build", "sitecustomize.py (each Python", "lefthook.yml (a Git hook",
                 "compose.yaml (what it starts", "README (became executable)", "link (a link)", "hidden (characters"):
        assert what in said.replace("a/hidden b/", ""), (what, said)
    assert "\033" not in said


def test_ten_at_once_while_the_host_commits_and_collects(service, repo):
    names = [f"n{i}" for i in range(10)]

    def work(name):
        env(service, repo, "create", name)
        inside(service, repo, name, f"for i in 1 2 3; do echo {name} > {name}-$i; git add .; git commit -q -m {name}-$i; done; echo > left")
        return env(service, repo, "status", name).stdout

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        tasks = [pool.submit(work, name) for name in names]
        turn = 0
        while not all(task.done() for task in tasks):
            (repo / "host").write_text(f"{turn}\n")
            git(repo, "add", "host")
            git(repo, "commit", "-q", "-m", f"host {turn}")
            git(repo, "gc", "-q", "--prune=now") if turn % 3 == 0 else None
            turn += 1
        assert all("3 commits on" in task.result() and "4 files" in task.result() for task in tasks)
    git(repo, "gc", "-q", "--prune=now")
    assert git(repo, "fsck", "--strict", "--full", "--no-dangling") == "" and turn > 3
    for name in names:
        assert git(repo, "log", "-3", "--format=%s", f"cove/{name}").split() == [f"{name}-{i}" for i in (3, 2, 1)]
        assert all(git(repo, "notes", "--ref=cove", "show", f"cove/{name}~{i}") for i in range(3)) # none took another's place
    service.remove_all() # sandboxes that are gone lose no commit
    assert wait_until(lambda: env(service, repo, "list").stdout.count("gone") == 10), env(service, repo, "list").stdout
    assert f"+{names[0]}" in env(service, repo, "diff", names[0]).stdout
    for name in names:
        env(service, repo, "abort", name)


SCAN = (["status", "--porcelain=v2", "--untracked-files=all", "--ignored"], ["diff"], ["diff", "HEAD"], ["log", "-p", "--all", "-n", "50"], ["for-each-ref"],
        ["ls-files", "-s", "-o"], ["submodule", "status", "--recursive"], ["blame", "README"], ["stash", "list"], ["worktree", "list"], ["branch", "-avv"])


def scan(repo):
    """What people and editors run, with the person's configuration and all that it may choose."""
    for arguments in SCAN:
        subprocess.run(["git", *arguments], cwd=repo, capture_output=True, timeout=60, check=False)


EVIL = ("[core]\n\tfsmonitor = touch %(out)s\n\thooksPath = .\n\tsshCommand = touch %(out)s\n\tpager = touch %(out)s\n"
        "[diff]\n\texternal = touch %(out)s\n[alias]\n\tst = !touch %(out)s\n")
ATTACKS = {
    "the repository replaced": "mv .git .git.o; git init -q .; printf '%(evil)s' >> .git/config; git -c core.fsmonitor=false -c core.hooksPath=/dev/null "
                               "add README; "
                               "git -c core.fsmonitor=false -c core.hooksPath=/dev/null commit -q -m x",
    "a pointer to another one": "mkdir -p /tmp/w && git init -q /tmp/w && printf '%(evil)s' >> /tmp/w/.git/config; mv .git /tmp/old; echo 'gitdir: "
                                "/tmp/w/.git' > .git",
    "a link to another one": "mv .git ../elsewhere 2> /dev/null || mv .git /tmp/elsewhere; ln -s /tmp/elsewhere .git",
    "a bare one among the files": "mkdir -p bare/refs bare/objects; echo 'ref: refs/heads/x' > bare/HEAD; printf '%(evil)s\tbare = true\n\tworktree = ..\n' "
                                  "> bare/config; "
                                  "git add . 2> /dev/null; git commit -q -m bare",
    "config.worktree": "git config extensions.worktreeConfig true; printf '%(evil)s' > .git/config.worktree",
    "an included configuration": "printf '%(evil)s' > evil; printf '[include]\n\tpath = ../evil\n' >> .git/config; git -c core.fsmonitor=false add evil; "
                                 "git -c core.fsmonitor=false commit -q -m x",
    "commondir": "mkdir /tmp/c && cp -r .git/. /tmp/c && printf '%(evil)s' >> /tmp/c/config; echo /tmp/c > .git/commondir",
    "alternates out of it": "echo /proc/1/root/etc > .git/objects/info/alternates; echo /root > .git/objects/info/http-alternates",
    "replaced objects": "echo x >> README; git commit -q -am x; git replace HEAD HEAD~1; git replace HEAD~1 HEAD~2 2> /dev/null; echo $(git rev-parse HEAD) "
                        "> .git/info/grafts",
    "a shallow file": "echo x >> README; git commit -q -am x; git rev-parse HEAD > .git/shallow",
    "corrupt objects": "echo x >> README; git commit -q -am x; for f in $(find .git/objects -type f); do chmod u+w $f; printf 'garbage' | dd of=$f bs=1 "
                       "seek=9 conv=notrunc 2> /dev/null; done",
    "attributes": "printf '* filter=here diff=here merge=here working-tree-encoding=UTF-16 export-subst ident text eol=crlf\n' > .gitattributes; mkdir -p "
                  ".git/info; "
                  "cp .gitattributes .git/info/attributes; git add .; git commit -q -m x",
    "places that others run": "mkdir -p .husky .vscode .github/workflows; for f in .envrc .husky/pre-commit .vscode/tasks.json conftest.py build.rs "
                              "CLAUDE.md .mcp.json Makefile; do "
                              "echo 'touch %(out)s' > $f; chmod +x $f; done; git add .; git commit -q -m x",
    "hooks": "for h in post-index-change fsmonitor-watchman pre-commit post-checkout post-merge reference-transaction; do printf '#!/bin/sh\ntouch "
             "%(out)s\n' > .git/hooks/$h; "
             "chmod +x .git/hooks/$h; done; echo x >> README",
    "names that mean options": "echo x > ./--upload-pack=touch; echo x > './-c'; echo x > ':(attr:x)y'; git add .; git commit -q -m x; git branch -- "
                               "--output=x 2> /dev/null; git update-ref 'refs/heads/-x' HEAD",
    "lazy objects": "git config remote.origin.url 'ext::touch %(out)s'; git config remote.origin.promisor true; git config extensions.partialClone origin; "
                    "echo x >> README; git commit -q -am x",
    "nothing there": "rm -rf .git",
    "everything gone": "rm -rf .git * .[a-z]*",
}


@pytest.mark.parametrize("how", ATTACKS)
def test_nothing_runs_here_whatever_git_becomes_inside(service, repo, tmp_path, how):
    out = tmp_path / MARK
    before = sorted((str(p), p.read_bytes()) for p in (repo / ".git").glob("*") if p.is_file() and p.name != "index"), sorted((repo / ".git/hooks").iterdir())
    head = git(repo, "rev-parse", "HEAD")
    env(service, repo, "create", "evil")
    evil = (EVIL % {"out": out}).replace("\n", "\\n").replace("\t", "\\t")
    done = inside(service, repo, "evil", ATTACKS[how] % {"out": out, "evil": evil} + "; true", status=None)
    assert done.returncode in (0, 125), done
    for arguments in (["diff", "evil"], ["commit", "evil", "-m", "y"], ["propose", "evil"]):
        env(service, repo, *arguments, status=None)
        assert not out.exists(), arguments
        scan(repo)
        assert not out.exists(), arguments
    assert git(repo, "rev-parse", "HEAD") == head and git(repo, "status", "--short") == "" and git(repo, "fsck", "--strict", "--no-dangling") == ""
    after = sorted((str(p), p.read_bytes()) for p in (repo / ".git").glob("*") if p.is_file() and p.name != "index"), sorted((repo / ".git/hooks").iterdir())
    assert after == before
    env(service, repo, "abort", "evil")


CHANGES = r"""
set -e
for i in $(seq 0 9); do echo x >> d$i/f1; done; touch d3/f7; mkdir emptied
rm d10/f3; rm -r d11; mv d12 d12x; chmod +x d13/f1; ln -sf f2 d13/f3; git mv d2/f5 d2/moved
rm -r d15; echo now > d15; rm -r d16; ln -s d17 d16; rm -r d19; mkdir d19; echo only > d19/only
mkdir -p new/deep obj; echo a > new/deep/a; echo b > 'new/b c'; printf e > "$(printf 'new\303\251')"; mkfifo new/fifo
echo o > a.o; echo o > obj/b.o; echo o > 'x missing y.o'; echo o > 'blob q.o'; echo f > forced.o; git add -f forced.o; echo x > ./-x
echo c > committed; git add committed; git commit -qm one; echo d > later.o; git add -f later.o; git commit -qm two
git rm -q --cached d18/f1; git commit -qm unknown; echo undone >> d9/f9; git commit -qm done d9/f9; git show HEAD~1:d9/f9 > d9/f9
"""


def test_a_copy_that_took_long_is_kept(service, repo):
    for d in range(20):
        (repo / f"d{d}").mkdir()
        for f in range(400):
            (repo / f"d{d}" / f"f{f}").write_text(f"{d} {f}\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "many")
    listed = lambda: [line.split()[0] for line in service.cove("snapshot", "ls").stdout.splitlines() if "cove-copy-" in line]
    others = listed() # of other repositories, where making one took long too
    kept = lambda: [one for one in listed() if one not in others]
    env(service, repo, "create", "one")
    assert len(kept()) == 1 and kept()[0].endswith(git(repo, "rev-parse", "HEAD"))
    inside(service, repo, "one", "echo mine > README; git commit -q -am mine; touch ~/mine")
    env(service, repo, "create", "two")
    seen = inside(service, repo, "two", "git status --short | wc -l; git log --format=%s | wc -l; git branch; cat README; ls ~/mine; git config user.name",
                  status=None).stdout
    assert seen == "0\n3\n* cove/two\ntwo\nPerson\n", seen
    inside(service, repo, "two", "echo x >> d7/f7; git commit -q -am x")
    assert git(repo, "diff", "--name-only", "main", "cove/two") == "d7/f7" and len(kept()) == 1
    # Another commit's copy begins with the kept one; only what it lacks is sent, and what differs is found from there.
    (repo / "d3/f3").write_text("new\n")
    (repo / ".gitignore").write_text("*.o\n")
    git(repo, "rm", "-q", "d4/f4")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "next")
    env(service, repo, "create", "three")
    label = {one["metadata"]["cove.env"]: one["metadata"].get("cove.copy", "") for one in service.sandboxes() if "cove.env" in one["metadata"]}
    assert label["three"].endswith(git(repo, "rev-parse", "main~1")) and label["one"] == "", label
    assert inside(service, repo, "three", "git status --short | wc -l; git branch; git log -1 --format=%s; cat d3/f3; ls d4/f4", status=2).stdout == \
        "0\n* cove/three\nnext\nnew\n"
    assert env(service, repo, "diff", "three").stdout == ""
    everything = "cp .git/index /tmp/i; export GIT_INDEX_FILE=/tmp/i; git add -A 2> /dev/null; git write-tree"
    for script, is_limited in ((CHANGES, True), ("rm d14/f1 d14/f2; mkdir d14/f1 d14/f2; echo y > d14/f1/in", False),
                               ("rmdir d14/f2; rm -r d14/f1; git init -q nested; echo x > nested/x", False)):
        whole = inside(service, repo, "three", f"{script}\n{everything}").stdout.strip()
        time, tree = git(repo, "log", "-1", "--format=%ct %T", "refs/cove/work/three").split()
        assert (time == "0") == is_limited, script
        assert tree == whole or "nested" in script, (script, inside(service, repo, "three", f"git diff-tree -r --name-status {tree} {whole}").stdout)
    for name in ("one", "two", "three"):
        env(service, repo, "abort", name)
    assert "dropped" in env(service, repo, "gc").stdout and kept() == []


def test_a_rebase_by_hand(service, repo):
    env(service, repo, "create", "fix")
    inside(service, repo, "fix", "echo three > README; git commit -q -am three")
    (repo / "README").write_text("here\n")
    git(repo, "commit", "-q", "-a", "-m", "here")
    refused = env(service, repo, "rebase", "fix", status=1).stderr
    said, hint = refused.splitlines()
    assert said.endswith("both changed README, and nothing was rebased") and git(repo, "log", "-1", "--format=%s", "cove/fix") == "three", refused
    assert inside(service, repo, "fix", "git status --short; git log -1 --format=%s").stdout == "three\n"
    inside(service, repo, "fix", f"{hint.partition(': ')[2]} > /dev/null 2>&1 || {{ echo both > README; git add README; GIT_EDITOR=true git rebase "
                                 f"--continue; }}")
    env(service, repo, "apply", "fix")
    assert (repo / "README").read_text() == "both\n" and git(repo, "log", "--format=%s").split()[:2] == ["three", "here"]
    assert git(repo, "notes", "--ref=cove", "show", "HEAD") and "no note found" in subprocess.run(
        ["git", "notes", "--ref=cove", "show", "HEAD^"], cwd=repo, capture_output=True, text=True, check=False).stderr # it came from here
    env(service, repo, "abort", "fix")


def test_repositories_in_the_copy_stay_there_whatever_their_names(service, repo):
    env(service, repo, "create", "nested")
    inside(service, repo, "nested", "for d in 'n\303\251' ' lead' 'tr ' 'q\"q' 'g*b'; do d=$(printf \"$d\"); mkdir \"$d\"; git init -q \"$d\"; "
                                    "git -C \"$d\" commit -q --allow-empty -m x; done; echo more >> README")
    assert env(service, repo, "diff", "nested", "--stat").stdout.splitlines()[0].split()[0] == "README"
    env(service, repo, "abort", "nested")


def test_a_clone_without_all_of_its_history(service, repo, tmp_path):
    """Of a shallow one the copy's history ends where it ends here; of a partial one the history can't be had."""
    for text in "abc":
        (repo / "README").write_text(text)
        git(repo, "commit", "-q", "-a", "-m", text)
    git(repo, "config", "uploadpack.allowFilter", "true")
    clone = lambda name, *how: git(tmp_path, "clone", "-q", *how, f"file://{repo}", name) or tmp_path / name
    shallow, partial, bare = clone("shallow", "--depth=2"), clone("partial", "--filter=blob:none"), clone("bare", "--bare")
    env(service, shallow, "create", "fix")
    done = inside(service, shallow, "fix", "git log --format=%s; git fsck --strict; echo d > README; git commit -q -am d; git rebase -q --root")
    assert done.stdout == "c\nb\n"
    env(service, shallow, "apply", "fix")
    assert git(shallow, "log", "--format=%s").split() == ["d", "c", "b"] and git(shallow, "fsck", "--strict", "--no-dangling") == ""
    assert "--shallow leaves out" in env(service, partial, "create", "fix", status=1).stderr
    env(service, partial, "create", "fix", "--shallow")
    assert inside(service, partial, "fix", "git log --format=%s; cat README").stdout == "c\nc"
    assert f"{bare} is in no working tree" in env(service, bare, "create", "fix", status=125).stderr
    assert "git rev-parse: fatal: cannot change to" in env(service, tmp_path / "none", "create", "fix", status=125).stderr


def test_a_text_that_nobody_reads_is_no_obstacle(service, repo):
    env(service, repo, "create", "large")
    inside(service, repo, "large", "yes text | head -c 40000000 > log; git add .; git commit -q -m large")
    told = env(service, repo, "diff", "large", "--stat")
    assert "log | Bin 0 -> 40000000 bytes" in told.stdout and "look first: log (binary)" in told.stderr, told
    env(service, repo, "apply", "large")
    assert (repo / "log").stat().st_size == 40000000
    env(service, repo, "abort", "large")


def test_working_trees_of_one_repository_share_its_environments(service, repo):
    """They share its refs, so from another one an environment is neither gone, nor to be made again or thrown away."""
    side = repo.parent / "side"
    git(repo, "worktree", "add", "-q", "-b", "side", side)
    env(service, side, "create", "fix")
    inside(service, side, "fix", "echo more >> README; git commit -q -am more")
    assert "running" in env(service, repo, "list").stdout
    for words in (["create", "fix"], ["abort", "fix"], ["rm", "fix"], ["diff", "fix"], ["run", "fix", "--", "true"]):
        refused = env(service, repo, *words, status=None)
        assert refused.returncode and f"working tree {side}" in refused.stderr, refused
    env(service, side, "apply", "fix")
    assert (side / "README").read_text() == "two\nmore\n" and (repo / "README").read_text() == "two\n"
    env(service, side, "abort", "fix")


def test_another_accounts_repository_is_taken_where_git_takes_it(service, repo, tmp_path):
    git(repo, "config", "safe.directory", "*") # its own word doesn't count
    os.chown(repo, 4001, 4001)
    os.chown(repo / ".git", 4001, 4001)
    home = {"HOME": str(tmp_path), "SUDO_UID": ""}
    made = lambda: service.cove("env", "--repo", repo, "create", "fix", env=home)
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    listed = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}) + "\n"
    tools = lambda: service.cove("mcp", cwd=repo, env=home, input=listed).stdout
    assert "dubious ownership" in made().stderr and service.sandboxes() == []
    assert "environment_log" not in tools()
    (tmp_path / ".gitconfig").write_text(f"[safe]\n\tdirectory = {repo}\n")
    assert made().returncode == 0
    assert "environment_log" in tools()
    assert service.cove("env", "--repo", repo, "run", "fix", "--", "sh", "-c", "echo more >> README; git commit -q -am more", env=home).returncode == 0
    assert service.cove("env", "--repo", repo, "apply", "fix", env=home).returncode == 0 and (repo / "README").read_text() == "two\nmore\n"
    assert service.cove("env", "--repo", repo, "abort", "fix", env=home).returncode == 0


def test_a_commit_is_named_by_its_message_too(service, repo):
    git(repo, "commit", "-q", "--allow-empty", "-m", "the second one")
    git(repo, "commit", "-q", "--allow-empty", "-m", "a third")
    env(service, repo, "create", "--from", ":/second", "old")
    assert inside(service, repo, "old", "git log -1 --format=%s").stdout.strip() == "the second one"
    assert "has no commit" in env(service, repo, "create", "--from", ":/nothing of the kind", "none", status=None).stderr


def test_what_is_left_of_a_killed_command_is_collected(service, repo):
    env(service, repo, "create", "long")
    running = service.popen("env", "--repo", repo, "run", "long", "--", "sleep", "60")
    assert wait_until(lambda: list((repo / ".git").glob("cove-in-*")))
    assert "0 left" in env(service, repo, "gc").stdout # it is in use
    running.kill()
    running.wait()
    keeps = {name: repo / f".git/objects/pack/pack-{name}.keep" for name in ("ours", "theirs")}
    keeps["ours"].write_text(next((repo / ".git").glob("cove-in-*")).name)
    keeps["theirs"].write_text("the person's\n")
    assert "1 left" in env(service, repo, "gc").stdout
    assert not keeps["ours"].exists() and keeps["theirs"].exists()


def test_a_full_disk_keeps_nothing_of_a_copy(service, repo):
    """The pack that is sent lies in the repository's directory while it is written."""
    (repo / "large").write_bytes(os.urandom(6 << 20))
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "large")
    small = repo / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "cove-test", small], check=True)
    try:
        git(small, "clone", "-q", "--no-local", "--no-checkout", repo, ".")
        (small / "filler").write_bytes(bytes(os.statvfs(small).f_bavail * 4096 - (3 << 20)))
        free = os.statvfs(small).f_bavail
        assert "tmp_pack_" in env(service, small, "create", "full", status=1).stderr # what git could not write
        assert service.sandboxes() == [] and git(small, "for-each-ref", "refs/heads/cove", "refs/cove") == ""
        assert not list((small / ".git").glob("cove-in-*")) and os.statvfs(small).f_bavail == free
        (small / "filler").unlink()
        env(service, small, "create", "full")
        env(service, small, "abort", "full")
    finally:
        subprocess.run(["umount", small], check=True)


PACKS_MORE = r"""
secret=$(echo nobody asked for this | git hash-object -w --stdin)
printf '#!/bin/sh\ncase "$*" in *pack-objects*) { cat; echo %s; } | exec /usr/bin/git "$@" ;; *) exec /usr/bin/git "$@" ;; esac\n' $secret > /tmp/git
chmod +x /tmp/git; sudo -n cp /tmp/git /usr/local/bin/git; echo more >> README; echo $secret
"""


def test_what_comes_is_what_is_reached_and_nothing_else(service, repo):
    """A pack is handed over as it came only if it holds nothing more; what keeps it from `git gc` meanwhile goes."""
    env(service, repo, "create", "packs")
    packs, sandbox = repo / ".git/objects/pack", service.sandboxes()[0]["id"]
    for n, text in enumerate(("one", "two"), 1):
        done = service.cove("exec", sandbox, "--", "sh", "-c", f"cd '{repo}'; echo {text} >> README")
        assert done.returncode == 0, done
        for _ in range(2): # what was received isn't sent again
            assert f"+{text}\n" in env(service, repo, "diff", "packs").stdout
        assert len(list(packs.glob("*.pack"))) == len(list(packs.glob("*.idx"))) == n and not list(packs.glob("*.keep"))
    done = service.cove("exec", sandbox, "--", "sh", "-c", f"cd '{repo}'; {PACKS_MORE}")
    assert done.returncode == 0, done
    assert "+more\n" in env(service, repo, "diff", "packs").stdout
    assert subprocess.run(["git", "cat-file", "-e", done.stdout.strip()], cwd=repo, check=False, capture_output=True).returncode != 0
    git(repo, "gc", "-q", "--prune=now")
    assert "+more\n" in env(service, repo, "diff", "packs").stdout and git(repo, "fsck", "--strict", "--no-dangling") == ""
    env(service, repo, "abort", "packs")


def test_a_diff_of_what_is_here_starts_two_programs(service, repo, tmp_path):
    """One finds the repository and where it stands, one shows the changes; a third where HEAD went on."""
    wrapper, log = tmp_path / "bin/git", tmp_path / "log"
    wrapper.parent.mkdir()
    wrapper.write_text(f"#!/bin/sh\necho >> {shlex.quote(str(log))}\nexec {shutil.which('git')} \"$@\"\n")
    wrapper.chmod(0o755)
    env(service, repo, "create", "few")
    inside(service, repo, "few", "echo more >> README; git commit -q -am more")
    for started in (2, 3):
        log.unlink(missing_ok=True)
        shown = service.cove("env", "--repo", repo, "diff", "few", env={"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}).stdout
        assert "+more\n" in shown and len(log.read_text()) == started, (started, shown)
        git(repo, "commit", "-q", "--allow-empty", "-m", "here")
    env(service, repo, "abort", "few")


def test_a_proposal_with_its_evidence(service, repo):
    (repo / ".cove").mkdir()
    (repo / ".cove/env.yaml").write_text("checks: ['grep -q three README && ls; test ! -e loose', 'curl -sS -m 5 https://example.org/']\n"
                                         "profiles: {quick: {checks: ['true']}}\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "settings")
    env(service, repo, "create", "fix", "--allow", "example.org:443")
    assert "'cove env commit fix'" in env(service, repo, "propose", "fix", status=1).stderr
    inside(service, repo, "fix", "echo three > README; echo 'checks: []' > .cove/env.yaml; printf 'all:\\n' > Makefile; printf 'a\\342\\200\\256b\\n' > odd; "
                                 "git add .; git commit -q -m work; echo x > loose; echo loose >> src/f; curl -sS -m 5 https://example.com/; exit 3", status=3)
    inside(service, repo, "fix", "git commit -q --allow-empty -m more; git commit -q --allow-empty -m no; "
                                 "git update-ref HEAD $(git cat-file commit HEAD | LC_ALL=C sed \"s/^no$/no $(printf '\\377') text/\" | git hash-object -t "
                                 "commit -w --stdin)")
    assert "cannot rebase: You have unstaged changes" in (refused := env(service, repo, "rebase", "fix", status=1).stderr) and "No rebase" not in refused
    shown = env(service, repo, "propose", "fix", "-m", "as asked", status=1) # a check that wants the network fails
    assert "more: cove log" not in shown.stdout
    for text in ("as asked\n", "no \\xff text\n", "more\n", "work\n", "Makefile (a build runs it)", ".cove/env.yaml (Cove's own settings)",
                 "odd (characters that hide or reorder text)",
                 "grep -q three README && ls; test ! -e loose: exit code 0", "https://example.org/: exit code 6", "sh -c 'git commit -q --allow-empty -m more; git commit -q --allow-e': exit code 0", "exit code 3", "(claimed)"):
        assert text in shown.stdout, shown.stdout
    told = json.loads(env(service, repo, "propose", "fix", "--profile", "quick", "--json").stdout)
    assert [c["command"] for c in told["checks"]] == ["true"] and told["message"] is None and told["head"] == git(repo, "rev-parse", "cove/fix")
    assert [c.get("exit_code") for c in told["commands"]] == [3, 0] and told["commands"][0]["argv"][0] == "sh"
    first = told["commands"][0]
    assert first["cwd"] == str(repo) and first["duration_ms"] >= 0 and first["at"] and first["grade"] == "claimed" and first["reached"] == {}, first
    assert "example.com" in told["refused"] and "example.com" in first["refused"], (told["refused"], first)
    assert len(service.sandboxes()) == 1 and git(repo, "rev-parse", "refs/cove/proposal/fix") == told["head"]
    # What is left out is counted.
    was = json.loads(env(service, repo, "status", "fix", "--json").stdout)["sandbox"]
    for _ in range(20):
        service.cove("exec", was, "--", "true")
    inside(service, repo, "fix", "for i in $(seq 210); do echo > $i.mk; done; git add *.mk; git commit -q -m many")
    shown = env(service, repo, "propose", "fix", "--profile", "quick")
    assert "\n  and 3 more: cove log " + was in shown.stdout and "\n  and 13 more\n" in shown.stdout, shown.stdout
    inside(service, repo, "fix", "git reset -q --hard HEAD^")
    told = json.loads(env(service, repo, "propose", "fix", "--profile", "quick", "--json").stdout)
    # A fork has the labels, and isn't the environment.
    assert service.cove("fork", was).returncode == 0 and len(service.sandboxes()) == 2
    listed = json.loads(env(service, repo, "list", "--json").stdout)
    assert [one["sandbox"] for one in listed] == [was] and was in env(service, repo, "status", "fix").stdout
    lines = [json.loads(line) for line in git(repo, "notes", "--ref=cove", "show", "cove/fix").splitlines() if line]
    assert [line["kind"] for line in lines] == ["commit", "proposal", "proposal", "proposal"] and lines[-1]["hash"] == told["hash"]
    # Notes of another clone, on the same commit and on another one, are joined.
    theirs = [{"kind": "proposal", "environment": "theirs"}, {"kind": "proposal", "environment": "again"}]
    for line, commit in zip(theirs, ("cove/fix", "main")):
        git(repo, "notes", "--ref=theirs", "add", "-m", json.dumps(line), commit)
    git(repo, "notes", "--ref=cove", "merge", "-q", "-s", "cat_sort_uniq", "theirs")
    shown = [json.loads(line) for line in git(repo, "notes", "--ref=cove", "show", "cove/fix").splitlines() if line]
    assert len(shown) == 5 and all(line in shown for line in [*lines, theirs[0]])
    assert json.loads(git(repo, "notes", "--ref=cove", "show", "main")) == theirs[1]
    # Who applies is a reviewer; an agent's key is none.
    key = lambda scope: json.loads(service.cove("key", "create", "--name", f"k-{scope}", "--scope", scope, "--json").stdout)["key"]
    remote = {"COVE_HOST": f"127.0.0.1:{service.port}"}
    apply = lambda scope: service.cove("env", "--repo", repo, "apply", "fix", env={**remote, "COVE_API_KEY": key(scope)})
    refused = apply("use")
    assert refused.returncode == 1 and "is for a reviewer" in refused.stderr and (repo / "README").read_text() == "two\n"
    done = apply("approve")
    assert done.returncode == 0 and (repo / "README").read_text() == "three\n", done.stderr
    env(service, repo, "abort", "fix") # `loose` is not committed
    assert git(repo, "for-each-ref", "refs/cove/") == ""


def test_why_a_line_is_there(service, repo):
    why = lambda what, status=0: (lambda d: (d.returncode, d.stdout + d.stderr))(service.cove("why", "--repo", repo, what))
    env(service, repo, "create", "fix", "--allow", "example.org:443")
    prompt = "Mend it, please. \nrecord    complete\033[31m " + "\u00e9" * 4096
    done = service.cove("env", "--repo", repo, "run", "fix", "--", "sh", "-c", "echo mended >> src/f; git commit -q -am mend; curl -sS -m 5 "
                                                                               "https://example.com/",
                        env={"COVE_PROMPT": prompt})
    assert done.returncode == 6, done
    env(service, repo, "apply", "fix")
    code, text = why("src/f:51")
    assert code == 0, text
    for part in ("mend (Person", "prompt    Mend it, please. ", "echo mended >> src/f", "cli:uid=0", "in        fix", "1 rule, else deny: example.org",
                 "refused   example.com", "it names this commit"):
        assert part in text, text
    assert "\033" not in text and "\nrecord    complete\n" not in text and text.count("\nrecord ") == 1, text
    assert why("src/f:1") == (1, why("src/f:1")[1]) and "no environment of Cove" in why("src/f:1")[1]
    assert why("src/f:99")[0] == 1 and why("src/f")[0] == 2
    # A note that somebody made up, or changed, is found.
    note = json.loads(git(repo, "notes", "--ref=cove", "show", "HEAD").strip())
    record = [json.loads(line) for line in service.cove("log", "--json", note["sandbox"]).stdout.splitlines()]
    said = next(event for event in record if event["kind"] == "env.received")
    assert said["seq"] == note["seq"] and said["data"]["commits"] == [git(repo, "rev-parse", "HEAD")] and said["data"]["environment"] == "fix", said
    # A genuine one on another commit, or of the same record's other event.
    git(repo, "notes", "--ref=cove", "add", "-m", json.dumps(note), "main~2")
    assert git(repo, "rev-parse", "main~2") == git(repo, "rev-list", "--max-parents=0", "main")
    code, text = why("src/f:1")
    assert code == 1 and "the note is another commit's" in text, text
    for change, told in (({"hash": "0" * 64}, "never had that hash"), ({"seq": 10 ** 9}, "no such event"), ({"sandbox": "../x"}, "names no event"),
                         ({"prompt": "nothing"}, "the note was changed"), ({"refused": {}}, "the note was changed"),
                         ({"seq": record[0]["seq"], "hash": record[0]["hash"]}, "the note is another commit's")):
        git(repo, "notes", "--ref=cove", "add", "-f", "-m", json.dumps({**note, **change}), "HEAD")
        code, text = why("src/f:51")
        assert code == 1 and told in text, text


def test_the_output_of_an_environment_is_of_what_was_asked_for(service, repo):
    """What cove env runs for itself stands in the record and is counted; a name finds the environment, not its forks."""
    env(service, repo, "create", "named")
    inside(service, repo, "named", "echo asked-for")
    done = service.cove("logs", "named")
    assert done.returncode == 0 and "asked-for" in done.stdout and "git" not in done.stdout, done
    assert re.search(r"left out: \d+ commands that 'cove env' ran for itself; --own prints them", done.stderr), done
    own = service.cove("logs", "--own", "named", errors="replace")
    assert "asked-for" in own.stdout and "git update-ref" in own.stdout and own.stderr == "", own
    sandbox = service.sandboxes()[0]["id"]
    assert service.cove("fork", sandbox).returncode == 0
    assert service.cove("pause", "named").stdout.strip() == sandbox
