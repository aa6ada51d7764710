# SPDX-License-Identifier: Apache-2.0
"""Isolated sessions of OpenSandbox's API: namespaces within a sandbox's own. What a session does, and what it can't get at."""

import concurrent.futures
import contextlib
import json
import os
import re
import socket
import threading
import time

import pytest
from leaks import own_service
from opensandbox_test import Box, multipart
from service import wait_until


@pytest.fixture(scope="module")
def service():
    with own_service("isolated") as service:
        yield service


@pytest.fixture(scope="module")
def box(service):
    return Box(service, timeout=3000, env={"PLAIN": "seen", "GITHUB_TOKEN": "hidden", "AWS_REGION": "hidden", "my_secret": "hidden"})


class Session:
    def __init__(self, box, path="/place", mode=None, **more):
        self.box = box
        status, self.made = box.execd("POST", "/v1/isolated/session", {"workspace": {"path": path, **({"mode": mode} if mode else {})}, **more})
        assert status == 201, self.made
        self.at = f"/v1/isolated/session/{self.made['session_id']}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.box.execd("DELETE", self.at)[0] == 200

    def events(self, code, **more):
        return self.box.events(self.at + "/run", {"code": code, **more})

    def run(self, code, **more):
        return "\n".join(e["text"] for e in self.events(code, **more) if e["type"] in ("stdout", "stderr"))

    def code(self, code, **more):
        end = self.events(code, **more)[-1]
        return 0 if end["type"] == "execution_complete" else int(end["error"]["evalue"])


def inside(box):
    """Processes of the sandbox, those of its sessions included, and its mounts."""
    return box.run("ls -d /proc/[0-9]* | wc -l; wc -l </proc/self/mounts")


def test_a_session_runs_in_its_workspace(box):
    status, told = box.execd("GET", "/v1/isolated/capabilities")
    assert status == 200 and told["available"] and told["setpriv_available"] and not told["userns_available"] and not told["commit_supported"], told
    with Session(box, "/place/a", mode="rw", idle_timeout_seconds=90) as session:
        assert session.made["workspace"] == {"path": "/place/a", "mode": "rw"} and session.made["profile"] == "strict"
        events = session.events("pwd; echo err >&2; touch made; exit 3")
        assert [e["type"] for e in events] == ["init", "stdout", "stderr", "error"] and events[1]["text"] == "/place/a" and events[3]["error"]["evalue"] == "3", events
        assert session.run("echo $X; pwd", envs={"X": "for one run"}, cwd="/") == "for one run\n/"
        assert session.run("sleep 60 & echo $!").isdigit() and "sleep 60" in session.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        status, state = box.execd("GET", session.at)
        assert status == 200 and state["status"] == "active" and 30 <= state["idle_remaining_seconds"] <= 90 and state["share_net"] is True, state
        assert [s["session_id"] for s in box.execd("GET", "/v1/isolated/sessions")[1]["sessions"]] == [session.made["session_id"]]
        assert session.code("sleep 1000", timeout_seconds=1) == -1
        for stub in ("GET", "/diff"), ("POST", "/commit"):
            assert box.execd(stub[0], session.at + stub[1])[0] == 503
    assert box.run("ls /place/a") == "made"
    assert box.execd("GET", "/v1/isolated/sessions")[1] == {"sessions": []}
    assert box.execd("GET", session.at)[0] == box.execd("DELETE", session.at)[0] == box.execd("POST", session.at + "/run", {"code": "true"})[0] == 404


def test_modes_of_the_workspace(box):
    box.run("mkdir -p /place/m/dir; echo old >/place/m/file; echo gone >/place/m/dir/gone; chmod 750 /place/m; mkdir -p /place/lib; echo lib >/place/lib/file")
    with Session(box, "/place/m") as overlay, Session(box, "/place/m") as other, Session(box, "/place/m", mode="ro") as ro:
        assert overlay.made["workspace"]["mode"] == "overlay"
        assert overlay.run("echo new >file; rm -r dir; mkdir dir; touch dir/b; echo more >added; ls dir; cat file; stat -c %a .") == "b\nnew\n750"
        assert other.run("cat file dir/gone; ls") == "old\ngone\ndir\nfile"
        assert ro.run("cat file; touch x 2>/dev/null || echo refused") == "old\nrefused"
        assert "Read-only" in overlay.run("touch /place/lib/x /etc/x /root/x")
    assert box.run("cat /place/m/file /place/m/dir/gone; ls /place/m") == "old\ngone\ndir\nfile"
    with Session(box, "/place/m", mode="ro", extra_writable=["/place/lib"], binds=[{"source": "/place/m/dir", "dest": "/tmp/bound", "readonly": True}, {"source": "/place/lib", "dest": "/run/lib"}]) as session:
        assert session.run("cat /tmp/bound/gone; touch /tmp/bound/x 2>/dev/null || echo refused; echo 1 >/place/lib/one; cat /run/lib/one") == "gone\nrefused\n1"
    assert box.run("cat /place/lib/one") == "1"


