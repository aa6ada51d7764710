# SPDX-License-Identifier: Apache-2.0
"""The command line against a running service, as a person or a script uses it."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import ssl
import stat
import struct
import subprocess
import termios
import time

import pytest
from leaks import running
from service import BUILD, wait_until

ID = re.compile(r"\bi[0-9a-z]{20}\b")


def is_running(service, sandbox):
    return any(s["id"] == sandbox for s in service.sandboxes())


# ---- run ----


def test_run_passes_output_and_exit_code_through(service):
    done = service.cove("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert service.sandboxes() == []


def test_run_needs_no_dashes_and_leaves_the_commands_flags_alone(service):
    done = service.cove("run", "echo", "-n", "--json", "-e")
    assert (done.returncode, done.stdout) == (0, "--json -e")


@pytest.mark.parametrize("command, status, message", [
    (["sh", "-c", "kill -9 $$"], 137, ""),
    (["sh", "-c", "kill -TERM $$"], 143, ""),
    (["no-such-command"], 127, "not found"),
    (["/etc/passwd"], 126, "permission denied"),
    (["/no/such/file"], 127, "no such file"),
])
def test_run_ends_as_shells_do(service, command, status, message):
    done = service.cove("run", "--", *command)
    assert done.returncode == status
    assert message in done.stderr
    assert service.sandboxes() == []


def test_run_reads_what_is_piped_in_unless_told_not_to(service, tmp_path):
    assert service.cove("run", "-i", "--", "cat", input="a\nb").stdout == "a\nb"
    assert service.cove("run", "--", "cat", input="a\nb").stdout == "a\nb"
    assert service.cove("run", "-n", "--", "cat", input="a\nb").stdout == ""
    (tmp_path / "list").write_text("from a file\n")
    with open(tmp_path / "list") as file:
        assert service.cove("run", "--", "cat", stdin=file).stdout == "from a file\n"
    assert service.cove("run", "python3", "-", input="print(6 * 7)").stdout == "42\n"


def test_a_command_at_a_terminal_that_has_nothing_to_read_is_explained(service):
    ours, theirs = os.openpty()
    try:
        done = service.cove("run", "--", "python3", stdin=theirs)
        assert (done.returncode, done.stdout) == (0, "")
        assert "-it gives it a terminal" in done.stderr
        assert service.cove("run", "--", "true", stdin=theirs).stderr == ""
    finally:
        os.close(ours)
        os.close(theirs)


def test_run_says_that_memory_ran_out(service):
    done = service.cove("run", "--memory", "64M", "--", "python3", "-c", "x = b'a' * (500 << 20)")
    assert done.returncode == 137
    assert "ran out of memory: it may use 64 MiB\n" in done.stderr and "--memory" in done.stderr
    done = service.cove("run", "--", "sh", "-c", "kill -9 $$")
    assert (done.returncode, done.stderr) == (137, "")


def test_run_refuses_what_the_machine_has_not(service):
    for flag, value, what in (("--memory", "1000T", "GiB of memory"), ("--cpus", "99999", "CPUs")):
        done = service.cove("run", flag, value, "--", "true")
        assert done.returncode in (2, 125) and (what in done.stderr or "write a number" in done.stderr), done.stderr
    done = service.cove("run", "--cpus", str(os.cpu_count() + 1), "--", "true")
    assert (done.returncode, f"this machine has: {os.cpu_count()}" in done.stderr) == (125, True), done.stderr
    done = service.cove("run", "--secret", "NO_SUCH_SECRET=example.com", "--", "true")
    assert done.returncode == 2 and "there is no secret NO_SUCH_SECRET" in done.stderr and "cove secret set" in done.stderr
    assert service.sandboxes() == []


def test_errors_say_the_next_step(service):
    assert "cove template ls" in service.cove("run", "--template", "nothing", "--", "true").stderr
    assert "sh -c" in service.cove("run", "--", "no-such-program").stderr
    sandbox = service.create()
    assert "https://" in service.cove("policy", "check", sandbox, "ftp://x/").stderr
    assert service.cove("rm", sandbox).returncode == 0
    done = service.cove("cp", f"{sandbox}:x", "/tmp/never")
    assert done.returncode == 1 and "has ended" in done.stderr and "cove log" in done.stderr
    done = service.cove("ls", "--host", f"127.0.0.1:{service.port}", env={"COVE_API_KEY": "wrong"})
    assert done.returncode == 1 and "cove key" in done.stderr


def test_run_sets_environment_directory_and_user(service):
    done = service.cove("run", "-e", "A=1 2", "-e", "FROM_HERE", "-e", "NOT_HERE", "-w", "/tmp", "-u", "root", "--", "sh", "-c",
                        'echo "$A|$FROM_HERE|${NOT_HERE-unset}|$PWD|$(id -u)"', env={"FROM_HERE": "here"})
    assert done.stdout == "1 2|here|unset|/tmp|0\n"


def test_run_limits_what_the_sandbox_may_use(service):
    process = service.popen("run", "--memory", "256M", "--cpus", "0.5", "--metadata", "who=me", "--", "sleep", "100",
                            stdin=subprocess.DEVNULL)
    try:
        assert wait_until(service.sandboxes, 10)
        sandbox = service.sandboxes()[0]
        assert (sandbox["memory_bytes"], sandbox["cpu_milli"], sandbox["metadata"]) == (256 << 20, 500, {"who": "me"})
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    assert service.sandboxes() == []


def test_run_ends_at_its_timeout(service):
    done = service.cove("run", "--timeout", "1s", "--", "sleep", "100")
    assert done.returncode == 124
    assert "time was up" in done.stderr
    assert service.sandboxes() == []


def test_run_keeps_the_sandbox_when_told(service):
    done = service.cove("run", "--keep", "--", "touch", "mark")
    sandbox = ID.search(done.stderr)[0]
    assert is_running(service, sandbox)
    assert service.cove("exec", sandbox, "--", "ls").stdout == "mark\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_run_passes_signals_on_and_removes_the_sandbox(service, number):
    process = service.popen("run", "--", "sh", "-c", "echo up; exec sleep 100", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    process.stdout.close()
    assert service.sandboxes() == []


def test_run_gives_up_at_the_second_signal(service):
    process = service.popen("run", "--", "sh", "-c", "trap 'echo no' INT; echo up; while :; do sleep 0.1; done", stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"no\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    process.stdout.close()
    assert service.sandboxes() == []


def test_run_that_is_killed_leaves_a_sandbox_with_little_time(service):
    process = service.popen("run", "--", "sh", "-c", "echo up; sleep 100", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.kill()
    process.wait(10)
    process.stdout.close()
    assert service.sandboxes()[0]["timeout_ms"] <= 120000


def test_run_as_json(service):
    done = service.cove("run", "--json", "--", "sh", "-c", "printf 'a\\377'; echo b >&2; exit 3")
    result = json.loads(done.stdout)
    assert done.returncode == 3
    assert ID.fullmatch(result["sandbox"])
    assert (result["exit_code"], result["signal"], result["stdout"], result["stderr"]) == (3, None, "a\ufffd", "b\n")
    done = service.cove("run", "--json", "--", "sh", "-c", "kill -9 $$")
    assert (json.loads(done.stdout)["exit_code"], json.loads(done.stdout)["signal"], done.returncode) == (None, 9, 137)


def test_run_says_what_is_wrong(service):
    done = service.cove("run", "--template", "nothing", "--", "true")
    assert done.returncode == 125
    assert "nothing" in done.stderr
    done = service.cove("run", "--json", "--template", "nothing", "--", "true")
    assert json.loads(done.stderr)["error"]["code"] == "not_found"
    done = service.cove("run", "--timeout", "1000000h", "--", "true")
    assert done.returncode == 125


@pytest.mark.parametrize("flag, value, message", [
    ("--memory", "1", "a number alone counts bytes, and the least is 16 MiB; write 1G"),
    ("--memory", "512", "write 512M"),
    ("--memory", "1M", "the least is 16 MiB"),
    ("--memory", "0", "the least is 16 MiB"),
    ("--memory", "much", "write a size such as 512M"),
    ("--disk", "2", "write 2M"),
])
def test_run_says_what_a_size_lacks(service, flag, value, message):
    done = service.cove("run", flag, value, "--", "true")
    assert (done.returncode, f"{flag} {value}: " in done.stderr, message in done.stderr) == (2, True, True), done.stderr


@pytest.mark.parametrize("flags", [
    ["--allow", "a b"], ["--allow", "a.b:99999"], ["--allow", "a.b:"], ["--allow", ""], ["--deny", "10.0.0.0/99"], ["--deny", "x..y"],
    ["--net", "maybe"], ["--policy", "/no/such/file"], ["--policy", "FILE"], ["--secret", "=x"], ["--secret", "A B=x.y"],
], ids=" ".join)
def test_what_is_no_policy_is_misuse_everywhere(service, sandbox, tmp_path, flags):
    (tmp_path / "policy").write_text("default: allow\nrules: [{allow: 1}]\n")
    flags = [str(tmp_path / "policy") if word == "FILE" else word for word in flags]
    commands = [["run", *flags, "--", "true"]] + ([["policy", "set", sandbox, *flags]] if flags[0] != "--secret" else [])
    for command in commands:
        done = service.cove(*command)
        assert done.returncode == 2 and (flags[0] in done.stderr or flags[1] in done.stderr), (command, done)
        assert json.loads(service.cove(*command[:1], "--json", *command[1:]).stderr)["error"]["code"] in ("invalid_argument", "not_found"), command
    assert [s["id"] for s in service.sandboxes()] == [sandbox]


def test_what_was_done_is_said_unless_it_shall_not_be(service, sandbox, tmp_path):
    (tmp_path / "f").write_text("12345")
    for command, said in ((["warm", "base", "1"], "1 of base is kept ready from now on\n"), (["warm", "base", "0"], "none of base is kept ready any more\n"),
                          (["policy", "set", sandbox, "--allow", "a.test"], f"{sandbox}: 1 rule, else deny\n"),
                          (["cp", f"{tmp_path}/f", f"{sandbox}:g"], f"copied {tmp_path}/f to {sandbox}:g (5 B)\n"),
                          (["cp", f"{sandbox}:g", f"{tmp_path}/h"], f"copied {sandbox}:g to {tmp_path}/h (5 B)\n")):
        done = service.cove(*command)
        assert (done.returncode, done.stdout) == (0, said), done
        assert service.cove(*command, "-q").stdout == ""
        json.loads(service.cove(*command, "--json").stdout)
    assert service.cove("cp", f"{sandbox}:g", "-").stdout == "12345"
    assert "ahead of need" not in service.log.read_text() # what is dropped while it is made has not failed
    if service.child("cove-egress"):
        assert service.cove("secret", "set", "SAID", input="x").stdout == "SAID is set\n"
        assert service.cove("secret", "set", "-q", "SAID", input="x").stdout == ""
        assert service.cove("secret", "rm", "SAID").stdout == "SAID\n"


def test_names_that_look_like_flags_are_refused(service, sandbox):
    for target, body in (("/v1/volumes", {"name": "-x"}), (f"/v1/sandboxes/{sandbox}/snapshots", {"name": "-x"}),
                         (f"/v1/sandboxes/{sandbox}/snapshots", {"name": "-me/x"})):
        status, _, answer = service.request("POST", target, body)
        assert (status, answer["error"]["code"]) == (400, "invalid_argument"), answer
    headers = {"X-API-KEY": service.key, "Content-Type": "application/json"}
    for target, body in (("/volumes", {"name": "-x"}), ("/v3/templates", {"name": "-x"}), ("/v3/templates", {"name": "-me/x"}),
                         (f"/sandboxes/{sandbox}/snapshots", {"name": "-x"})):
        status, _, answer = service.request("POST", target, body, headers)
        assert (status, answer["code"]) == (400, 400), (target, answer)
    assert service.cove("volume", "create", "--", "-x").returncode == 1
    if service.child("cove-egress"):
        assert service.cove("secret", "set", "--", "-x", input="x").returncode == 1
    assert service.cove("volume", "create", "x-").stdout == "x-\n"
    assert service.cove("volume", "rm", "x-").returncode == 0


def test_a_volume_where_none_can_be_is_the_requests_mistake(service):
    assert service.cove("volume", "create", "misplaced").returncode == 0
    headers = {"X-API-KEY": service.key, "Content-Type": "application/json"}
    try:
        for path, why in (("/etc/passwd", "not a directory"), ("/etc/passwd/x", "etc/passwd"), ("/bin/x", "symbolic link"), ("/proc/x", "/proc/x")):
            status, _, answer = service.request("POST", "/v1/sandboxes", {"volumes": [{"name": "misplaced", "path": path}]})
            assert (status, answer["error"]["code"], why in answer["error"]["message"]) == (400, "invalid_argument", True), (path, answer)
            body = {"templateID": "base", "volumeMounts": [{"name": "misplaced", "path": path}]}
            status, _, answer = service.request("POST", "/sandboxes", body, headers)
            assert (status, answer["code"]) == (400, 400), (path, answer)
    finally:
        assert wait_until(lambda: service.cove("volume", "rm", "misplaced").returncode == 0, 15)


def test_a_reader_that_leaves_ends_the_command(service):
    process = service.popen("run", "--", "yes", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(4) == b"y\ny\n"
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_data_goes_through_both_ways_at_once(service):
    data = os.urandom(24 << 20)
    done = service.cove("run", "-i", "--", "cat", input=data, text=False, timeout=100)
    assert done.returncode == 0
    assert done.stdout == data


def test_a_slow_reader_slows_the_command_down(service):
    """Nothing is gathered on the way: what is not read is not written."""
    process = service.popen("run", "--", "sh", "-c", "head -c 100000000 /dev/zero; echo done >&2", stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    api = service.child("cove-api")
    try:
        def rss():
            with open(f"/proc/{api}/status") as status:
                return int(re.search(r"^VmRSS:\s+(\d+)", status.read(), re.M)[1]) << 10
        assert process.stdout.read(1) == b"\0"
        before = rss()
        readable, _, _ = select.select([process.stderr], [], [], 1.0)
        assert not readable
        assert rss() - before < 16 << 20
        assert len(process.stdout.read()) == 100000000 - 1
        assert process.stderr.read() == b"done\n"
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
        process.stderr.close()


# ---- exec ----


def test_exec_runs_in_the_same_sandbox(service, sandbox):
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo kept > f").returncode == 0
    assert service.cove("exec", sandbox[:8], "cat", "f").stdout == "kept\n"
    assert service.cove("exec", "-i", sandbox, "--", "wc", "-c", input="12345").stdout == "5\n"
    done = service.cove("exec", "--json", "-u", "root", "-w", "/", sandbox, "--", "sh", "-c", "pwd; id -un; exit 4")
    assert done.returncode == 4
    assert json.loads(done.stdout) == {"exit_code": 4, "signal": None, "stdout": "/\nroot\n", "stderr": ""}


def test_exec_says_what_is_wrong(service, sandbox):
    assert service.cove("exec", sandbox).returncode == 2
    assert service.cove("exec").returncode == 2
    done = service.cove("exec", "i00000000000000000000", "--", "true")
    assert (done.returncode, "there is no sandbox" in done.stderr) == (125, True)
    done = service.cove("exec", "zzz", "--", "true")
    assert (done.returncode, "there is no sandbox zzz" in done.stderr, "cove ls" in done.stderr) == (125, True, True)
    done = service.cove("exec", "-t", sandbox, "--", "true")
    assert (done.returncode, "terminal" in done.stderr) == (2, True)
    done = service.cove("exec", "-u", "nobody-here", sandbox, "--", "true")
    assert (done.returncode, "nobody-here" in done.stderr) == (125, True)


def test_exec_ends_when_its_sandbox_is_removed(service, sandbox):
    process = service.popen("exec", sandbox, "--", "sh", "-c", "echo up; sleep 100", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    assert service.cove("rm", sandbox).stdout == f"{sandbox}\n"
    assert process.wait(20) == 125
    assert b"ended" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


class Terminal:
    """cove with a terminal of ours."""

    def __init__(self, service, *arguments, rows=30, columns=100):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = service.popen(*arguments, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal)
        self.seen = b""

    def expect(self, text, seconds=15):
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{text!r} did not come; this did: {self.seen!r}"
            self.seen += os.read(self.master, 65536)
        self.seen = self.seen[self.seen.index(text) + len(text):]

    def send(self, text):
        os.write(self.master, text)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self):
        status = self.process.wait(20)
        restored = termios.tcgetattr(self.slave) == self.before
        os.close(self.master)
        os.close(self.slave)
        return status, restored


def test_a_terminal_has_our_size_and_follows_it(service, sandbox):
    terminal = Terminal(service, "exec", "-it", sandbox, "--", "bash", "--norc")
    terminal.expect(b"$ ")
    terminal.send(b"stty size\r")
    terminal.expect(b"30 100\r\n")
    terminal.resize(41, 77)
    terminal.send(b"sleep 0.2; stty size; tty\r")
    terminal.expect(b"41 77\r\n")
    terminal.expect(b"/dev/pts/")
    terminal.send(b"exit 5\r")
    assert terminal.end() == (5, True)


def test_control_c_on_a_terminal_is_the_commands(service):
    terminal = Terminal(service, "run", "-it", "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.1; done")
    terminal.expect(b"up\r\n")
    terminal.send(b"\x03")
    terminal.expect(b"caught\r\n")
    assert terminal.end() == (9, True)
    assert service.sandboxes() == []


def test_the_terminal_is_restored_when_the_sandbox_goes(service, sandbox):
    terminal = Terminal(service, "exec", "-it", sandbox, "--", "sleep", "100")
    assert wait_until(lambda: termios.tcgetattr(terminal.slave) != terminal.before, 10)
    service.cove("rm", sandbox)
    assert terminal.end() == (125, True)


# ---- ls, rm ----


def test_ls_shows_what_runs(service):
    assert service.cove("ls").stdout == ""
    assert json.loads(service.cove("ls", "--json").stdout) == []
    first = service.create(metadata={"job": "one"}, timeout_ms=0)
    second = service.create(memory_bytes=256 << 20, cpu_milli=1500)
    lines = service.cove("ls").stdout.splitlines()
    assert lines[0].split() == ["ID", "STATE", "TEMPLATE", "AGE", "ENDS", "IN", "MEMORY", "CPUS", "METADATA"]
    assert [line.split()[0] for line in lines[1:]] == [second, first]
    assert re.search(r"running +base +0s +4m 5\ds +256 MiB +1\.5 +-$", lines[1])
    assert re.search(r"running +base +\ds +- .*job=one$", lines[2])
    assert service.cove("ls", "-q").stdout == f"{second}\n{first}\n"
    listed = json.loads(service.cove("ls", "--json").stdout)
    assert [s["id"] for s in listed] == [second, first]
    assert (listed[1]["end_at"], listed[1]["metadata"]) == (None, {"job": "one"})


def test_ls_shows_labels_without_their_control_characters(service):
    service.create(metadata={"k": "a\x1b[31mb\nc"})
    line = service.cove("ls").stdout.splitlines()[1]
    assert line.endswith("k=a\\x1b[31mb\\x0ac")


def test_rm_removes_what_it_is_told(service):
    ids = [service.create() for _ in range(3)]
    done = service.cove("rm", ids[0], "i00000000000000000000", ids[1])
    assert done.returncode == 1
    assert done.stdout.split() == ids[:2]
    assert "i00000000000000000000" in done.stderr
    assert service.cove("ls", "-q").stdout.split() == ids[2:]
    assert service.cove("rm").returncode == 2
    assert service.cove("rm", "--all", ids[2]).returncode == 2
    assert json.loads(service.cove("rm", "--json", "--all").stdout) == {"removed": ids[2:]}
    assert service.cove("rm", "--all").returncode == 0
    assert service.cove("rm", ids[0]).returncode == 1


def test_the_beginning_of_an_id_must_be_clear(service):
    ids = [service.create() for _ in range(2)]
    done = service.cove("exec", "i", "--", "true")
    assert done.returncode == 125
    assert ids[0] in done.stderr and ids[1] in done.stderr


# ---- cp ----


def test_cp_keeps_content_and_permissions(service, sandbox, tmp_path):
    data = os.urandom(3 << 20)
    script = tmp_path / "it's.sh"
    script.write_bytes(data)
    script.chmod(0o750)
    assert service.cove("cp", script, f"{sandbox}:").returncode == 0
    assert service.cove("cp", script, f"{sandbox}:new/dir/").returncode == 0
    assert service.cove("cp", script, f"{sandbox}:/tmp/x y").returncode == 0
    listed = service.cove("exec", sandbox, "--", "stat", "-c", "%a %U %s", "it's.sh", "new/dir/it's.sh", "/tmp/x y").stdout
    assert listed == f"750 user {len(data)}\n" * 3
    back = tmp_path / "back"
    back.mkdir()
    assert service.cove("cp", f"{sandbox}:/tmp/x y", back).returncode == 0
    assert service.cove("cp", f"{sandbox}:it's.sh", back / "named").returncode == 0
    for name in ("x y", "named"):
        assert (back / name).read_bytes() == data
        assert stat.S_IMODE((back / name).stat().st_mode) == 0o750
    assert [p.name for p in sorted(back.iterdir())] == ["named", "x y"]


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o664, 0o644, 0o700])
def test_cp_keeps_private_files_private(service, sandbox, tmp_path, mode):
    secret = tmp_path / "secret"
    secret.write_text("key")
    secret.chmod(mode)
    assert service.cove("cp", secret, f"{sandbox}:deep/er/").returncode == 0
    assert service.cove("cp", secret, f"{sandbox}:/tmp/over").returncode == 0
    assert service.cove("cp", secret, f"{sandbox}:/tmp/over").returncode == 0
    listed = service.cove("exec", sandbox, "--", "stat", "-c", "%a %U %s", "deep/er/secret", "/tmp/over").stdout
    assert listed == f"{mode:o} user 3\n" * 2
    assert service.cove("exec", sandbox, "--", "stat", "-c", "%a", "deep", "deep/er").stdout == "755\n755\n"


@pytest.mark.parametrize("how, options", [(signal.SIGINT, []), (signal.SIGTERM, ["--json"])])
def test_who_interrupts_a_build_cancels_it(service, tmp_path, how, options):
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN echo begun; sleep 60\n")
    build = service.popen("template", "build", "--name", "interrupted", *options, str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = build.stdout if options else build.stderr
    for line in out: # they come as they are made, also into a pipe
        if "begun" in line and "RUN" not in line:
            break
    build.send_signal(how)
    rest = out.read()
    assert build.wait(20) == -how
    assert options or "cancelled" in rest, rest
    build.stdout.close()
    build.stderr.close()
    assert wait_until(lambda: not service.sandboxes(), 20)
    shown = service.cove("template", "show", "interrupted", "--json")
    assert shown.returncode or json.loads(shown.stdout)["status"] != "ready", shown
    service.cove("template", "rm", "interrupted")


def test_cp_uses_stdin_and_stdout(service, sandbox):
    assert service.cove("cp", "-", f"{sandbox}:f", input="text").returncode == 0
    assert service.cove("cp", f"{sandbox}:f", "-").stdout == "text"
    assert service.cove("cp", f"{sandbox}:/proc/version", "-").stdout.startswith("Linux")
    assert service.cove("cp", "-", f"{sandbox}:/tmp", input="text").returncode == 1


def test_cp_takes_trees_both_ways(service, sandbox, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub" / "empty").mkdir(parents=True)
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    (tree / "sub" / "\u00fc\n.txt").write_text("odd name")
    (tree / "link").symlink_to("run")
    (tree / "big").write_bytes(os.urandom(1 << 20))
    os.mkfifo(tree / "fifo")
    assert service.cove("cp", tree, f"{sandbox}:").returncode == 0
    assert service.cove("cp", tree, f"{sandbox}:deep/other").returncode == 0
    listed = service.cove("exec", sandbox, "--", "sh", "-c", "cd tree && find . ! -name '*.txt' | sort && stat -c %a:%U run && readlink link")
    assert listed.stdout.split() == [".", "./big", "./link", "./run", "./sub", "./sub/empty", "755:user", "run"]
    assert service.cove("exec", sandbox, "--", "diff", "-r", "tree", "deep/other").returncode == 0
    assert service.cove("cp", f"{sandbox}:tree", tmp_path / "out").returncode == 0
    assert service.cove("cp", f"{sandbox}:tree/.", tmp_path / "out").returncode == 0
    (tree / "fifo").unlink()
    assert subprocess.run(["diff", "-r", "--no-dereference", tree, tmp_path / "out"], check=False).returncode == 0
    assert stat.S_IMODE((tmp_path / "out" / "run").stat().st_mode) == 0o755


def test_cp_does_not_trust_a_tree_from_a_sandbox(service, sandbox, tmp_path):
    """tar inside is the sandbox's: here it sends an archive that climbs out, follows its own link, and brings set-id bits."""
    out = tmp_path / "out"
    hostile = f"""
import io, sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
    def add(name, data=b"evil", **fields):
        entry = tarfile.TarInfo(name)
        for key, value in fields.items():
            setattr(entry, key, value)
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    add("good", b"good", mode=0o6755)
    add("link", b"", type=tarfile.SYMTYPE, linkname="{tmp_path}")
    add("{'link/' + 'through'}")
"""
    fake = "cat > /usr/local/bin/tar && chmod 755 /usr/local/bin/tar"
    for program, escaped in ((hostile, "through"), (hostile.replace("link/through", "../climbed"), "climbed"),
                             (hostile.replace("link/through", f"{tmp_path}/absolute"), "absolute")):
        made = service.cove("exec", "-i", "-u", "root", sandbox, "--", "sh", "-c", fake, input="#!/usr/bin/python3" + program)
        assert made.returncode == 0
        done = service.cove("cp", f"{sandbox}:/tmp", out)
        # A link in the way is replaced by the directory that the archive claims; names that point out are refused.
        assert done.returncode == (0 if escaped == "through" else 1), escaped
        assert not (tmp_path / escaped).exists()
        assert (out / "good").read_bytes() == b"good"
        assert stat.S_IMODE((out / "good").stat().st_mode) == 0o755
        subprocess.run(["rm", "-rf", out], check=True)


