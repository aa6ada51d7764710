# SPDX-License-Identifier: Apache-2.0
"""cove exec, and the terminal that it connects."""

import json
import subprocess
import termios

import pytest
from service import wait_until
from terminal import Terminal


def test_exec_runs_in_the_same_sandbox(service, sandbox):
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo kept > f").returncode == 0
    assert service.cove("exec", sandbox[:8], "cat", "f").stdout == "kept\n"
    assert service.cove("exec", "-i", sandbox, "--", "wc", "-c", input="12345").stdout == "5\n"
    done = service.cove("exec", "--json", "-u", "root", "-w", "/", sandbox, "--", "sh", "-c", "pwd; id -un; exit 4")
    assert done.returncode == 4
    assert json.loads(done.stdout) == {"exit_code": 4, "signal": None, "reason": None, "truncated": False, "stdout": "/\nroot\n", "stderr": ""}


def test_exec_says_what_is_wrong(service, sandbox):
    assert service.cove("exec", sandbox).returncode == 2
    assert service.cove("exec").returncode == 2
    done = service.cove("exec", "i00000000000000000000", "--", "true")
    assert (done.returncode, "there is no sandbox" in done.stderr) == (125, True)
    done = service.cove("exec", "zzz", "--", "true")
    assert (done.returncode, "there is no sandbox zzz" in done.stderr, "cove ls" in done.stderr) == (125, True, True)
    done = service.cove("exec", "-t", sandbox, "--", "true")
    assert (done.returncode, "terminal" in done.stderr) == (2, True)
    done = service.cove("exec", "-u", "nobody-here", sandbox, "--", "true")
    assert (done.returncode, "nobody-here" in done.stderr) == (125, True)


@pytest.mark.parametrize("words, meant", [
    ("i3k -it -- bash", "-it i3k -- bash"), ("i3k -u root -w / -- ls -l", "-u root -w / i3k -- ls -l"), ("i3k -it bash -l", "-it i3k -- bash -l"),
    ("i3k -it", "-it i3k --"), ("i3k -it --", "-it i3k --"), ("i3k -e " + "x" * 300 + " -- ls", "-e ID -- COMMAND"),
])
def test_exec_says_where_options_go(service, words, meant):
    done = service.cove("exec", *words.split())
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"cove exec: options go before the id: cove exec {meant}")


def test_exec_runs_a_command_that_begins_with_a_dash(service, sandbox):
    made = service.cove("exec", "-u", "root", sandbox, "--", "sh", "-c", "printf '#!/bin/sh\necho dash\n' > /usr/local/bin/-it; chmod 755 /usr/local/bin/-it")
    assert made.returncode == 0
    assert service.cove("exec", sandbox, "--", "-it").stdout == "dash\n"


def test_exec_ends_when_its_sandbox_is_removed(service, sandbox):
    process = service.popen("exec", sandbox, "--", "sh", "-c", "echo up; sleep 100", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    assert service.cove("rm", sandbox).stdout == f"{sandbox}\n"
    assert process.wait(60) == 125
    assert b"ended" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


def test_exec_as_json_has_the_output_when_its_sandbox_is_removed(service, sandbox):
    process = service.popen("exec", "--json", sandbox, "--", "sh", "-c", "echo up; sleep 100", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    assert wait_until(lambda: "up" in service.cove("logs", sandbox).stdout)
    assert service.cove("rm", sandbox).returncode == 0
    out, err = process.communicate(timeout=60)
    result = json.loads(out)
    assert (process.returncode, result["reason"], result["exit_code"], result["stdout"]) == (125, "failed", None, "up\n")
    assert "ended" in json.loads(err)["error"]["message"]


def test_a_terminal_has_our_size_and_follows_it(service, sandbox):
    terminal = Terminal(service, "exec", "-it", sandbox, "--", "bash", "--norc")
    terminal.expect(b"$ ")
    terminal.send(b"stty size\r")
    terminal.expect(b"30 100\r\n")
    terminal.resize(41, 77)
    terminal.send(b"until stty size | grep '41 77'; do sleep 0.1; done; tty\r")
    terminal.expect(b"41 77\r\n")
    terminal.expect(b"/dev/pts/")
    terminal.send(b"exit 5\r")
    assert terminal.end() == (5, True)


def test_a_terminal_has_the_name_of_ours(service, sandbox):
    said = ("sh", "-c", 'echo "term=$TERM."')
    for flags, outside, inside in (((), "screen-256color", b"term=screen-256color."), ((), "../x", b"term=xterm."), (("-e", "TERM=dumb"), "linux", b"term=dumb.")):
        seen, status = Terminal(service, "exec", "-it", *flags, sandbox, "--", *said, term=outside).rest()
        assert (status, inside in seen) == (0, True), seen
    seen, status = Terminal(service, "run", "-it", "--", *said, term="vt100").rest()
    assert (status, b"term=vt100." in seen) == (0, True), seen
    assert service.cove("exec", sandbox, "--", *said, env={"TERM": "vt100"}).stdout == "term=.\n"


def test_a_command_knows_its_sandbox(service, sandbox):
    said = service.cove("exec", sandbox, "--", "env").stdout.splitlines()
    for prefix in ("COVE", "E2B"):
        assert [f"{prefix}_SANDBOX=true", f"{prefix}_SANDBOX_ID={sandbox}", f"{prefix}_TEMPLATE_ID=base"] == [line for line in said if line.startswith(prefix)], said
    assert service.cove("exec", "-e", "E2B_SANDBOX_ID=mine", sandbox, "--", "sh", "-c", "echo $E2B_SANDBOX_ID").stdout == "mine\n"


def test_control_c_on_a_terminal_is_the_commands(service):
    terminal = Terminal(service, "run", "-it", "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.1; done")
    terminal.expect(b"up\r\n")
    terminal.send(b"\x03")
    terminal.expect(b"caught\r\n")
    assert terminal.end() == (9, True)
    assert service.sandboxes() == []


def test_the_terminal_is_restored_when_the_sandbox_goes(service, sandbox):
    terminal = Terminal(service, "exec", "-it", sandbox, "--", "sleep", "100")
    assert wait_until(lambda: termios.tcgetattr(terminal.slave) != terminal.before)
    service.cove("rm", sandbox)
    assert terminal.end() == (125, True)