def test_a_session_has_its_own_temporary_files_unless_it_is_balanced(box):
    box.run("echo shared >/tmp/file")
    with Session(box) as strict, Session(box, profile="balanced") as balanced, Session(box, "/tmp/below", mode="rw") as below:
        assert strict.run("find /tmp /run /dev/shm -mindepth 1; stat -c %a /tmp; echo mine >/tmp/file") == "1777"
        assert balanced.run("cat /tmp/file; echo changed >/tmp/file") == "shared" and balanced.made["workspace"]["mode"] == "rw"
        assert below.run("ls /tmp; echo deep >file") == "below"
    assert box.run("cat /tmp/file /tmp/below/file") == "changed\ndeep"


def test_what_a_session_is_told_of_the_environment(box):
    with Session(box) as strict, Session(box, profile="balanced", env_passthrough={"mode": "deny", "keys": ["PLAIN"]}) as less, Session(box, env_passthrough={"mode": "allow", "keys": ["AWS_REGION"]}) as few:
        wanted = "env | grep -E '^(PLAIN|GITHUB_TOKEN|AWS_REGION|my_secret)=' | sort"
        assert strict.run(wanted) == "PLAIN=seen"
        assert less.run(wanted) == "AWS_REGION=hidden\nGITHUB_TOKEN=hidden\nmy_secret=hidden"
        assert few.run(wanted) == "AWS_REGION=hidden"


def test_a_run_in_the_background(box):
    with Session(box, "/place/b", mode="ro", uid=1234, idle_timeout_seconds=1) as session, Session(box, "/place/b", profile="balanced", idle_timeout_seconds=0) as other:
        status, run = box.execd("POST", session.at + "/run", {"code": "echo one; echo two >&2; id -u; sleep 3; exit 3", "background": True, "timeout_seconds": 1})
        assert status == 202 and set(run) == {"session_id", "run_id", "started_at"} and run["session_id"] == session.made["session_id"], run
        at = f"{session.at}/runs/{run['run_id']}"
        told = box.execd("GET", at)[1]
        assert told["running"] and "exit_code" not in told and told["run_id"] == run["run_id"] and told["session_id"] == run["session_id"] and told["started_at"] == run["started_at"], told
        assert wait_until(lambda: box.execd("GET", at + "/logs")[1] == b"one\ntwo\n1234\n")
        cursor = int(box.headers["EXECD-ISOLATED-TAIL-CURSOR"])
        assert cursor == 13 and box.execd("GET", f"{at}/logs?cursor=4") == (200, b"two\n1234\n") and box.execd("GET", f"{at}/logs?cursor={cursor}") == (200, b"")
        assert session.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").count("sleep 3") >= 1 and "sleep 3" not in other.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        assert wait_until(lambda: not box.execd("GET", at)[1]["running"]) # neither idle nor late meanwhile
        told = box.execd("GET", at)[1]
        assert told["exit_code"] == 3 and told["finished_at"] > told["started_at"], told
        assert box.execd("GET", at.replace(session.at, other.at))[0] == 404
        beyond = box.execd("POST", other.at + "/run", {"code": "sleep 1000", "background": True})[1]
        for unknown in "x" * 20, "x", "../x":
            assert box.execd("GET", f"{other.at}/runs/{unknown}")[0] in (404, 501) and box.execd("GET", f"{other.at}/runs/{unknown}/logs")[0] in (400, 501), unknown
        assert Box(box.service).execd("GET", f"{other.at}/runs/{beyond['run_id']}")[0] == 404
        assert box.execd("POST", session.at + "/run", {"code": "true"})[0] == 200 # so that there is still one to be deleted
    assert box.execd("GET", f"{other.at}/runs/{beyond['run_id']}")[0] == 404 and box.run("pgrep -f '^sleep 1000' || echo none") == "none"


