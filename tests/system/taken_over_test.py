# SPDX-License-Identifier: Apache-2.0
"""A cove-api that is not ours any more: it does not wait for answers before it uses what they would be about, and sends what nobody asked for."""

import contextlib
import os
import shutil
import signal
import socket
import struct
import tempfile
import time
from pathlib import Path

import pytest
from service import BUILD, wait_until
from supervisor import ABORTED, DIFF, IMAGE, KILL, LAYER_DROP, LIST, NEST, OK, REQUESTS, SNAPSHOT, Coved, new_id, new_layer

ROUNDS, WANTED = 400, 5


@pytest.fixture(scope="module")
def coved():
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    directory = Path(tempfile.mkdtemp(prefix="test-taken-over-", dir=BUILD))
    directory.chmod(0o755)
    one = Coved(directory, COVE_POOL="copy").make().seed().start()
    try:
        yield one
        assert one.stop() == 0, one.tail()
        assert wait_until(lambda: not one.footprint.left()), one.footprint.left()
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


def slow_socket():
    """A connection with more under way than its peer takes, which is to be closed within an hour; and its peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        slow = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    slow.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            slow.send(bytes(65536))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    return slow, peer


MESSAGES = {
    "one that is not wanted": (REQUESTS[LIST].pack(LIST, 1), 1),
    "one for an image that is none": (REQUESTS[IMAGE].pack(IMAGE, 1, b""), 1),
    "one for a comparison of nothing": (REQUESTS[DIFF].pack(DIFF, 1, b"", new_id().encode()), 1),
    "one for a nest, and no stream of a process": (REQUESTS[NEST].pack(NEST, 1, new_id().encode(), b"/root", 0, 0, 0, 0, b"", b"", b""), 1),
    "more than there are in any message": (REQUESTS[LIST].pack(LIST, 1), 200),
    "one in no message of ours": (b"x", 1),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_coved_waits_for_no_descriptor_that_it_is_sent(coved, what):
    """To close one takes as long as whoever made it likes. Its sender is replaced; sandboxes stay."""
    sandbox = coved.create()
    slow, peer = slow_socket()
    message, count = MESSAGES[what]
    with peer:
        stopped = coved.pid
        os.kill(stopped, signal.SIGSTOP) # so that ours is not the last to be closed, for which we would wait
        with slow:
            coved.send_raw(message, [slow.fileno()] * count)
        os.kill(stopped, signal.SIGCONT)
        coved.new_worker()
        assert wait_until(lambda: list(coved.list()) == [sandbox]), coved.list() # others may still be on their way out
        coved.remove(sandbox)
