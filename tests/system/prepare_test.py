# SPDX-License-Identifier: Apache-2.0
"""coved prepare that is told to end, or killed, while it makes the base template: nothing of it stays."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from leaks import loop_devices, read
from service import BUILD, below, kept_templates, wait_until

# In place of the builder. It heeds no signal, has children that left its session, and says by a file that it is half-way.
BUILDER = """#!/bin/bash
trap '' INT TERM HUP
[ "$TMPDIR" = "$COVE_STATE/building" ] && [ $$ -lt 10 ] && readlink /proc/self >/dev/null || exit 3
mkdir "$TMPDIR/root" && cd "$TMPDIR/root" && mkdir -p etc && echo half >etc/half || exit 4
[ -e "$COVE_STATE/whole" ] && exec tar c .
tar c . | head -c 4096
setsid sleep 7654 </dev/null &>/dev/null &
echo "I: installing" >&2
touch "$COVE_STATE/half-way"
sleep 7654
"""

STUCK_CP = """#!/bin/bash
trap '' INT TERM HUP
mkdir "${@: -1}/half"
touch "$COVE_STATE/half-way"
exec sleep 7654
"""


class Prepare:
    def __init__(self, directory, kind):
        self.state, self.file = directory / "state", directory / "state" / "pool.btrfs"
        self.state.mkdir()
        programs = directory / "bin"
        programs.mkdir()
        self.put = lambda name, text: [(programs / name).write_text(text), (programs / name).chmod(0o755)]
        self.put("mmdebstrap", BUILDER)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("COVE_")}
        self.env.update(COVE_STATE=str(self.state), COVE_RUN=str(directory / "run"), COVE_CONFIG="/dev/null", COVE_POOL=kind,
                        PATH=f"{programs}:{os.environ['PATH']}")
        self.process = None

    def begin(self, *options, preexec=None):
        (self.state / "half-way").unlink(missing_ok=True)
        self.process = subprocess.Popen([BUILD / "coved", "prepare", *options], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=preexec)
        return self

    def half_way(self):
        assert wait_until(lambda: (self.state / "half-way").exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()
        return self

    def end(self):
        """(exit code, stderr)"""
        said = self.process.communicate(timeout=60)[1]
        return self.process.returncode, said

    def run(self, *options):
        return self.begin(*options).end()

    def processes(self):
        """All that was started with this state directory."""
        mark = f"COVE_STATE={self.state}"
        return [p.name for p in Path("/proc").iterdir() if p.name.isdigit() and mark in read(p / "environ").split("\0")]

    def left(self):
        """Of what was half made; on a pool in a directory also what only coved sees else."""
        parts = [self.state / "building", *below(self.state, "pool/new/*", "pool/trash/*")]
        return [str(p) for p in parts if p.exists()] + self.processes() + loop_devices(self.file)


# To count the inode numbers of a new pool (src/kernel/pool/pool_number.c) takes seconds of a processor: others begin with one that was told to end.
NEW_POOL = ("test_killed_it_leaves_no_process_and_the_next_one_tidies_up", "test_a_builder_that_fails_leaves_nothing")


@pytest.fixture(scope="module")
def used_pool():
    """A function that copies the file of a pool in which nothing was finished yet."""
    with tempfile.TemporaryDirectory(prefix="test-prepare-", dir=BUILD) as directory:
        first = Prepare(Path(directory), "btrfs")

        def copy(target):
            if not first.file.exists():
                first.begin().half_way().process.terminate()
                code, said = first.end()
                assert code == -signal.SIGTERM and "removed" in said, said
                assert wait_until(lambda: first.left() == []), first.left()
            subprocess.run(["cp", "--reflink=auto", first.file, target], check=True)
        yield copy


@pytest.fixture(params=["copy", "btrfs"])
def prepare(request, used_pool):
    if os.geteuid() != 0:
        pytest.skip("the storage pool is root's")
    if request.param == "btrfs" and (not shutil.which("mkfs.btrfs") or "btrfs" not in read("/proc/filesystems")):
        pytest.skip("no btrfs here")
    directory = Path(tempfile.mkdtemp(prefix="test-prepare-", dir=BUILD))
    directory.chmod(0o755)
    prepare = Prepare(directory, request.param)
    if request.param == "btrfs" and request.node.originalname not in NEW_POOL:
        used_pool(prepare.file)
    try:
        yield prepare
        assert wait_until(lambda: prepare.left() == []), prepare.left()
    finally:
        for pid in prepare.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        assert wait_until(lambda: not prepare.processes() and not loop_devices(prepare.file))
        shutil.rmtree(directory)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_told_to_end_it_removes_what_is_half_made(prepare, number):
    prepare.begin().half_way().process.send_signal(number)
    code, said = prepare.end()
    assert code == -number and "removed" in said, said
    assert wait_until(lambda: prepare.left() == []), prepare.left() # a loop device goes a moment after its last user
    assert not list(prepare.state.glob("templates/*"))


def test_a_copy_that_is_told_to_end(prepare):
    prepare.put("cp", STUCK_CP)
    prepare.begin("--from", kept_templates()).half_way().process.terminate()
    code, said = prepare.end()
    assert code == -signal.SIGTERM, said
    assert wait_until(lambda: prepare.left() == []), prepare.left()


def test_what_its_starter_ignores_it_ignores(prepare):
    prepare.begin(preexec=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)).half_way().process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        prepare.process.wait(1)
    prepare.process.terminate()
    assert prepare.end()[0] == -signal.SIGTERM


def test_killed_it_leaves_no_process_and_the_next_one_tidies_up(prepare):
    prepare.begin().half_way().process.kill()
    assert prepare.end()[0] == -signal.SIGKILL
    assert wait_until(lambda: not prepare.processes()), prepare.processes()
    assert (prepare.state / "building").exists()
    (prepare.state / "whole").touch()
    code, said = prepare.run()
    assert code == 0, said
    assert wait_until(lambda: prepare.left() == []) and (prepare.state / "templates" / "base.conf").exists()
    # With a template that is there, what another one would have replaced it with goes too.
    (prepare.state / "whole").unlink()
    prepare.begin("--force").half_way().process.kill()
    assert prepare.end()[0] == -signal.SIGKILL and (prepare.state / "building").exists()
    assert prepare.run() == (0, "") and wait_until(lambda: prepare.left() == [])


def test_a_builder_that_fails_leaves_nothing(prepare):
    prepare.put("mmdebstrap", "#!/bin/bash\nsetsid sleep 7654 </dev/null &>/dev/null &\necho 'E: no mirror' >&2\nexit 9\n")
    code, said = prepare.run()
    assert code == 1 and "E: no mirror" in said and "mmdebstrap failed (exit code 9)" in said and "(template.mirror, mirrors.pip, mirrors.npm) in /etc/cove/cove.yaml" in said \
        and "update-ca-certificates" in said, said
    prepare.put("tar", "#!/bin/bash\nexit 2\n")
    prepare.put("mmdebstrap", "#!/bin/bash\nexec head -c 10000000 /dev/zero\n")
    code, said = prepare.run()
    assert code == 1 and said, said # and not by SIGPIPE


def test_what_its_programs_say_is_shown_when_it_failed(prepare):
    for code, shown in ((0, False), (9, True)):
        prepare.put("mmdebstrap", f"#!/bin/bash\necho 'Adding something' >&2; echo 'W: to be known' >&2; cd \"$TMPDIR\" && mkdir -p a && tar c a; exit {code}\n")
        result, said = prepare.run("--force")
        assert (result, "Adding something\n" in said) == (1 if code else 0, shown) and "W: to be known\n" in said, said
    prepare.env["COVE_LOG"] = "debug"
    prepare.put("mmdebstrap", "#!/bin/bash\necho 'Adding something' >&2; cd \"$TMPDIR\" && mkdir -p a && tar c a\n")
    result, said = prepare.run("--force")
    assert result == 0 and said.count("debug coved: the builder says: Adding something\n") == said.count("Adding something") == 1, said
