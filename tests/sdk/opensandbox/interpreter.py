# SPDX-License-Identifier: Apache-2.0
"""interpreter.py PORT KEY: PyPI's opensandbox-code-interpreter against the service that tests/system/code_test.py has, whose template took long to build."""

import sys
from datetime import timedelta

import pytest
from code_interpreter import CodeInterpreterSync
from opensandbox import SandboxSync
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException


def texts(done):
    return [message.text for message in done.logs.stdout], [result.text for result in done.result]


def contexts_keep_what_cells_left(codes):
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


config = ConnectionConfigSync(domain=f"127.0.0.1:{sys.argv[1]}", api_key=sys.argv[2])
box = SandboxSync.create("opensandbox/code-interpreter:latest", timeout=timedelta(minutes=5), connection_config=config)
try:
    contexts_keep_what_cells_left(CodeInterpreterSync.create(sandbox=box).codes)
finally:
    box.kill()
