# SPDX-License-Identifier: Apache-2.0
"""Files: out of the sandbox, into the host, and what a sandbox leaves for the host's tools. Section 7 of the list of attacks (F..)."""

import io
import json
import os
import stat
import subprocess
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from rig import BUILD, PROBE, PROBE_INSIDE, SECRET, USERS, answers, inside, judge, must, outside, text

KNOBS = ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/poweroff_cmd",
         "/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/sysrq",
         "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/kernel/ns_last_pid",
         "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/hostname", "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/msgmax",
         "/proc/sys/fs/mqueue/queues_max", "/proc/sysrq-trigger", "/proc/mtrr", "/proc/acpi/wakeup", "/proc/1/oom_score_adj_",
         "/proc/irq/0/smp_affinity", "/proc/pressure/memory", "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled",
         "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/cgroup.procs", "/sys/power/state")
SECRETS = ("/proc/kcore", "/proc/keys", "/proc/kallsyms", "/proc/kmsg", "/proc/timer_list", "/proc/sched_debug", "/proc/config.gz", "/proc/cmdline",
           "/proc/slabinfo", "/proc/vmallocinfo", "/proc/pagetypeinfo", "/proc/kpageflags", "/proc/fs/ext4", "/proc/pressure/cpu",
           "/proc/latency_stats", "/proc/locks", "/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/devices/virtual/dmi/id/product_uuid",
           "/sys/class/net/eth0/address", "/sys/block/vda/size", "/sys/kernel/notes", "/sys/kernel/boot_params/data", "/dev/kmsg",
           "/var/run/docker.sock", "/run/systemd/private")
NAMES = (b"new\nline", b"esc\x1b]0;owned\x07\x1b[2J", "rtl\u202egpj.exe".encode(), b"-rf", b"--help", b"\xff\xfe\x80", b".GIT", b"git~1", b"$(touch owned)",
         b"`id`", b"a;b", b"a|b", b"'", b'"', b"\\", b"%s%n", b" ", b"..." , b"con.txt:stream", b"x" * 255)

MAKE_NAMES = ("python3 - {where} <<'END'\nimport sys\nfor n in " + repr(NAMES).replace("{", "{{").replace("}", "}}") +
              ":\n open(sys.argv[1].encode() + b'/' + n, 'w').close()\nEND\n")


@pytest.fixture
def private(tmp_path_factory):
    """A directory of the host that nobody may write to but the test."""
    with tempfile.TemporaryDirectory(prefix="cove-attack-") as directory:
        yield Path(directory)


def upload(sandbox, path, data=b"x", user="user", headers=None):
    return sandbox.request("POST", f"/files?path={quote(path)}&username={user}", data, {"Content-Type": "application/octet-stream", **(headers or {})})


def test_F03_symlinks_end_in_the_sandbox(sandbox, canary):
    """A link to a path of the host means that path of the sandbox, for its programs, for the file routes, for cp."""
    must(sandbox, f"mkdir -p $(dirname {canary.file}) 2>/dev/null; cd /root; ln -sf {canary.file} k; ln -sf ../../../../../../../..{canary.file} up; "
                  "ln -sf /proc/self/root/../../../etc/shadow magic", user="root")
    for path in ("k", "up"):
        answer = sandbox.request("GET", f"/files?path={path}&username=root")
        assert answer.status == 404 and SECRET.encode() not in answer.body, answer
    for path in ("k", "up"):
        upload(sandbox, path, b"overwritten\n", "root") # may be taken: it is a path of the sandbox
    magic = sandbox.request("GET", "/files?path=magic&username=root")
    assert magic.status == 200 and magic.body != Path("/etc/shadow").read_bytes()
    assert canary.file.read_text() == SECRET


@pytest.mark.parametrize("path", ["../../../../../../../../../../{f}", "/../../..{f}", "a/../../../../../..{f}", "//..//..{f}", "~/../../..{f}",
                                  "/proc/self/root{f}", "/proc/self/cwd/../../..{f}", "/proc/1/root{f}", "/proc/1/cwd{f}", "/proc/self/fd/3{f}",
                                  "/dev/fd/3/../..{f}", "/proc/thread-self/root{f}", "/proc/self/task/1/root{f}", "{f}\0", "\0{f}", "{f}/../{f}",
                                  "/proc/self/mem", "/proc/1/mem", "/dev/null/../..{f}", "file://{f}", "%2e%2e/%2e%2e{f}", "..%00{f}", "..\\..\\{f}"])
