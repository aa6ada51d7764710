# SPDX-License-Identifier: Apache-2.0
"""What a sandbox goes through with whatever E2B SDK there is: each step and what it came to, as one line of JSON."""

import json
import socket
import sys
import time

real = socket.getaddrinfo


def lookup(host, *more, **options):
    """Names of the test's domain are this machine."""
    name = host.decode() if isinstance(host, bytes) else host
    return real("127.0.0.1" if name and name.endswith(".localhost") else host, *more, **options)


socket.getaddrinfo = lookup

from e2b import Sandbox  # noqa: E402  (after the names)

try:
    from e2b import PtySize
except ImportError:
    from e2b.sandbox.commands.command_handle import PtySize

OLD = not hasattr(Sandbox, "create") # 1.x: the constructor makes one


def create():
    return Sandbox(timeout=120) if OLD else Sandbox.create(timeout=120)


def files(box):
    box.files.make_dir("/home/user/made")
    box.files.write("/home/user/made/file.txt", "text")
    box.files.rename("/home/user/made/file.txt", "/home/user/made/other.txt")
    names = [entry.name for entry in box.files.list("/home/user/made")]
    text = box.files.read("/home/user/made/other.txt")
    box.files.remove("/home/user/made/other.txt")
    return [names, text, box.files.exists("/home/user/made/other.txt")]


def watch(box):
    handle, seen, end = box.files.watch_dir("/home/user/made"), [], time.monotonic() + 60
    box.files.write("/home/user/made/watched.txt", "x")
    while not seen and time.monotonic() < end:
        seen = handle.get_new_events()
    handle.stop()
    return seen[0].name


def terminal(box):
    handle, said = box.pty.create(PtySize(rows=24, cols=80)), b""
    box.pty.send_stdin(handle.pid, b"echo $((40 + 2))_; exit\n")
    for part in handle:
        said += part[2] or b""
    return b"42_" in said


def background(box):
    """As a tool that lets go of a command and finds it again."""
    pid = box.commands.run("sleep 60", background=True).pid
    return [pid in [p.pid for p in box.commands.list()], box.commands.kill(pid)]


def pause_and_resume(box):
    if not hasattr(box, "pause") and not hasattr(box, "beta_pause"):
        return "none"
    box.files.write("/home/user/kept", "kept")
    (box.pause if hasattr(box, "pause") else box.beta_pause)()
    again = Sandbox.resume(box.sandbox_id, timeout=120) if OLD and hasattr(Sandbox, "resume") else Sandbox.connect(box.sandbox_id)
    return again.files.read("/home/user/kept")


box = create()
done = {}
for name, step in {"run": lambda box: box.commands.run("echo hi").stdout, "files": files, "watch": watch, "terminal": terminal, "background": background,
                   "connect": lambda box: Sandbox.connect(box.sandbox_id).commands.run("echo again").stdout,
                   "pause": pause_and_resume, "kill": lambda box: [box.kill() is not False, box.is_running()]}.items():
    try:
        done[name] = step(box)
    except Exception as error: # what went wrong is the result
        done[name] = f"{type(error).__name__}: {error}"
print(json.dumps(done))
sys.exit(0)
