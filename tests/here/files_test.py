# SPDX-License-Identifier: Apache-2.0
"""What may be read and written: each case is settings, a command, and what is on disk afterwards."""

import os
import subprocess
from pathlib import Path

import pytest
from conftest import settings

MANDATORY = [".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".gitconfig", ".gitmodules", ".ripgreprc", ".mcp.json", ".vscode/tasks.json",
             ".idea/workspace.xml", ".claude/commands/x", ".claude/agents/x", ".git/hooks/pre-commit", ".git/config"]


def test_without_settings_files_can_be_read_and_not_written(here):
    here.file("a", "text")
    done = here.sh(None, "cat a && echo more >> a")
    assert done.stdout == "text" and done.returncode and "ead-only" in done.stderr
    assert (here.home / "a").read_text() == "text"


def test_writing_works_where_it_is_allowed_and_nowhere_else(here):
    here.folder("w")
    here.folder("other")
    done = here.sh(settings(write=["w"]), "echo 1 > w/a; mkdir w/d && mv w/a w/d/b; ln w/d/b w/c; echo 2 > other/a; echo 3 > /var/tmp/cove-here-x")
    assert (here.home / "w/d/b").read_text() == "1\n" and (here.home / "w/c").exists(), done.stderr
    assert not (here.home / "other/a").exists() and done.stderr.count("ead-only") == 2


@pytest.mark.parametrize("spelling", ["~/w", "w", "w/", "w/**", "../home/w"])
def test_spellings_of_a_path(here, spelling):
    here.folder("w")
    assert here.sh(settings(write=[spelling]), "touch w/a").returncode == 0


def test_denied_writing_wins(here):
    here.folder("w/no/deep")
    done = here.sh(settings(write=["w", "w/no/deep"], deny_write=["w/no"]), "touch w/no/a; touch w/no/deep/a; mv w/no w/yes; rmdir w/no/deep; touch w/b")
    assert (here.home / "w/b").exists() and sorted(p.name for p in (here.home / "w/no").iterdir()) == ["deep"], done.stderr
    assert not any((here.home / "w/no/deep").iterdir())


def test_what_is_denied_and_not_there_does_not_come_into_being(here):
    here.folder("w")
    done = here.sh(settings(write=["w"], deny_write=["w/new/file"]), "mkdir -p w/new; touch w/new/file; rm -rf w/new; mv w/new w/x; echo end")
    assert done.stdout == "end\n" and not list((here.home / "w").iterdir()), done.stderr


@pytest.mark.parametrize("path", MANDATORY)
def test_what_others_obey_is_never_written_nor_made(here, path):
    here.folder("w/.git")
    line = f"mkdir -p $(dirname w/{path}); echo evil > w/{path}; rm -rf w/{path}; echo evil > evil; mv evil w/{path}; ln -s /x w/{path}; echo ok > w/fine"
    here.sh(settings(write=["w"]), line)
    assert (here.home / "w/fine").exists()
    assert [p.name for p in (here.home / "w").iterdir() if p.name != ".git"] == ["fine"], "nothing is left behind"
    assert not list((here.home / "w/.git").iterdir())


@pytest.mark.parametrize("path", MANDATORY)
def test_what_others_obey_stays_as_it_is(here, path):
    here.folder("w/.git/refs")
    here.file(f"w/{path}", "good")
    top = path.split("/")[0]
    line = f"echo evil > w/{path}; rm -f w/{path}; mv w/{top} w/away; rm -rf w/{top}; mv w/.git w/gone; mkdir -p w/.git/refs; touch w/.git/refs/ok"
    here.sh(settings(write=["w"]), line)
    assert (here.home / "w" / path).read_text() == "good" and (here.home / "w/.git/refs/ok").exists()


def test_what_others_obey_is_found_three_levels_down(here):
    here.file("w/a/b/.git/hooks/pre-commit", "good")
    here.sh(settings(write=["w"]), "echo evil > w/a/b/.git/hooks/pre-commit; mv w/a/b w/c; mv w/a w/d; mkdir -p w/a/b/.git/hooks; "
                                   "echo evil > w/a/b/.git/hooks/pre-commit; touch w/a/b/fine")
    assert (here.home / "w/a/b/.git/hooks/pre-commit").read_text() == "good" and (here.home / "w/a/b/fine").exists()


