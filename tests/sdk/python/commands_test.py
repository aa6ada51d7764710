# SPDX-License-Identifier: Apache-2.0
import os
import time

import pytest
from conftest import until
from e2b import CommandExitException, InvalidArgumentException, NotFoundException, SandboxException, TimeoutException
from e2b import AuthenticationException


def test_a_command_gives_its_output_and_exit_code(box):
    result = box.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code, result.error) == ("out\n", "err\n", 0, None)


def test_a_failing_command_says_how(box):
    with pytest.raises(CommandExitException) as caught:
        box.commands.run("echo before; echo why >&2; exit 42")
    error = caught.value
    assert (error.exit_code, error.stdout, error.stderr, error.error) == (42, "before\n", "why\n", "exit status 42")
    with pytest.raises(CommandExitException) as caught:
        box.commands.run("kill -KILL $$")
    assert (caught.value.exit_code, caught.value.error) == (-1, "signal: killed")


def test_output_is_streamed_while_the_command_runs(box):
    command = box.commands.run("echo first; read -r line; echo then $line", background=True, stdin=True)
    events = iter(command)
    assert next(events)[0] == "first\n"
    command.send_stdin("second\n")
    assert "".join(out for out, _, _ in events) == "then second\n"


def test_long_output_arrives_whole(box):
    seen = []
    box.commands.run("seq 1 300000; echo end >&2", on_stdout=seen.append)
    assert "".join(seen) == "".join(f"{n}\n" for n in range(1, 300_001))


def test_a_slow_reader_loses_nothing(box):
    command = box.commands.run("seq 1 400000", background=True)
    time.sleep(1)
    total = sum(len(out) for out, _, _ in command)
    assert total == sum(len(str(n)) + 1 for n in range(1, 400_001))


def test_a_command_starts_in_the_home_directory_or_where_it_is_told_to(box):
    assert box.commands.run("pwd").stdout == "/home/user\n"
    assert box.commands.run("pwd", cwd="/etc").stdout == "/etc\n"
    with pytest.raises(InvalidArgumentException, match="cwd '/no/where' does not exist"):
        box.commands.run("pwd", cwd="/no/where")


def test_variables_of_sandbox_and_command(make):
    box = make(envs={"SHARED": "sandbox", "MINE": "sandbox"})
    script = 'echo "$SHARED,$MINE,$ONCE"'
    assert box.commands.run(script, envs={"MINE": "command", "ONCE": "é $HOME"}).stdout == "sandbox,command,é $HOME\n"
    assert box.commands.run(script).stdout == "sandbox,sandbox,\n"


def test_commands_run_as_the_user_or_as_root(box):
    assert box.commands.run("id -un; echo $HOME").stdout == "user\n/home/user\n"
    assert box.commands.run("id -un; echo $HOME", user="root").stdout == "root\n/root\n"
    assert box.commands.run("sudo id -un").stdout == "root\n"
    with pytest.raises(AuthenticationException, match="invalid username: 'stranger'"):
        box.commands.run("id", user="stranger")


def test_a_command_that_takes_too_long_is_ended(box):
    with pytest.raises(TimeoutException):
        box.commands.run("echo $$ >pid; exec sleep 60", timeout=4)
    assert until(lambda: box.commands.list() == []), "it is still listed"
    with pytest.raises(CommandExitException):
        box.commands.run("kill -0 $(cat pid)")


def test_running_commands_are_listed_and_killed(box):
    command = box.commands.run("exec sleep 60", background=True, envs={"A": "b"}, cwd="/tmp")
    [listed] = box.commands.list()
    assert (listed.pid, listed.cmd, listed.args) == (command.pid, "/bin/bash", ["-l", "-c", "exec sleep 60"])
    assert (listed.envs, listed.cwd, listed.tag) == ({"A": "b"}, "/tmp", None)
    assert box.commands.kill(command.pid) is True
    with pytest.raises(CommandExitException):
        box.commands.run(f"kill -0 {command.pid}")
    assert box.commands.kill(command.pid) is False
    assert box.commands.kill(999_999) is False


def test_a_second_client_sees_a_running_command_through(box):
    first = box.commands.run('read -r line; echo "$line"; exit 3', background=True, stdin=True)
    second = box.commands.connect(first.pid)
    box.commands.send_stdin(first.pid, "to both\n")
    for handle in (first, second):
        with pytest.raises(CommandExitException) as caught:
            handle.wait()
        assert (caught.value.exit_code, caught.value.stdout) == (3, "to both\n")


def test_a_client_that_comes_late_learns_how_the_command_ended(box):
    command = box.commands.run("read -r line; exit 5", background=True, stdin=True)
    command.disconnect()
    box.commands.send_stdin(command.pid, "go\n")
    assert until(lambda: box.commands.list() == [])
    with pytest.raises(CommandExitException) as caught:
        box.commands.connect(command.pid).wait()
    assert caught.value.exit_code == 5
    with pytest.raises(NotFoundException, match="process with pid 999999 not found"):
        box.commands.connect(999_999)


def test_standard_input_takes_text_bytes_and_an_end(box):
    command = box.commands.run('cat | od -An -v -tx1 | tr -d " \\n"', background=True, stdin=True)
    data = os.urandom(5000)
    command.send_stdin("text é\n")
    command.send_stdin(data)
    command.close_stdin()
    assert command.wait().stdout == ("text é\n".encode() + data).hex()


def test_standard_input_can_be_one_stream(box):
    command = box.commands.run("sha256sum; echo end", background=True, stdin=True)
    box.commands.stream_input(command.pid, (f"{n}\n" for n in range(5000)))
    command.close_stdin()
    expected = box.commands.run("seq 0 4999 | sha256sum").stdout
    assert command.wait().stdout == expected + "end\n"
    with pytest.raises(NotFoundException):
        box.commands.stream_input(999_999, ["x"])


def test_without_standard_input_there_is_nowhere_to_write(box):
    command = box.commands.run("sleep 60", background=True)
    with pytest.raises(SandboxException, match="stdin"):
        box.commands.send_stdin(command.pid, "x")
