# SPDX-License-Identifier: Apache-2.0
"""A service of our own for system tests: started on a state directory that is thrown away, with all that it may leak counted."""

import contextlib
import ctypes
import fcntl
import glob
import http.client
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from client import whole

TOP = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("COVE_BUILD", TOP / "build"))
TIER = os.environ.get("COVE_TEST_TIER") # of all sandboxes of a run; "stub" is in the programs of `tools/compile faults` alone
COVED = BUILD / ("tests/faults/coved" if TIER == "stub" else "coved")
READY_S = 90
STOP_S = 60
SETTLE_S = 60
PATIENCE_S = 60 # for what takes milliseconds, on a machine that others keep busy: whoever waits so long has found something

# Whoever starts the tests may ignore these (nohup, a job in the background), and what tests interrupt would inherit that.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

AHEAD = 10 # boxes that coved makes ahead of need: READY_BOXES in src/coved/serve.c
WARM = AHEAD - 2 # of these, once a template was asked for: without BLANKS_KEPT in src/coved/boxes/boxes_ahead.c


# SQLite keeps the descriptor of a connection that was closed while another one to the same file holds locks, and uses it again for the next
# one: there are at most as many as there were connections at the same time (a checkpoint and a verification).
SLACK = {"descriptors of cove-api": 2}


def read(path):
    try:
        with open(path, "rb", buffering=0) as f: # whoever looks for leaks reads thousands
            return f.read().decode(errors="replace")
    except OSError:
        return ""


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def opened(pid):
    """What its descriptors lead to, by number. One that it closes meanwhile is not among them."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return {}
    return {int(n): target for n in numbers if (target := link(f"/proc/{pid}/fd/{n}"))}


def holds(pid, name):
    """Whether one of its descriptors leads there. Most are looked at no more once it is found."""
    with contextlib.suppress(OSError):
        return any(name in link(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd"))
    return False


def below(top, *patterns):
    """What matches there now; directories may go meanwhile."""
    return [Path(path) for pattern in patterns for path in glob.glob(f"{glob.escape(str(top))}/{pattern}")]


def count_below(top, depth=1):
    """How many names are so far below that directory; what goes meanwhile has none."""
    try:
        names = os.listdir(top)
    except OSError:
        return 0
    return len(names) if depth == 1 else sum(count_below(f"{top}/{name}", depth - 1) for name in names)


def groups_below(top):
    """That control group and those in it. What is no parent says so by its links: its thirty files need not be listed."""
    found = []
    with contextlib.suppress(OSError): # it may go meanwhile
        links = os.stat(top).st_nlink
        found.append(top)
        if links > 2:
            with os.scandir(top) as entries:
                for entry in entries:
                    if entry.is_dir():
                        found += groups_below(entry.path)
    return found


def group_of(pid):
    """The service's control group that holds the process: "cove-<8 hex digits>", which each state directory has its own of."""
    text = read(f"/proc/{pid}/cgroup")
    found = re.search(r"/(cove-[0-9a-f]{8})(?:/|$)", text, re.M) if "/cove-" in text else None
    return found[1] if found else None


def tops_of(group):
    """Where it is: in one hierarchy or, with control groups of version 1, in several. It is in no other service's."""
    found = []
    for path, directories, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{path}/{name}" for name in directories if name == group]
        directories[:] = [name for name in directories if not re.fullmatch("cove-[0-9a-f]{8}", name)]
    return found


def boxes_in(groups):
    """How many have these control groups: each has one in each hierarchy, whose name is its number."""
    return len({name for name in (path.rsplit("/", 1)[1] for path in groups) if name.isdigit()})


def is_stocked(groups, names, sandboxes=0):
    """
    Whether all boxes that are made ahead of need are there beside those of so many sandboxes, and as many are warm as are to be: a box that is
    missing hides what somebody else has too much, and one that becomes warm holds more. names: of the service's processes.
    """
    agents = list(names).count("cove-agent")
    return boxes_in(groups) >= AHEAD + sandboxes and (agents == 0 or agents >= WARM + sandboxes)


def children(pid):
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


def coved_of(keeper):
    """The coved that this keeper has started last; None while there is none. What is to become a box or a worker looks like one for a moment."""
    for pid in children(keeper):
        status = read(f"/proc/{pid}/status")
        if status.startswith("Name:\tcoved\n") and re.search(r"^NSpid:\t\d+$", status, re.M) and "\0--keeper-fd\0" in read(f"/proc/{pid}/cmdline") \
                and holds(pid, "coved.lock") and "State:\tZ" not in status:
            return pid
    return None