def test_a_link_that_others_obey_is_not_replaced(here):
    here.file("w/dots/rc", "good")
    (here.home / "w/.bashrc").symlink_to("dots/rc")
    (here.home / "w/.mcp.json").symlink_to("nowhere")
    here.sh(settings(write=["w"]), "echo evil > w/.bashrc; rm -f w/.bashrc; echo evil > w/.bashrc; rm -f w/.mcp.json; echo evil > w/.mcp.json; echo evil > w/nowhere")
    assert (here.home / "w/.bashrc").is_symlink() and (here.home / "w/.mcp.json").is_symlink()
    assert (here.home / "w/.bashrc").read_text() == "good"


def test_two_at_once_share_what_is_put_down(here):
    here.folder("w")
    first = subprocess.Popen(here.argv(settings(write=["w"]), "sh", "-c", "echo there; read line; touch w/.mcp.json && echo BAD"), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, cwd=here.home, env=here.environment(), text=True)
    assert first.stdout.readline() == "there\n"
    assert here.sh(settings(write=["w"]), "touch w/.mcp.json").returncode
    assert (here.home / "w/.mcp.json").is_dir()
    assert first.communicate("\n", timeout=60)[0] == ""
    assert not list((here.home / "w").iterdir())


def test_git_works_and_its_configuration_stays(here):
    here.folder("w")
    run = lambda line: here.sh(settings(write=["w"]), f"cd w && {line}")
    subprocess.run(here.argv(None, program="/usr/bin/git")[:-1] + ["git", "init", "-q", "w"], cwd=here.home, env=here.environment(), check=True)
    identity = "git -c user.name=a -c user.email=a@b"
    done = run(f"echo 1 > f && git add -A && {identity} commit -qm one && git status --porcelain && git log --oneline | wc -l")
    assert done.returncode == 0 and done.stdout == "1\n", done.stderr + done.stdout
    assert run("git config core.fsmonitor ./x").returncode
    assert run("echo 'echo pwned' > .git/hooks/pre-commit").returncode
    allowed = settings(write=["w"], filesystem={"allowGitConfig": True})
    assert here.sh(allowed, "cd w && git config a.b c").returncode == 0
    assert here.sh(allowed, "cd w && touch .git/hooks/x").returncode


@pytest.mark.parametrize("target", ["../outside", "/etc/passwd"])
def test_a_link_leads_nowhere_that_may_be_written(here, target):
    here.folder("w")
    here.file("outside", "good")
    done = here.sh(settings(write=["w"]), f"ln -s {target} w/l && echo evil > w/l; ln -s ../absent/x w/m; mkdir -p w/m; ln {target} w/h; echo evil >> w/h")
    assert (here.home / "outside").read_text() == "good" and not (here.home / "absent").exists() and "ead-only" in done.stderr


@pytest.mark.parametrize("how", ["dist", "*", "d*/", "./dist/**"])
def test_a_link_that_is_there_gives_no_more(here, how):
    """A repository of a stranger's, or one in which somebody worked before, has the links that they like."""
    here.folder("other/secret")
    here.folder("w/real")
    (here.home / "w/dist").symlink_to(here.home / "other")
    done = here.sh(settings(write=[how]), "echo evil > ../other/a; touch real/b", cwd=here.home / "w")
    assert not (here.home / "other/a").exists() and (here.home / "w/real/b").exists() == (how == "*"), done
    assert ("leads out of the working directory" in done.stderr) == (how in ("dist", "./dist/**")), done
    here.file("other/secret/key", "secret")
    done = here.sh(settings(deny_read=["~/other"], filesystem={"allowRead": [how]}), "cat ~/other/secret/key", cwd=here.home / "w")
    assert "secret" not in done.stdout, done
    here.folder("w/in")
    (here.home / "w/near").symlink_to("in")
    assert here.sh(settings(write=["near"]), "touch in/c", cwd=here.home / "w").returncode == 0


