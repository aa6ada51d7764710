# SPDX-License-Identifier: Apache-2.0
"""cove eval: right samples pass and wrong ones fail, whatever they try; a run that was stopped is gone on with."""

import gzip
import json
import os
import subprocess

import pytest
from leaks import own_service
from service import TOP

PROBLEMS = [{"task_id": f"T/{name}", "prompt": f"def {name}(a, b):\n", "entry_point": name, "canonical_solution": f"    return a {op} b\n",
             "test": f"def check(candidate):\n    assert candidate(6, 3) == {value}\n"} for name, op, value in (("add", "+", 9), ("sub", "-", 3), ("mul", "*", 18))]
WRONG = ["    raise ValueError\n", "    while True: pass\n", "    return None\n", "    x = []\n    while True: x.append(bytearray(1 << 24))\n", "  bad indent(\n",
         "    import os\n    while True:\n        try: os.fork()\n        except OSError: pass\n", "    print(9, 'passed', flush=True)\n", "    import os\n    os._exit(0)\n",
         "    import os\n    os.kill(os.getppid(), 9)\n    os.kill(os.getpid(), 9)\n", "    raise SystemExit(0)\n",
         "    pass\ncheck = lambda c: None\nimport builtins\nbuiltins.check = check\n", "    open('verdict', 'w').write('x')\n    raise SystemExit\n"]


@pytest.fixture(scope="module")
def service():
    with own_service("eval") as service:
        service.env["COVE_TEMPLATES"] = str(TOP / "templates")
        yield service


def lines(path, *objects):
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))
    return path


def test_samples_are_judged(service, tmp_path):
    problems = tmp_path / "p.jsonl.gz"
    problems.write_bytes(gzip.compress("".join(json.dumps(p) + "\n" for p in PROBLEMS).encode()))
    refused = service.cove("eval", "humaneval", "--problems", problems, "--output", tmp_path / "r")
    assert refused.returncode == 1 and "'cove template add run-code' makes it" in refused.stderr
    assert service.cove("template", "add", "run-code", "--build-arg", "LANGUAGES=bash").returncode == 0
    done = service.cove("eval", "humaneval", "--problems", problems, "--output", tmp_path / "r", "--json")
    answer = json.loads(done.stdout)
    assert (answer["samples"], answer["passed"], answer["pass@1"]) == (3, 3, 1.0), done

    samples = lines(tmp_path / "s.jsonl", *({"task_id": "T/add", "completion": code} for code in ["    return a + b\n", *WRONG]))
    results = tmp_path / "s.jsonl_results.jsonl"
    answer = json.loads(service.cove("eval", "humaneval", "--problems", problems, "--samples", samples, "--timeout", "3", "--json").stdout)
    told = {one["sample"]: one for one in map(json.loads, results.read_text().splitlines())}
    assert answer["passed"] == 1 and told[0]["passed"] and len(told) == 1 + len(WRONG), told
    assert answer["pass@1"] == pytest.approx(1 / (1 + len(WRONG))) and answer["pass@10"] == pytest.approx(10 / (1 + len(WRONG)))
    assert told[2]["result"] == "timed out" and "ValueError" in told[1]["result"]

    # Half of it is gone, the last line in the middle: what is missing is judged again, and nothing else.
    kept = results.read_text().splitlines()[:6]
    results.write_text("\n".join(kept) + "\n{\"samp")
    again = json.loads(service.cove("eval", "humaneval", "--problems", problems, "--samples", samples, "--timeout", "3", "--json").stdout)
    assert {**again, "results": 0} == {**answer, "results": 0} and results.read_text().startswith("\n".join(kept))
    assert len(results.read_text().splitlines()) == 2 + len(WRONG)


def test_what_is_malformed_is_said_with_its_line(service, tmp_path):
    problems = lines(tmp_path / "p", *PROBLEMS)
    for text, what in (("{}\n", ':1: it has no "task_id"'), ('\n{"task_id": "T/add", "completion": "x"}\n[1]\n', ":3: "), ("{\n", ":1: this is not a JSON object"),
                       ('{"task_id": "T/none", "completion": "x"}\n', "there is no problem T/none")):
        (tmp_path / "s").write_text(text)
        done = service.cove("eval", "humaneval", "--problems", problems, "--samples", tmp_path / "s", "--output", tmp_path / "r")
        assert done.returncode == 1 and what in done.stderr, done
    assert "pip download" in service.cove("eval", "humaneval").stderr
    assert service.cove("eval", "humaneval", "--problems", tmp_path / "missing").returncode == 1
    assert service.cove("eval", "other", "--problems", problems).returncode == 2
    assert "goes with patch" in service.cove("eval", "humaneval", "--problems", problems, "--repos", "/").stderr


