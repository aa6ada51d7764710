# SPDX-License-Identifier: Apache-2.0
"""The desktop by E2B's SDK from its package: a window is opened, written into and seen; its stream speaks VNC. Screenshots are left in build/test/desktop."""

import base64
import http.client
import json
import os
import subprocess

import pytest
from conftest import environment
from service import BUILD

SEEN = BUILD / "test" / "desktop"
PROGRAM = """
import json, sys, time
from pathlib import Path
from e2b_desktop import Sandbox
seen = Path(sys.argv[1])
desktop = Sandbox.create(template="desktop", resolution=(1024, 720))
def look(name):
    picture = bytes(desktop.screenshot())
    (seen / f"{name}.png").write_bytes(picture)
    return picture
def until(condition):
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.1)
empty = look("empty")
desktop.commands.run("touch /tmp/note.txt")
desktop.commands.run("DISPLAY=:0 mousepad /tmp/note.txt", background=True)
assert until(lambda: desktop.commands.run("DISPLAY=:0 xdotool search --onlyvisible --name note.txt || true").stdout.strip()), "no window"
time.sleep(1)
desktop.move_mouse(400, 300)
assert desktop.get_cursor_position() == (400, 300)
desktop.left_click()
desktop.write("typed by hand ")
assert until(lambda: look("written") != empty)
desktop.press(["ctrl", "s"])
saved = until(lambda: "typed by hand" in desktop.commands.run("cat /tmp/note.txt").stdout)
look("saved")
desktop.stream.start()
print(json.dumps({"id": desktop.sandbox_id, "saved": bool(saved), "size": desktop.get_screen_size(), "url": desktop.stream.get_url(),
                  "token": desktop._envd_access_token}))
"""


@pytest.fixture(scope="module")
def service(added):
    with added("desktop") as service:
        yield service


def test_a_desktop_is_worked_on(service, sdk):
    SEEN.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([sdk[0], "-c", PROGRAM, SEEN], env=environment(service), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["saved"] and told["size"] == [1024, 720] and told["url"].startswith(f"https://6080-{told['id']}."), told
    for name in ("empty", "written", "saved"):
        head = (SEEN / f"{name}.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n" and (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) == (1024, 720)

    # What a person's browser does who takes over: the page, then VNC in a WebSocket.
    headers = {"E2b-Sandbox-Id": told["id"], "E2b-Sandbox-Port": "6080"}
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("GET", "/vnc.html", headers=headers)
    assert b"noVNC" in connection.getresponse().read()
    connection.request("GET", "/websockify", headers={**headers, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                                                      "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(), "Sec-WebSocket-Protocol": "binary"})
    answer = connection.getresponse()
    assert answer.status == 101
    frame = answer.fp.read1(64) if not answer.closed else connection.sock.recv(64)
    assert frame == b"\x82\x0cRFB 003.008\n"
    connection.close()
