# SPDX-License-Identifier: Apache-2.0
"""inspect_ai's sandbox `docker`, unchanged, with `cove` linked as docker. The model is a stand-in that says what is to be done."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "system"))

from leaks import own_service  # noqa: E402
from service import BUILD  # noqa: E402

COMPOSE = """
services:
  default:
    image: base
    command: tail -f /dev/null
    init: true
    network_mode: none
    stop_grace_period: 1s
    working_dir: /work
  other:
    image: ${SAMPLE_METADATA_IMAGE:-base}
    command: sh -c 'while true; do sleep 1; done'
    environment:
      NAME: other
"""


@pytest.fixture(scope="module")
def service():
    with own_service("inspect") as service:
        yield service


@pytest.fixture
def place(service, tmp_path, monkeypatch):
    """A directory with docker on PATH. Containers that are left are an error here."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").symlink_to(BUILD / "cove")
    for name, value in {**service.env, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "XDG_DATA_HOME": str(tmp_path / "data"), "INSPECT_LOG_DIR": str(tmp_path / "logs")}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tiktoken.get_encoding", lambda name: SimpleNamespace(encode=lambda text, **_: text.split())) # its tables are on the internet
    yield tmp_path
    assert subprocess.run(["docker", "ps", "-aq"], capture_output=True, text=True, check=True).stdout == ""


def evaluated(sandbox, solvers, score, outputs=(), **sample):
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model

    task = Task(name="one", dataset=[Sample(input="do it", target="done", **sample)], solver=solvers, scorer=score, sandbox=sandbox)
    log, = eval(task, model=get_model("mockllm/model", custom_outputs=list(outputs)), display="none", log_format="json")
    assert log.status == "success", log.error.traceback
    assert not log.samples[0].error, log.samples[0].error
    return log.samples[0]


def scoring(check):
    from inspect_ai.scorer import Score, accuracy, scorer

    @scorer(metrics=[accuracy()])
    def checked():
        async def score(state, target):
            await check()
            return Score(value=1)
        return score
    return checked()


def test_an_evaluation_with_tools(place):
    from inspect_ai.model import ModelOutput
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import bash, python
    from inspect_ai.util import sandbox

    (place / "compose.yaml").write_text(COMPOSE)

    async def check():
        assert await sandbox().read_file("made") == "from the tool\n"
        assert (await sandbox("other").exec(["sh", "-c", "echo $NAME"])).stdout == "other\n"

    calls = [ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat given.txt; echo from the tool > made; echo no >&2; exit 3"}),
             ModelOutput.for_tool_call("mockllm/model", "python", {"code": "print(6 * 7)"}), ModelOutput.from_content("mockllm/model", "done")]
    sample = evaluated("docker", [use_tools(bash(timeout=30), python(timeout=30)), generate()], scoring(check), calls, files={"given.txt": "given\n"},
                       setup="#!/bin/sh\necho set up > /set", metadata={"image": "base"})
    said = [m.text for m in sample.messages if m.role == "tool"]
    assert "given" in said[0] and "no" in said[0] and said[1] == "42\n", said


def test_what_a_sandbox_offers(place):
    from inspect_ai.util import SandboxEnvironmentLimits, sandbox

    (place / "Dockerfile").write_text("FROM base\nRUN mkdir /place && echo built > /place/there\nWORKDIR /place\n")

    async def check():
        box = sandbox()
        done = await box.exec(["sh", "-c", "cat; echo $A; id -un; pwd; exit 4"], input="in\n", env={"A": "b c"}, user="user", cwd="/tmp")
        assert (done.returncode, done.stdout) == (4, "in\nb c\nuser\n/tmp\n")
        assert await box.read_file("/place/there") == "built\n"
        await box.write_file("/new/dir/bytes", bytes(range(256)))
        assert await box.read_file("/new/dir/bytes", text=False) == bytes(range(256))
        await box.write_file("text", "grüße\n")
        assert (await box.exec(["cat", "text"])).stdout == "grüße\n"
        for path, error in (("/nothing", FileNotFoundError), ("/new/dir", IsADirectoryError)):
            with pytest.raises(error):
                await box.read_file(path)
        with pytest.raises(IsADirectoryError):
            await box.write_file("/new/dir", "x")
        with pytest.raises(TimeoutError):
            await box.exec(["sleep", "100"], timeout=1)
        assert (await box.exec(["sh", "-c", "pgrep -c sleep || true"])).stdout.strip() == "0"
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        assert most * 0.9 < len((await box.exec(["sh", "-c", "yes | head -c 20000000"])).stdout) <= most
        connection = await box.connection()
        assert connection.type == "docker" and json.loads(subprocess.run(["docker", "inspect", connection.container], capture_output=True, text=True, check=True).stdout)
        assert not (await box.exec(["sh", "-c", "getent hosts example.org"])).success

    evaluated(("docker", "Dockerfile"), [], scoring(check))
    assert subprocess.run(["docker", "images", "--format", "{{.Repository}}"], capture_output=True, text=True, check=True).stdout.split().count("inspect") == 0


def test_what_is_left_is_cleaned_up(place):
    from inspect_ai.util import sandbox

    (place / "compose.yaml").write_text(COMPOSE)

    async def check():
        assert (await sandbox().exec(["true"])).success

    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    eval(Task(name="left", dataset=[Sample(input="x", target="y")], solver=[], scorer=scoring(check), sandbox="docker"), model="mockllm/model", display="none",
         log_format="json", sandbox_cleanup=False)
    assert len(subprocess.run(["docker", "ps", "-aq"], capture_output=True, text=True, check=True).stdout.split()) == 2
    done = subprocess.run([sys.executable, "-m", "inspect_ai", "sandbox", "cleanup", "docker"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done
