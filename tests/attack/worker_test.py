# SPDX-License-Identifier: Apache-2.0
"""A cove-api that was taken over: whatever it says to coved, it gets no more than sandboxes, and can't harm those of coved's doing."""

import contextlib
import os
import random
import re
import select
import shutil
import signal
import string
import subprocess
import tempfile
import time
from pathlib import Path

import puppet
import pytest
from leaks import end_whole
from rig import BUILD, HERE
from service import Service, children, copy_template, kept_templates, opened, read, wait_until

INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS = 3, 5, 6


class Stage(Service):
    """A service whose worker is the puppet."""

    def start_puppet(self):
        programs = self.directory / "bin"
        programs.mkdir()
        for name in ("coved", "cove-agent"):
            shutil.copy(BUILD / name, programs / name)
        shutil.copy(HERE / "puppet.py", programs / "cove-api")
        (programs / "cove-api").chmod(0o755)
        programs.chmod(0o755)
        copy_template(kept_templates(), self.state)
        self.run.mkdir(exist_ok=True)
        ours, theirs = os.pipe()
        with open(self.log, "ab") as log:
            self.coved = subprocess.Popen([programs / "coved", "run", "--ready-fd", str(theirs)], env=self.env, pass_fds=[theirs],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        os.close(theirs)
        ready, _, _ = select.select([ours], [], [], 60)
        assert ready and os.read(ours, 16) == b"ready\n", self.tail()
        os.close(ours)
        self.layer = next((self.state / "pool" / "layers").iterdir()).name
        return self.connect()

    def connect(self):
        """To the worker there is now, as soon as it listens."""
        end = time.monotonic() + 60
        while True:
            try:
                found = puppet.Puppet(self.state)
                found.list() # and not one on its way out
                return found
            except OSError:
                assert time.monotonic() < end and self.coved.poll() is None, self.tail()
                time.sleep(0.05)


@pytest.fixture(scope="module")
def stage():
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    directory = tempfile.mkdtemp(prefix="test-attack-", dir=BUILD)
    os.chmod(directory, 0o755)
    service = Stage(directory)
    try:
        service.puppet = service.start_puppet()
        yield service
        service.puppet.close()
        end_whole(service)
    finally:
        if service.coved and service.coved.poll() is None:
            service.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def worker(stage):
    """coved as its worker sees it; afterwards it still makes sandboxes, and those of the test are gone."""
    yield stage.puppet
    assert stage.coved.poll() is None, stage.tail()
    kill_all(stage)
    code, message, fd = stage.puppet.create(new_id(), stage.layer)
    assert code == 0, message
    session = puppet.Session(fd)
    assert session.run("true")[0] == 0
    session.close()
    kill_all(stage)


def kill_all(stage):
    for box in stage.puppet.list():
        stage.puppet.kill(box)
    end = time.monotonic() + 60
    while stage.puppet.list():
        assert time.monotonic() < end
        time.sleep(0.02)


def rss_kib(pid):
    return int(re.search(r"^RssAnon:\s*(\d+)", read(f"/proc/{pid}/status"), re.M)[1])


def worker_pid(stage):
    """It is a script, so that its name is the interpreter's."""
    return next((p for p in children(stage.coved.pid) if "/bin/cove-api" in read(f"/proc/{p}/cmdline")), None)


def new_id():
    return "i" + "".join(random.choices(string.ascii_lowercase + string.digits, k=20))


BAD_IDS = (b"", b"i", b"../../../etc", b"i" * 22, b"I" + b"a" * 20, b"i" + b"a" * 19 + b"/", b"i" + b"a" * 19 + b"\n", b"i" + b"a" * 19, b"x" + b"a" * 20,
           b"i" + b"\xff" * 20, b"i" + b"a" * 21, b"\0" * 22, b"i" + b"a" * 19 + b"." )


@pytest.mark.parametrize("box", BAD_IDS)
def test_ids(worker, stage, box):
    """Not terminated, too short, of other characters: refused, by each kind of request."""
    if len(box) < 22 and re.fullmatch(rb"i[a-z0-9]{20}", box):
        pytest.fail("that one is good")
    code, message, fd = worker.create(box, stage.layer)
    assert code == INVALID_ARGUMENT and fd is None, (code, message)
    for kind, answer in ((puppet.KILL, puppet.DONE), (puppet.ATTACH, puppet.ATTACHED)):
        tag = worker.new_tag()
        worker.raw(puppet.HEAD.pack(kind, tag) + box.ljust(22, b"\0")[:22] + b"\0\0")
        code, message, fd = worker.answer(answer, tag)
        assert code in (INVALID_ARGUMENT, NOT_FOUND) and fd is None, (code, message)


DIGEST = "sha256-" + "0" * 64


@pytest.mark.parametrize("layer", ["", "../../../../etc", "sha256-" + "../" * 21 + "x", DIGEST[:-1], DIGEST + "0", "sha256-" + "A" * 64,
                                   "sha256-" + "0" * 63 + "/",
                                   b"s" * 72, DIGEST.encode() + b"\xff", b"\0" * 72, "/etc", ".", "sha256-" + "." * 64, "base"])
def test_layers(worker, layer):
    code, message, fd = worker.create(new_id(), layer)
    assert code == INVALID_ARGUMENT and fd is None, (code, message)


def test_a_layer_that_is_not_there(worker, stage):
    code, message, fd = worker.create(new_id(), DIGEST)
    assert code == NOT_FOUND and fd is None, (code, message)
    # Half-made ones and boxes lie beside the layers; no name of a layer leads there.
    assert (stage.state / "pool" / "new").is_dir()
    code, _, _ = worker.create(new_id(), "new")
    assert code == INVALID_ARGUMENT


@pytest.mark.parametrize("template", [b"\n", b"a b", b"x" * 64, b"$(id)", b"../x", b"\xff", b"a/b", b"a\0b"])
def test_template_names(worker, stage, template):
    code, message, fd = worker.create(new_id(), stage.layer, template=template)
    if template == b"a\0b":
        assert code == 0 # what is behind the end of a text is not looked at
        session = puppet.Session(fd)
        assert session.run("sh", "-c", "echo -n $COVE_TEMPLATE_ID")[1] == b"a"
        session.close()
    else:
        assert code == INVALID_ARGUMENT and fd is None, (code, message)


def test_the_same_id_twice(worker, stage):
    box = new_id()
    tags = []
    for _ in range(4): # before the first is made
        tags.append(worker.new_tag())
        worker.raw(puppet.create_message(tags[-1], box.encode(), stage.layer.encode(), b"base", 1 << 28, 1000, 64, 0))
    answers = [worker.answer(puppet.CREATED, tag) for tag in tags]
    assert sorted(code for code, _, _ in answers) == [0, ALREADY_EXISTS, ALREADY_EXISTS, ALREADY_EXISTS], answers
    assert worker.list().count(box) == 1
    for _, _, fd in answers:
        if fd is not None:
            os.close(fd)


LIMITS = {"no-memory": {"memory": 1}, "a-page": {"memory": 4096}, "all-memory": {"memory": (1 << 64) - 1}, "signed": {"memory": 1 << 63},
          "no-pids": {"pids": 1},
          "all-pids": {"pids": (1 << 32) - 1}, "no-cpu": {"cpu_milli": 1}, "all-cpus": {"cpu_milli": (1 << 32) - 1}, "all-disk": {"disk": (1 << 64) - 1}}


@pytest.mark.parametrize("what", LIMITS)
def test_limits(worker, stage, what):
    """Numbers out of range are refused, or as good as none; those who wait beside are served."""
    tags = {}
    for number in range(6):
        limits = LIMITS[what] if number % 2 else {}
        values = {"memory": 1 << 28, "cpu_milli": 1000, "pids": 64, "disk": 0, **limits}
        tag = worker.new_tag()
        worker.raw(puppet.create_message(tag, new_id().encode(), stage.layer.encode(), b"base", values["memory"], values["cpu_milli"],
                                              values["pids"], values["disk"]))
        tags[tag] = bool(limits)
    for tag, is_odd in tags.items():
        code, message, fd = worker.answer(puppet.CREATED, tag)
        if fd is not None:
            os.close(fd)
        assert is_odd or code == 0, f"an ordinary request was refused for the sake of another one: {message}"
    assert read(f"/proc/{stage.coved_pid}/stat")


def test_floods(worker, stage):
    """Thousands of requests, each answered once, and coved does not grow."""
    before = rss_kib(stage.coved_pid)
    for _ in range(100):
        for _ in range(20):
            worker.raw(puppet.HEAD.pack(puppet.LIST, 7))
            worker.raw(puppet.HEAD.pack(puppet.KILL, 7) + new_id().encode() + b"\0\0\0")
        for _ in range(40):
            assert worker.next()[:2] == (puppet.DONE, 7)
    print(f"coved had {before} KiB, has {rss_kib(stage.coved_pid)} KiB")
    assert rss_kib(stage.coved_pid) - before < 4096


def await_replacement(stage):
    """Until the worker is gone; what it was told before comes first."""
    end = time.monotonic() + 60
    try:
        while stage.puppet.next(10) is not None:
            assert time.monotonic() < end
    except OSError:
        pass
    stage.puppet.close()
    stage.puppet = stage.connect()


def test_a_worker_that_asks_and_does_not_listen(stage):
    """It is replaced when coved's patience, which is a bounded buffer, is at its end. The sandboxes stay."""
    boxes = []
    for _ in range(8):
        boxes.append(new_id())
        code, message, fd = stage.puppet.create(boxes[-1], stage.layer)
        assert code == 0, message
        os.close(fd)
    before, pid = rss_kib(stage.coved_pid), worker_pid(stage)
    stage.puppet.sock.settimeout(1)
    try:
        for _ in range(20000):
            stage.puppet.raw(puppet.HEAD.pack(puppet.LIST, 9))
    except OSError:
        pass # what it was sent fills the puppet's own buffers: it reads no more
    print(f"coved had {before} KiB, has {rss_kib(stage.coved_pid)} KiB")
    assert rss_kib(stage.coved_pid) - before < 8192 and stage.coved.poll() is None
    stage.puppet.close()
    if not wait_until(lambda: worker_pid(stage) not in (None, pid), 3):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL) # it had not asked for enough
        assert wait_until(lambda: worker_pid(stage) not in (None, pid))
    stage.puppet = stage.connect()
    assert sorted(stage.puppet.list()) == sorted(boxes)
    kill_all(stage)


