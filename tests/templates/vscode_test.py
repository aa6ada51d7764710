# SPDX-License-Identifier: Apache-2.0
"""The editor over its port, as a browser asks for it: the workbench's page, what that loads, the WebSocket that its windows work over, files."""

import base64
import http.client
import os
import re

import pytest
from service import wait_until


@pytest.fixture(scope="module")
def service(added):
    with added("vscode", asks_registries=True) as service:
        yield service


def test_the_editor_over_its_port(service):
    headers = {"E2b-Sandbox-Id": service.create(template="vscode"), "E2b-Sandbox-Port": "8080"}

    def get(target, **more):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        connection.request("GET", target, headers={**headers, **more})
        answer = connection.getresponse()
        return connection, answer, answer.read() if answer.status != 101 else b""
    assert wait_until(lambda: get("/healthz")[1].status == 200)
    _, answer, page = get("/?folder=/home/user")
    assert answer.status == 200 and b"workbench" in page and b"vscode-workbench-web-configuration" in page, page[:500]
    script = re.search(rb'src="\.?/?([^"]*workbench\.js)"', page)[1].decode()
    _, answer, code = get(f"/{script}")
    assert answer.status == 200 and len(code) > 1 << 20, (script, len(code))

    # What the page's script begins with: a WebSocket to the editor's own server, which speaks first or waits for a message of its own making.
    base = re.search(r"(stable-[0-9a-f]+)", script)[1]
    connection, answer, _ = get(f"/{base}?reconnectionToken=00000000-0000-4000-8000-000000000001&reconnection=false&skipWebSocketFrames=false",
                                Connection="Upgrade", Upgrade="websocket", **{"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode()})
    assert answer.status == 101 and answer.headers["Upgrade"].lower() == "websocket"
    connection.close()
