# SPDX-License-Identifier: Apache-2.0
"""The whole template of the code interpreter: six languages by E2B's SDKs from their packages, and what a slim one is too small for."""

import json
import subprocess
import threading
import time

import pytest
from code_box import Box
from conftest import environment


@pytest.fixture(scope="module")
def service(added):
    with added("code-interpreter") as service:
        yield service


@pytest.fixture
def box(service):
    box = Box(service)
    yield box
    box.call("DELETE", f"/sandboxes/{box.id}", None, {"X-API-KEY": service.key})


@pytest.mark.parametrize(("language", "keep", "again", "value"), [
    ("python", "x = 41", "x + 1", "42"), ("javascript", "const x = 41", "x + 1", "42"), ("typescript", "let x: number = 41", "x + 1", "42"),
    ("r", "x <- 41", "x + 1", "[1] 42"), ("java", "int x = 41;", "x + 1", "42"),
])
def test_languages_remember(box, language, keep, again, value):
    assert not [e for e in box.execute(keep, language=language) if e["type"] == "error"]
    assert box.text(again, language=language) == value


def test_r(box):
    assert box.one("stdout", 'cat("a"); cat("b\\n")', language="r")["text"] == "ab\n"
    assert box.one("stderr", 'warning("careful"); invisible(1)', language="r")["text"] == "Warning message:\ncareful\n"
    error = box.one("error", 'f <- function(n) log(n); f("a")', language="r")
    assert error["value"] == "non-numeric argument to mathematical function" and error["traceback"].startswith("Error in log(n): ")
    assert box.one("error", "1 +", language="r")["value"].startswith("<text>:2:0: unexpected end of input")
    figures = [e for e in box.execute("plot(1:3); hist(c(1, 2, 2))", language="r") if e["type"] == "result"]
    assert len(figures) == 2 and all(e["png"].startswith("iVBORw0KGgo") and not e["is_main_result"] for e in figures)
    assert box.text('Sys.getenv("A")', language="r", env_vars={"A": "it's"}) == '[1] "it\'s"'
    assert box.text('Sys.getenv("A", "none")', language="r") == '[1] "none"'
    assert box.one("stdout", 'sink("/tmp/x"); system("echo low")', language="r")["text"] == "low\n"
    assert box.one("stdout", "cat('sunk no more')", language="r")["text"] == "sunk no more"
    for end, told in (("quit(status = 3)", "status 3"), ("tools::pskill(Sys.getpid(), 9)", "signal 9")):
        assert told in box.one("error", end, language="r")["value"]
    assert box.text("1 + 1", language="r") == "[1] 2"


def test_java(box):
    loop = "int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }\nfor (int i = 0; i < 3; i++) System.out.println(f(i));\nf(20)"
    events = box.execute(loop, language="java")
    assert [e["text"] for e in events if "text" in e] == ["0\n1\n1\n", "6765"]
    assert box.one("error", "int y = ;", language="java")["name"] == "CompilationException"
    error = box.one("error", 'throw new IllegalStateException("boom");', language="java")
    assert (error["name"], error["value"]) == ("java.lang.IllegalStateException", "boom")
    assert box.one("error", "class A {", language="java")["name"] == "IncompleteSourceException"
    assert box.text('"a\\n\\"b\\""', language="java") == 'a\n"b"'
    assert box.text('System.getProperty("A")', language="java", env_vars={"A": "b"}) == "b"
    assert box.text('System.getProperty("A", "none")', language="java") == "none"
    assert "status 4" in box.one("error", "System.exit(4);", language="java")["value"]
    assert box.text("1 + 1", language="java") == "2"


@pytest.mark.parametrize(("language", "busy", "then"), [
    ("r", "while (TRUE) {}", "1 + 1"), ("r", "Sys.sleep(300)", "1 + 1"), ("java", "while (true) {}", "1 + 1"), ("java", "Thread.sleep(300000);", "1 + 1"),
    ("javascript", "while (true) {}", "1 + 1"), ("bash", "sleep 300", "echo 2"),
])
def test_a_client_that_leaves_interrupts(box, language, busy, then):
    box.execute({"bash": "kept=5", "java": "int kept = 5;"}.get(language, "kept = 5"), language=language)
    connection = box.connection()
    connection.request("POST", "/execute", json.dumps({"code": busy, "language": language}), {"Content-Type": "application/json", **box.headers})
    connection.getresponse().readline()
    time.sleep(0.5)
    connection.sock.close()
    connection.close()
    assert any("2" in e.get("text", "") for e in box.execute(then, language=language))
    told = box.execute("echo $kept" if language == "bash" else "kept", language=language)
    assert any("5" in e.get("text", "") for e in told), ("what it knew is there still", told)


