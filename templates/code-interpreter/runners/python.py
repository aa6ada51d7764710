# SPDX-License-Identifier: Apache-2.0
"""
One context of Python: IPython's shell between frames (src/sandbox/code/frame.h).

What is written through sys.stdout and sys.stderr, and to the descriptors 1 and 2 by whatever runs below us, is gathered for a moment and sent as one piece.
A second thread does that; all frames are written under one lock, and no interrupt cuts one in two.
"""
import asyncio # noqa: F401: for cells that await
import builtins
import json
import math
import os
import random
import select
import signal
import struct
import subprocess
import sys
import threading

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from IPython.core.formatters import BaseFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets import ObjectName, Type, Unicode
from traitlets.config import Config

READY, STDOUT, STDERR, RESULT, ERROR, COUNT, END = range(1, 8)
PIECE = 32 * 1024
GATHER_S = 0.01
RESULT_MAX = 7 << 20


def text(s):
    s = s if isinstance(s, bytes) else str(s).encode("utf-8", "replace")
    return struct.pack("<I", len(s)) + s


class Channel:
    """Frames, and the output that becomes some."""

    def __init__(self, fd_in, fd_out):
        self.fd_in, self.fd_out = fd_in, fd_out
        self.lock = threading.RLock()
        self.main = threading.get_ident()
        self.sends = 0 # of the main thread, under way
        self.interrupted = self.runs = False
        self.kind, self.pending = STDOUT, bytearray()
        self.raw = {}
        for kind, fd in ((STDOUT, 1), (STDERR, 2)):
            ours, theirs = os.pipe()
            os.dup2(theirs, fd)
            os.close(theirs)
            os.set_blocking(ours, False)
            self.raw[ours] = kind
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self.some, self.wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def interrupt(self, *_):
        if self.sends or not self.runs:
            self.interrupted = self.runs
        else:
            raise KeyboardInterrupt

    def send(self, kind, payload):
        with self:
            self.flush()
            self.write(struct.pack("<IB", len(payload), kind) + payload)

    def __enter__(self):
        if threading.get_ident() == self.main:
            self.sends += 1
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        if threading.get_ident() == self.main:
            self.sends -= 1
            if self.interrupted and not self.sends and self.runs:
                self.interrupted = False
                raise KeyboardInterrupt

    def write(self, frame):
        view = memoryview(frame)
        while view:
            view = view[os.write(self.fd_out, view):]

    def flush(self):
        if self.pending:
            piece, self.pending = bytes(self.pending), bytearray()
            self.write(struct.pack("<IB", len(piece) + 4, self.kind) + text(piece))

    def output(self, kind, data):
        with self:
            if kind != self.kind:
                self.flush()
                self.kind = kind
            if not self.pending:
                os.write(self.wake, b"!")
            for i in range(0, len(data), PIECE):
                self.pending += data[i:i + PIECE]
                if len(self.pending) >= PIECE:
                    self.flush()

    def drain(self, fd):
        """False: nothing is there."""
        try:
            data = os.read(fd, 64 * 1024)
        except BlockingIOError:
            return False
        self.output(self.raw[fd], data)
        return True

    def settle(self):
        """All that was written so far, to the descriptors too, is sent."""
        with self:
            for fd in self.raw:
                while self.drain(fd):
                    pass
            self.flush()

    def pump(self, peer):
        while True:
            ready = select.select([self.some, peer, *self.raw], [], [])[0]
            if peer in ready: # who stands for us has ended
                os._exit(137)
            with self:
                for fd in ready:
                    if fd != self.some:
                        self.drain(fd)
            if self.some in ready:
                try:
                    os.read(self.some, 4096)
                except BlockingIOError:
                    pass
                threading.Event().wait(GATHER_S)
            with self:
                self.flush()

    def receive(self):
        """The payload of one request; None at the end."""
        def exactly(n):
            data = bytearray()
            while len(data) < n:
                piece = os.read(self.fd_in, min(n - len(data), 1 << 20))
                if not piece:
                    return None
                data += piece
            return bytes(data)
        head = exactly(5)
        return head and exactly(struct.unpack("<IB", head)[0])


