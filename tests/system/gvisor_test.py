# SPDX-License-Identifier: Apache-2.0
"""The tier gvisor: the same life, files, network and limits, behind a kernel that is not the host's. Skipped, and says so, where there is no runsc."""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from client import wait_for
from clones import SECRETS, TELLER, facts, share_none
from leaks import BUILD, pids, running
from service import children, coved_of, link, read

WHY_NOT = next((p["detail"] for p in json.loads(subprocess.run([BUILD / "coved", "doctor", "--json"], capture_output=True, check=False).stdout)["probes"]
                if p["name"] == "tier gvisor" and p["status"] != "ok"), None)
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=f"no gVisor here: {WHY_NOT} (docs/TIERS.md)")


@pytest.fixture(scope="module")
def module_service():
    with running(name="gvisor", COVE_TIER="gvisor") as (service, client):
        yield service, client


def test_its_kernel_is_not_the_host_s(live):
    _, client = live
    sandbox = client.create()
    code, out, err = sandbox.sh("uname -r; dmesg | head -3; id -un; echo $COVE_SANDBOX_ID; pwd")
    assert code == 0 and os.uname().release not in out.decode(), (code, out, err)
    assert b"gVisor" in out and sandbox.id.encode() in out
    assert sandbox.sh("sudo id -u; ls -d /etc")[1] == b"0\n/etc\n"
    assert client.native("GET", f"/cove/v1/sandboxes/{sandbox.id}").json["tier"] == "gvisor"


def test_files_processes_and_python(live):
    _, client = live
    sandbox = client.create()
    assert sandbox.upload("/home/user/f", b"x" * 3000000).status == 200
    assert sandbox.download("/home/user/f").body == b"x" * 3000000
    assert sandbox.sh("python3 -c 'print(6 * 7)'; ls -l f | cut -d\" \" -f3", user="user")[1] == b"42\nuser\n"
    with sandbox.start("/bin/sh", "-c", "read x; echo got $x; exit 3", stdin=True) as stream:
        pid = stream.started().pid
        sandbox.unary("process.Process/SendInput", {"process": {"pid": pid}, "input": {"stdin": "aGkK"}})
        assert stream.rest()[:2] == (3, b"got hi\n")
    assert wait_for(lambda: sandbox.kill().status == 204)


def test_pause_snapshot_and_fork(live):
    _, client = live
    sandbox = client.create()
    sandbox.sh("(while :; do date +%s%N > /home/user/now; sleep 0.05; done) >/dev/null 2>&1 & echo kept > /home/user/kept")
    assert wait_for(lambda: sandbox.sh("cat /home/user/now")[1])
    assert client.post(f"sandboxes/{sandbox.id}/pause")[0] == 200
    begin = time.time_ns()
    time.sleep(0.3)
    assert client.post(f"sandboxes/{sandbox.id}/resume")[0] == 200
    assert wait_for(lambda: int(sandbox.sh("cat /home/user/now")[1] or 0) > begin) # it is empty while it is written
    status, made = client.post(f"sandboxes/{sandbox.id}/fork", {"count": 2})
    assert status == 201, made
    for fork in made["forks"]:
        assert fork["sandbox"]["tier"] == "gvisor"
    assert client.post(f"sandboxes/{sandbox.id}/pause", {"memory": False})[0] == 200
    assert client.post(f"sandboxes/{sandbox.id}/resume")[0] == 200
    assert sandbox.sh("cat /home/user/kept")[1] == b"kept\n"