def test_descriptors_that_nobody_asked_for(worker, stage):
    """Sent along with requests: coved keeps none of them."""
    before = stage.settle()["descriptors of coved"]
    with open("/dev/null") as null:
        for _ in range(200):
            worker.raw(puppet.HEAD.pack(puppet.LIST, 8), [null.fileno()])  # more than one ends the worker
        for _ in range(200):
            assert worker.wait(puppet.DONE, 8)
    assert wait_until(lambda: 0 < len(opened(stage.coved_pid)) <= before + 4), opened(stage.coved_pid)


def test_attaching_again_and_again(worker, stage):
    """Each new session replaces the one before; the agent and coved hold on to no old one."""
    box = new_id()
    code, message, fd = worker.create(box, stage.layer)
    assert code == 0, message
    before = stage.settle(1)["descriptors of coved"] # boxes are made ahead meanwhile, and each has some
    for _ in range(300):
        puppet.Session(fd).close() # once the agent has taken it: some 200 that it hasn't are what its socket holds
        tag = worker.new_tag()
        worker.raw(puppet.HEAD.pack(puppet.ATTACH, tag) + box.encode() + b"\0\0\0")
        code, message, fd = worker.answer(puppet.ATTACHED, tag)
        assert code == 0, message
    session = puppet.Session(fd)
    assert session.run("true")[0] == 0
    session.close()
    assert wait_until(lambda: stage.counts()["descriptors of coved"] <= before + 2), (before, stage.counts())


