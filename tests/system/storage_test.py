# SPDX-License-Identifier: Apache-2.0
"""The storage pool on a file system of its own, in a file: who sees it, how it grows, what is left of it, and which kind a pool is."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from client import Client
from leaks import BUILD, loop_devices, own_file_system, own_mount_table, read
from service import Service, copy_template, pool_on_btrfs, slim_templates, wait_until

GIB = 1 << 30


def prepare(service, **env):
    return subprocess.run([BUILD / "coved", "prepare", "--from", slim_templates()], env={**service.env, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300, check=False)


@contextlib.contextmanager
def own_disk(image, at, size):
    """A file system that a test may fill, seen by what this process starts."""
    with own_mount_table():
        at.mkdir()
        image.touch()
        os.truncate(image, size)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-i", "65536", image], check=True) # few inodes
        subprocess.run(["mount", "-o", "loop", image, at], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", at], check=True)


@contextlib.contextmanager
def prepared(first_size=None, disk=0, **env):
    """
    A service that has not been started, with a base template in a pool of its own. first_size: of the file, instead of what is chosen. disk: its
    state directory has a file system of that size for itself, where what cove-api stores is not.
    """
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    if not shutil.which("mkfs.btrfs") or not Path("/dev/loop-control").exists() or "btrfs" not in read("/proc/filesystems"):
        pytest.skip("no btrfs, or no loop devices")
    directory = Path(tempfile.mkdtemp(prefix="test-storage-", dir=BUILD))
    directory.chmod(0o755)
    service = Service(directory)
    service.env.update(env)
    service.file = service.state / "pool.btrfs"
    try:
        with contextlib.ExitStack() as mounts:
            if disk:
                mounts.enter_context(own_disk(directory / "disk", service.state, disk))
                mounts.enter_context(own_file_system(service.state / "api", "32m"))
            try:
                service.run.mkdir()
                if env.get("COVE_POOL") == "copy":
                    copy_template(slim_templates(), service.state)
                    done = prepare(service)
                    assert done.returncode == 0, done
                else:
                    pool_on_btrfs(service.state, first_size)
                assert wait_until(lambda: loop_devices(service.file) == [])
                yield service
            finally:
                if service.coved and service.coved.poll() is None:
                    service.stop()
                assert wait_until(lambda: loop_devices(service.file) == []), loop_devices(service.file)
    finally:
        shutil.rmtree(directory)


@contextlib.contextmanager
def running(service):
    service.start()
    yield Client(service.port, service.key)
    assert service.stop() == 0, service.tail()


def test_nobody_else_sees_it_and_nothing_is_left():
    with own_mount_table() as added, prepared() as service:
        assert service.file.stat().st_mode & 0o777 == 0o600
        assert service.file.stat().st_blocks * 512 < service.file.stat().st_size / 2 # holes
        assert list((service.state / "pool").glob("layers/*")) == []
        with running(service) as client:
            assert f"storage pool: btrfs in {service.file}" in read(service.log)
            assert len(loop_devices(service.file)) == 1
            assert added() == []
            table = [line.split() for line in read(f"/proc/{service.coved_pid}/mountinfo").splitlines()]
            pool = next(line for line in table if line[4] == "/pool")
            assert "btrfs" in pool and {"nosuid", "nodev", "noexec"} <= set(pool[5].split(",")), pool
            sandbox = client.create()
            assert sandbox.sh("id -un && echo mine >file && cat file")[1] == b"user\nmine\n"
            # No other process of ours has it mounted: the worker lives where the host's files are.
            assert f"/dev/{loop_devices(service.file)[0]} " not in read(f"/proc/{service.child('cove-api')}/mountinfo")
            assert prepare(service).returncode == 0 # nothing to do, and no second device
            assert len(loop_devices(service.file)) == 1
            sandbox.kill()
        assert wait_until(lambda: loop_devices(service.file) == []) and added() == []


def test_it_is_whole_after_a_death():
    with prepared() as service:
        for _ in range(3):
            service.start()
            sandbox = Client(service.port, service.key).create()
            assert sandbox.sh("head -c 20000000 /dev/zero >big")[0] == 0
            service.coved.send_signal(signal.SIGKILL)
            service.coved.wait(60)
            # At once: what the dead one still has mounted is waited for.
        with running(service) as client:
            assert client.create().sh("ls /home/user")[1] == b""
        assert wait_until(lambda: loop_devices(service.file) == [])


def test_it_grows_while_sandboxes_write():
    with prepared(first_size=2 * GIB) as service, running(service) as client:
        before = service.file.stat().st_size
        sandbox = client.create()
        for megabytes in (1400, 100, 100): # taken at once: what is written is on the disk half a minute later
            code, _, said = sandbox.sh(f"fallocate -l {megabytes}MB $(mktemp -p .)")
            assert code == 0, said
            if wait_until(lambda: service.file.stat().st_size > before, 10 if megabytes == 100 else 1):
                break
        assert wait_until(lambda: "the storage pool has grown" in read(service.log))
        code, _, said = sandbox.sh("fallocate -l 300MB b && head -c 100000000 /dev/zero >>b", timeout=250)
        assert code == 0, said
        kib = int(sandbox.sh("df -k --output=size / | tail -1")[1])
        assert kib * 1024 > before


def test_it_grows_to_what_is_allowed_and_says_that_it_is_full(tmp_path):
    config = tmp_path / "cove.yaml"
    config.write_text("pool: {size: 2GiB}\ndefaults: {disk: 0}\n")
    with prepared(first_size=2 * GIB, COVE_CONFIG=str(config)) as service, running(service) as client:
        sandbox = client.create()
        code, _, said = sandbox.sh("fallocate -l 1200MB a; head -c 1000000000 /dev/zero >>a", timeout=250)
        assert code != 0 and b"No space left on device" in said, said
        status, _, body = service.request("POST", "/cove/v1/sandboxes", {})
        assert status == 429 and "pool.size" in str(body), body
        assert service.file.stat().st_size == 2 * GIB
        assert sandbox.sh("rm a; sync -f /; echo ok")[1] == b"ok\n"
        assert wait_until(lambda: service.request("POST", "/cove/v1/sandboxes", {})[0] in (200, 201))


@contextlib.contextmanager
def filled(disk):
    """Others take all that is free there."""
    filler = disk / "filler"
    try:
        with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            with contextlib.suppress(OSError):
                os.posix_fallocate(f.fileno(), 0, os.statvfs(disk).f_bavail * 4096 - (1 << 20))
            f.seek(0, os.SEEK_END)
            while True:
                f.write(bytes(4096))
        yield
    finally:
        filler.unlink()


def test_sandboxes_go_on_when_others_fill_the_disk(tmp_path):
    """What the pool's file was promised is gone then. Data has no place; what the file system has to write about its files has."""
    config = tmp_path / "cove.yaml"
    config.write_text("pool: {size: 2GiB}\ndisk_reserve: 64MiB\n")
    with prepared(first_size=2 * GIB, disk=4 * GIB, COVE_CONFIG=str(config)) as service, running(service) as client:
        sandbox, other = client.create(), client.create()
        assert sandbox.sh("head -c 10000000 /dev/urandom >big; sha256sum big >sum; mkdir d many; cd many; seq 40000 | xargs touch; sync .")[0] == 0 # more than the first piece holds
        snapshot = service.cove("snapshot", sandbox.id).stdout.strip()
        time.sleep(1) # it is looked at twice a second
        with filled(service.state):
            status, _, body = service.request("POST", "/cove/v1/sandboxes", {})
            assert status == 429 and "less than the reserve" in str(body), body
            done = other.sh("head -c 700000000 /dev/zero | tr '\\0' x >f; sync f; echo $?; rm f", timeout=100)
            assert done[1] == b"1\n" and b"No space left" in done[2], done
            for _ in range(3):
                assert sandbox.sh("for i in $(seq 1000); do touch d/$i; done; rm d/*; sha256sum -c sum")[:2] == (0, b"big: OK\n")
                subprocess.run(["btrfs", "filesystem", "sync", f"/proc/{service.coved_pid}/root/pool"], check=True, stdout=subprocess.DEVNULL)
            assert service.cove("snapshot", "rm", snapshot).returncode == service.cove("gc").returncode == 0
            assert other.kill().status == 204
        assert wait_until(lambda: service.request("POST", "/cove/v1/sandboxes", {})[0] == 201), service.tail()
        # Beyond those that were ready before.
        fresh = [client.create() for _ in range(12)][-1]
        assert fresh.sh("head -c 50000000 /dev/urandom >more && sync more")[0] == 0
        assert sandbox.sh("sha256sum -c sum; echo more >more")[:2] == (0, b"big: OK\n")
        # The kernel tells who ran then of the failed write at each sync, until its root is mounted anew.
        assert [service.cove(*words, sandbox.id).returncode for words in (["pause", "--files-only"], ["resume"])] == [0, 0]
        assert sandbox.sh("sha256sum -c sum; sync more; cat more")[:2] == (0, b"big: OK\nmore\n")
        service.remove_all()