BUSY = """
import hashlib, mmap, os, queue, signal, subprocess, sys, threading, time
def compute():
    assert hashlib.sha256(bytes(100000)).hexdigest()[:8] == "9192c25b" and sum(i * i for i in range(10000)) == 333283335000
def fork():
    child = os.fork()
    if not child:
        os._exit(sum(bytearray(b"x" * 4096)) % 7)
    assert os.waitpid(child, 0)[1] == 4096 * 120 % 7 << 8
def shell():
    assert subprocess.run(["sh", "-c", "echo $(expr 6 '*' 7) | tr 4 5"], capture_output=True).stdout == b"52\\n"
def alarms():
    os.getppid()
    time.sleep(0.001)
    assert not hits or hits.pop() == signal.SIGALRM
def threads():
    for i in range(50):
        asked.put(i)
    assert sorted(told.get() for _ in range(50)) == list(range(1, 51))
def crowd():
    child = os.fork()
    if not child:
        many = [threading.Thread(target=lambda: hits.append(sum(range(20000)))) for _ in range(3)]
        [thread.start() for thread in many]
        [thread.join() for thread in many]
        os._exit(hits == [199990000] * 3)
    assert os.waitpid(child, 0)[1] == 1 << 8
def files():
    data = os.urandom(50000)
    open("/home/user/data", "wb").write(data)
    os.write(pipe[1], data[:4000])
    assert open("/home/user/data", "rb").read() == data and os.read(pipe[0], 4000) == data[:4000]
def maps():
    with mmap.mmap(-1, 1 << 18) as m:
        for i in range(0, 1 << 18, 4096):
            m[i] = i >> 12
        assert all(m[i] == i >> 12 for i in range(0, 1 << 18, 4096))
work, asked, told, hits, pipe = globals()[sys.argv[1]], queue.Queue(), queue.Queue(), [], os.pipe()
if work is threads:
    for _ in range(6):
        threading.Thread(target=lambda: [told.put(asked.get() + 1) for _ in iter(int, 1)], daemon=True).start()
if work is alarms:
    signal.signal(signal.SIGALRM, lambda number, _: hits.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
rounds = 0
while rounds < 5 or not os.path.exists("/home/user/enough"):
    work()
    rounds += 1
    if rounds == 5:
        print("works", flush=True)
print("done", flush=True)
os._exit(0)
"""


@pytest.mark.when_changed
def test_its_programs_bear_being_frozen_at_any_moment(live):
    _, client = live
    sandbox = client.create()
    assert sandbox.upload("/home/user/busy.py", BUSY.encode()).status == 200
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(sandbox.start("python3", "/home/user/busy.py", kind, timeout=600))
                   for kind in ("compute", "fork", "crowd", "shell", "alarms", "threads", "files", "maps")]
        for stream in streams:
            assert next(stream.output())[1] == b"works\n"
        for _ in range(150):
            assert client.post(f"sandboxes/{sandbox.id}/pause")[0] == 200
            assert client.post(f"sandboxes/{sandbox.id}/resume")[0] == 200
        for _ in range(3):
            assert client.post(f"sandboxes/{sandbox.id}/snapshots")[0] == 201
            assert client.post(f"sandboxes/{sandbox.id}/snapshots", {"memory": True})[0] == 201
        assert sandbox.sh("touch /home/user/enough")[0] == 0
        assert [stream.rest() for stream in streams] == [(0, b"done\n", b"")] * len(streams)


@pytest.mark.when_changed
def test_where_systrap_runs_nothing_it_has_ptrace(tmp_path):
    """Nor does memory of the one go on in the other. A host without a program that could be tried stands for one where none runs."""
    program = tmp_path / "coved"
    program.write_text(f"#!/bin/sh\nexec unshare -m sh -c 'mount --bind /dev/null /bin/true && exec {BUILD}/coved \"$@\"' coved \"$@\"\n")
    program.chmod(0o755)
    with running(name="gvisor-ptrace", COVE_TIER="gvisor") as (service, client):
        sandbox, memory = client.create(), []
        assert sandbox.sh("echo word > /home/user/word")[0] == 0
        memory.append(client.post(f"sandboxes/{sandbox.id}/snapshots", {"memory": True})[1]["ref"])
        assert "platform systrap" not in read(service.log)
        (service.run / "runsc-tried").unlink() # what has run once on this boot isn't tried again
        service.stop()
        service.start(program)
        assert "runs no program on the platform systrap" in read(service.log)
        fresh = client.create()
        sentries = [read(f"/proc/{parts(pid)['runsc-sandbox']}/cmdline") for pid in firsts(service)]
        name = fresh.sh("hostname")[1].decode().strip()
        assert ["--platform=ptrace" in line for line in sentries if name in line] == [True], sentries
        status, answer = client.post("sandboxes", {"template": memory[0]})
        assert status >= 400 and "another version of the tier" in answer["error"]["message"], answer
        status, cold = client.post("sandboxes", {"template": memory[0], "memory": False})
        assert status == 201 and inside(service, cold["id"], "cat /home/user/word") == "word\n"
        memory.append(client.post(f"sandboxes/{fresh.id}/snapshots", {"memory": True})[1]["ref"])
        assert not (service.run / "runsc-tried").exists()
        service.stop()
        service.start()
        assert client.create(templateID=memory[0]).works()
        status, answer = client.post("sandboxes", {"template": memory[1]})
        assert status >= 400 and "another version of the tier" in answer["error"]["message"], answer
        client.remove_all()


