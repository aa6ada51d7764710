# SPDX-License-Identifier: Apache-2.0
"""What coved does with sandboxes' processes and files when it is asked to: pauses, snapshots, what is kept, layers, volumes, comparisons, images."""

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from archives import docker_archive
from leaks import groups, processes, read
from service import BUILD, opened, wait_until
from supervisor import (AGAIN, ABORTED, ALREADY_EXISTS, ATTACH, DEADLINE_EXCEEDED, DIFF, DONE, FAILED_PRECONDITION, FROZEN,
                        IMAGE, INVALID_ARGUMENT, KEPT, KILL, KILLED, LAYER_DROP, LAYERS, LIST, LIVES, NEST, NOT_FOUND, OK, OUT_OF_RANGE, PAUSE, POOL,
                        REQUESTS, RESOURCE_EXHAUSTED, RESUME, SHUTDOWN, SIGNALED, SNAPSHOT, STORED, USAGE, VOLUME_DROP, VOLUME_MAKE, VOLUME_MOUNT, VOLUMES, WARM,
                        Coved, Refused, control_groups, new_id, new_layer, new_volume)

RECORD = struct.Struct("@ccHIQ")


@contextlib.contextmanager
def pool_on_btrfs(pool, image):
    if not shutil.which("mkfs.btrfs") or "btrfs" not in read("/proc/filesystems"):
        pytest.skip("no btrfs here")
    with open(image, "wb") as f:
        f.truncate(6 << 30)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop,discard=async", image, pool], check=True)
    os.chmod(pool, 0o700)
    try:
        yield
    finally:
        subprocess.run(["umount", pool], check=True)


@contextlib.contextmanager
def made(kind):
    """A coved that has not been started yet, on a pool of that kind."""
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="test-state-", dir=BUILD))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        os.chmod(directory, 0o755)
        coved = Coved(directory).make()
        if kind == "btrfs":
            stack.enter_context(pool_on_btrfs(coved.state / "pool", directory / "pool.img"))
            coved.keep_mounts.append(str(coved.state / "pool"))
        coved.seed()
        try:
            yield coved
        finally:
            if coved.process and coved.process.poll() is None:
                coved.kill()
                for state in [Path(group) / "freezer.state" for group in groups(coved.state)]:
                    if state.exists(): # what is frozen does not die before that
                        with contextlib.suppress(OSError):
                            state.write_text("THAWED")
            wait_until(lambda: not processes(coved.state), 10)


def tidy(coved):
    """Nothing of what a test made stays."""
    for sandbox in coved.list():
        coved.remove(sandbox)
    for volume in coved.volumes():
        coved.must(VOLUME_DROP, volume, 0)
    while any([not coved.ask(LAYER_DROP, layer).code for layer in coved.layers() if layer != coved.base]):
        pass
    assert list(coved.layers()) == [coved.base] and not coved.list() and not coved.volumes()
    assert wait_until(lambda: not any(any((coved.state / "pool" / part).iterdir()) for part in ("kept", "new")))


@pytest.fixture(scope="module", params=["copy", "btrfs"])
def shared(request):
    with made(request.param) as coved:
        coved.kind = request.param
        coved.start()
        yield coved
        assert coved.stop() == 0, coved.tail()
        assert wait_until(lambda: not coved.footprint.left()), coved.footprint.left()


@pytest.fixture
def coved(shared):
    if shared.process.poll() is not None:
        shared.start()
    yield shared
    tidy(shared)


def cpu(pid):
    """What its control group has used."""
    for path in control_groups(pid):
        for name in ("cpuacct.usage", "cpu.stat"):
            if (path / name).exists():
                return int("".join(c for c in read(path / name).splitlines()[0] if c.isdigit()))
    raise AssertionError("no figure of the processor")


def has_used(pid, seconds=0.2):
    before = cpu(pid)
    time.sleep(seconds)
    return cpu(pid) != before


def uses(pid):
    """It gets its turn, sooner or later."""
    before = cpu(pid)
    return wait_until(lambda: cpu(pid) != before)


def spinning(coved, sandbox):
    pid = coved.first_process(sandbox)
    return pid, coved.start_inside(pid, "sh", "-c", "while :; do :; done")


def content(coved, sandbox, path):
    return coved.inside(coved.first_process(sandbox), "cat", path).stdout


def write(coved, sandbox, path, text):
    coved.inside(coved.first_process(sandbox), "sh", "-c", f'mkdir -p "$(dirname {path})" && printf %s "$1" >{path}', "sh", text)


# ---- standing still ----

def test_a_pause_stops_what_runs_and_a_resume_lets_it_go_on(coved):
    sandbox = coved.create()
    pid, spin = spinning(coved, sandbox)
    assert uses(pid)
    coved.pause(sandbox)
    assert coved.list() == {sandbox: FROZEN}
    assert not has_used(pid)
    used = coved.must(USAGE, sandbox)
    assert used.pids >= 2 and used.memory > 0
    coved.resume(sandbox)
    assert coved.list() == {sandbox: LIVES} and uses(pid)
    assert coved.remove(sandbox).cause == KILLED
    spin.wait(60)


def test_fifty_pauses_in_a_row(coved):
    sandbox = coved.create()
    pid, spin = spinning(coved, sandbox)
    pauses, resumes = [], []
    for _ in range(50):
        begin = time.perf_counter()
        coved.pause(sandbox)
        middle = time.perf_counter()
        coved.resume(sandbox)
        pauses.append(middle - begin)
        resumes.append(time.perf_counter() - middle)
    print(f"pause p50 {statistics.median(pauses) * 1e6:.0f} us, resume p50 {statistics.median(resumes) * 1e6:.0f} us")
    assert uses(pid)
    coved.remove(sandbox)
    spin.wait(60)


def test_pauses_and_resumes_that_are_none(coved):
    sandbox = coved.create()
    coved.resume(sandbox)
    coved.pause(sandbox)
    coved.pause(sandbox)
    coved.resume(sandbox)
    coved.resume(sandbox)
    assert coved.list() == {sandbox: LIVES}
    for kind, fields in ((PAUSE, (1,)), (PAUSE, (0,)), (RESUME, ())):
        assert coved.ask(kind, new_id(), *fields).code == NOT_FOUND
    for fields in (("x", 1), ("i" * 22, 1), (sandbox, 4), (sandbox.upper(), 0)):
        assert coved.ask(PAUSE, *fields).code == INVALID_ARGUMENT


