# SPDX-License-Identifier: Apache-2.0
"""SandboxFusion's API from outside: programs, their files and limits, cells, the judge. The template is built with what the base template has already, so nothing is fetched."""

import base64
import concurrent.futures
import http.client
import json
import shutil

import pytest
from leaks import own_service, rss_kib
from service import SLACK, TOP, opened, wait_until

RECIPE = TOP / "templates" / "run-code"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    recipes = tmp_path_factory.mktemp("recipes")
    shutil.copytree(RECIPE, recipes / "run-code")
    with own_service("run-code") as service:
        service.env["COVE_TEMPLATES"] = str(recipes)
        missing = call(service, "/run_code", {"code": "1", "language": "python"})[1]
        assert missing["status"] == "SandboxError" and "'cove template add run-code' makes it" in missing["message"]
        added = service.cove("template", "add", "run-code", "--build-arg", "LANGUAGES=bash nodejs typescript")
        assert added.returncode == 0, added.stderr[-2000:]
        yield service
        assert wait_until(lambda: not json.loads(service.cove("ls", "--json").stdout or "[]")), "sandboxes are left"


def call(service, path, body=None, headers=None, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    connection.request(method, path, None if body is None else json.dumps(body),
                       {"Content-Type": "application/json", **({"X-API-KEY": service.key} if headers is None else headers)})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def run(service, code, language="python", **more):
    status, answer = call(service, "/run_code", {"code": code, "language": language, **more})
    assert status == 200, answer
    assert set(answer) == {"status", "message", "compile_result", "run_result", "executor_pod_name", "files"}
    for result in (answer["compile_result"], answer["run_result"]):
        assert result is None or set(result) == {"status", "execution_time", "return_code", "stdout", "stderr"}
    return answer


def base(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


C = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { %s; return 0; }\n"


@pytest.mark.parametrize("language, code, out", [
    ("python", "print(6 * 7)", "42\n"), ("c", C % 'puts("42")', "42\n"), ("bash", "echo $((6 * 7))", "42\n"), ("nodejs", "console.log(6 * 7)", "42\n"),
    ("typescript", "enum A { B = 42 }\nconst n: number = A.B; console.log(n)", "42\n"), ("perl", "print 6 * 7, \"\\n\"", "42\n")])
def test_languages(service, language, code, out):
    answer = run(service, code, language)
    assert answer["status"] == "Success" and answer["message"] == "" and answer["run_result"]["stdout"] == out, answer
    assert answer["run_result"]["return_code"] == 0 and answer["run_result"]["execution_time"] > 0
    assert (answer["compile_result"] is not None) == (language == "c")


def test_what_a_program_does_is_told(service):
    failed = run(service, "import sys; print('out'); sys.stderr.write('err'); sys.exit(3)")
    assert failed["status"] == "Failed" and failed["message"] == ""
    assert {**failed["run_result"], "execution_time": 0} == {"status": "Finished", "execution_time": 0, "return_code": 3, "stdout": "out\n", "stderr": "err"}
    assert run(service, "import os; os.kill(os.getpid(), 11)")["run_result"]["return_code"] == -11
    for limit in (0.5, 5, 50): # by which it has begun, however busy the machine is
        late = run(service, "import time; print('before', flush=True); time.sleep(60)", run_timeout=limit)
        if late["run_result"]["stdout"]:
            break
    assert late["status"] == "Failed" and late["run_result"]["status"] == "TimeLimitExceeded", late
    assert late["run_result"]["return_code"] is None and late["run_result"]["stdout"] == "before\n"
    assert 0.8 * limit < late["run_result"]["execution_time"] < 60
    assert "\ufffd" in run(service, "import os; os.write(1, b'a\\xff\\0b')")["run_result"]["stdout"]


def test_compiling_and_running_have_limits_of_their_own(service):
    broken = run(service, "int main( {", "c")
    assert broken["status"] == "Failed" and broken["compile_result"]["return_code"] == 1 and broken["run_result"] is None
    assert "error" in broken["compile_result"]["stderr"]
    slow = run(service, '#include "/dev/zero"\n', "c", compile_timeout=0.5, memory_limit_MB=2000)
    assert slow["compile_result"]["status"] in ("TimeLimitExceeded", "Finished") and slow["run_result"] is None and slow["status"] == "Failed"
    late = run(service, C % "pause()", "c", run_timeout=0.5)
    assert late["compile_result"]["return_code"] == 0 and late["run_result"]["status"] == "TimeLimitExceeded"


def test_files_and_stdin(service):
    answer = run(service, "import os; print(open('a/b/c').read(), input(), os.getcwd()); open('new', 'wb').write(b'\\0\\xff'); open('/mnt/n', 'w').write('m')",
                 stdin="line\nmore", files={"a/b/c": base("content"), "null": None}, fetch_files=["new", "/mnt/n", "not-there", "/tmp"])
    assert answer["run_result"]["stdout"] == "content line /home/user\n", answer
    assert answer["files"] == {"new": base(b"\0\xff"), "/mnt/n": base("m")}
    large = "x" * (6 << 20)
    assert run(service, "import sys; print(len(sys.stdin.read()))", stdin=large)["run_result"]["stdout"] == f"{len(large)}\n"
    assert run(service, "pass", stdin=large)["status"] == "Success", "who reads nothing of it ends all the same"
    assert run(service, "print(input())")["run_result"]["stderr"].endswith("EOFError: EOF when reading a line\n")
    assert "not base64" in run(service, "1", files={"x": "%%%"})["message"]
    assert "more than" in run(service, "open('x', 'wb').truncate(40 << 20)", fetch_files=["x"])["message"]


def test_what_is_not_there_says_so(service):
    answer = run(service, "fn main() {}", "rust")
    assert answer["status"] == "SandboxError" and '"rustc": executable file not found' in answer["message"], answer
    for body in ({"code": "1", "language": "cobol"}, {"code": "1"}, {"language": "python"}, {"code": 1, "language": "python"},
                 {"code": "1", "language": "python", "run_timeout": "x"}, {"code": "1", "language": "python", "run_timeout": -1},
                 {"code": "1", "language": "python", "run_timeout": 1e300}, {"code": "1", "language": "python", "files": []},
                 {"code": "1", "language": "python", "files": {"a": 1}}, {"code": "1", "language": "python", "fetch_files": [1]}):
        status, answer = call(service, "/run_code", body)
        assert status == 422 and answer["detail"][0]["msg"], (body, answer)
    assert call(service, "/run_code", {"code": "x" * (17 << 20), "language": "python"})[0] == 413


def test_who_may(service):
    body = {"code": "print(1)", "language": "python"}
    assert call(service, "/v1/ping", headers={}, method="GET") == (200, "pong")
    assert call(service, "/run_code", body, headers={})[0] == 401
    assert call(service, "/run_code", body, headers={"X-API-KEY": "e2b_" + "0" * 40})[0] == 401
    assert call(service, "/run_code", body, headers={"Authorization": "Bearer " + service.key})[0] == 200
    assert call(service, "/run_code", body, headers={"Authorization": "Basic " + base("x:" + service.key)})[0] == 200
    assert call(service, "/run_code", body, headers={"Authorization": "Basic " + base(service.key + ":")})[0] == 200
    assert call(service, "/run_code", body, headers={"Authorization": "Basic " + base("x:y")})[0] == 401
    assert call(service, "/run_code", body, headers={"X-API-KEY": service.key, "Content-Type": "text/plain"})[0] == 400, "no page may, unasked"


def test_an_operator_may_open_it(service):
    with own_service("run-open", COVE_RUN_CODE_OPEN="true") as other:
        status, answer = call(other, "/run_code", {"code": "1", "language": "python"}, headers={})
        assert status == 200 and "there is no template" in answer["message"]
        assert call(other, "/run_code", {}, headers={"X-API-KEY": "wrong"})[0] == 401
        page = {"Origin": f"http://rebound.example:{other.port}", "Host": f"rebound.example:{other.port}"}
        assert call(other, "/run_code", {"code": "1", "language": "python"}, headers=page)[0] == 401, "a page, whatever name led it here"
        assert call(other, "/v2/sandboxes", headers={}, method="GET")[0] == 401


@pytest.mark.parametrize("code, more, outcome", [
    ("while True: pass", {"run_timeout": 1}, "TimeLimitExceeded"),
    ("x = []\nwhile True: x.append(bytearray(1 << 20))", {"memory_limit_MB": 64}, "Finished"),
    ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", {"run_timeout": 2}, "TimeLimitExceeded"),
    ("import os\nwhile True: os.write(1, b'y' * 65536)", {"run_timeout": 2}, "TimeLimitExceeded"),
    ("import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(300)", {}, "Finished"),
    ("import os\nos.kill(os.getppid(), 9); os.kill(1, 9); os.kill(-1, 9)", {}, None),
])
def test_programs_that_mean_harm(service, code, more, outcome):
    answer = run(service, code, **more)
    assert outcome is None or answer["run_result"]["status"] == outcome, answer
    assert len(answer["run_result"]["stdout"]) <= 4 << 20
    assert run(service, "print('well')")["run_result"]["stdout"] == "well\n"


def test_each_run_has_a_sandbox_of_its_own(service):
    first = run(service, "open('/tmp/trace', 'w').write('x')")
    second = run(service, "import os; print(os.path.exists('/tmp/trace'))")
    assert second["run_result"]["stdout"] == "False\n" and first["executor_pod_name"] != second["executor_pod_name"]
    events = [json.loads(line) for line in service.cove("log", second["executor_pod_name"], "--json").stdout.splitlines()]
    assert {"sandbox.create", "file.write", "exec.start", "sandbox.kill"} <= {e["kind"] for e in events}


def test_a_client_that_leaves_ends_its_run(service):
    connection = http.client.HTTPConnection("127.0.0.1", service.port)
    connection.request("POST", "/run_code", json.dumps({"code": "import time; time.sleep(300)", "language": "python", "run_timeout": 300}),
                       {"Content-Type": "application/json", "X-API-KEY": service.key})
    assert wait_until(lambda: len(service.cove("ls", "--json").stdout) > 5)
    connection.close()
    assert wait_until(lambda: not json.loads(service.cove("ls", "--json").stdout))


def test_many_at_once_wait_for_their_turn_and_leave_nothing(service):
    api = service.child("cove-api")
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda i: run(service, f"print({i})", run_timeout=300), range(100)))
        fds, rss = len(opened(api)), rss_kib(api)
        answers = list(pool.map(lambda i: run(service, f"print({i})", run_timeout=300), range(160)))
    assert not [answer for i, answer in enumerate(answers) if answer["run_result"]["stdout"] != f"{i}\n"]
    assert wait_until(lambda: len(opened(api)) <= fds + SLACK["descriptors of cove-api"]) and rss_kib(api) - rss < 3 * 1024, (rss, rss_kib(api))


