# SPDX-License-Identifier: Apache-2.0
"""A cove-api that does not wait for answers before it uses what they would be about."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from service import BUILD, wait_until
from supervisor import ABORTED, KILL, LAYER_DROP, OK, SNAPSHOT, Coved, new_id, new_layer

ROUNDS, WANTED = 400, 5


@pytest.fixture
def coved():
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    directory = Path(tempfile.mkdtemp(prefix="test-impatient-", dir=BUILD))
    directory.chmod(0o755)
    one = Coved(directory, COVE_POOL="copy").make().seed().start()
    try:
        yield one
        assert one.stop() == 0, one.tail()
        assert wait_until(lambda: not one.footprint.left(), 20), one.footprint.left()
    finally:
        if one.process.poll() is None:
            one.kill()
        shutil.rmtree(directory)


def test_a_snapshot_whose_sandbox_ended_is_not_taken_from_below_who_uses_it_already(coved):
    met, delay = 0, 0.0
    for _ in range(ROUNDS):
        original, layer, user = coved.create(), new_layer(), new_id()
        stored = coved.send(SNAPSHOT, original, layer)
        time.sleep(delay)
        coved.send(KILL, original)
        created = coved.answer(coved.send_create(user, layer=layer))
        answer = coved.answer(stored)
        for fd in created.fds:
            os.close(fd)
        # Earlier it is not there yet, later its answer is: next time the kill comes where the two meet.
        delay = delay + 0.0002 if created.code else max(delay - 0.0002, 0)
        if created.code == OK:
            assert layer in coved.layers(), f"sandbox {user} stands on a layer that is gone"
            coved.remove(user)
            coved.must(LAYER_DROP, layer)
            met += answer.code == ABORTED
        if met == WANTED:
            return
    pytest.skip(f"the two met {met} times in {ROUNDS} rounds")