def test_a_crash_on_a_disk_without_inodes(tmp_path):
    config = tmp_path / "cove.yaml"
    config.write_text("disk_reserve: 64MiB\n")
    with prepared(disk=GIB, COVE_POOL="copy", COVE_CONFIG=str(config)) as service, running(service) as client:
        sandbox, other = client.create(), client.create()
        taken = service.state / "taken"
        taken.mkdir()
        with contextlib.suppress(OSError):
            for n in range(100_000):
                (taken / str(n)).touch()
        status, _, body = service.request("POST", "/cove/v1/sandboxes", {})
        assert status == 429 and "inodes" in str(body), body
        service.kill_coved()
        assert sandbox.sh("echo here")[1] == b"here\n"
        assert other.kill().status == 204 and set(client.list()) == {sandbox.id}
        shutil.rmtree(taken)
        assert wait_until(lambda: service.request("POST", "/cove/v1/sandboxes", {})[0] == 201), service.tail()
        service.remove_all()


def test_a_sandbox_has_the_disk_that_it_was_given_and_no_more():
    with prepared() as service, running(service):
        status, _, body = service.request("POST", "/cove/v1/sandboxes", {"template": "base", "disk_bytes": 64 << 20})
        assert status in (200, 201), body
        sandbox = body["id"]
        said = service.cove("exec", sandbox, "--", "sh", "-c", "head -c 40000000 /dev/zero >a && echo fits; head -c 40000000 /dev/zero >b")
        assert said.returncode != 0 and said.stdout == "fits\n" and "Disk quota exceeded" in said.stderr, said
        status, _, body = service.request("PUT", f"/cove/v1/sandboxes/{sandbox}/files?path=more", b"x" * (8 << 20))
        assert status == 429 and "remove files in the sandbox" in body["error"].get("hint", ""), body # and not: end sandboxes
        # A full one can still be used.
        said = service.cove("exec", sandbox, "--", "sh", "-c", "rm a && echo again >a && cat a")
        assert said.stdout == "again\n", said
        other = service.create()
        said = service.cove("exec", other, "--", "sh", "-c", "head -c 100000000 /dev/zero >a && echo fits")
        assert said.stdout == "fits\n", said
        service.remove_all()


