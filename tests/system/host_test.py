# SPDX-License-Identifier: Apache-2.0
"""What a service finds on its host, and what the host finds when the service has stopped."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from leaks import BUILD, own_mount_table, read, running
from service import TOP, Service, wait_until

# A starter of coved with everything ignored that can be, by the system call itself: the C library won't touch 32 and 33.
IGNORER = """#!{python}
import ctypes, os, struct, sys
ignore = struct.pack("PLPQ", 1, 0, 0, 0)
for number in set(range(1, 65)) - {{9, 19}}:
    if ctypes.CDLL(None).syscall({rt_sigaction}, number, ignore, None, 8) != 0:
        sys.exit("can't ignore signal %d" % number)
os.execv("{coved}", ["coved", *sys.argv[1:]])
"""
RT_SIGACTION = {"x86_64": 13, "aarch64": 134}


def signals(text, name):
    mask = int(re.search(rf"^{name}:\s*(\w+)", text, re.M)[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_signals_that_the_starter_ignores_are_not_ignored_inside(tmp_path):
    (tmp_path / "coved").write_text(IGNORER.format(python=sys.executable, coved=BUILD / "coved", rt_sigaction=RT_SIGACTION[os.uname().machine]))
    (tmp_path / "coved").chmod(0o755)
    with running(build=tmp_path) as (service, client):
        assert {1, 32, 33, 64} <= signals(read(f"/proc/{service.coved_pid}/status"), "SigIgn")
        sandbox = client.create()
        first = sandbox.sh("cat /proc/1/status")[1].decode()
        assert signals(first, "SigIgn") <= {13}, first # its own wish
        shell = sandbox.sh("cat /proc/self/status")[1].decode()
        assert signals(shell, "SigIgn") == signals(shell, "SigBlk") == set(), shell


def own_mounts(service):
    """What coved has mounted, on the stage."""
    return [line.split()[4] for line in read(f"/proc/{service.coved_pid}/mountinfo").splitlines()]


@pytest.mark.parametrize("mode", ["detached", "attached"])
def test_root_file_systems_in_either_mode(mode):
    with own_mount_table() as added:
        boxes_in_mode(mode)
        assert added() == []


def boxes_in_mode(mode):
    with running(COVE_OVERLAY=mode) as (service, client):
        if mode == "attached":
            assert "from attached layers" in read(service.log)
        # Else what a sandbox mounts over a layer while it begins lies for that time over the layer of all: others can't be made, or lack files.
        assert not re.search(r" (shared|master):", read(f"/proc/{service.coved_pid}/mountinfo")), read(f"/proc/{service.coved_pid}/mountinfo")
        for _ in range(2):
            with ThreadPoolExecutor(6) as pool:
                sandboxes = list(pool.map(lambda _: client.create(), range(6)))
                scripts = [f"echo {i} >/home/user/mine && cat /home/user/mine && stat -c %U / /etc/hostname && wc -l </proc/self/mountinfo"
                           for i in range(6)]
                said = [answer[1].decode().split() for answer in pool.map(lambda pair: pair[0].sh(pair[1]), zip(sandboxes, scripts))]
            assert [words[:3] for words in said] == [[str(i), "root", "root"] for i in range(6)], said
            assert len({words[3] for words in said}) == 1, said # all have the same table: no layer of another one's in it
            table = sandboxes[0].sh("cat /proc/self/mountinfo")[1].decode()
            assert " /scratch" not in table and table.count(" - overlay ") == 1, table
            # Boxes are made ahead meanwhile, and layers are attached for the time that a mount takes.
            assert wait_until(lambda: sorted(own_mounts(service)) == ["/", "/pool", "/proc"]), own_mounts(service)
            for sandbox in sandboxes:
                sandbox.kill()


def coved(*arguments, **options):
    return subprocess.run([BUILD / "coved", *arguments], capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.mark.parametrize("user", [0, 65534])
def test_coved_explains_itself(user):
    """Nobody needs to be root to be told how."""
    for words in (["--help"], ["help"], ["run", "--help"], ["prepare", "-h"], ["doctor", "--help"], ["version", "--help"], ["help", "run"]):
        done = coved(*words, user=user)
        assert (done.returncode, done.stderr) == (0, ""), words
        titles = re.findall(r"^[A-Z ]+$", done.stdout, re.M)
        assert titles[:2] == ["NAME", "SYNOPSIS"] and titles[-2:] == ["ENVIRONMENT", "EXIT STATUS"], words
        assert all(len(line) <= 80 for line in done.stdout.splitlines()), words
    assert coved("help", "run", user=user).stdout == coved("run", "--help", user=user).stdout
    assert coved("--version", user=user).stdout == coved("version", user=user).stdout
    for words, blamed in (([], "the command is missing"), (["nothing"], "nothing"), (["--nothing"], "--nothing"), (["help", "nothing"], "nothing"),
                          (["run", "--nothing"], "--nothing"), (["run", "x"], "x"), (["run", "--ready-fd"], "--ready-fd"),
                          (["prepare", "--force", "--from", "x"], "--from"), (["prepare", "--from"], "--from"),
                          (["doctor", "--json", "x"], "x"), (["version", "--json"], "--json")):
        done = coved(*words, user=user)
        assert (done.returncode, done.stdout) == (2, "") and blamed in done.stderr and "--help' shows how it is used" in done.stderr, done
    assert coved("run", "--ready-fd", "2", env={**os.environ, "COVE_CONFIG": "/dev/null"}).returncode == 2


def install_deps(*groups, path=None):
    """As nobody, who may not even be allowed to read the sources' directory."""
    with open(TOP / "tools" / "install-deps", "rb") as script:
        return subprocess.run(["bash", "-s", *groups], stdin=script, capture_output=True, text=True, timeout=60, check=False, user=65534, group=65534,
                              extra_groups=[], cwd="/", env={"PATH": f"{path or ''}:/usr/local/bin:/usr/bin:/bin"})