def test_what_is_printed_makes_no_answer_too_large(service):
    controls = "import os\nfor fd in (1, 2):\n    for _ in range(64): os.write(fd, b'\\1' * 65536)\n"
    answer = run(service, controls)
    assert answer["status"] == "Success" and 1 << 20 <= len(answer["run_result"]["stdout"]) < 4 << 20 and set(answer["run_result"]["stderr"]) == {"\1"}
    padded = "```python\nprint(input() + (' ' * (1 << 20) + chr(9)) * 4)\n```"
    tests = stdio(*((str(i), str(i)) for i in range(12)))
    status, answer = judge(service, padded, {"dataset_type": "CommonOJDataset", "language": "python", "provided_data": {"id": 7, "test": tests}})
    assert status == 200 and answer["accepted"] and len(answer["tests"]) == 12, status


def judge(service, completion, config, problem=7):
    return call(service, "/submit", {"dataset": "mine", "id": problem, "completion": completion, "config": config})


def stdio(*pairs):
    return [{"input": {"stdin": given}, "output": {"stdout": wanted}} for given, wanted in pairs]


def test_the_judge_by_stdin_and_stdout(service):
    config = {"dataset_type": "CommonOJDataset", "language": "python",
              "provided_data": [{"id": 1, "content": "?", "test": []}, {"id": 7, "content": "add", "labels": {"a": 1}, "test": json.dumps(stdio(("1 2", "3"), ("0.1 0.2", "0.3\n")))}]}
    right = "So:\n```python\na, b = input().split()\nprint(float(a) + float(b))\n```\nDone."
    status, answer = judge(service, right, config)
    assert status == 200 and answer["accepted"] and answer["id"] == 7 and len(answer["tests"]) == 2, answer
    assert answer["tests"][0]["passed"] and answer["tests"][0]["exec_info"]["status"] == "Success" and answer["tests"][1]["test_info"]["input"]["stdin"] == "0.1 0.2"
    assert answer["extracted_code"].startswith("a, b")
    for wrong in ("```python\nprint(3)\n```", "```python\nraise SystemExit\n```", "nothing here", "```\nprint('3'"):
        status, answer = judge(service, wrong, config)
        assert status == 200 and not answer["accepted"] and not answer["tests"][-1]["passed"], answer
    everything = judge(service, "```python\nprint(0)\n```", {**config, "extra": {"run_all_cases": True}})[1]
    assert [t["passed"] for t in everything["tests"]] == [False, False]
    compiled = judge(service, "```c\n" + C % "int a, b; scanf(\"%d%d\", &a, &b); printf(\"%d\\n\", a + b)" + "```",
                     {"dataset_type": "CommonOJDataset", "language": "c", "provided_data": {"id": 7, "test": stdio(("1 2", "3"))}})[1]
    assert compiled["accepted"], compiled
    ask = {"dataset": "mine", "config": config}
    assert call(service, "/list_ids", ask) == (200, [1, 7])
    assert call(service, "/get_prompts", ask)[1][1] == {"id": 7, "prompt": "add", "labels": {"a": 1}}
    assert call(service, "/get_prompt_by_id", {**ask, "id": 1})[1]["prompt"] == "?"
    assert call(service, "/list_datasets", method="GET") == (200, [])


