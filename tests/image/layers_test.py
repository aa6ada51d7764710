# SPDX-License-Identifier: Apache-2.0
"""What layers may hold, how they come to lie upon one another, and what is refused."""

import io
import os
import stat
import subprocess
import struct
import tarfile
import zlib

import pytest
from rig import Image, directory, entry, link, tar, tree

CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0) # cap_net_raw+ep


def unpack(jobs, *layers, **options):
    return jobs.archive(Image(*layers).layout(), **options)


def good(jobs, *layers):
    result = unpack(jobs, *layers)
    assert result.code == 0 and result.ok, result
    return tree(result.root), result


def test_kinds_owners_and_modes(jobs):
    files, result = good(jobs, tar(
        directory("./", mode=0o711, uid=3, gid=4), directory("d", mode=0o1777), entry("d/suid", data=b"s", mode=0o6755, uid=1000, gid=65535),
        entry("d/none", mode=0), link("d/sym", "../../etc/passwd", uid=7, gid=8), link("hard", "d/suid", hard=True), entry("pipe", tarfile.FIFOTYPE, mode=0o620, gid=5),
        entry("d/umläut\u20ac", data=b"u"), entry("/absolute", data=b"a"), entry("./x//y/./z", data=b"deep")))
    assert files["."][:3] == ("drwx--x--x", 3, 4)
    assert files["d"][0] == "drwxrwxrwt"
    assert files["d/suid"][:4] == ("-rwsr-sr-x", 1000, 65535, 2)
    assert files["d/none"][0] == "----------"
    assert files["d/sym"][1:3] == (7, 8) and files["d/sym"][5] == "../../etc/passwd"
    assert files["hard"][3:5] == files["d/suid"][3:5]
    assert files["pipe"][:3] == ("prw--w----", 0, 5)
    assert "d/umläut\u20ac" in files and "absolute" in files
    assert files["x"][:3] == files["x/y"][:3] == ("drwxr-xr-x", 0, 0) and files["x/y/z"][0] == "-rw-r--r--"
    assert result.ok["entries"] == 12
    assert result.warnings == []


def test_times(jobs):
    _, result = good(jobs, tar(directory("d", mtime=1000), entry("d/f", mtime=1234.5678), link("d/l", "f", mtime=99), entry("old", mtime=-5)))
    assert os.lstat(result.root / "d").st_mtime == 1000
    assert os.lstat(result.root / "d/f").st_mtime_ns == 1234567800000
    assert os.lstat(result.root / "d/l").st_mtime == 99
    assert os.lstat(result.root / "old").st_mtime == -5


def test_long_names_of_every_kind(jobs):
    name = "/".join(["n" * 250] * 8)
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        files, _ = good(jobs, tar(entry(name, data=b"1"), link("l", name), link("h", name, hard=True), form=form))
        assert files[name][3] == 2 and files["l"][5] == name


