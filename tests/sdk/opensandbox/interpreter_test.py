# SPDX-License-Identifier: Apache-2.0
"""PyPI's opensandbox-code-interpreter, with a service of its own that has the template for it."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "system"))

from code_interpreter import CodeInterpreterSync  # noqa: E402
from code_test import service  # noqa: E402, F401
from opensandbox import SandboxSync  # noqa: E402
from opensandbox.config.connection_sync import ConnectionConfigSync  # noqa: E402
from opensandbox.exceptions import SandboxApiException  # noqa: E402


@pytest.fixture
def codes(service):  # noqa: F811
    config = ConnectionConfigSync(domain=f"127.0.0.1:{service.port}", api_key=service.key)
    box = SandboxSync.create("opensandbox/code-interpreter:latest", timeout=timedelta(minutes=5), connection_config=config)
    yield CodeInterpreterSync.create(sandbox=box).codes
    box.kill()


def texts(done):
    return [message.text for message in done.logs.stdout], [result.text for result in done.result]


def test_contexts_keep_what_cells_left(codes):
    context = codes.create_context("python")
    assert texts(codes.run("n = 6; print('set')", context=context)) == (["set"], [])
    assert texts(codes.run("n * 7", context=context)) == ([], ["42"])
    failed = codes.run("n", language="python")
    assert (failed.error.name, failed.exit_code) == ("NameError", None)
    assert texts(codes.run("echo $((6 * 7))", language="bash"))[0] == ["42"]
    assert context.id in [one.id for one in codes.list_contexts("python")] and codes.get_context(context.id).language == "python"
    codes.delete_context(context.id)
    with pytest.raises(SandboxApiException):
        codes.get_context(context.id)
    codes.delete_contexts("python")
    assert codes.list_contexts("python") == []