RESERVED = [] # sockets, for as long as this process lives


def reserve_port():
    """
    A port of 127.0.0.1 that nobody else takes before it is used, nor between two uses: none of those that the kernel chooses, which any client
    may have by chance, and known as taken to all test programs by a name that goes with us.
    """
    first_chosen = int((read("/proc/sys/net/ipv4/ip_local_port_range").split() or [32768])[0])
    while True:
        port = random.randrange(10000, max(first_chosen, 20000))
        mark = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            try:
                mark.bind(f"\0cove-test-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                mark.close()
                continue
        RESERVED.append(mark)
        return port


COPIED = {} # state directory: the template that its layers are of


def spares(source):
    """Copies of its layers that services have given back."""
    return source.with_name(source.name + "-spares")


def held(layers):
    """{layer: what there is of it}"""
    return {path.name: set(os.listdir(path)) for path in below(layers, "*")}


def take_spare(source, target):
    for path in below(spares(source), "*"):
        with contextlib.suppress(OSError): # another test program was faster
            if held(path) == held(source / "pool" / "layers"):
                path.rename(target)
                return True
            shutil.rmtree(path, ignore_errors=True) # of a template before
    return False


def give_back(state):
    """Of a service that has ended: nobody writes to layers, and to link and unlink 20,000 names takes longer than most tests."""
    source, layers = COPIED.pop(state, None), state / "pool" / "layers"
    if not source:
        return
    ours = held(source / "pool" / "layers")
    for path in below(layers, "*"):
        if path.name not in ours:
            shutil.rmtree(path, ignore_errors=True)
    if held(layers) == ours:
        spares(source).mkdir(exist_ok=True)
        with contextlib.suppress(OSError): # on another file system
            layers.rename(spares(source) / state.parent.name)


def copy_template(source, target):
    """The layers as hard links where it is one file system: nobody writes to them."""
    (target / "pool").mkdir(parents=True, mode=0o700)
    shutil.copytree(source / "templates", target / "templates")
    if not take_spare(source, target / "pool" / "layers"):
        for way in ("-al", "-a"):
            if subprocess.run(["cp", way, source / "pool" / "layers", target / "pool" / "layers"], stderr=subprocess.DEVNULL,
                              check=False).returncode == 0:
                break
            shutil.rmtree(target / "pool" / "layers", ignore_errors=True)
        else:
            raise AssertionError(f"the base template can't be copied from {source}")
    COPIED[target] = source # and not before: half a copy is nobody's spare


def kept_templates():
    return Path(os.environ.get("COVE_TEST_TEMPLATES", BUILD / "test-templates"))


# Most of the base template, which tests of storage have no use for; each of them writes a copy of the rest.
NOT_SLIM = ("usr/bin/gh", "usr/bin/x86_64-linux-gnu-*", "usr/include/*", "usr/lib/file", "usr/lib/gcc/*", "usr/lib/git-core", "usr/lib/node_modules",
            "usr/lib/python3/dist-packages/*", "usr/lib/*/*.a", "usr/lib/*/lib*san.so*", "usr/lib/*/gconv", "usr/lib/*/perl", "usr/local/bin/*",
            "usr/local/include/*", "usr/local/lib/node_modules", "usr/share/doc/*", "usr/share/info/*", "usr/share/locale/*", "usr/share/man/*",
            "usr/share/node*", "usr/share/perl", "usr/share/python-wheels")


def slim_templates():
    """The base template without those, as hard links; prepare_templates() makes it."""
    return kept_templates().with_name(kept_templates().name + "-slim")


def make_slim():
    kept, slim, lacks = kept_templates(), slim_templates(), "\n".join(NOT_SLIM)
    if read(slim / "templates/base.conf") == read(kept / "templates/base.conf") and read(slim / "lacks") == lacks:
        return
    shutil.rmtree(slim, ignore_errors=True)
    slim.mkdir()
    copy_template(kept, slim)
    for path in [path for top in below(slim, "pool/layers/*/u") for path in below(top, *NOT_SLIM)]:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path)
    shutil.rmtree(spares(slim), ignore_errors=True)
    (slim / "lacks").write_text(lacks)


