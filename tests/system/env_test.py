# SPDX-License-Identifier: Apache-2.0
"""cove env: copies of a repository in sandboxes, and what comes back of them."""

import concurrent.futures
import os
import subprocess

import pytest
from leaks import own_service
from service import wait_until

MARK = "ran-here"


@pytest.fixture(scope="module")
def service():
    with own_service("env") as service:
        yield service


def git(repo, *arguments, check=True):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=Here", "-c", "user.email=here@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=repo, capture_output=True, text=True, env=env, check=False)
    assert not check or done.returncode == 0, (arguments, done.stderr)
    return done.stdout.strip()


@pytest.fixture
def repo(service, tmp_path):
    path = tmp_path / "a repository"
    path.mkdir()
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
    yield path
    service.remove_all()
    assert not list((path / ".git").glob("cove-in-*"))


def env(service, repo, *arguments, status=0):
    done = service.cove("env", "--repo", repo, *arguments)
    assert status is None or done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def inside(service, repo, name, script, status=0):
    return env(service, repo, "run", name, "--", "sh", "-c", script, status=status)


def test_from_a_copy_to_a_merge(service, repo):
    env(service, repo, "create", "fix")
    assert inside(service, repo, "fix", "pwd; git log --format=%s; git status --short").stdout == f"{repo}\nsecond\nfirst\n"
    inside(service, repo, "fix", "echo three > README; echo new > new; git stash -q -u; git stash pop -q; git worktree list > /dev/null")
    assert (repo / "README").read_text() == "two\n" and git(repo, "rev-parse", "cove/fix") == git(repo, "rev-parse", "main")
    assert "README" in env(service, repo, "diff", "fix", "--stat").stdout and "+three" in env(service, repo, "diff", "fix").stdout
    assert env(service, repo, "apply", "fix", status=1).stderr.count("nothing was committed")
    assert "not committed" in env(service, repo, "rm", "fix", status=1).stderr
    env(service, repo, "commit", "fix", "-m", "third")
    assert git(repo, "log", "-1", "--format=%s by %an", "cove/fix") == "third by Person"
    assert "third" in env(service, repo, "log", "fix").stdout and "1 commit on" in env(service, repo, "status", "fix").stdout
    assert [line.split()[0::3] for line in env(service, repo, "list").stdout.splitlines()[1:]] == [["fix", "1"]]
    # The host went on.
    (repo / "other").write_text("here\n")
    git(repo, "add", "other")
    git(repo, "commit", "-q", "-m", "here")
    env(service, repo, "rebase", "fix")
    assert git(repo, "log", "--format=%s", "cove/fix").split() == ["third", "here", "second", "first"]
    env(service, repo, "apply", "fix")
    assert (repo / "README").read_text() == "three\n" and git(repo, "rev-parse", "main") == git(repo, "rev-parse", "cove/fix")
    assert inside(service, repo, "fix", "exit 7", status=7)
    env(service, repo, "rm", "fix")
    assert service.sandboxes() == [] and git(repo, "branch", "--list", "cove/*")
    assert git(repo, "for-each-ref", "refs/cove/") == "" and git(repo, "fsck", "--strict", "--no-dangling") == ""


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
    assert "rebase a" in env(service, repo, "apply", "a", status=1).stderr
    assert git(repo, "status", "--short") == "" and (repo / "README").read_text() == "b\n"
    env(service, repo, "abort", "a")
    env(service, repo, "abort", "b")
    assert git(repo, "branch", "--list", "cove/*") == "" and service.sandboxes() == []


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