# ---- cove eval patch ----

TESTS = """import unittest
from calc import add

class T(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 1), 2)
"""
ADDED = TESTS + """
    def test_negative(self):
        self.assertEqual(add(-1, -1), -2)
"""
FIXED = "def add(a, b):\n    return a + b\n"


def git(directory, *arguments):
    return subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments], cwd=directory, capture_output=True, text=True, check=True,
                          env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": "/nonexistent"}).stdout


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    """A repository whose add() is wrong for negative numbers, and what makes a patch of new contents."""
    repos = tmp_path_factory.mktemp("repos")
    top = repos / "me" / "calc"
    (top / "tests").mkdir(parents=True)
    for name, text in (("calc.py", "def add(a, b):\n    return abs(a) + abs(b)\n"), ("tests/__init__.py", ""), ("tests/test_calc.py", TESTS)):
        (top / name).write_text(text)
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "base")):
        git(top, *arguments)

    def patch(**files):
        for name, text in files.items():
            path = top / name.replace("__", "/").replace("_py", ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        git(top, "add", "-A")
        text = git(top, "diff", "--cached", "--binary", "HEAD")
        git(top, "reset", "-q", "--hard")
        return text

    return repos, git(top, "rev-parse", "HEAD").strip(), patch


def problem(of, name="me__calc-1", **more):
    _, commit, patch = of
    return {"instance_id": name, "repo": "me/calc", "base_commit": commit, "patch": patch(calc_py=FIXED), "test_patch": patch(tests__test_calc_py=ADDED),
            "test_cmd": "python3 -m unittest -v tests.test_calc 2>&1", "setup_cmd": "cp calc.py /opt/calc-at-setup.py",
            "FAIL_TO_PASS": json.dumps(["test_negative (tests.test_calc.T.test_negative)"]), "PASS_TO_PASS": ["test_add (tests.test_calc.T.test_add)"], **more}


def judged(service, tmp_path, repo, problems, samples=None, *more):
    given = ["--samples", lines(tmp_path / "s", *samples)] if samples else []
    done = service.cove("eval", "patch", "--problems", lines(tmp_path / "p", *problems), *given, "--repos", repo[0], "--output", tmp_path / "r", "--json", *more)
    told = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines() if line.endswith("}")] if (tmp_path / "r").exists() else []
    return done, json.loads(done.stdout or "null"), {one["sample"]: one for one in told}


def test_patches_are_judged(service, tmp_path, repo):
    _, _, patch = repo
    samples = [patch(calc_py=FIXED), "", patch(calc_py="def add(a, b):\n    return 0\n"), patch(other_py="x = 1\n"), "this is no patch\n",
               patch(other_py="x = 1\n").replace("other.py", "../../etc/other.py"), patch(calc_py=FIXED).replace("abs(a)", "abs(z)"),
               # What judges: the test itself, a package in its place, what the runner reads; and a file that the test patch brings, too.
               patch(tests__test_calc_py=TESTS.replace("add(1, 1), 2", "2, 2")), patch(tests__test_calc_py="import unittest\nclass T(unittest.TestCase):\n    def test_add(self): pass\n    def test_negative(self): pass\n"),
               patch(sitecustomize_py="import os, sys\nos.write(1, b'test_negative (tests.test_calc.T.test_negative) ... ok\\ntest_add (tests.test_calc.T.test_add) ... ok\\n')\nos._exit(0)\n", conftest_py="x"),
               # Code that prints what the tests should, and then fails; that never ends; that prints without end.
               patch(calc_py="print('test_negative (tests.test_calc.T.test_negative) ... ok')\ndef add(a, b):\n    return abs(a) + abs(b)\n"),
               patch(calc_py="while True: pass\n"), patch(calc_py="while True: print('x' * 65536)\n"), patch(calc_py=FIXED, unittest_py="raise SystemExit(0)\n")]
    one = problem(repo)
    done, answer, told = judged(service, tmp_path, repo, [one], [{"instance_id": one["instance_id"], "model_patch": text or None} for text in samples], "--timeout", "10")
    assert done.returncode == 0 and answer["samples"] == len(samples) and answer["broken"] == 0, (done, told)
    assert [told[i]["passed"] for i in sorted(told)] == [True, *[False] * (len(samples) - 2), True], told
    assert [told[i]["applied"] for i in (1, 3, 4, 5, 6)] == [False, True, False, False, False], told
    assert "invalid path '../../etc/other.py'" in told[5]["result"] and "does not apply" in told[6]["result"] and told[1]["result"] == "the patch is empty"
    assert told[2]["failed"]["PASS_TO_PASS"] == one["PASS_TO_PASS"] and told[8]["put_back"] == ["tests/test_calc.py"] and told[9]["put_back"] == ["conftest.py", "sitecustomize.py"]
    assert told[13]["put_back"] == ["unittest.py"] and told[11]["result"] == "timed out" and told[12]["result"].startswith(("it printed more", "timed out"))
    assert answer["pass@1"] == pytest.approx(2 / len(samples)) and answer["pass@10"] == pytest.approx(1 - 4 * 3 / (14 * 13))
    kinds = [json.loads(line)["kind"] for line in service.cove("log", told[0]["sandbox"], "--json").stdout.splitlines()]
    assert kinds.count("exec.start") == 2 and "sandbox.kill" in kinds
    assert len(json_refs(service)) == 1, "one image for all of them"

    # A second run has nothing to do; one whose results are half there does the rest, from the image that there is.
    before = (tmp_path / "r").read_bytes()
    assert judged(service, tmp_path, repo, [one], [{"instance_id": one["instance_id"], "model_patch": text} for text in samples])[1] == answer
    assert (tmp_path / "r").read_bytes() == before
    (tmp_path / "r").write_bytes(before[:before.index(b"\n") + 20])
    assert judged(service, tmp_path, repo, [one], [{"instance_id": one["instance_id"], "model_patch": samples[0]}], "--timeout", "10")[1]["passed"] == 1
    assert service.cove("snapshot", "rm", *json_refs(service)).returncode == 0


