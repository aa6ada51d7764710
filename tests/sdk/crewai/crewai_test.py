# SPDX-License-Identifier: Apache-2.0
"""CrewAI's agents and its tools for E2B, unchanged, which know Cove by environment variables alone. The model is a stand-in that says what is to be done."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "system"))
os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false") # read when it is imported

from code_test import service  # noqa: E402, F401
from service import wait_until  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def variables(service):  # noqa: F811
    os.environ.update(E2B_API_KEY=service.key, E2B_API_URL=service.url, E2B_SANDBOX_URL=service.url)
    os.environ.pop("E2B_DOMAIN", None)
    yield
    assert wait_until(lambda: not service.sandboxes()), "sandboxes that a tool left"


def test_an_agent_works_with_the_tools(tmp_path, monkeypatch):
    from crewai import Agent, BaseLLM, Crew, Task
    from crewai_tools import E2BExecTool, E2BFileTool, E2BPythonTool

    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path))
    files, commands, code = (kind(persistent=True) for kind in (E2BFileTool, E2BExecTool, E2BPythonTool))
    steps = iter([(files, '{"action": "write", "path": "/home/user/a.txt", "content": "kept"}'), (files, '{"action": "read", "path": "/home/user/a.txt"}'),
                  (commands, '{"command": "echo $((6 * 7))"}'), (code, '{"code": "x = 20"}'), (code, '{"code": "x + 1"}'), (code, '{"code": "1 / 0"}')])
    seen = []

    class Script(BaseLLM):
        def call(self, messages, *_, **__):
            seen.append("\n".join(str(message["content"]) for message in messages))
            tool, arguments = next(steps, (None, None))
            return f"Thought: go on\nAction: {tool.name}\nAction Input: {arguments}" if tool else "Thought: I now know the final answer\nFinal Answer: done"

        def supports_function_calling(self):
            return False

    agent = Agent(role="worker", goal="work", backstory="none", llm=Script(model="script"), tools=[files, commands, code], max_iter=20)
    try:
        assert Crew(agents=[agent], tasks=[Task(description="go", expected_output="done", agent=agent)]).kickoff().raw == "done"
    finally:
        for tool in (files, commands, code):
            tool.close()
    for wanted in ("kept", "'exit_code': 0, 'stdout': '42\\n'", "21", "ZeroDivisionError"):
        assert wanted in seen[-1], (wanted, seen[-1])


def test_each_call_may_have_a_sandbox_of_its_own():
    from crewai_tools import E2BExecTool, E2BPythonTool

    tool = E2BExecTool()
    assert tool.run(command="echo $HOME > a; cat a")["stdout"] == "/home/user\n" and tool.run(command="ls")["stdout"] == ""
    assert "42" in str(E2BPythonTool().run(code="6 * 7"))
