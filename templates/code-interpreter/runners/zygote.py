# SPDX-License-Identifier: Apache-2.0
"""
Makes Python contexts: one process with everything imported, whose forks are the contexts.

A fork waits on the socket for the program `start` to connect: that gives its number, and with it its stdin, stdout, environment and directory. Once it is
taken the next fork is made. The usual packages are imported after the first fork, so that whoever comes early need not wait for them.
"""
import contextlib
import fcntl
import gc
import importlib.util
import os
import select
import signal
import socket
import struct
import sys

PLACE = "/run/cove-code"
HEALTH_PORT = 49999
FIRST = "PIL.Image" # before there is any fork: results of it are shown
USUAL = ("numpy", "pandas", "matplotlib", "matplotlib.pyplot", "e2b_charts")


def listen():
    os.makedirs(PLACE, mode=0o700, exist_ok=True)
    lock = os.open(f"{PLACE}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB) # OSError: there is one
    for name in ("zygote", "warm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{PLACE}/{name}")
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.bind(f"{PLACE}/zygote")
    s.listen(128)
    return s, lock


def listen_to_probes():
    """Where E2B's server and Jupyter would listen: programs inside, and OpenSandbox's SDK, look there for whether code runs."""
    found = []
    for host, port in (("", HEALTH_PORT), ("127.0.0.1", os.environ.get("JUPYTER_PORT", "44771"))):
        with contextlib.suppress(OSError, ValueError, OverflowError): # a program of the sandbox has the port
            found.append(socket.create_server((host, int(port))))
    return found


def answer(listener):
    """Who is slow about asking is left."""
    with contextlib.suppress(OSError), listener.accept()[0] as peer:
        peer.settimeout(0.05)
        is_health = peer.recv(4096).startswith((b"GET /health ", b"HEAD /health "))
        status, body = ("200 OK", b'"OK"') if is_health else ("404 Not Found", b"")
        peer.sendall(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)


def become(peer, pid):
    """What `start` has is ours from here on."""
    fds = [os.open(f"/proc/{pid}/fd/0", os.O_RDONLY | os.O_CLOEXEC), os.open(f"/proc/{pid}/fd/1", os.O_WRONLY | os.O_CLOEXEC)]
    with open(f"/proc/{pid}/environ", "rb") as f:
        variables = dict(one.split(b"=", 1) for one in f.read().split(b"\0") if b"=" in one)
    os.environb.clear()
    os.environb.update(variables)
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    os.chdir(f"/proc/{pid}/cwd")
    os.chdir(os.getcwd())
    os.setsid()
    peer.sendall(struct.pack("<I", os.getpid()))
    return fds


def reap():
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        with contextlib.suppress(OSError), open(f"{PLACE}/{pid}.new", "w", encoding="ascii") as f:
            f.write(str(status))
        with contextlib.suppress(OSError):
            os.rename(f"{PLACE}/{pid}.new", f"{PLACE}/{pid}")


class Zygote:
    def __init__(self):
        self.socket, self.lock = listen()
        import python
        if importlib.util.find_spec("PIL"):
            importlib.import_module(FIRST)
        self.runner = python
        self.shell = python.make_shell()
        self.probes = listen_to_probes()
        self.waits = None # a socket to the fork, which says a byte once it is taken, and the fork

    def fork(self):
        ours, theirs = socket.socketpair()
        gc.freeze()
        pid = os.fork()
        if pid:
            theirs.close()
            self.waits = ours, pid
            return False
        ours.close()
        for probe in self.probes:
            probe.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            if self.socket not in select.select([self.socket, theirs], [], [])[0]: # nobody wants it, and it is to go
                os._exit(0)
            peer, _ = self.socket.accept()
            with contextlib.suppress(OSError): # the zygote is dead
                theirs.sendall(b"!")
            theirs.close()
            os.close(self.lock)
            self.socket.close()
            self.peer, self.fds = peer, become(peer, struct.unpack("<I", peer.recv(4))[0])
        except (OSError, ValueError, struct.error):
            os._exit(1)
        return True

    def drop(self):
        """The fork that waits, unless it is taken meanwhile: which of both it is, it alone can tell."""
        ours, pid = self.waits
        ours.shutdown(socket.SHUT_WR)
        if not ours.recv(1):
            os.waitpid(pid, 0)
        ours.close()

    def serve(self):
        """Returns in each fork that is taken."""
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken)
        if self.fork():
            return
        for name in USUAL:
            if importlib.util.find_spec(name.partition(".")[0]):
                importlib.import_module(name)
                self.runner.show_figures(self.shell)
            if select.select([self.waits[0]], [], [], 0)[0]:
                self.waits[0].close()
                if self.fork():
                    return
        self.runner.warm(self.shell)
        self.drop()
        if self.fork():
            return
        os.close(os.open(f"{PLACE}/warm", os.O_CREAT | os.O_WRONLY, 0o600))
        while True:
            ready = select.select([self.waits[0], wake, *self.probes], [], [])[0]
            for probe in self.probes:
                if probe in ready:
                    answer(probe)
            if wake in ready:
                os.read(wake, 4096)
                reap()
            if self.waits[0] in ready:
                self.waits[0].close()
                if self.fork():
                    return


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1") # its threads don't survive a fork
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        zygote = Zygote()
    except BlockingIOError:
        sys.exit(0)
    zygote.serve()
    zygote.runner.run(zygote.shell, zygote.peer, *zygote.fds)