def json_refs(service):
    return [one["ref"] for one in json.loads(service.cove("snapshot", "ls", "--json").stdout)]


def test_problems_of_their_own_patches_and_broken_ones(service, tmp_path, repo):
    by_status = {**problem(repo, "status", test_cmd="python3 -c 'import calc; assert calc.add(-1, -1) == -2; open(\"/opt/calc-at-setup.py\")'"), "FAIL_TO_PASS": [], "PASS_TO_PASS": None}
    broken = [problem(repo, "setup", setup_cmd="echo no such luck >&2; false"), problem(repo, "tests", test_patch=problem(repo)["test_patch"].replace("test_add", "test_none")),
              problem(repo, "commit", base_commit="0" * 40), problem(repo, "missing", repo="me/other")]
    done, answer, told = judged(service, tmp_path, repo, [problem(repo), by_status, *broken])
    assert done.returncode == 1 and "4 samples could not be judged" in done.stderr and "no such luck" in done.stderr, done
    assert answer["passed"] == 2 and answer["broken"] == 4 and set(told) == {0, 1}
    again = judged(service, tmp_path, repo, [problem(repo), by_status])
    assert again[0].returncode == 0 and again[1]["passed"] == 2
    for bad, what in (({"FAIL_TO_PASS": "[1]"}, "not a list"), ({"PASS_TO_PASS": "["}, "not a list"), ({"test_cmd": ""}, "--test-cmd"), ({"repo": "../etc"}, "not a valid name"),
                      ({"base_commit": "--output=/tmp/x"}, "not a valid name"), ({"workdir": "x"}, "absolute"), ({"patch": ""}, "--samples"), ({"instance_id": None}, "instance_id")):
        done = judged(service, tmp_path, repo, [problem(repo, **bad) if "instance_id" not in bad else {**problem(repo), "instance_id": 1}])[0]
        assert done.returncode == 1 and what in done.stderr, (bad, done)
    assert "instance_id" in service.cove("eval", "patch").stderr
    service.cove("snapshot", "rm", *json_refs(service))


def test_an_attempt_has_no_network_and_a_template_may_bring_the_repository(service, tmp_path, repo):
    sandbox = service.create(timeout_ms=0)
    try:
        service.cove("cp", repo[0] / "me" / "calc", f"{sandbox}:/tmp/")
        assert service.cove("exec", "-u", "root", sandbox, "--", "mv", "/tmp/calc", "/testbed").returncode == 0
        assert service.cove("snapshot", sandbox, "with-repo").returncode == 0
    finally:
        service.remove_all()
    one = {**problem(repo, template="with-repo", test_cmd="python3 -m unittest -v tests.test_calc")}
    done = service.cove("eval", "patch", "--problems", lines(tmp_path / "p", one), "--output", tmp_path / "r", "--json")
    assert json.loads(done.stdout)["passed"] == 1, (done, (tmp_path / "r").read_text())
    events = [json.loads(line) for line in service.cove("log", json.loads((tmp_path / "r").read_text())["sandbox"], "--json").stdout.splitlines()]
    assert [e["data"]["allow_internet"] for e in events if e["kind"] == "sandbox.create"] == [False]
    service.cove("snapshot", "rm", *json_refs(service))
