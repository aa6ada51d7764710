# SPDX-License-Identifier: Apache-2.0
"""What bash, zsh and fish offer at a Tab, asked of the shells themselves; from a service that is none, whose ids may be anything."""

import json
import os
import pty
import re
import shutil
import subprocess

import pytest
from cli_hostile_test import Liar
from service import BUILD, wait_until

SHELLS = ("bash", "zsh", "fish")
IDS = ["i0" + "a" * 19, "i0" + "b" * 19, "i1" + "c" * 19]

BASH = r"""source {script}
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMP_LINE={line} COMP_POINT=${{#COMP_LINE}}
_cove
printf '%s\n' "${{COMPREPLY[@]}}" >{out}
"""

# All that is offered passes compadd: with -O into an array of ours in place of the list. Calls that only filter are let through.
ZSH = r"""PS1= RPS1= LISTMAX=0
autoload -Uz compinit && compinit -u -d {out}.dump
source {script}
function compadd {{
    local -a found
    if (( ! ${{@[(I)-[ADO]*]}} )); then
        builtin compadd -O found "$@"
        print -rl -- $found >>{out}
    fi
    builtin compadd "$@"
}}
function _offered {{ _main_complete; : >{out}.done }}
zle -C offered complete-word _offered
function _begun {{ BUFFER=$(<{out}.line); CURSOR=${{#BUFFER}}; zle offered; : >{out}.shown }}
zle -N zle-line-init _begun
"""

FISH = r"""source {script}
complete -C (cat {out}.line | string collect) | string replace -r '\t.*' '' >{out}
true
"""


