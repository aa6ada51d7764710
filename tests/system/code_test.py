# SPDX-License-Identifier: Apache-2.0
"""
The code interpreter from outside, over E2B's port and OpenSandbox's routes: what cells leave behind, and what they may do to their runner.

Its template (which sets COVE_CODE) is built here with Python and Bash alone and without numpy, pandas and matplotlib, from packages that pip fetches outside of any sandbox; where the
registry can't be reached the tests are skipped.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import recipes
from client import Client
from code_box import Box
from leaks import own_service, rss_kib
from service import TOP, wait_until

SDK = TOP / "tests" / "sdk"
sys.path.append(str(SDK))
from installed import Unreachable, python_packages  # noqa: E402


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    try:
        env = recipes.prepared("code-interpreter", tmp_path_factory.mktemp("recipes"), "requirements-python.txt")
    except recipes.Unreachable as why:
        pytest.skip(str(why))
    with own_service("code", **env) as service:
        listed = service.cove("template", "add", "--list")
        assert listed.stdout.splitlines()[1].split()[:3] == ["code-interpreter", "2", "-"], listed
        for recipe in sorted(one.name for one in (TOP / "templates").iterdir()):  # none is there yet, and each is told how to be had
            refused = Client(service.port, service.key).control("POST", "/v2/sandboxes", {"templateID": recipe})
            assert refused.status == 404 and refused.json["message"].endswith(f": cove template add {recipe}"), refused
        added = service.cove("template", "add", "code-interpreter", "--build-arg", "LANGUAGES=python bash", "--build-arg", "USUAL=")
        assert added.returncode == 0, added.stderr[-2000:]
        assert "is here already" in service.cove("template", "add", "code-interpreter").stderr
        assert service.cove("template", "add", "--list").stdout.splitlines()[1].split()[:3] == ["code-interpreter", "2", "2"]
        yield service


@pytest.fixture
def box(service):
    box = Box(service)
    yield box
    service.remove_all()


def test_a_context_remembers(box):
    assert box.text("x = 20; x + 1") == "21"
    assert box.text("x") == "20" and box.one("number_of_executions", "x")["execution_count"] == 3
    assert [e["text"] for e in box.execute("for i in range(3): print(i)") if e["type"] == "stdout"] == ["0\n1\n2\n"]
    assert box.one("stderr", "import os; os.system('echo low >&2');")["text"] == "low\n"
    assert box.one("stdout", "print('\u00e9\U0001f600')")["text"] == "\u00e9\U0001f600\n"
    assert box.one("error", "1/0")["name"] == "ZeroDivisionError"
    assert box.one("error", "input()")["name"] == "StdinNotImplementedError"
    assert box.one("result", "from IPython.display import JSON; JSON({'a': [1]})")["json"] == {"a": [1]}
    assert box.text("await __import__('asyncio').sleep(0, 7)") == "7"
    assert box.text("import os; os.environ['A'], os.getcwd()", env_vars={"A": "b"}) == "('b', '/home/user')"
    assert box.text("str(os.environ.get('A'))") == "None"
    assert box.one("stdout", "cd /tmp; y=5; pwd", language="bash")["text"] == "/tmp\n"
    assert box.one("stdout", "echo $y $PWD $B", language="bash", env_vars={"B": "it's"})["text"] == "5 /tmp it's\n"


def test_contexts_are_made_restarted_and_removed(box):
    first = [c["language"] for c in box.contexts()]
    assert first == ["python"]
    status, body = box.call("POST", "/contexts", {"language": "python", "cwd": "/root"})
    assert status == 200
    made = json.loads(body)
    assert made["cwd"] == "/root" and [c["id"] for c in box.contexts()][1:] == [made["id"]]
    assert box.text("import os; z = 1; os.getcwd()", context_id=made["id"]) == "/root"
    assert box.one("error", "z")["name"] == "NameError", "contexts know nothing of each other"
    assert box.call("POST", f"/contexts/{made['id']}/restart") == (200, b"null")
    assert box.one("error", "z", context_id=made["id"])["name"] == "NameError"
    assert box.call("DELETE", f"/contexts/{made['id']}") == (200, b"null")
    assert box.call("DELETE", f"/contexts/{made['id']}")[0] == 404
    assert box.call("POST", "/execute", {"code": "1", "context_id": made["id"]})[0] == 404
    assert box.call("POST", "/execute", {"code": "1", "context_id": "a", "language": "python"})[0] == 400
    assert box.call("POST", "/contexts", {"cwd": "/not/there"})[0] == 500
    assert len(box.contexts()) == 1


def test_what_is_not_there_says_so(box):
    for language in ("r", "java", "javascript", "cobol", "x" * 5000, "../../bin/sh"):
        status, body = box.call("POST", "/execute", {"code": "1", "language": language})
        assert status == 500 and b"is not in this template; there is python bash" in body
    for body in ({}, {"code": 1}, {"code": "1", "env_vars": {"A=B": "c"}}, {"code": "1", "env_vars": []}):
        status, _ = box.call("POST", "/execute", body)
        assert status in (422, 500), body
    for token in (None, "x" * 40):
        headers = {k: v for k, v in {**box.headers, "X-Access-Token": token}.items() if v}
        assert box.call("POST", "/execute", {"code": "1"}, headers)[0] == 401
    assert box.call("GET", "/nothing")[0] == 404


def test_a_runner_that_dies_is_told_and_comes_back(box):
    status, body = box.call("POST", "/contexts", {})
    other = json.loads(body)["id"]
    assert status == 200 and box.text("k = 3; k", context_id=other) == "3"
    for code in ("import os; os.kill(os.getpid(), 9)", "import os; os._exit(3)", "import ctypes; ctypes.string_at(0)", "exit()",
                 "import os; os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)"):
        error = box.one("error", code)
        assert error["name"] == "UnexpectedEndOfExecution" and "the runner" in error["value"], error
        assert box.text("1 + 1") == "2"
    assert "out of memory" in box.one("error", "x = b'1' * (1 << 40) if False else bytearray(3 << 30)")["value"]
    assert box.text("k", context_id=other) == "3", "nothing is lost in another context"
    assert "UnexpectedEndOfExecution" in str(box.execute("kill -9 $$", language="bash"))
    assert box.one("stdout", "echo hi", language="bash")["text"] == "hi\n"


@pytest.mark.parametrize("code", [
    "import sys; sys.stdout = sys.stderr = None",
    "import sys; sys.stdout.close = None; sys.__stdout__ = None; import os; os.close(1); os.close(2)",
    "import os, struct; [os.write(fd, struct.pack('<IBQ', 8, 7, 1)) for fd in (1, 2)]",
    "import os\nif os.fork() == 0:\n    import time\n    time.sleep(300)",
    "import os; os.system('sleep 300 &')",
    "import socket\nfor port in (49999, 49983, 44772):\n    try: socket.create_connection(('127.0.0.1', port), 2).sendall(b'\\xff' * 9999)\n    except OSError: pass",
    "import threading, time; threading.Thread(target=lambda: [time.sleep(.05) or print('late') for _ in range(20)]).start()",
])
def test_what_a_cell_does_to_its_runner(box, code):
    box.execute(code)
    assert box.text("6 * 7") == "42"


def test_frames_that_lie_end_the_context_and_no_other(box):
    other = json.loads(box.call("POST", "/contexts", {})[1])["id"]
    forge = """
