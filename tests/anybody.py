# SPDX-License-Identifier: Apache-2.0
"""A Python that others than root may execute: the one that runs the tests may lie in its owner's home."""

import shutil
import sys

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