def test_the_judge_by_a_test_program(service):
    data = {"id": 7, "labels": {"programming_language": "python"}, "test": {"code": "assert f(2) == 4\n", "asset": {}}}
    config = {"dataset_type": "AutoEvalDataset", "provided_data": data, "extra": {"append_flag": True}}
    right = "def f(x):\n    return x * x\n\nif __name__ == \"__main__\":\n    f(1)"
    status, answer = judge(service, f"```python\n{right}\n```", config)
    assert status == 200 and answer["accepted"] and "assert f(2)" in answer["full_code"] and "f(1)" not in answer["full_code"], answer
    assert judge(service, f"Well,\n\n{right}", config)[1]["accepted"], "without a fence"
    assert not judge(service, "```python\ndef f(x):\n    return x\n```", config)[1]["accepted"]
    assert not judge(service, "```python\nimport os\ndef f(x):\n    os._exit(0)\n```", config)[1]["accepted"], "who leaves early prints no flag"


def test_what_the_judge_has_not(service):
    assert judge(service, "x", {"dataset_type": "CommonOJDataset", "language": "python"})[0] == 400
    assert judge(service, "x", {"dataset_type": "MBPPDataset", "provided_data": {"id": 7}})[0] == 400
    assert judge(service, "x", {"dataset_type": "CommonOJDataset", "language": "python", "custom_extract_logic": "1", "provided_data": {"id": 7}})[0] == 400
    assert judge(service, "x", {"dataset_type": "CommonOJDataset", "language": "python", "provided_data": [{"id": 8}]})[0] == 404
    for test in ("[", "[1]", [{"input": {}}], []):
        assert judge(service, "x", {"dataset_type": "CommonOJDataset", "language": "python", "provided_data": {"id": 7, "test": test}})[0] == 422
    assert judge(service, "x", {"dataset_type": "AutoEvalDataset", "provided_data": {"id": 7, "labels": {"programming_language": "java"}, "test": {"code": ""}}})[0] == 422
    assert call(service, "/submit", {"dataset": "mine", "id": 7, "completion": "x", "config": 1})[0] == 422
