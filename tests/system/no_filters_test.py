# SPDX-License-Identifier: Apache-2.0
"""The kernel has no room for more system call filters (net.core.bpf_jit_limit, which is the whole machine's): what coved says and does then."""

import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from leaks import processes, read
from service import BUILD, wait_until
from supervisor import RESOURCE_EXHAUSTED, Coved, Refused

SOURCE = Path(__file__).with_name("no_filters.c")


@pytest.fixture
def coved():
    """With `no_room(True)` no sandbox gets its filter any more."""
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    if platform.machine() != "x86_64" or not shutil.which("gcc"):
        pytest.skip("the stand-in for the kernel's answer is for x86-64 and needs gcc")
    directory = Path(tempfile.mkdtemp(prefix="test-filters-", dir=BUILD))
    directory.chmod(0o755)
    shim, state = directory / "no_filters.so", directory / "no-filters"
    subprocess.run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", shim, SOURCE], check=True)
    state.write_bytes(bytes(2))
    coved = Coved(directory, COVE_POOL="copy", LD_PRELOAD=str(shim), NO_FILTERS=str(state)).make().seed()

    def set_room(is_none):
        with open(state, "r+b", buffering=0) as f:
            f.write(bytes([is_none]))
    coved.no_room = set_room
    coved.refusals = lambda: state.read_bytes()[1]
    coved.start()
    try:
        yield coved
        assert coved.stop() == 0, coved.tail()
        assert wait_until(lambda: not coved.footprint.left()), coved.footprint.left()
    finally:
        if coved.process.poll() is None:
            coved.kill()
        wait_until(lambda: not processes(coved.state), 10)
        shutil.rmtree(directory, ignore_errors=True)


def test_it_says_what_it_is_and_what_to_do(coved):
    for sandbox in [coved.create() for _ in range(2)]:
        coved.remove(sandbox)
    coved.no_room(True)
    refused = None
    for _ in range(40): # those that wait ready have their filter
        try:
            coved.create()
        except Refused as e:
            refused = e
            break
    assert refused and refused.code == RESOURCE_EXHAUSTED and "net.core.bpf_jit_limit" in refused.message, refused
    # Others are tried ahead of need, ever more seldom; whoever asks is answered meanwhile.
    time.sleep(8)
    assert "net.core.bpf_jit_limit" in read(coved.log), coved.tail()
    before = coved.refusals()
    assert before <= 13
    for _ in range(3):
        with pytest.raises(Refused) as again:
            coved.create()
        assert again.value.code == RESOURCE_EXHAUSTED
    coved.no_room(False)
    alive = len(coved.list())
    coved.create()
    assert len(coved.list()) == alive + 1
    for sandbox in coved.list():
        coved.remove(sandbox)