def test_its_network_is_judged_like_all(live):
    _, client = live
    status, made = client.post("sandboxes", {"network": {"default": "deny", "rules": []}})
    assert status == 201, made
    sandbox = client.create()
    code, out, err = sandbox.sh("cat /proc/net/dev; curl -sm 10 http://198.51.100.7/ -o /dev/null -w '%{http_code}'; echo; "
                                "curl -sm 5 http://10.0.0.1/ -o /dev/null -w '%{http_code}'")
    assert b"eth0" in out, (code, out, err)
    probe = ("import socket, time\nb = time.time()\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('8.8.8.8', 123))\n"
             "s.send(b'x')\ntry:\n s.recv(10)\nexcept ConnectionRefusedError:\n print('refused')\nprint(time.time() - b < 3)\n")
    assert sandbox.sh(f"python3 -c \"{probe}\"")[1] == b"refused\nTrue\n"
    ping = ("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP); s.settimeout(2)\n"
            "for to in ('10.200.0.1', '198.51.100.66', '127.0.0.1'):\n try:\n  s.sendto(bytes([8, 0, 0, 0, 0, 1, 0, 1]), (to, 0)); print(s.recv(100)[0])\n"
            " except OSError:\n  print('silent')\n")
    assert sandbox.sh(f"python3 -c \"{ping}\"", user="root")[1].split()[:2] == [b"silent", b"silent"]
    kinds = client.kinds(sandbox.id)
    assert "net.denied" in kinds or "net.connect" in kinds or "net.failed" in kinds, kinds


def test_it_outlives_coved_and_is_ended(live):
    service, client = live
    sandbox = client.create()
    with sandbox.start("/bin/sh", "-c", "sleep 1; echo still here") as stream:
        stream.started()
        os.kill(coved_of(service.coved.pid), signal.SIGKILL)
        assert stream.rest()[1] == b"still here\n"
    assert wait_for(sandbox.works)
    assert sandbox.kill().status == 204


def test_memory_is_limited(live):
    service, client = live
    status, made = client.post("sandboxes", {"memory_bytes": 128 << 20})
    assert status == 201, made
    one = client.native("GET", f"/cove/v1/sandboxes/{made['id']}").json
    assert one["memory_bytes"] == 128 << 20
    assert service.cove("exec", made["id"], "--", "python3", "-c", "x = b'x' * (1 << 30)").returncode != 0
    assert wait_for(lambda: client.native("GET", f"/cove/v1/sandboxes/{made['id']}").json.get("end_cause") == "oom")


def parts(of):
    """{name: pid} of what a sandbox is on the host."""
    below = " ".join(read(path) or "" for path in Path(f"/proc/{of}/task").glob("*/children")).split() # runsc has threads
    return {"first": of, **{read(f"/proc/{pid}/cmdline").split("\0")[0]: int(pid) for pid in below}}


def firsts(service):
    return {pid for pid in children(service.coved.pid) if "runsc-sandbox" in parts(pid)}


def first_of(service, sandbox):
    name = sandbox.sh("hostname")[1].decode().strip()
    return next(pid for pid in firsts(service) if name in read(f"/proc/{parts(pid)['runsc-sandbox']}/cmdline"))


def test_sentries_that_never_answer_keep_nobody_else_waiting(live):
    """As many as there are places for what takes long. Told to save their memory, they do nothing."""
    service, client = live
    good, bad = client.create(), [client.create() for _ in range(4)]
    bodies = [first_of(service, sandbox) for sandbox in bad]
    sentries = [parts(body)["runsc-sandbox"] for body in bodies]
    answers = []
    askers = [threading.Thread(target=lambda of=of: answers.append(client.control("POST", f"/cove/v1/sandboxes/{of.id}/snapshots", {"memory": True}, timeout=300)))
              for of in bad]
    for pid in sentries:
        os.kill(pid, signal.SIGSTOP)
    try:
        for asker in askers:
            asker.start()
        assert wait_for(lambda: len(asking(bodies)) == len(bad)), service.tail()
        assert client.control("POST", f"/cove/v1/sandboxes/{good.id}/snapshots", {}, timeout=20).status == 201
        os.kill(coved_of(service.coved.pid), signal.SIGKILL) # who asks them ends with it
        assert wait_for(lambda: not asking(bodies)), service.tail()
    finally:
        for pid in sentries:
            os.kill(pid, signal.SIGCONT)
        for asker in askers:
            asker.join()
    assert all(wait_for(of.works) for of in bad), (answers, service.tail())


