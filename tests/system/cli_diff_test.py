# SPDX-License-Identifier: Apache-2.0
"""cove diff --patch against git: what it writes is applied to the old tree, which has to become the new one."""

import json
import os
import random
import subprocess

import pytest
from leaks import own_service
from terminal import Terminal

PREPARE = """
import os, random
random.seed(%d)
os.makedirs("repo/deep/gone/far"); os.chdir("repo")
def text(lines, few=3): return "".join(random.choice("abcdefgh"[:few]) * random.randint(0, 2) + chr(10) for _ in range(lines)).encode()
def put(name, data, mode=0o644):
    with open(name, "wb") as f: f.write(data)
    os.chmod(name, mode)
for i in range(60): put("t%%d" %% i, text(random.randint(0, 80), 3 + i %% 5))
put("no end", b"one" + bytes([10]) + b"two"); put("run", b"#!/bin/sh" + bytes([10])); put("binary", bytes(range(256)) * 40); put("empty", b""); put("becomes", b"x")
put("odd " + chr(34) + chr(92) + chr(9) + chr(10) + chr(252), b"odd" + bytes([10])); put("deep/gone/far/f", b"f" + bytes([10])); put("deep/gone/g", b"g"); put("stays", b"s")
put("twice", b"hard" + bytes([10])); os.link("twice", "again")
os.symlink("run", "link"); os.symlink("nowhere", "dangling"); os.mkdir(".git"); put(".git/config", b"theirs")
"""
CHANGE = """
import os, random, shutil
random.seed(%d); os.chdir("repo")
for i in range(60):
    with open("t%%d" %% i, "rb") as f: lines = f.read().splitlines(True)
    for _ in range(random.randint(0, 12)):
        at = random.randint(0, len(lines))
        if random.random() < 0.5: lines[at:at] = [random.choice([b"a", b"b", b"new", b"bb"]) + bytes([10])] * random.randint(1, 4)
        else: del lines[at:at + random.randint(1, 4)]
    data = b"".join(lines)
    with open("t%%d" %% i, "wb") as f: f.write(data[:-1] if random.random() < 0.3 else data)
def put(name, data, mode=0o644):
    with open(name, "wb") as f: f.write(data)
    os.chmod(name, mode)
put("no end", b"one" + bytes([10]) + b"two" + bytes([10])); os.chmod("run", 0o755); put("binary", bytes(range(255, -1, -1)) * 50); put("empty", b"not any more"); os.unlink("becomes"); os.symlink("stays", "becomes")
put("odd " + chr(34) + chr(92) + chr(9) + chr(10) + chr(252), b"even" + bytes([10])); shutil.rmtree("deep/gone"); os.makedirs("new/a/b"); put("new/a/b/c", b"c" + bytes([10]), 0o755); put("new/none", b"")
put("again", b"changed" + bytes([10])); os.unlink("link"); os.symlink("stays", "link"); os.unlink("dangling"); put("new bytes", os.urandom(100000) + bytes(1)); put(".git/config", b"not ours"); os.mkfifo("fifo")
"""


@pytest.fixture(scope="module")
def service():
    """One of its own: what it keeps ready is not of one template."""
    with own_service("diff") as service:
        yield service


@pytest.fixture
def sandbox(service):
    yield service.create()
    service.remove_all()


def tree(top):
    """{name: (kind, executable, content)}, without what a patch does not hold."""
    found = {}
    for at, directories, names in os.walk(os.fsencode(top)):
        directories[:] = [d for d in directories if d != b".git" and not os.path.islink(os.path.join(at, d))]
        for name in names + [d for d in os.listdir(at) if os.path.islink(os.path.join(at, d)) and d not in names]:
            path = os.path.join(at, name)
            key = os.path.relpath(path, os.fsencode(top))
            if os.path.islink(path):
                found[key] = ("link", os.readlink(path))
            elif os.path.isfile(path):
                with open(path, "rb") as f:
                    found[key] = ("file", bool(os.stat(path).st_mode & 0o100), f.read())
    return found


def git(*arguments, cwd, data=None):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    return subprocess.run(["git", *arguments], cwd=cwd, input=data, capture_output=True, env=env, check=False)


def patch_of(service, *arguments):
    return service.cove("diff", "--patch", *arguments, text=False)