def test_what_is_asked_at_once_is_done_in_order(coved):
    sandbox = coved.create()
    tags = [coved.send(kind, sandbox, *fields) for kind, *fields in ((PAUSE, 1), (SNAPSHOT, new_layer()), (RESUME,), (SNAPSHOT, new_layer()), (PAUSE, 1))]
    answers = [coved.answer(tag) for tag in tags]
    assert [a.code for a in answers] == [0] * 5
    assert answers[1].frozen_usec == 0 and answers[3].frozen_usec > 0
    assert coved.list() == {sandbox: FROZEN}
    tags = [coved.send(PAUSE, sandbox, 1) for _ in range(40)]
    assert {coved.answer(tag).code for tag in tags} <= {0, RESOURCE_EXHAUSTED}


def test_what_is_frozen_can_be_killed_attached_to_and_is_told_of(coved):
    sandbox = coved.create()
    coved.pause(sandbox)
    for fd in coved.must(ATTACH, sandbox).fds:
        os.close(fd)
    assert coved.remove(sandbox).cause == KILLED
    assert coved.list() == {}


def test_a_fork_bomb_stands_still(coved):
    sandbox = coved.create(pids=200)
    pid = coved.first_process(sandbox)
    bomb = coved.start_inside(pid, "bash", "-c", "f() { f | f & }; while :; do f 2>/dev/null; done")
    assert wait_until(lambda: coved.must(USAGE, sandbox).pids > 100)
    for _ in range(5):
        coved.pause(sandbox)
        assert not has_used(pid, 0.05)
        coved.resume(sandbox)
    coved.pause(sandbox)
    coved.remove(sandbox)
    bomb.wait(60)


def test_who_waits_for_a_vforked_child_and_who_is_stopped_stand_still(coved):
    sandbox = coved.create()
    pid = coved.first_process(sandbox)
    source = "#include <unistd.h>\n#include <signal.h>\nint main(void) { if (vfork() == 0) { sleep(60); _exit(0); } return 0; }"
    coved.inside(pid, "sh", "-c", "gcc -x c - -o /tmp/v", stdin=None, input=source)
    waiting = coved.start_inside(pid, "/tmp/v")
    stopped = coved.start_inside(pid, "sh", "-c", "sh -c 'kill -STOP $$' & sleep 60")
    assert wait_until(lambda: coved.must(USAGE, sandbox).pids >= 4)
    time.sleep(0.2)
    coved.pause(sandbox)
    coved.resume(sandbox)
    coved.remove(sandbox)
    for one in (waiting, stopped):
        one.wait(60)


def waiting_for_disk(coved):
    """How many of its processes."""
    return sum("\nState:\tD" in read(f"/proc/{pid}/status") for pid in processes(coved.state))


def test_what_waits_for_the_disk_is_not_paused_and_goes_on(coved):
    if coved.kind != "btrfs":
        pytest.skip("needs a file system of its own, to be frozen")
    sandbox = coved.create()
    coved.stocked(lambda: len(processes(coved.state))) # boxes are made ahead, so that coved needs nothing of the pool
    pid = coved.first_process(sandbox)
    subprocess.run(["fsfreeze", "-f", coved.state / "pool"], check=True)
    try:
        # The first waits for the file system and can be stopped there; the second for what the first holds, and can't.
        writers = [coved.start_inside(pid, "sh", "-c", f"mkdir /root/{i}; while :; do :; done") for i in range(2)]
        assert wait_until(lambda: waiting_for_disk(coved) >= 2), processes(coved.state)
        answer = coved.ask(PAUSE, sandbox, 1)
        assert answer.code == DEADLINE_EXCEEDED and "keeps running" in answer.message
        assert coved.list() == {sandbox: LIVES}
    finally:
        subprocess.run(["fsfreeze", "-u", coved.state / "pool"], check=True)
    assert uses(pid)
    coved.pause(sandbox)
    coved.remove(sandbox)
    for writer in writers:
        writer.wait(60)


# ---- snapshots ----

def test_a_snapshot_is_what_was_there_and_the_original_goes_on(coved):
    sandbox = coved.create()
    pid, spin = spinning(coved, sandbox)
    write(coved, sandbox, "/root/d/f", "before")
    coved.inside(pid, "rm", "/etc/issue")
    answer = coved.must(SNAPSHOT, sandbox, layer := new_layer())
    assert 0 < answer.frozen_usec <= answer.total_usec
    assert uses(pid)
    write(coved, sandbox, "/root/d/f", "after")
    fork = coved.create(layer=layer)
    assert content(coved, fork, "/root/d/f") == "before"
    assert coved.inside(coved.first_process(fork), "ls", "/etc/issue", check=False).returncode != 0
    write(coved, fork, "/root/d/f", "fork")
    assert content(coved, sandbox, "/root/d/f") == "after"
    info = coved.layers()[layer]
    assert info.below == coved.base and info.in_use == 1 and info.bytes == answer.layer_bytes
    pool = coved.must(POOL)
    assert (info.bytes > 0) == (pool.kind != 2 or bool(pool.limits)) # copies are counted, clones of btrfs known by its quotas
    spin.kill()
    spin.wait(60)


def test_snapshots_of_snapshots_have_all_that_was_written(coved):
    sandbox, depth = coved.create(), 16
    for i in range(depth):
        write(coved, sandbox, f"/root/f{i}", str(i))
        layer = coved.snapshot(sandbox)
        above = coved.create(layer=layer)
        coved.remove(sandbox)
        sandbox = above
    assert coved.inside(coved.first_process(sandbox), "sh", "-c", "cat /root/f*").stdout == "".join(str(i) for i in sorted(range(depth), key=str))


def test_many_snapshots_at_once(coved):
    sandboxes = [coved.create() for _ in range(8)]
    layers = {sandbox: new_layer() for sandbox in sandboxes}
    tags = [coved.send(SNAPSHOT, sandbox, layers[sandbox]) for sandbox in sandboxes]
    assert [coved.answer(tag).code for tag in tags] == [0] * 8
    assert set(layers.values()) < set(coved.layers())
    assert coved.list() == {sandbox: LIVES for sandbox in sandboxes}


