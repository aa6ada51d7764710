# SPDX-License-Identifier: Apache-2.0
"""A storage pool on XFS: clones that share bytes, and, where it is mounted with project quotas, limits that say ENOSPC. Kernels have these quotas or have not."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from client import Client
from leaks import BUILD, loop_devices, own_mount_table, read
from service import Service, copy_template, slim_templates, wait_until

MIB = 1 << 20
FULL = b"No space left on device"


def doctor(service):
    return subprocess.run([BUILD / "coved", "doctor"], env=service.env, capture_output=True, text=True, timeout=120, check=False).stdout


@contextlib.contextmanager
def mounted(image, at, options):
    shutil.copyfile(os.devnull, image)
    os.truncate(image, 8 << 30)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(["mount", "-o", ",".join(["loop", *options]), image, at], capture_output=True, text=True, check=False)
    if done.returncode:
        image.unlink()
        pytest.skip(f"no XFS {' '.join(options) or 'from a loop device'}: the kernel says: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", at], check=True)
        assert wait_until(lambda: loop_devices(image) == [])


@contextlib.contextmanager
def service_on_xfs(*options):
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    if not shutil.which("mkfs.xfs") or not Path("/dev/loop-control").exists():
        pytest.skip("no mkfs.xfs, or no loop devices")
    directory = Path(tempfile.mkdtemp(prefix="test-xfs-", dir=BUILD))
    directory.chmod(0o755)
    service = Service(directory)
    service.env["COVE_POOL"] = "reflink"
    service.state.mkdir()
    service.run.mkdir()
    try:
        # Of our own, or services that others start meanwhile have the mount, too, for as long as they run.
        with own_mount_table(), mounted(directory / "image", service.state, options):
            copy_template(slim_templates(), service.state)
            try:
                service.start()
                yield service, Client(service.port, service.key)
                assert service.stop() == 0, service.tail()
            finally:
                if service.coved and service.coved.poll() is None:
                    service.stop()
    finally:
        shutil.rmtree(directory)


def sh(service, sandbox, script, **options):
    return service.cove("exec", sandbox, "--", "sh", "-c", script, **options)


def free(service):
    subprocess.run(["sync", "-f", service.state], check=True)
    fs = os.statvfs(service.state)
    return fs.f_bfree * fs.f_frsize


def test_clones_share_their_bytes():
    with service_on_xfs() as (service, _):
        assert "storage pool: reflink in" in read(service.log)
        one = service.create()
        assert sh(service, one, "cd; mkdir d; echo first >d/small; head -c 64M /dev/urandom >big; sha256sum big >sum").returncode == 0
        before = free(service)
        snapshot = service.cove("snapshot", one).stdout.strip()
        forks = service.cove("fork", one, "-n", "2").stdout.split()
        of_snapshot = service.create(template=snapshot)
        assert before - free(service) < 32 * MIB
        for sandbox in [*forks, of_snapshot]:
            done = sh(service, sandbox, "cd; sha256sum -c sum; cat d/small; echo other >d/small; echo x >>big")
            assert done.stdout == "big: OK\nfirst\n", done
        assert sh(service, one, "cd; sha256sum -c sum; cat d/small").stdout == "big: OK\nfirst\n"
        service.remove_all()


def test_without_quotas_there_are_no_limits_and_doctor_says_what_it_takes():
    with service_on_xfs() as (service, _):
        assert service.request("GET", "/cove/v1/pool")[2]["limits"] is False
        said = doctor(service)
        assert re.search(r"^degraded +disk limit +none: XFS has them when it is mounted with prjquota", said, re.M), said
        sandbox = service.create(disk_bytes=16 * MIB)
        assert sh(service, sandbox, "head -c 32M /dev/zero >/home/user/a").returncode == 0
        service.remove_all()


def test_a_sandbox_at_its_limit_is_told_that_no_space_is_left(tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(MIB) * 80)
    with service_on_xfs("prjquota") as (service, client):
        said = doctor(service)
        assert re.search(rf"^ok +disk limit +of 16 MiB, \d+ KiB could be written, then: {FULL.decode()}", said, re.M), said
        one, other = service.create(disk_bytes=64 * MIB), service.create()
        done = sh(service, one, "head -c 40000000 /dev/zero >/home/user/a && echo fits; head -c 40000000 /dev/zero >/home/user/b")
        assert done.returncode != 0 and done.stdout == "fits\n" and FULL.decode() in done.stderr, done
        assert wait_until(lambda: "limit.disk" in client.kinds(one))
        event, = [e for e in client.events(one) if e["kind"] == "limit.disk"]
        assert event["data"]["limit_bytes"] == 64 * MIB and 60 * MIB < event["data"]["used_bytes"] <= 64 * MIB, event
        # df shows its share.
        size, used = sh(service, one, "df -B1 --output=size,used / | tail -n 1").stdout.split()
        assert int(size) == 64 * MIB and int(used) > 60 * MIB
        # Uploads are told the same, and what is deleted can be written again.
        done = service.cove("cp", tmp_path / "big", f"{one}:/home/user/big")
        assert done.returncode != 0 and "o space left on device" in done.stderr, done
        assert sh(service, one, "rm -f /home/user/*; head -c 40000000 /dev/zero >/home/user/c && echo fits").stdout == "fits\n"
        # Files without bytes are bounded.
        done = sh(service, one, "cd /tmp; n=0; while [ $n -lt 30000 ]; do n=$((n + 1)); : >f$n || exit 3; done", timeout=500)
        assert done.returncode != 0 and FULL.decode() in done.stderr, done
        assert sh(service, one, "find /tmp -name 'f*' -delete; : >/tmp/more && echo fits").stdout == "fits\n"
        assert sh(service, other, "head -c 100000000 /dev/zero >/home/user/a && echo fits").stdout == "fits\n"
        service.remove_all()


def test_the_limit_stays_with_what_is_paused_and_forked():
    with service_on_xfs("prjquota") as (service, _):
        one = service.create(disk_bytes=64 * MIB)
        assert sh(service, one, "head -c 40000000 /dev/zero >/home/user/a").returncode == 0
        fork = service.cove("fork", one).stdout.strip()
        # What it began with is not its own.
        assert sh(service, fork, "head -c 50000000 /dev/zero >/home/user/b && echo fits").stdout == "fits\n"
        assert sh(service, fork, "head -c 50000000 /dev/zero >/home/user/c").returncode != 0
        done = service.cove("pause", "--files-only", one)
        assert done.returncode == 0, done
        assert service.cove("resume", one).returncode == 0
        done = sh(service, one, "head -c 40000000 /dev/zero >/home/user/b")
        assert done.returncode != 0 and FULL.decode() in done.stderr, done
        assert sh(service, one, "wc -c </home/user/a").stdout == "40000000\n"
        service.remove_all()


def used(service):
    volume, = json.loads(service.cove("volume", "ls", "--json").stdout)
    return volume["used_bytes"]


def test_a_volume_is_bounded_for_itself():
    with service_on_xfs("prjquota") as (service, _):
        assert service.cove("volume", "create", "data", "--size", "32MiB").returncode == 0
        done = service.cove("run", "--volume", "data:/data", "--", "sh", "-c", "head -c 64M /dev/zero >/data/a", timeout=200)
        assert done.returncode != 0 and FULL.decode() in done.stderr, done
        assert wait_until(lambda: 30 * MIB < used(service) <= 32 * MIB)
        service.remove_all()
        assert service.cove("volume", "rm", "data").returncode == 0
