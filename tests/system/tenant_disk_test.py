# SPDX-License-Identifier: Apache-2.0
"""What a tenant whose disk is limited can get by clones that outlive what they were made of, on btrfs with simple quotas (Linux 6.7)."""

import json
import os
import platform
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from leaks import BUILD, loop_devices, read
from service import Service, pool_on_btrfs, wait_until

MIB = 1 << 20
DISK = 240 # MiB that the tenant may have; what there really is of it is twice that at most
PIECE = 48
ROUNDS = 2 * DISK // PIECE # by then it has had all
SIZE = 64 # MiB of each sandbox and volume
KERNEL = tuple(int(n) for n in platform.release().split("-", maxsplit=1)[0].split(".")[:2])


@pytest.fixture(scope="module")
def service():
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    if not shutil.which("mkfs.btrfs") or not Path("/dev/loop-control").exists() or "btrfs" not in read("/proc/filesystems") or KERNEL < (6, 7):
        pytest.skip("no btrfs with simple quotas, or no loop devices")
    directory = Path(tempfile.mkdtemp(prefix="test-tenant-disk-", dir=BUILD))
    directory.chmod(0o755)
    service = Service(directory)
    try:
        service.run.mkdir()
        pool_on_btrfs(service.state)
        service.start()
        assert service.cove("tenant", "set", "default", "--disk", f"{DISK}MiB").returncode == 0
        yield service
        assert service.stop() == 0, service.tail()
    finally:
        if service.coved and service.coved.poll() is None:
            service.stop()
        assert wait_until(lambda: loop_devices(service.state / "pool.btrfs") == [])
        shutil.rmtree(directory)


def ran(service, *arguments):
    done = service.cove(*arguments)
    assert done.returncode == 0, done
    return done.stdout.strip()


def create(service, disk, **volumes_at):
    return service.create(disk_bytes=disk * MIB, volumes=[{"name": name, "path": path} for name, path in volumes_at.items()])


def write(service, sandbox, path):
    """False: there was no room for it."""
    done = service.cove("exec", sandbox, "--", "sh", "-c", f"head -c {PIECE * MIB} /dev/zero > {path} && sync {path}")
    assert done.returncode == 0 or "quota exceeded" in done.stderr.lower(), done
    return done.returncode == 0


def volumes(service):
    """A volume is filled, cloned into another one, and removed."""
    ran(service, "volume", "create", "--size", f"{SIZE}MiB", "kept")

    def more(n):
        ran(service, "volume", "create", "--size", f"{SIZE}MiB", "passing")
        sandbox = create(service, SIZE, kept="/kept", passing="/passing")
        wrote = write(service, sandbox, "/passing/f")
        if wrote:
            ran(service, "exec", sandbox, "--", "cp", "--reflink=always", "/passing/f", f"/kept/{n}")
        ran(service, "rm", sandbox)
        ran(service, "volume", "rm", "passing")
        return wrote

    return more, lambda: ran(service, "volume", "rm", "kept")


def snapshots(service):
    """A sandbox is filled, a snapshot is made of it, and it is removed."""
    made = []

    def more(n):
        sandbox = create(service, SIZE)
        wrote = write(service, sandbox, "/home/user/f")
        if wrote:
            made.append(ran(service, "snapshot", sandbox, f"s{n}").split()[0])
        ran(service, "rm", sandbox)
        return wrote

    return more, lambda: ran(service, "snapshot", "rm", *made)


def forks(service):
    """A sandbox is filled on top of what those before it have written, and its fork goes on without it."""
    last = [create(service, SIZE)]

    def more(n):
        wrote = write(service, last[0], f"/home/user/{n}")
        if wrote:
            fork = ran(service, "fork", last[0])
            ran(service, "rm", last[0])
            last[0] = fork.split()[0]
        return wrote

    return more, lambda: ran(service, "rm", last[0])


