# SPDX-License-Identifier: Apache-2.0
"""
Agent frameworks, unchanged, which know Cove by E2B's environment variables alone. Models are stand-ins that say what is to be done; the rest is the packages' own.
"""

import asyncio
import importlib.util
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "system"))
sys.path.append(str(Path(__file__).resolve().parent.parent))

from code_test import service  # noqa: E402, F401
from e2b import Sandbox  # noqa: E402
from installed import pip  # noqa: E402
from service import TOP, wait_until  # noqa: E402

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module", autouse=True)
def variables(service):  # noqa: F811
    """What a user sets. Sandboxes that a framework left are an error here."""
    before = dict(os.environ)
    os.environ.update(E2B_API_KEY=service.key, E2B_API_URL=service.url, E2B_SANDBOX_URL=service.url, OPENAI_AGENTS_DISABLE_TRACING="1",
                      AGNO_TELEMETRY="false", HAYSTACK_TELEMETRY_ENABLED="False")
    yield
    os.environ.clear()
    os.environ.update(before)
    assert wait_until(lambda: not service.sandboxes()), service.sandboxes() # the last ones are on their way out


def test_smolagents(service):  # noqa: F811
    from smolagents import ChatMessage, CodeAgent, Model
    from smolagents.models import MessageRole

    class Script(Model):
        steps = iter(["x = 6 * 7\nprint('x is', x)", "raise ValueError(x)", "final_answer({'x': x + 1})"])

        def generate(self, messages, **more):
            return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: go on.\n<code>\n{next(self.steps)}\n</code>")

    with CodeAgent(tools=[], model=Script(), executor_type="e2b", verbosity_level=0) as agent:
        # Its final answers want numpy and Pillow, which the tests' template is built without.
        agent.python_executor.sandbox.run_code("import sys\nclass No:\n    def __getattr__(self, name): return type(name, (), {})\nsys.modules.update({name: No() for name in ('numpy', 'PIL', 'PIL.Image')})")
        assert agent.run("compute") == {"x": 43}
        assert "x is 42" in agent.memory.steps[1].observations and "ValueError" in str(agent.memory.steps[2].error)