class Stream:
    """sys.stdout, sys.stderr."""
    encoding, errors, newlines, closed = "utf-8", "backslashreplace", None, False

    def __init__(self, channel, kind):
        self.channel, self.kind, self.name = channel, kind, "<stdout>" if kind == STDOUT else "<stderr>"
        self.buffer = self.Bytes(self)

    def write(self, s):
        if not isinstance(s, str):
            raise TypeError(f"write() argument must be str, not {type(s).__name__}")
        self.channel.output(self.kind, s.encode("utf-8", "backslashreplace"))
        return len(s)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        with self.channel:
            self.channel.flush()

    def fileno(self):
        return 1 if self.kind == STDOUT else 2

    def isatty(self):
        return False

    def writable(self):
        return True

    def readable(self):
        return False

    seekable = readable

    class Bytes:
        def __init__(self, stream):
            self.stream = stream

        def write(self, data):
            self.stream.channel.output(self.stream.kind, bytes(data))
            return len(data)

        def flush(self):
            self.stream.flush()


channel = None # of this context


def plain_json(value):
    """What JSON has no words for: numpy's numbers are numbers, NaN and infinities are null, the rest its text."""
    def other(v):
        return v.item() if hasattr(v, "item") else str(v)

    def finite(v):
        if isinstance(v, float):
            return v if math.isfinite(v) else None
        if isinstance(v, dict):
            return {str(k): finite(one) for k, one in v.items()}
        return [finite(one) for one in v] if isinstance(v, (list, tuple)) else v
    try:
        return json.dumps(value, default=other, allow_nan=False)
    except ValueError:
        return json.dumps(finite(json.loads(json.dumps(value, default=other))))


def send_result(data, is_main):
    # What is too long for one message is told by its name; text that says what it is stays.
    kept, size = {}, 0
    for kind, value in sorted(data.items(), key=lambda one: one[0] != "text/plain"):
        if isinstance(value, bytes):
            import base64
            value = base64.b64encode(value).decode()
        elif not isinstance(value, str):
            value = plain_json(value)
        elif kind.endswith("json") or kind.startswith("e2b/"):
            value = json.dumps(value)
        if size + len(value) > RESULT_MAX:
            channel.output(STDERR, f"{kind}: {len(value)} bytes are too many for a result\n".encode())
        else:
            kept[kind] = value
            size += len(value.encode("utf-8", "replace"))
    payload = struct.pack("<BI", is_main, len(kept)) + b"".join(text(k) + text(v) for k, v in kept.items())
    channel.send(RESULT, payload)


class Hook(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        send_result(format_dict, True)

    def finish_displayhook(self):
        pass


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, **_):
        send_result(data, False)

    def clear_output(self, wait=False):
        pass


class Data(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, str)


class Chart(Data):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")

    def pop(self, typ, default=None):
        return default # matplotlib_inline takes the class of figures away from all formatters, and puts it back into its own


def frame_data(frame):
    def plain(value):
        return value.isoformat() if hasattr(value, "isoformat") else value.item() if hasattr(value, "item") else value
    return {str(key): [plain(v) for v in values] for key, values in frame.to_dict(orient="list").items()}


def figure_chart(figure):
    try:
        from e2b_charts import chart_figure_to_dict
        return chart_figure_to_dict(figure)
    except Exception: # a chart is more than was asked for: without one there is the picture
        return None


class Shell(InteractiveShell):
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)

    def _showtraceback(self, etype, evalue, stb):
        channel.send(ERROR, text(etype.__name__) + text(evalue) + text("\n".join(stb)))

    def system(self, cmd):
        channel.settle()
        self.user_ns["_exit_code"] = subprocess.call(self.var_expand(cmd, depth=1), shell=True, executable="/bin/bash")

    system_piped = system_raw = system

    def ask_exit(self):
        channel.settle()
        os._exit(0)


