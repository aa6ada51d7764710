# SPDX-License-Identifier: Apache-2.0
"""The tier microvm, emulated: a machine of its own for each sandbox, on the offline internet of tests/network. Skipped, loudly, where QEMU or a kernel for it can't be had."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from clones import SECRETS, TELLER, facts, share_none
from leaks import end_whole, groups
from service import BUILD, TOP, children, read, wait_until
from terminal import Terminal

sys.path.append(str(TOP / "tests" / "network"))
from world import ALLOWED, DENIED, DENIED6, World  # noqa: E402

GUEST = BUILD / "guest"


def missing():
    """Why this machine can't."""
    if os.geteuid() != 0:
        return "making sandboxes needs root"
    for program in ("qemu-system-x86_64", "mkfs.erofs", "mke2fs", "ip", "openssl", "nsenter"):
        if not shutil.which(program):
            return f"{program} is not installed: tools/install-deps vm"
    if not any((GUEST / "modules").glob("*virtio_balloon*")): # not there, or of before
        made = subprocess.run([TOP / "tools" / "guest", GUEST], capture_output=True, text=True, check=False)
        if made.returncode:
            return made.stderr.strip()
    return None


@pytest.fixture(scope="module")
def world():
    why = missing()
    if why:
        pytest.skip(f"no microvm on this machine: {why}")
    directory = tempfile.mkdtemp(prefix="test-microvm-", dir=BUILD)
    os.chmod(directory, 0o755)
    world = World(directory)
    try:
        yield world.start()
    finally:
        world.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def machines(world):
    service = world.start_service(COVE_MICROVM_GUEST=str(GUEST), COVE_MICROVM_EMULATE="true")
    yield service
    service.remove_all()
    end_whole(service, world)


@pytest.fixture(scope="module")
def machine(machines):
    """One that the tests below share, each leaving it running: it outlives the usual five minutes."""
    return machines.create(tier="microvm", timeout_ms=0)


def say(service, sandbox, command, **options):
    done = service.cove("exec", sandbox, "--", "sh", "-c", command, **options)
    assert done.returncode == 0, done
    return done.stdout


def test_it_has_a_kernel_and_a_root_of_its_own(machines, machine):
    assert machines.request("GET", f"/cove/v1/sandboxes/{machine}")[2]["tier"] == "microvm"
    said = say(machines, machine, "uname -r; cat /proc/1/comm; id -un; sudo id -u; cat /proc/mounts; hostname; tail -1 /etc/hosts")
    assert said.startswith("6.") and os.uname().release not in said
    assert re.search(r"^init$|^cove-agent$", said, re.M) and "overlay / overlay rw" in said
    assert re.search(r"^user\n0$", said, re.M)
    # What its disks no longer need is nothing of the host's: what the monitor would do then is done in vain (lend.c), and it would believe that it was.
    assert say(machines, machine, "cat /sys/block/vd*/queue/discard_max_bytes /sys/block/vd*/queue/write_zeroes_max_bytes | sort -u") == "0\n"
    # What root may do there, it may to that kernel alone.
    assert say(machines, machine, "sudo mount -t tmpfs none /mnt && mount | grep -c /mnt; sudo umount /mnt") == "1\n"


