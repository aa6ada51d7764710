# SPDX-License-Identifier: Apache-2.0
"""What the tests with OpenSandbox's packages share. They know two variables of the environment, OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY, as their users do."""

import json
import sys
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from opensandbox import SandboxSync
from opensandbox_cli.main import cli

BIN = Path(sys.executable).parent


def lines(execution):
    return [message.text for message in execution.logs.stdout]


@pytest.fixture
def make():
    """Makes sandboxes that are killed when the test ends, whatever became of them meanwhile."""
    made = []

    def create(image="base", **more):
        made.append(SandboxSync.create(image, timeout=timedelta(minutes=5), **more))
        return made[-1]

    yield create
    for box in made:
        try:
            box.kill()
        except Exception:  # it is gone: the next test would tell if it weren't
            pass


@pytest.fixture
def box(make):
    return make()


@pytest.fixture
def unique():
    """Metadata that no other sandbox has."""
    return {"test": uuid.uuid4().hex}


@pytest.fixture
def osb(tmp_path):
    """The command osb, in this process, which is quicker: gives what it printed, as JSON where that is what it was asked for."""
    def call(*arguments, form="json", status=0, stdin=""):
        words = ["--config", tmp_path / "config.toml", *arguments]
        at = words.index("--") if "--" in words else len(words)
        words[at:at] = ["-o", form] if form else []
        done = CliRunner().invoke(cli, [str(word) for word in words], input=stdin)
        assert done.exit_code == status, (arguments, done.output, done.exception)
        return json.loads(done.stdout) if form == "json" and status == 0 else done.output
    return call