def test_git_applies_what_a_sandbox_changed(service, sandbox, tmp_path):
    seed = random.randrange(1 << 30)
    assert service.cove("exec", "-i", sandbox, "--", "python3", "-", input=PREPARE % seed).returncode == 0
    assert service.cove("snapshot", sandbox, "patch-before").returncode == 0
    assert service.cove("cp", "-q", f"{sandbox}:repo", tmp_path / "old").returncode == 0
    assert service.cove("exec", "-i", sandbox, "--", "python3", "-", input=CHANGE % seed).returncode == 0
    try:
        done = patch_of(service, "--path", "/home/user/repo", "patch-before", sandbox)
        assert done.returncode == 0, (seed, done.stderr)
        assert [s["id"] for s in service.sandboxes()] == [sandbox]
        assert service.cove("cp", "-q", f"{sandbox}:repo", tmp_path / "new").returncode == 0
        before, after = tree(tmp_path / "old"), tree(tmp_path / "new")
        assert git("init", "-q", ".", cwd=tmp_path / "old").returncode == 0
        applied = git("apply", "--whitespace=nowarn", "-", cwd=tmp_path / "old", data=done.stdout)
        assert applied.returncode == 0, (seed, applied.stderr, done.stdout[:4000])
        assert tree(tmp_path / "old") == after, seed
        back = git("apply", "-R", "--whitespace=nowarn", "-", cwd=tmp_path / "old", data=done.stdout)
        assert back.returncode == 0 and tree(tmp_path / "old") == before, (seed, back.stderr)
        assert b".git/" not in done.stdout and b"/fifo" not in done.stdout
        # With its template: all of it is new.
        done = patch_of(service, "--path", "/home/user/repo", sandbox)
        (tmp_path / "empty").mkdir()
        assert git("init", "-q", ".", cwd=tmp_path / "empty").returncode == 0
        assert git("apply", "--whitespace=nowarn", "-", cwd=tmp_path / "empty", data=done.stdout).returncode == 0
        assert tree(tmp_path / "empty") == after, seed
        # From the root, and of nothing.
        assert b"+++ b/home/user/repo/" in patch_of(service, sandbox).stdout
        done = patch_of(service, "--path", "/etc", "patch-before", sandbox)
        assert (done.returncode, done.stdout) == (0, b""), done
    finally:
        service.cove("snapshot", "rm", "patch-before")


@pytest.mark.parametrize("tar", ["cat /dev/zero", "printf 'x%.0s' $(seq 200); cat /dev/zero"])
def test_an_archive_without_an_end_is_not_kept(service, sandbox, tar):
    """The tar in there is the sandbox's: what it writes is held in memory here."""
    script = "printf '#!/bin/sh\\n%s\\n' \"$1\" > /bin/t; chmod 755 /bin/t; mv /bin/t $(command -v tar); echo x > /root/x"
    assert service.cove("exec", "-u", "root", sandbox, "--", "sh", "-c", script, "sh", tar).returncode == 0
    done = service.cove("diff", "--patch", sandbox)
    assert done.returncode == 1 and "too much for a patch" in done.stderr, done


def test_a_sandbox_is_named_as_in_other_commands(service):
    box = service.create(metadata={"name": "the-box"})
    assert service.cove("exec", "the-box", "--", "sh", "-c", "echo here >/home/user/made").returncode == 0
    assert service.cove("diff", "the-box").stdout == service.cove("diff", box).stdout == "A /home/user/made\n"
    assert json.loads(service.cove("diff", "--json", "the-box").stdout)["path"] == "/home/user/made"
    assert "\n+here\n" in service.cove("diff", "--patch", "the-box").stdout
    done = service.cove("diff", "no-such-box")
    assert (done.returncode, done.stdout) == (1, "") and "no-such-box" in done.stderr, done
    assert service.cove("snapshot", box, "the-box").returncode == 0, "a snapshot's name is a snapshot's"
    assert service.cove("exec", box, "--", "rm", "/home/user/made").returncode == 0
    assert service.cove("diff", "the-box").stdout == "A /home/user/made\n"
    assert service.cove("snapshot", "rm", "the-box").returncode == 0
    service.remove_all()


def test_nothing_moves_a_terminals_cursor(service, sandbox):
    """Names, contents and links are a stranger's: a patch on a terminal is read there, and what is redirected is applied."""
    script = "mkdir d; cd d; n=$(printf 'n\\033[31m\\342\\200\\256'); printf 'a\\tb\\033[2J\\302\\233\\342\\200\\256\\n' > \"$n\"; ln -s \"$n\" l"
    assert service.cove("exec", sandbox, "--", "sh", "-c", script).returncode == 0
    for arguments in (["--patch"], ["--json"], []):
        output, code = Terminal(service, "diff", *arguments, sandbox).rest()
        assert code == 0 and b"/d" in output, output
        for bad in (b"\x1b[2J", b"\x1b[31m", b"\xc2\x9b", b"\xe2\x80\xae"):
            assert bad not in output, (arguments, output)
        assert arguments != ["--patch"] or b"+a\tb\\x1b[2J" in output, output
    assert b"+a\tb\x1b[2J\xc2\x9b" in patch_of(service, sandbox).stdout


def test_what_can_not_be_a_patch_is_said(service, sandbox):
    for arguments in (["--patch", "-z", sandbox], ["--patch", "--json", sandbox], ["--path", "/", sandbox], ["--patch", "--path", "etc", sandbox]):
        assert service.cove("diff", *arguments).returncode == 2, arguments
    done = service.cove("diff", "--patch", "base")
    assert done.returncode == 1 and "not a sandbox" in done.stderr, done
    assert service.cove("diff", "--patch", "no-such-thing", sandbox).returncode == 1
    assert service.cove("exec", sandbox, "--", "truncate", "-s", "70M", "big").returncode == 0
    done = service.cove("diff", "--patch", sandbox)
    assert done.returncode == 1 and "too much for a patch" in done.stderr and "--path" in done.stderr, done
    assert [s["id"] for s in service.sandboxes()] == [sandbox]
