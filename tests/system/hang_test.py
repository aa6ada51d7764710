# SPDX-License-Identifier: Apache-2.0
"""A worker that hangs without dying is ended and replaced, and no sandbox notices. Runs what `tools/compile faults` made, where coved is impatient on request."""

import contextlib
import os
import signal
import subprocess
import time

import pytest
from crash import world
from leaks import read
from service import PATIENCE_S, wait_until

LITTLE_S = 5 # of silence, of a worker that was started after impatient(): worker.c
POINT = "coved.worker.patience.fail"


@pytest.fixture(scope="module")
def w():
    with world("copy") as one:
        yield one


def impatient(w, name):
    """The pid of a new worker of this name, with which coved has little patience."""
    old, log = w.service.child(name), len(read(w.service.log))
    w.arm(POINT)
    os.kill(old, signal.SIGKILL)
    assert wait_until(lambda: w.service.child(name) not in (None, old)), w.service.tail()
    assert wait_until(w.service.is_healthy), w.service.tail()
    # Until its first answer coved has more patience.
    assert wait_until(lambda: f"{name}: ready" in read(w.service.log)[log:]), w.service.tail()
    time.sleep(1)
    assert not w.armed()
    return w.service.child(name)


@contextlib.contextmanager
def something_running(w, sandbox):
    """A process in it, which must be there when all is over."""
    process = w.service.popen("exec", sandbox, "--", "sh", "-c", "exec sleep 1234567", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def runs():
            return "1234567" in w.service.cove("exec", sandbox, "--", "pgrep", "-fa", "^sleep").stdout
        assert wait_until(runs), w.service.tail()
        yield
        assert runs(), w.service.tail()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["cove-api", "cove-egress"])
def test_one_that_stands_still_is_replaced(w, name):
    sandbox = w.begin().filled()
    pid = impatient(w, name)
    with something_running(w, sandbox):
        log = len(read(w.service.log))
        os.kill(pid, signal.SIGSTOP)
        assert wait_until(lambda: w.service.child(name) not in (None, pid), 2 * PATIENCE_S), w.service.tail()
        assert wait_until(w.service.is_healthy), w.service.tail()
        w.works(sandbox)
    said = read(w.service.log)[log:]
    assert f"{name} has not answered for {LITTLE_S} s" in said and f"{name} ended (signal " in said, said
    w.check_whole()
    w.check_no_leaks()


def test_when_all_stood_still_nobody_is_to_blame(w):
    w.begin()
    pid = impatient(w, "cove-api")
    log = len(read(w.service.log))
    for _ in range(2):
        os.kill(w.service.coved_pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(LITTLE_S + 1)
        os.kill(w.service.coved_pid, signal.SIGCONT)
        os.kill(pid, signal.SIGCONT)
        assert wait_until(w.service.is_healthy), w.service.tail()
    assert w.service.child("cove-api") == pid and "has not answered" not in read(w.service.log)[log:], w.service.tail()
