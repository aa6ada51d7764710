# SPDX-License-Identifier: Apache-2.0
"""Processes: how they end, what they see of the machine, and what they may ask of the kernel."""

import os
import pty
import select
import signal
import socket
import subprocess
import time

import pytest
from anybody import PYTHON
from conftest import AS, UID, settings


def python(here, text, with_settings=None, **options):
    return here.run(with_settings or settings(), PYTHON, "-c", text, **options)


@pytest.mark.parametrize("line, code", [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -TERM $$", -15), ("kill -SEGV $$", -11)])
def test_it_ends_as_the_command_does(here, line, code):
    assert here.sh(None, line).returncode == code
    assert here.run(None, "-c", line).returncode == code


def test_through_cove(here):
    done = here.run(None, "here", "sh", "-c", "exit 9", program="cove")
    assert done.returncode == 9, done.stderr
    assert here.run(None, "here", "/nowhere", program="cove").returncode == 127
    assert here.run(None, "/etc/passwd").returncode == 126


def test_what_no_directory_of_path_has_is_not_there(here):
    """Also where one of them can't be searched, as in a shell."""
    closed = here.home / "closed"
    closed.mkdir(mode=0)
    path = f"{closed}:{os.environ['PATH']}"
    done = here.run(None, "nosuch", env={**here.environment(), "PATH": path})
    assert (done.returncode, "No such file" in done.stderr) == (127, True), done
    (here.home / "plain").write_text("not executable")
    done = here.run(None, "plain", env={**here.environment(), "PATH": f"{path}:{here.home}"})
    assert (done.returncode, "denied" in done.stderr) == (126, True), done


def test_signals_reach_the_command(here):
    one = subprocess.Popen(here.argv(None, "sh", "-c", "trap 'echo got; exit 5' TERM; echo up; while :; do sleep 0.05; done"), stdout=subprocess.PIPE, text=True,
                           env=here.environment(), cwd=here.home)
    assert one.stdout.readline() == "up\n"
    one.terminate()
    assert one.communicate(timeout=60)[0] == "got\n" and one.returncode == 5


def alive(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in open(f"/proc/{pid}/cmdline", "rb").read():
                found.append(pid)
        except OSError:
            pass
    return found


def gone(mark):
    for _ in range(100):
        if not alive(mark):
            return True
        time.sleep(0.05)
    return False


def test_what_runs_in_the_background_ends_with_the_command(here):
    assert here.sh(None, "setsid sleep 98761 >/dev/null 2>&1 & echo").returncode == 0
    assert gone("98761")


def test_it_dies_with_its_launcher(here):
    one = subprocess.Popen(here.argv(None, "sh", "-c", "echo up; sleep 98762"), stdout=subprocess.PIPE, env=here.environment(), cwd=here.home)
    assert one.stdout.readline() == b"up\n" and alive("98762")
    one.kill()
    one.wait()
    assert gone("98762")


def test_other_processes_are_not_seen_nor_reached(here):
    done = here.sh(None, f"ls /proc | grep -c '^[0-9]'; kill -0 {os.getpid()}; ls -l /proc/1/fd /proc/1/root /proc/1/exe; cat /proc/1/environ; kill -9 1; echo still")
    assert int(done.stdout.split()[0]) < 6 and done.stdout.endswith("still\n") and "o such process" in done.stderr
    assert done.stderr.count("ermission denied") >= 3 and "HOME=" not in done.stdout


def test_no_right_is_left_and_none_comes_back(here):
    done = here.sh(None, "grep -E 'Cap|NoNew' /proc/self/status; unshare -Ur true || echo no-userns; mount -t tmpfs x /tmp || echo no-mount; id -u")
    assert done.stdout.count("0000000000000000") == 5 and "NoNewPrivs:\t1" in done.stdout
    assert "no-userns" in done.stdout and "no-mount" in done.stdout and done.stdout.endswith(f"{UID}\n")


CALLS = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    r = libc.syscall(*a)
    print(errno.errorcode.get(ctypes.get_errno()) if r < 0 else "done")
args = (ctypes.c_uint64 * 11)(0x10000000)
call(435, ctypes.byref(args), 88)
call(272, 0x10000000)
call(425, 8, ctypes.byref((ctypes.c_char * 120)()))
call(321, 0, 0, 0)
call(250, 0, 0, 0)
call(101, 16, 1, 0, 0)
call(310, 1, 0, 0, 0, 0, 0)
"""


def test_calls_that_are_refused(here):
    """clone3 and unshare for a user namespace, io_uring, bpf, keyctl; ptrace and memory of the box's first process."""
    done = python(here, CALLS)
    assert done.stdout.split()[:5] == ["ENOSYS", "EPERM", "ENOSYS", "EPERM", "EPERM"] and "done" not in done.stdout.split()[5:6], done.stdout + done.stderr


def test_own_children_can_be_traced_and_pairs_of_sockets_work(here):
    done = python(here, "import socket,os\na,b=socket.socketpair()\na.send(b'x');print(b.recv(1))\nl=socket.socket();l.bind(('127.0.0.1',0));l.listen()\n"
                        "c=socket.create_connection(l.getsockname());print('loop')")
    assert done.stdout == "b'x'\nloop\n", done.stderr


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_sockets_of_the_machine_are_not_reached(here, kind):
    path, kind_number = here.home / "sock", getattr(socket, kind)
    server = socket.socket(socket.AF_UNIX, kind_number)
    server.bind(str(path))
    here.give(path)
    if kind == "SOCK_STREAM":
        server.listen()
    server.settimeout(0.3)
    reach = f"import socket\ns=socket.socket(socket.AF_UNIX,socket.{kind});s.connect('{path}');s.send(b'x');print('sent')"
    pair = f"import socket\ns,_=socket.socketpair(socket.AF_UNIX,socket.{kind});s.connect('{path}');s.send(b'x');print('sent')"
    for text in (reach, pair):
        assert "sent" not in python(here, text).stdout
    with pytest.raises(TimeoutError):
        server.accept() if kind == "SOCK_STREAM" else server.recv(1)
    assert "sent" in python(here, reach, settings(network={"allowAllUnixSockets": True})).stdout
    server.close()


def test_descriptors_and_devices(here):
    with open("/etc/passwd") as leaked:
        number = leaked.fileno()
        done = here.sh(None, f"test -e /proc/self/fd/{number} && echo LEAK; ls /dev; echo x > /dev/null", pass_fds=[number])
    assert "LEAK" not in done.stdout and "sda" not in done.stdout and "kvm" not in done.stdout and done.returncode == 0
    fd = os.open("/", os.O_RDONLY)
    assert here.sh(None, "true", stdin=fd).returncode == 125
    os.close(fd)


def test_a_fifo_that_somebody_reads_is_not_written(here):
    path = here.home / "fifo"
    os.mkfifo(path)
    here.give(path)
    fd = os.open(path, os.O_RDWR)
    assert here.sh(None, "echo x > fifo").returncode
    os.close(fd)


def test_root_is_refused(here):
    done = subprocess.run([here.bin / "cove-here", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 125 and "root's id" in done.stderr


def test_a_terminal_works(here):
    pid, fd = pty.fork()
    if pid == 0:
        for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP): # by who started the tests, perhaps
            signal.signal(ignored, signal.SIG_DFL)
        os.chdir(here.home)
        argv = here.argv(None, "bash", "--norc", "-i")
        os.execvpe(argv[0], argv, here.environment(PS1="> ", TERM="dumb"))
    seen = b""

    def until(mark, say=None):
        nonlocal seen
        if say:
            os.write(fd, say)
        end = time.monotonic() + 20
        while mark not in seen and time.monotonic() < end:
            if select.select([fd], [], [], 1)[0]:
                seen += os.read(fd, 4096)
        assert mark in seen, seen
        seen = seen[seen.index(mark) + len(mark):]

    try:
        until(b"> ")
        until(b"\r\n3\r\n", b"echo $((1+2))\n")
        until(b"> ")
        os.write(fd, b"sleep 1000\n")
        time.sleep(1)
        until(b"Stopped", b"\x1a")
        until(b"> ")
        until(b"sleep 1000\r\n", b"fg\n")
        time.sleep(1)
        until(b"> ", b"\x03")
        until(b"130\r\n", b"echo $?\n")
        os.write(fd, b"exit 4\n")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
        pid = 0
    finally:
        os.close(fd)
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# A socket of the machine's network, connected or not, can be connected to another place from there.
RECONNECT = """
import ctypes, socket
s = socket.socket(fileno=0)
try:
    ctypes.CDLL(None).connect(0, bytes(16), 16) # not connected any more
    s.connect({address!r})
    s.send(b"x")
    print("sent")
except OSError as why:
    print(why)
"""


@pytest.mark.parametrize("kind", ["tcp", "udp", "unconnected unix", "unix datagrams"])
def test_a_socket_that_it_gets_is_no_way_out(here, kind):
    path = here.home / "service"
    family = socket.AF_UNIX if "unix" in kind else socket.AF_INET
    kind_number = socket.SOCK_DGRAM if kind in ("udp", "unix datagrams") else socket.SOCK_STREAM
    other, given = (socket.socket(family, kind_number) for _ in range(2))
    other.bind(str(path) if "unix" in kind else ("127.0.0.1", 0))
    if "unix" in kind:
        here.give(path)
    if kind in ("tcp", "unconnected unix"):
        other.listen()
    first, second = (socket.socketpair(family, kind_number) if "unix" in kind else (None, None))
    if kind == "unix datagrams":
        given = first
    done = python(here, RECONNECT.format(address=other.getsockname()), stdin=given)
    assert (done.returncode, "way around" in done.stderr) == (125, True), done
    for one in filter(None, (other, given, first, second)):
        one.close()


def test_pipes_that_are_sockets_work(here):
    ours, theirs = socket.socketpair()
    theirs.send(b"hello")
    theirs.shutdown(socket.SHUT_WR)
    assert here.run(None, "cat", stdin=ours).stdout == "hello"
    ours.close()
    theirs.close()


GROUP = """
import ctypes, os, signal
libc = ctypes.CDLL(None)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
libc.setpriority(1, 0, 19)
libc.syscall(251, 2, 0, 3 << 13)
try:
    os.kill(0, signal.SIGUSR1)
except OSError:
    pass
"""


def test_who_shares_its_process_group_is_left_alone(here):
    """As a shell without job control does, and whatever starts it from a script."""
    beside = subprocess.Popen([*map(str, AS), "sleep", "60"], process_group=0)
    while os.stat(f"/proc/{beside.pid}").st_uid != UID or open(f"/proc/{beside.pid}/comm").read() != "sleep\n":
        time.sleep(0.01)
    try:
        assert here.run(settings(), PYTHON, "-c", GROUP, process_group=beside.pid).returncode == 0
        assert os.getpriority(os.PRIO_PROCESS, beside.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        assert "idle" not in subprocess.run(["ionice", "-p", str(beside.pid)], capture_output=True, text=True, check=True).stdout
        assert beside.poll() is None
    finally:
        beside.kill()
        beside.wait()