def test_files_and_streams(machines, machine, tmp_path):
    body = os.urandom(3_000_000)
    (tmp_path / "f").write_bytes(body)
    assert machines.cove("cp", str(tmp_path / "f"), f"{machine}:f").returncode == 0
    assert machines.cove("cp", f"{machine}:f", str(tmp_path / "g")).returncode == 0
    assert (tmp_path / "g").read_bytes() == body
    assert say(machines, machine, "cat; echo; exit 0", input="through stdin").strip() in ("through stdin", "")
    done = machines.cove("exec", machine, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_a_terminal(machines, machine):
    seen, status = Terminal(machines, "exec", "-t", machine, "--", "sh", "-c", "tty; stty size; exit 3", rows=31, columns=99).rest()
    assert status == 3 and b"/dev/pts/" in seen and b"31 99" in seen, seen


def test_usage_is_the_machines(machines, machine):
    def sampled():
        return machines.request("GET", f"/cove/v1/sandboxes/{machine}/metrics")[2]["samples"]

    assert wait_until(sampled)
    assert sampled()[0]["memory_used"] > 50 << 20, sampled()


def private_mib(pid):
    return sum(int(line.split()[1]) for line in (read(f"/proc/{pid}/smaps_rollup") or "").splitlines() if line.startswith("Private_")) >> 10


@pytest.mark.when_changed
def test_memory_that_is_free_inside_is_the_hosts_again(machines):
    sandbox = machines.create(tier="microvm")
    idle = {pid: private_mib(pid) for pid in qemus(machines)}
    more = lambda pid: private_mib(pid) - idle[pid]
    say(machines, sandbox, "python3 -c 'import time; data = bytearray(b\"x\") * (400 << 20); open(\"/tmp/full\", \"w\"); time.sleep(600)' >/dev/null 2>&1 & echo $! > /tmp/pid; until [ -e /tmp/full ]; do sleep 0.1; done")
    monitor = max(idle, key=more)
    assert more(monitor) > 350
    say(machines, sandbox, "kill $(cat /tmp/pid)")
    assert wait_until(lambda: more(monitor) < 200), more(monitor)
    # What was lent to it and what its disk has stay as they are.
    assert say(machines, sandbox, "dd if=/dev/zero of=f bs=1M count=64 status=none; sync; echo 3 | sudo tee /proc/sys/vm/drop_caches >/dev/null; tr -d '\\0' < f | wc -c") == "0\n"
    assert machines.cove("rm", sandbox).returncode == 0


SECRET, SENTINEL = "sk-live-5e4d3c2b1a", "sk-cove-fedcba9876543210"
POLICY = {"default": "deny", "rules": [{"allow": "allowed.test"}, {"allow": "api.test", "ports": [443]}],
          "inject": [{"host": "api.test", "placeholders": [{"sentinel": SENTINEL, "secret": "SHOWN"}]}]}
GET = "curl -gsS -m 20 -w ' %{http_code}\n' "


def judge(service, sandbox, policy):
    status, _, body = service.request("PUT", f"/cove/v1/sandboxes/{sandbox}/network", policy)
    assert status == 200, body


def test_its_network_is_judged_like_all(world, machines, machine):
    assert sorted(say(machines, machine, "tail -n +3 /proc/net/dev | cut -d: -f1; awk '{print $NF}' /proc/net/if_inet6").split()) == ["eth0"] * 2 + ["lo"] * 2
    assert say(machines, machine, f"{GET} http://denied.test/; {GET} -k https://[{DENIED6}]/") == f"hello from {DENIED}\n 200\nhello from {DENIED6}\n 200\n"
    assert machines.cove("secret", "set", "SHOWN", input=SECRET).returncode == 0
    judge(machines, machine, POLICY)
    with world.watched() as seen:
        got = say(machines, machine, f"for url in http://allowed.test/ https://allowed.test/ http://denied.test/ http://{DENIED}/ http://[{DENIED6}]/ http://10.0.0.5/; "
                                     f"do {GET} -k $url; done 2>&1; true")
    assert got.count("hello from") == got.count(" 200") == 2 and "resolve host: denied.test" in got and got.count(" 403") == 3, got
    assert {e["address"] for e in seen if e["what"] == "request"} <= {ALLOWED} and not [e for e in seen if "denied" in e.get("name", "")], seen
    judge(machines, machine, {"default": "deny", "rules": []})
    assert "resolve host" in say(machines, machine, f"{GET} http://allowed.test/ 2>&1; true")


def test_a_secret_is_put_in_on_the_way(world, machines, machine):
    judge(machines, machine, POLICY)
    with world.watched() as seen:
        shown = say(machines, machine, f"{GET} -H 'authorization: {SENTINEL}' https://api.test/; grep -c BEGIN /usr/local/share/ca-certificates/cove-sandbox.crt")
    assert " 200\n1\n" in shown and SECRET not in shown
    assert ["authorization", SECRET] in [field for e in seen if e["what"] == "request" for field in e["fields"]], seen


REFUSED = """
import os, socket, struct, time
for to in ("8.8.8.8", "2001:db8::66", "10.200.0.1"):
    begin = time.time()
    s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(10)
    s.connect((to, 123))
    s.send(b"x")
    try:
        s.recv(10)
    except OSError as error:
        print(type(error).__name__, time.time() - begin < 5)
# Frames of root's own making: another source, a broadcast, ARP.
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("eth0", 0x0800))
gate, own = bytes.fromhex("02c0fe000001"), bytes.fromhex("02c0fe000002")
for source, mac in (("10.200.0.2", gate), ("198.51.100.66", gate), ("10.200.0.2", b"\\xff" * 6)):
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28, 1, 0, 64, 1, 0, socket.inet_aton(source), socket.inet_aton("11.0.0.66"))
    raw.send(mac + own + b"\\x08\\0" + ip + bytes.fromhex("0800f7ff00000000"))
raw.send(b"\\xff" * 6 + own + bytes.fromhex("08060001080006040001") + own + socket.inet_aton("10.200.0.2") + bytes(6) + socket.inet_aton("10.200.0.1"))
print("sent")
"""


def test_what_is_no_flow_gets_nowhere(world, machines, machine):
    judge(machines, machine, {"default": "allow", "rules": []})
    with world.watched() as seen:
        got = machines.cove("exec", "-i", "-u", "root", machine, "--", "python3", "-", input=REFUSED).stdout.split("\n")
    assert got == ["ConnectionRefusedError True"] * 3 + ["sent", ""] and not seen, (got, seen)
    assert say(machines, machine, f"{GET} http://allowed.test/") == f"hello from {ALLOWED}\n 200\n"


def test_a_port_is_reached_from_outside(world, machines, machine):
    say(machines, machine, "mkdir -p page; echo a page > page/index.html; (python3 -m http.server 80 --directory page) >/dev/null 2>&1 &")
    url = ("-H", f"Host: 80-{machine}.localhost", f"http://127.0.0.1:{machines.port}/")
    assert wait_until(lambda: world.there("curl", "-s", *url).stdout == "a page\n"), world.there("curl", "-si", *url).stdout


def test_it_stands_still_and_goes_on(machines, machine):
    say(machines, machine, "echo kept > kept; (until [ -e enough ]; do date +%s%N > now; sleep 0.02; done) >/dev/null 2>&1 &")
    assert wait_until(lambda: say(machines, machine, "cat now"))
    assert machines.cove("pause", machine).returncode == 0
    assert machines.cove("resume", machine).returncode == 0
    before = say(machines, machine, "cat now")
    assert wait_until(lambda: say(machines, machine, "cat now") > before)
    say(machines, machine, "touch enough")
    assert say(machines, machine, f"{GET} http://allowed.test/") == f"hello from {ALLOWED}\n 200\n"


@pytest.mark.when_changed
def test_a_snapshot_of_its_files_is_forked(machines, machine):
    say(machines, machine, "echo forked > forked")
    judge(machines, machine, POLICY)
    fork = machines.cove("fork", machine)
    assert fork.returncode == 0, fork
    other = fork.stdout.split()[0]
    assert say(machines, other, "cat forked; hostname") != say(machines, machine, "cat forked; hostname")
    assert say(machines, other, "cat forked") == "forked\n"
    assert say(machines, other, f"{GET} http://allowed.test/") == f"hello from {ALLOWED}\n 200\n"
    assert say(machines, other, f"{GET} http://{DENIED}/ | tail -n 1").strip().endswith("403")
    assert machines.cove("rm", other).returncode == 0


@pytest.mark.when_changed
def test_files_survive_without_memory(machines, machine):
    say(machines, machine, "echo late > late")
    assert machines.cove("pause", "--files-only", machine).returncode == 0
    assert machines.cove("resume", machine).returncode == 0
    assert say(machines, machine, "cat late kept") == "late\nkept\n"


# ---- memory ----


def qemus(service):
    """Of this service's machines: their bodies are the keeper's children."""
    return [pid for body in children(service.coved.pid) for pid in children(body) if "qemu" in (read(f"/proc/{pid}/comm") or "")]


@pytest.mark.when_changed
def test_a_layer_boots_once(machines, machine):
    boots = list((machines.state / "pool" / "boots").glob("*/*/memory"))
    assert len(boots) == 1, boots
    made = boots[0].stat()
    others = [machines.create(tier="microvm") for _ in range(2)]
    seen = [say(machines, other, "hostname; head -c 16 /dev/urandom | od -An -tx1; date +%s; cut -d. -f1 /proc/uptime").split("\n") for other in others]
    assert len({s[0] for s in seen}) == len({s[1] for s in seen}) == 2, seen
    assert all(abs(time.time() - int(s[2])) < 30 for s in seen), seen
    assert (made.st_ino, made.st_mtime) == (boots[0].stat().st_ino, boots[0].stat().st_mtime)
    say(machines, others[0], "echo mine > /home/user/whose; sync")
    assert machines.cove("exec", others[1], "--", "cat", "/home/user/whose").returncode == 1
    for other in others:
        assert machines.cove("rm", other).returncode == 0


@pytest.mark.when_changed
def test_sizes_that_nobody_uses_give_way(machines):
    """Of a layer as many are kept as there is room for. Who asks for that many first keeps nobody else's from being kept."""
    kept = next(boot.parent for boot in (machines.state / "pool" / "boots").glob("*/*/memory"))
    guest, *rest = kept.name.split("-")
    others = [kept.parent / "-".join([guest, str(2000 + i), *rest[1:]]) for i in range(7)]
    for age, other in enumerate(others):
        other.mkdir()
        os.utime(other, (time.time() - 100 - age,) * 2)
    try:
        sandbox = machines.create(tier="microvm", memory_bytes=448 << 20)
        assert any(boot.name.split("-")[1] == "448" for boot in kept.parent.iterdir()), os.listdir(kept.parent)
        assert not others[-1].exists() and all(other.exists() for other in others[:-1]) and kept.exists(), os.listdir(kept.parent)
        assert machines.cove("rm", sandbox).returncode == 0
    finally:
        for other in others:
            shutil.rmtree(other, ignore_errors=True)


def quotas(service):
    """Microseconds of processor time in a tenth of a second, of each control group of the service's; none without a limit."""
    texts = [read(path / file) for path in map(Path, groups(service.state)) for file in ("cpu.cfs_quota_us", "cpu.max")]
    return [int(text.split()[0]) for text in texts if text and text.split()[0].isdigit()]


@pytest.mark.when_changed
def test_who_has_little_time_makes_nobody_wait_for_an_image(machines):
    """An image of a layer is made by the first machine that stands on it; all others wait for that."""
    def slow():
        return [sandbox["id"] for sandbox in machines.sandboxes() if sandbox["cpu_milli"] == 10]
    asker = threading.Thread(target=machines.request, args=("POST", "/cove/v1/sandboxes", {"tier": "microvm", "cpu_milli": 10}))
    assert 100000 not in quotas(machines)
    asker.start()
    try:
        assert wait_until(lambda: 100000 in quotas(machines) or 1000 in quotas(machines)) and 100000 in quotas(machines)
    finally:
        assert wait_until(slow)
        machines.request("DELETE", f"/cove/v1/sandboxes/{slow()[0]}")
        asker.join()


@pytest.mark.when_changed
def test_nothing_is_left_of_a_rehearsal(machines):
    spent, others = {}, set(qemus(machines))

    def rested():
        """Monitors that have nothing left to do."""
        for pid in set(qemus(machines)) - others:
            spent.setdefault(pid, []).append((read(f"/proc/{pid}/task/{pid}/schedstat") or "0").split()[0])
        return {pid for pid, times in spent.items() if len(times) > 20 and times[-1] == times[-20]}

    assert machines.cove("rm", machines.create(tier="microvm")).returncode == 0
    assert wait_until(rested), machines.tail()
    waits = rested()
    sandbox = machines.create(tier="microvm")
    told = say(machines, sandbox, "hostname; cat /etc/hostname; tail -1 /etc/hosts; cat /proc/sys/kernel/threads-max; ps -e -o args= | grep -cE '[c]at /dev/null|^/init|^cove-agent'; date +%s; cat /run/cove/* 2>&1 || true")
    name, file, hosts, threads, agents, now, restored = told.splitlines()
    assert name == file == hosts.split()[1] and name.startswith("cove-"), told
    assert (threads, agents) == ("1024", "1") and abs(time.time() - int(now)) < 30 and "No such file" in restored, told
    assert waits & set(qemus(machines)), "it was one of those that waited"
    assert machines.cove("rm", sandbox).returncode == 0


SERVER = """
import hashlib, http.server, os, random, socket, time
data = bytearray(os.urandom(30_000_000))
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        data[:1] = b"x" if self.path == "/change" else data[:1]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{hashlib.sha256(data).hexdigest()} {os.getpid()} {os.urandom(8).hex()} {time.time():.0f} {socket.gethostname()}".encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", 8123), Answer).serve_forever()
"""


def asked(service, sandbox, path="/"):
    return say(service, sandbox, f"curl -s -m 60 http://127.0.0.1:8123{path}").split()


@pytest.fixture(scope="module")
def server(machines):
    sandbox = machines.create(tier="microvm", timeout_ms=0, memory_bytes=512 << 20)
    assert machines.cove("exec", "-i", sandbox, "--", "sh", "-c", "cat > server.py; (python3 server.py) >/dev/null 2>&1 &", input=SERVER).returncode == 0
    assert wait_until(lambda: "200" in say(machines, sandbox, "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8123/; true"))
    return sandbox


def forked(service, sandbox, count):
    done = service.cove("fork", "--memory", "-n", str(count), sandbox)
    assert done.returncode == 0, done
    return done.stdout.split()


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.when_changed)])
def test_forks_go_on_with_its_memory(world, machines, server, count):
    whole = asked(machines, server)
    say(machines, server, "(sleep 600) >/dev/null 2>&1 & echo $! > stopped; kill -STOP $!")
    clones = forked(machines, server, count)
    assert [say(machines, sandbox, "cut -d' ' -f3 /proc/$(cat stopped)/stat") for sandbox in (server, *clones)] == ["T\n"] * (1 + count)
    answers = [(*asked(machines, sandbox), time.time()) for sandbox in (server, *clones)]
    assert {(a[0], a[1]) for a in answers} == {(whole[0], whole[1])}, answers # the same data, the same process
    assert len({a[2] for a in answers}) == len({a[4] for a in answers}) == 1 + count, answers # random numbers, host names
    assert all(abs(a[-1] - int(a[3])) < 30 for a in answers), answers
    for sandbox in (server, *clones):
        say(machines, sandbox, f"echo {sandbox} > own; sync")
    assert [say(machines, sandbox, "cat own").strip() for sandbox in (server, *clones)] == [server, *clones]
    assert asked(machines, clones[0], "/change")[0] != whole[0]
    assert {asked(machines, sandbox)[0] for sandbox in (server, *clones[1:])} == {whole[0]}
    assert say(machines, clones[0], f"{GET} http://allowed.test/") == f"hello from {ALLOWED}\n 200\n"
    # What a clone wrote is in the memory of its own clones.
    of_clones = forked(machines, clones[0], 1) if count > 1 else []
    assert all(asked(machines, sandbox)[0] == asked(machines, clones[0])[0] != whole[0] for sandbox in of_clones)
    for sandbox in (*clones, *of_clones):
        assert machines.cove("rm", sandbox).returncode == 0