import os, struct
for fd in os.listdir('/proc/self/fd'):
    if fd not in '012':
        try: os.write(int(fd), %s)
        except OSError: pass
import time; time.sleep(5)
"""
    for lie in ("b'\\xff' * 64", "struct.pack('<IB', 3, 99) + b'abc'", "struct.pack('<IBI', 4, 2, 1 << 31)"):
        assert box.one("error", forge % lie)["name"] == "UnexpectedEndOfExecution"
        assert box.text("1 + 1") == "2"
    box.execute(f"open('/home/user/liar.py', 'w').write({forge % lie!r})")
    assert box.one("error", "import sys; sys.path.insert(0, '/home/user'); import liar")["name"] == "UnexpectedEndOfExecution"
    assert box.text("8", context_id=other) == "8"
    assert box.one("stdout", "print('{\"type\":\"end_of_execution\"}')")["text"] == '{"type":"end_of_execution"}\n'


def test_output_is_bounded(service, box):
    api = service.child("cove-api")
    before = rss_kib(api)
    connection = box.connection()
    connection.request("POST", "/execute", json.dumps({"code": "s = 'x' * 1000\nfor i in range(1000000): print(s)"}),
                       {"Content-Type": "application/json", **box.headers})
    answer, n, most = connection.getresponse(), 0, 0
    while piece := answer.read(1 << 20):
        n += len(piece)
        most = max(most, rss_kib(api))
        if n > 300_000_000: # the rest would be the same: the client leaves
            connection.sock.close()
            break
    connection.close()
    assert most - before < 64 * 1024, (before, most)
    assert box.text("1 + 1") == "2"
    for kind, value in (("html", "'y' * (100 << 20)"), ("png", "b'\\x89PNG' + bytes(100 << 20)")):
        events = box.execute(f"class A:\n    def _repr_{kind}_(self): return {value}\nA()")
        assert "bytes are too many for a result" in str(events) and [e["type"] for e in events].count("result") == 1


FORGED = """
import os, struct
def text(s): return struct.pack('<I', len(s)) + s
def forge(kind, payload, n=1):
    frames = (struct.pack('<IB', len(payload), kind) + payload) * n
    for fd in os.listdir('/proc/self/fd'):
        if fd not in '012':
            try:
                rest = frames
                while rest: rest = rest[os.write(int(fd), rest):]
            except OSError: pass