def test_a_sparse_file_stays_sparse(jobs, tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.seek(64 << 20)
        file.write(b"end")
    for form in ("gnu", "pax"):
        target = tmp_path / f"{form}.tar"
        assert os.spawnvp(os.P_WAIT, "tar", ["tar", "-C", str(tmp_path), "-S", f"--format={form}", "-cf", str(target), "sparse"]) == 0
        _, result = good(jobs, target.read_bytes())
        st = os.stat(result.root / "sparse")
        assert st.st_size == (64 << 20) + 3 and st.st_blocks * 512 < 1 << 20
        with open(result.root / "sparse", "rb") as file:
            file.seek(64 << 20)
            assert file.read() == b"end"


def test_extended_attributes(jobs):
    pax = {"SCHILY.xattr.user.colour": "blue", "SCHILY.xattr.trusted.overlay.opaque": "y", "SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.security.selinux": "x"}
    info, data = entry("bin/ping", data=b"#!", mode=0o755)
    info.pax_headers = {"SCHILY.xattr.security.capability": CAPABILITY.decode("latin-1")}
    layer = tar(entry("f", pax_headers=pax), directory("d", pax_headers={"SCHILY.xattr.user.dir": "1"}))
    # Python writes PAX values as UTF-8, which bytes above 0x7f would not survive; this capability has none.
    files, result = good(jobs, layer, tar((info, data)), tar(directory("d", pax_headers={"SCHILY.xattr.user.other": "2"})))
    assert files["f"][6] == {"user.colour": b"blue"}
    assert files["d"][6] == {"user.other": b"2"}
    assert files["bin/ping"][6] == {"security.capability": CAPABILITY}
    assert len(result.warnings) == 2


def test_whiteouts(jobs):
    base = tar(directory("a"), entry("a/1", data=b"1"), entry("a/2", data=b"2"), directory("a/sub"), entry("a/sub/x"), directory("o"), entry("o/old"),
               directory("o/kept"), entry("o/kept/old"), link("l", "a"))
    upper = tar(entry("a/.wh.1"), entry("a/.wh.sub"), entry("a/3"), directory("o"), entry("o/new"), directory("o/kept"), entry("o/kept/new"), entry("o/.wh..wh..opq"),
                entry(".wh.l"), entry(".wh.nothing"), entry("none/.wh.nothing"), entry(".wh..wh.plnk"))
    files, _ = good(jobs, base, upper)
    assert sorted(files) == [".", "a", "a/2", "a/3", "o", "o/kept", "o/kept/new", "o/new"]


def test_a_whiteout_spares_its_own_layer(jobs):
    files, _ = good(jobs, tar(entry("f", data=b"old"), directory("d"), entry("d/old")), tar(entry("f", data=b"new"), entry(".wh.f"), directory("d"), entry("d/new"), entry(".wh.d")))
    assert sorted(files) == [".", "d", "d/new", "f"]
    files, _ = good(jobs, tar(entry("f"), entry(".wh.f"), entry(".wh..wh..opq")))
    assert sorted(files) == [".", "f"]


def test_kinds_replace_one_another(jobs):
    base = tar(directory("dir"), entry("dir/x/y"), entry("file", data=b"1"), link("link", "dir"), link("link2", "dir"), directory("merge", mode=0o700), entry("merge/stays"))
    upper = tar(entry("dir", data=b"now a file"), directory("file"), entry("file/in"), directory("link"), entry("link2", data=b"2"), directory("merge", mode=0o750))
    files, _ = good(jobs, base, upper)
    assert files["dir"][0][0] == "-" and files["file/in"][0][0] == "-" and files["link"][0][0] == "d" and files["link2"][0][0] == "-"
    assert files["merge"][0] == "drwxr-x---" and "merge/stays" in files


def test_hard_links_to_earlier_layers(jobs):
    files, result = good(jobs, tar(entry("a", data=b"1")), tar(link("b", "a", hard=True), link("a", "a", hard=True), link("c", "/b", hard=True)))
    assert files["a"][3] == 3 and files["a"][4] == files["b"][4] == files["c"][4]
    # A file that is written anew takes nothing of its old names with it.
    files, _ = good(jobs, tar(entry("a", data=b"1"), link("b", "a", hard=True)), tar(entry("a", data=b"2")))
    assert files["a"][3] == files["b"][3] == 1 and files["a"][5] != files["b"][5]


def test_links_lead_nowhere_but_inside(jobs, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("safe")
    layer = tar(link("abs", str(outside)), entry("abs/planted", data=b"1"))
    result = unpack(jobs, layer)
    # Inside, that path does not exist: nothing is made through a link to nowhere.
    assert result.error == "invalid" and os.listdir(outside) == ["victim"]
    up = "../" * 40
    result = unpack(jobs, tar(link("up", up.rstrip("/") + str(outside)), entry("up/victim", data=b"gone")))
    assert result.error == "invalid" and (outside / "victim").read_text() == "safe"
    files, _ = good(jobs, tar(link("root", up), directory("etc"), entry("root/etc/in", data=b"1"), link("loop", "/"), entry("loop/loop/etc/in2", data=b"2")))
    assert "etc/in" in files and "etc/in2" in files
    assert not os.path.exists("/etc/in")
    result = unpack(jobs, tar(link("x", str(outside)), link("stolen", "x/victim", hard=True)))
    assert result.error == "invalid"
    result = unpack(jobs, tar(directory("d"), link("w", str(outside))), tar(entry("w/.wh.victim"), entry("w/.wh..wh..opq")))
    assert result.ok and (outside / "victim").exists()


@pytest.mark.parametrize("bad", [
    entry("../escape"), entry("a/../../b"), entry("a/.."), entry("n" * 256), entry("x/" * 2050 + "long"), entry(".wh."), entry(".wh..."), entry(".wh.a/b"),
    link("h", "../../etc/passwd", hard=True), link("h", "missing", hard=True), link("h", "", hard=True), link("s", ""), link("s", "x" * 4096),
    entry("f", uid=65536), entry("f", gid=1 << 31), entry("f", uid=-1), entry(".", data=b"root is a file"), link(".", "/tmp"),
], ids=lambda e: e[0].name[:12] + e[0].linkname[:12])
def test_refused_entries(jobs, bad):
    result = unpack(jobs, tar(entry("fine"), bad))
    assert result.code == 1 and result.error == "invalid" and result.message, result


def test_a_file_is_no_directory(jobs):
    assert unpack(jobs, tar(entry("f"), entry("f/below"))).error == "invalid"
    assert unpack(jobs, tar(directory("d"), link("h", "d", hard=True))).error == "invalid"
    assert unpack(jobs, tar(link("a", "b"), link("b", "a"), entry("a/x"))).error == "invalid"


def test_devices_are_left_out(jobs):
    files, result = good(jobs, tar(entry("dev/sda", tarfile.BLKTYPE, devmajor=8), entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3), entry("whiteout", tarfile.CHRTYPE), entry("f")))
    assert sorted(files) == [".", "f"] or sorted(files) == [".", "dev", "f"]
    assert len(result.warnings) == 3 and "dev/sda" in result.warnings[0]


def test_warnings_are_bounded(jobs):
    _, result = good(jobs, tar(*[entry(f"dev/{i}", tarfile.CHRTYPE) for i in range(500)]))
    assert len(result.warnings) == 50


def test_a_tar_that_lies_or_ends(jobs):
    whole = tar(entry("a", data=b"x" * 100000), entry("b", data=b"y" * 5000))
    for broken in (whole[:50000], whole[:512], b"no tar at all" * 100, whole[:512] + b"\xff" * 512, whole[:101000] + b"Z" * 600):
        assert unpack(jobs, broken).error == "invalid"
    info, _ = entry("huge")
    info.size = 1 << 62
    assert unpack(jobs, info.tobuf(tarfile.GNU_FORMAT)).error in ("too_large", "invalid")
    empty, _ = good(jobs, b"", tar(), b"\0" * 1024, b"\0" * 512)
    assert list(empty) == ["."]
    trailing, _ = good(jobs, whole + b"junk behind the end" * 1000)
    assert "b" in trailing


def test_limits(jobs):
    many = tar(*[entry(f"f{i}") for i in range(1001)])
    assert unpack(jobs, many, options=("--max-entries", "1000")).error == "too_large"
    assert unpack(jobs, many, options=("--max-entries", "1001")).ok
    deep = tar(entry("/".join("d" * 600)))
    assert unpack(jobs, deep, options=("--max-entries", "500")).error == "too_large"
    assert unpack(jobs, tar(entry("f", data=b"x" * 200000)), options=("--max-bytes", "100000")).error == "too_large"
    assert unpack(jobs, (tar(entry("f", data=b"x" * 2000000)), "gzip"), options=("--max-bytes", "1000000")).error == "too_large"
    sparse = tarfile.TarInfo("sparse")
    sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "sparse", "GNU.sparse.realsize": str(1 << 50)}
    sparse.size = 512
    body = b"1\n0\n0\n".ljust(512, b"\0")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        t.addfile(sparse, io.BytesIO(body))
    assert unpack(jobs, out.getvalue()).error == "too_large"


