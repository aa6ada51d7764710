# SPDX-License-Identifier: Apache-2.0
"""What the kernel saw of a sandbox's processes: what a shell starts by itself, files that are written; floods and forgers."""

import json
import os
import re
import shlex
import signal
import subprocess
from datetime import datetime

import pytest
from client import Client
from leaks import own_service
from service import BUILD, wait_until
from storage_test import prepared, running


LISTS = {"proc.exec": "programs", "proc.exit": "ended", "file.written": "files"}


def as_installed(service):
    """Other tests switch it off; it is on by itself."""
    del service.env["COVE_OBSERVE_PROCESSES"], service.env["COVE_OBSERVE_FILES"]


@pytest.fixture(scope="module")
def service():
    with prepared(COVE_POOL="btrfs") as service:
        as_installed(service)
        done = subprocess.run([BUILD / "coved", "doctor", "--json"], capture_output=True, text=True, env=service.env, check=False)
        able = {p["name"]: p["status"] for p in json.loads(done.stdout)["probes"]}
        if able["processes inside"] != "ok" or able["files inside"] != "ok":
            pytest.skip("this kernel tells nothing of what is done inside")
        with running(service):
            yield service


@pytest.fixture
def sandbox(service):
    return Client(service.port, service.key).create(timeout=600)


def log(service, sandbox, *kinds):
    """Each program, end and file as if it were an event of its own."""
    done = service.cove("log", sandbox.id, "--json")
    assert done.returncode == 0, done
    events = [e for e in map(json.loads, done.stdout.splitlines()) if "gap" not in e and e["kind"] in kinds]
    return [{**e, "data": one} for e in events for one in (e["data"][LISTS[e["kind"]]] if e["kind"] in LISTS else [e["data"]])]


def seen(service, sandbox, argv0):
    return [e for e in log(service, sandbox, "proc.exec") if e["data"]["argv"][:1] == [argv0]]


def ends(service, sandbox):
    """Of programs that ended: told with their beginning, when they were quick, or apart."""
    return [e["data"] for e in log(service, sandbox, "proc.exec", "proc.exit") if "exit_code" in e["data"] or "signal" in e["data"]]


def test_many_programs_are_few_events_and_each_has_its_time(service, sandbox):
    assert sandbox.sh("for i in $(seq 100); do /bin/true $i; done; /bin/echo last")[0] == 0
    assert wait_until(lambda: seen(service, sandbox, "/bin/echo"))
    programs = seen(service, sandbox, "/bin/true")
    assert [e["data"]["argv"][1] for e in programs] == [str(i) for i in range(1, 101)] and len({e["seq"] for e in programs}) < 20
    times = [e["data"]["at"] for e in programs]
    began, ended = (datetime.fromisoformat(log(service, sandbox, kind)[-1]["time"]).timestamp() * 1e6 for kind in ("exec.start", "exec.exit"))
    assert times == sorted(times) and began - 1e5 < times[0] < times[-1] < ended + 1e5, (began, times[0], times[-1], ended)


def test_people_are_told_how_much_there_is_and_see_it_when_they_ask(service, sandbox):
    assert sandbox.sh("/bin/echo shown; printf x > /home/user/shown")[0] == 0
    assert wait_until(lambda: seen(service, sandbox, "/bin/echo") and log(service, sandbox, "file.written"))
    for words in (["log", sandbox.id], ["events", "--last", "1000"]):
        short, whole = service.cove(*words), service.cove(*words, "--inside")
        assert short.returncode == whole.returncode == 0 and not any(kind in short.stdout for kind in LISTS) and "exec.start" in short.stdout
        assert re.search(r"left out: programs and written files that the kernel saw inside, [1-9]\d* in all", short.stderr), short
        assert "/bin/echo" in whole.stdout and "/home/user/shown" in whole.stdout and "left out" not in whole.stderr
    assert "proc.exec" in service.cove("events", "--kind", "proc.").stdout


def test_a_long_directory_hides_no_arguments(service, sandbox):
    name = "\\001" * 250 # each byte takes six in JSON
    assert sandbox.sh(f"cd /tmp; d=$(printf '{name}'); for i in 1 2 3 4 5 6 7 8 9; do mkdir $d && cd $d; done; /bin/ls --$d$d; true")[0] == 0
    assert wait_until(lambda: [e for e in log(service, sandbox, "proc.exec") if e["data"].get("argv") == ["/bin/ls", "--" + "\1" * 500]])


