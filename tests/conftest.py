# SPDX-License-Identifier: Apache-2.0
"""For all folders: --shard=I/N runs one of N parts of what was collected, in one piece, so that parts seldom share a fixture. In another tier some tests are skipped (tiers.py), and from a time on all."""

import gc
import os
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
import tiers  # noqa: E402

# A test program lives shortly: to look for cycles at each 700 objects takes a tenth of its time.
gc.set_threshold(100_000)


def pytest_addoption(parser):
    parser.addoption("--shard", default="1/1", metavar="I/N")


def pytest_collection_modifyitems(config, items):
    number, of = map(int, config.getoption("--shard").split("/"))
    chosen = items[len(items) * (number - 1) // of:len(items) * number // of]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
    for item in items:
        why = tiers.reason(item.nodeid)
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    del item
    if time.time() > float(os.environ.get("COVE_TEST_UNTIL", "inf")):
        pytest.skip(tiers.LATE)