def test_a_directory_that_is_always_written_is_no_link_of_others(here):
    place = Path("/tmp/claude")
    if place.exists() or place.is_symlink():
        pytest.skip("/tmp/claude is there")
    here.folder("precious")
    place.symlink_to(here.home / "precious")
    try:
        assert here.sh(settings(), "echo evil > precious/a").returncode
    finally:
        place.unlink()
    assert not (here.home / "precious/a").exists()


def test_denied_reading(here):
    here.file("s/key", "secret")
    here.file("s/open/a", "public")
    here.file("w/.env", "secret")
    denied = settings(write=["w"], deny_read=["s", "s/key", "**/.env"], filesystem={"allowRead": ["s/open"]})
    done = here.sh(denied, "cat s/key w/.env; ls s; cat s/open/a; echo x > w/.env; echo x > s/key; rm -rf s; cat /proc/self/root$PWD/s/key")
    assert done.stdout == "public" and "secret" not in done.stderr
    assert (here.home / "w/.env").read_text() == "secret" and (here.home / "s/key").exists()
    assert here.sh(settings(deny_read=["s"]), "ls s").returncode
    here.file("w/shared", "secret")
    here.folder("w/deep")
    (here.home / "w/deep/.env").symlink_to("../shared")
    assert "secret" not in here.sh(settings(deny_read=["**/.env"]), "cat w/deep/.env w/shared").stdout


def test_what_is_denied_stays_where_the_next_box_finds_it(here):
    """Whoever could move it away, or a link to it, would read or write it in the box after this one."""
    for path in "w/a/key", "w/b/one.key", "far/key", "w/secret/masked":
        here.file(path, "secret")
    here.file("w/c/file", "good")
    (here.home / "w/linked").symlink_to("../far/key")
    denied = settings(write=["w"], deny_read=["w/a/key", "w/b/*.key", "w/linked"], deny_write=["w/c/*"], allow=["api.test"],
                      credentials={"files": [{"path": "w/secret/masked", "mode": "mask", "injectHosts": ["api.test"]}]})
    done = here.sh(denied, "mv w/a w/x; mv w/b w/y; mv w/c w/z; mv w/secret w/v; rm -f w/linked; touch w/fine; mkdir w/a/other")
    assert (here.home / "w/fine").exists() and (here.home / "w/a/other").exists(), done.stderr
    done = here.sh(denied, "cat w/*/* far/key w/linked; echo evil > w/c/file; echo evil > w/z/file")
    assert "secret" not in done.stdout and (here.home / "w/c/file").read_text() == "good", done
    (here.home / "w/way").symlink_to("a")
    assert "leads over a link that could be replaced" in here.sh(settings(write=["w"], deny_read=["w/way/key"]), "true").stderr
    assert here.sh(settings(deny_read=["w/way/key"]), "cat w/a/key").returncode


def test_a_link_that_others_obey_shows_nothing_hidden(here):
    """A command may make it in a directory in which it is not looked for; the next box covers it."""
    here.file("far/off/key", "secret")
    here.folder("w/s")
    hidden = settings(write=["w"], deny_read=["far/off/key"])
    here.sh(hidden, "ln -s ../../far/off/key w/s/.bashrc")
    done = here.sh(hidden, "cat w/s/.bashrc; echo end")
    assert done.stdout == "end\n", done
    done = here.sh(settings(write=["w"], deny_read=["far"]), "cat w/s/.bashrc; echo end")
    assert done.stdout == "end\n", done


# Swaps a directory of its own and a link to what is none of its business, as fast as it can, until it is told that it is enough.
SWAP = """
import ctypes, os
os.mkdir("out")
os.symlink("../other", "link")
libc = ctypes.CDLL(None)
print("there", flush=True)
while not os.path.exists("enough"):
    for _ in range(1000):
        libc.renameat2(-100, b"out", -100, b"link", 2)
"""


