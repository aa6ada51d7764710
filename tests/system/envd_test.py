# SPDX-License-Identifier: Apache-2.0
"""The daemon beside E2B's own: each probe is answered as was recorded of that (version 0.6.13), or its difference is declared and still there."""

import json
from pathlib import Path

import pytest
from client import Client
from envd_probes import PROBES, Daemon, run

HERE = Path(__file__).parent / "envd"
RECORDED, DIFFERENCES = (json.loads((HERE / name).read_text()) for name in ("recorded.json", "differences.json"))


@pytest.fixture(scope="module")
def answers(session_service):
    sandbox = Client(session_service.port, session_service.key).create(timeout=3600)
    found = run(Daemon(session_service.port, sandbox.headers()))
    sandbox.kill()
    return found


def test_the_lists_are_of_these_probes():
    assert set(RECORDED) == set(PROBES) and set(DIFFERENCES) <= set(PROBES)
    assert len(DIFFERENCES) < len(PROBES) / 2


@pytest.mark.parametrize("name", PROBES)
def test_probe(answers, name):
    ours, theirs = answers[name], RECORDED[name]
    if name in DIFFERENCES:
        assert ours != theirs, f"no difference any more: take {name!r} off differences.json"
    else:
        assert ours == theirs