def wrong_messages():
    rng = random.Random(1)
    yield from (b"x", b"\1\0\0\0", b"\0" * 8, b"\xff" * 8, puppet.HEAD.pack(99, 1), puppet.HEAD.pack(puppet.CREATE, 1), puppet.HEAD.pack(puppet.LIST, 1) + b"x",
                puppet.HEAD.pack(puppet.CREATED, 1), puppet.DONE_MESSAGE.pack(puppet.DONE, 0, 0, b"x" * 256) + b"x", b"\0" * 4000,
                puppet.create_message(1, b"", b"", b"", 0, 0, 0, 0)[:-1])
    for _ in range(6):
        yield rng.randbytes(rng.randrange(1, 300))


@pytest.mark.parametrize("number", range(4))
def test_messages_of_wrong_lengths_end_the_worker(stage, number):
    """It is replaced; sandboxes that run, and their processes, don't notice."""
    box = new_id()
    code, message, fd = stage.puppet.create(box, stage.layer)
    assert code == 0, message
    session = puppet.Session(fd)
    pid = session.run("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")[1].strip().decode()
    messages = list(wrong_messages())
    stage.puppet.raw(messages[(number * 5 + 3) % len(messages)])
    await_replacement(stage)
    assert stage.coved.poll() is None, stage.tail()
    assert box in stage.puppet.list()
    assert session.run("sh", "-c", f"kill -0 {pid}", user="user")[0] == 0, "a process of the sandbox died with the worker"
    session.close()
    kill_all(stage)


