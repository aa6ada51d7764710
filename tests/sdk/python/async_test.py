# SPDX-License-Identifier: Apache-2.0
"""The asynchronous SDK: it streams where the other one polls, and does several things on one loop."""

import asyncio
import re

import pytest
from e2b import AsyncSandbox, CommandExitException, FilesystemEventType, PtySize, TimeoutException


def with_sandbox(body):
    """Runs `body(sandbox)` on a loop of its own and kills the sandbox afterwards."""
    async def main():
        box = await AsyncSandbox.create(timeout=120)
        try:
            await asyncio.wait_for(body(box), 60)
        finally:
            await box.kill()
    asyncio.run(main())


def test_commands_run_side_by_side():
    async def body(box):
        results = await asyncio.gather(*(box.commands.run(f"sleep 0.2; echo {n}") for n in range(20)))
        assert [r.stdout for r in results] == [f"{n}\n" for n in range(20)]
    with_sandbox(body)


def test_a_command_is_followed_and_answered():
    async def body(box):
        seen = []
        command = await box.commands.run("echo first; read -r line; echo $line", background=True, stdin=True, on_stdout=seen.append)
        while "".join(seen) != "first\n":
            await asyncio.sleep(0.05)
        await box.commands.send_stdin(command.pid, "second\n")
        assert (await command.wait()).stdout == "first\nsecond\n"
    with_sandbox(body)


def test_a_command_is_killed_or_times_out():
    async def body(box):
        command = await box.commands.run("exec sleep 60", background=True)
        assert await command.kill() is True
        with pytest.raises(CommandExitException) as caught:
            await command.wait()
        assert caught.value.error == "signal: killed"
        with pytest.raises(TimeoutException):
            await box.commands.run("sleep 60", timeout=0.5)
    with_sandbox(body)


def test_a_watch_is_a_stream():
    async def body(box):
        await box.files.make_dir("w")
        seen = asyncio.Queue()
        watch = await box.files.watch_dir("w", on_event=seen.put_nowait, recursive=True)
        await box.files.write("w/a", "x")
        kinds = set()
        while kinds < {(FilesystemEventType.CREATE, "a"), (FilesystemEventType.WRITE, "a")}:
            event = await seen.get()
            kinds.add((event.type, event.name))
        await watch.stop()
    with_sandbox(body)


def test_files_are_streamed():
    async def body(box):
        async def pieces():
            for n in range(100):
                yield f"{n}\n".encode() * 1000
        await box.files.write("lines", pieces())
        expected = b"".join([f"{n}\n".encode() * 1000 for n in range(100)])
        assert bytes(await box.files.read("lines", format="bytes")) == expected
        stream = await box.files.read("lines", format="stream")
        assert b"".join([chunk async for chunk in stream]) == expected
    with_sandbox(body)


def test_a_terminal_on_a_loop():
    async def body(box):
        text = bytearray()
        handle = await box.pty.create(PtySize(rows=24, cols=100), on_data=text.extend)
        await box.pty.send_stdin(handle.pid, b"tput cols; exit\n")
        assert (await handle.wait()).exit_code == 0
        assert re.search(rb"[\r\n]100\r", text)
    with_sandbox(body)
