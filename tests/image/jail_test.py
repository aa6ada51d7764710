# SPDX-License-Identifier: Apache-2.0
"""Where the halves of cove-image live, and that nothing of it is left."""

import os
import signal
import stat
import time
from pathlib import Path

import pytest
from rig import Image, entry, link, tar, tree, wait_until


def children(pid):
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if f"\nPPid:\t{pid}\n" in status.read_text():
                found.append(int(status.parent.name))
        except OSError:
            pass
    return sorted(found)


def fields(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


@pytest.fixture
def halted(jobs, registry):
    """A job whose registry does not answer: (process, socket, pid of fetch, pid of unpack)."""
    image = Image(tar(entry("f", data=b"x" * 1000000)))
    name = registry.put(image)
    registry.on["/blobs/" + image.manifest["layers"][0]["digest"]] = lambda h: time.sleep(60)
    with jobs.started({"image": name, "insecure": [registry.host]}) as (process, ours, _):
        assert wait_until(lambda: len(registry.requests) == 3)
        halves = []

        def are_jailed():
            halves[:] = children(process.pid)
            return len(halves) == 2 and all(fields(pid).get("Seccomp") == "2" for pid in halves)
        assert wait_until(are_jailed), halves
        fetch, unpack = sorted(halves, key=lambda pid: os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"))
        yield process, ours, fetch, unpack


def test_fetch_is_nobody_without_files(halted):
    _, _, fetch, _ = halted
    f = fields(fetch)
    ids = f["Uid"].split()
    assert len(set(ids)) == 1 and int(ids[0]) > 1500000000 and f["Gid"].split() == ids and f["Groups"].strip() == ""
    assert {int(f[k], 16) for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert f["NoNewPrivs"] == "1" and f["Seccomp"] == "2" and f["Threads"] == "1"
    assert os.listdir(f"/proc/{fetch}/root") == []
    assert os.readlink(f"/proc/{fetch}/ns/net") == os.readlink("/proc/self/ns/net")
    mounts = Path(f"/proc/{fetch}/mountinfo").read_text().splitlines()
    assert len(mounts) == 1 and " ro," in mounts[0]


def test_unpack_sees_its_directory_alone(halted):
    _, _, _, unpack = halted
    f = fields(unpack)
    allowed = {0, 1, 3, 4, 31} # chown dac_override fowner fsetid setfcap
    assert {bit for bit in range(64) if int(f["CapPrm"], 16) >> bit & 1} == allowed
    assert int(f["CapBnd"], 16) == int(f["CapInh"], 16) == int(f["CapAmb"], 16) == 0
    assert f["NoNewPrivs"] == "1" and f["Seccomp"] == "2" and f["NSpid"].split()[-1] == "1"
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts"):
        assert os.readlink(f"/proc/{unpack}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"), kind
    assert int(f["Uid"].split()[0]) >= 1500000000
    mounts = Path(f"/proc/{unpack}/mountinfo").read_text().splitlines()
    assert len(mounts) == 1 and "nosuid,nodev,noexec" in mounts[0] and "idmapped" in mounts[0]
    descriptors = [os.readlink(f"/proc/{unpack}/fd/{n}") for n in os.listdir(f"/proc/{unpack}/fd") if n != "2"]
    assert not any(d.startswith("/") and d not in ("/", "/dev/null") for d in descriptors), descriptors


@pytest.mark.parametrize("how", ["parent killed", "fetch killed", "unpack killed", "client gone"])
def test_all_of_it_ends(halted, how):
    process, ours, fetch, unpack = halted
    if how == "client gone":
        ours.close()
    else:
        os.kill({"parent killed": process.pid, "fetch killed": fetch, "unpack killed": unpack}[how], signal.SIGKILL)
    if how == "unpack killed": # seen when there is something to unpack; the client gives up first
        ours.close()
    assert process.wait(60) != 0
    assert wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in (fetch, unpack)))


def test_a_half_that_dies_is_told(halted):
    process, ours, fetch, _ = halted
    os.kill(fetch, signal.SIGKILL)
    ours.settimeout(20)
    text = b""
    while part := ours.recv(65536):
        text += part
    assert process.wait(60) == 1 and b'"code":"internal"' in text.splitlines()[-1]


def test_owners_are_plain_on_disk(jobs):
    result = jobs.archive(Image(tar(entry("f", uid=0, gid=0, mode=0o4755), entry("g", uid=65535, gid=65535), link("l", "f", uid=33))).layout())
    files = tree(result.root)
    assert files["f"][:3] == ("-rwsr-xr-x", 0, 0) and files["g"][1:3] == (65535, 65535) and files["l"][1] == 33


def test_a_full_file_system(jobs, tmp_path):
    import subprocess
    mount = jobs.top / "root-1"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "cove-test", mount], check=False).returncode:
        pytest.skip("no tmpfs can be mounted")
    try:
        probe = jobs.archive
        mkdir, Path.mkdir = Path.mkdir, lambda self, *a, **k: None if self == mount else mkdir(self, *a, **k)
        try:
            result = probe(Image(tar(entry("big", data=b"x" * (8 << 20)))).layout())
        finally:
            Path.mkdir = mkdir
        if "map the ids" in result.message:
            pytest.skip("this kernel's tmpfs takes no idmapped mounts")
        assert result.error == "full", result
    finally:
        subprocess.run(["umount", mount], check=True)


def test_bad_arguments():
    import subprocess
    from rig import PROGRAM
    for argv in ([], ["--root-fd", "3"], ["--root-fd", "x"], ["--uid", "0", "--root-fd", "3"], ["--what", "1"]):
        assert subprocess.run([PROGRAM, *argv], capture_output=True, check=False, timeout=60).returncode == 2
    assert stat.S_ISREG(os.stat(PROGRAM).st_mode)