def test_what_is_ours_to_say_is_ignored(worker, stage):
    """Messages of the right length that only coved sends."""
    for message in (puppet.DONE_MESSAGE.pack(puppet.CREATED, 1, 0, b""), puppet.DONE_MESSAGE.pack(puppet.DONE, 1, 0, b"x" * 256),
                    puppet.LISTED_MESSAGE.pack(puppet.LISTED, 1, b"i" + b"a" * 20, 0, 1), puppet.ENDED_MESSAGE.pack(puppet.ENDED, 0, b"i" + b"a" * 20, 1, 0, 0)):
        worker.raw(message)
    assert worker.list() == []


def test_what_the_worker_is(worker, stage):
    """An unprivileged process with nothing to become privileged by, that holds coved's socket, the listening sockets, and little else."""
    pid = worker_pid(stage)
    status = read(f"/proc/{pid}/status")
    assert re.search(r"^Uid:\s+(\d+)\s+\1\s+\1\s+\1$", status, re.M) and not re.search(r"^Uid:\s+0\s", status, re.M)
    assert re.search(r"^Groups:\s*$", status, re.M) and re.search(r"^NoNewPrivs:\s*1$", status, re.M)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert re.search(rf"^{name}:\s*0+$", status, re.M), name
    assert not Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0")
    secrets = [f for f in (stage.state / "key", stage.state / "pool", stage.state / "lock") if f.exists()]
    for path in secrets:
        done = subprocess.run(["cat" if path.is_file() else "ls", path], user=int(re.search(r"^Uid:\s+(\d+)", status, re.M)[1]), group=65534, extra_groups=[],
                              capture_output=True, check=False)
        assert done.returncode != 0, path
    kinds = opened(pid).values()
    assert kinds and not [k for k in kinds if not re.match(r"socket:|pipe:|anon_inode:|/dev/null|" + re.escape(str(stage.directory)), k)], kinds


def test_the_real_worker_s_filter(service):
    """Of cove-api itself: a system call filter is in force."""
    status = read(f"/proc/{service.child('cove-api')}/status")
    assert re.search(r"^Seccomp:\s*2$", status, re.M) and re.search(r"^NoNewPrivs:\s*1$", status, re.M)
    assert re.search(r"^CapBnd:\s*0+$", status, re.M) and not re.search(r"^Uid:\s+0\s", status, re.M)