"""


def test_forged_results_cost_the_service_no_memory(service, box):
    api = service.child("cove-api")
    flood = FORGED + """
for _ in range(8):
    forge(5, text(b'E') + text(b'') + text(b'\\n' * (1 << 20)))
    forge(4, struct.pack('<BI', 0, 1) + text(b'application/json') + text(b'[' + b'[],' * (1 << 20) + b'1]'))
forge(4, struct.pack('<BI', 0, 0), 500000)
"""
    with open(f"/proc/{api}/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    before = rss_kib(api)
    status, body = box.call("POST", "/run_jupyter", {"cells": [flood, "print(6 * 7)"], "total_timeout": 100}, {"X-API-KEY": service.key})
    answer = json.loads(body)
    assert status == 200 and answer["status"] == "Success" and answer["cells"][1]["stdout"] == "42\n", answer["message"]
    assert answer["cells"][0]["error"][0]["ename"] == "E" and len(body) < 20 << 20, "as much as fits is told"
    with open(f"/proc/{api}/status") as file:
        peak = int(re.search(r"^VmHWM:\s+(\d+)", file.read(), re.M)[1])
    assert service.child("cove-api") == api and peak - before < 64 << 10, (before, peak)


def test_a_record_says_nothing_twice(service, box):
    box.execute(FORGED + "forge(5, text(b'Forged') + text(b'one') + text(b''), 3)\n"
                         "forge(4, struct.pack('<BI', 1, 2) + (text(b'text/plain') + text(b'x')) * 2, 3)\n1 / 0")
    def once(pairs):
        assert len({name for name, _ in pairs}) == len(pairs), pairs
        return dict(pairs)
    events = [json.loads(line, object_pairs_hook=once) for line in service.cove("log", box.id, "--json").stdout.splitlines()]
    done = [e["data"] for e in events if e["kind"] == "code.done"]
    assert (done[0]["error"], done[0]["text"]) == ("Forged", "x")


def test_a_client_that_leaves_interrupts_its_cell(box):
    for code in ("import time\nw = 5\nprint('on')\ntime.sleep(300)", "print('on')\nwhile True: pass"):
        connection = box.connection()
        connection.request("POST", "/execute", json.dumps({"code": code}), {"Content-Type": "application/json", **box.headers})
        answer = connection.getresponse()
        assert any(b"on\\n" in line for line in iter(answer.readline, b""))
        waits = box.connection() # behind it, and leaves as well
        waits.request("POST", "/execute", json.dumps({"code": "never = 1"}), {"Content-Type": "application/json", **box.headers})
        time.sleep(0.7)
        waits.sock.close()
        answer.close()
        connection.close()
        assert box.text("w") == "5" # and not after 300 s, or never
    assert box.one("error", "never")["name"] == "NameError"


def test_cells_of_a_context_wait_and_contexts_do_not(box):
    other = json.loads(box.call("POST", "/contexts", {})[1])["id"]
    seen = []
    waits = "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.05)\n"
    threads = [threading.Thread(target=lambda i=i: seen.append(box.text(f"{waits}v = {i}; v"))) for i in range(3)]
    for thread in threads:
        thread.start()
    assert box.text("open('/tmp/go', 'w').close(); 1", context_id=other) == "1"
    for thread in threads:
        thread.join()
    assert sorted(seen) == ["0", "1", "2"]


def test_contexts_have_a_limit(box):
    made = 0
    for _ in range(1000):
        status, body = box.call("POST", "/contexts", {"language": "bash"})
        made += status == 200
        assert status == 200 or (status == 429 and b"which is the limit" in body), body
    assert made == 63 and box.text("1") == "1"


def test_a_sandbox_made_ahead_has_its_first_context(service, box):
    """So the first cell of a new sandbox waits for no process."""
    def ready():
        return re.search(rb"^cove_spares [1-9]", box.call("GET", "/metrics", None, {"X-API-KEY": service.key})[1], re.M)
    assert service.cove("warm", "code-interpreter", "1").returncode == 0
    assert wait_until(ready), service.tail()
    quick = Box(service)
    assert quick.text("import os; os.getcwd()") == "/home/user"
    kinds = [(e["kind"], "start" in str(e["data"])) for e in map(json.loads, service.cove("log", quick.id, "--json").stdout.splitlines())]
    before = kinds[:[kind for kind, _ in kinds].index("code.run")]
    assert ("exec.start", True) in before and ("exec.start", True) not in kinds[len(before):]
    service.cove("warm", "code-interpreter", "0")


def test_cells_are_recorded(service, box):
    box.execute("print('out'); 5")
    box.one("error", "nope")
    events = [json.loads(line) for line in service.cove("log", box.id, "--json").stdout.splitlines()]
    runs, done = ([e["data"] for e in events if e["kind"] == kind] for kind in ("code.run", "code.done"))
    assert runs[0]["code"] == "print('out'); 5" and runs[0]["language"] == "python"
    assert done[0]["stdout_bytes"] == 4 and done[0]["text"] == "5" and done[1]["error"] == "NameError"


def test_programs_inside_see_that_it_is_there(service, box):
    ask = "curl -s -o /tmp/o -w '%{http_code}' http://127.0.0.1:49999/"
    assert wait_until(lambda: service.cove("exec", box.id, "--", "bash", "-c", f"{ask}health; cat /tmp/o").stdout == '200"OK"')
    assert service.cove("exec", box.id, "--", "bash", "-c", f"{ask}execute").stdout == "404", "cells come from outside alone"


def another_worker(service):
    worker = service.child("cove-api")
    os.kill(worker, signal.SIGKILL)
    assert wait_until(lambda: service.child("cove-api") not in (None, worker) and service.is_healthy())


def test_another_worker_takes_contexts_over(service, box):
    made = json.loads(box.call("POST", "/contexts", {"cwd": "/tmp"})[1])
    assert box.text("kept = 11; kept", context_id=made["id"]) == "11" and box.text("first = 12; first") == "12"
    another_worker(service)
    assert made in box.contexts()
    for _ in range(10): # each cell is the first thing that its worker is asked for
        another_worker(service)
        assert box.text("kept", context_id=made["id"]) == "11"
    another_worker(service)
    assert box.text("first") == "12"


def signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError): # of a box that was made ahead
            os.kill(pid, number)


def test_who_asks_for_contexts_waits_until_they_are_known(service, box):
    made = json.loads(box.call("POST", "/contexts", {"cwd": "/tmp"})[1])
    assert box.text("kept = 11; kept", context_id=made["id"]) == "11" and box.text("first = 12; first") == "12"
    agents = [pid for pid, name in service.processes().items() if name == "cove-agent"]
    seen, asks = [], (box.contexts, lambda: box.text("kept", context_id=made["id"]), lambda: box.text("first"))
    threads = [threading.Thread(target=lambda ask=ask: seen.append(ask())) for ask in asks]
    try:
        signal_all(agents, signal.SIGSTOP)
        another_worker(service)
        for thread in threads:
            thread.start()
        time.sleep(1)
        assert not seen and all(thread.is_alive() for thread in threads)
    finally:
        signal_all(agents, signal.SIGCONT)
    for thread in threads:
        thread.join()
    assert made in next(one for one in seen if isinstance(one, list)) and {"11", "12"} < {str(one) for one in seen}


def test_a_cell_of_a_worker_before_ends(service, box):
    connection = box.connection()
    connection.request("POST", "/execute", json.dumps({"code": "kept = 11\nprint('on')\nwhile True: print('x' * 5000)"}), {"Content-Type": "application/json", **box.headers})
    answer = connection.getresponse()
    assert any(b"on\\n" in line for line in iter(answer.readline, b""))
    another_worker(service) # within a frame
    connection.close()
    assert box.text("kept") == "11"


SLOW = """
import os, socket, struct, sys, time
sys.path.insert(0, sys.argv[1])
import zygote
class Slow(socket.socket):
    def accept(self):
        taken = super().accept()
        time.sleep(0.5)
        return taken
