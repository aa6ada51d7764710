# SPDX-License-Identifier: Apache-2.0
import re

import pytest
from conftest import until
from e2b import CommandExitException, PtySize


def shown(handle):
    """Reads a terminal to its end: what it showed, and its exit code."""
    text = bytearray()
    try:
        code = handle.wait(on_pty=text.extend).exit_code
    except CommandExitException as error:
        code = error.exit_code
    return text.decode(), code


def test_a_terminal_is_one(box):
    handle = box.pty.create(PtySize(rows=24, cols=80), envs={"MARK": "set"}, cwd="/tmp")
    box.pty.send_stdin(handle.pid, b'tty; tput cols; tput lines; echo "$TERM $MARK $PWD"; exit 7\n')
    text, code = shown(handle)
    assert code == 7
    assert "\r\n80\r\n24\r\nxterm-256color set /tmp\r\n" in text


def test_a_terminal_can_be_resized(box):
    handle = box.pty.create(PtySize(rows=24, cols=80))
    box.pty.resize(handle.pid, PtySize(rows=50, cols=132))
    box.pty.send_stdin(handle.pid, b"stty size; exit\n")
    text, code = shown(handle)
    assert code == 0
    assert re.search(r"[\r\n]50 132\r", text)


def test_a_terminal_takes_another_client(box):
    handle = box.pty.create(PtySize(rows=24, cols=80))
    box.pty.send_stdin(handle.pid, b"KEPT=yes\n")
    handle.disconnect()
    again = box.pty.connect(handle.pid)
    box.pty.send_stdin(handle.pid, b'echo "kept $KEPT"; exit\n')
    text, code = shown(again)
    assert code == 0
    assert re.search(r"[\r\n]kept yes\r", text)


def test_input_of_a_terminal_can_be_one_stream(box):
    handle = box.pty.create(PtySize(rows=24, cols=80))
    box.pty.stream_input(handle.pid, [b"echo str", b"eam", b"ed\n", b"exit\n"])
    text, code = shown(handle)
    assert code == 0
    assert re.search(r"[\r\n]streamed\r", text)


def test_a_terminal_is_killed(box):
    handle = box.pty.create(PtySize(rows=24, cols=80))
    assert box.pty.kill(handle.pid) is True
    assert shown(handle)[1] == -1
    assert until(lambda: box.commands.list() == [])
    assert box.pty.kill(handle.pid) is False
    with pytest.raises(CommandExitException):
        box.commands.run(f"kill -0 {handle.pid}")
