# SPDX-License-Identifier: Apache-2.0
"""`cove secret` and the vault of cove-egress, which is started here as coved starts it: unprivileged, with descriptors and no environment."""

import ctypes
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import termios
import time
from pathlib import Path

import pytest
from service import BUILD, end_with_parent, read, wait_until

WORKER = 54321 # a uid that nobody has
STRANGER = 54322
OWNER = 54323
VALUE = "sk-live-Tr0ub4dor&3"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starting programs as other users needs root")


def become(uid):
    def change():
        end_with_parent()
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        end_with_parent() # changing the user forgets it
    return change


class Egress:
    """cove-egress and the sockets that coved would give it."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.run, self.state, self.log = self.directory / "run", self.directory / "egress", self.directory / "log"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("COVE_", "E2B_"))}
        self.env.update(COVE_RUN=str(self.run), COVE_CONFIG="/dev/null", COVE_STATE=str(self.directory / "state"))
        self.run.mkdir()
        self.state.mkdir(mode=0o700)
        os.chown(self.state, WORKER, WORKER)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.run / "vault.sock"))
        os.chmod(self.run / "vault.sock", 0o666)
        self.listener.listen(16)
        self.process = self.control = None

    def start(self):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        state = os.open(self.state, os.O_RDONLY | os.O_DIRECTORY)
        fds = [theirs.fileno(), self.listener.fileno(), state]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BUILD / "cove-egress", "--control-fd", str(fds[0]), "--vault-fd", str(fds[1]), "--state-fd", str(fds[2]),
                 "--owner-uid", str(OWNER), "--log-level", "0"],
                env={}, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=become(WORKER))
        os.close(state)
        theirs.close()
        return self

    def end(self, signum=signal.SIGTERM):
        """Its exit code."""
        self.process.send_signal(signum)
        code = self.process.wait(60)
        self.control.close()
        return code

    def fails(self):
        """It ends by itself; what it said."""
        assert self.process.wait(60) == 1
        self.control.close()
        return read(self.log)

    def secret(self, *arguments, uid=None, **options):
        options = {"capture_output": True, "text": True, "timeout": 60, "check": False, "env": self.env, **options}
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        if uid is not None:
            options["preexec_fn"] = become(uid)
        return subprocess.run([BUILD / "cove", "secret", *arguments], **options)

    def names(self):
        listed = self.secret("ls", "--json")
        assert listed.returncode == 0, listed.stderr
        return [one["name"] for one in json.loads(listed.stdout)]

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.control:
            self.control.close()
        self.listener.close()


@pytest.fixture
def egress():
    directory = tempfile.mkdtemp(prefix="cove-secret-test-")
    os.chmod(directory, 0o755)
    started = Egress(directory)
    try:
        yield started.start()
    finally:
        started.close()
        shutil.rmtree(directory)


def assert_unseen(value, *texts):
    for text in texts:
        assert value not in text


# ---- what people do ----


def test_a_secret_is_set_listed_and_removed(egress):
    done = egress.secret("set", "TOKEN", input=VALUE + "\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "TOKEN is set\n", "")
    assert egress.secret("set", "ALSO", input=VALUE).returncode == 0
    done = egress.secret("set", "TOKEN=value", input="")
    assert done.returncode == 1 and "never from the command line" in done.stderr
    listed = egress.secret("ls")
    assert re.fullmatch(r"NAME +AGE\nALSO +\d+m?s\nTOKEN +\d+m?s\n", listed.stdout)
    rows = json.loads(egress.secret("ls", "--json").stdout)
    assert [set(row) for row in rows] == [{"name", "set_at"}] * 2
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", rows[0]["set_at"])
    done = egress.secret("rm", "TOKEN", "GONE", "ALSO")
    assert (done.returncode, done.stdout) == (1, "TOKEN\nALSO\n")
    assert "there is no secret GONE" in done.stderr and "cove secret ls" in done.stderr
    assert egress.names() == []


def test_json_answers(egress):
    assert json.loads(egress.secret("set", "A", "--json", input=VALUE).stdout) == {"set": "A"}
    done = egress.secret("rm", "GONE", "A", "--json")
    assert json.loads(done.stdout) == {"removed": ["A"]}
    assert json.loads(done.stderr)["error"]["code"] == "not_found"


def test_secrets_survive_the_end_of_the_program_however_it_ends(egress):
    for signum, code in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        assert egress.secret("set", f"N{signum.value}", input=VALUE).returncode == 0
        assert egress.end(signum) == code
        egress.start()
    assert egress.names() == ["N15", "N2", "N9"]


def test_a_client_waits_while_the_program_starts(egress):
    egress.end()
    client = subprocess.Popen([BUILD / "cove", "secret", "set", "A"], env=egress.env, stdin=subprocess.PIPE)
    client.stdin.write(VALUE.encode())
    client.stdin.close()
    time.sleep(0.2)
    assert client.poll() is None
    egress.start()
    assert client.wait(60) == 0
    assert egress.names() == ["A"]


def test_the_value_comes_from_a_file(egress):
    path = egress.directory / "value"
    path.write_text(VALUE + "\n")
    assert egress.secret("set", "A", "--file", path).returncode == 0
    done = egress.secret("set", "B", "-f", egress.directory / "gone")
    assert done.returncode == 1 and "no such file" in done.stderr.lower()
    assert egress.names() == ["A"]


@pytest.mark.parametrize("value, said", [
    ("", "empty"),
    ("\n", "empty"),
    ("a\nb", "line break"),
    ("a\r\n", "line break"),
    ("a\0b", "NUL"),
    ("v" * 16385, "longer than 16384 bytes"),
    ("v" * 100000, "longer than 16384 bytes"),
])
def test_values_that_cannot_be_are_refused(egress, value, said):
    done = egress.secret("set", "A", input=value)
    assert done.returncode == 1 and said in done.stderr
    assert egress.names() == []


@pytest.mark.parametrize("value", ["v", "v" * 16384, "v" * 16384 + "\n", "\u00e4\u20ac", " leading and trailing "])
def test_values_that_can_be_are_taken(egress, value):
    assert egress.secret("set", "A", input=value).returncode == 0


@pytest.mark.parametrize("name", ["1A", "A B", "A/B", "-", "\u00c4", "A" * 65, ""])
def test_names_that_cannot_be_are_refused(egress, name):
    done = egress.secret("set", "--", name, input=VALUE)
    assert done.returncode == 1 and "secret's name" in done.stderr
    assert egress.names() == []


@pytest.mark.parametrize("arguments", [[], ["set"], ["set", "A", VALUE], ["ls", "A"], ["rm"], ["get", "A"], ["ls", "--file", "x"]])
def test_wrong_lines_are_told(egress, arguments):
    done = egress.secret(*arguments)
    assert done.returncode == 2 and "cove secret --help" in done.stderr
    assert_unseen(VALUE, done.stderr)


def test_help_says_what_there_is(egress):
    text = " ".join(egress.secret("--help").stdout.split())
    for part in ("cove secret set NAME", "cove secret ls", "cove secret rm NAME", "--file", "Values can't be read back"):
        assert part in text


# ---- at a terminal ----


def talk(fd, until, seconds=60):
    """What the terminal shows until this text came."""
    seen, end = b"", time.monotonic() + seconds
    while until not in seen and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                seen += os.read(fd, 4096)
            except OSError:
                break
    return seen


def at_terminal(egress, *arguments):
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(BUILD / "cove", ["cove", "secret", *arguments], egress.env)
    return pid, fd


def test_at_a_terminal_it_asks_and_does_not_show(egress):
    pid, fd = at_terminal(egress, "set", "A")
    assert b"Value of A" in talk(fd, b": ")
    assert not termios.tcgetattr(fd)[3] & termios.ECHO
    os.write(fd, VALUE.encode() + b"\n")
    shown = talk(fd, b"\n")
    assert VALUE.encode() not in shown
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert termios.tcgetattr(fd)[3] & termios.ECHO
    os.close(fd)
    assert egress.names() == ["A"]


def test_interrupted_it_leaves_the_terminal_as_it_was(egress):
    pid, fd = at_terminal(egress, "set", "A")
    talk(fd, b": ")
    os.write(fd, b"half\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGINT
    assert termios.tcgetattr(fd)[3] & termios.ECHO
    os.close(fd)
    assert egress.names() == []


# ---- who may not ----


def test_the_owner_may_and_strangers_may_not(egress):
    assert egress.secret("set", "A", uid=OWNER, input=VALUE).returncode == 0
    for arguments in (["set", "B"], ["ls"], ["rm", "A"]):
        done = egress.secret(*arguments, uid=STRANGER, input=VALUE)
        assert done.returncode == 1, arguments
        assert "root, the service's owner" in done.stderr and "sudo" in done.stderr
    assert egress.names() == ["A"]


def test_without_a_service_it_is_said_what_to_do(egress):
    egress.end()
    egress.listener.close()
    for _ in range(2): # refused, then not there
        done = egress.secret("ls")
        assert done.returncode == 1 and "make start" in done.stderr
        (egress.run / "vault.sock").unlink(missing_ok=True)
    egress.listener = socket.socket(socket.AF_UNIX)


def test_secrets_are_not_set_from_afar(egress):
    done = egress.secret("ls", "--host", "192.0.2.1:7070")
    assert done.returncode == 1 and "on the machine that the service runs on" in done.stderr
    assert egress.secret("ls", "--host", f"unix:{egress.run}/cove.sock").returncode == 0
    assert egress.secret("ls", env={**egress.env, "COVE_HOST": "192.0.2.1:7070"}).returncode == 1


# ---- what must not be seen ----


def memory_of(pid):
    """All that can be read of a process by root."""
    found = b""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb") as mem:
        for line in maps:
            at, rights = line.split()[:2]
            start, end = (int(n, 16) for n in at.split("-"))
            if "r" in rights and end - start < 1 << 28 and "[v" not in line:
                mem.seek(start)
                try:
                    found += mem.read(end - start)
                except OSError:
                    continue
    return found


def test_values_lie_nowhere_but_in_the_vault(egress):
    assert egress.secret("set", "A", input=VALUE).returncode == 0
    assert_unseen(VALUE, read(egress.log))
    for path in egress.state.iterdir():
        assert VALUE.encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o7777 == 0o600
    # In memory it lies once, although a client sent it and a file was written.
    assert memory_of(egress.process.pid).count(VALUE.encode()) == 1
    assert egress.secret("set", "A", input="another").returncode == 0
    assert memory_of(egress.process.pid).count(VALUE.encode()) == 0


def test_values_are_in_no_argument_and_no_environment(egress):
    client = subprocess.Popen([BUILD / "cove", "secret", "set", "A"], env=egress.env, stdin=subprocess.PIPE)
    client.stdin.write(VALUE.encode())
    client.stdin.flush() # it has it, and waits for the end
    time.sleep(0.2)
    assert_unseen(VALUE, read(f"/proc/{client.pid}/cmdline"), read(f"/proc/{client.pid}/environ"))
    client.stdin.close()
    assert client.wait(60) == 0


def test_the_program_is_closed_to_others(egress):
    egress.names() # it has started
    pid = egress.process.pid
    status = read(f"/proc/{pid}/status")
    assert re.search(r"^Seccomp:\s+2$", status, re.M) and re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    assert re.search(rf"^Uid:\s+{WORKER}\s+{WORKER}\s+{WORKER}\s+{WORKER}$", status, re.M)
    # Not dumpable: its files in /proc are root's, and its own user can't look inside.
    assert os.stat(f"/proc/{pid}/maps").st_uid == 0
    look = subprocess.run(["cat", f"/proc/{pid}/environ"], capture_output=True, check=False, preexec_fn=become(WORKER))
    assert look.returncode != 0


# ---- what it does when things are wrong ----


def test_it_ends_when_coved_is_gone(egress):
    egress.names()
    egress.control.close()
    assert egress.process.wait(60) == 1
    assert "coved is gone" in read(egress.log)


@pytest.mark.parametrize("spoil, said", [
    (lambda state: os.chmod(state / "vault.key", 0o644), "chmod 0600"),
    (lambda state: os.chown(state / "vault.key", 0, 0), "vault.key"),
    (lambda state: os.unlink(state / "vault.key"), "vault.key in egress/ of the state directory is gone"),
    (lambda state: os.unlink(state / "vault.json"), "vault.json in egress/ of the state directory is gone"),
    (lambda state: os.truncate(state / "vault.json", 40), "is damaged"),
    (lambda state: os.truncate(state / "vault.key", 31), "is damaged"),
])
def test_a_spoilt_vault_is_told_and_not_replaced(egress, spoil, said):
    assert egress.secret("set", "A", input=VALUE).returncode == 0
    assert egress.end() == 0
    spoil(egress.state)
    before = {path.name: path.read_bytes() for path in egress.state.iterdir()}
    egress.start()
    assert said in egress.fails()
    assert {path.name: path.read_bytes() for path in egress.state.iterdir()} == before


def test_a_second_one_on_the_same_vault_is_refused(egress):
    egress.names()
    first, control = egress.process, egress.control
    egress.start()
    assert "in use by another cove-egress" in egress.fails()
    egress.process, egress.control = first, control
    assert egress.secret("set", "A", input=VALUE).returncode == 0


def test_a_full_disk_is_told_and_changes_nothing(egress):
    egress.end()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"small", str(egress.state).encode(), b"tmpfs", 0, f"size=16k,mode=0700,uid={WORKER},gid={WORKER}".encode()) == 0
    try:
        egress.start()
        assert egress.secret("set", "A", input=VALUE).returncode == 0
        done = egress.secret("set", "B", input="v" * 16000)
        assert done.returncode == 1 and "no space left" in done.stderr.lower() and "nothing was changed" in done.stderr
        assert_unseen("vvvv", done.stderr, read(egress.log))
        assert egress.names() == ["A"]
        assert egress.secret("set", "C", input=VALUE).returncode == 0
        egress.end()
    finally:
        egress.close()
        assert wait_until(lambda: libc.umount2(str(egress.state).encode(), 0) == 0)


def test_silent_clients_do_not_keep_others_out(egress):
    idle = []
    for _ in range(30):
        idle.append(socket.socket(socket.AF_UNIX))
        try:
            idle[-1].settimeout(1)
            idle[-1].connect(str(egress.run / "vault.sock"))
        except OSError:
            break
    assert len(idle) > 8
    for one in idle[8:]:
        one.close()
    assert egress.secret("set", "A", input=VALUE).returncode == 0
    for one in idle:
        one.close()


# ---- started by coved ----


def test_secrets_of_a_service_outlive_the_program_that_keeps_them(service):
    if not wait_until(lambda: service.child("cove-egress"), 10):
        pytest.skip("coved starts no cove-egress here: " + service.tail(5))
    assert service.cove("secret", "set", "SYSTEM_TEST", input=VALUE).returncode == 0
    before = service.child("cove-egress")
    os.kill(before, signal.SIGKILL)
    listed = service.cove("secret", "ls", "--json") # waits for the next one
    assert [one["name"] for one in json.loads(listed.stdout)] == ["SYSTEM_TEST"]
    assert service.child("cove-egress") not in (None, before)
    key = (service.state / "egress" / "vault.key").stat()
    assert key.st_mode & 0o7777 == 0o600 and key.st_uid != 0
    assert service.cove("secret", "rm", "SYSTEM_TEST").returncode == 0
    assert_unseen(VALUE, read(service.log))
