#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""A cove-egress that lets nobody out and says what it sees.

coved starts it in the place of cove-egress, with the same rights and descriptors. What arrives is appended to STATE/egress/seen, a line of
JSON each; a connection is answered with the address that it asked for, a name with 198.51.100.10. Imported, it is the test's view of that.
"""

import array
import json
import os
import selectors
import socket
import struct
import sys
from pathlib import Path

NET, DROP, API = 1, 2, 3
ORDER = struct.Struct("@I22s2x")
SO_ORIGINAL_DST = 80
ANSWER = "198.51.100.10"


class Seen:
    """What the stand-in of a service has seen, oldest first."""

    def __init__(self, service):
        self.path = service.state / "egress" / "seen"
        self.offset = 0

    def all(self):
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()] # the last one may be half written yet

    def of(self, what, **fields):
        return [e for e in self.all() if e["what"] == what and all(e.get(k) == v for k, v in fields.items())]


def original(connection):
    """Where the client of a captured connection wanted to go; None: it came directly."""
    here = connection.getsockname()
    try:
        if here[0].startswith("::ffff:"):
            _, port, address = struct.unpack("!HH4s8x", connection.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
            found = socket.inet_ntop(socket.AF_INET, address), port
        else:
            _, port, address = struct.unpack("!HH4x16s4x", connection.getsockopt(socket.IPPROTO_IPV6, SO_ORIGINAL_DST, 28))
            found = socket.inet_ntop(socket.AF_INET6, address), port
    except OSError:
        return None
    return None if found == (here[0].removeprefix("::ffff:"), here[1]) else found


def answer(query):
    """One A record for whatever name, and nothing for other types. None: that is no query."""
    end = query.find(b"\0", 12)
    if len(query) < 17 or end < 0 or len(query) < end + 5:
        return None, None
    name = b".".join(label for label in labels(query[12:end])).decode("latin1")
    kind = struct.unpack_from("!H", query, end + 1)[0]
    found = kind == 1
    head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, found, 0, 0) + query[12:end + 5]
    return name, head + (b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + socket.inet_aton(ANSWER) if found else b"")


def labels(data):
    while data:
        n = data[0]
        yield data[1:1 + n]
        data = data[1 + n:]


class Standin:
    def __init__(self, options):
        self.selector = selectors.DefaultSelector()
        self.nets, self.api = {}, None
        self.log = os.open("seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600, dir_fd=int(options["--state-fd"]))
        self.control = socket.socket(fileno=int(options["--control-fd"]))
        self.vault = socket.socket(fileno=int(options["--vault-fd"]))
        self.vault.setblocking(False)
        self.watch(self.control, self.on_order)
        self.watch(self.vault, self.on_vault)
        self.watch(socket.socket(fileno=int(options["--pulse-fd"])), self.on_question)
        status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
        self.say("start", uid=os.getuid(), gid=os.getgid(), groups=os.getgroups(), caps=[status[c] for c in ("CapPrm", "CapEff", "CapBnd", "CapAmb")],
                 no_new_privs=status["NoNewPrivs"], options=sorted(options), owner=options["--owner-uid"], environment=dict(os.environ),
                 fds=sorted(int(fd) for fd in os.listdir("/proc/self/fd")), net=os.readlink("/proc/self/ns/net"), mnt=os.readlink("/proc/self/ns/mnt"))

    def say(self, what, **fields):
        os.write(self.log, json.dumps({"what": what, **fields}).encode() + b"\n")

    def watch(self, sock, fn, *context):
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, (fn, sock, context))

    def forget(self, sock):
        self.selector.unregister(sock)
        sock.close()

    def run(self):
        while True:
            for key, _ in self.selector.select():
                fn, sock, context = key.data
                if sock.fileno() >= 0:
                    fn(sock, *context)

    def on_question(self, pulse):
        if pulse.recv(16):
            pulse.send(b"!")
        else:
            self.forget(pulse)

    def on_order(self, control):
        fds = array.array("i")
        data, ancillary, _, _ = control.recvmsg(64, socket.CMSG_SPACE(8 * fds.itemsize))
        if not data:
            sys.exit(0)
        for _, _, payload in ancillary:
            fds.frombytes(payload)
        kind, name = ORDER.unpack(data)
        name = name.split(b"\0")[0].decode()
        if kind == NET:
            tcp, udp, dns = (socket.socket(fileno=fd) for fd in fds)
            self.nets[name] = (tcp, udp, dns)
            self.watch(tcp, self.on_tcp, name)
            self.watch(udp, self.on_dns, name)
            self.watch(dns, self.on_tcp, name)
        elif kind == DROP and name in self.nets:
            for sock in self.nets.pop(name):
                self.forget(sock)
        elif kind == API:
            if self.api:
                self.forget(self.api)
            self.api = socket.socket(fileno=fds[0])
            self.watch(self.api, self.on_api)
        self.say({NET: "net", DROP: "drop", API: "api"}[kind], id=name)

    def on_api(self, api):
        """Every policy is taken, none is enforced; no question has an answer."""
        try:
            data = api.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.forget(api)
            self.api = None
            self.say("api gone")
            return
        request = json.loads(data)
        self.say("request", op=request["op"], id=request.get("id"))
        if request["op"] == "policy":
            api.send(json.dumps({"op": "done", "tag": request["tag"]}).encode())
        elif "tag" in request:
            api.send(json.dumps({"op": "failed", "tag": request["tag"], "code": "unimplemented", "message": "a stand-in"}).encode())

    def on_vault(self, vault):
        connection, _ = vault.accept()
        self.say("vault", uid=struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
        connection.close()

    def on_tcp(self, listener, name):
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        to = original(connection)
        self.say("tcp", id=name, to=to)
        try:
            connection.sendall(f"{to}\n".encode())
        except OSError:
            pass
        self.watch(connection, self.on_data)

    def on_data(self, connection):
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        if data:
            self.say("data", text=data.decode(errors="replace")[:1000])
        else:
            self.forget(connection)

    def on_dns(self, udp, name):
        query, asker = udp.recvfrom(4096)
        asked, reply = answer(query)
        self.say("dns", id=name, name=asked)
        if reply:
            udp.sendto(reply, asker)


if __name__ == "__main__":
    Standin(dict(zip(sys.argv[1::2], sys.argv[2::2]))).run()