def test_a_disk_that_is_full_for_a_moment_is_told(tmp_path):
    """By a process or by an upload, and sooner than the next sample of the figures would find it: there is room again before that."""
    (tmp_path / "big").write_bytes(os.urandom(4 << 20) * 20)
    with prepared() as service, running(service) as client:
        for fill in ("process", "upload"):
            status, _, body = service.request("POST", "/cove/v1/sandboxes", {"template": "base", "disk_bytes": 64 << 20})
            assert status in (200, 201), body
            sandbox = body["id"]
            if fill == "process":
                done = service.cove("exec", sandbox, "--", "sh", "-c", "head -c 80000000 /dev/zero >/home/user/big")
                assert done.returncode == 1 and "Disk quota exceeded" in done.stderr, done
            else:
                done = service.cove("cp", tmp_path / "big", f"{sandbox}:/home/user/big")
                assert done.returncode != 0 and "o space left on device" in done.stderr, done
            assert service.cove("exec", sandbox, "--", "rm", "-f", "/home/user/big").returncode == 0
            assert wait_until(lambda: "limit.disk" in client.kinds(sandbox)), fill
            event, = [e for e in client.events(sandbox) if e["kind"] == "limit.disk"]
            assert event["data"]["limit_bytes"] == 64 << 20 and event["data"]["used_bytes"] > 60 << 20, event
        service.remove_all()