@pytest.mark.parametrize("way", [volumes, snapshots, forks])
def test_clones_lead_to_no_more_than_twice_the_limit(service, way):
    more, remove = way(service)
    got = 0
    while got <= ROUNDS and more(got):
        got += 1
        if got == 2: # what is counted is on the disk
            service.kill_coved()
            assert wait_until(service.is_ready)
    assert DISK // PIECE <= got <= ROUNDS, f"{got * PIECE} MiB"

    # It has room again once they are gone.
    remove()
    assert wait_until(lambda: service.cove("gc") and begins(service)) # again: the last box is being put away when its sandbox has ended
    sandbox = create(service, SIZE)
    assert wait_until(lambda: write(service, sandbox, "/home/user/f"))
    ran(service, "rm", sandbox)


def begins(service):
    """Whether it may make another sandbox."""
    done = service.cove("run", "--disk", f"{SIZE}MiB", "--", "true")
    known = "on disk, and may have 480 MiB" in done.stderr or "quota exceeded" in done.stderr.lower() # the latter, when it has just become full
    assert done.returncode == 0 or known, done
    return done.returncode == 0


def on_disk(service):
    """MiB, as of a second ago or five."""
    return round(json.loads(ran(service, "tenant", "show", "default", "--json"))["on_disk"]["used_bytes"] / MIB)


def test_at_the_bound_nothing_begins_and_what_helps_is_told(service):
    ran(service, "gc")
    assert wait_until(lambda: on_disk(service) < PIECE), on_disk(service) # of tests before
    paused, sandbox = create(service, SIZE), create(service, SIZE)
    ran(service, "pause", "--files-only", paused)
    made = []
    for n in range(ROUNDS):
        if not write(service, sandbox, "/home/user/f"):
            break
        made.append(ran(service, "snapshot", sandbox, f"bound{n}").split()[0])
        ran(service, "rm", sandbox)
        sandbox = create(service, SIZE)
    refused = lambda: "may have 480 MiB" in service.cove("run", "--disk", "1MiB", "--", "true").stderr
    assert wait_until(refused), (len(made), on_disk(service))
    for words in (["run", "--disk", "1MiB", "--", "true"], ["resume", paused], ["fork", sandbox]):
        done = service.cove(*words)
        assert done.returncode != 0 and "may have 480 MiB" in done.stderr and "'cove snapshot rm'" in done.stderr, done
    assert service.request("POST", "/cove/v1/sandboxes", {})[0] == 429
    log = [json.loads(line) for line in ran(service, "log", "--service", "--json").splitlines()]
    told = [event for event in log if event["kind"] == "limit.tenant"][-1]
    assert told["data"]["tenant"] == "default" and told["data"]["limit_bytes"] == 2 * DISK * MIB, told
    assert told["data"]["used_bytes"] > (2 * DISK - 10) * MIB, told
    assert re.search(r"^on disk +4[78]\d MiB of 480 MiB$", ran(service, "tenant", "show", "default"), re.M)
    ran(service, "snapshot", "rm", *made)
    ran(service, "rm", sandbox)
    ran(service, "gc")
    assert wait_until(lambda: begins(service))
    ran(service, "resume", paused)
    ran(service, "rm", paused)


def test_a_limit_counts_what_there_was_before_it(service):
    ran(service, "tenant", "set", "default", "--disk", "0")
    ran(service, "volume", "create", "--size", "1GiB", "old")
    sandbox = create(service, 1024, old="/old")
    ran(service, "exec", sandbox, "--", "sh", "-c", f"head -c {2 * DISK * MIB} /dev/zero > /old/f && sync /old/f")
    assert write(service, sandbox, "/home/user/f")
    ran(service, "tenant", "set", "default", "--disk", f"{DISK}MiB")
    assert wait_until(lambda: not write(service, sandbox, "/home/user/g"))
    ran(service, "exec", sandbox, "--", "rm", "/old/f")
    assert wait_until(lambda: write(service, sandbox, "/home/user/g"))
    ran(service, "rm", sandbox)
    ran(service, "volume", "rm", "old")
