# SPDX-License-Identifier: Apache-2.0
"""cove run, as a person or a script uses it."""

import json
import os
import re
import select
import signal
import subprocess

import pytest
from service import wait_until

ID = re.compile(r"\bi[0-9a-z]{20}\b")


def is_running(service, sandbox):
    return any(s["id"] == sandbox for s in service.sandboxes())


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


def test_a_script_that_is_only_here_is_explained(service, tmp_path):
    (tmp_path / "script.py").write_text("print(6 * 7)")
    (tmp_path / ".bashrc").write_text("")
    here = {"cwd": tmp_path}
    for command in (["script.py"], ["./script.py"], ["python3", "script.py"], ["-w", "/tmp", "python3", "script.py"]):
        done = service.cove("run", *command, **here)
        assert done.returncode in (2, 127) and "not in the sandbox" in done.stderr and "cove cp" in done.stderr, done
    for command in (["sh", "-c", "exit 1"], ["test", ".bashrc", "=", "x"], ["python3", "/etc/nothing"], ["cat", "nothing"]):
        assert "not in the sandbox" not in service.cove("run", *command, **here).stderr, command
    assert service.cove("run", "test", "script.py", **here).stderr == ""
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


def test_run_sets_environment_directory_and_user(service):
    done = service.cove("run", "-e", "A=1 2", "-e", "FROM_HERE", "-e", "NOT_HERE", "-w", "/tmp", "-u", "root", "--", "sh", "-c",
                        'echo "$A|$FROM_HERE|${NOT_HERE-unset}|$PWD|$(id -u)"', env={"FROM_HERE": "here"})
    assert done.stdout == "1 2|here|unset|/tmp|0\n"


def test_run_limits_what_the_sandbox_may_use(service):
    process = service.popen("run", "--memory", "256M", "--cpus", "0.5", "--metadata", "who=me", "--", "sleep", "100",
                            stdin=subprocess.DEVNULL)
    try:
        assert wait_until(service.sandboxes)
        sandbox = service.sandboxes()[0]
        assert (sandbox["memory_bytes"], sandbox["cpu_milli"], sandbox["metadata"]) == (256 << 20, 500, {"who": "me"})
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert service.sandboxes() == []


def test_run_ends_at_its_timeout(service):
    done = service.cove("run", "--timeout", "3s", "--", "sleep", "100")
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
    assert process.wait(60) == 128 + number
    process.stdout.close()
    assert service.sandboxes() == []