def test_what_a_fork_saved_is_shared_with_the_original(machines):
    others, data = set(qemus(machines)), "/dev/shm/data"
    sandbox = machines.create(tier="microvm", memory_bytes=512 << 20)
    say(machines, sandbox, f"head -c 150000000 /dev/urandom > {data}; sha256sum < {data} > before")
    monitor = max(set(qemus(machines)) - others, key=private_mib)
    held = private_mib(monitor)
    clone = forked(machines, sandbox, 1)[0]
    assert private_mib(monitor) < held - 130, (held, private_mib(monitor)) # it is the same monitor
    same = f"sha256sum < {data} | cmp - before"
    for one in (sandbox, clone):
        say(machines, one, same)
    # It writes into that, and its copies have it, but not the ones of before.
    say(machines, sandbox, f"echo new >> {data}; sha256sum < {data} > before")
    again = forked(machines, sandbox, 1)[0]
    for one in (sandbox, clone, again):
        say(machines, one, same)
    assert say(machines, sandbox, f"tail -c 4 {data}") == say(machines, again, f"tail -c 4 {data}") == "new\n"
    # It needs nothing of a copy's, and can sleep and wake.
    for one in (clone, again):
        assert machines.cove("rm", one).returncode == 0
    assert machines.cove("pause", sandbox).returncode == machines.cove("resume", sandbox).returncode == 0
    say(machines, sandbox, same)
    assert machines.cove("pause", "--disk", sandbox).returncode == machines.cove("resume", sandbox).returncode == 0
    say(machines, sandbox, same)
    assert machines.cove("rm", sandbox).returncode == 0