def test_a_run_that_is_known_from_the_log_alone_is_told_in_its_session(service):
    assert service.cove("tenant", "create", "rare").returncode == 0
    box, rare = Box(service), Box(service, key=service.cove("key", "create", "--tenant", "rare", "--name", "k").stdout.strip())
    with Session(box, "/place/l") as session, Session(box, "/place/l") as other:
        run = box.execd("POST", session.at + "/run", {"code": "exit 3", "background": True})[1]["run_id"]
        assert wait_until(lambda: not box.execd("GET", f"{session.at}/runs/{run}")[1]["running"])
        by, named = rare.endpoint(44772)
        started = rare.ask("POST", by + "/command", {"command": "true"}, {**named, "X-EXECD-OPERATION-ID": "kept"})[1]
        path, headers = box.endpoint(44772)
        for _ in range(1025): # so many are in memory; who has most of them loses the first ones
            assert box.ask("POST", path + "/command", {"argv": ["true"]}, headers)[0] == 200
        assert rare.ask("GET", f"{by}/command/{json.loads(started.decode().split(chr(10))[0])['text']}/resume", headers=named) == (200, started)
        told = box.execd("GET", f"{session.at}/runs/{run}")
        assert told[0] == 200 and told[1]["exit_code"] == 3 and told[1]["content"] == "exit 3", told
        assert box.execd("GET", f"{other.at}/runs/{run}")[0] == 404
        assert box.execd("GET", f"/command/status/{run}")[1]["exit_code"] == 3
    for each in box, rare:
        assert each.ask("DELETE", f"/v1/sandboxes/{each.id}")[0] == 204
    assert wait_until(lambda: service.cove("tenant", "rm", "rare").returncode == 0)


def test_what_sessions_are_of_is_bounded(service):
    """What they were asked for is told as long as they are there."""
    assert service.cove("tenant", "create", "hermit").returncode == 0
    key = service.cove("key", "create", "--tenant", "hermit", "--name", "k").stdout.strip()
    boxes, seen = [Box(service, key=key) for _ in range(5)], []
    for box in boxes:
        path, headers = box.endpoint(44772)
        for _ in range(16):
            seen += [box.ask("POST", path + "/v1/isolated/session", {"workspace": {"path": "/place", "mode": "ro"}, "env_passthrough": {"keys": ["#" * 4190000]}}, headers)[0]]
            if seen[-1] != 201: # so is each that follows, which takes a fifth of a second of a processor
                break
    assert set(seen) == {201, 429} and 50 < seen.count(201) < 63, seen
    for box in boxes:
        assert box.ask("DELETE", f"/v1/sandboxes/{box.id}")[0] == 204
    assert wait_until(lambda: service.cove("tenant", "rm", "hermit").returncode == 0)


# A message that asks for a copy of itself, with the time at which it went: such copies wait in memory that no control group counts.
COPY = r"""
import socket, struct
to, s = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
to.bind(("127.0.0.1", 0))
s.sendmsg([b"x" * 1000], [(socket.SOL_SOCKET, 37, struct.pack("I", 2))], 0, to.getsockname())
print(len(to.recv(2000)))
s.recvmsg(2000, 1000, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
print("a copy")
"""


@pytest.mark.parametrize("share_net", [True, False])
def test_no_copies_of_what_is_sent_wait_in_a_session(box, share_net):
    with Session(box, share_net=share_net) as session:
        said = session.run(f"python3 - <<'END'\n{COPY}\nEND")
        assert said.startswith("1000\n") and "BlockingIOError" in said and "a copy" not in said, said


def test_a_session_has_few_of_the_machine_s_terminals(box):
    with Session(box) as session:
        assert session.run("python3 -c 'import os\nfor n in range(100): print(n, flush=True); os.openpty()' 2>/dev/null").split()[-1] == "16"


