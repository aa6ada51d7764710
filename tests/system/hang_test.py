# SPDX-License-Identifier: Apache-2.0
"""A worker that hangs without dying is ended and replaced, and no sandbox notices. Runs what `tools/compile faults` made, where coved is impatient on request."""

import os
import signal
import time

import pytest
from crash import world
from leaks import read
from service import wait_until

LITTLE_S = 5 # of silence, of a worker that was started after impatient(): worker.c
POINT = "coved.worker.patience.fail"


@pytest.fixture(scope="module")
def w():
    with world("copy") as one:
        yield one


def impatient(w, name):
    """The pid of a new worker of this name, with which coved has little patience."""
    old = w.service.child(name)
    w.arm(POINT)
    os.kill(old, signal.SIGKILL)
    assert wait_until(lambda: w.service.child(name) not in (None, old)), w.service.tail()
    assert wait_until(w.service.is_healthy), w.service.tail()
    assert not w.armed()
    return w.service.child(name)


def works(w, sandbox):
    w.works(sandbox)
    return w.must("GET", f"sandboxes/{sandbox}")["state"] == "running"


@pytest.mark.parametrize("name", ["cove-api", "cove-egress"])
def test_one_that_stands_still_is_replaced(w, name):
    sandbox = w.begin().filled()
    with w.service.popen("exec", sandbox, "--", "sh", "-c", "exec sleep 1234567", stdout=-3, stderr=-3) as runs:
        assert wait_until(lambda: "1234567" in w.service.cove("exec", sandbox, "--", "pgrep", "-fa", "sleep").stdout)
        pid = impatient(w, name)
        log = len(read(w.service.log))
        os.kill(pid, signal.SIGSTOP)
        assert wait_until(lambda: w.service.child(name) not in (None, pid)), w.service.tail()
        assert wait_until(w.service.is_healthy), w.service.tail()
        assert works(w, sandbox)
        assert "1234567" in w.service.cove("exec", sandbox, "--", "pgrep", "-fa", "sleep").stdout # what ran in it runs
        runs.kill()
    said = read(w.service.log)[log:]
    assert f"{name} does not answer for {LITTLE_S} s" in said and f"{name} ended (signal " in said, said
    w.check_whole()
    w.check_no_leaks()


def test_when_all_stood_still_nobody_is_to_blame(w):
    w.begin()
    pid = impatient(w, "cove-api")
    log = len(read(w.service.log))
    for _ in range(2):
        w.service.coved.send_signal(signal.SIGSTOP)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(LITTLE_S + 1)
        w.service.coved.send_signal(signal.SIGCONT)
        os.kill(pid, signal.SIGCONT)
        assert wait_until(w.service.is_healthy), w.service.tail()
    assert w.service.child("cove-api") == pid and "does not answer" not in read(w.service.log)[log:], w.service.tail()
