# SPDX-License-Identifier: Apache-2.0
"""What two sandboxes share: nothing that one could see, change, lock, or take away from the other. F19 of the list of attacks, and more."""

import re
import threading
import time

import pytest
from rig import PROBE_INSIDE, inside, must, text
from service import wait_until

# Files that look alike in all sandboxes.
COMMON = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/urandom", "/dev", "/sys", "/sys/devices/system/cpu/online", "/proc/keys", "/proc/kcore", "/proc/acpi",
          "/usr/bin/git", "/etc/passwd", "/usr/lib/os-release", "/proc/sys/kernel/random/boot_id", "/proc/version", "/proc/filesystems",
          "/proc/sys/kernel/core_pattern")


def test_F19_places_to_leave_something(pair):
    one, other = pair
    must(one, """touch /tmp/mark /dev/shm/mark /var/tmp/mark /run/mark; echo mark > /dev/mqueue/mark 2>/dev/null
python3 -c "
import ctypes, os
rt = ctypes.CDLL(None)
rt.mq_open(b'/mark', os.O_CREAT | os.O_RDWR, 0o666, None); rt.shmget(4711, 4096, 0o1666); rt.semget(4711, 1, 0o1666); rt.msgget(4711, 0o1666)
" """, user="root")
    left = must(other, "ls /tmp/mark /dev/shm/mark /var/tmp/mark /run/mark /dev/mqueue/mark 2>/dev/null; tail -qn +2 /proc/sysvipc/*; ls /dev/pts", user="root")
    assert left.split() == ["ptmx"], left
    with one.start("python3", "-c",
                   "import socket,time; s=socket.socket(1); s.bind('\\0mark'); s.listen(); t=socket.create_server(('127.0.0.1',4711)); print('up',flush=True); time.sleep(200)") as up:
        next(up.output())
        found = inside(other, "abstract,mark", "tcp,127.0.0.1,4711", "tcp,::1,4711")
        assert {o.name for o in found.values()} == {"ECONNREFUSED"}, found
        found = inside(one, "abstract,mark", "tcp,127.0.0.1,4711")
        assert all(o.reached for o in found.values()), found


@pytest.mark.parametrize("path", COMMON)
def test_nobody_watches_what_others_do(pair, path):
    """inotify tells what happens to a file, whoever does it: a file that two sandboxes share tells the one about the other."""
    one, other = pair
    with one.start(PROBE_INSIDE, "-x", f"watch,{path},20", user="root", timeout=30) as stream:
        channel, said = next(stream.output())
        if b"watching" not in said:
            pytest.skip(f"{path} can't be watched at all")
        seen = b""

        def listen():
            nonlocal seen
            for _, data in stream.output():
                seen += data

        # The agent itself reads some of them whenever it starts something, so nothing is started in the first sandbox from here on.
        listener = threading.Thread(target=listen)
        listener.start()
        time.sleep(0.1)
        quiet = not seen
        for _ in range(3):
            other.sh(f"cat {path} >/dev/null 2>&1 </dev/null & sleep 0.02; kill $! 2>/dev/null; ls {path} >/dev/null 2>&1; : > {path}; true", user="root")
        time.sleep(0.2)
        told = bool(seen) and quiet
        own = one.sh(f"ls {path} 2>/dev/null | head -1; timeout 0.1 head -c1 {path} >/dev/null 2>&1; : 2>/dev/null < {path}", user="root")
        wait_until(lambda: seen, 3)
        one.unary("process.Process/SendSignal", {"process": {"pid": stream.pid}, "signal": "SIGNAL_SIGKILL"})
        listener.join(60)
    assert quiet and not told, f"{path}: another sandbox's access was seen"
    if not seen:
        pytest.skip(f"{path} tells nothing even of one's own access ({own[0]})")


@pytest.mark.parametrize("path", COMMON)
def test_nobody_locks_what_others_use(pair, path):
    one, other = pair
    with one.start(PROBE_INSIDE, "-x", f"flock_hold,{path},30", user="root", timeout=30) as stream:
        said = next((data for _, data in stream.output()), b"")
        if b"locked" not in said:
            pytest.skip(f"{path} can't be locked at all")
        mine = inside(one, f"flock,{path}")[f"flock,{path}"]
        theirs = inside(other, f"flock,{path}")[f"flock,{path}"]
        if path.startswith("/proc/") and theirs.name == "EAGAIN":
            pytest.fail(f"{path}: a lock of one sandbox holds in another")
        assert mine.name == "EAGAIN", "the lock does not even hold where it was taken"
        assert theirs.reached, f"{path}: a lock of one sandbox holds in another"


def test_uid_ranges_are_clean_when_used_again(service, make):
    """Many sandboxes one after the other: nothing of one is found by the next, whichever range of ids it has."""
    for number in range(6):
        box = make()
        found = must(box, "find / -xdev -name 'left-by-*' 2>/dev/null; ls /dev/shm /dev/mqueue /tmp; tail -qn +2 /proc/sysvipc/*", user="root")
        assert not re.search("left-by", found) and found.split() == ["/dev/mqueue:", "/dev/shm:", "/tmp:"], found
        must(box, f"touch /left-by-{number} /tmp/left-by-{number} /dev/shm/left-by-{number}; python3 -c \"import ctypes; ctypes.CDLL(None).shmget({number + 1}, 4096, 0o1666)\"", user="root")
        assert box.kill().status == 204


def test_times_and_numbers_tell_little(pair):
    """Names of sandboxes are no sequence that tells how many others there are; pids begin anew in each."""
    one, other = pair
    names = [must(s, "hostname").strip() for s in pair]
    assert len(set(names)) == 2 and all(re.fullmatch(r"[a-z0-9-]{1,63}", n) for n in names)
    assert all(int(must(s, "echo $$")) < 200 for s in pair)
    assert text(one.sh("cat /proc/sys/kernel/ns_last_pid")[1]).strip() != ""
    assert "cove" not in must(other, "cat /proc/self/mounts | grep -v '^cove / overlay'"), "paths of the service show in the mount table"