def test_a_sandbox_that_stops_what_makes_its_sessions_makes_nobody_else_wait(service):
    """Each time it takes two seconds to find that out, and two sessions are made at a time."""
    def made(box):
        begin = time.monotonic()
        status, answer = box.execd("POST", "/v1/isolated/session", {"workspace": {"path": "/place/h"}})
        return status, time.monotonic() - begin
    def keep(box):
        while not done.is_set():
            seen.append(made(box))
    good, bad = Box(service), [Box(service) for _ in range(6)]
    for box in bad:
        box.run(f"cat >/tmp/prey.py <<'END'\n{PREY.replace('+ 6', '+ 600')}\nEND\nsetsid python3 /tmp/prey.py 19 >/dev/null 2>&1 </dev/null &")
    done, seen = threading.Event(), []
    keepers = [threading.Thread(target=keep, args=(box,)) for box in bad * 2]
    for keeper in keepers:
        keeper.start()
    try:
        assert wait_until(lambda: [status for status, _ in seen].count(504) > 6), seen
        times = [made(good) for _ in range(5)]
        usual = lambda of: sorted(took for _, took in of)[len(of) // 2]
        assert {status for status, _ in times} == {201} and usual(times) < usual(seen) / 2, (times, seen)
    finally:
        done.set()
        for box in bad:
            box.ask("DELETE", f"/v1/sandboxes/{box.id}")
        for keeper in keepers:
            keeper.join()
    assert good.ask("DELETE", f"/v1/sandboxes/{good.id}")[0] == 204


def test_another_user_and_no_network(box):
    with Session(box, uid=1234, gid=2345) as session:
        assert session.run("id -u; id -g; touch /tmp/x; kill -9 1 2>&1 || echo refused").endswith("refused")
        assert session.run("id -u; id -g") == "1234\n2345"
    with Session(box, share_net=False) as session:
        assert session.run("cat /proc/net/dev | grep -c :; ip addr show lo 2>/dev/null | grep -c LOOPBACK || true").startswith("1")
        assert session.code("python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(); socket.create_connection(s.getsockname())'") == 0
        assert session.code("timeout 5 python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 53))'") != 0


def test_files_of_a_session_are_what_its_programs_see(box):
    box.run("mkdir -p /place/f; echo below >/place/f/kept; echo below >/place/f/lost")
    with Session(box, "/place/f") as session:
        ask = lambda method, target, body=None: box.execd(method, session.at + target, body)
        body, kind = multipart(("metadata", json.dumps({"path": "/place/f/up", "mode": 640}).encode()), ("file", b"uploaded"))
        path, headers = box.endpoint(44772)
        assert box.ask("POST", path + session.at + "/files/upload", body, {**headers, "Content-Type": kind})[0] == 200
        assert session.run("cat up; stat -c %a up") == "uploaded640"
        assert ask("GET", "/files/download?path=/place/f/up")[1] == b"uploaded"
        assert ask("DELETE", "/files?path=/place/f/lost")[0] == 200
        assert ask("POST", "/files/mv", [{"src": "/place/f/up", "dest": "/place/f/new/up"}])[0] == 200
        assert ask("POST", "/files/replace", {"/place/f/kept": {"old": "below", "new": "above"}})[0] == 200
        assert ask("POST", "/directories", {"/place/f/d": {"mode": 700}})[0] == 200 and ask("DELETE", "/directories?path=/place/f/d")[0] == 200
        assert sorted(e["path"] for e in ask("GET", "/files/search?path=/place/f&pattern=*")[1]) == ["/place/f/kept", "/place/f/new/up"]
        assert list(ask("GET", "/files/info?path=/place/f/new/up")[1].values())[0]["mode"] == 640
        assert ask("DELETE", "/files?path=/etc/hostname")[0] == 500 and box.run("cat /etc/hostname")
        assert ask("GET", "/files/info?path=/tmp/nothing")[0] == 404
        assert box.execd("GET", "/v1/isolated/session/none/files/info?path=/place/f")[0] == 404
    assert box.run("cat /place/f/*; ls /place/f") == "below\nbelow\nkept\nlost"
    with Session(box, "/place/f", mode="ro") as session:
        assert box.execd("POST", session.at + "/directories", {"/place/f/d": {}})[0] == 403
        assert box.execd("GET", session.at + "/files/info?path=/place/f/kept")[0] == 200


# Each line is tried as root of the session and has to fail; a line that succeeds is told.
ESCAPES = r"""
try() { if ( "$@" ) >/dev/null 2>&1; then echo "got: $*"; fi; }
try unshare -m true
try unshare -U true
try unshare -p -f true
try unshare -n true
try nsenter -t 1 -a true
try mount -t tmpfs none /mnt
try mount -o remount,rw /
try mount --bind / /mnt
try umount /tmp
try umount -l /proc
try umount -l /place
try chroot /proc/1/root true
try ls /proc/1/root/
try readlink /proc/1/fd/3
try readlink /proc/1/exe
try cat /proc/1/environ
try ls /proc/1/cwd/
try cat /proc/1/mem
try cat /proc/kcore
try sh -c 'echo x >/proc/sysrq-trigger'
try sh -c 'echo 1 >/proc/sys/kernel/ns_last_pid'
try sh -c 'echo x >/proc/sys/kernel/hostname'
try mknod /tmp/disk b 8 0
try touch /etc/escaped
try touch /usr/escaped
try touch /home/escaped
try hostname escaped
try kill -9 -1 </dev/null
"""


def test_a_session_sees_no_process_and_no_file_of_another(box):
    box.run("setsid sleep 7777 >/dev/null 2>&1 </dev/null & echo $! >/tmp/victim")
    with Session(box, "/place/x") as one, Session(box, "/place/x") as other:
        other.run("echo secret >/tmp/secret; echo secret >/dev/shm/secret; echo secret >/place/x/secret; setsid sleep 6666 >/dev/null 2>&1 </dev/null &")
        seen = one.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls -A /tmp /dev/shm /place/x; ls -d /proc/[0-9]* | wc -l")
        assert "7777" not in seen and "6666" not in seen and "secret" not in seen and int(seen.split()[-1]) < 6, seen
        # the numbers of the sandbox's processes lead to none, or to the session's own
        assert box.run("kill -0 $(cat /tmp/victim) && echo lives") == "lives"
        one.run("for p in $(seq 2 400); do [ $p = $$ ] || kill -9 $p 2>/dev/null; done; true")
        assert box.run("kill -0 $(cat /tmp/victim) && echo lives") == "lives" and "6666" in other.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        # the message queues and the shared memory are its own
        ipc = "python3 -c 'import ctypes; print(ctypes.CDLL(None).shmget(4711, 4096, %s) >= 0)'"
        assert other.run(ipc % "0o1666") == "True" and one.run(ipc % "0") == "False" and box.run(ipc % "0") == "False"


def test_a_session_gets_nowhere_as_root(box):
    with Session(box, "/place/x") as session:
        assert session.run("sed -n 's/^Cap\\(Prm\\|Bnd\\):\\t//p; s/^Seccomp:\\t//p' /proc/self/status") == box.run("sed -n 's/^Cap\\(Prm\\|Bnd\\):\\t//p; s/^Seccomp:\\t//p' /proc/self/status")
        assert session.run(ESCAPES) == "", "a way out"
        for source in "/proc/cmdline", "/proc/cpuinfo", "/proc/meminfo", "/proc/sys/kernel/random/boot_id":
            assert session.run(f"cat {source}")[:12] == box.run(f"cat {source}")[:12], source
        assert session.run("for f in kcore keys kallsyms kmsg timer_list config.gz; do [ ! -s /proc/$f ] || [ -c /proc/$f ] || echo $f; done; ls -A /proc/acpi /proc/fs /proc/scsi 2>/dev/null | grep -v :; true").strip() == ""
        assert session.run("cat /proc/self/cgroup") == box.run("cat /proc/self/cgroup")
        assert box.run("id -u; unshare -m true || echo refused").endswith("refused") # and the sandbox's own programs make none either


# For some seconds, in the sandbox: what of processes that are no program's of the sandbox can be opened, or a signal to each of them.
PREY = r"""
import os, sys, time
end, seen, signal = time.time() + 6, set(), int(sys.argv[1])
read = lambda path: open(path, "rb").read(1)
while time.time() < end:
    for p in os.listdir("/proc"):
        if not p.isdigit() or p == "1":
            continue
        try:
            name = open(f"/proc/{p}/comm").read().strip()
        except OSError:
            continue
        if "cove" not in name and not name.isdigit():
            continue
        seen.add("seen")
        if signal:
            try:
                os.kill(int(p), signal)
            except OSError:
                pass
            continue
        for path, get in (("environ", read), ("mem", lambda f: open(f, "r+b")), ("maps", read), ("root/", os.listdir), ("cwd/", os.listdir), ("exe", os.readlink),
                          *((f"fd/{n}", os.readlink) for n in (0, 1, 2, 3, 4, 5, 6, 64, 65)), ("ns/mnt", os.readlink), ("task/" + p + "/environ", read)):
            try:
                if get(f"/proc/{p}/{path}"): # of one that has ended there is nothing to be read
                    seen.add(f"{name} {path}")
            except OSError:
                pass
print(*sorted(seen), sep=", ")
"""


def test_nobody_inside_gets_at_a_session_that_is_being_made(box):
    box.run(f"cat >/tmp/prey.py <<'END'\n{PREY}\nEND")
    for signal in 0, 9, 19:
        hunt = [None]
        hunter = threading.Thread(target=lambda: hunt.__setitem__(0, box.run(f"python3 /tmp/prey.py {signal}"))) # noqa: B023
        hunter.start()
        made = []
        while hunter.is_alive() and len(made) < 40:
            status, answer = box.execd("POST", "/v1/isolated/session", {"workspace": {"path": "/place/h"}})
            made.append(status)
            assert status in ((201,) if not signal else (201, 400, 500, 503, 504)), answer
            if status == 201:
                assert box.execd("DELETE", f"/v1/isolated/session/{answer['session_id']}")[0] == 200
        hunter.join()
        assert hunt[0] == "seen" and made, (signal, hunt, made)
        if signal == 19:
            box.run("for p in /proc/[0-9]*; do [ $p = /proc/1 ] || kill -CONT ${p#/proc/} 2>/dev/null; done; true")
        with Session(box, "/place/h") as session: # and the next one is as ever
            assert session.run("echo here") == "here"
    assert box.execd("GET", "/v1/isolated/sessions")[1] == {"sessions": []}


# For some seconds, in the sandbox: which files of processes that are just born, and that anybody may read, hold a mark of the host's. Their numbers are known before.
FOREIGN = r"""
import json, os, re, sys, time
path, mark = sys.argv[1], re.compile(sys.argv[2].encode(), re.M)
told, n, end = set(), 0, time.time() + 10
while time.time() < end:
    pid = os.fork() # which says what number the next one has
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    for _ in range(2000):
        for ahead in 1, 2, 3:
            try:
                fd = os.open(f"/proc/{pid + ahead}/{path}", os.O_RDONLY)
            except OSError:
                continue
            pid += ahead
            with open(fd, "rb") as f:
                try:
                    told |= {path} if mark.search(f.read()) else set()
                    n += 1
                except OSError:
                    pass
            break
print(n > 0, *told)
"""


def test_nothing_of_the_host_is_read_of_a_session_that_is_being_made(service, box):
    box.run(f"cat >/tmp/foreign.py <<'END'\n{FOREIGN}\nEND")
    with open(f"/proc/{service.coved_pid}/mountinfo") as f:
        mounts = "|".join(line.split()[0] for line in f)
    with socket.socket(socket.AF_UNIX) as unix, socket.socket() as tcp:
        unix.bind(f"\0a-mark-of-the-host-{os.getpid()}")
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        marks = {"net/unix": f"@a-mark-of-the-host-{os.getpid()}", "net/tcp": f":{tcp.getsockname()[1]:04X} 00000000:0000 0A", "mountinfo": f"^({mounts}) "}
        for path, mark in marks.items():
            with open(f"/proc/{service.coved_pid}/{path}") as f:
                assert re.search(mark, f.read(), re.M), path
        for path, mark in marks.items():
            with concurrent.futures.ThreadPoolExecutor() as pool:
                hunt = pool.submit(box.run, f"python3 /tmp/foreign.py {path} '{mark}'")
                while not hunt.done():
                    with Session(box, "/place/h"):
                        pass
            assert hunt.result() == "True", path


@contextlib.contextmanager
def rules(service, box, text):
    assert service.cove("guard", "set", "-", box.id, input=text).returncode == 0
    yield
    assert service.cove("guard", "rm", box.id).returncode == 0


def held(service, box):
    return [a["id"] for a in json.loads(service.cove("approvals", "--json").stdout) if a["on"] == box.id]


def test_a_run_that_waits_for_an_answer(service, box):
    with rules(service, box, "rules: [{kind: exec.start, verdict: ask}]\n"):
        for answer, expected in ("approve", "keeps"), ("deny", "keeps"), ("approve", "deleted"):
            session, got = Session(box, "/place/q", idle_timeout_seconds=1), []
            runner = threading.Thread(target=lambda: got.append(box.execd("POST", session.at + "/run", {"code": "echo ran"}))) # noqa: B023
            runner.start()
            assert wait_until(lambda: held(service, box))
            hold = held(service, box)[0]
            time.sleep(3) # what waits is no idle session
            assert box.execd("GET", session.at)[0] == 200
            if expected == "deleted":
                assert box.execd("DELETE", session.at)[0] == 200
            service.cove(answer, hold)
            runner.join(60)
            assert not runner.is_alive()
            if expected == "deleted":
                assert not got or got[0][0] == 404, got
            else:
                assert got[0][0] == (200 if answer == "approve" else 403) and (answer == "deny" or b"ran" in got[0][1]), got
                assert wait_until(lambda: box.execd("GET", session.at)[0] == 404) # noqa: B023
    with Session(box, "/place/q") as session:
        assert session.run("echo there") == "there"


def test_those_that_are_being_made_count(service):
    box = Box(service)
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        made = list(pool.map(lambda _: box.execd("POST", "/v1/isolated/session", {"workspace": {"path": "/place/p"}, "mode": "ro"})[0], range(60)))
    assert made.count(201) == len(box.execd("GET", "/v1/isolated/sessions")[1]["sessions"]) == 16 and made.count(429) == 44, made
    assert box.ask("DELETE", f"/v1/sandboxes/{box.id}")[0] == 204


def test_links_in_the_way_and_what_is_no_workspace(box):
    box.run("ln -sfn /etc /place/link; echo >/place/plain; mkdir -p /place/sub; ln -sfn / /place/sub/up")
    for path in "/", "/proc/sys", "/dev/shm/x", "relative", "/a/../b", "/x" * 200, "", "/sys":
        assert box.execd("POST", "/v1/isolated/session", {"workspace": {"path": path}})[0] == 400, path
    for path in "/place/link", "/place/plain", "/place/sub/up", "/place/sub/up/etc":
        assert box.execd("POST", "/v1/isolated/session", {"workspace": {"path": path}})[0] == 400, path
    for wrong in ({"profile": "loose"}, {"uid": -1}, {"gid": 5}, {"env_passthrough": {"mode": "some"}}, {"share_net": 1}, {"binds": [{"dest": "/x"}]}, {"binds": [{"source": "/none"}]}, {"binds": [{"source": "/place", "dest": "/proc/x"}]},
                  {"binds": [{"source": "/place"}] * 9}, {"extra_writable": ["relative"]}, {"idle_timeout_seconds": -1}, {"workspace": {}}, {"workspace": {"path": "/place", "mode": "rx"}}, {"uid_mode": "none"}):
        status, answer = box.execd("POST", "/v1/isolated/session", {"workspace": {"path": "/place/w"}, **wrong})
        assert status == 400 and set(answer) == {"code", "message"}, (wrong, answer)
    assert box.execd("POST", "/v1/isolated/session", {"workspace": {"path": "/place/w"}, "uid_mode": "userns"})[0] == 503
    assert box.execd("GET", "/v1/isolated/sessions")[1] == {"sessions": []}
    with Session(box) as session:
        for wrong in ({}, {"code": ""}, {"code": 1}, {"code": "true", "timeout_seconds": 0}):
            assert box.execd("POST", session.at + "/run", wrong)[0] == 400, wrong
        assert box.execd("POST", session.at + "/run", {"code": "true", "hooks": {"a": 1}})[0] == 501
        other = Box(box.service)
        assert other.execd("POST", session.at + "/run", {"code": "true"})[0] == other.execd("DELETE", session.at)[0] == 404


def test_a_session_ends_with_all_that_it_had(service):
    box = Box(service)
    before = inside(box)
    for _ in range(3):
        with Session(box, "/place/e") as session:
            session.run("for i in 1 2 3; do setsid sleep 500 >/dev/null 2>&1 </dev/null & done; dd if=/dev/zero of=/place/e/big bs=1M count=8 2>/dev/null")
    assert wait_until(lambda: inside(box) == before), (inside(box), before)
    # when idle
    session = Session(box, idle_timeout_seconds=1)
    assert wait_until(lambda: box.execd("GET", session.at)[0] == 404) and wait_until(lambda: inside(box) == before)
    # not while something runs
    session = Session(box, idle_timeout_seconds=1)
    assert session.run("sleep 4; echo there") == "there"
    assert wait_until(lambda: box.execd("GET", session.at)[0] == 404)
    # its first process dies: it is dead, and says so
    with Session(box) as session:
        box.run("for p in /proc/[0-9]*; do [ \"$(cat $p/comm 2>/dev/null)\" != cove-agent ] || [ $p = /proc/1 ] || kill -9 ${p#/proc/}; done")
        assert wait_until(lambda: box.execd("GET", session.at)[1]["status"] == "dead")
        assert box.execd("POST", session.at + "/run", {"code": "true"})[0] == 404
    assert wait_until(lambda: inside(box) == before)
    # with its sandbox, and no more of them than a sandbox may have
    whole = Box(service)
    made = [Session(whole, mode="ro") for _ in range(16)]
    assert whole.execd("POST", "/v1/isolated/session", {"workspace": {"path": "/place"}})[0] == 429
    made[0].run("setsid sleep 500 >/dev/null 2>&1 </dev/null &")
    assert whole.ask("DELETE", f"/v1/sandboxes/{whole.id}")[0] == 204


def test_what_is_recorded_and_what_a_pause_does(service, box):
    session = Session(box, "/place/r", mode="rw")
    assert session.run("echo recorded; setsid sh -c 'while sleep 0.1; do echo >>/place/r/beat; done' >/dev/null 2>&1 </dev/null &") == "recorded"
    assert box.ask("POST", f"/v1/sandboxes/{box.id}/pause")[0] == 202
    assert wait_until(lambda: box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["status"]["state"] == "Paused")
    assert box.execd("POST", session.at + "/run", {"code": "true"})[0] == 503
    assert box.ask("POST", f"/v1/sandboxes/{box.id}/resume")[0] == 202
    assert wait_until(lambda: box.ask("GET", f"/v1/sandboxes/{box.id}")[1]["status"]["state"] == "Running")
    before = session.run("wc -l <beat")
    assert wait_until(lambda: session.run("wc -l <beat") != before) # with memory: all that ran goes on
    assert box.execd("DELETE", session.at)[0] == 200
    said = service.cove("log", "--json", box.id).stdout
    events = [json.loads(line) for line in said.splitlines()]
    kinds = [e["kind"] for e in events]
    assert kinds.count("sandbox.nest") >= kinds.count("sandbox.nested") > 5 and "sandbox.unnested" in kinds
    made = [e for e in events if e["kind"] == "sandbox.nest"][-1]
    assert made["data"] == {"workspace": "/place/r", "mode": "rw", "own_tmp": True} and made["actor"].startswith("opensandbox"), made
    started = next(e for e in events if e["kind"] == "exec.started" and "nest_pid" in e["data"])
    assert any(e["kind"] == "exec.output" and e["cause"] == started["cause"] for e in events)


def test_what_a_sandbox_keeps_of_its_commands_is_its_roots_alone(box):
    made = box.execd("POST", "/session", {})[1]["session_id"]
    at = f"/run/cove-opensandbox/{made}.session"
    plant = f"echo 'touch /root/planted' >>{at}; ls -d /run/cove-opensandbox /tmp/.opensandbox; true"
    with Session(box, "/place/kept", profile="balanced") as session:
        assert "opensandbox'" in (told := session.run(plant)) and "\n/run" not in told, told
    assert "ermission denied" in box.run(plant, uid=1000) and box.run("stat -c %a:%u /run/cove-opensandbox") == "700:0"
    log = next(e["text"] for e in box.events("/command", {"command": "id -u", "background": True, "uid": 1000}))
    assert wait_until(lambda: box.execd("GET", f"/command/{log}/logs") == (200, b"1000\n"))
    assert box.events(f"/session/{made}/run", {"command": "ls /root/planted"})[-1]["type"] == "error"
    box.run("rm -r /run/cove-opensandbox && mkdir /run/cove-opensandbox && chown 1000 /run/cove-opensandbox")
    try: # another one's directory is not written to
        assert box.execd("POST", "/session", {})[0] == 400
    finally:
        box.run("rm -r /run/cove-opensandbox")