def pool_on_btrfs(target, size=None):
    """
    A state directory with the slim template in a pool of btrfs in a file, as coved makes it: a copy, because it takes seconds to write 6,000 files
    there. size: of the file, instead of what coved chooses; to count the inode numbers of each takes five seconds.
    """
    made = slim_templates().with_name(f"{kept_templates().name}-btrfs-{size or 'auto'}")
    stands_on = f"{(BUILD / 'coved').stat().st_mtime_ns} {read(slim_templates() / 'templates/base.conf')}"
    with open(f"{made}.made", "a+", encoding="utf-8") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        if read(stamp.name) != stands_on:
            stamp.truncate(0)
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            if size:
                with open(made / "pool.btrfs", "wb") as f:
                    f.truncate(size)
                subprocess.run(["mkfs.btrfs", "-q", "-m", "single", made / "pool.btrfs"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([BUILD / "coved", "prepare", "--from", slim_templates()], stdin=subprocess.DEVNULL, timeout=300, check=True,
                           env={**os.environ, "COVE_STATE": str(made), "COVE_CONFIG": "/dev/null", "COVE_POOL": "btrfs"})
            print(stands_on, end="", file=stamp, flush=True)
        subprocess.run(["cp", "-a", "--reflink=auto", f"{made}/.", target], check=True)
    if not Path("/sys/fs/btrfs/features/temp_fsid").exists(): # before Linux 6.7, two file systems with one name are one
        subprocess.run(["btrfstune", "-f", "-u", target / "pool.btrfs"], check=True, stdout=subprocess.DEVNULL)


def has_template(state):
    return (state / "templates" / "base.conf").exists() and any((state / "pool" / "layers").glob("*/u"))


def recipe_of(state):
    found = re.search("^recipe = .*$", read(state / "templates" / "base.conf"), re.M)
    return found and found[0]


def is_of_today(state):
    return has_template(state) and (state / "templates" / "base.conf").stat().st_mtime > time.time() - 86400


def take_over(source, target):
    """The template of another state directory: all of it or nothing."""
    shutil.rmtree(target / "new", ignore_errors=True)
    copy_template(source, target / "new")
    for name in ("templates", "pool"):
        shutil.rmtree(target / name, ignore_errors=True)
    for name in ("pool", "templates"):
        (target / "new" / name).rename(target / name)
    (target / "new").rmdir()


def prepare_templates():
    """
    The base template for all runs; made anew only when its recipe has changed, which may take minutes. Other checkouts on this file system take it
    over for a day: it stands in the user's cache, as links.
    """
    kept, cache = kept_templates(), Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cove-test"
    cache.mkdir(parents=True, exist_ok=True)
    kept.mkdir(exist_ok=True)
    shared = cache.stat().st_dev == kept.stat().st_dev
    with open(cache / "lock" if shared else f"{kept}.lock", "w", encoding="utf-8") as lock: # several test programs may begin at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not has_template(kept):
            source = cache if shared and is_of_today(cache) else Path("/var/lib/cove")
            if has_template(source):
                take_over(source, kept)
        subprocess.run([BUILD / "coved", "prepare"], env={**os.environ, "COVE_STATE": str(kept), "COVE_CONFIG": "/dev/null", "COVE_POOL": "copy"},
                       stdin=subprocess.DEVNULL, timeout=900, check=True)
        if shared and is_of_today(kept) and not (is_of_today(cache) and recipe_of(cache) == recipe_of(kept)):
            take_over(kept, cache)
        make_slim()


def end_with_parent():
    """In a child, before it executes: tests that are killed leave no service behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM) # PR_SET_PDEATHSIG


WATCHER = """
import os, select, signal, sys
try:
    service = os.pidfd_open(int(sys.argv[1]))
except ProcessLookupError:
    sys.exit()
poll = select.poll()
poll.register(0, select.POLLHUP)
poll.register(service, select.POLLIN)
if any(fd == 0 for fd, _ in poll.poll()):
    try:
        signal.pidfd_send_signal(service, signal.SIGTERM)
    except ProcessLookupError:
        pass
"""


def end_with_us(pid):
    """The same for a service, which changes its user for a moment now and then and so forgets the other way. Returns what has to be kept for as long."""
    return subprocess.Popen([sys.executable, "-S", "-c", WATCHER, str(pid)], stdin=subprocess.PIPE, start_new_session=True)


def wait_until(condition, seconds=PATIENCE_S, every=0.05):
    """The condition's last value, true or not."""
    end = time.monotonic() + seconds
    value = condition()
    while not value and time.monotonic() < end:
        time.sleep(every)
        value = condition()
    return value


def settled(measure, seconds=SETTLE_S, quiet=0.5):
    """What is measured once it has been the same for so many seconds."""
    last, since, end = measure(), time.monotonic(), time.monotonic() + seconds
    while time.monotonic() < end and time.monotonic() - since < quiet:
        time.sleep(0.1) # to measure takes processors that others wait for
        now = measure()
        if now != last:
            last, since = now, time.monotonic()
    return last


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=60):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Service:
    """Started by start(); `env` makes cove talk to it. `coved` is the process that was started, the keeper; what does the work has coved_pid."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.state, self.run = self.directory / "state", self.directory / "run"
        self.log = self.directory / "coved.log"
        self.port = reserve_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("COVE_", "E2B_"))}
        self.env.update(COVE_STATE=str(self.state), COVE_RUN=str(self.run), COVE_LISTEN=f"127.0.0.1:{self.port}", COVE_CONFIG="/dev/null")
        # Logs that tests compare have what the tests did, and not what the kernel saw of it a moment later; observe_test.py has both.
        self.env.update(COVE_OBSERVE_PROCESSES="false", COVE_OBSERVE_FILES="false")
        if TIER:
            self.env["COVE_TIER"] = TIER
        if TIER == "process":
            self.env["COVE_TIER_PROCESS"] = "/usr"
        if TIER == "microvm":
            self.env.update(COVE_MICROVM_GUEST=str(BUILD / "guest"), COVE_MICROVM_EMULATE="true")
        self.coved = None
        self.baseline = None
        self.group, self.tops = None, []

    # ---- life ----

    def start(self, program=None):
        if not self.state.exists():
            copy_template(kept_templates(), self.state)
        known = kept_templates().with_name("runsc-tried") # what a service has learnt of runsc on this boot, by five starts of it
        if not self.run.exists():
            self.run.mkdir()
            with contextlib.suppress(OSError):
                shutil.copy2(known, self.run)
        ours, theirs = os.pipe()
        with open(self.log, "ab") as log:
            self.coved = subprocess.Popen([program or COVED, "run", "--ready-fd", str(theirs)], env=self.env, pass_fds=[theirs],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.watcher = end_with_us(self.coved.pid)
        os.close(theirs)
        ready, _, _ = select.select([ours], [], [], READY_S)
        line = os.read(ours, 16) if ready else b""
        os.close(ours)
        if line != b"ready\n" or not wait_until(self.is_healthy):
            self.stop()
            raise AssertionError(f"the service did not become ready:\n{self.tail()}")
        if read(self.run / known.name) not in ("", read(known)):
            with contextlib.suppress(OSError):
                known.write_text(read(self.run / known.name))
        self.key = self.cove("key").stdout.strip()
        return self

    def stop(self):
        """Its exit code; it must end by itself."""
        if self.coved.poll() is None:
            self.coved.send_signal(signal.SIGTERM)
        try:
            return self.coved.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.coved.kill()
            self.coved.wait(60)
            raise AssertionError(f"coved had not ended {STOP_S} s after SIGTERM:\n{self.tail()}") from None

    def tail(self, lines=40):
        return "\n".join(read(self.log).splitlines()[-lines:])

    def is_healthy(self):
        try:
            return self.request("GET", "/cove/v1/health")[0] == 200
        except OSError:
            return False

    @property
    def coved_pid(self):
        return wait_until(lambda: coved_of(self.coved.pid))

    def children(self):
        """Of the keeper, and of coved."""
        return [*children(self.coved.pid), *children(coved_of(self.coved.pid) or 0)]

    def child(self, name):
        """The pid of a process of ours of this name."""
        return next((pid for pid in self.children() if read(f"/proc/{pid}/comm").strip() == name), None)

    def kill_coved(self):
        """It alone, as by a crash. Returns the seconds until another one has taken over."""
        pid, begin = self.coved_pid, time.monotonic()
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: coved_of(self.coved.pid) not in (None, pid) and self.is_ready()), self.tail()
        return time.monotonic() - begin

    def is_ready(self):
        try:
            return self.request("GET", "/cove/v1/pool")[0] == 200 # which coved is asked for
        except OSError:
            return False

    def remove(self):
        """All that there is of it, once it has ended."""
        if not self.coved or self.coved.poll() is not None:
            give_back(self.state)
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- use ----

    def cove(self, *arguments, **options):
        """Runs the command line to its end."""
        if arguments[:1] in (("log",), ("logs",), ("net",)):
            self.on_record()
        options = {"capture_output": True, "text": True, "timeout": 120, "check": False, **options}
        if "input" not in options and "stdin" not in options:
            options["stdin"] = subprocess.DEVNULL
        options["env"] = {**self.env, **options.get("env", {})}
        return subprocess.run([BUILD / "cove", *arguments], **options)

    def popen(self, *arguments, **options):
        options["env"] = {**self.env, **options.get("env", {})}
        return subprocess.Popen([BUILD / "cove", *arguments], **options)

    def request(self, method, target, body=None, headers=None):
        """(status, headers, body) of the native API over the unix socket; a body that is no bytes is sent as JSON, JSON is decoded."""
        if method == "GET" and re.search(r"/(events|logs)(\?|$)", target):
            self.on_record()
        connection = UnixConnection(str(self.run / "cove.sock"))
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            connection.request(method, target, body, headers or {})
            answer = connection.getresponse()
            content = whole(answer)
            if answer.headers.get("content-type") == "application/json" and content:
                content = json.loads(content)
            return answer.status, answer.headers, content
        finally:
            connection.close()

    def on_record(self):
        """
        What was observed is stored 2 ms later, after the turn of the worker's loop that it falls into (src/sandbox/record/keeper.c): it is when a request
        that came after that has been answered. Only then can a test ask for what has happened.
        """
        time.sleep(0.005)
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.request("GET", "/cove/v1/health")

    def create(self, **spec):
        status, _, sandbox = self.request("POST", "/cove/v1/sandboxes", spec)
        assert status == 201, sandbox
        return sandbox["id"]

    def sandboxes(self):
        return self.request("GET", "/cove/v1/sandboxes")[2]["sandboxes"]

    def remove_all(self):
        for sandbox in self.sandboxes():
            self.request("DELETE", f"/cove/v1/sandboxes/{sandbox['id']}")

    # ---- leaks: others may run a Cove on this machine, so only what is ours is looked at ----

    def processes(self):
        """
        {pid: name}: coved and its keeper, what they started, and all that runs in the service's control group. Zombies, which groups don't list, are
        children of these.
        """
        if not self.group:
            self.group = next(filter(None, map(group_of, self.children())), None)
        # They are in each hierarchy; what is in another one alone keeps its group there, which is counted.
        listed = {int(pid) for path in (self.groups(first=True) if self.group else []) for pid in read(f"{path}/cgroup.procs").split()}
        ours = {self.coved.pid, *self.children(), *listed, *(child for pid in listed for child in children(pid))}
        return {pid: name for pid in ours if (name := read(f"/proc/{pid}/comm").strip())}

    def groups(self, first=False):
        """In all hierarchies, or in the first."""
        self.tops = self.tops or tops_of(self.group)
        return [path for top in self.tops[:1 if first else None] for path in groups_below(top)]

    def mounts(self):
        return [line for line in read("/proc/self/mountinfo").splitlines() if str(self.directory) in line]

    def counts(self):
        """What must be back to where it was when all sandboxes are gone."""
        found = {"processes": len(self.processes()), "groups": len(self.groups()), "mounts": len(self.mounts())}
        for part, depth in (("boxes", 2), ("trash", 1)):
            found[f"{part} in the pool"] = count_below(f"{self.state}/pool/{part}", depth)
        for name, pid in (("cove-keeper", self.coved.pid), ("coved", self.coved_pid), ("cove-api", self.child("cove-api"))):
            found[f"descriptors of {name}"] = count_below(f"/proc/{pid}/fd") if pid else 0
        return found

    def is_stocked(self, sandboxes=0):
        return is_stocked(self.groups(), self.processes().values(), sandboxes)

    def settle(self, sandboxes=0):
        """Its counts, once all that is made ahead of need is there."""
        self.processes() # its group
        assert wait_until(lambda: self.is_stocked(sandboxes)), (self.groups(), self.tail())
        return settled(self.counts, quiet=1)

    def leaks(self):
        """What is more than at the beginning, in words; empty when nothing is."""
        def more():
            now = self.counts()
            more = [f"{what}: {now[what]}, {was} before" for what, was in self.baseline.items() if now[what] > was + SLACK.get(what, 0)]
            return more or ([] if self.is_stocked() else ["boxes that are made ahead are missing"])
        found, begun, renewed = more(), time.monotonic(), False
        while found and time.monotonic() - begun < SETTLE_S: # boxes come and go ahead of need: once with all of them and without more is enough
            if not renewed and time.monotonic() - begun > 2: # they are for what was asked for last, and those that wait for a template hold more than others
                self.request("DELETE", f"/cove/v1/sandboxes/{self.create()}")
                renewed = True
            time.sleep(0.1)
            found = more()
        return found