@pytest.fixture(scope="module")
def clones(machines):
    """What is to differ, of three forks and two that go on from a snapshot, the second of them as what was made ahead."""
    def e2b(path, body):
        headers = {"X-API-KEY": (machines.state / "key").read_text().strip(), "Content-Type": "application/json"}
        status, _, answer = machines.request("POST", path, body, headers)
        assert status in (200, 201), answer
        return answer

    def created(template):
        return e2b("/v2/sandboxes", {"templateID": template, "timeout": 3600, "metadata": {"cove.tier": "microvm"}, "network": {"allowPublicTraffic": False}})["sandboxID"]

    def inside(sandbox, command):
        done = machines.cove("exec", "-u", "root", sandbox, "--", "sh", "-c", command)
        return done.stdout if done.returncode == 0 else None
    first = created("base")
    done = machines.cove("exec", "-i", first, "--", "sh", "-c", "cat > teller.py; (setsid python3 teller.py 10) >/dev/null 2>&1 </dev/null &", input=TELLER)
    assert done.returncode == 0 and wait_until(lambda: inside(first, "cat /tmp/told")), done
    ids = forked(machines, first, 3)
    # On a busy machine it may not stand still in time, which is refused.
    snapshot = wait_until(lambda: machines.request("POST", f"/cove/v1/sandboxes/{first}/snapshots", {"memory": True})[2].get("ref"))
    assert snapshot, machines.tail()
    ids += [created(snapshot) for _ in range(2)]
    told = [facts(inside, e2b(f"/sandboxes/{sandbox}/connect", {"timeout": 600}), sandbox, wait_until) for sandbox in ids]
    for sandbox in (first, *ids): # each, emulated, goes on to take a processor
        machines.cove("rm", sandbox)
    machines.request("DELETE", f"/cove/v1/snapshots?ref={snapshot}")
    return told


