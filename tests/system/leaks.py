# SPDX-License-Identifier: Apache-2.0
"""What one service has on the machine, told from everybody else's by its state directory, and what it left of that when it was gone."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from client import Client
from service import BUILD, Service, below, copy_template, is_stocked, kept_templates, link, opened, read, settled, wait_until

CGROUPS = Path("/sys/fs/cgroup")
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


GROUPS_OF = {} # state directory: its number, when it is gone


def group_name(state):
    """The name of the control group that coved derives from its state directory."""
    value = 0xcbf29ce484222325
    with contextlib.suppress(FileNotFoundError):
        of = os.stat(state)
        GROUPS_OF[str(state)] = f"{of.st_dev}:{of.st_ino}"
    for byte in f"{state}#{GROUPS_OF.get(str(state))}".encode():
        value = (value ^ byte) * 0x100000001b3 % (1 << 64)
    return f"cove-{(value ^ value >> 32) & 0xffffffff:08x}"


def groups(state):
    """In each hierarchy: the service's own, and those of its boxes."""
    name = group_name(state)
    return sorted(str(p) for base in {CGROUPS, *below(CGROUPS, "*/")} for p in [base / name, *below(base / name, "*/")] if p.is_dir())


def stocked(state, sandboxes, measure):
    """What is measured once all boxes are there that are made ahead of need beside those of so many sandboxes."""
    assert wait_until(lambda: is_stocked(groups(state), processes(state).values(), sandboxes)), groups(state)
    return settled(measure, quiet=1)


def is_of_cove(pid):
    return link(f"/proc/{pid}/exe").rsplit("/", 1)[-1].startswith(("cove", "memfd:cove"))


def processes(state):
    """{pid: name}: in the service's control groups, or started with its state directory. Zombies are not gone either."""
    name, found = group_name(state), {}
    marks = (f"COVE_STATE={state}\0", f"--state\0{state}\0")
    for pid in pids():
        of = f"/proc/{pid}"
        is_in = f"/{name}" in read(f"{of}/cgroup")
        if is_in or (pid != os.getpid() and is_of_cove(pid) and any(mark in read(f"{of}/environ") + read(f"{of}/cmdline") for mark in marks)):
            found[pid] = read(f"{of}/comm").strip()
    return found


def namespaces(of):
    """Those that these processes have and we don't."""
    ours = {link(f"/proc/self/ns/{kind}") for kind in NAMESPACES}
    return {link(f"/proc/{pid}/ns/{kind}") for pid in of for kind in NAMESPACES} - ours - {""}


def started(pid):
    """Clock ticks after the machine's start."""
    stat = read(f"/proc/{pid}/stat")
    return int(stat.rsplit(")", 1)[1].split()[19]) if stat else 0


def now_ticks():
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def is_of_another_service(pid, name):
    group = re.search(r"/(cove-[0-9a-f]{8})(?:/|$)", read(f"/proc/{pid}/cgroup"), re.M)
    if group:
        return group[1] != name
    return is_of_cove(pid)


def namespaces_alive(wanted, before, state, ours):
    """
    Of these, those that some process still has, holds open or has mounted. The kernel uses their numbers again: processes that began
    after `before` (ticks), and other services, have other ones. Its own threads, which have no program, have those of the machine.
    ours: processes(state).
    """
    alive, tables, name = set(), {}, group_name(state)
    for pid in pids():
        of = f"/proc/{pid}"
        if not link(f"{of}/exe") or started(pid) > before or (pid not in ours and is_of_another_service(pid, name)):
            continue
        has = {kind: link(f"{of}/ns/{kind}") for kind in NAMESPACES}
        alive |= {*has.values(), *opened(pid).values()} & wanted
        seen = has["mnt"], link(f"{of}/root")
        if seen not in tables: # of a namespace, as one sees it from this root
            tables[seen] = read(f"{of}/mountinfo")
    mounted = "".join(table for table in tables.values() if "nsfs" in table)
    return alive | {name for name in wanted if name in mounted}


def mount_tables():
    """{mount namespace: its table}"""
    tables = {}
    for pid in pids():
        namespace = link(f"/proc/{pid}/ns/mnt")
        if namespace and namespace not in tables:
            tables[namespace] = read(f"/proc/{pid}/mountinfo")
    return tables


CLONE_NEWNS, MS_REC, MS_PRIVATE, MS_SHARED, MNT_DETACH = 0x20000, 0x4000, 1 << 18, 1 << 20, 2