def test_cp_says_what_is_wrong(service, sandbox, tmp_path):
    assert service.cove("cp", "a", "b").returncode == 2
    assert service.cove("cp", f"{sandbox}:a", f"{sandbox}:b").returncode == 2
    for source, target, message in ((tmp_path / "none", f"{sandbox}:", "none"), (f"{sandbox}:none", tmp_path, "none"),
                                    (f"{sandbox}:/etc/hostname", "/no/such/place", "/no/such/place"),
                                    (f"{sandbox}:/dev/null", tmp_path, "neither"), ("/etc/hostname", f"{sandbox}:/proc/nothing", "")):
        done = service.cove("cp", source, target)
        assert done.returncode == 1, (source, target)
        assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("direction", ["up", "down"])
def test_cp_says_that_the_sandbox_was_paused(service, sandbox, direction):
    assert service.cove("exec", sandbox, "--", "sh", "-c", "head -c 50000000 /dev/zero > big").returncode == 0
    if direction == "down":
        process = service.popen("cp", f"{sandbox}:big", "-", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.read(1) == b"\0"
    else:
        process = service.popen("cp", "-", f"{sandbox}:new", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(b"x" * (1 << 20))
        process.stdin.flush()
        assert wait_until(lambda: service.cove("exec", sandbox, "--", "sh", "-c", "ls -A | grep -v big").stdout, 10)
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert f"sandbox {sandbox} was paused while this was copied".encode() in said and f"cove resume {sandbox}".encode() in said, said
    done = service.cove("cp", f"{sandbox}:big", "/tmp/never")
    assert done.returncode == 1 and "is paused" in done.stderr and "cove resume" in done.stderr


def test_policy_of_a_sandbox_that_has_ended(service, sandbox):
    assert service.cove("policy", "set", sandbox, "--net", "deny").returncode == 0
    assert service.cove("pause", sandbox).returncode == 0
    assert service.cove("policy", "show", sandbox).stdout == "else  deny\n"
    assert service.cove("rm", sandbox).returncode == 0
    for command, status in ((["show", sandbox], 1), (["set", sandbox, "--net", "allow"], 1), (["check", sandbox, "https://a.test/"], 125)):
        done = service.cove("policy", *command)
        assert done.returncode == status and f"{sandbox} has ended" in done.stderr and "cove log" in done.stderr, done
    done = service.cove("policy", "show", "i00000000000000000000")
    assert done.returncode == 1 and "there is no sandbox" in done.stderr


# ---- logs, log ----


def test_logs_tell_what_ran(service, sandbox):
    service.cove("exec", sandbox, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert wait_until(lambda: "exit_code=3" in service.cove("logs", sandbox).stdout, 5)
    text = re.sub(r"^[\d:.]{12} ", "", service.cove("logs", sandbox).stdout, flags=re.M)
    assert "$ sh -c 'echo out; echo err >&2; exit 3'\n" in text
    assert "  out\n" in text
    assert "! err\n" in text
    kinds = [json.loads(line)["kind"] for line in service.cove("logs", "--json", sandbox).stdout.splitlines()]
    assert (kinds[0], kinds[-1]) == ("exec.start", "exec.exit")


def test_the_log_is_gapless_chained_and_outlives_the_sandbox(service, sandbox):
    service.cove("exec", sandbox, "--", "true")
    service.cove("rm", sandbox)
    assert wait_until(lambda: "sandbox.ended" in service.cove("log", sandbox).stdout, 5)
    events = [json.loads(line) for line in service.cove("log", "--json", sandbox).stdout.splitlines()]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert events[0]["kind"] == "sandbox.create" and events[0]["actor"] == "cli:uid=0"
    assert [e["kind"] for e in events if e["kind"].startswith("exec.")] == ["exec.start", "exec.started", "exec.exit"]
    later = service.cove("log", "--from", "3", sandbox).stdout.splitlines()
    assert len(later) == len(events) - 2 and later[0].split()[0] == "3"
    done = service.cove("log", "--verify", sandbox)
    assert (done.returncode, done.stdout) == (0, f"intact: {len(events)} events, 1 to {len(events)}\n")
    assert json.loads(service.cove("log", "--verify", "--json", sandbox).stdout)["checked"] == len(events)
    assert service.cove("log", "i00000000000000000000").returncode == 1


def test_log_follows_until_the_sandbox_ends(service, sandbox):
    process = service.popen("log", "-f", "--json", sandbox, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert json.loads(process.stdout.readline())["kind"] == "sandbox.create"
    service.cove("exec", sandbox, "--", "echo", "now")
    service.cove("rm", sandbox)
    kinds = [json.loads(line)["kind"] for line in process.stdout]
    assert process.wait(20) == 0
    assert kinds[-1] == "sandbox.ended" and "exec.output" in kinds
    process.stdout.close()
    assert service.cove("log", "-f", sandbox).returncode == 0


# ---- what needs no sandbox ----


def test_key_prints_the_key_and_it_opens_the_door(service):
    key = service.cove("key").stdout.strip()
    assert len(key) > 20
    assert json.loads(service.cove("key", "--json").stdout) == {"key": key}
    assert service.cove("key", env={"COVE_API_KEY": "other"}).stdout == "other\n"
    host = f"127.0.0.1:{service.port}"
    assert service.cove("ls", "--host", host).returncode == 0
    assert service.cove("ls", env={"COVE_HOST": service.url}).returncode == 0
    done = service.cove("ls", "--host", host, env={"COVE_API_KEY": "wrong"})
    assert (done.returncode, "key is wrong" in done.stderr, "cove key" in done.stderr) == (1, True, True)
    done = service.cove("run", "--host", host, "--", "echo", "over", "TCP")
    assert (done.returncode, done.stdout) == (0, "over TCP\n")


def test_version_with_and_without_a_service(service):
    both = json.loads(service.cove("version", "--json").stdout)
    assert both["cove"] == both["service"]["version"]
    alone = service.cove("version", env={"COVE_RUN": "/nowhere"})
    assert alone.returncode == 0
    assert "/nowhere/cove.sock" in alone.stdout


def test_without_a_service_it_is_said_how_to_start_it(service):
    for arguments, status in ((["ls"], 1), (["run", "true"], 125), (["exec", "i0", "true"], 125), (["rm", "--all"], 1)):
        done = service.cove(*arguments, env={"COVE_RUN": "/nowhere"})
        assert done.returncode == status
        assert "cannot reach the service at unix:/nowhere/cove.sock" in done.stderr
        assert "make start" in done.stderr


def test_others_are_kept_out(service):
    done = service.cove("ls", user=65534, group=65534, extra_groups=[])
    assert (done.returncode, "uid 65534" in done.stderr) == (1, True)


def test_every_command_explains_itself(service):
    overview = service.cove("help").stdout
    commands = json.loads(service.cove("help", "--json").stdout)
    assert {c["name"] for c in commands} >= {"run", "ls", "exec", "cp", "rm", "logs", "log", "key", "doctor", "version", "completion"}
    for command in commands:
        assert f"  {command['name']} " in overview
        done = service.cove(command["name"], "--help")
        assert done.returncode == 0
        assert re.findall(r"^[A-Z ]+$", done.stdout, re.M) == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES"]
        assert all(len(line) <= 110 for line in done.stdout.splitlines())
        assert done.stdout == service.cove("help", command["name"]).stdout
        wrong = service.cove(command["name"], "--no-such-option")
        assert (wrong.returncode, "--no-such-option" in wrong.stderr) == (2, True)
    assert service.cove("nothing").returncode == 2
    assert service.cove().returncode == 2


def test_the_exit_codes_are_told(service):
    table = service.cove("help", "exit-codes")
    assert table.returncode == 0
    for code in ("0", "1", "2", "N", "128+N", "124", "125", "126", "127"):
        assert re.search(rf"^ +{re.escape(code)} +\w", table.stdout, re.M), code
    assert "cove help exit-codes" in service.cove("--help").stdout
    assert service.cove("help", "no-such-topic").returncode == 2


def certificate(port, ca):
    """The one that is shown to clients, or None."""
    context = ssl.create_default_context(cafile=ca)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain, \
            context.wrap_socket(plain, server_hostname="api.sandbox.localhost") as channel:
        return channel.getpeercert(binary_form=True)


def test_domain_set_finds_out_who_has_the_port():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with running(COVE_LISTEN_TLS=f"127.0.0.1:{port}") as (service, _):
            for more in ([], ["--json"]):
                done = service.cove("domain", "set", "sandbox.localhost", *more)
                assert (done.returncode, done.stdout) == (1, ""), done
                for part in (f"127.0.0.1:{port}", "another program's", f"ss -ltnp sport = :{port}", "COVE_LISTEN_TLS"):
                    assert part in done.stderr, (part, done.stderr)
            assert service.cove("domain", "show").returncode == 1 # nothing was changed
            other.close()
            shown = []
            for _ in range(2): # the second time the port is the service's own
                done = service.cove("domain", "set", "sandbox.localhost", "--json")
                said = json.loads(done.stdout)
                assert (done.returncode, said["in_use"]) == (0, True), done
                shown.append(certificate(port, said["ca"])) # without waiting: that was waited for
            assert shown[0] != shown[1]
            # One that listens elsewhere than is said here.
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                elsewhere = f"127.0.0.1:{free.getsockname()[1]}"
            done = service.cove("domain", "set", "sandbox.localhost", env={"COVE_LISTEN_TLS": elsewhere})
            assert done.returncode == 1 and f"does not answer at {elsewhere}" in done.stderr and "from now on" not in done.stdout, done
            assert service.cove("domain", "unset").returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(service, shell, tmp_path):
    script = service.cove("completion", shell)
    assert script.returncode == 0
    file = tmp_path / "script"
    file.write_text(script.stdout)
    for command in ("exec", "completion", "--verify" if shell == "bash" else "verify"):
        assert command in script.stdout
    try:
        checked = subprocess.run([shell, "-n", file], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"{shell} is not installed")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_commands_flags_and_ids(service, sandbox):
    def complete(line):
        words = line.split(" ")
        program = (f"source <(cove completion bash); COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _cove; "
                   "printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "-c", program], env={**service.env, "PATH": f"{BUILD}:{os.environ['PATH']}"}, capture_output=True,
                              text=True, timeout=30, check=True)
        return done.stdout.split()
    assert complete("cove l") == ["ls", "logs", "log"]
    assert complete("cove run --mem") == ["--memory"]
    assert complete(f"cove exec {sandbox[:4]}") == [sandbox]
    assert complete("cove completion z") == ["zsh"]
    assert complete("cove help ex") == ["exec", "exit-codes"]


def test_doctor_measures_this_machine(service):
    done = service.cove("doctor", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True), report
    assert len(report["probes"]) >= 8
    assert all(p["name"] and p["status"] in ("ok", "degraded", "missing", "failed") and p["detail"] for p in report["probes"])
    table = service.cove("doctor")
    assert (table.returncode, table.stdout.splitlines()[-1]) == (0, "Sandboxes can be made on this machine.")
    assert all(p["name"] in table.stdout for p in report["probes"])
    without_root = service.cove("doctor", user=65534, group=65534, extra_groups=[])
    assert (without_root.returncode, "root" in without_root.stderr) == (1, True)