def test_what_a_shell_starts_is_seen(service, sandbox):
    script = "cd /tmp && mkdir -p 'a b' && cd 'a b' && env ONE=1 ls -l /etc/hostname; sh -c 'kill -9 $$'; (exit 4); exit 7"
    assert sandbox.sh(script)[0] == 7
    assert wait_until(lambda: [e for e in ends(service, sandbox) if e.get("exit_code") == 7])
    (ls,), (env,) = seen(service, sandbox, "ls"), seen(service, sandbox, "env")
    assert ls["data"]["argv"] == ["ls", "-l", "/etc/hostname"] and ls["data"]["cwd"] == "/tmp/a b" and ls["data"]["program"].endswith("/ls")
    assert ls["data"]["pid"] == env["data"]["pid"] and ls["data"]["uid"] == env["data"]["uid"] == 1000
    assert ls["grade"] == "observed-kernel" and ls["source"] == "kernel" and ls["actor"] == ""
    started = [e["data"]["pid"] for e in log(service, sandbox, "exec.started")]
    assert ls["data"]["parent"] in started, "the parent is what the client started, by the pid that the agent said"
    killed = [e for e in ends(service, sandbox) if e.get("signal") == 9]
    assert [e["pid"] for e in killed] == [e["data"]["pid"] for e in seen(service, sandbox, "sh") if "kill -9 $$" in e["data"]["argv"]]
    assert service.cove("log", "--verify", sandbox.id).returncode == 0


def test_files_that_are_written_are_seen(service, sandbox):
    assert sandbox.sh("cd /home/user && printf hello > one && cp one two && mv two 'th ree' && echo x > gone && rm gone && cat one")[0] == 0
    assert wait_until(lambda: [e for e in log(service, sandbox, "file.written") if e["data"].get("from")])
    assert wait_until(lambda: seen(service, sandbox, "mv"))
    files = {e["data"]["path"]: e for e in log(service, sandbox, "file.written")}
    assert files["/home/user/one"]["data"]["bytes"] == 5 and files["/home/user/one"]["grade"] == "observed-kernel"
    assert files["/home/user/th ree"]["data"]["from"] == "/home/user/two" and files["/home/user/th ree"]["data"]["bytes"] == 5
    assert files["/home/user/th ree"]["data"]["host_pid"] == seen(service, sandbox, "mv")[0]["data"]["host_pid"]


def test_a_receipt_has_the_files(service, tmp_path):
    git = ["git", "-C", tmp_path, "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"})

    def env(*words):
        done = service.cove("env", "--repo", tmp_path, *words)
        assert done.returncode == 0, done
        return done.stdout
    env("create", "seen")
    env("run", "seen", "--", "sh", "-c", "printf hello > one; sleep 1")
    env("run", "seen", "--", "sh", "-c", "sleep 1; git add . && git -c user.name=n -c user.email=e commit -q -m second")
    first, second = json.loads(env("propose", "seen", "--json"))["commands"]
    assert first["wrote"][f"{tmp_path}/one"] == 5, first
    assert f"{tmp_path}/.git/COMMIT_EDITMSG" in second["wrote"] and f"{tmp_path}/one" not in second["wrote"], second
    assert env("propose", "seen").count(" written (") == 2
    env("abort", "seen")


def test_other_sandboxes_and_the_host_are_not_in_it(service, sandbox):
    other = Client(service.port, service.key).create(timeout=600)
    assert other.sh("/bin/echo other; echo x > /home/user/other")[0] == 0 and sandbox.sh("/bin/echo mine; echo x > /home/user/mine")[0] == 0
    assert wait_until(lambda: seen(service, other, "/bin/echo") and seen(service, sandbox, "/bin/echo"))
    for who, word in ((sandbox, "mine"), (other, "other")):
        assert {e["data"]["argv"][1] for e in seen(service, who, "/bin/echo")} == {word}
        assert wait_until(lambda who=who, word=word: f"/home/user/{word}" in {e["data"]["path"] for e in log(service, who, "file.written")})
        written = {e["data"]["path"] for e in log(service, who, "file.written")}
        assert not written & ({"/home/user/mine", "/home/user/other"} - {f"/home/user/{word}"})


def test_credentials_are_masked(service, sandbox):
    assert sandbox.sh("/bin/echo --password=hunter2 --token hunter2 'Authorization: Bearer hunter2' https://me:hunter2@x/ plain")[0] == 0
    assert wait_until(lambda: seen(service, sandbox, "/bin/echo"))
    assert seen(service, sandbox, "/bin/echo")[0]["data"]["argv"][1:] == [
        "--password=***", "--token", "***", "Authorization: Bearer ***", "https://me:***@x/", "plain"]
    assert "hunter2" not in json.dumps(log(service, sandbox, "proc.exec"))


def test_a_process_can_not_hide_or_forge(service, sandbox):
    """Its own title, threads, a program without a name and one that was deleted: the kernel read the arguments before it ran."""
    script = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.prctl(15, b"innocent", 0, 0, 0)
