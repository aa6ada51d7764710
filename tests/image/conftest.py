# SPDX-License-Identifier: Apache-2.0
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "system")]

from rig import Jobs, Registry  # noqa: E402


@pytest.fixture
def jobs():
    if os.geteuid() != 0:
        pytest.skip("namespaces and owners need root")
    jobs = Jobs()
    yield jobs
    jobs.close()


@pytest.fixture
def registry():
    registry = Registry()
    yield registry
    registry.close()