def test_snapshots_that_are_refused(coved):
    sandbox = coved.create()
    layer = coved.snapshot(sandbox)
    assert coved.ask(SNAPSHOT, sandbox, layer).code == ALREADY_EXISTS
    assert coved.ask(SNAPSHOT, new_id(), new_layer()).code == NOT_FOUND
    for bad in ("", "x", "../" + new_layer(), "layer-" + "A" * 20, "sha256-" + "0" * 64, new_layer() + "/", b"l" * 72):
        assert coved.ask(SNAPSHOT, sandbox, bad).code == INVALID_ARGUMENT
    assert coved.list() == {sandbox: LIVES}


def test_a_snapshot_takes_nobody_elses_name(coved):
    """A worker that was taken over may name any layer: what fails, or is cancelled, must not take that one along."""
    sandbox, other = coved.create(), coved.create()
    write(coved, sandbox, "/root/f", "x" * 1000)
    layer = coved.snapshot(sandbox)
    assert coved.ask(SNAPSHOT, other, layer).code == ALREADY_EXISTS
    tags = [coved.send(SNAPSHOT, other, layer) for _ in range(4)]
    coved.remove(other)
    assert {coved.answer(tag).code for tag in tags} <= {ALREADY_EXISTS, NOT_FOUND}
    first, second = coved.create(), coved.create()
    new = new_layer()
    tags = [coved.send(SNAPSHOT, first, new), coved.send(SNAPSHOT, second, new)]
    coved.remove(second)
    assert [coved.answer(tag).code for tag in tags] == [0, ALREADY_EXISTS]
    assert {layer, new} <= set(coved.layers())
    assert content(coved, coved.create(layer=layer), "/root/f") == "x" * 1000


def test_a_kill_does_not_wait_for_a_snapshot(coved):
    made_it = 0
    for i in range(12):
        sandbox = coved.create()
        write(coved, sandbox, "/root/f", "x" * 1000)
        tag = coved.send(SNAPSHOT, sandbox, layer := new_layer())
        time.sleep(i * 0.001)
        coved.remove(sandbox)
        answer = coved.answer(tag)
        assert answer.code in (0, ABORTED)
        made_it += answer.code == 0
        assert (layer in coved.layers()) == (answer.code == 0)
    print(f"{made_it} of 12 were made before the end")


# ---- files without processes ----

def test_paused_without_memory_and_back(coved):
    sandbox = coved.create()
    write(coved, sandbox, "/root/f", "kept")
    coved.pause(sandbox, memory=0)
    assert coved.list() == {sandbox: KEPT}
    assert coved.ask(PAUSE, sandbox, 1).code == coved.ask(RESUME, sandbox).code == NOT_FOUND
    layer = coved.snapshot(sandbox)
    assert coved.ask(LAYER_DROP, coved.base).code == FAILED_PRECONDITION
    coved.resume_kept(sandbox, memory=256 << 20)
    assert coved.list() == {sandbox: LIVES} and coved.must(USAGE, sandbox).memory_limit == 256 << 20
    assert content(coved, sandbox, "/root/f") == "kept"
    assert coved.inside(coved.first_process(sandbox), "cat", "/etc/hostname").stdout.startswith("cove-")
    assert content(coved, coved.create(layer=layer), "/root/f") == "kept"
    assert not [m for m in coved.ended if m.id == sandbox]


def test_more_snapshots_of_kept_files_than_are_made_at_once(coved):
    sandbox = coved.create()
    write(coved, sandbox, "/root/f", "kept")
    coved.pause(sandbox, memory=0)
    coved.process.send_signal(signal.SIGSTOP) # so that all are asked for at once, however slow we are
    layers = {coved.send(SNAPSHOT, sandbox, layer): layer for layer in [new_layer() for _ in range(40)]}
    coved.process.send_signal(signal.SIGCONT)
    codes = {layer: coved.answer(tag).code for tag, layer in layers.items()}
    assert set(codes.values()) == {0, RESOURCE_EXHAUSTED}
    assert set(coved.layers()) == {coved.base} | {layer for layer, code in codes.items() if code == 0}
    coved.resume_kept(sandbox)
    assert content(coved, sandbox, "/root/f") == "kept"


def test_a_resume_waits_for_snapshots_of_its_files(coved):
    sandbox = coved.create()
    coved.inside(coved.first_process(sandbox), "sh", "-c", "head -c 256M /dev/zero >/root/large; printf kept >/root/f")
    coved.pause(sandbox, memory=0)
    coved.process.send_signal(signal.SIGSTOP)
    snapshots = [coved.send(SNAPSHOT, sandbox, new_layer()) for _ in range(4)]
    resumed = coved.send_create(sandbox, kept=1)
    coved.process.send_signal(signal.SIGCONT)
    for fd in coved.answer(resumed).fds:
        os.close(fd)
    assert content(coved, sandbox, "/root/f") == "kept"
    assert {coved.answer(tag).code for tag in snapshots} == {0}


def test_frozen_then_stopped(coved):
    sandbox = coved.create()
    write(coved, sandbox, "/root/f", "kept")
    coved.pause(sandbox)
    time.sleep(random.choice([0, 0.12, 0.5])) # before, while and after its files are copied
    coved.pause(sandbox, memory=0)
    assert coved.list() == {sandbox: KEPT}
    coved.resume_kept(sandbox)
    assert content(coved, sandbox, "/root/f") == "kept"


def test_what_is_kept_can_be_killed(coved):
    sandbox = coved.create()
    coved.pause(sandbox, memory=0)
    assert coved.remove(sandbox).cause == KILLED
    assert coved.list() == {} and coved.ask(KILL, sandbox).code == NOT_FOUND
    other = coved.create()
    tags = [coved.send(PAUSE, other, 0), coved.send(KILL, other)]
    assert {coved.answer(tag).code for tag in tags} <= {0, ABORTED}
    coved.await_end(other)
    assert coved.list() == {}