def test_who_is_not_root_is_told_what_root_has_to_install():
    directory = Path(tempfile.mkdtemp(prefix="cove-test-")) # pytest's own are root's alone
    try:
        directory.chmod(0o755)
        for name, text in (("dpkg-query", '/usr/bin/dpkg-query "$@" | grep -v -e libwslay -e libarchive'),
                           ("pkg-config", '[ "$2" != libarchive ] && exec /usr/bin/pkg-config "$@"')):
            (directory / name).write_text(f"#!/bin/bash\n{text}\n")
            (directory / name).chmod(0o755)
        here = install_deps("build")
        if here.returncode != 0:
            pytest.skip("what the build needs is not all here: " + here.stderr)
        assert (here.stdout, here.stderr) == ("", "") # and the build goes on
        done = install_deps("build", path=directory)
        assert done.returncode == 1 and "root" in done.stderr, done
        assert done.stderr.splitlines()[-1] == ("install-deps: apt-get update && apt-get install --no-install-recommends "
                                                "libarchive-dev libwslay-dev"), done
    finally:
        shutil.rmtree(directory)


def test_an_unknown_overlay_mode_is_refused(tmp_path):
    service = Service(tmp_path)
    done = subprocess.run([BUILD / "coved", "run"], env={**service.env, "COVE_OVERLAY": "no"}, capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 1 and "COVE_OVERLAY must be detached or attached" in done.stderr, done


def test_a_pool_without_idmapped_mounts_is_refused(tmp_path):
    """What the owner can do about it is said, and nothing is left."""
    service = Service(tmp_path)
    lower, upper, work = (tmp_path / name for name in ("lower", "upper", "work"))
    for directory in (lower, upper, work, service.state):
        directory.mkdir()
    subprocess.run(["mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "cove-test", service.state], check=True)
    try:
        # A file system of its own, in a file, would do.
        done = subprocess.run([BUILD / "coved", "run"], env={**service.env, "COVE_POOL": "copy"}, capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode == 1 and "set state_dir or COVE_STATE" in done.stderr, done
        assert list((service.state / "pool" / "new").iterdir()) == []
    finally:
        subprocess.run(["umount", service.state], check=True)


def test_the_socket_goes_with_the_service():
    with running() as (service, _):
        path = service.run / "cove.sock"
        assert path.is_socket()
        assert service.stop() == 0
        assert not path.exists()


def test_a_socket_of_another_service_stays():
    with running() as (service, _):
        path = service.run / "cove.sock"
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            assert service.stop() == 0
            assert path.is_socket()
            path.unlink()


def test_a_disk_without_the_reserve_refuses_sandboxes(tmp_path):
    config = tmp_path / "cove.yaml"
    config.write_text("disk_reserve: 100000TiB\n")
    with running(COVE_CONFIG=str(config)) as (service, client):
        for _ in range(3):
            status, _, body = service.request("POST", "/cove/v1/sandboxes", {})
            assert status == 429 and "less than the reserve of" in str(body) and "disk_reserve" in str(body), body
            assert "hint" not in body["error"], body # which speaks of too many sandboxes
        assert client.control("POST", "/sandboxes", {"templateID": "base"}).status == 429
        assert read(service.log).count("no more sandboxes are created") == 1, service.tail()
        doctor = subprocess.run([BUILD / "coved", "doctor"], env=service.env, capture_output=True, text=True, timeout=60, check=False)
        assert doctor.returncode == 1 and re.search(r"^failed +disk reserve +the storage pool's disk has .* free", doctor.stdout, re.M), doctor
        assert service.coved.poll() is None


def test_too_many_sandboxes_are_what_the_hint_speaks_of(tmp_path):
    config = tmp_path / "cove.yaml"
    config.write_text("limits: {sandboxes: 1}\n")
    with running(COVE_CONFIG=str(config)) as (service, _):
        sandbox = service.create()
        status, _, body = service.request("POST", "/cove/v1/sandboxes", {})
        assert status == 429 and "limits.sandboxes" in body["error"]["hint"], body
        assert service.request("DELETE", f"/cove/v1/sandboxes/{sandbox}")[0] == 200
