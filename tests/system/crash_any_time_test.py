# SPDX-License-Identifier: Apache-2.0
"""Our processes die when somebody likes, the pool grows and is full in the middle of whatever is done: what was promised is there, and nothing is left over."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time

import pytest
from crash import FAULTS, OPERATIONS, SETTLE_S, before, content, world
from leaks import read
from service import wait_until

GIB = 1 << 30


@pytest.mark.timeout(600)
def test_the_process_that_lets_the_pool_grow_dies():
    with world("btrfs", first_size=2 * GIB) as w:
        w.arm("pool.grow.file")
        sandbox = w.filled()
        before = (w.service.state / "pool.btrfs").stat().st_size
        for megabytes in (1400, 100, 100): # taken at once, and for good: what is written is on the disk half a minute later
            w.service.cove("exec", sandbox, "--", "fallocate", "-l", f"{megabytes}MB", f"/home/user/{time.monotonic()}")
            if wait_until(lambda: not w.armed(), 10 if megabytes == 100 else 1):
                break
        assert wait_until(lambda: not w.armed()), w.service.tail()
        # The file has grown and the file system in it has not: the next one goes on.
        assert wait_until(lambda: "the storage pool has grown" in read(w.service.log)), w.service.tail()
        assert (w.service.state / "pool.btrfs").stat().st_size > before
        w.check_whole()
        w.check_no_leaks()


def free_after_commit(w):
    """The file system drops what was deleted after its next commit, which comes by itself, but a few seconds later."""
    subprocess.run(["btrfs", "filesystem", "sync", w.pool()], check=True, timeout=60, stdout=subprocess.DEVNULL)
    return w.must("GET", "pool")["free_bytes"]


@pytest.mark.timeout(600)
def test_a_pool_that_is_full_in_the_middle_of_everything():
    """Without a reserve, so that nothing is refused beforehand."""
    with world("btrfs", first_size=2 * GIB, config="pool: {size: 2GiB}\ndisk_reserve: 1MiB\ndefaults: {disk: 0}\n") as w:
        with open(w.pool() / "filler", "wb") as f: # which need not be filled each time
            os.posix_fallocate(f.fileno(), 0, 1150 << 20)
        for operation in ("snapshot", "fork", "pause", "freeze", "resume", "build", "image", "volume", "drop", "unname", "gc"):
            subject = before(w, operation)
            ballast = w.sandbox()
            filled = w.service.popen("exec", ballast, "--", "sh", "-c", "cat /dev/zero >/home/user/a; cat /dev/zero >/home/user/b; echo full",
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            try:
                if random.random() < 0.5: # while it fills up, or when it has
                    time.sleep(random.random())
                else:
                    filled.wait(250)
                status, answer, kept = OPERATIONS[operation](w, subject)
            finally:
                if filled.poll() is None:
                    filled.kill()
                filled.wait()
                filled.stdout.close()
            if operation in ("drop", "unname", "gc"):
                assert status is not None and status < 300, (operation, status, answer) # what frees room always can
            if status is not None and status < 300:
                assert kept(), (operation, answer)
            elif operation not in ("build", "image"):
                assert status is not None and answer["error"]["code"] in ("resource_exhausted", "internal", "aborted", "not_found"), (operation, status, answer)
            assert w.service.coved.poll() is None, w.service.tail()
            w.must("DELETE", f"sandboxes/{ballast}")
            assert wait_until(lambda: free_after_commit(w) > 300 << 20, SETTLE_S), w.must("GET", "pool")
            assert wait_until(lambda: w.ask("POST", "sandboxes", {})[0] in (200, 201))
            w.check_whole()
            w.check_no_leaks()


def load(w, seed, stop, problems):
    """Whatever can be done to a sandbox, in some order; an answer may stay out, a wrong content never."""
    chance = random.Random(seed)
    while not stop.is_set():
        try:
            status, made = w.ask("POST", "sandboxes", {"timeout_ms": 600000})
            if status != 201:
                time.sleep(0.05)
                continue
            sandbox, mark = made["id"], f"load-{seed}-{chance.random()}"
            if w.ask("PUT", f"sandboxes/{sandbox}/files?path=/home/user/state", content(mark))[0] not in (200, 201, 204):
                continue
            w.marks[sandbox] = mark
            for _ in range(4):
                operation = chance.choice(["snapshot", "fork", "pause", "resume", "freeze", "volume", "gc"])
                body = {"fork": {"count": 2}, "pause": {"memory": False}, "volume": {"name": f"load-{seed}-{chance.random()}"}}.get(operation, {})
                target = {"snapshot": f"sandboxes/{sandbox}/snapshots", "freeze": f"sandboxes/{sandbox}/pause", "volume": "volumes",
                          "gc": "pool/collect"}.get(operation, f"sandboxes/{sandbox}/{operation}")
                status, answer = w.ask("POST", target, body)
                if status == 201 and operation == "fork":
                    w.marks.update({f["sandbox"]["id"]: mark for f in answer["forks"] if "sandbox" in f})
                if status is not None and status >= 500 and not stop.is_set() and "error" not in (answer or {}):
                    problems.append((operation, status, answer))
            w.ask("DELETE", f"sandboxes/{sandbox}")
        except (ValueError, KeyError, TypeError) as e: # an answer that is none of ours
            problems.append(repr(e))


@pytest.mark.timeout(600)
def test_deaths_at_any_time():
    chance = random.Random(int(os.environ.get("CRASH_SEED", time.time())))
    with world("btrfs") as w:
        stop, problems = threading.Event(), []
        threads = [threading.Thread(target=load, args=(w, i, stop, problems)) for i in range(4)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 20
        try:
            while time.monotonic() < end:
                time.sleep(chance.uniform(0.1, 1.5))
                victims = [pid for pid in w.service.children() if read(f"/proc/{pid}/comm").strip() in ("cove-api", "coved", "cove-egress")]
                victim = chance.choice([*victims, *victims, w.service.coved.pid]) # with the keeper all of it, now and then
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                if w.service.coved.poll() is not None or (victim == w.service.coved.pid and w.service.coved.wait(60)):
                    w.service.start(FAULTS / "coved")
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        w.revive()
        assert not problems, problems
        w.check_whole()
        w.check_no_leaks()