zygote.PLACE = sys.argv[2]
one = zygote.Zygote.__new__(zygote.Zygote)
listening, one.lock = zygote.listen()
one.socket, one.probes = Slow(fileno=listening.detach()), []
if one.fork():
    os._exit(0)
with socket.socket(socket.AF_UNIX) as peer:
    peer.connect(zygote.PLACE + "/zygote")
    peer.sendall(struct.pack("<I", os.getpid()))
    time.sleep(0.2)
    one.drop()
    sys.exit(len(peer.recv(4)) != 4)
"""


def test_a_fork_that_is_just_being_taken_is_kept(tmp_path):
    """When the zygote has imported all packages it makes a fork that has them in place of the one that waits."""
    done = subprocess.run([sys.executable, "-c", SLOW, TOP / "templates/code-interpreter/runners", tmp_path], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done


def test_the_same_by_opensandbox_s_package(service):
    try:
        binaries = python_packages("opensandbox", SDK / "opensandbox" / "requirements.txt")
    except Unreachable as why:
        pytest.skip(str(why))
    done = subprocess.run([binaries / "python", SDK / "opensandbox" / "interpreter.py", str(service.port), service.key],
                          env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done


def test_the_same_by_opensandbox(service, box):
    base = f"/v1/sandboxes/{box.id}/proxy/44772"
    headers = {"OPEN-SANDBOX-API-KEY": service.key}

    def run(body):
        status, answer = box.call("POST", f"{base}/code", body, headers)
        assert status == 200, answer
        return [json.loads(part) for part in answer.decode().split("\n\n") if part]
    status, body = box.call("POST", f"{base}/code/context", {"language": "python", "cwd": "/tmp"}, headers)
    context = json.loads(body)
    assert status == 200 and context["language"] == "python"
    events = run({"code": "print('a\\n\\nb'); 1 + 1", "context": {"id": context["id"]}})
    assert [e["type"] for e in events] == ["init", "execution_count", "stdout", "stdout", "stdout", "result", "execution_complete"]
    assert [e["text"] for e in events if e["type"] == "stdout"] == ["a", "\n", "b"] and events[5]["results"] == {"text": "2"}
    failed = run({"code": "nope", "context": {"language": "python"}})
    assert failed[-1]["type"] == "error" and failed[-1]["error"]["ename"] == "NameError"
    assert run({"code": "echo shell"})[2]["text"] == "shell"
    shown = json.loads(box.call("GET", f"{base}/code/contexts?language=python", None, headers)[1])
    assert context in shown and box.call("GET", f"{base}/code/contexts/{context['id']}", None, headers)[0] == 200

    connection = box.connection()
    connection.request("POST", f"{base}/code", json.dumps({"code": "import time; time.sleep(300)", "context": {"id": context["id"]}}),
                       {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    init = json.loads(answer.readline())
    time.sleep(0.5)
    assert box.call("DELETE", f"{base}/code?id=fake", None, headers)[0] == 500
    assert box.call("DELETE", f"{base}/code?id={init['text']}", None, headers)[0] == 200
    assert b"KeyboardInterrupt" in answer.read()
    assert box.call("DELETE", f"{base}/code/contexts/{context['id']}", None, headers)[0] == 200
    assert box.call("DELETE", f"{base}/code/contexts/{context['id']}", None, headers)[0] == 404
    assert box.call("DELETE", f"{base}/code/contexts", None, headers)[0] == 400


def test_events_of_opensandbox_wait_for_a_client_that_begins_to_read_late(service, box):
    target, headers = f"/v1/sandboxes/{box.id}/proxy/44772/code", {"Content-Type": "application/json", "OPEN-SANDBOX-API-KEY": service.key}
    before = rss_kib(service.child("cove-api"))
    connection = box.connection()
    connection.connect()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.request("POST", target, json.dumps({"code": "yes '' | head -c 300000"}), headers)
    time.sleep(4)
    assert rss_kib(service.child("cove-api")) < before + 8000
    kinds = [json.loads(event)["type"] for event in connection.getresponse().read().split(b"\n\n") if event]
    assert kinds.count("stdout") == 300000 and kinds[-1] == "execution_complete", kinds[-3:]
