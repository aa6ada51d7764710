# SPDX-License-Identifier: Apache-2.0
"""PyPI's opensandbox-mcp over stdio, driven by PyPI's mcp: each of its tools."""

import asyncio
import os

from conftest import BIN
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

TOOLS = {"sandbox_create", "sandbox_connect", "sandbox_kill", "sandbox_get_info", "sandbox_list", "sandbox_renew", "sandbox_get_metrics", "sandbox_healthcheck",
         "command_run", "command_interrupt", "file_read", "file_write", "file_delete", "file_search", "file_create_directories", "file_delete_directories", "file_move",
         "file_replace_contents", "sandbox_get_endpoint"}


async def use(metadata):
    used = set()
    variables = {k: v for k, v in os.environ.items() if k.startswith("OPEN_SANDBOX_") or k in ("PATH", "HOME")}
    async with stdio_client(StdioServerParameters(command=str(BIN / "opensandbox-mcp"), env=variables)) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        assert {tool.name for tool in (await session.list_tools()).tools} == TOOLS

        async def call(name, **arguments):
            answer = await session.call_tool(name, arguments)
            failed = getattr(answer, "is_error", None) or getattr(answer, "isError", None)
            assert not failed, (name, answer)
            used.add(name)
            told = getattr(answer, "structured_content", None) or getattr(answer, "structuredContent", None)
            return told["result"] if set(told or ()) == {"result"} else told

        made = await call("sandbox_create", image="base", timeout_seconds=300, metadata=metadata)
        box = {"sandbox_id": made["sandbox_id"]}
        try:
            await call("sandbox_connect", **box)
            assert (await call("sandbox_get_info", **box))["status"]["state"] == "Running"
            assert [s["id"] for s in (await call("sandbox_list", filter={"metadata": metadata}))["sandbox_infos"]] == [made["sandbox_id"]]
            await call("sandbox_renew", timeout_seconds=500, **box)
            assert (await call("sandbox_get_metrics", **box))["memory_total_in_mib"] > 0
            assert (await call("sandbox_healthcheck", **box))["healthy"]
            assert (await call("sandbox_get_endpoint", port=8000, **box))["endpoint"].endswith("/proxy/8000")
            done = await call("command_run", command="echo hi; exit 3", **box)
            assert ([m["text"] for m in done["logs"]["stdout"]], done["exit_code"]) == (["hi"], 3)
            started = await call("command_run", command="sleep 1000", background=True, **box)
            await call("command_interrupt", execution_id=started["id"], **box)
            await call("file_create_directories", entries=[{"path": "/tmp/d"}], **box)
            await call("file_write", path="/tmp/d/a.txt", content="one\n", mode=644, **box)
            await call("file_replace_contents", entries=[{"path": "/tmp/d/a.txt", "old_content": "one", "new_content": "two"}], **box)
            await call("file_move", entries=[{"src": "/tmp/d/a.txt", "dest": "/tmp/d/b.txt"}], **box)
            assert (await call("file_read", path="/tmp/d/b.txt", **box))["content"] == "two\n"
            assert [f["path"] for f in await call("file_search", path="/tmp/d", pattern="*.txt", **box)] == ["/tmp/d/b.txt"]
            await call("file_delete", paths=["/tmp/d/b.txt"], **box)
            await call("file_delete_directories", paths=["/tmp/d"], **box)
            assert (await call("command_run", command="ls /tmp", **box))["logs"]["stdout"] == []
        finally:
            await call("sandbox_kill", **box)
    return used


def test_each_tool(unique):
    assert asyncio.run(use(unique)) == TOOLS
