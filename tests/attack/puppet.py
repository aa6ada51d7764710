#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""A cove-api that somebody has taken over: what it sends to coved, and to agents, is decided by the test.

Run as a program it stands in the place of cove-api: coved starts it with the same rights and descriptors, and it passes messages on
between coved's socket and a unix socket in its data directory. Imported, it is the test's end of that: Puppet speaks with coved,
Session with the agent of a sandbox.
"""

import array
import os
import select
import socket
import struct
import sys
import threading

MESSAGE_MAX = 4096
FDS_MAX = 8

CREATE, KILL, LIST, ATTACH, USAGE = range(1, 6)
CREATED, DONE, LISTED, ATTACHED, USED, ENDED = range(64, 70)

HEAD = struct.Struct("@II")
CREATE_MESSAGE = struct.Struct("@II22s72s64sQIIQI16s20x")
ID_MESSAGE = struct.Struct("@II22s0I")
DONE_MESSAGE = struct.Struct("@IIi256s")
LISTED_MESSAGE = struct.Struct("@II22sIQ")
ENDED_MESSAGE = struct.Struct("@II22sIII")


def create_message(*fields):
    """As struct sup_create: nothing was kept, the usual tier."""
    return CREATE_MESSAGE.pack(CREATE, *fields, 0, b"container")


def send(sock, data, fds=()):
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([data], ancillary)


def receive(sock):
    """One message and its descriptors; b"" at the end."""
    fds = array.array("i")
    data, ancillary, _, _ = sock.recvmsg(MESSAGE_MAX, socket.CMSG_SPACE(FDS_MAX * fds.itemsize))
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[:len(payload) - len(payload) % fds.itemsize])
    return data, list(fds)


class Puppet:
    """coved, seen by the worker it trusts least."""

    def __init__(self, state_dir):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(60)
        self.sock.connect(f"{state_dir}/api/puppet.sock")
        self.tag = 0
        self.waiting = []  # messages that nobody asked for yet: (type, tag, data, fds)

    def close(self):
        for *_, fds in self.waiting:
            for fd in fds:
                os.close(fd)
        self.sock.close()

    def raw(self, data, fds=()):
        send(self.sock, data, fds)

    def next(self, timeout=60):
        """(type, tag, data, fds); None when the worker was replaced."""
        self.sock.settimeout(timeout)
        data, fds = receive(self.sock)
        return (*HEAD.unpack_from(data), data, fds) if data else None

    def wait(self, kind, tag=None, timeout=60):
        """The next message of this type (and tag), keeping others for later."""
        for i, message in enumerate(self.waiting):
            if message[0] == kind and tag in (None, message[1]):
                return self.waiting.pop(i)
        while True:
            message = self.next(timeout)
            if message is None:
                raise EOFError("coved has replaced its worker")
            if message[0] == kind and tag in (None, message[1]):
                return message
            self.waiting.append(message)

    def new_tag(self):
        self.tag += 1
        return self.tag

    def create(self, box_id, layer, memory=1 << 30, cpu_milli=2000, pids=256, disk=0, template=b"base"):
        """(code, message, session descriptor or None)"""
        tag = self.new_tag()
        encode = lambda v: v if isinstance(v, bytes) else v.encode()
        self.raw(create_message(tag, encode(box_id), encode(layer), template, memory, cpu_milli, pids, disk))
        return self.answer(CREATED, tag)

    def answer(self, kind, tag):
        _, _, data, fds = self.wait(kind, tag)
        _, _, code, text = DONE_MESSAGE.unpack(data)
        return code, text.split(b"\0")[0].decode(errors="replace"), fds[0] if fds else None

    def kill(self, box_id):
        tag = self.new_tag()
        self.raw(HEAD.pack(KILL, tag) + box_id.encode().ljust(22, b"\0") + b"\0\0")
        return self.answer(DONE, tag)

    def list(self):
        tag, found = self.new_tag(), []
        self.raw(HEAD.pack(LIST, tag))
        while True:
            kind, got, data, _ = self.next()
            if got == tag and kind == LISTED:
                found.append(LISTED_MESSAGE.unpack(data)[2].split(b"\0")[0].decode())
            elif got == tag and kind == DONE:
                return found


HELLO, OPEN, REPLY, DATA, CREDIT, EOF, END, CLOSE = range(1, 9)
EXEC, PING = 1, 34


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(value)) + value


class Session:
    """The agent of one sandbox, spoken to in its own protocol."""

    def __init__(self, fd):
        self.sock = socket.socket(fileno=fd)
        self.sock.setblocking(True)
        self.sock.settimeout(60)
        self.stream = 0
        kind, _, _, payload = self.frame()
        if kind != HELLO:
            raise ValueError(f"the agent began with {kind}")
        self.version = struct.unpack("<I", payload)[0]

    def close(self):
        self.sock.close()

    def exactly(self, n):
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                raise EOFError("the agent has gone")
            data += more
        return data

    def frame(self):
        size, stream, kind, flags, _ = struct.unpack("<IIBBH", self.exactly(12))
        return kind, stream, flags, self.exactly(size)

    def send(self, kind, stream, payload=b"", flags=0):
        self.sock.sendall(struct.pack("<IIBBH", len(payload), stream, kind, flags, 0) + payload)

    def run(self, *argv, user="user", cwd=""):
        """(exit code or -signal, stdout, stderr)"""
        self.stream += 1
        request = bytes([EXEC]) + text(argv[0]) + struct.pack("<I", len(argv) - 1) + b"".join(text(a) for a in argv[1:])
        request += struct.pack("<I", 0) + text(user) + text(cwd) + text("") + struct.pack("<BHH", 0, 0, 0)
        self.send(OPEN, self.stream, request)
        out = {1: b"", 2: b""}
        while True:
            kind, stream, flags, payload = self.frame()
            if stream != self.stream:
                continue
            if kind == DATA:
                out[flags] += payload
                self.send(CREDIT, stream, struct.pack("<I", len(payload)), 1)
            elif kind == END:
                code, length = struct.unpack_from("<HI", payload)
                if code:
                    raise OSError(payload[6:6 + length].decode(errors="replace"))
                how, number = struct.unpack_from("<BI", payload, 6 + length)
                return (-number if how else number), out[1], out[2]


def pass_on(coved, master):
    """One message either way, the test's first; false when the test has gone."""
    ready, _, _ = select.select([coved, master], [], [])
    source, target = (master, coved) if master in ready else (coved, master)
    data, fds = receive(source)
    try:
        if not data and source is coved:
            sys.exit(0)
        if data:
            send(target, data, fds)
    finally:
        for fd in fds:
            os.close(fd)
    return bool(data)


def answer_pulses(pulse):
    """That our loop turns is all that coved wants to know here: it isn't ready before."""
    pulse.setblocking(True)
    while pulse.recv(1):
        pulse.send(b"!")


def main(argv):
    options = dict(zip(argv[::2], argv[1::2]))
    pulse = socket.socket(fileno=int(options["--pulse-fd"]))
    threading.Thread(target=answer_pulses, args=(pulse,), daemon=True).start()
    coved = socket.socket(fileno=int(options["--supervisor-fd"]))
    coved.setblocking(True)
    path = options["--data"] + "/puppet.sock"
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(1)
    while True:
        # What coved says before a test is there stays in the socket.
        master, _ = listener.accept()
        try:
            while pass_on(coved, master):
                pass
        except OSError:
            if select.select([coved], [], [], 0)[0] and not coved.recv(1, socket.MSG_PEEK):
                return
        master.close()


if __name__ == "__main__":
    main(sys.argv[1:])