def test_kept_ones_are_not_made_twice(coved):
    sandbox = coved.create()
    for how in ({"kept": 1}, {}):
        with pytest.raises(Refused) as refused:
            coved.create(sandbox, **how)
        assert refused.value.code == ALREADY_EXISTS
    with pytest.raises(Refused) as refused:
        coved.resume_kept(new_id())
    assert refused.value.code == NOT_FOUND
    coved.pause(sandbox, memory=0)
    with pytest.raises(Refused) as refused:
        coved.create(sandbox)
    assert refused.value.code == ALREADY_EXISTS
    with pytest.raises(Refused) as refused:
        coved.create(sandbox, kept=1, layer=coved.base)
    assert refused.value.code == INVALID_ARGUMENT
    tags = [coved.send_create(sandbox, kept=1) for _ in range(3)]
    answers = [coved.answer(tag) for tag in tags]
    for answer in answers:
        for fd in answer.fds:
            os.close(fd)
    assert sorted(a.code == 0 for a in answers) == [False, False, True]
    assert coved.list() == {sandbox: LIVES}


def test_a_start_that_fails_loses_no_files(coved):
    sandbox = coved.create()
    write(coved, sandbox, "/root/f", "kept")
    coved.pause(sandbox, memory=0)
    proc = coved.state / "pool" / "kept" / sandbox / "u" / "proc"
    proc.write_text("no place for a mount")
    with pytest.raises(Refused):
        coved.resume_kept(sandbox)
    assert wait_until(lambda: proc.exists()) and coved.list() == {sandbox: KEPT}
    proc.unlink()
    coved.resume_kept(sandbox)
    assert content(coved, sandbox, "/root/f") == "kept"


@pytest.mark.parametrize("how", [0, 3])
def test_a_resume_that_is_called_off_leaves_it_paused(coved, how):
    """As long as nobody was given it: whether it waits for a box, or is being put into one."""
    sandbox = coved.create()
    write(coved, sandbox, "/root/f", "kept")
    coved.pause(sandbox, memory=0)
    os.kill(coved.pid, signal.SIGSTOP) # both are there when it looks
    tags = [coved.send_create(sandbox, kept=1), coved.send(PAUSE, sandbox, how)]
    os.kill(coved.pid, signal.SIGCONT)
    assert [coved.answer(tag).code for tag in tags] == [ABORTED, 0]
    assert coved.list() == {sandbox: KEPT} and sandbox not in [m.id for m in coved.ended]
    coved.resume_kept(sandbox)
    assert content(coved, sandbox, "/root/f") == "kept"


@pytest.mark.parametrize("how", ["alone", "behind_a_pause", "with_coved", "with_everything", "in_a_stop"])
def test_what_ends_before_its_start_is_done_is_kept_again(coved, how):
    sandbox = coved.create()
    coved.pause(sandbox, memory=0)
    for text in ("once", "twice"):
        coved.create(sandbox, kept=1)
        write(coved, sandbox, "/root/f", text)
        first = coved.first_process(sandbox)
        if how == "in_a_stop":
            assert coved.stop() == 0
            coved.start()
        elif how == "with_everything":
            coved.kill()
            coved.start()
        else:
            os.kill(coved.pid, signal.SIGSTOP)
            os.kill(first, signal.SIGKILL)
            assert wait_until(lambda pid=first: re.search(r"^State:\tZ", read(f"/proc/{pid}/status"), re.MULTILINE))
            if how == "with_coved":
                coved.restart()
            tag = coved.send(*((PAUSE, sandbox, 0) if how == "behind_a_pause" else (RESUME, sandbox)))
            os.kill(coved.pid, signal.SIGCONT)
            assert coved.answer(tag).code in ([0] if how == "behind_a_pause" else [ABORTED, NOT_FOUND])
        assert wait_until(lambda: coved.list() == {sandbox: KEPT}) and sandbox not in [m.id for m in coved.ended]
        assert coved.ask(RESUME, sandbox).code == NOT_FOUND
    coved.resume_kept(sandbox)
    assert content(coved, sandbox, "/root/f") == "twice" and not list((coved.state / "pool" / "asleep").iterdir())
    os.kill(coved.first_process(sandbox), signal.SIGKILL) # it has run
    assert coved.await_end(sandbox).cause == SIGNALED and not coved.list()


def test_what_is_killed_before_its_start_is_done_is_not_kept(coved):
    sandbox = coved.create()
    coved.pause(sandbox, memory=0)
    coved.create(sandbox, kept=1)
    first = coved.first_process(sandbox)
    os.kill(coved.pid, signal.SIGSTOP)
    os.kill(first, signal.SIGKILL)
    tag = coved.send(KILL, sandbox)
    os.kill(coved.pid, signal.SIGCONT)
    assert coved.answer(tag).code == 0
    coved.await_end(sandbox)
    assert not coved.list() and not (coved.state / "pool" / "kept" / sandbox).exists()


def test_a_stop_of_the_service_keeps_what_is_paused(coved):
    running, frozen, early, kept = [coved.create() for _ in range(4)]
    for sandbox in (frozen, early, kept):
        write(coved, sandbox, "/root/f", sandbox)
    coved.pause(kept, memory=0)
    coved.pause(frozen)
    time.sleep(0.6)
    coved.pause(early)
    coved.process.send_signal(signal.SIGTERM)
    assert coved.await_end(running).cause == SHUTDOWN
    with contextlib.suppress(OSError, ConnectionError):
        while True:
            answer = coved.receive()
            assert getattr(answer, "id", running) == running
    assert coved.stop() == 0
    coved.start()
    assert coved.list() == {frozen: KEPT, early: KEPT, kept: KEPT}
    for sandbox in (frozen, early, kept):
        coved.resume_kept(sandbox)
        assert content(coved, sandbox, "/root/f") == sandbox


def test_a_crash_loses_the_memory_and_not_the_files(coved):
    running, copied, frozen, kept = [coved.create() for _ in range(4)]
    for sandbox, text in ((copied, "copied"), (frozen, "frozen"), (kept, "kept")):
        write(coved, sandbox, "/root/f", text)
    asleep = coved.state / "pool" / "asleep"
    coved.pause(kept, memory=0)
    coved.pause(copied)
    if coved.kind == "btrfs": # the copy takes the place of the note
        assert wait_until(lambda: (coved.state / "pool" / "kept" / copied).exists() and not (asleep / copied).is_symlink())
    coved.pause(frozen)
    (asleep / new_id()).symlink_to("another-boot none ")
    (asleep / "no-sandbox").symlink_to("../boxes")
    (asleep / new_id()).write_text("no link")
    coved.kill()
    coved.start()
    assert coved.list() == {copied: KEPT, frozen: KEPT, kept: KEPT} and not list(asleep.iterdir())
    for sandbox, text in ((copied, "copied"), (frozen, "frozen"), (kept, "kept")):
        coved.resume_kept(sandbox)
        assert content(coved, sandbox, "/root/f") == text
    coved.pause(copied)
    coved.resume(copied)
    assert not list(asleep.iterdir())
    assert not [pid for pid, name in processes(coved.state).items() if name == "sleep"]