def test_deepagents_and_langchain():
    from deepagents import create_deep_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_e2b import E2BSandbox

    class Script(GenericFakeChatModel):
        def bind_tools(self, tools, **more):
            return self

    steps = [("write_file", {"file_path": "/home/user/a.py", "content": "print(6 * 7)\n"}), ("edit_file", {"file_path": "/home/user/a.py", "old_string": "6", "new_string": "8"}),
             ("execute", {"command": "python3 /home/user/a.py; exit 3"}), ("grep", {"pattern": "print", "path": "/home/user"}), ("glob", {"pattern": "*.py", "path": "/home/user"}),
             ("ls", {"path": "/home/user"}), ("read_file", {"file_path": "/home/user/a.py"})]
    said = [AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": str(i), "type": "tool_call"}]) for i, (name, args) in enumerate(steps)]
    box = Sandbox.create()
    try:
        backend = E2BSandbox(sandbox=box)
        done = create_deep_agent(model=Script(messages=iter([*said, AIMessage(content="done")])), backend=backend).invoke({"messages": [("user", "go")]})
        written, edited, executed, *found = [m.content for m in done["messages"] if m.type == "tool"]
        assert "a.py" in written and "1 instance" in edited and executed.startswith("56") and "3" in executed.splitlines()[-1]
        assert all("a.py" in text for text in found[:3]) and "print(8 * 7)" in found[3] and done["messages"][-1].content == "done"
        assert backend.upload_files([("/home/user/b", b"\0\xff")])[0].error is None
        there, missing = backend.download_files(["/home/user/b", "/home/user/none"])
        assert there.content == b"\0\xff" and missing.error == "file_not_found"
    finally:
        box.kill()


@pytest.mark.parametrize("kind", ["e2b", "e2b_code_interpreter"])
def test_openai_agents(kind):
    from agents.extensions.sandbox import E2BSandboxClient, E2BSandboxClientOptions

    async def use():
        client = E2BSandboxClient()
        session = await client.create(manifest=None, options=E2BSandboxClientOptions(sandbox_type=kind, exposed_ports=(8000,)))
        try:
            await session.start()
            done = await session.exec("echo $((6 * 7)); echo no >&2; exit 3", shell=True)
            assert (done.stdout, done.stderr, done.exit_code) == (b"42\n", b"no\n", 3)
            await session.write("a/b.txt", io.BytesIO(b"\0hello"))
            assert (await session.read("a/b.txt")).read() == b"\0hello"
            assert [Path(one.path).name for one in await session.ls("a")] == ["b.txt"]
            assert "8000" in (await session.resolve_exposed_port(8000)).host
            resumed = await client.resume(session.state)
            assert (await resumed.exec("cat a/b.txt", shell=True)).stdout == b"\0hello"
        finally:
            await session.stop()
            await client.delete(session)

    asyncio.run(use())


def test_haystack():
    from haystack_integrations.tools.e2b import E2BToolset

    tools = E2BToolset()
    tools.warm_up()
    by_name = {tool.name: tool for tool in tools.tools}
    assert "42" in by_name["run_bash_command"].invoke(command="echo $((6 * 7))")
    by_name["write_file"].invoke(path="/home/user/a", content="text")
    assert by_name["read_file"].invoke(path="/home/user/a") == "text" and "a" in by_name["list_directory"].invoke(path="/home/user").split()
    tools.close()


def test_agno():
    from agno.tools.e2b import E2BTools

    tools = E2BTools(timeout=120)
    assert "Result 1: 42" in tools.run_python_code("6 * 7") and "ZeroDivisionError" in tools.run_python_code("1 / 0")
    assert "hi" in tools.run_command("echo hi") and tools.write_file_content("a.txt", "text") and tools.read_file_content("a.txt") == "text"
    assert "a.txt" in tools.list_files("/home/user") and tools.get_public_url(8000).startswith("http://8000-")
    assert "success" in tools.shutdown_sandbox()


def test_google_adk():
    from e2b_adk import E2BPlugin

    async def use():
        plugin = E2BPlugin()
        tools = {tool.name: tool for tool in plugin.get_tools()}

        async def call(name, **args):
            return await tools[name].run_async(args=args, tool_context=None)

        assert (await call("run_code", code="6 * 7"))["text"] == "42" and "NameError" in (await call("run_code", code="x"))["error"]
        assert (await call("run_command", command="echo hi; exit 3"))["exit_code"] == 3
        await call("write_file", path="/home/user/a", content="text")
        assert (await call("read_file", path="/home/user/a"))["content"] == "text"
        assert "a" in [one["name"] for one in (await call("list_files", path="/home/user"))["entries"]]
        await plugin.close()

    asyncio.run(use())


@pytest.fixture(scope="module")
def fusion(service):  # noqa: F811
    """SandboxFusion's API by an address alone: the key is in it."""
    added = service.cove("template", "add", "run-code", "--build-arg", "LANGUAGES=bash", env={"COVE_TEMPLATES": str(TOP / "templates")})
    assert added.returncode == 0, added.stderr[-2000:]
    return f"http://x:{service.key}@127.0.0.1:{service.port}"


def test_sandbox_fusion(fusion):
    import sandbox_fusion as sdk

    sdk.set_endpoint(fusion)
    done = sdk.run_code(sdk.RunCodeRequest(code="print(open('a').read()); open('b', 'w').write('x')", language="python", files={"a": "aGk="}, fetch_files=["b"]))
    assert done.status == sdk.RunStatus.Success and done.run_result.stdout == "hi\n" and done.files == {"b": "eA=="}
    cells = sdk.run_jupyter(sdk.RunJupyterRequest(cells=["x = 1", "print(x + 1)", "x + 41", "y"], kernel="python3")).cells
    assert cells[1].stdout == "2\n" and cells[2].display == [{"text/plain": "42"}] and cells[3].error[0]["ename"] == "NameError"
    config = sdk.TestConfig(dataset_type="CommonOJDataset", language="python", provided_data={"id": 1, "test": [{"input": {"stdin": "2"}, "output": {"stdout": "4"}}]})
    assert sdk.submit(sdk.SubmitRequest(dataset="x", id=1, completion="```python\nprint(int(input()) * 2)\n```", config=config)).accepted
    assert not sdk.submit(sdk.SubmitRequest(dataset="x", id=1, completion="```python\nprint(5)\n```", config=config)).accepted


def test_verl(fusion, tmp_path):
    """Its reward function, out of its wheel: all of verl wants a GPU's worth of packages."""
    done = subprocess.run([*pip(), "download", "-q", "--no-deps", "--require-hashes", "-d", tmp_path, "-r", HERE / "verl.txt"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"verl can't be had: {done.stderr[-300:]}")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        spec = importlib.util.spec_from_file_location("verl_fusion", packed.extract("verl/utils/reward_score/sandbox_fusion/utils.py", tmp_path))
    verl = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(verl)

    def judge(code, inputs, outputs, timeout=10, **more):
        return verl.check_correctness(f"{fusion}/run_code", {"inputs": inputs, "outputs": outputs, **more}, code, timeout=timeout, memory_limit_mb=512, language="python")[0]

    assert judge("a, b = map(int, input().split())\nprint(a + b)", ["1 2\n", "3 4\n", "5 6"], ["3\n", "7\n", "12"]) == [True, True, False]
    assert judge("class Solution:\n    def add(self, a, b): return a + b", ["1\n2"], ["3"], fn_name="add") == [True]
    assert judge("while True: pass", [""], ["x"], timeout=2) == [-3] and judge("raise ValueError", [""], ["x"]) == [-2]