fd = os.memfd_create("hidden")
os.write(fd, open("/bin/echo", "rb").read())
if os.fork() == 0:
    os.execve(fd, ["looks\\nlike", "{\\"kind\\":\\"exec.exit\\"}", "\\xff" * 9], {})
os.wait()
"""
    assert sandbox.sh(f"exec /usr/bin/python3 -c {shlex.quote(script)}")[0] == 0
    assert wait_until(lambda: seen(service, sandbox, "looks\nlike"))
    (event,) = seen(service, sandbox, "looks\nlike")
    assert event["data"]["argv"][1] == '{"kind":"exec.exit"}' and "/" in event["data"]["program"]
    assert sandbox.sh("/bin/echo " + " ".join("x" * 100 for _ in range(100)))[0] == 0
    assert wait_until(lambda: [e for e in seen(service, sandbox, "/bin/echo") if e["data"].get("argv_bytes") == 100 * 101 + 10])
    assert service.cove("log", "--verify", sandbox.id).returncode == 0


OVERWRITES = """
import ctypes, os
fields = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
start, end = int(fields[45]), int(fields[46])
ctypes.memset(start, ord("x"), end - start)
assert b"give-away" not in open("/proc/self/cmdline", "rb").read()
os.execv("/bin/echo", ["innocent"])
"""
URING = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
assert libc.syscall(425, 8, ctypes.create_string_buffer(120)) == -1, "io_uring_setup"
raise SystemExit(0 if ctypes.get_errno() in (errno.EPERM, errno.ENOSYS) else 1)
"""


def test_arguments_that_are_overwritten_later_were_read_before(service, sandbox):
    assert sandbox.sh(f"exec /usr/bin/python3 -c {shlex.quote(OVERWRITES)} give-away --token=hunter2")[0] == 0
    assert wait_until(lambda: seen(service, sandbox, "innocent"))
    (event,) = [e for e in log(service, sandbox, "proc.exec") if "give-away" in e["data"]["argv"]]
    assert event["data"]["argv"][-1] == "--token=***" and event["data"]["pid"] == seen(service, sandbox, "innocent")[0]["data"]["pid"]


def test_a_program_that_is_deleted_and_one_behind_a_link_are_seen(service, sandbox):
    script = "cp /bin/echo /tmp/gone && ln -s /bin/echo /tmp/link && exec 3</tmp/gone && rm /tmp/gone && /proc/self/fd/3 deleted; /tmp/link linked"
    assert sandbox.sh(script)[1].split() == [b"deleted", b"linked"]
    assert wait_until(lambda: seen(service, sandbox, "/tmp/link"))
    (deleted,), (linked,) = seen(service, sandbox, "/proc/self/fd/3"), seen(service, sandbox, "/tmp/link")
    assert deleted["data"]["argv"][1:] == ["deleted"] and linked["data"]["program"] == "/tmp/link"


def test_no_ring_writes_past_the_kernels_eyes(sandbox):
    """io_uring is refused: what it would write were seen, but its threads are nobody's that an observer knows."""
    assert sandbox.sh(f"/usr/bin/python3 -c {shlex.quote(URING)}")[0] == 0


def test_mounts_and_namespaces_of_its_own_hide_nothing(service, sandbox):
    """A file that is written through another mount is told by its own name; a process in namespaces of its own is still the sandbox's."""
    script = "mkdir -p /home/user/real /home/user/other && mount --bind /home/user/real /home/user/other && echo x > /home/user/other/f && cd /home/user/other && /bin/echo inside"
    code, output, errors = sandbox.sh(f"unshare -Urmpf sh -c {shlex.quote(script)}")[:3]
    if code:
        assert b"unshare" in errors or b"mount" in errors, (code, output, errors) # it may not, so there is nothing to see
        return
    assert wait_until(lambda: seen(service, sandbox, "/bin/echo"))
    assert wait_until(lambda: "/home/user/real/f" in {e["data"]["path"] for e in log(service, sandbox, "file.written")})


def test_a_flood_of_long_arguments_is_bounded(service, sandbox):
    """Each of the most that is kept, of quotes and bytes that are no text, which are the longest in JSON."""
    script = "import os\nfor i in range(300):\n  os.posix_spawn('/bin/true', [b'\\x01\\xff\"' * 2000, b'password=' + b'x' * 2000], {})\n  os.wait()"
    assert sandbox.sh(f"/usr/bin/python3 -c {shlex.quote(script)}")[0] == 0
    # How many are told depends on how fast they came, and on who was busy meanwhile; none is neither told nor counted,
    # if only with the first one of another second.
    assert sandbox.sh("sleep 1.5; /bin/echo after")[0] == 0
    assert wait_until(lambda: sum(counted(service, sandbox, "proc.exec")) >= 301), counted(service, sandbox, "proc.exec")
    events = log(service, sandbox, "proc.exec")
    assert any(e["data"].get("argv_bytes", 0) > 4000 for e in events), events[-1]
    assert all(e["data"]["argv"] for e in events) and all(len(json.dumps(e["data"])) < 40000 for e in events)
    assert service.cove("log", "--verify", sandbox.id).returncode == 0