def asking(bodies):
    """Processes in these that wait for their sentries."""
    spaces = {link(f"/proc/{pid}/ns/user") for pid in bodies}
    return [pid for pid in pids() if link(f"/proc/{pid}/ns/user") in spaces and "\0pause\0" in read(f"/proc/{pid}/cmdline")]


@pytest.mark.when_changed
@pytest.mark.parametrize("part", ["first", "runsc-gofer", "runsc-sandbox"])
@pytest.mark.parametrize("memory", [False, True])
def test_it_ends_with_each_of_its_processes(live, part, memory):
    service, client = live
    sandbox = client.create()
    if memory:
        snapshot = client.post(f"sandboxes/{sandbox.id}/snapshots", {"memory": True})[1]["ref"]
        sandbox = client.create(templateID=snapshot)
    assert sandbox.works()
    first = first_of(service, sandbox)
    os.kill(parts(first)[part], signal.SIGKILL)
    if memory and part == "runsc-gofer":
        assert sandbox.works() # a copy has its files from the sentry alone
        return
    assert wait_for(lambda: client.native("GET", f"/cove/v1/sandboxes/{sandbox.id}").json.get("end_cause")), service.tail()
    assert wait_for(lambda: first not in firsts(service))
    assert client.verify(sandbox.id).json["intact"] and client.create().works()


def teller(client, **spec):
    sandbox = client.create(**spec)
    assert sandbox.upload("/home/user/teller.py", TELLER.encode()).status == 200
    assert sandbox.sh("setsid python3 teller.py 200 >/dev/null 2>&1 </dev/null &")[0] == 0
    assert wait_for(lambda: sandbox.sh("cat /tmp/told")[1]), sandbox.sh("ps ax")
    return sandbox


def inside(service, sandbox, command):
    done = service.cove("exec", "-u", "root", sandbox, "--", "sh", "-c", command)
    assert done.returncode == 0, (sandbox, command, done, service.tail())
    return done.stdout


def told(service, sandbox, after=0):
    """What it says by itself, later than it said last."""
    assert wait_for(lambda: json.loads(inside(service, sandbox, "cat /tmp/told"))["n"] > after)
    return json.loads(inside(service, sandbox, "cat /tmp/told"))


def check_restored(service, client, sandbox, before):
    assert wait_for(lambda: told(service, sandbox["id"], before["n"] + 2)["waked"] >= 1) # no word from before the snapshot
    now = told(service, sandbox["id"])
    assert (now["sum"], now["pid"]) == (before["sum"], before["pid"])   # the same process, with what it had
    assert abs(now["at"] - time.time()) < 30
    assert now["host"] == inside(service, sandbox["id"], "hostname; cat /etc/hostname").split()[0] != before["host"]
    mark = json.loads(inside(service, sandbox["id"], "cat /run/cove/restored"))
    assert mark["sandbox"] == sandbox["id"] and mark["host_name"] == now["host"]
    assert client.native("GET", f"/cove/v1/sandboxes/{sandbox['id']}").json["state"] == "running"
    return now


def test_a_snapshot_s_memory_goes_on(live):
    service, client = live
    sandbox = teller(client)
    with sandbox.start("/bin/sh", "-c", "for i in $(seq 100); do echo $i; sleep 0.05; done") as stream:
        stream.started()
        status, made = client.post(f"sandboxes/{sandbox.id}/snapshots", {"memory": True})
        assert status == 201, (made, service.tail())
        status, other = client.post("sandboxes", {"template": made["ref"]})
        assert status == 201, (other, service.tail())
        assert wait_for(lambda: "exec.exit" in client.kinds(other["id"])) # it counts in the copy, too
        assert any(e["kind"] == "exec.started" and e["data"].get("found") for e in client.events(other["id"]))
        assert client.verify(other["id"]).json["intact"]
        assert stream.rest()[1].split() == [str(i).encode() for i in range(1, 101)]
    before = told(service, sandbox.id)
    status, other = client.post("sandboxes", {"template": made["ref"]})
    assert status == 201, (other, service.tail())
    before["n"] = 0
    check_restored(service, client, other, before)
    # its network is its own, and judged
    inside(service, other["id"], "curl -sm 10 http://198.51.100.7/ -o /dev/null; true")
    assert wait_for(lambda: {"net.denied", "net.connect", "net.failed"} & set(client.kinds(other["id"])))
    assert inside(service, other["id"], "ip -4 addr show eth0 2>/dev/null | grep -c inet || grep -c eth0 /proc/net/dev").strip() == "1"
    assert inside(service, other["id"], "sudo -u user sudo id -u; grep CapBnd /proc/self/status").split()[0] == "0"
    # without its memory it starts
    status, cold = client.post("sandboxes", {"template": made["ref"], "memory": False})
    assert status == 201 and inside(service, cold["id"], "pgrep -c python3 || true").strip() == "0"