def test_one_that_fills_its_disk_leaves_room_for_the_others(tmp_path):
    """Nobody has said how much: a quarter of the pool."""
    config = tmp_path / "cove.yaml"
    config.write_text("pool: {size: 2GiB}\n")
    with prepared(first_size=2 * GIB, COVE_CONFIG=str(config)) as service, running(service) as client:
        greedy, modest = service.create(), service.create()
        share = service.request("GET", f"/cove/v1/sandboxes/{greedy}")[2]["disk_bytes"]
        assert GIB // 3 < share <= GIB // 2 and share % (1 << 20) == 0
        headers = {"X-API-KEY": service.key}
        assert json.loads(client.request("GET", f"/sandboxes/{greedy}", headers=headers).body)["diskSizeMB"] == share >> 20
        script = "for i in $(seq 100); do cat /dev/zero >f$i || cat /dev/zero >>f$i; done; du -sm . | cut -f1"
        filling = service.popen("exec", greedy, "--", "sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        script = "n=0; while [ $n -lt 20 ]; do n=$((n + 1)); head -c 5000000 /dev/zero >f$n && sync f$n || exit 1; done; cat f* | wc -c"
        done = service.cove("exec", modest, "--", "sh", "-c", script, timeout=250)
        assert done.stdout == "100000000\n", done
        said, complaints = filling.communicate(timeout=250)
        assert int(said) <= share >> 20 and "Disk quota exceeded" in complaints and "No space" not in complaints, (said, complaints)
        assert service.create()
        assert service.cove("exec", modest, "--", "sh", "-c", "head -c 5000000 /dev/zero >more && wc -c <more").stdout == "5000000\n"
        # The events say who it was.
        assert wait_until(lambda: b"limit.disk" in service.request("GET", f"/cove/v1/sandboxes/{greedy}/events")[2])
        assert b"limit.disk" not in service.request("GET", f"/cove/v1/sandboxes/{modest}/events")[2]
        service.remove_all()


def test_what_is_deleted_at_the_limit_can_be_written_again():
    with prepared() as service, running(service):
        sandbox = service.create(disk_bytes=64 << 20)
        for _ in range(3):
            assert service.cove("exec", sandbox, "--", "sh", "-c", "head -c 80000000 /dev/zero >a").returncode != 0
            script = "rm a; n=0; until head -c 50000000 /dev/zero >b; do n=$((n + 1)); sleep 0.2; done 2>/dev/null; rm b; echo $n"
            done = service.cove("exec", sandbox, "--", "sh", "-c", script)
            assert int(done.stdout) * 0.2 < 15, done # the kernel's own commits come every thirty seconds
        service.remove_all()


def test_no_two_files_are_taken_for_one():
    """Whoever compares device and inode number does: cp and cat refuse to copy a file onto itself. A fork shows files of three subvolumes, which count for themselves."""
    look = r"find / -xdev \( -type d -o -links 1 \) -printf '%D:%i\n' | sort | uniq -d"
    with prepared() as service, running(service) as client:
        sandbox = client.create()
        for generation in range(3):
            done = sandbox.sh(f"cd; for i in $(seq 50); do mkdir d{generation}-$i && echo {generation} >d{generation}-$i/f || exit; done; {look}")
            assert done[:2] == (0, b""), done
            for i in range(1, 51):
                assert sandbox.sh(f"cd; cp d0-{i}/f d{generation}-{i}/copy && cp d{generation}-{51 - i}/f d0-{i}/copy")[0] == 0
            snapshot = service.cove("snapshot", sandbox.id).stdout.strip()
            sandbox = client.create(templateID=snapshot)
        service.remove_all()


def test_a_pool_keeps_its_kind_until_another_is_asked_for():
    with prepared(COVE_POOL="copy") as service:
        assert not service.file.exists()
        with running(service):
            assert "storage pool: copy in" in read(service.log) and "as configured" in read(service.log)
        del service.env["COVE_POOL"]
        service.log.unlink()
        with running(service):
            assert re.search(r"storage pool: (copy|reflink) in", read(service.log)), service.tail()
            assert "COVE_POOL=btrfs begins a new, empty pool" in read(service.log) or "reflink" in read(service.log)
        assert not service.file.exists()
        service.env["COVE_POOL"] = "btrfs"
        service.log.unlink()
        assert prepare(service).returncode == 0
        with running(service) as client:
            assert f"storage pool: btrfs in {service.file}" in read(service.log)
            assert f"{service.state / 'pool'} is not used" in read(service.log)
            client.create().kill()


def test_a_kind_that_cannot_be_had_is_refused():
    with prepared(COVE_POOL="copy") as service:
        for kind, message in (("zfs", "must be auto, btrfs, reflink or copy"), ("reflink", "can't do that")):
            if kind == "reflink" and "ext4" not in subprocess.run(["stat", "-fc", "%T", service.state], capture_output=True, text=True,
                                                                 check=True).stdout.replace("ext2/ext3", "ext4"):
                continue # this disk may well
            done = subprocess.run([BUILD / "coved", "run"], env={**service.env, "COVE_POOL": kind}, capture_output=True, text=True, timeout=60,
                                  check=False)
            assert done.returncode == 1 and message in done.stderr, done
        service.file.write_bytes(b"not a file system" * 1000)
        done = subprocess.run([BUILD / "coved", "run"], env={**service.env, "COVE_POOL": "btrfs"}, capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode == 1 and f"mount {service.file}" in done.stderr, done
        assert service.file.read_bytes() == b"not a file system" * 1000 # not ours to mend


def test_doctor_says_which_kind_and_what_it_costs():
    with prepared() as service:
        for kind, storage, limit in (("btrfs", "ok", "ok"), ("copy", "degraded", "degraded")):
            done = subprocess.run([BUILD / "coved", "doctor"], env={**service.env, "COVE_POOL": kind}, capture_output=True, text=True, timeout=60,
                                  check=False)
            assert re.search(rf"^{storage} +storage pool +{kind} in a .* a clone of 1 MiB in [\d.]+ ms", done.stdout, re.M), done
            assert re.search(rf"^{limit} +disk limit +", done.stdout, re.M), done
        assert wait_until(lambda: loop_devices(service.state) == [])
        assert not list(service.state.glob("probe*"))


def test_a_pool_that_became_read_only_says_what_helps():
    """As long as sandboxes have it mounted, nothing can mount it anew."""
    with prepared() as service:
        service.start()
        client = Client(service.port, service.key)
        client.create()
        size = service.file.stat().st_size
        os.truncate(service.file, 1 << 20)
        for device in loop_devices(service.file):
            subprocess.run(["losetup", "-c", f"/dev/{device}"], check=True) # writes beyond that fail
        def is_read_only():
            place = Path(f"/proc/{service.coved_pid}/root/pool")
            with contextlib.suppress(OSError):
                (place / "probe").touch()
            subprocess.run(["btrfs", "filesystem", "sync", place], check=False, capture_output=True)
            return os.statvfs(place).f_flag & os.ST_RDONLY
        assert wait_until(is_read_only, 5)
        os.truncate(service.file, size)
        os.kill(service.coved_pid, signal.SIGKILL)
        assert wait_until(lambda: "has become read-only, its disk was full or failed" in read(service.log)), service.tail()
        assert "still use it: systemctl restart cove" in read(service.log), service.tail()
        assert wait_until(lambda: "is starting again" in (done := service.cove("reload")).stderr and "systemctl restart cove" in done.stderr)
        service.stop()
