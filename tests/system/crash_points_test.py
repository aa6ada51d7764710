# SPDX-License-Identifier: Apache-2.0
"""
Our processes die at each point of the operations on state, or the disk fails or is full there: what was promised is there, and nothing is left over.
"""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from crash import FAULTS, OPERATIONS, SETTLE_S, before, content, world
from leaks import read
from service import BUILD, wait_until

# operation: points at which a process dies. Those of pool.* are in the process that does the work: a job of coved, or coved itself.
STORE = ["coved.snapshot.begin", "pool.cloned", "pool.stripped", "coved.snapshot.frozen", "coved.snapshot.made", "core.store.asked", "core.store.answered"]
DEATHS = {
    "create": [*(f"core.start.{step}" for step in ("network", "box", "agent", "certificate", "command", "running")), "coved.create.started",
               "coved.create.recorded"],
    "remove": ["coved.ended.seen", "coved.ended.told"],
    "snapshot": [*STORE, "core.snapshot.added", "core.snapshot.committed"],
    "fork": ["coved.snapshot.frozen", "pool.cloned", "core.fork.stored", "core.fork.made", "core.store.answered"],
    "pause": ["core.pause.begun", "core.pause.answered", "coved.stop.recorded", "coved.keep.reaped", "coved.keep.begin", "coved.keep.made", "pool.stripped",
              "pool.noted", "pool.put", "pool.named"],
    "freeze": ["core.pause.begun", "core.pause.answered", "coved.pause.noted", "coved.pause.recorded", "coved.copy.begin", "pool.cloned", "pool.put", "pool.named"],
    "resume": [*(f"core.start.{step}" for step in ("forget", "box", "confirm")), "coved.create.started", "coved.create.recorded", "coved.resume.recorded",
               "pool.made", "pool.filled"],
    "rewind": ["core.pause.begun", "core.pause.answered", "coved.keep.reaped", "core.start.forget", "core.start.rewind", "core.start.box", "coved.rewind.begin",
               "coved.rewind.made", "coved.create.started"],
    "thaw": ["coved.resume.begun", "coved.resume.recorded"],
    "mount": ["coved.mount.open"],
    "build": ["build.step.stored", "build.step.cached", "build.job.done", "coved.snapshot.begin", "pool.cloned", "coved.snapshot.made"],
    "image": ["image.fetch.begin", "image.unpack.begin", "image.job.unpacked", "coved.image.commit", "pool.made", "pool.noted", "pool.put", "pool.named"],
    "unname": ["core.template.removed"],
    "gc": ["core.gc.listed", "core.gc.dropped", "coved.drop.begin", "pool.trash"],
    "volume": ["core.volume.asked", "core.volume.made", "coved.volume.made", "pool.made", "pool.put", "pool.named"],
    "drop": ["core.volume.dropped", "coved.volume.dropped", "pool.trash"],
}
# What an operation is told there instead: EIO and ENOSPC.
ERRORS = {
    "snapshot": ["coved.snapshot", "pool.cloned", "pool.stripped"],
    "pause": ["coved.keep", "pool.noted", "pool.put", "pool.named"],
    "resume": ["pool.filled"],
    "rewind": ["coved.rewind"],
    "build": ["coved.snapshot", "pool.stripped"],
    "image": ["coved.image", "pool.made", "pool.noted", "pool.put", "pool.named"],
    "volume": ["pool.made", "pool.put", "pool.named"],
}
# Where clones copy, steps come in the same order but take other ways.
COPY_DEATHS = {"snapshot": ["pool.cloned", "pool.stripped", "pool.noted", "pool.put", "pool.named"], "pause": ["coved.keep.reaped", "pool.noted", "pool.put"],
               "freeze": ["core.pause.answered", "coved.pause.noted"], "resume": ["core.start.box", "pool.filled"], "gc": ["pool.trash"], "volume": ["pool.made"]}


