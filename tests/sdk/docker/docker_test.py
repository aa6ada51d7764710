# SPDX-License-Identifier: Apache-2.0
"""docker-py and AutoGen's DockerCommandLineCodeExecutor, unchanged. They know the service by DOCKER_HOST alone."""

import asyncio
import io
import os
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "system"))

from leaks import own_service  # noqa: E402


@pytest.fixture(scope="module")
def service():
    with tempfile.TemporaryDirectory(prefix="cove-test-docker-") as top:
        shared = Path(top) / "shared"
        shared.mkdir()
        config = Path(top) / "cove.yaml"
        config.write_text(f"volumes: {{host: [{shared}]}}\n")
        with own_service("docker", COVE_CONFIG=str(config)) as service:
            service.shared = shared
            yield service


@pytest.fixture
def client(service, monkeypatch):
    """By the environment, as a user sets it. Containers that are left are an error here."""
    import docker

    monkeypatch.setenv("DOCKER_HOST", f"unix://{service.run}/cove.sock")
    monkeypatch.setenv("DOCKER_CONFIG", "/nonexistent")
    client = docker.from_env()
    yield client
    assert client.containers.list(all=True) == []
    client.close()


def test_run(client):
    import docker

    assert client.ping() and client.version()["ApiVersion"] == "1.44"
    assert client.containers.run("base", ["sh", "-c", "echo out; echo err >&2"], remove=True) == b"out\n"
    assert client.containers.run("base", "echo $A", entrypoint=["sh", "-c"], environment={"A": "b"}, remove=True) == b"\n" # as with Docker: the rest are the script's arguments
    with pytest.raises(docker.errors.ContainerError) as failed:
        client.containers.run("base", ["sh", "-c", "echo why >&2; exit 3"], remove=True)
    assert failed.value.exit_status == 3 and failed.value.stderr == b"why\n"
    with pytest.raises(docker.errors.APIError, match="HostConfig.Privileged"):
        client.containers.run("base", "true", privileged=True)
    with pytest.raises(docker.errors.ImageNotFound):
        client.images.get("none")
    with pytest.raises(docker.errors.ImageNotFound):
        client.containers.create("none", "true")
    with pytest.raises(docker.errors.NotFound):
        client.containers.get("none")


def test_a_container(client):
    box = client.containers.run("base", ["sh", "-c", "echo begun; exec sleep 1000"], detach=True, name="box", labels={"a": "1"}, tty=False, mem_limit="256m", nano_cpus=500_000_000)
    try:
        assert box.status == "created" and (box.reload() or box.status) == "running" and box.name == "box" and box.labels == {"a": "1"}
        assert box.image == client.images.get("base") == client.containers.list()[0].image
        assert [one.id for one in client.containers.list(filters={"label": "a=1"})] == [box.id] and client.containers.list(filters={"name": "no"}) == []
        assert box.exec_run(["sh", "-c", "echo $K; pwd; exit 4"], environment={"K": "v"}, workdir="/tmp") == (4, b"v\n/tmp\n")
        assert box.exec_run(["sh", "-c", "echo out; echo err >&2"], demux=True) == (0, (b"out\n", b"err\n"))
        assert b"".join(box.exec_run("seq 100000", stream=True).output).endswith(b"100000\n")
        assert box.exec_run("tty", tty=True, stdin=True).exit_code == 0 and box.exec_run("id -un", user="user").output == b"user\n"
        assert box.exec_run("no-such-program").exit_code == 127
        assert box.logs() == b"begun\n" and next(box.logs(stream=True, follow=True)) == b"begun\n"
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            info = tarfile.TarInfo("file")
            info.size = 5
            tar.addfile(info, io.BytesIO(b"hello"))
        assert box.put_archive("/tmp", data.getvalue())
        chunks, stat = box.get_archive("/tmp/file")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            assert tar.extractfile("file").read() == b"hello" and stat["name"] == "file" and stat["size"] == 5
        sock = box.attach_socket(params={"stdin": 1, "stdout": 1, "stream": 1})
        sock.close()
        box.stop(timeout=1)
        assert box.wait()["StatusCode"] == 143 and (box.reload() or box.status) == "exited"
        box.start()
        box.kill()
        assert box.wait()["StatusCode"] == 137
    finally:
        box.remove(force=True)


def test_autogen(service, client):
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock
    from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor

    async def use():
        work = service.shared / "work"
        work.mkdir()
        token = CancellationToken()
        async with DockerCommandLineCodeExecutor(image="base", work_dir=work, timeout=30) as executor:
            done = await executor.execute_code_blocks([CodeBlock(code="import os\nprint(6 * 7, os.getcwd())", language="python"),
                                                       CodeBlock(code="echo from the shell; echo kept >kept", language="sh")], token)
            assert done.exit_code == 0 and done.output.split("\n") == ["42 /workspace", "from the shell", ""], done
            assert Path(done.code_file).exists() and (work / "kept").read_text() == "kept\n"
            done = await executor.execute_code_blocks([CodeBlock(code="raise ValueError('no')", language="python")], token)
            assert done.exit_code == 1 and "ValueError: no" in done.output
            await executor.restart()
            done = await executor.execute_code_blocks([CodeBlock(code="print(open('kept').read())", language="python")], token)
            assert done.exit_code == 0 and "kept" in done.output
        async with DockerCommandLineCodeExecutor(image="base", work_dir=work, timeout=1) as executor:
            done = await executor.execute_code_blocks([CodeBlock(code="import time; time.sleep(100)", language="python")], token)
            assert done.exit_code == 124 and "Timeout" in done.output

    asyncio.run(use())
    assert os.listdir(service.shared) == ["work"]
