# SPDX-License-Identifier: Apache-2.0
"""Pausing, snapshots, forks and volumes."""

import pytest
from conftest import everything, unique, until
from e2b import Sandbox, SandboxQuery, SandboxState, Volume
from e2b.exceptions import SandboxNotFoundException

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def test_a_paused_sandbox_goes_on_where_it_was(make):
    metadata = unique()
    box = make(metadata=metadata)
    command = box.commands.run("sleep 1000", background=True)
    boot = box.commands.run(BOOT_ID).stdout
    assert box.pause() is True
    assert box.pause() is False
    assert not box.is_running()
    assert box.get_info().state == SandboxState.PAUSED
    paused = everything(Sandbox.list(SandboxQuery(metadata=metadata, state=[SandboxState.PAUSED])))
    assert [s.sandbox_id for s in paused] == [box.sandbox_id]
    again = Sandbox.connect(box.sandbox_id, timeout=60)
    assert again.is_running()
    assert again.commands.run(BOOT_ID).stdout == boot
    assert command.pid in [p.pid for p in again.commands.list()]


def test_without_its_memory_it_starts_anew_on_its_files(box):
    box.files.write("kept.txt", "kept")
    boot = box.commands.run(BOOT_ID).stdout
    assert box.pause(mode="filesystem") is True
    box.connect()
    assert box.files.read("kept.txt") == "kept"
    assert box.commands.run(BOOT_ID).stdout != boot


def test_at_its_timeout_it_is_paused_when_asked_for(make):
    box = make(timeout=1, lifecycle={"on_timeout": "pause"})
    assert until(lambda: box.get_info().state == SandboxState.PAUSED)
    assert Sandbox.kill(box.sandbox_id) is True
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(box.sandbox_id)


def test_a_snapshot_is_a_template(box, make):
    box.files.write("state.txt", "then")
    name = f"snap-{unique()['test']}"
    snapshot = box.create_snapshot(name)
    box.files.write("state.txt", "now")
    try:
        assert [s.snapshot_id for s in everything(Sandbox.list_snapshots(name=name))] == [snapshot.snapshot_id]
        copy = make(template=snapshot.snapshot_id)
        assert copy.files.read("state.txt") == "then"
        copy.kill()
    finally:
        assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) is False


def test_forks_go_their_own_ways(box):
    box.files.write("state.txt", "before")
    forks = box.fork(count=2, timeout=60)
    try:
        assert all(isinstance(f, Sandbox) for f in forks), forks
        forks[0].files.write("state.txt", "mine")
        assert (box.files.read("state.txt"), forks[1].files.read("state.txt")) == ("before", "before")
    finally:
        for fork in forks:
            fork.kill()


def test_a_volume_outlives_the_sandboxes_that_it_is_mounted_in(make):
    volume = Volume.create(f"vol-{unique()['test'][:8]}")
    try:
        volume.make_dir("/d")
        volume.write_file("/d/f.txt", "from outside")
        box = make(volume_mounts={"/mnt/v": volume})
        assert box.files.read("/mnt/v/d/f.txt") == "from outside"
        box.files.write("/mnt/v/g.txt", "from inside")
        box.kill()
        assert volume.read_file("/g.txt") == "from inside"
        assert volume.update_metadata("/g.txt", mode=0o600).mode & 0o777 == 0o600
        assert sorted(entry.name for entry in volume.list("/")) == ["d", "g.txt"]
        volume.remove("/g.txt")
        assert not volume.exists("/g.txt")
    finally:
        assert until(lambda: Volume.destroy(volume.volume_id))