def installed(shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")


class Shells:
    def __init__(self, liar, directory):
        self.liar, self.directory, self.out = liar, directory, directory / "offered"
        options = liar.options()
        self.env = {**{k: v for k, v in options["env"].items() if k not in ("ENV", "BASH_ENV", "ZDOTDIR", "FPATH")}, "PATH": f"{BUILD}:{os.environ['PATH']}",
                    "HOME": str(directory), "ZDOTDIR": str(directory), "XDG_CONFIG_HOME": str(directory), "XDG_DATA_HOME": str(directory), "TERM": "dumb"}
        (directory / "here").mkdir()
        for shell in SHELLS:
            done = subprocess.run([BUILD / "cove", "completion", shell], capture_output=True, timeout=60, check=True)
            (directory / f"cove.{shell}").write_bytes(done.stdout)

    def say(self, ids):
        body = json.dumps({"sandboxes": [{"id": id} for id in ids], "next": None}).encode()
        self.liar.answer_to = lambda path: (200, body)

    def program(self, text, **more):
        return text.format(script=self.directory / f"cove.{more.pop('shell')}", out=self.out, **more)

    def run(self, *command):
        done = subprocess.run(command, env=self.env, cwd=self.directory / "here", stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
        self.seen = done.stdout + done.stderr

    def bash(self, line):
        words = line.split(" ")
        self.run("bash", "--norc", "-c", self.program(BASH, shell="bash", words=" ".join(f"'{w}'" for w in words), line=f"'{line}'"))

    def fish(self, line):
        self.run("fish", "--no-config", "-c", self.program(FISH, shell="fish"))

    def zsh(self, line):
        """It completes on a terminal alone."""
        (self.directory / ".zshrc").write_text(self.program(ZSH, shell="zsh"))
        ours, theirs = pty.openpty()
        shell = subprocess.Popen(["zsh", "-d", "-i"], env=self.env, cwd=self.directory / "here", stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        try:
            done = wait_until(lambda: self.out.with_suffix(".shown").exists() or shell.poll() is not None)
            self.seen = os.read(ours, 1 << 20) if done else b""
            assert self.out.with_suffix(".done").exists(), self.seen
        finally:
            shell.kill()
            shell.wait(60)
            os.close(ours)

    def offer(self, shell, line):
        """What it offers for the last word of this line."""
        for suffix in ("", ".done", ".shown"):
            self.out.with_suffix(suffix).unlink(missing_ok=True)
        self.out.with_suffix(".line").write_text(line)
        getattr(self, shell)(line)
        last = line.split(" ")[-1]
        found = self.out.read_text().split("\n") if self.out.exists() else []
        return {word for word in found if word.startswith(last) and word}


@pytest.fixture
def shells(tmp_path):
    (tmp_path / "liar").mkdir()
    with Liar(tmp_path / "liar") as liar:
        shells = Shells(liar, tmp_path)
        shells.say(IDS)
        yield shells
        liar.shutdown()


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_accepted(shells, shell):
    installed(shell)
    done = subprocess.run([shell, "-n", shells.directory / f"cove.{shell}"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


LINES = {
    "cove l": {"ls", "logs", "log"},
    "cove ex": {"exec"},
    "cove run --mem": {"--memory"},
    "cove rm --a": {"--all"},
    "cove rm i0": set(IDS[:2]),
    f"cove rm {IDS[0]} i1": {IDS[2]},
    "cove exec i0": set(IDS[:2]),
    "cove exec -u root i0": set(IDS[:2]), # behind a value, which is no operand
    "cove exec --user i0": set(),
    f"cove exec {IDS[0]} mktem": {"mktemp"},
    f"cove exec {IDS[0]} ls --js": set(), # that program's, not ours
    "cove run mktem": {"mktemp"},
    "cove run ls --mem": set(),
    "cove cp i0": {f"{id}:" for id in IDS[:2]},
    "cove policy s": {"show", "set"},
    "cove policy show i1": {IDS[2]},
    "cove snapshot ": {"ls", "rm", *IDS},
    "cove snapshot l": {"ls"},
    "cove volume ": {"create", "ls", "rm"},
    "cove completion z": {"zsh"},
    "cove help ex": {"exec", "exit-codes"},
    "cove log --s": {"--service"},
}


@pytest.mark.parametrize("shell", SHELLS)
def test_all_shells_offer_the_same(shells, shell):
    installed(shell)
    for line, expected in LINES.items():
        found = shells.offer(shell, line)
        if shell == "zsh" and line.startswith("cove cp"):
            found = {f"{id}:" for id in found} # an ending that it adds by itself
        assert found == expected, (line, found, shells.seen)


@pytest.mark.parametrize("shell", SHELLS)
def test_files_where_files_can_be(shells, shell):
    installed(shell)
    (shells.directory / "here" / "policy.yaml").touch()
    for line in ("cove run --policy poli", "cove cp poli", "cove template build poli", "cove secret set -f poli"):
        found = shells.offer(shell, line)
        if shell == "bash": # which completes files where we have nothing to offer
            assert found <= {"policy.yaml"}, line
        else:
            assert found == {"policy.yaml"}, (line, shells.seen)


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_that_a_service_says_runs_or_is_shown(shells, shell):
    installed(shell)
    ran = shells.directory / "ran"
    ran.mkdir()
    evil = [f"i$(touch {ran}/a)", f"i`touch {ran}/b`", f"i$((x[$(touch {ran}/c)]))", "i';x", 'i"x', f"i;touch {ran}/d", f"i|x\ntouch {ran}/e\ni x", "i\x1b]0;owned\x07",
            "i\x1b[2Jx", "i\tx", "i x", "i*", "i?", "i(touch)", "i{a,b}", "i\\", "i~", "i\u202ex", f"i(touch {ran}/f)", f"i=(touch {ran}/g)", "-i", "i\x7f\x00"]
    shells.say([*evil, IDS[0]])
    for line in ("cove rm i", "cove cp i", "cove policy show i", "cove snapshot i"):
        found = {word.rstrip(":") for word in shells.offer(shell, line)}
        assert found == {IDS[0]}, (line, found)
        assert b"owned" not in shells.seen and b"\x1b[2Jx" not in shells.seen, (line, shells.seen)
    assert not os.listdir(ran) and os.listdir(shells.directory / "here") == []


def test_zsh_completes_at_the_first_tab_from_its_path(shells):
    """Installed as the help says, the script is loaded by the first completion, which it has to do as well."""
    installed("zsh")
    functions = shells.directory / "functions"
    functions.mkdir()
    (functions / "_cove").write_bytes((shells.directory / "cove.zsh").read_bytes())
    (shells.directory / "cove.zsh").write_text("")
    shells.env["FPATH"] = f"{functions}:" + subprocess.run(["zsh", "-fc", "print -n $FPATH"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert shells.offer("zsh", "cove ex") == {"exec"}, shells.seen


def test_zsh_says_what_a_value_is(shells):
    """Colons and brackets in its name have a meaning there."""
    installed("zsh")
    assert shells.offer("zsh", "cove run --volume ") == set()
    assert not re.search(rb"not found|PATH\[", shells.seen), shells.seen
