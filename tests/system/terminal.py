# SPDX-License-Identifier: Apache-2.0
"""A terminal of ours with cove in it."""

import fcntl
import os
import pty
import select
import struct
import termios
import time


class Terminal:
    """Its process is a session of its own on it; what it writes is read by expect() and rest()."""

    def __init__(self, service, *arguments, rows=30, columns=100, term="xterm"):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = service.popen(*arguments, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal,
                                     env={"TERM": term})
        self.seen = b""

    def expect(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{text!r} did not come; this did: {self.seen!r}"
            self.seen += os.read(self.master, 65536)
        self.seen = self.seen[self.seen.index(text) + len(text):]

    def rest(self):
        """All that comes until its end, and its exit code."""
        os.close(self.slave)
        while True:
            try:
                some = os.read(self.master, 65536)
            except OSError: # EIO: nobody has the other side any more
                break
            self.seen += some
        status = self.process.wait(60)
        os.close(self.master)
        return self.seen, status

    def send(self, text):
        os.write(self.master, text)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self):
        status = self.process.wait(60)
        restored = termios.tcgetattr(self.slave) == self.before
        os.close(self.master)
        os.close(self.slave)
        return status, restored