def test_what_is_swapped_while_a_box_is_made_gives_no_more(here):
    here.folder("other")
    here.folder("w")
    swapper = subprocess.Popen(here.argv(settings(write=["."]), "python3", "-c", SWAP), stdout=subprocess.PIPE, cwd=here.home / "w", env=here.environment(), text=True)
    try:
        assert swapper.stdout.readline() == "there\n"
        made = 0
        for _ in range(300): # where it sees the link it is refused; with a network there is time between what is decided and what is done
            done = here.sh(settings(write=[".", "out"], allow=["api.test"]), "touch ../other/evil out/evil link/evil", cwd=here.home / "w")
            made += "ead-only" in done.stderr
            if made == 8:
                break
        assert made == 8, done
        assert not list((here.home / "other").iterdir())
    finally:
        here.file("w/enough")
        swapper.wait(60)


def test_what_may_be_written_below_what_may_not_be_read(here):
    here.file("key", "secret")
    here.folder("w")
    done = here.sh(settings(write=["~/w"], deny_read=["~"]), "cat ../key; touch a; pwd", cwd=here.home / "w")
    assert (here.home / "w/a").exists() and "secret" not in done.stdout, done.stderr


def test_temporary_files_work(here):
    done = here.sh(settings(), 'f=$(mktemp) && echo a > "$f" && cat "$f" && echo b > /dev/shm/c && ls /dev/pts >&2')
    assert done.returncode == 0 and done.stdout == "a\n", done.stderr
    assert here.sh(settings(filesystem={"disabled": True}), "echo a > free").returncode == 0 and (here.home / "free").exists()


# Each closes a directory in one box, and opens it in the next, which could not look into it when it was made.
@pytest.mark.parametrize("closed, denied", [("w/a", "w/a/key"), ("w/a", "w/*/key"), ("w/a", "**/key"), ("w", "w/a/*"), ("w/a", "masked")])
@pytest.mark.parametrize("mode", [0, 0o100, 0o400])
def test_what_was_closed_is_not_read_by_who_opens_it(here, closed, denied, mode):
    here.file("w/a/key", "secret")
    if denied == "masked":
        hidden = settings(write=["w"], allow=["api.test"], credentials={"files": [{"path": "w/a/key", "mode": "mask", "injectHosts": ["api.test"]}]})
    else:
        hidden = settings(write=["w"], deny_read=[denied])
    assert here.sh(hidden, f"chmod {mode:o} {closed}").returncode == 0
    done = here.sh(hidden, f"chmod 755 {closed}; cat w/a/key; echo end")
    (here.home / closed).chmod(0o755)
    assert "secret" not in done.stdout, done


@pytest.mark.parametrize("closed", ["w/.git", "w", "w/b/.git", "w/b", "w/b/c/d", "w/b/c/d/.git"])
@pytest.mark.parametrize("mode", [0, 0o400, 0o555])
def test_what_was_closed_is_not_written_by_who_opens_it(here, closed, mode):
    for place in "w", "w/b", "w/b/c/d":
        here.file(f"{place}/.git/hooks/pre-commit", "good")
    (here.home / "w/.git/config").touch()
    denied = settings(write=["w"], deny_write=["w/b/c/fixed"])
    assert here.sh(denied, f"chmod {mode:o} {closed}").returncode == 0
    here.sh(denied, f"chmod 755 {closed}; for d in w w/b w/b/c/d; do echo evil > $d/.git/hooks/pre-commit; mkdir $d/.git/hooks; done; "
                    "echo evil > w/.git/config; echo evil > w/.mcp.json; echo evil > w/b/c/fixed")
    (here.home / closed).chmod(0o755)
    assert not [p for p in (here.home / "w").rglob("*") if p.is_file() and "evil" in p.read_text()]


def test_what_was_closed_does_not_come_into_being(here):
    here.folder("w/sub/.git")
    assert here.sh(settings(write=["w"]), "chmod 555 w/sub/.git w/sub").returncode == 0
    done = here.sh(settings(write=["."]), "chmod 755 . .git; mkdir .git/hooks; echo evil > .git/hooks/x; echo evil > .mcp.json", cwd=here.home / "w/sub")
    assert "is closed" in done.stderr, done.stderr
    assert not (here.home / "w/sub/.mcp.json").exists() and not (here.home / "w/sub/.git/hooks/x").exists()


