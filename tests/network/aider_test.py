# SPDX-License-Identifier: Apache-2.0
"""As agents_test.py, for aider: a file of its own because its packages are 687 MB."""

import sys

import pytest
from agent_cli_test import HERE, PORT
from agents_test import mends, repo  # noqa: F401
from service import TOP

sys.path.insert(0, str(TOP / "tests/sdk"))
from installed import INSTALLED, Unreachable, python_packages  # noqa: E402

PACKAGES = INSTALLED / "aider/lib/python3.11/site-packages"
EDIT = "answer\n```\n<<<<<<< SEARCH\nwrong\n=======\nright\n>>>>>>> REPLACE\n```\n" # as its models change a file
TESTS = "sh ./test.sh && echo the-tests-pass; curl -sS -m 5 https://denied.test/ 2>&1; true"


def aider():
    """It has no tools: the model's text is the change; aider commits it and runs the tests."""
    try:
        python_packages("aider", HERE / "agent_aider/requirements.txt")
    except Unreachable as reason:
        pytest.skip(str(reason))
    return PACKAGES, "[python3, -m, aider", ["--model", "anthropic/claude-sonnet-4-5", "--yes-always", "--no-gitignore", "--auto-test", "--test-cmd", TESTS,
                                             "--message", "mend it", "answer"]


def test_aider_mends_a_repository(world, service, repo, tmp_path):  # noqa: F811
    mends(world, service, repo, tmp_path, "aider", aider, "ANTHROPIC_API_KEY", f"ANTHROPIC_API_BASE: 'https://api.test:{PORT}', PYTHONPATH: '{PACKAGES}'",
          {"MODEL_TEXT": EDIT})