def test_the_copy_of_what_is_frozen_goes_when_it_runs(coved):
    sandbox = coved.create()
    where = coved.state / "pool" / "kept" / sandbox
    for _ in range(3):
        coved.pause(sandbox)
        if coved.kind == "btrfs":
            assert wait_until(where.exists)
        coved.resume(sandbox)
        assert wait_until(lambda: not where.exists())
    for pause in (0.1, 0.105, 0.11, 0.12, 0.13): # while it is made
        coved.pause(sandbox)
        time.sleep(pause)
        coved.resume(sandbox)
    assert wait_until(lambda: not where.exists())
    time.sleep(0.3)
    assert not where.exists()
    coved.kill()
    coved.start()
    assert coved.list() == {}


@pytest.mark.timeout(300)
def test_killed_at_any_moment_all_is_whole_or_absent(coved):
    """kill -9 of coved while it does everything at once, at moments that differ."""
    known, promised = {}, {}
    for i in range(12):
        sandbox, other, third = [coved.create() for _ in range(3)]
        for one in (sandbox, other, third):
            write(coved, one, "/root/f", one)
        promised = {}
        asked = {coved.send(SNAPSHOT, sandbox, layer := new_layer()): ("layer", layer), coved.send(PAUSE, other, 0): ("kept", other),
                 coved.send(PAUSE, third, 1): ("frozen", third), coved.send(VOLUME_MAKE, volume := new_volume(), 0): ("volume", volume)}
        end = time.monotonic() + random.uniform(0, 0.06)
        coved.sock.settimeout(0.002)
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                m = coved.receive()
                if m.type in (STORED, DONE) and m.tag in asked and m.code == 0:
                    promised[asked[m.tag]] = True
        coved.kill()
        coved.start()
        layers, kept, volumes = coved.layers(), coved.list(), coved.volumes()
        assert set(kept) <= {other, third} | set(known) and set(kept.values()) <= {KEPT}
        assert ("layer", layer) not in promised or layer in layers
        assert ("kept", other) not in promised or other in kept
        assert ("volume", volume) not in promised or volume in volumes
        if layer in layers:
            assert content(coved, coved.create(layer=layer), "/root/f") == sandbox
        for one in (other, third):
            if one in kept:
                coved.resume_kept(one)
                assert content(coved, one, "/root/f") == one
        tidy(coved)
    known.clear()


# ---- cove-api ----

def test_a_new_cove_api_is_not_answered_what_the_last_one_asked(coved):
    sandbox, other = coved.create(), coved.create()
    write(coved, sandbox, "/root/f", "x")
    coved.must(WARM, coved.base, 5, 0, 0, 0, 0)
    for kind, *fields in ((SNAPSHOT, sandbox, new_layer()), (PAUSE, other, 0), (PAUSE, sandbox, 1)):
        coved.send(kind, *fields)
    coved.new_worker()
    life = coved.list()
    assert set(life) == {sandbox, other}
    assert wait_until(lambda: coved.list() == {sandbox: FROZEN, other: KEPT})
    assert coved.early == {}


def test_messages_that_are_none_end_their_sender_and_nobody_else(coved):
    sandbox = coved.create()
    for data in (b"", b"x", b"\0" * 8, struct.pack("@II", PAUSE, 1), struct.pack("@II", 999, 1), b"\xff" * 4096,
                 struct.pack("@II", STORED, 1) + b"\0" * 300):
        if data:
            coved.send_raw(data)
            coved.new_worker()
        assert coved.list() == {sandbox: LIVES}


def test_fields_that_are_none_are_refused(coved):
    """Random bytes in every field of every request: an answer with an error, and all goes on."""
    sandbox = coved.create()
    before = coved.stocked(lambda: len(opened(coved.pid)))
    for _ in range(30):
        for kind, form in REQUESTS.items():
            if kind in (LIST, LAYERS, VOLUMES, POOL, AGAIN):
                continue
            body = bytearray(os.urandom(form.size))
            if random.random() < 0.5: # a good id, the rest not
                body[8:8 + 22] = sandbox.encode() + b"\0"
            if kind in (KILL, ATTACH, RESUME, USAGE):
                body[8:8 + 22] = os.urandom(22)
            struct.pack_into("@II", body, 0, kind, tag := next(coved.tags))
            fds = [os.open("/dev/null", os.O_RDWR)] if random.random() < 0.5 else []
            coved.send_raw(bytes(body), fds)
            for fd in fds:
                os.close(fd)
            assert coved.answer(tag).code == INVALID_ARGUMENT
    assert coved.list() == {sandbox: LIVES} and wait_until(lambda: len(opened(coved.pid)) <= before + 4)


# ---- namespaces within a sandbox ----

