# SPDX-License-Identifier: Apache-2.0
"""cove env, killed at each point: nothing is lost and nothing half-made stays."""

import itertools
import os
import shlex
import shutil
import signal

import pytest
from env_test import env, first, git, inside, repo, service  # noqa: F401
from service import wait_until

LONG = bool(os.environ.get("LONG")) # twice the points at which a command is killed

STOPPED_GIT = """#!/bin/sh
echo >> {0}/calls
n=0
while read -r _; do n=$((n + 1)); done < {0}/calls
read -r at when < {0}/kill
[ "$n $when" = "$at before" ] && kill -9 $PPID && exit 1
{1} "$@"
status=$?
[ "$n $when" = "$at after" ] && kill -9 $PPID
exit $status
"""


FORMS = {"create": ["create", "made"], "run": ["run", "kept", "--", "sh", "-c", "echo $$ >> b; git add b; git commit -q -m b"], "diff": ["diff", "kept"],
         "commit": ["commit", "kept", "-m", "c"], "propose": ["propose", "kept"], "rebase": ["rebase", "kept"], "apply": ["apply", "kept"], "gc": ["gc"]}


@pytest.mark.parametrize("word", FORMS)
def test_killed_at_each_point(service, repo, tmp_path, word):
    """Killed before each git that a command starts (LONG: and after each): nothing that had come back is lost, what is inside comes back with the
    next one, and gc leaves nothing half-made."""
    (repo / ".cove").mkdir()
    (repo / ".cove/env.yaml").write_text("checks: ['true']\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "settings")
    env(service, repo, "create", "kept")
    change = "echo $$ >> a; git add a; git commit -q -m a; git rev-parse HEAD"
    known, first = {inside(service, repo, "kept", change).stdout.strip()}, service.sandboxes()[0]["id"]
    stop = tmp_path / "bin"
    stop.mkdir()
    (stop / "git").write_text(STOPPED_GIT.format(shlex.quote(str(stop)), shutil.which("git")))
    (stop / "git").chmod(0o755)
    stopped = {"PATH": f"{stop}:{os.environ['PATH']}"}

    def refs():
        """{ref: commit}. One git for all of them: to start one takes longer than to look."""
        return dict(line.split() for line in git(repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines())

    def whole(name, there):
        """All of its refs or none, and the sandbox with them."""
        return sum(ref in there for ref in (f"refs/heads/cove/{name}", f"refs/cove/base/{name}", f"refs/cove/work/{name}")) in (0, 3)

    for point in itertools.count():
        at, when = (point // 2 + 1, ("before", "after")[point % 2]) if LONG else (point + 1, "before")
        if word == "apply":
            env(service, repo, "propose", "kept")
        if word == "commit":
            inside(service, repo, "kept", "echo more >> c")
        if word == "rebase": # one commit, for each gets a note
            env(service, repo, "abort", "kept")
            env(service, repo, "create", "kept")
            first = service.sandboxes()[0]["id"]
            known.add(inside(service, repo, "kept", change).stdout.strip())
            git(repo, "commit", "-q", "--allow-empty", "-m", "on")
        (stop / "calls").write_text("")
        (stop / "kill").write_text(f"{at} {when}\n")
        done = service.cove("env", "--repo", repo, *FORMS[word], env=stopped)
        # What it was running goes on without it.
        assert word != "apply" or wait_until(lambda: not (repo / ".git/index.lock").exists() and git(repo, "status", "--short") == "")
        env(service, repo, "gc")
        there = refs()
        assert whole("made", there) and whole("kept", there), (at, when)
        assert not list((repo / ".git").glob("cove-in-*")) and len(git(repo, "worktree", "list").splitlines()) == 1
        if "refs/heads/cove/made" in there:
            env(service, repo, "abort", "made")
        here = [s["metadata"]["cove.env"] for s in service.sandboxes()]
        assert set(here) == {"kept"} and (word == "propose" or len(here) == 1), (at, when) # a fork for checks ends by itself, later
        for fork in {s["id"] for s in service.sandboxes()} - {first}:
            service.cove("rm", fork)
        inner = inside(service, repo, "kept", change).stdout.strip().splitlines()[-1]
        assert git(repo, "rev-parse", "cove/kept") == inner, (at, when) # nothing is left inside alone
        known.add(inner)
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, (at, when, done.stderr)
            break
    kinds = git(repo, "cat-file", "--batch-check=%(objecttype)", input="".join(f"{commit}\n" for commit in known)).split()
    assert point and kinds == ["commit"] * len(known)
    assert git(repo, "fsck", "--strict", "--no-dangling") == "" and env(service, repo, "gc").stdout == "0 left-over directories removed\n"
    env(service, repo, "abort", "kept")


def test_what_it_had_begun_to_pack_ends_with_it(service, repo, tmp_path):
    (tmp_path / "git").write_text(f"#!/bin/sh\ncase \" $* \" in *' pack-objects '*) echo $$ > {tmp_path}/pid; exec sleep 60;; esac\n"
                                  f"exec {shutil.which('git')} \"$@\"\n")
    (tmp_path / "git").chmod(0o755)
    cove = service.popen("env", "--repo", repo, "create", "packs", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    cove.kill()
    cove.wait()
    assert wait_until(lambda: not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}"))
    env(service, repo, "gc")