TREE = "git update-ref HEAD $(git commit-tree -p HEAD -m x $(git hash-object -t tree -w --literally --stdin < tree)); git symbolic-ref HEAD > /dev/null"
ENTRY = "b=$(git hash-object -w README); python3 -c \"import sys; sys.stdout.buffer.write(b'%s\\0' + bytes.fromhex('$b'))\" > /tmp/tree && cd . && cp /tmp/tree tree; "
LINK = "ln -s '%s' link; git add link; git commit -q -m link"
REFUSED = {
    "gitlink": "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -q -m sub",
    "gitmodules": "printf '[submodule \"s\"]\\n\\tpath = s\\n\\turl = ext::touch " + MARK + "\\n' > .gitmodules; git add .; git commit -q -m m",
    "gitmodules as a link": ENTRY % "120000 .gitmodules" + TREE,
    "absolute link": LINK % "/etc/passwd",
    "link out": LINK % "src/../../out",
    "link into .git": LINK % ".git/hooks",
    "link, then undone": LINK % "/etc" + "; git rm -q link; git commit -q -m undone",
    "link that is not committed": "ln -s /etc/passwd link",
    ".git in a tree": ENTRY % "100644 .git" + TREE,
    ".GIT in a tree": ENTRY % "100644 .GIT" + TREE,
    "git~1 in a tree": ENTRY % "100644 git~1" + TREE,
    ".. in a tree": ENTRY % "100644 .." + TREE,
    "slash in a tree": ENTRY % "100644 ../x" + TREE,
    "no commit": "git update-ref --no-deref HEAD $(git hash-object -w --stdin < README) 2> /dev/null || git symbolic-ref HEAD refs/heads/none",
    "git that lies": "mkdir -p ~/bin; printf '#!/bin/sh\\nhead -c 100000 /dev/urandom\\n' > /tmp/git; chmod +x /tmp/git; sudo -n cp /tmp/git /usr/local/bin/git",
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_refused_leaves_nothing_here(service, repo, how):
    env(service, repo, "create", "evil")
    inside(service, repo, "evil", "ln -s ../README src/good; echo good >> README; git add .; git commit -q -m good")
    before = git(repo, "for-each-ref"), git(repo, "count-objects", "-v").split("garbage")[0]
    done = inside(service, repo, "evil", REFUSED[how], status=None)
    assert done.returncode == 125, (done.returncode, done.stdout, done.stderr)
    assert (git(repo, "for-each-ref"), git(repo, "count-objects", "-v").split("garbage")[0]) == before
    if how != "no commit":
        assert "refused: " in done.stderr, done.stderr
    assert git(repo, "fsck", "--strict", "--no-dangling") == "" and git(repo, "status", "--short") == ""
    env(service, repo, "abort", "evil")


RUNS = """
for h in pre-commit post-commit post-merge post-checkout reference-transaction pre-push; do printf '#!/bin/sh\\ntouch %(out)s\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done
git config core.fsmonitor 'touch %(out)s'; git config core.pager 'touch %(out)s'; git config diff.external 'touch %(out)s'; git config core.editor 'touch %(out)s'
git config filter.here.smudge 'touch %(out)s'; git config filter.here.clean 'touch %(out)s'; git config diff.here.textconv 'touch %(out)s'; git config alias.status '!touch %(out)s'
git config merge.here.driver 'touch %(out)s'; git config uploadpack.packObjectsHook 'touch %(out)s'; git config core.sshCommand 'touch %(out)s'; mkdir -p .git/info
echo '* filter=here diff=here merge=here' > .git/info/attributes; echo /proc/1/root > .git/objects/info/alternates; echo "$PWD" > .git/commondir.x
echo '* filter=here diff=here merge=here' > .gitattributes; echo changed > README; mkdir nested; cd nested; git init -q .; echo n > n; git add n; git commit -q -m n; cd ..
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


def test_risky_places_are_named(service, repo):
    env(service, repo, "create", "risky")
    inside(service, repo, "risky", "mkdir -p .github/workflows .vscode; echo x > .github/workflows/x.yml; echo x > .vscode/tasks.json; echo x > Makefile; chmod +x README; "
           "ln -s README link; printf 'a \\342\\200\\256 b\\n' > hidden; printf 'x\\000y' > bytes; printf 'e\\033[31m' > \"$(printf 'na\\033me')\"")
    said = env(service, repo, "diff", "risky", "--stat").stderr
    for what in (".github/workflows/x.yml (CI)", ".vscode/tasks.json (an editor", "Makefile (a build", "README (became executable)", "link (a link)", "hidden (characters"):
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
            git(repo, "gc", "-q") if turn % 3 == 0 else None
            turn += 1
        assert all("3 commits on" in task.result() and "4 files" in task.result() for task in tasks)
    assert git(repo, "fsck", "--strict", "--full", "--no-dangling") == "" and turn > 3
    for name in names:
        assert git(repo, "log", "-3", "--format=%s", f"cove/{name}").split() == [f"{name}-{i}" for i in (3, 2, 1)]
    service.remove_all() # sandboxes that are gone lose no commit
    assert env(service, repo, "list").stdout.count("gone") == 10
    assert f"+{names[0]}" in env(service, repo, "diff", names[0]).stdout
    for name in names:
        env(service, repo, "abort", name)


def test_what_is_left_of_a_killed_command_is_collected(service, repo):
    env(service, repo, "create", "long")
    running = service.popen("env", "--repo", repo, "run", "long", "--", "sleep", "60")
    assert wait_until(lambda: list((repo / ".git").glob("cove-in-*")))
    assert "0 left" in env(service, repo, "gc").stdout # it is in use
    running.kill()
    running.wait()
    assert "1 left" in env(service, repo, "gc").stdout
