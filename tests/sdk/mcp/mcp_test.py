# SPDX-License-Identifier: Apache-2.0
"""MCP by its official SDKs, unmodified, and by its own conformance suite."""

import asyncio
import contextlib
import http.client
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent.parent
COVE = TOP / "build" / "cove"
NODE = Path(os.environ.get("MCP_NODE_PACKAGES", ""))
URL, KEY = os.environ["E2B_API_URL"] + "/mcp", os.environ["E2B_API_KEY"]
COMMAND_ENV = {**os.environ, "COVE_HOST": os.environ["E2B_API_URL"], "COVE_API_KEY": KEY}
TOOLS = 33


class Asked:
    """A person who allows, or doesn't."""

    def __init__(self, allows):
        self.allows, self.messages = allows, []

    async def __call__(self, context, params):
        self.messages.append(params.message)
        return ElicitResult(action="accept" if self.allows else "decline", content={"allow": True} if self.allows else None)


@contextlib.asynccontextmanager
async def client(how, mode, **more):
    if how == "stdio":
        async with Client(StdioServerParameters(command=str(COVE), args=["mcp"], env=COMMAND_ENV, cwd="/"), mode=mode, **more) as c:
            yield c
        return
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as web:
        async with Client(streamable_http_client(URL, http_client=web), mode=mode, **more) as c:
            yield c


def alive():
    listed = subprocess.run([COVE, "ls", "--json"], env=COMMAND_ENV, capture_output=True, text=True, timeout=30, check=True).stdout
    return {box["id"] for box in json.loads(listed)}


async def call(c, name, **arguments):
    result = await c.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def use(how, mode, version):
    person = Asked(True)
    async with client(how, mode, elicitation_callback=person) as c:
        assert c.protocol_version == version
        assert len((await c.list_tools()).tools) == TOOLS
        box = (await call(c, "sandbox_create", timeout_s=300))["sandbox"]
        try:
            ran = await call(c, "exec", sandbox=box, command="echo hi; echo no >&2; exit 3")
            assert (ran["exit_code"], ran["stdout"], ran["stderr"]) == (3, "hi\n", "no\n")
            seen = []

            async def progress(done, total, message):
                seen.append(message)

            await c.call_tool("exec", {"sandbox": box, "command": "echo one; sleep 0.5; echo two"}, progress_callback=progress)
            assert seen and seen[0] == "one\n"
            long = await call(c, "exec", sandbox=box, argv=["seq", "100000"])
            text, at = long["stdout"], long["next"]["stdout"]
            while at:
                more = await call(c, "exec_output", sandbox=box, exec=long["exec"], offset=at)
                text, at = text + more["output"], more["next"] if more["more"] else 0
            assert text == "".join(f"{i}\n" for i in range(1, 100001))
            await call(c, "file_write", sandbox=box, path="/tmp/a/b", content="one\ntwo\n")
            contents = (await c.read_resource(f"cove://{box}/files/tmp/a/b")).contents
            assert contents[0].text == "one\ntwo\n"
            assert (await c.call_tool("file_read", {"sandbox": box, "path": "/nowhere"})).is_error
            granted = await call(c, "request_grant", sandbox=box, hosts=["a.example"], ports=[443], reason="to see")
            assert granted["policy"]["rules"] == [{"allow": "a.example", "ports": [443]}]
            assert len(person.messages) == 1 and "a.example" in person.messages[0]
            person.allows = False
            refused = await c.call_tool("request_grant", {"sandbox": box, "hosts": ["b.example"], "reason": "to see"})
            assert refused.is_error and len(person.messages) == 2
            assert "b.example" not in json.dumps(await call(c, "policy_show", sandbox=box))
        finally:
            await call(c, "sandbox_kill", sandbox=box)
    async with client(how, mode) as c: # one that can't ask
        box = (await call(c, "sandbox_create", timeout_s=300))["sandbox"]
        try:
            refused = await c.call_tool("request_grant", {"sandbox": box, "hosts": ["b.example"], "reason": "to see"})
            assert refused.is_error and "cove policy allow" in refused.content[0].text
        except MCPError as error:
            assert error.code == -32021 and "cove policy allow" in str(error)
        await call(c, "sandbox_kill", sandbox=box)


@pytest.mark.parametrize("how", ["http", "stdio"])
@pytest.mark.parametrize("mode, version", [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
def test_python_sdk(how, mode, version):
    asyncio.run(asyncio.wait_for(use(how, mode, version), 120))


@pytest.mark.parametrize("where", [[URL, KEY], [str(COVE)]], ids=["http", "stdio"])
def test_typescript_sdk(where):
    done = subprocess.run(["node", NODE / "client.mjs", *where], env=COMMAND_ENV, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len(seen["tools"]) == TOOLS and "run_code" in seen["tools"] and "propose" not in seen["tools"]
    assert (seen["exec"]["exit_code"], seen["exec"]["stdout"]) == (3, "1\n2\n3\n4\n")
    assert seen["progress"] >= 2 and seen["denied"] is True and seen["file"] == "one\n" and seen["resources"] >= 1
    assert len(seen["asked"]) == 1 and seen["granted"]["granted"] is True
    assert seen["cancelled"] is True and seen["left"]["stdout"] == "0\n"
    end = time.monotonic() + 20 # it ends with its session
    while seen["sandbox"] in alive():
        assert time.monotonic() < end


class WithKey(http.server.BaseHTTPRequestHandler):
    """The suite sends no key: this adds it, and leaves everything else as it is."""

    protocol_version = "HTTP/1.1"

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = urlsplit(URL)
        connection = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
        connection.putrequest(self.command, target.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "transfer-encoding"):
                connection.putheader(name, value)
        connection.putheader("X-API-KEY", KEY)
        connection.endheaders(body)
        answer = connection.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(piece)
            self.wfile.flush()

    do_GET = do_POST = do_DELETE = forward

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("revision, passed, not_applicable", [("2025-11-25", 8, 25), ("2026-07-28", 11, 39)])
def test_conformance(revision, passed, not_applicable):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), WithKey)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/mcp"
    before = alive()
    done = subprocess.run(["node", NODE / "node_modules/@modelcontextprotocol/conformance/dist/index.js", "server", "--url", url, "--requirements", revision,
                           "--expected-failures", HERE / f"expected-{revision}.yml"], capture_output=True, text=True, timeout=300, check=False)
    server.shutdown()
    for box in alive() - before: # header validation calls the first tool that there is
        subprocess.run([COVE, "rm", box], env=COMMAND_ENV, capture_output=True, timeout=30, check=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    summary = done.stdout[done.stdout.index("=== SUMMARY ==="):]
    assert len(re.findall(r"^✓ ", summary, re.M)) == passed and len(re.findall(r"^✗ ", summary, re.M)) == not_applicable, summary


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