@pytest.mark.when_changed
@pytest.mark.parametrize("secret", SECRETS)
def test_clones_share_no(clones, secret):
    share_none(secret, clones)


def waiting(service):
    """
    Monitors whose machines have no memory yet, and of which coved knows: they wait in openat(), which is to open it, and
    their bodies in poll() for two, coved and the monitor. Before, a body waits for its monitor alone.
    """
    calls = lambda pid, *call: (read(f"/proc/{pid}/syscall") + " - - -").split()[:3:2][:len(call)] == [*call]
    bodies = [body for body in children(service.coved.pid) if calls(body, "7", "0x2")]
    return {pid for body in bodies for pid in children(body) if calls(pid, "257")}


@pytest.mark.when_changed
def test_a_fork_takes_a_monitor_that_waits(machines, server):
    whole = asked(machines, server)
    clones = forked(machines, server, 2)

    def takes():
        time.sleep(3) # of those for machines of the tests before, with other limits, coved lets go after ten seconds
        assert wait_until(lambda: waiting(machines)), machines.tail()
        ahead = waiting(machines)
        clones.extend(forked(machines, server, 1))
        return (ahead - waiting(machines)) & set(qemus(machines)) # it has memory now

    assert any(takes() for _ in range(6)), (waiting(machines), machines.tail())
    clone = clones[-1]
    assert asked(machines, clone)[:2] == whole[:2]
    say(machines, clone, "echo of the clone > own; sync")
    again = forked(machines, clone, 1)[0] # of a clone, with its disk
    assert asked(machines, again)[:2] == whole[:2] and say(machines, again, "cat own") == "of the clone\n"
    assert machines.cove("pause", "--files-only", again).returncode == machines.cove("resume", again).returncode == 0
    assert say(machines, again, "cat own") == "of the clone\n"
    # Those that wait may die; then forks start as if there were none.
    assert wait_until(lambda: waiting(machines))
    for pid in waiting(machines):
        os.kill(pid, signal.SIGKILL)
    late = forked(machines, server, 1)[0]
    assert asked(machines, late)[:2] == whole[:2]
    # And they end with coved, but not those who have a machine.
    assert wait_until(lambda: waiting(machines))
    ahead = waiting(machines)
    machines.kill_coved()
    assert wait_until(lambda: not ahead & set(qemus(machines))) and wait_until(machines.is_ready)
    assert asked(machines, late)[:2] == asked(machines, server)[:2] == whole[:2]
    for sandbox in (*clones, again, late):
        assert machines.cove("rm", sandbox).returncode == 0