def test_a_nest_is_there_as_long_as_its_session(coved):
    sandbox, other = coved.create(), coved.create()
    coved.must(PAUSE, other, 1)
    count = lambda: len(list(coved.inside(coved.first_process(sandbox), "sh", "-c", "ls -d /proc/[0-9]*").stdout.split()))
    before, held = count(), coved.stocked(lambda: len(opened(coved.pid)))

    def ask(*fields, sandbox=sandbox, kind=socket.SOCK_STREAM):
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        with theirs:
            tag = coved.send(NEST, sandbox, *fields, *(b"", b"")[len(fields) - 6:], fds=[theirs.fileno()])
        return coved.answer(tag).code, ours

    for mode in range(3):
        code, ours = ask("/root", mode, 1, 1, 0, b"")
        assert code == OK
        with ours: # its agent greets
            ours.settimeout(20)
            size, stream, kind = struct.unpack("<IIB", ours.recv(9, socket.MSG_WAITALL))
            assert (size, stream, kind) == (4, 0, 1) and count() == before + 1
        assert wait_until(lambda: count() == before)
    for wanted, *fields in ((INVALID_ARGUMENT, "/root", 3, 0, 0, 0, b""), (INVALID_ARGUMENT, "/root", 0, 2, 0, 0, b""), (INVALID_ARGUMENT, "root", 0, 0, 0, 0, b""), (INVALID_ARGUMENT, "/root/../etc", 0, 0, 0, 0, b""),
                            (INVALID_ARGUMENT, "/root", 0, 0, 0, 9, b""), (INVALID_ARGUMENT, "/root", 0, 0, 0, 1, b""), (INVALID_ARGUMENT, "/nowhere", 0, 0, 0, 0, b""), (INVALID_ARGUMENT, "/etc/passwd", 1, 0, 0, 0, b"")):
        code, ours = ask(*fields)
        ours.close()
        assert code == wanted, fields
    for code, wanted in ((ask("/root", 0, 0, 0, 0, b"", sandbox=new_id())[0], NOT_FOUND), (ask("/root", 0, 0, 0, 0, b"", sandbox=other)[0], FAILED_PRECONDITION),
                         (ask("/root", 0, 0, 0, 0, b"", kind=socket.SOCK_SEQPACKET)[0], INVALID_ARGUMENT)):
        assert code == wanted
    for root, name, wanted in ((coved.base, "db", OK), (coved.base, "DB", INVALID_ARGUMENT), (coved.base, "-", INVALID_ARGUMENT), (coved.base, "", INVALID_ARGUMENT),
                               ("../../boxes", "db", INVALID_ARGUMENT), (new_layer(), "db", NOT_FOUND)):
        code, ours = ask("", 0, 0, 0, 0, b"", root, name)
        ours.close()
        assert code == wanted, (root, name)
    coved.send(NEST, sandbox, "/root", 0, 0, 0, 0, b"", b"", b"") # without one: refused
    assert wait_until(lambda: count() == before)
    assert wait_until(lambda: len(opened(coved.pid)) <= held), (held, sorted(opened(coved.pid).values()))


# ---- layers, and what is kept ready ----

def test_layers_are_dropped_when_nobody_stands_on_them(coved):
    sandbox = coved.create()
    lower = coved.snapshot(sandbox)
    fork = coved.create(layer=lower)
    upper = coved.snapshot(fork)
    assert coved.ask(LAYER_DROP, lower).code == FAILED_PRECONDITION
    coved.remove(fork)
    answer = coved.ask(LAYER_DROP, lower)
    assert answer.code == FAILED_PRECONDITION and upper in answer.message
    coved.must(LAYER_DROP, upper)
    coved.must(LAYER_DROP, lower)
    assert coved.ask(LAYER_DROP, lower).code == NOT_FOUND
    assert coved.ask(LAYER_DROP, "../boxes").code == INVALID_ARGUMENT
    with pytest.raises(Refused) as refused:
        coved.create(layer=lower)
    assert refused.value.code == NOT_FOUND
    assert coved.list() == {sandbox: LIVES}


def test_so_many_are_kept_ready_as_was_asked_for(coved):
    layer = coved.snapshot(coved.create())
    coved.create()
    before = coved.stocked(lambda: len(processes(coved.state)))
    coved.must(WARM, layer, 12, 0, 0, 0, 0)
    assert wait_until(lambda: len(processes(coved.state)) >= before + 12)
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        coved.create(layer=layer)
        times.append(time.perf_counter() - begin)
    print(f"create of a warm one: p50 {statistics.median(times) * 1e6:.0f} us")
    for sandbox in coved.list():
        coved.remove(sandbox)
    coved.must(LAYER_DROP, layer) # those that wait are ended for it
    assert wait_until(lambda: len(processes(coved.state)) <= before + 2)
    assert coved.ask(WARM, layer, 1, 0, 0, 0, 0).code == NOT_FOUND
    assert coved.ask(WARM, coved.base, 5000, 0, 0, 0, 0).code == RESOURCE_EXHAUSTED
    assert coved.ask(WARM, coved.base, 1, 4096, 0, 0, 0).code == INVALID_ARGUMENT
    coved.must(WARM, coved.base, 0, 0, 0, 0, 0)


def test_disk_limits_where_the_pool_has_them(coved):
    pool = coved.must(POOL)
    assert pool.kind == {"copy": 0, "btrfs": 2}[coved.kind] and pool.total > pool.free > 0
    sandbox = coved.create(disk=16 << 20)
    used = coved.must(USAGE, sandbox)
    if not pool.limits:
        assert used.disk_limit == 0
        return
    assert used.disk_limit == 16 << 20
    write_much = ("sh", "-c", "dd if=/dev/zero of=/root/big bs=1M count=64 2>&1; sync")
    said = coved.inside(coved.first_process(sandbox), *write_much, check=False).stdout
    assert "quota" in said.lower() or "no space" in said.lower(), said
    assert coved.must(USAGE, sandbox).disk <= 20 << 20
    coved.create()
    assert coved.ask(USAGE, sandbox).code == 0


# ---- volumes ----

def test_volumes_are_shared_and_stay(coved):
    volume = new_volume()
    coved.must(VOLUME_MAKE, volume, 0)
    assert coved.ask(VOLUME_MAKE, volume, 0).code == ALREADY_EXISTS and list(coved.volumes()) == [volume]
    one, two = coved.create(), coved.create()
    for sandbox, read_only in ((one, 0), (two, 1)):
        coved.inside(coved.first_process(sandbox), "mkdir", "/data")
        coved.must(VOLUME_MOUNT, sandbox, volume, "/data", read_only)
    inside = coved.first_process(one)
    coved.inside(inside, "sh", "-c", "echo shared >/data/f; chown 1000:1000 /data/f; cp /bin/id /data/id; chmod 4755 /data/id; mknod /data/null c 1 3 || :")
    assert content(coved, two, "/data/f") == "shared\n"
    assert coved.inside(coved.first_process(two), "sh", "-c", "stat -c %u /data/f; echo >/data/g || echo refused", check=False).stdout == "1000\nrefused\n"
    assert "euid" not in coved.inside(inside, "setpriv", "--reuid=1000", "--clear-groups", "/data/id").stdout
    assert coved.ask(VOLUME_DROP, volume, 0).code == FAILED_PRECONDITION
    coved.remove(one)
    coved.remove(two)
    three = coved.create()
    coved.inside(coved.first_process(three), "mkdir", "/data")
    coved.must(VOLUME_MOUNT, three, volume, "/data", 0)
    assert content(coved, three, "/data/f") == "shared\n"
    coved.remove(three)
    coved.must(VOLUME_DROP, volume, 0)
    assert coved.ask(VOLUME_DROP, volume, 0).code == NOT_FOUND