def test_a_gigabyte_of_output_arrives(box):
    connection = box.connection()
    connection.request("POST", "/execute", json.dumps({"code": "s = 'x' * 10**6\nfor i in range(1000): print(s, end='')"}), {"Content-Type": "application/json", **box.headers})
    answer, n, last = connection.getresponse(), 0, b""
    while piece := answer.read(1 << 20):
        n += piece.count(b"xx") * 2 + piece.count(b'"x"')  # of odd pieces the rest is below what is asked for
        last = (last + piece)[-200:]
    assert n > 999_000_000 and last.endswith(b'{"type":"end_of_execution"}\n')
    assert box.text("1 + 1") == "2"


def test_figures_are_pictures_and_data(box):
    shown = box.one("result", "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='a'); plt.title('T'); plt.show()")
    assert shown["png"].startswith("iVBORw0KGgo") and shown["chart"]["type"] == "line" and shown["chart"]["elements"][0]["points"] == [[1.0, 3.0], [2.0, 4.0]]
    table = box.one("result", "import pandas as pd; pd.DataFrame({'a': [1, 2]})")
    assert table["data"] == {"a": [1, 2]} and "<table" in table["html"]


def test_contexts_run_side_by_side(box):
    made = [json.loads(box.call("POST", "/contexts", {})[1])["id"] for _ in range(10)]
    seen = {}
    threads = [threading.Thread(target=lambda i=i, c=c: seen.update({i: box.text(f"v = sum(range(10**5 + {i})); v", context_id=c)})) for i, c in enumerate(made)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {i: str(sum(range(10**5 + i))) for i in range(10)}


PYTHON = """
from e2b_code_interpreter import Sandbox
with Sandbox.create() as sandbox:
    seen = []
    done = sandbox.run_code("print('out'); x = 20; x + 1", on_stdout=lambda m: seen.append(m.line))
    assert done.text == "21" and done.logs.stdout == ["out\\n"] == seen, done
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.run_code("x", context=context).error.name == "NameError"
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    chart = sandbox.run_code("import matplotlib.pyplot as p; p.bar(['a', 'b'], [1, 2]); p.show()").results[0].chart
    assert [(e.label, e.value) for e in chart.elements] == [("a", 1.0), ("b", 2.0)], chart
    assert sandbox.run_code("getwd()", language="r").results[0].text == '[1] "/home/user"'
    assert sandbox.run_code('System.getProperty("user.dir")', language="java").text == "/home/user"
print("good")
"""
JAVASCRIPT = """
import assert from 'node:assert'
import { Sandbox } from '@e2b/code-interpreter'
const sandbox = await Sandbox.create()
try {
  assert.equal((await sandbox.runCode('x = 20; x + 1')).text, '21')
  const context = await sandbox.createCodeContext({ language: 'javascript' })
  assert.equal((await sandbox.runCode('const y = await Promise.resolve(7); y', { context })).text, '7')
  const failed = await sandbox.runCode('1 / 0')
  assert.equal(failed.error.name, 'ZeroDivisionError')
  const out = []
  await sandbox.runCode('echo one; echo two >&2', { language: 'bash', onStdout: (m) => out.push(m.line), onStderr: (m) => out.push(m.line) })
  assert.deepEqual(out.sort(), ['one\\n', 'two\\n'])
} finally {
  await sandbox.kill()
}
console.log('good')
"""


def test_by_the_python_package(service, sdk):
    done = subprocess.run([sdk[0], "-c", PYTHON], env=environment(service), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "good\n", done.stderr[-3000:]


def test_by_the_javascript_package(service, sdk):
    (sdk[1] / "code.mjs").write_text(JAVASCRIPT)
    done = subprocess.run(["node", sdk[1] / "code.mjs"], env=environment(service, PATH=sdk[2]), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "good\n", done.stderr[-3000:]