@pytest.mark.when_changed
def test_forks_go_on(live):
    service, client = live
    sandbox = teller(client)
    status, made = client.post(f"sandboxes/{sandbox.id}/fork", {"memory": True, "count": 2})
    assert status == 201 and all("sandbox" in f for f in made["forks"]), (made, service.tail())
    before = told(service, sandbox.id)
    for fork in made["forks"]:
        check_restored(service, client, fork["sandbox"], dict(before, n=0))
    assert told(service, sandbox.id, before["n"])["waked"] == before["waked"] # it was not restored, and goes on


@pytest.fixture(scope="module")
def clones(module_service):
    """What is to differ, of five forks and two that go on from a snapshot, the second of them as what was made ahead."""
    service, client = module_service
    sandbox = teller(client, network={"allowPublicTraffic": False})
    status, made = client.post(f"sandboxes/{sandbox.id}/fork", {"memory": True, "count": 5})
    assert status == 201, (made, service.tail())
    ids = [f["sandbox"]["id"] for f in made["forks"]]
    snapshot = client.post(f"sandboxes/{sandbox.id}/snapshots", {"memory": True})[1]["ref"]
    for _ in range(2):
        ids.append(client.create(templateID=snapshot, network={"allowPublicTraffic": False}).id)
    connect = lambda sandbox: client.control("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 600}).json
    return [facts(lambda s, command: inside(service, s, command), connect(i), i, wait_for) for i in ids]


@pytest.mark.when_changed
@pytest.mark.parametrize("secret", SECRETS)
def test_clones_share_no(clones, secret):
    share_none(secret, clones)


def waiting(service, pages, state):
    """Sentries that have read so much of saved memory, and all of the state with it, but do not run it yet."""
    def has_read(pid):
        memory = re.search(r"RssShmem:\s+(\d+)", read(f"/proc/{pid}/status") or "")
        files = [fd.name for fd in Path(f"/proc/{pid}/fd").iterdir() if os.path.basename(os.readlink(fd)) == "checkpoint.img"]
        at = [re.search(r"pos:\s+(\d+)", read(f"/proc/{pid}/fdinfo/{fd}")) for fd in files]
        return memory and int(memory[1]) * 1024 >= pages and any(int(pos[1]) == state for pos in at)
    try:
        return [pid for body in children(service.coved.pid) for pid in children(body) if has_read(pid)]
    except OSError: # one has just ended
        return []


@pytest.mark.when_changed
def test_saved_memory_is_read_before_somebody_asks(live):
    service, client = live
    sandbox = client.create()
    begin = "d = bytes(1 << 19) + os.urandom(1 << 25); open('/tmp/sum', 'w').write(hashlib.sha256(d).hexdigest())"
    later = "signal.signal(signal.SIGCONT, lambda *_: open('/tmp/again', 'w').write(hashlib.sha256(d).hexdigest()))"
    program = f"import hashlib, os, signal, time\n{begin}\n{later}\nopen('/tmp/up', 'w')\nwhile True: time.sleep(9)"
    assert sandbox.upload("/home/user/p", program.encode()).status == 200
    assert sandbox.sh("setsid python3 p >/dev/null 2>&1 </dev/null & until [ -e /tmp/up ]; do sleep 0.1; done; sleep 0.5")[0] == 0
    status, snapshot = client.post(f"sandboxes/{sandbox.id}/snapshots", {"memory": True})
    assert status == 201, (snapshot, service.tail())
    first = client.create(templateID=snapshot["ref"])
    images = list((service.state / "pool" / "memory" / snapshot["layer"]).glob("*.img"))
    size = {image.name: image.stat().st_size for image in images}
    assert size["pages.img"] > 1 << 25
    assert wait_for(lambda: len(waiting(service, size["pages.img"], size["checkpoint.img"])) == 1), service.tail()
    for image in images:
        os.truncate(image, 100)
    second = client.create(templateID=snapshot["ref"])
    for other in first, second:
        assert wait_for(lambda other=other: len(other.sh("cat /tmp/again")[1]) == 64), service.tail()
        assert other.sh("cmp /tmp/sum /tmp/again") == (0, b"", b"")
    assert json.loads(second.sh("cat /run/cove/restored")[1])["sandbox"] == second.id
    assert not [pid for body in children(service.coved.pid) for pid in children(body) if "State:\tZ" in read(f"/proc/{pid}/status")]


def another_runsc(directory):
    """As if it had been saved by that."""
    text = (directory / "cove").read_text().splitlines()
    text[3] = "runsc of before"
    return directory / "cove", "\n".join(text).encode()


def garbage(name):
    return lambda directory: (directory / name, os.urandom((directory / name).stat().st_size))


@pytest.mark.parametrize("of, said", [(another_runsc, "another version of the tier (runsc of before, not runsc"), (garbage("pages_meta.img"), "saved memory"),
                                      (garbage("checkpoint.img"), "saved memory"), (garbage("cove"), "saved memory")], ids=["runsc", "list", "state", "manifest"])
@pytest.mark.when_changed
def test_memory_that_does_not_fit_is_refused(live, of, said):
    service, client = live
    sandbox = client.create()
    assert sandbox.sh("echo word > /home/user/word")[0] == 0
    snapshot = client.post(f"sandboxes/{sandbox.id}/snapshots", {"memory": True})[1]
    path, content = of(service.state / "pool" / "memory" / snapshot["layer"])
    path.write_bytes(content)
    status, answer = client.post("sandboxes", {"template": snapshot["ref"]})
    assert status >= 400 and said in answer["error"]["message"], answer
    status, cold = client.post("sandboxes", {"template": snapshot["ref"], "memory": False})
    assert status == 201 and inside(service, cold["id"], "cat /home/user/word") == "word\n"
    assert sandbox.works()


@pytest.mark.when_changed
def test_what_waits_may_have_died(live):
    """Whether the service has heard of that or not, the next copy starts afresh."""
    service, client = live
    sandbox = client.create()
    assert sandbox.sh("echo word > /dev/shm/memory")[0] == 0
    snapshot = client.post(f"sandboxes/{sandbox.id}/snapshots", {"memory": True})[1]
    client.create(templateID=snapshot["ref"])
    images = list((service.state / "pool" / "memory" / snapshot["layer"]).glob("*.img"))
    size = {image.name: image.stat().st_size for image in images}
    for _ in range(3):
        ready = lambda: waiting(service, size["pages.img"], size["checkpoint.img"])
        assert wait_for(ready), service.tail()
        sentry = ready()[0]
        os.kill(sentry, signal.SIGKILL)
        assert wait_for(lambda sentry=sentry: not Path(f"/proc/{sentry}").exists())
        assert client.create(templateID=snapshot["ref"]).sh("cat /dev/shm/memory")[1] == b"word\n"


SERVER = """
import asyncio, decimal, email, http.server, json, os, random, signal, socket, sqlite3, ssl, time, unittest, xml.dom.minidom
waked = []
signal.signal(signal.SIGCONT, lambda *_: (waked.append(1), random.seed(os.urandom(16))))
begun = time.time()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"begun": begun, "pid": os.getpid(), "waked": len(waked), "host": socket.gethostname(), "kernel": os.urandom(16).hex(), "own": random.random()})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""
READY = "curl -sf http://127.0.0.1:8000/"


def built(service, client, name, directory, *options):
    (directory / "server.py").write_text(SERVER)
    (directory / "Dockerfile").write_text("FROM base\nCOPY server.py /server.py\nRUN setsid sleep 54321 >/dev/null 2>&1 </dev/null &\nCMD python3 /server.py\n")
    done = service.cove("template", "build", "--name", name, "--ready-cmd", READY, *options, str(directory))
    assert done.returncode == 0, (done, service.tail())
    return done.stderr


def served(service, sandbox):
    return json.loads(inside(service, sandbox, READY))


def test_a_template_carries_what_its_start_command_has_in_memory(live, tmp_path):
    """A sandbox begins after the start: nobody runs the command again, and nobody shares a secret."""
    service, client = live
    assert "Storing the memory" in built(service, client, "served", tmp_path)
    over = time.time()
    made = [client.post("sandboxes", {"template": "served"}) for _ in range(4)]
    assert all(status == 201 for status, _ in made), (made, service.tail())
    ids = [one["id"] for _, one in made]
    said = [served(service, i) for i in ids]
    ran = [inside(service, i, "cat /proc/[0-9]*/comm 2>/dev/null; true").split() for i in ids]
    assert all("python3" in names and "sleep" not in names for names in ran), ran # no process that a step left
    assert len({s["begun"] for s in said}) == 1 and said[0]["begun"] < over and len({s["pid"] for s in said}) == 1, said
    assert all(s["waked"] for s in said)
    for secret in ("host", "kernel", "own"):
        assert len({s[secret] for s in said}) == 4, said
    assert len({client.get(i).json["envdAccessToken"] for i in ids}) == 4
    assert {client.native("GET", f"/cove/v1/sandboxes/{i}").json["tier"] for i in ids} == {"gvisor"}
    assert "CACHED [finalize]" in built(service, client, "served", tmp_path)
    assert served(service, client.post("sandboxes", {"template": "served"})[1]["id"])["begun"] == said[0]["begun"]
    # what can't go on from there starts, and so does what is not to
    assert served(service, client.post("sandboxes", {"template": "served", "memory": False})[1]["id"])["begun"] > over
    images = list((service.state / "pool" / "memory").glob("*/*.img"))
    for image in images:
        os.truncate(image, 100)
    assert images
    assert served(service, client.post("sandboxes", {"template": "served", "cpu_milli": 1500})[1]["id"])["begun"] > over # which no spare is
    # nor are they asked for
    assert "Storing" not in built(service, client, "plain", tmp_path, "--no-memory", "--tier", "gvisor")
    assert served(service, client.post("sandboxes", {"template": "plain"})[1]["id"])["begun"] > over
    status, refused = client.post("sandboxes", {"template": "plain", "tier": "container"})
    assert status == 400 and "requires tier gvisor" in refused["error"]["message"], refused


def test_paused_to_disk_its_memory_survives_the_service(live):
    service, client = live
    sandbox = teller(client)
    before = told(service, sandbox.id)
    status, paused = client.post(f"sandboxes/{sandbox.id}/pause", {"to": "disk"})
    assert status == 200 and paused["on_disk"], (paused, service.tail())
    service.stop()
    service.start()
    assert client.native("GET", f"/cove/v1/sandboxes/{sandbox.id}").json["on_disk"]
    status, answer = client.post(f"sandboxes/{sandbox.id}/resume")
    assert status == 200, (answer, service.tail())
    check_restored(service, client, {"id": sandbox.id}, before)
    pids = {p["pid"]: p for p in client.native("GET", f"/cove/v1/sandboxes/{sandbox.id}/processes").json["processes"]}
    assert isinstance(pids, dict)


def test_tmp_is_of_its_files_and_nothing_of_cove_is_a_change(live):
    service, client = live
    sandbox = client.create()
    assert sandbox.sh("echo kept > /tmp/kept; ls -ld /tmp | cut -c1-10; stat -f -c %T /tmp /")[1].split()[0] == b"drwxrwxrwt"
    assert client.post(f"sandboxes/{sandbox.id}/pause", {"memory": False})[0] == 200
    assert client.post(f"sandboxes/{sandbox.id}/resume")[0] == 200
    assert sandbox.sh("cat /tmp/kept")[1] == b"kept\n"
    assert service.cove("diff", sandbox.id).stdout == "A /tmp/kept\n"


def test_volumes_are_refused_before_it_starts(live):
    service, client = live
    assert service.cove("volume", "create", "cache").returncode == 0
    done = service.cove("run", "--volume", "cache:/c", "--", "true")
    assert done.returncode == 125 and "tier gvisor can't mount volumes" in done.stderr and "again" not in done.stderr, done
    status, refused = client.post("sandboxes", {"volumes": [{"name": "cache", "path": "/c"}]})
    assert status == 501 and refused["error"]["code"] == "unimplemented", refused
    assert not client.list()
    assert service.cove("volume", "rm", "cache").returncode == 0