@pytest.fixture(scope="module")
def on_btrfs():
    with world("btrfs") as w:
        yield w


@pytest.fixture(scope="module")
def on_copies():
    with world("copy") as w:
        yield w


def die_at(w, operation, point, with_keeper=False):
    w.begin()
    bystander, subject = w.filled(), before(w, operation)
    w.calm()
    w.arm(point, with_keeper)
    status, answer, kept = OPERATIONS[operation](w, subject)
    assert wait_until(lambda: point not in w.armed()), f"nobody came by {point}: {status} {answer}\n{w.service.tail()}"
    died = w.revive()
    assert died == "keeper" or not with_keeper, died
    if status is not None and status < 300:
        assert kept(), (operation, point, answer)
    if died != "keeper":
        assert bystander in w.listed()["sandboxes"] # it is nobody's death
    if died == "coved" and operation not in ("image", "build"): # the next one does it; an image's socket was lost
        assert status is not None and status < 300, (operation, point, status, answer, w.service.tail())
    if died != "keeper" and operation not in ("unname", "gc", "drop", "remove") and subject and not point.startswith(("coved.keep", "pool.")):
        assert subject in w.listed()["sandboxes"]
    if died == "keeper" and operation in ("pause", "freeze", "resume"):
        assert subject in w.listed()["sandboxes"] # also everything's not that of one which stood still
    w.check_whole()


def test_what_is_installed_has_no_switch():
    for program in ("coved", "cove-api", "cove-egress", "cove-image"):
        assert [b"COVE_FAULTS" in (directory / program).read_bytes() for directory in (BUILD, FAULTS)] == [False, True], program


PAIRS = [(operation, point) for operation, points in DEATHS.items() for point in points]
IN_JOBS = {"coved.snapshot.begin", "coved.rewind.begin", "coved.keep.begin", "coved.copy.begin", "coved.image.commit", "coved.mount.open"}
COVEDS = [(operation, point) for operation, point in PAIRS if point.startswith("coved.") and point not in IN_JOBS] # also with all the rest


@pytest.mark.parametrize("operation,point", PAIRS, ids=lambda v: v)
def test_a_death(on_btrfs, operation, point):
    die_at(on_btrfs, operation, point)
    on_btrfs.check_no_leaks()


@pytest.mark.parametrize("operation,point", COVEDS, ids=lambda v: v)
def test_a_death_of_everything(on_btrfs, operation, point):
    die_at(on_btrfs, operation, point, with_keeper=True)
    on_btrfs.check_no_leaks()


@pytest.mark.parametrize("point", ["core.start.forget", "core.start.network", "core.start.box", "core.start.agent", "core.mount.asked", "core.mount.answered",
                                   "core.start.volumes", "core.start.certificate", "core.launch.started", "core.start.command", "core.start.confirm",
                                   "core.start.running"])
def test_a_death_in_the_middle_of_a_start_on_kept_files(on_btrfs, point):
    """Whoever takes over starts it from the beginning: all volumes are there, and its template's server runs, once."""
    w = on_btrfs.begin()
    template, start = w.name("roused"), "echo started >>/home/user/starts; exec sleep 1234567"
    done = w.service.cove("template", "build", "--name", template, "--memory", "512MiB", "--start-cmd", start, "--ready-cmd", "pgrep -x sleep",
                          "--from-template", "base", timeout=200)
    assert done.returncode == 0, done
    mounts = [{"name": w.name("volume"), "path": path} for path in ("/mnt/a", "/home/user/b")]
    for mount in mounts:
        w.must("POST", "volumes", {"name": mount["name"]})
    sandbox = w.sandbox(template, volumes=mounts)
    for mount in mounts:
        w.volumes[mount["name"]] = w.write(sandbox, f"{mount['path']}/state")
    w.marks[sandbox] = w.write(sandbox)
    w.must("POST", f"sandboxes/{sandbox}/pause", {"memory": False})
    w.calm()
    w.arm(point)
    assert w.ask("POST", f"sandboxes/{sandbox}/resume", {}) == (None, None)
    assert not w.armed() and w.revive() == "cove-api"
    if point == "core.start.forget": # coved had not been asked
        w.must("POST", f"sandboxes/{sandbox}/resume", {})
    assert wait_until(lambda: w.must("GET", f"sandboxes/{sandbox}")["state"] == "running", SETTLE_S), w.service.tail()
    for mount in mounts:
        assert w.read(sandbox, f"{mount['path']}/state") == content(w.volumes[mount["name"]])
    done = w.service.cove("exec", sandbox, "--", "sh", "-c", "grep -c ' /mnt/a \\| /home/user/b ' /proc/mounts; pgrep -xc sleep")
    assert done.stdout == "2\n1\n", done
    w.check_whole()
    w.check_no_leaks()