def test_figures_of_volumes_are_told_of_some_at_a_time(coved):
    """However many there are, coved is never busy with more than 32 of them."""
    volumes = [new_volume() for _ in range(40)]
    for i, volume in enumerate(volumes):
        coved.must(VOLUME_MAKE, volume, (i + 1) << 20)
    answer = coved.volume_usage(*volumes[:31], new_volume())
    assert answer.code == 0 and [(m.volume, m.limit) for m in answer.items] == [(v, (i + 1) << 20) for i, v in enumerate(volumes[:31])]
    for names, n in ((volumes[:1], 0), (volumes[:32], 33), (volumes[:32], 1 << 31), (volumes[:1], 2), (["../boxes"], 1), (["x" * 28], 1)):
        answer = coved.volume_usage(*names, n=n)
        assert answer.code == INVALID_ARGUMENT and not answer.items, (names, n, answer)
    assert set(coved.volumes()) == set(volumes)


def test_a_volume_is_mounted_in_the_sandbox_and_nowhere_else(coved):
    volume, sandbox = new_volume(), coved.create()
    coved.must(VOLUME_MAKE, volume, 0)
    inside = coved.first_process(sandbox)
    coved.inside(inside, "sh", "-c", "ln -s / /root/top; ln -s ../../../../../../../tmp /root/up; ln -s /proc/1/root /root/proc; echo >/root/file; mkdir -p /root/a/b")
    wrong = {"/nope": NOT_FOUND, "/root/top": FAILED_PRECONDITION, "/root/up": FAILED_PRECONDITION, "/root/up/x": FAILED_PRECONDITION,
             "/root/proc/tmp": FAILED_PRECONDITION, "/root/top/root/a": FAILED_PRECONDITION, "/root/file": FAILED_PRECONDITION}
    wrong.update({path: INVALID_ARGUMENT for path in ("", "/", "root", "/root/", "//root", "/root/../tmp", "/proc", "/proc/1", "/sys/fs", "/dev/shm", "/a/./b")})
    for path, code in wrong.items():
        answer = coved.ask(VOLUME_MOUNT, sandbox, volume, path, 0)
        assert answer.code == code, (path, answer)
    assert coved.ask(VOLUME_MOUNT, sandbox, volume, b"/" + b"x" * 1023, 0).code == INVALID_ARGUMENT
    assert coved.ask(VOLUME_MOUNT, sandbox, new_volume(), "/root/a", 0).code == NOT_FOUND
    assert coved.ask(VOLUME_MOUNT, new_id(), volume, "/root/a", 0).code == NOT_FOUND
    assert volume not in read("/proc/self/mountinfo") and volume not in read(f"/proc/{coved.pid}/mountinfo")
    coved.must(VOLUME_DROP, volume, 0) # none of these is mounted
    coved.must(VOLUME_MAKE, volume, 0)
    coved.pause(sandbox)
    assert coved.ask(VOLUME_MOUNT, sandbox, volume, "/root/a", 0).code == FAILED_PRECONDITION
    coved.resume(sandbox)
    coved.must(VOLUME_MOUNT, sandbox, volume, "/root/a/b", 0)
    assert coved.inside(inside, "findmnt", "-no", "OPTIONS", "/root/a/b").stdout.startswith("rw,nosuid,nodev")


# ---- comparisons ----

def compare(coved, a, b, ends=0):
    """{path: kind and type}, of a comparison that ends with this code."""
    ours, theirs = os.pipe()
    tag = coved.send(DIFF, a, b, fds=[theirs])
    os.close(theirs)
    data = bytearray()
    while chunk := os.read(ours, 65536):
        data += chunk
    os.close(ours)
    answer = coved.answer(tag)
    if answer.code != ends:
        raise Refused(answer)
    found, at = {}, 0
    while at < len(data):
        kind, what, n, _, _ = RECORD.unpack_from(data, at)
        at += RECORD.size
        path = bytes(data[at:at + n]).decode(errors="surrogateescape")
        at += n
        assert path not in found, path
        found[path] = (kind + what).decode()
    return found


OURS = {"etc/hostname", "etc/hosts", "etc/resolv.conf"}


def changes(coved, a, b):
    return {path: what for path, what in compare(coved, a, b).items() if path not in OURS}


def test_what_a_sandbox_changed(coved):
    sandbox = coved.create()
    inside = coved.first_process(sandbox)
    assert changes(coved, "", sandbox) == {}
    coved.inside(inside, "sh", "-c", "mkdir -p /root/d/e; echo x >/root/d/f; echo y >/etc/motd; rm /etc/issue; chmod 600 /etc/passwd; touch /etc/group; ln -s a /root/l; "
                 "mkfifo /root/p; rm -r /usr/share/common-licenses; rmdir /opt; echo file >/opt")
    assert changes(coved, "", sandbox) == {
        "root/d": "Ad", "root/d/e": "Ad", "root/d/f": "Af", "etc/motd": "Mf", "etc/issue": "Df", "etc/passwd": "Mf", "root/l": "Al", "root/p": "Ap",
        "usr/share/common-licenses": "Dd", "opt": "Mf"}
    layer = coved.snapshot(sandbox)
    assert compare(coved, layer, sandbox) == compare(coved, sandbox, layer) == {}
    assert compare(coved, "", layer) == compare(coved, "", sandbox)
    for above in (layer, sandbox): # nor do the files that Cove writes into each box go from it to the template
        back = compare(coved, above, coved.base)
        assert not OURS & set(back) and back["etc/motd"] == "Mf" and back["etc/issue"] == "Af"
    coved.inside(inside, "sh", "-c", "echo 10.1.1.1 db >>/etc/hosts; rm /etc/hostname")
    assert OURS & set(compare(coved, sandbox, coved.base)) == {"etc/hosts"}
    assert OURS & set(compare(coved, layer, sandbox)) == {"etc/hosts", "etc/hostname"}
    fork = coved.create(layer=layer)
    coved.inside(coved.first_process(fork), "sh", "-c", "echo z >/root/d/f; rm /root/l; echo back >/root/new")
    assert changes(coved, "", fork) == {"root/d/f": "Mf", "root/l": "Dl", "root/new": "Af"}
    assert changes(coved, fork, sandbox) == {"root/d/f": "Mf", "root/l": "Al", "root/new": "Df"}
    coved.pause(fork, memory=0)
    assert changes(coved, layer, fork) == {"root/d/f": "Mf", "root/l": "Dl", "root/new": "Af"}