def test_a_bomb(jobs):
    packer = zlib.compressobj(wbits=31)
    info, _ = entry("zeros")
    info.size = 3 << 30
    # What stands between two full flushes is packed in the same way each time.
    head, zeros = (packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH) for data in (info.tobuf(), bytes(1 << 20)))
    bomb = head + zeros * 1200 + packer.flush()
    image = Image((b"", "gzip"))
    image.manifest["layers"] = [image.add(bomb, "application/vnd.oci.image.layer.v1.tar+gzip")]
    result = jobs.archive(image.seal().layout())
    assert result.error == "too_large" and "bomb" in result.message


@pytest.fixture
def jobs_in_memory(jobs):
    """ext4 searches long for an inode where many were freed."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "cove-test", jobs.top], check=True)
    yield jobs
    subprocess.run(["umount", "--lazy", jobs.top], check=True)


def test_hundred_thousand_entries(jobs_in_memory):
    """Memory does not grow with them: the limit on address space would end it."""
    jobs = jobs_in_memory
    layer = tar(*[entry(f"d{i % 100}/f{i}") for i in range(100000)])
    result = unpack(jobs, layer, tar(*[entry(f"d{i}/.wh..wh..opq") for i in range(100)], *[entry(f"d{i % 100}/g{i}") for i in range(20000)]))
    assert result.ok and sum(stat.S_ISREG(os.lstat(os.path.join(d, f)).st_mode) for d, _, files in os.walk(result.root) for f in files) == 20000