@pytest.mark.parametrize("operation,point", [(o, p) for o, points in COPY_DEATHS.items() for p in points], ids=lambda v: v)
def test_a_death_where_clones_copy(on_copies, operation, point):
    die_at(on_copies, operation, point)
    on_copies.check_no_leaks()


@pytest.mark.parametrize("operation,point", [(o, f"{p}.{how}") for o, points in ERRORS.items() for p in points for how in ("full", "fail")],
                         ids=lambda v: v)
def test_an_error(on_btrfs, operation, point):
    w = on_btrfs.begin()
    subject = before(w, operation)
    w.calm()
    w.arm(point)
    status, answer, kept = OPERATIONS[operation](w, subject)
    assert not w.armed(), f"nobody came by {point}: {status} {answer}\n{w.service.tail()}"
    assert w.service.coved.poll() is None and w.service.is_healthy(), w.service.tail()
    if operation in ("build", "image"):
        assert status is None and re.search("full|No space left|Input/output error|ended unexpectedly", answer.stderr), answer
    elif status is None or status >= 300:
        wanted = "resource_exhausted" if point.endswith(".full") else "internal"
        assert status is not None and answer["error"]["code"] == wanted, (status, answer)
    else:
        assert kept(), answer
    w.check_whole()
    w.check_no_leaks()


def swap_file(directory):
    """A machine's swap, for as long as the test. It is everybody's, so only who says COVE_TEST_SWAP=1 gets it; without one, only what has a file is given."""
    if os.environ.get("COVE_TEST_SWAP") != "1":
        return None
    swap = directory / "swap"
    subprocess.run(["dd", "if=/dev/zero", f"of={swap}", "bs=1M", "count=256"], check=True, stderr=subprocess.DEVNULL)
    swap.chmod(0o600)
    made = [subprocess.run([tool, swap], capture_output=True, check=False).returncode for tool in ("mkswap", "swapon")]
    assert made == [0, 0], "this machine allows no swap"
    return swap


HOLDER = b"""
import hashlib, os, time
held = os.urandom(64 << 20)
with open("file", "wb") as f: # as much in the page cache
    f.write(held)
    os.fsync(f.fileno())
os.symlink(hashlib.sha256(held).hexdigest(), "ready")
while not os.path.exists("go"):
    time.sleep(0.05)
os.symlink(hashlib.sha256(held).hexdigest(), "again")
"""