def test_it_sleeps_on_the_disk(machines, server):
    before = asked(machines, server)
    assert machines.cove("pause", "--disk", server).returncode == 0
    assert machines.request("GET", f"/cove/v1/sandboxes/{server}")[2]["on_disk"] is True
    assert machines.cove("resume", server).returncode == 0
    after = asked(machines, server)
    assert after[:2] == before[:2] and after[2] != before[2] and abs(time.time() - int(after[3])) < 30


@pytest.mark.when_changed
def test_memory_that_was_cut_is_refused(machines, server):
    snapshot = machines.request("POST", f"/cove/v1/sandboxes/{server}/snapshots", {"memory": True})[2]
    saved, cut = (machines.state / "pool" / "memory" / snapshot["layer"] / name for name in ("memory", "cut"))
    shutil.copyfile(saved, cut) # that file itself may be what the machine goes on from
    os.truncate(cut, saved.stat().st_size - 4096)
    cut.rename(saved)
    status, _, body = machines.request("POST", "/cove/v1/sandboxes", {"template": snapshot["ref"]})
    assert status >= 400, body
    assert asked(machines, server)
    machines.request("DELETE", f"/cove/v1/snapshots?ref={snapshot['ref']}")


@pytest.mark.when_changed
def test_a_monitor_that_hangs_saves_nothing(machines, server):
    before, saved = asked(machines, server), set((machines.state / "pool" / "memory").glob("layer-*"))
    stopped = qemus(machines)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        status, _, body = machines.request("POST", f"/cove/v1/sandboxes/{server}/snapshots", {"memory": True})
        assert stopped and status >= 400, body
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert asked(machines, server)[:2] == before[:2]
    assert set((machines.state / "pool" / "memory").glob("layer-*")) <= saved


def test_a_kernel_that_panics_ends_the_sandbox(machines, machine):
    machines.cove("exec", machine, "--", "sudo", "sh", "-c", "echo c > /proc/sysrq-trigger")
    assert wait_until(lambda: machines.request("GET", f"/cove/v1/sandboxes/{machine}")[2].get("state") in ("ended", "failed", None))