def make_shell():
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "Linux"
    config.InteractiveShell.cache_size = 1000
    shell = Shell.instance(config=config)
    formatters = shell.display_formatter.formatters
    for kind in (Data, Chart):
        one = kind(parent=shell.display_formatter, enabled=True)
        formatters[one.format_type] = one
    for place in ("pandas", "pandas.core.frame"): # of version 3, and those before
        formatters["e2b/data"].for_type_by_name(place, "DataFrame", frame_data)
    formatters["e2b/chart"].for_type_by_name("matplotlib.figure", "Figure", figure_chart)
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    return shell


def show_figures(shell):
    """What pyplot, imported before there is a cell, does not arrange by itself."""
    if "matplotlib.pyplot" in sys.modules:
        from matplotlib_inline import backend_inline
        backend_inline.configure_inline_support(shell, "module://matplotlib_inline.backend_inline")


def warm(shell):
    """In the zygote, when the usual packages are imported: what a first cell and a first figure take longer for is done."""
    shell.run_cell("1 + 1;", silent=True)
    if "matplotlib.pyplot" in sys.modules:
        figure = sys.modules["matplotlib.pyplot"].figure()
        figure.add_subplot().plot([1, 2])
        figure.canvas.print_png(open(os.devnull, "wb"))
        sys.modules["matplotlib.pyplot"].close(figure)


def show_saved_images():
    """An image that is shown, or saved under a name, is a result."""
    image = sys.modules.get("PIL.Image")
    if not image:
        return
    from IPython.display import display
    save = image.Image.save

    def save_and_show(self, fp, *args, **options):
        save(self, fp, *args, **options)
        if isinstance(fp, str):
            display(self)
    image.Image.save = save_and_show
    image.Image.show = lambda self, *_, **__: display(self)


def no_input(prompt=""):
    raise StdinNotImplementedError("input() has nobody to ask: cells have no stdin")


def forked(peer):
    """Of a cell: it writes to the descriptors, as anything that we run does, and it is no runner."""
    for fd in (channel.fd_in, channel.fd_out, peer.fileno()):
        try:
            os.close(fd)
        except OSError:
            pass
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)


def run(shell, peer, fd_in, fd_out):
    global channel
    channel = Channel(fd_in, fd_out)
    streams = Stream(channel, STDOUT), Stream(channel, STDERR)
    builtins.input = no_input
    show_saved_images()
    sys.path.insert(0, "")
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    os.register_at_fork(after_in_child=lambda: forked(peer))
    threading.Thread(target=channel.pump, args=(peer,), daemon=True).start()
    signal.signal(signal.SIGINT, channel.interrupt)
    channel.send(READY, b"")
    while (request := channel.receive()) is not None:
        sys.stdout, sys.stderr = streams # whatever the cell before put there
        run_cell(shell, request)
    os._exit(0)


def run_cell(shell, request):
    cell, at = request[:8], 8

    def take():
        nonlocal at
        n, = struct.unpack_from("<I", request, at)
        at += 4 + n
        return request[at - n:at].decode("utf-8", "replace")
    code = take()
    n, = struct.unpack_from("<I", request, at)
    at += 4
    variables = {take(): take() for _ in range(n)}
    before = {name: os.environ.get(name) for name in variables}
    channel.send(COUNT, struct.pack("<I", shell.execution_count))
    try:
        os.environ.update(variables)
        channel.interrupted, channel.runs = False, True
        shell.run_cell(code, store_history=True)
        channel.runs = False
    except KeyboardInterrupt: # outside of the cell's own code
        channel.runs = False
        shell.showtraceback()
    finally:
        channel.runs = False
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    channel.settle()
    channel.send(END, cell)