@contextlib.contextmanager
def own_mount_table():
    """
    A mount table of our own, shared as that of a host is: what a service here does not keep to itself comes to stand in it, what others on this machine
    mount meanwhile does not. Yields a function that tells what came to it.
    """
    if os.geteuid() != 0:
        pytest.skip("mount tables are root's")
    libc, before, at = ctypes.CDLL(None, use_errno=True), os.open("/proc/self/ns/mnt", os.O_RDONLY), os.getcwd()
    assert libc.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    try:
        for kind in (MS_PRIVATE, MS_SHARED):
            assert libc.mount(None, b"/", None, MS_REC | kind, None) == 0, os.strerror(ctypes.get_errno())
        for line in read("/proc/self/mountinfo").splitlines()[::-1]:
            if re.search(r"/(?:test|cove)-[a-z-]+-\w{8}/|/pytest-of-\w+/", line.split()[4]): # other tests', who want to see them gone
                libc.umount2(line.split()[4].encode(), MNT_DETACH)
        first = set(read("/proc/self/mountinfo").splitlines())
        yield lambda: sorted(set(read("/proc/self/mountinfo").splitlines()) - first) # others' go where their directories are removed
    finally:
        assert libc.setns(before, CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
        os.close(before)
        os.chdir(at)


def mounts(state, run):
    return [line for table in mount_tables().values() for line in table.splitlines() if str(state) in line or str(run) in line]


def loop_devices(path):
    """Those that have this file, or one in this directory, behind them."""
    return [of.parent.parent.name for of in below("/sys/block", "loop*/loop/backing_file") if read(of).startswith(str(path))]


def pool(state):
    """Whatever is in the storage pool besides layers and the two-digit directories that boxes are spread over."""
    top = Path(state) / "pool"
    found = below(top, "boxes/*", "trash/*", "dying/*", "new/*")
    spread = [p for p in found if p.parent.name == "boxes" and len(p.name) == 2]
    return sorted(str(p) for p in {*found, *(inner for p in spread for inner in below(p, "*"))} - {*spread})


def boxes(state):
    return [path for path in pool(state) if "/pool/boxes/" in path]


class Footprint:
    """
    All that a service has. Look while it lives (namespaces are known by nothing but their processes), ask for what is left afterwards. log: who
    tells there that the disk was too slow for deleting everything may leave it to the next start.
    """

    def __init__(self, state, run, log="/dev/null"):
        self.state, self.run, self.log = Path(state), Path(run), log
        self.keep_mounts = [] # the test's own, not the service's
        self.namespaces, self.pids, self.looked = set(), set(), 0

    def look(self):
        now = processes(self.state)
        self.pids |= set(now)
        self.namespaces |= namespaces(now)
        self.looked = now_ticks()
        return self

    def left(self):
        ours = processes(self.state)
        found = [f"process {pid}: {name}" for pid, name in ours.items()]
        found += [f"namespace {name}" for name in namespaces_alive(self.namespaces, self.looked, self.state, ours)]
        found += [f"mount {line}" for line in mounts(self.state, self.run) if not any(f" {m} " in line for m in self.keep_mounts)]
        found += [f"control group {path}" for path in groups(self.state)]
        is_put_off = "are not deleted yet: the next start continues" in read(self.log)[-2000:]
        found += [f"pool {path}" for path in pool(self.state) if not (is_put_off and "/pool/trash/" in path)]
        return found


def end_whole(service, place=None):
    """Stops a service, and what it ran in; nothing of it may be left on the machine."""
    footprint = Footprint(service.state, service.run, service.log).look()
    assert service.stop() == 0, service.tail()
    if place:
        place.service = None
        place.stop()
    assert wait_until(lambda: not footprint.left()), footprint.left()


def rss_kib(pid):
    """Of a process: what it has now, without what it shares with files."""
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0


@contextlib.contextmanager
def own_file_system(path, size):
    path.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "cove-test", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


@contextlib.contextmanager
def running(store_size=None, build=BUILD, name="service", has_template=True, **env):
    """
    A service of one's own to be mistreated: (service, client). When it is stopped nothing of it may be left. store_size: its worker's data
    lies on a file system of that size. build: a directory with other programs. name: of its directory, in part.
    """
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    with contextlib.ExitStack() as stack:
        directory = tempfile.mkdtemp(prefix=f"test-{name}-", dir=BUILD)
        os.chmod(directory, 0o755) # the unprivileged worker passes through
        service = Service(directory)
        stack.callback(service.remove)
        service.env.update(env)
        service.footprint = footprint = Footprint(service.state, service.run, service.log)
        if not has_template:
            service.state.mkdir()
        if store_size:
            copy_template(kept_templates(), service.state)
            stack.enter_context(own_file_system(service.state / "api", store_size))
            footprint.keep_mounts.append(str(service.state / "api"))
        try:
            service.start(Path(build) / "coved")
            yield service, Client(service.port, service.key)
            if service.coved.poll() is None:
                footprint.look()
                assert service.stop() == 0, service.tail()
            assert wait_until(lambda: not footprint.left()), footprint.left()
        finally:
            if service.coved and service.coved.poll() is None:
                service.coved.send_signal(signal.SIGCONT)
                service.stop()


@contextlib.contextmanager
def own_service(name, **how):
    """The same for those who need no client of their own: the service alone."""
    with running(name=name, **how) as (service, _):
        yield service