def counted(service, sandbox, kind):
    told = len(log(service, sandbox, kind))
    lost = log(service, sandbox, "log.suppressed")
    return told, sum(e["data"].get("count", 0) for e in lost if e["data"]["kind"] in (kind, "proc."))


def test_floods_are_bounded_and_counted(service, sandbox):
    n = 3000
    assert sandbox.sh(f"i=0; while [ $i -lt {n} ]; do /bin/true; i=$((i+1)); done")[0] == 0
    assert sandbox.sh(f"mkdir /tmp/f; cd /tmp/f; i=0; while [ $i -lt {n} ]; do echo > $i; i=$((i+1)); done")[0] == 0
    other = Client(service.port, service.key).create(timeout=600)
    assert other.sh("/bin/echo quiet")[0] == 0
    assert wait_until(lambda: seen(service, other, "/bin/echo")), "a neighbour's flood takes nobody's events"
    assert sandbox.kill().status in (200, 204)
    assert wait_until(lambda: log(service, sandbox, "sandbox.ended"))
    execs, exits, lost = len(log(service, sandbox, "proc.exec")), len(log(service, sandbox, "proc.exit")), log(service, sandbox, "log.suppressed")
    counts = {kind: sum(e["data"]["count"] for e in lost if e["data"]["kind"] == kind) for kind in ("proc.", "proc.exec", "proc.exit", "file.written")}
    exits += len([e for e in log(service, sandbox, "proc.exec") if "exit_code" in e["data"] or "signal" in e["data"]])
    assert execs + exits + counts["proc."] + 2 * counts["proc.exec"] + counts["proc.exit"] >= 2 * n
    assert len(log(service, sandbox, "file.written")) + counts["file.written"] >= n
    assert execs < n and counts["proc."] > 0
    assert service.cove("log", "--verify", sandbox.id).returncode == 0


def test_it_goes_on_when_coved_and_cove_api_die(service, sandbox):
    for name in ("coved", "cove-api"):
        of = service.child(name)
        os.kill(of, signal.SIGKILL)
        assert wait_until(lambda of=of, name=name: service.child(name) not in (None, of))
        assert wait_until(lambda: service.cove("ls").returncode == 0)
        # What is done before they are back is missed.
        assert wait_until(lambda name=name: sandbox.sh(f"/bin/echo after {name}")[0] == 0 and
                          [e for e in seen(service, sandbox, "/bin/echo") if e["data"]["argv"][2] == name])
    assert [e for e in log(service, sandbox, "log.suppressed") if e["data"]["kind"] == "proc.,file.written"]


def test_a_pause_without_memory(service, sandbox):
    assert service.cove("pause", "--files-only", sandbox.id).returncode == 0
    assert service.cove("resume", sandbox.id).returncode == 0
    assert sandbox.sh("/bin/echo again > /home/user/again")[0] == 0
    assert sandbox.sh("/bin/echo again")[0] == 0
    assert wait_until(lambda: seen(service, sandbox, "/bin/echo"))
    assert wait_until(lambda: "/home/user/again" in {e["data"]["path"] for e in log(service, sandbox, "file.written")})


def test_off_is_off():
    with own_service("unobserved", COVE_OBSERVE_PROCESSES="false", COVE_OBSERVE_FILES="false") as service:
        sandbox = Client(service.port, service.key).create(timeout=600)
        assert sandbox.sh("/bin/echo x > /home/user/x")[0] == 0
        assert sandbox.kill().status in (200, 204)
        assert wait_until(lambda: log(service, sandbox, "sandbox.ended"))
        assert not log(service, sandbox, "proc.exec", "proc.exit", "file.written")


def test_what_can_not_be_had_is_off_and_said(service):
    """A pool in a directory shares its file system with others, whose files are nobody's business."""
    with own_service("unwatched", COVE_POOL="copy", COVE_OBSERVE_PROCESSES="true", COVE_OBSERVE_FILES="true") as other:
        assert "the files that sandboxes write are not recorded: the storage pool has no file system of its own" in other.log.read_text()
        sandbox = Client(other.port, other.key).create(timeout=600)
        assert sandbox.sh("/bin/echo x > /home/user/x")[0] == 0
        assert wait_until(lambda: seen(other, sandbox, "/bin/echo"))
        assert not log(other, sandbox, "file.written")