def memory_of(service, argument):
    """The function that tells what is used by the control group of the process with this argument."""
    for pid in (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()):
        if read(f"/proc/{pid}/cmdline").split("\0")[-2:-1] != [argument]:
            continue
        for line in read(f"/proc/{pid}/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            for file in (f"/sys/fs/cgroup/memory{path}/memory.usage_in_bytes", f"/sys/fs/cgroup{path}/memory.current"):
                if controllers in ("", "memory") and Path(file).exists():
                    return lambda file=file: int(read(file)) >> 20
    raise AssertionError(f"no process with the argument {argument}: {service.processes()}")


def test_paused_ones_give_their_memory_when_it_is_short(on_btrfs):
    """The machine is said to be short of memory, once for each point that is armed."""
    w = on_btrfs.begin()
    boxes = [w.sandbox() for _ in range(2)]
    for box in boxes:
        w.must("PUT", f"sandboxes/{box}/files?path=/home/user/holder.py", HOLDER)
        done = w.service.cove("exec", box, "--", "sh", "-c", f"python3 holder.py {box} >/dev/null 2>&1 & until test -h ready; do sleep 0.05; done")
        assert done.returncode == 0, done
    used = [memory_of(w.service, box) for box in boxes]
    swap = swap_file(w.service.directory)
    try:
        for box in boxes:
            w.must("POST", f"sandboxes/{box}/pause", {})
        before = [of() for of in used]
        assert min(before) >= 128
        time.sleep(2.5)
        assert all(of() > had - 16 for of, had in zip(used, before)) # nothing is taken while there is enough
        w.arm("coved.memory.short.fail")
        least = 100 if swap else 40
        assert wait_until(lambda: used[0]() < before[0] - least), (swap, before, [of() for of in used], w.service.tail())
        assert wait_until(lambda: f"paused sandbox {boxes[0]} has given back" in read(w.service.log))
        assert used[1]() > before[1] - 16 # one at a time, the one that was paused first
        for box in boxes:
            w.must("POST", f"sandboxes/{box}/resume", {})
            script = "touch go; until test -h again; do sleep 0.05; done; test $(readlink ready) = $(readlink again) && sha256sum file"
            done = w.service.cove("exec", box, "--", "sh", "-c", f"readlink ready; {script}")
            first, second = done.stdout.splitlines()
            assert second.split()[0] == first
    finally:
        if swap:
            subprocess.run(["swapoff", swap], check=True)
            swap.unlink()
    w.check_no_leaks()


TERMINALS = """
import os, time
held = []
try:
    while len(held) < int(os.environ["MOST"]):
        held.append(os.openpty())
except OSError:
    pass
os.symlink(str(len(held)), "held")
time.sleep(1000)
"""


def test_a_box_that_can_t_be_made_ready_is_replaced(on_btrfs):
    """Whoever asked doesn't hear of it. Nothing waits for a snapshot that nobody has used."""
    w = on_btrfs.begin()
    snapshot = w.name("odd")
    assert w.service.cove("snapshot", w.sandbox(), snapshot).returncode == 0
    w.calm()
    w.arm("tier.root.mount.fail")
    w.sandbox(snapshot)
    assert not w.armed() and "could not be made ready, another one takes its place: mount the root file system" in read(w.service.log)
    w.check_no_leaks()


def test_whoever_has_most_terminals_is_ended_when_they_are_short(on_btrfs):
    """The machine is said to be short of terminals, once."""
    w = on_btrfs.begin()
    greedy, modest = w.sandbox(), w.sandbox()
    for box, most in ((greedy, 1000), (modest, 10)):
        w.must("PUT", f"sandboxes/{box}/files?path=/home/user/terminals.py", TERMINALS.encode())
        done = w.service.cove("exec", box, "--", "sh", "-c", f"MOST={most} python3 terminals.py >/dev/null 2>&1 & until test -h held; do sleep 0.05; done; readlink held")
        assert done.stdout == f"{min(most, 64)}\n", done # one sandbox has no more
    w.arm("coved.terminals.short.fail")
    assert wait_until(lambda: w.service.request("GET", f"/cove/v1/sandboxes/{greedy}")[2]["state"] == "ended"), w.service.tail()
    assert f"sandbox {greedy} has 64 of them, and is ended" in read(w.service.log)
    assert w.service.cove("exec", modest, "--", "python3", "-c", "import os; os.openpty()").returncode == 0
    w.check_no_leaks()