def test_F06_traversal_by_path(sandbox, canary, path):
    path = path.replace("{f}", str(canary.file))
    for user in USERS:
        answer = sandbox.request("GET", f"/files?path={quote(path, safe='')}&username={user}")
        assert SECRET.encode() not in answer.body and answer.status in (400, 404, 500, 403), answer
        answer = upload(sandbox, path, b"overwritten\n", user)
        assert answer.status in (200, 400, 403, 404, 500, 507), answer
        for method in ("Stat", "ListDir", "MakeDir", "Remove"):
            answer = sandbox.unary(f"filesystem.Filesystem/{method}", {"path": path})
            assert SECRET.encode() not in answer.body
    assert canary.file.read_text() == SECRET and sandbox.works()


@pytest.mark.parametrize("length", [255, 256, 4094, 4096, 5000, 60000])
def test_F06_long_paths(sandbox, length):
    for path in ("/tmp/" + "a" * length, "/tmp/" + "a/" * (length // 2), "../" * (length // 3)):
        answer = sandbox.request("GET", f"/files?path={quote(path)}")
        assert answer.status in (400, 404, 414, 431, 500), answer.status
        assert upload(sandbox, path).status in (200, 400, 414, 431, 500)
    assert sandbox.works()


def test_F07_hard_links_to_the_outside(sandbox):
    found = inside(sandbox, "link,/proc/1/exe,/tmp/l1", "link,/dev/null,/tmp/l2", "link,/proc/self/ns/net,/tmp/l3",
                   "link,/sys/devices/system/cpu/online,/tmp/l4",
                   "link,/proc/sys/kernel/core_pattern,/tmp/l5", "link,/dev/shm,/tmp/l6")
    for outcome in found.values():
        assert outcome.name in ("EXDEV", "EPERM", "EACCES"), outcome
    # The control: a link beside its target.
    assert inside(sandbox, "link,/etc/hostname,/etc/linked")["link,/etc/hostname,/etc/linked"].reached


def test_F14_handles(sandbox):
    verbs = [f"handle_open,{d}" for d in ("/", "/dev", "/proc", "/dev/shm", "/sys", "/home/user")]
    control = outside("handle_open,/")["handle_open,/"]
    for user in USERS:
        for outcome in inside(sandbox, *verbs, user=user).values():
            judge(outcome, control, {"EPERM"})


def test_F16_device_nodes(sandbox):
    verbs = [f"mknod,/tmp/node,{kind},{major},{minor}" for kind, major,
             minor in (("b", 254, 0), ("b", 8, 0), ("c", 1, 1), ("c", 1, 3), ("c", 10, 232), ("c", 5, 1))]
    control = outside(*verbs)
    for user in USERS:
        for verb, outcome in inside(sandbox, *verbs, user=user).items():
            judge(outcome, control[verb], {"EPERM"})
    # Not even where the node is only a mark of overlayfs, and no device is to be opened below the root should one get there.
    assert inside(sandbox, "mknod,/tmp/white,c,0,0")["mknod,/tmp/white,c,0,0"].name == "EPERM"
    assert "nodev" in must(sandbox, "grep ' / / ' /proc/self/mountinfo")


def in_pool(service, name):
    return list((service.state / "pool" / "boxes").rglob(name))


def test_F17_set_uid_programs_are_nobody_s_outside(sandbox, service):
    """On disk a set-uid program of the sandbox's root is just that: only the closed pool is between it and the host's users."""
    must(sandbox, "cp /bin/id /usr/local/bin/suid-probe && chmod 4755 /usr/local/bin/suid-probe && test -u /usr/local/bin/suid-probe", user="root")
    found = in_pool(service, "suid-probe")
    assert len(found) == 1 and found[0].stat().st_mode & stat.S_ISUID
    with pytest.raises(PermissionError):
        subprocess.run([found[0]], user=65534, group=65534, extra_groups=[], capture_output=True, check=False)
    pool = (service.state / "pool").stat()
    assert stat.S_IMODE(pool.st_mode) == 0o700 and pool.st_uid == 0
    # And there is no other way to it: not through coved's working directory, not through the agents' roots.
    for pid in service.processes():
        for way in ("root", "cwd"):
            path = f"/proc/{pid}/{way}/usr/local/bin/suid-probe"
            done = subprocess.run(["cat", path], user=65534, group=65534, extra_groups=[], capture_output=True, check=False)
            assert done.returncode != 0, path


def test_F18_file_capabilities(sandbox, service):
    must(sandbox, "cp /bin/cat /usr/local/bin/cap-probe", user="root")
    outcome = inside(sandbox, "setcap,/usr/local/bin/cap-probe")["setcap,/usr/local/bin/cap-probe"]
    assert outcome.reached or outcome.name in ("EPERM", "EOPNOTSUPP"), outcome
    # Inside, a program that asks for more than the bound is not even started.
    code, out, _ = sandbox.sh("/usr/local/bin/cap-probe /proc/self/status")
    assert code == 126 or b"CapEff:\t0000000000000000" in out, out
    for found in in_pool(service, "cap-probe"):
        done = subprocess.run(["cat", found], user=65534, group=65534, extra_groups=[], capture_output=True, check=False)
        assert done.returncode != 0
    for name in ("trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.cove"):
        verb = f"setxattr,/usr/local/bin/cap-probe,{name}"
        outcome = inside(sandbox, verb)[verb]
        assert outcome.name in ("EPERM", "EOPNOTSUPP"), outcome


def test_immutable_files_would_outlive_their_sandbox(sandbox, private):
    target = private / "f"
    target.write_text("")
    must(sandbox, "touch /tmp/f", user="root")
    for flag in (0x10, 0x20): # immutable, append only
        judge(inside(sandbox, f"attribute,/tmp/f,{flag:#x}")[f"attribute,/tmp/f,{flag:#x}"],
              outside(f"attribute,{target},{flag:#x}")[f"attribute,{target},{flag:#x}"], {"EPERM"})


def test_F20_hostile_trees_go_with_their_sandbox(sandbox, service):
    """What a sandbox left is deleted, however deep, long, odd or closed it is; the fixture asserts that the trash is empty in the end."""
    must(sandbox, f"""python3 - <<'END'
import os, socket
os.chdir('/home/user')
for name in ('deep', '.deep', '.deep.1.0', '.deep.1.1'):
    os.makedirs(name, exist_ok=True)
    fd = os.open(name, os.O_RDONLY)
    for i in range(600):
        os.mkdir('d', dir_fd=fd)
        new = os.open('d', os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = new
    os.symlink('d', 'loop', dir_fd=fd)
    os.close(fd)
os.mkdir('wide')
for i in range(800):
    os.mkdir(f'wide/{{i}}')
os.mkdir('names')
for name in {NAMES!r}:
    open(b'names/' + name, 'w').close()
os.mkfifo('fifo')
s = socket.socket(socket.AF_UNIX); s.bind('socket')
os.symlink('endless', 'endless'); os.symlink('/' + 'x' * 4000, 'long')
open('sparse', 'w').truncate(1 << 40)
os.mkdir('closed'); open('closed/f', 'w').close(); os.chmod('closed/f', 0); os.chmod('closed', 0)
END
rm -rf /usr/share/doc/git /usr/share/man; mkdir /usr/share/doc/git; mv /opt /moved; chmod 0 /home/user /etc; true""", user="root")
    begin = time.monotonic()
    assert sandbox.kill().status == 204
    answers(service.client.create())
    print(f"created and ran beside the deletion after {time.monotonic() - begin:.3f} s")


def test_F20_hostile_types_for_the_file_routes(sandbox):
    """No pipe, device or endless link holds up whoever asks for it; no directory is a file."""
    must(sandbox, "mkfifo fifo; ln -s endless endless; ln -s /dev/zero zero; mkdir closed; chmod 0 closed; python3 -c 'import socket; socket.socket(1).bind(\"sock\")'")
    mine = [f"/home/user/{n}" for n in ("fifo", "sock", "endless", "zero", "closed")]
    for path in (*mine, "/dev/zero", "/dev/tty", "/dev/ptmx", "/proc/kmsg", "/proc/self/mem", "/dev/stdin",
                 "/proc/1/fd/3", "/dev/random", "/proc/sysrq-trigger"):
        assert sandbox.request("GET", f"/files?path={path}&username=root").status in (400, 403, 404, 500), path
        assert upload(sandbox, path, b"x", "root").status in (400, 403, 404, 500), path
    assert sandbox.works()


def test_F20_proc_files_are_read_to_their_end_only(sandbox):
    for path in ("/proc/self/status", "/proc/meminfo", "/proc/1/stat"):
        answer = sandbox.request("GET", f"/files?path={path}")
        assert answer.status == 200 and 0 < len(answer.body) < 1 << 20


def test_F05_F20_copying_a_hostile_tree_to_the_host(sandbox, service, private, canary):
    """cove cp of a directory, while its owner swaps files for links: nothing is written outside of the destination."""
    guard = private / "guard"
    guard.mkdir()
    (guard / "f").write_text("mine\n")
    must(sandbox, f"""mkdir -p tree/sub; cd tree; echo data > f; ln -s {guard}/f link; ln -s {guard} dir; ln -s / root; mkfifo fifo; ln -s x x; ln f hard; cp /bin/true suid; chmod 6755 suid
      {MAKE_NAMES.format(where=".")}
      (while :; do rm -rf sub; ln -s {guard} sub; rm -f sub; mkdir sub; echo evil > sub/f; done) >/dev/null 2>&1 &""")
    for number in range(3):
        out = private / f"out{number}"
        done = service.cove("cp", f"{sandbox.id}:tree", str(out), timeout=60)
        assert done.returncode in (0, 1), done
    assert (guard / "f").read_text() == "mine\n" and sorted(p.name for p in guard.iterdir()) == ["f"]
    for path in private.rglob("out*/**/*"):
        mode = path.lstat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID) and stat.S_IFMT(mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK), path


def member(name, kind=tarfile.REGTYPE, link="", data=b"evil\n", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, io.BytesIO(data) if kind == tarfile.REGTYPE else None


def test_F06_copying_from_a_tar_that_lies(sandbox, service, private):
    """The tar that makes the stream for cp is the sandbox's own, so the stream may be anything."""
    guard = private / "guard"
    guard.mkdir()
    (guard / "f").write_text("mine\n")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in (member("./good"), member("../up"), member(str(private / "absolute")), member("./a/../../up2"),
                           member("./out", tarfile.SYMTYPE, str(guard)), member("./out/f"), member("./out/g"),
                           member("./hard", tarfile.LNKTYPE, str(guard / "f")), member("./hard2", tarfile.LNKTYPE, "../guard/f"), member("./hard2"),
                           member("./dev", tarfile.CHRTYPE), member("./fifo", tarfile.FIFOTYPE), member("./suid", mode=0o6755), member("./last")):
            tar.addfile(info, data)
    assert upload(sandbox, "/tmp/lie.tar", archive.getvalue(), "root").status == 200
    must(sandbox, "mv /usr/bin/tar /usr/bin/tar.real; printf '#!/bin/sh\\ncat /tmp/lie.tar\\n' > /usr/bin/tar; chmod 755 /usr/bin/tar; mkdir -p /home/user/tree", user="root")
    # One at a time, too: the first refusal ends the copy.
    out = private / "out"
    done = service.cove("cp", f"{sandbox.id}:tree", str(out), timeout=60)
    with tarfile.open(fileobj=io.BytesIO(archive.getvalue())) as tar:
        members = tar.getmembers()
        for number, info in enumerate(members):
            single = io.BytesIO()
            with tarfile.open(fileobj=single, mode="w", format=tarfile.PAX_FORMAT) as one:
                if info.name.startswith("./out/"): # with the link that it goes through
                    one.addfile(members[4])
                one.addfile(info, io.BytesIO(b"evil\n") if info.isreg() else None)
            assert upload(sandbox, "/tmp/lie.tar", single.getvalue(), "root").status == 200
            done = service.cove("cp", f"{sandbox.id}:tree", str(private / f"single{number}"), timeout=60)
            assert done.returncode in (0, 1), done
    assert (guard / "f").read_text() == "mine\n" and sorted(p.name for p in guard.iterdir()) == ["f"]
    assert not [p for p in private.iterdir() if p.name.startswith(("up", "absolute"))]
    assert not Path(private.parent / "up").exists() and not Path(private.parent / "up2").exists()
    for path in private.rglob("*"):
        mode = path.lstat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID) and stat.S_IFMT(mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK), path
        assert path.lstat().st_nlink == 1 or path.is_dir(), path


def test_F21_names_stay_names(sandbox, service):
    """Names with control characters come back as they are in JSON, and harmless on a terminal."""
    must(sandbox, f"mkdir names; {MAKE_NAMES.format(where='names')}")
    listed = sandbox.unary("filesystem.Filesystem/ListDir", {"path": "names", "depth": 1})
    assert listed.status == 200, listed
    json.loads(listed.body.decode()) # valid UTF-8, valid JSON
    names = {e["name"] for e in listed.json["entries"]}
    assert "new\nline" in names and "-rf" in names
    must(sandbox, "python3 -c \"import os,sys; os.execv('/bin/true', ['true', '\\x1b]0;owned\\x07', 'a\\nb'])\"")
    pid, master = os.forkpty()
    if pid == 0:
        os.execve(str(BUILD / "cove"), ["cove", "log", sandbox.id], service.env)
    shown = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.waitpid(pid, 0)
    os.close(master)
    assert shown and b"\x1b]0" not in shown and b"\x07" not in shown


def test_F22_knobs_of_the_kernel(sandbox):
    there = [k for k in KNOBS if os.path.exists(k)]
    control = outside(*(f"open_write,{k}" for k in there))
    reached = 0
    for user in USERS:
        found = inside(sandbox, *(f"open_write,{k}" for k in KNOBS), user=user)
        for knob in KNOBS:
            outcome = found[f"open_write,{knob}"]
            masked = outcome.reached and "character special" in must(sandbox, f"stat -c %F {knob}", user="root")
            assert masked or outcome.name in ("EROFS", "EACCES", "EPERM", "ENOENT"), outcome
            reached += knob in there and control[f"open_write,{knob}"].reached
    assert reached, "not even root on the host can open one of them"


def test_F22_nothing_below_proc_and_sys_can_be_written(sandbox):
    """Not only the well-known ones: every file is tried. What belongs to processes of the sandbox is theirs."""
    assert outside("writable_below,/proc/sys/kernel")["writable_below,/proc/sys/kernel"].reached
    for user in USERS:
        for outcome in inside(sandbox, "writable_below,/proc", "writable_below,/sys", "writable_below,/dev", user=user).values():
            assert outcome.name == "EACCES", outcome


def test_F23_control_groups(sandbox):
    for verb in ("mount,cgroup,/mnt", "mount,cgroup2,/mnt"):
        outcome = inside(sandbox, verb)[verb]
        assert outcome.name == "EPERM", outcome
    # What runtimes look for is there, as plain files of the sandbox's own: no file of the kernel's that acts on a group, or tells of others.
    assert must(sandbox, "stat -f -c %T /sys/fs/cgroup /sys/fs/cgroup/*", user="root").split() == ["tmpfs"] * (1 + int(must(sandbox, "ls /sys/fs/cgroup | wc -l")))
    kernels = "( -name '*.procs' -o -name tasks -o -name '*release*' -o -name '*.events' -o -name '*pressure' -o -name '*control*.kill' )".replace("(", "\\(").replace(")", "\\)")
    assert must(sandbox, f"find /sys/fs/cgroup -maxdepth 1 {kernels}", user="root").strip() == ""
    assert must(sandbox, "for f in /sys/fs/cgroup/*; do (echo 1 >$f) 2>/dev/null && echo $f; (umount $f) 2>/dev/null && echo $f; done; umount /sys/fs/cgroup 2>/dev/null && echo off; true",
                user="root") == ""
    assert set(must(sandbox, "cut -d: -f3 /proc/self/cgroup", user="root").split()) == {"/"}


def test_F24_what_the_kernel_knows(sandbox):
    control = outside(*(f"read,{s}" for s in SECRETS))
    known = 0
    for user in USERS:
        found = inside(sandbox, *(f"read,{s}" for s in SECRETS), user=user)
        for secret in SECRETS:
            outcome = found[f"read,{secret}"]
            assert not outcome.reached, outcome
            known += control[f"read,{secret}"].reached
    assert known > 8, "hardly any of it is known outside either"
    addresses = must(sandbox, "cat /proc/iomem /proc/modules 2>/dev/null | grep -Eo '(0x)?[0-9a-f]{8,16}' | sort -u | head -3; true", user="root").split()
    assert all(set(a.replace("0x", "")) == {"0"} for a in addresses), addresses


def test_chroot_is_no_way_out(sandbox):
    """root may chroot(); the way back up ends at the sandbox's own root."""
    must(sandbox, "mkdir -p /tmp/jail", user="root")
    escape = f"chroot,/tmp/jail,{PROBE_INSIDE}"
    outcome = inside(sandbox, escape)[escape]
    assert outcome.reached, "the trick itself does not work"
    outcome = inside(sandbox, f"chroot,/tmp/jail,{PROBE}")[f"chroot,/tmp/jail,{PROBE}"]
    assert outcome.name == "ENOENT", outcome
    for up in ("/proc/sys/..", "/proc/acpi/..", "/proc/fs/..", "/dev/pts/..", "/dev/shm/../..", "/sys/..", "/proc/../.."):
        assert not set(must(sandbox, f"ls {up}", user="root").split()) & {"pool", "trees", "build", "scratch"}, up


def test_layers_are_read_only_for_all(pair, service):
    """What one sandbox does to the files of its template is its own affair."""
    one, other = pair
    digest = "sha256sum /etc/debian_version /usr/bin/git /usr/lib/os-release; ls /usr/share | wc -l"
    before = must(other, digest)
    layers = list((service.state / "pool" / "layers").iterdir())
    assert layers
    must(one, "echo evil > /etc/debian_version; printf x | dd of=/usr/bin/git conv=notrunc 2>/dev/null; rm -rf /usr/share/*; chmod 777 /etc; chown user /usr/bin/sudo; "
              "mv /usr/lib/os-release /x; setfattr -n user.evil -v 1 /usr/bin/python3 2>/dev/null; ln /usr/bin/env /hard; python3 - <<'END'\n"
              "import mmap\nf = open('/usr/bin/env', 'r+b')\nm = mmap.mmap(f.fileno(), 0)\nm[0:4] = b'EVIL'\nm.flush()\nEND\ntrue", user="root")
    assert must(other, digest) == before
    fresh = service.client.create()
    assert must(fresh, digest) == before
    assert all((layer / "u/usr/bin/env").read_bytes()[:4] == b"\x7fELF" for layer in layers)
    # Test services share layers by hard links, so how many there are says nothing: the sandbox's is to a copy of its own.
    ours = [path.lstat() for path in (service.state / "pool" / "boxes").rglob("hard")]
    assert ours and not {(s.st_dev, s.st_ino) for s in ours} & {((s := (layer / "u/usr/bin/env").stat()).st_dev, s.st_ino) for layer in layers}


def test_F28_page_cache_of_shared_layers(pair):
    """Dirty COW and Dirty Pipe, as far as a kernel that is not years old can tell: write to a read-only file of the layer by race, by splice."""
    one, other = pair
    before = must(other, "sha256sum /usr/bin/env")
    code, out, err = one.sh(r"""python3 - <<'END'
import ctypes, mmap, os, threading
size = 65536
def pipe_trick(path):
    r, w = os.pipe()
    os.set_blocking(w, False)
    try:                              # every buffer of the pipe gets the flag that it can be merged with
        while True: os.write(w, b'x' * 4096)
    except BlockingIOError: pass
    os.set_blocking(r, False)
    try:
        while True: os.read(r, 65536)
    except BlockingIOError: pass
    f = os.open(path, os.O_RDONLY)
    os.splice(f, w, 1, offset_src=0)
    os.write(w, b'EVIL')
def cow(path):
    f = os.open(path, os.O_RDONLY)
    m = mmap.mmap(f, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    libc = ctypes.CDLL(None)
    address = ctypes.addressof(ctypes.c_char.from_buffer(m))
    stop = []
    def advise():
        while not stop: libc.madvise(ctypes.c_void_p(address), 4096, 4)
    def write():
        g = os.open('/proc/self/mem', os.O_RDWR)
        for _ in range(3000):
            try: os.pwrite(g, b'EVIL', address)
            except OSError: pass
    t = threading.Thread(target=advise); t.start()
    write(); stop.append(1); t.join()
pipe_trick('/usr/bin/env')
cow('/usr/bin/env')
END""", timeout=60)
    assert code == 0, (text(out), text(err))
    assert must(other, "sha256sum /usr/bin/env") == before == must(one, "sha256sum /usr/bin/env")


def test_F05_files_swapped_for_links_under_the_file_routes(sandbox, canary, service):
    """Somebody inside swaps a file for a link to a path of the host while it is written and read a few hundred times."""
    must(sandbox, f"(while :; do ln -sfn {canary.file} swap; rm -f swap; echo mine > swap; ln -sfn /proc/1/mem swap; ln -sfn / swap; done) >/dev/null 2>&1 &")
    end, count = time.monotonic() + 2, 0
    lock = threading.Lock()

    def go():
        nonlocal count
        while time.monotonic() < end or count <= 20:
            upload(sandbox, "/home/user/swap", b"theirs\n", "root")
            answer = sandbox.request("GET", "/files?path=/home/user/swap&username=root")
            assert SECRET.encode() not in answer.body
            with lock:
                count += 2

    threads = [threading.Thread(target=go) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert count > 20 and canary.file.read_text() == SECRET
