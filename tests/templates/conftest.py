# SPDX-License-Identifier: Apache-2.0
"""Ready-made templates as they are for users, with all that they bring: minutes, and a gigabyte from the registries. Without these the tests are skipped."""

import contextlib
import os
import re
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "system"), str(TESTS / "sdk")]

import recipes  # noqa: E402
from installed import Unreachable, node_packages, node_path, python_packages  # noqa: E402
from leaks import own_service  # noqa: E402
from service import prepare_templates  # noqa: E402


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.timeout(1800)) # a template, from the registries, is made in the time of the first that uses it


def pytest_sessionstart(session):
    if os.geteuid() == 0 and not session.config.option.collectonly:
        prepare_templates()


@pytest.fixture(scope="session")
def added(tmp_path_factory):
    """added(recipe...): a service whose sandboxes can be made of them; Python's packages are fetched outside of any sandbox."""
    @contextlib.contextmanager
    def add(*names, asks_registries=False):
        place = tmp_path_factory.mktemp("recipes")
        try:
            env = [recipes.prepared(name, place, base="trusting" if asks_registries else "base") for name in names][0]
        except recipes.Unreachable as why:
            pytest.skip(str(why))
        with own_service(names[0], **env) as service:
            if asks_registries:
                recipes.trust(service, place)
            for name in names:
                done = service.cove("template", "add", name, timeout=1500)
                if re.search(r"(?:Failed|Unable) to fetch|Temporary failure resolving|Something wicked happened|Hash Sum mismatch|npm (?:error|ERR!) code E(?:AI_AGAIN|NOTFOUND|CONN|TIMEDOUT)", done.stderr):
                    pytest.skip("the registries can't be reached from a sandbox")
                assert done.returncode == 0, done.stderr[-3000:]
            yield service
            service.remove_all()
    return add


@pytest.fixture(scope="session")
def sdk():
    """(python, directory of Node's packages, PATH with a Node) of E2B's SDKs for the code interpreter and the desktop."""
    try:
        path = node_path()
        return python_packages("code-python", TESTS / "sdk" / "code" / "requirements.txt") / "python", node_packages("code-js", TESTS / "sdk" / "code", path), path
    except Unreachable as why:
        pytest.skip(str(why))


def environment(service, **more):
    """What an SDK is told by."""
    mine = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "COVE_")) and not k.lower().endswith("_proxy")}
    return {**mine, "E2B_API_KEY": service.key, "E2B_API_URL": service.url, "E2B_SANDBOX_URL": service.url, **more}