def test_run_gives_up_at_the_second_signal(service):
    process = service.popen("run", "--", "sh", "-c", "trap 'echo no' INT; echo up; while :; do sleep 0.1; done", stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"no\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stdout.close()
    assert service.sandboxes() == []


def test_run_that_is_killed_leaves_a_sandbox_with_little_time(service):
    process = service.popen("run", "--", "sh", "-c", "echo up; sleep 100", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    process.kill()
    process.wait(60)
    process.stdout.close()
    assert service.sandboxes()[0]["timeout_ms"] <= 120000


def test_run_may_keep_a_sandbox_for_good(service):
    done = service.cove("run", "--timeout", "0", "--keep", "--", "true")
    assert done.returncode == 0, done
    assert [s["timeout_ms"] for s in service.sandboxes()] == [0]
    process = service.popen("run", "--timeout", "0", "--", "sleep", "100", stdin=subprocess.DEVNULL) # what is not kept is still given back
    assert wait_until(lambda: len(service.sandboxes()) == 2)
    assert sorted(s["timeout_ms"] > 0 for s in service.sandboxes()) == [False, True]
    process.terminate()
    process.wait(60)
    kept = [s["id"] for s in service.sandboxes()]
    assert len(kept) == 1 and service.cove("rm", *kept).returncode == 0


def test_run_as_json(service):
    done = service.cove("run", "--json", "--", "sh", "-c", "printf 'a\\377'; echo b >&2; exit 3")
    result = json.loads(done.stdout)
    assert done.returncode == 3
    assert ID.fullmatch(result["sandbox"])
    assert (result["exit_code"], result["signal"], result["stdout"], result["stderr"]) == (3, None, "a\ufffd", "b\n")
    done = service.cove("run", "--json", "--", "sh", "-c", "kill -9 $$")
    assert (json.loads(done.stdout)["exit_code"], json.loads(done.stdout)["signal"], done.returncode) == (None, 9, 137)


def test_run_as_json_has_the_output_whatever_the_end(service):
    done = service.cove("run", "--json", "--timeout", "3s", "--", "sh", "-c", "echo begun; echo so >&2; sleep 100")
    result = json.loads(done.stdout)
    assert (done.returncode, result["reason"], result["stdout"], result["stderr"]) == (124, "timeout", "begun\n", "so\n")
    assert (result["exit_code"], result["signal"], result["kept"]) == (None, None, False)
    assert json.loads(done.stderr)["error"]["code"] == "deadline_exceeded"
    done = service.cove("run", "--json", "--timeout", "3s", "--pause-on-timeout", "--", "sh", "-c", "echo begun; sleep 100")
    result = json.loads(done.stdout)
    assert (done.returncode, result["reason"], result["stdout"], result["kept"]) == (124, "timeout", "begun\n", True)
    done = service.cove("run", "--json", "--memory", "64M", "--", "python3", "-c", "print('begun', flush=True); x = b'a' * (500 << 20)")
    result = json.loads(done.stdout)
    assert (done.returncode, result["signal"], result["reason"], result["stdout"], done.stderr) == (137, 9, "out_of_memory", "begun\n", "")
    for command in (["sh", "-c", "kill -9 $$"], ["sh", "-c", "exit 4"]):
        assert json.loads(service.cove("run", "--json", "--", *command).stdout)["reason"] is None
    done = service.cove("run", "--json", "--", "no-such-command") # never started: there is nothing to say of it
    assert (done.returncode, done.stdout, json.loads(done.stderr)["error"]["code"]) == (127, "", "failed_precondition")


def test_run_as_json_says_that_it_was_interrupted(service):
    process = service.popen("run", "--json", "--", "sh", "-c", "trap 'echo no' INT; echo up; while :; do sleep 0.1; done", stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE)
    assert wait_until(lambda: any("up" in service.cove("logs", s["id"]).stdout for s in service.sandboxes()))
    process.send_signal(signal.SIGINT)
    assert wait_until(lambda: any("no" in service.cove("logs", s["id"]).stdout for s in service.sandboxes()))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    result = json.loads(out)
    assert (process.returncode, result["reason"], result["exit_code"], result["signal"]) == (130, "interrupted", None, None)
    assert result["stdout"] == "up\nno\n"
    assert service.sandboxes() == []


def test_a_sandbox_is_open_only_when_asked_for(service):
    """Whose id alone would open it: `cove ls` says so, and nothing but --open makes one."""
    states = []
    for options in ([], ["--open"]):
        assert service.cove("run", "--keep", *options, "--", "true").returncode == 0
        sandbox = service.cove("ls", "-q").stdout.split()[0]
        states.append(next(line for line in service.cove("ls").stdout.splitlines() if sandbox in line))
        service.cove("rm", sandbox)
    assert ", open" not in states[0] and "running, open" in states[1], states


def test_run_as_json_says_what_was_dropped(service):
    """And is valid whatever was written: each of these bytes takes six."""
    done = service.cove("run", "--json", "--", "sh", "-c", "head -c 70000000 /dev/zero")
    result = json.loads(done.stdout)
    assert (done.returncode, result["exit_code"], result["truncated"]) == (0, 0, True)
    assert result["stdout"] == "\0" * (64 << 20)


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


def test_a_reader_that_leaves_ends_the_command(service):
    process = service.popen("run", "--", "yes", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(4) == b"y\ny\n"
    process.stdout.close()
    assert process.wait(60) == 141
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
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()
        process.stderr.close()


def test_what_is_kept_says_when_it_ends_and_every_run_its_id_when_asked(service):
    done = service.cove("run", "--keep", "--timeout", "1h", "--", "true")
    assert re.search(r"sandbox (\w+) is kept and ends in (1h|59m \d+s); 'cove rm \1' removes it$", done.stderr), done
    done = service.cove("run", "--keep", "--timeout", "0", "--", "true")
    assert re.search(r"sandbox (\w+) is kept and never ends by itself; 'cove rm \1' removes it$", done.stderr), done
    done = service.cove("run", "--keep", "--timeout", "0", "--json", "--", "true")
    assert json.loads(done.stdout)["end_at"] is None and done.stderr == "", done
    done = service.cove("run", "--pause-on-timeout", "--timeout", "1h", "--", "true")
    assert re.search(r"is kept and pauses in (1h|59m)", done.stderr), done
    service.remove_all()
    done = service.cove("run", "-v", "--", "echo", "out")
    sandbox = re.fullmatch(r"cove run: sandbox (i\w{20})\n", done.stderr)
    assert sandbox and done.stdout == "out\n", done
    assert "echo" in service.cove("log", sandbox[1]).stdout
    done = service.cove("run", "--timeout", "0", "--", "echo", "gone")
    assert (done.returncode, done.stdout, done.stderr, service.sandboxes()) == (0, "gone\n", "", []), done