def test_directories_that_were_moved_or_made_anew(coved):
    sandbox = coved.create()
    inside = coved.first_process(sandbox)
    coved.inside(inside, "sh", "-c", "mkdir -p /root/a/b; echo 1 >/root/a/b/1; echo 2 >/root/a/2; mkdir /root/gone; echo >/root/gone/x")
    layer = coved.snapshot(sandbox)
    fork = coved.create(layer=layer)
    inside = coved.first_process(fork)
    coved.inside(inside, "sh", "-c", "mv /root/a /root/z; echo 3 >/root/z/b/3; mv /root/z/b /root/deep; rm -r /root/gone; mkdir /root/gone; echo >/root/gone/y")
    expected = {"root/a": "Dd", "root/z": "Ad", "root/z/2": "Af", "root/deep": "Ad", "root/deep/1": "Af", "root/deep/3": "Af", "root/gone/x": "Df", "root/gone/y": "Af"}
    assert changes(coved, layer, fork) == expected
    above = coved.snapshot(fork)
    assert changes(coved, layer, above) == expected
    last = coved.create(layer=above)
    coved.inside(coved.first_process(last), "sh", "-c", "mkdir /root/a; mv /root/deep /root/a/b; mv /root/z/2 /root/a/2; rmdir /root/z; echo 1 >/root/a/b/1; rm /root/a/b/3")
    assert changes(coved, layer, last) == {"root/gone/x": "Df", "root/gone/y": "Af"}


def test_names_and_depths_that_want_to_hurt(coved):
    sandbox = coved.create()
    script = ("import os\nfor n in [b'\\xff\\xfe', b'new\\nline', b'x' * 255, b'-rf', b' ']:\n open(b'/root/' + n, 'w').close()\n"
              "os.chdir('/root')\nfor i in range(600):\n os.mkdir('d')\n os.chdir('d')\n")
    coved.inside(coved.first_process(sandbox), "python3", "-c", script)
    found = compare(coved, "", sandbox, ends=OUT_OF_RANGE) # all was told but what lies deeper
    assert {"root/\udcff\udcfe", "root/new\nline", "root/" + "x" * 255, "root/-rf", "root/ "} <= set(found)
    assert max(path.count("/") for path in found) in range(200, 257)


def test_comparisons_that_are_refused_or_read_by_nobody(coved):
    sandbox = coved.create()
    for a, b, code in ((sandbox, new_id(), NOT_FOUND), (new_layer(), sandbox, NOT_FOUND), (sandbox, "", INVALID_ARGUMENT), ("x", sandbox, INVALID_ARGUMENT)):
        with pytest.raises(Refused) as refused:
            compare(coved, a, b)
        assert refused.value.code == code
    assert coved.ask(DIFF, "", sandbox).code == INVALID_ARGUMENT # no descriptor
    coved.inside(coved.first_process(sandbox), "sh", "-c", "cd /root; i=0; while [ $i -lt 3000 ]; do : >file-of-a-long-name-$i; i=$((i+1)); done")
    ours, theirs = os.pipe()
    tags = [coved.send(DIFF, "", sandbox, fds=[theirs]) for _ in range(6)] # they wait for us
    os.close(theirs)
    coved.snapshot(sandbox)
    coved.pause(sandbox)
    coved.resume(sandbox)
    os.close(ours)
    assert all(coved.answer(tag).code for tag in tags)


# ---- images ----

def unpack(coved, archive):
    """The answer, and what cove-image said."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            tag = coved.send(IMAGE, layer := new_layer(), fds=[theirs.fileno()])
        with open(archive, "rb") as f:
            socket.send_fds(ours, [b'{"archive":true}\n'], [f.fileno()])
        answer = coved.answer(tag)
        said = b""
        with contextlib.suppress(OSError):
            while chunk := ours.recv(65536):
                said += chunk
    return layer, answer, said


def test_an_image_becomes_a_layer_that_sandboxes_stand_on(coved):
    if not (coved.programs / "cove-image").exists():
        pytest.skip("cove-image is not built")
    archive = coved.directory / "image.tar"
    docker_archive(archive, {"etc/hello": b"from an image"})
    layer, answer, said = unpack(coved, archive)
    assert answer.code == 0, (answer, said)
    assert coved.layers()[layer].below == ""
    sandbox = coved.create(layer=layer) # there is no program in it but the agent
    assert "Af" == compare(coved, coved.base, sandbox)["etc/hello"]
    archive.write_bytes(b"no archive at all" * 1000)
    layer, answer, said = unpack(coved, archive)
    assert answer.code == ABORTED and b'"error"' in said and layer not in coved.layers()


IMAGES_MAX = 128 # src/coved/storage/image.h


def test_an_image_ends_with_who_asked_for_it(coved, request):
    if not (coved.programs / "cove-image").exists():
        pytest.skip("cove-image is not built")
    before = coved.stocked(lambda: len(processes(coved.state)))
    is_bounded = "[copy]" in request.node.name # whatever the pool is: once, for it takes seconds
    pairs = [socket.socketpair() for _ in range(IMAGES_MAX + 2 if is_bounded else 4)]
    tags = [coved.send(IMAGE, new_layer(), fds=[theirs.fileno()]) for _, theirs in pairs]
    assert {coved.answer(tag).code for tag in tags[IMAGES_MAX:]} == ({RESOURCE_EXHAUSTED} if is_bounded else set())
    coved.new_worker()
    assert coved.list() == {}
    assert wait_until(lambda: not list((coved.state / "pool" / "new").iterdir()))
    assert wait_until(lambda: len(processes(coved.state)) <= before + 2), processes(coved.state)
    for pair in pairs:
        for one in pair:
            one.close()
    assert coved.ask(IMAGE, new_layer()).code == INVALID_ARGUMENT # no descriptor