def test_a_tree_that_is_too_deep_is_not_passed_over(here):
    path = here.folder("w")
    fd = os.open(path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=fd)
        above, fd = fd, os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(above)
    with open(os.open(".env", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd), "w") as file:
        file.write("secret")
    os.close(fd)
    hidden = settings(write=["w"], deny_read=["**/.env"])
    line = "cd w; for i in $(seq 300); do cd d; done; cat .env"
    assert "secret" not in here.sh(hidden, line, before=["prlimit", "--nofile=200"]).stdout


ELSEWHERE = """set -e; mkdir {home}/top {home}/part; mount --bind {home} {home}/top; mount --bind {home}/s/deep {home}/part
shift; exec "$@" """


def test_what_is_denied_is_denied_at_each_place_where_it_is_mounted(here):
    here.file("s/deep/key", "secret")
    here.file("token", "secret")
    here.file("w/fixed", "good")
    before = ["unshare", "-m", "sh", "-c", ELSEWHERE.format(home=here.home), "sh", "-"]
    line = "cat top/s/deep/key part/key top/token; echo evil > top/w/fixed; ls top/s part; echo end"
    denied = settings(write=["w", "top/w"], deny_read=["s"], deny_write=["w/fixed"], allow=["api.test"],
                      credentials={"files": [{"path": "token", "mode": "mask", "injectHosts": ["api.test"]}]})
    done = here.sh(denied, line, before=before)
    assert done.stdout == "end\n" and (here.home / "w/fixed").read_text() == "good", done
    for name in "top", "part":
        (here.home / name).rmdir()
    assert here.sh(settings(deny_read=["s"], write=["part"]), "cat part/key", before=before).stdout == "secret", "who names it means it"


def test_what_runs_on_the_machine_is_not_seen_in_another_procfs(here):
    (here.home / "proc").mkdir()
    before = ["unshare", "-m", "sh", "-c", f"mount -t proc proc {here.home}/proc; shift; exec \"$@\"", "sh", "-"]
    assert here.sh(settings(), "ls proc | grep -c '^[0-9]'", before=before).stdout == "0\n"


def test_a_lock_of_somebodys_keeps_nobody_waiting(here):
    """Whatever has the mode of what is put down could be that, and another command may have made it."""
    here.folder("w/sub")
    holder = subprocess.Popen(here.argv(settings(write=["w"]), "sh", "-c", "mkdir w/sub/.mcp.json; chmod 1555 w/sub/.mcp.json; "
                                        "exec flock w/sub/.mcp.json sh -c 'echo there; read line'"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              cwd=here.home, env=here.environment(), text=True)
    try:
        assert holder.stdout.readline() == "there\n"
        done = here.sh(settings(write=["."]), "true", cwd=here.home / "w/sub", timeout=20)
        assert (done.returncode, "busy" in done.stderr) == (125, True), done
    finally:
        holder.communicate("\n", timeout=60)


def test_a_fifo_in_the_place_of_a_masked_file_keeps_nobody_waiting(here):
    here.folder("w")
    masked = settings(write=["w"], allow=["api.test"], credentials={"files": [{"path": "w/key", "mode": "mask", "injectHosts": ["api.test"]}]})
    assert here.sh(masked, "mkfifo w/key").returncode == 0
    done = here.sh(masked, "true", timeout=20)
    assert (done.returncode, "w/key" in done.stderr) == (125, True), done


def test_git_finds_no_other_configuration(here):
    here.file("w/.git/config.worktree", "good")
    here.file("w/b/.git/HEAD", "good")
    made = here.file("w/c/.git/commondir", "good")
    assert here.sh(settings(write=["w"]), "echo evil > w/.git/config.worktree; mv w/.git/config.worktree w/x; echo evil > w/c/.git/commondir; "
                                          "for d in w w/b; do echo /evil > $d/.git/commondir; done; touch w/fine; chmod 555 w/b/.git w/b").returncode == 0
    assert (here.home / "w/.git/config.worktree").read_text() == "good" and made.read_text() == "good" and (here.home / "w/fine").exists()
    assert not (here.home / "w/.git/commondir").exists() and not (here.home / "w/b/.git/commondir").exists()
    assert here.sh(settings(write=["w"], filesystem={"allowGitConfig": True}), "echo more > w/.git/config.worktree").returncode == 0
