# SPDX-License-Identifier: Apache-2.0
"""
Using up what the machine has, or what the kernel counts for all of it. The neighbour has to answer all the while; nothing of the host may run short.
Section 10 (R..). Nothing else runs beside these; what a sandbox has limits of its own for is in own_limits_test.
"""

import contextlib
import os
import re
import time
from pathlib import Path

import pytest
from rig import MIB, PROBE_INSIDE, USERS, Watch, answers, hog, hog_outside, inside, judge, must, outside, small
from service import read, wait_until


def available():
    return int(re.search(r"^MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text(), re.M)[1]) * 1024


def unreclaimable():
    """What the kernel keeps for itself."""
    return int(re.search(r"^SUnreclaim:\s*(\d+)", Path("/proc/meminfo").read_text(), re.M)[1]) * 1024


def works(box):
    try:
        return box.works()
    except Exception:
        return False


@pytest.mark.parametrize("user", ["user", "root"])
def test_R01_fork_bomb(make, service, user):
    bomber, neighbour = make(), make()
    with Watch(service, neighbour):
        with bomber.start(PROBE_INSIDE, "-x", "hog_bomb,60,60", user=user):
            bombs = lambda: sum(1 for name in service.processes().values() if name == "probe")
            assert wait_until(lambda: bombs() > 20)
            time.sleep(1)
            count = bombs()
            assert 20 < count <= 200, f"{count} processes"
            begin = time.monotonic()
            assert bomber.kill().status == 204
        assert wait_until(lambda: "probe" not in service.processes().values())
        print(f"{count} processes were gone after {time.monotonic() - begin:.2f} s")


MEMORY = {"anonymous": "hog_memory,2000,20", "memfd": "hog_memfd,2000,20", "shm": "hog_shm,2000,20", "sysv": "hog_sysv,2000,20",
          "sockets": "hog_sockets,20000,20", "udp": "hog_udp,2000,20", "tcp": "hog_tcp,200,20",
          "pipes": "hog_pipes,20000,20", "descriptors": "hog_fds,400000,20"}


@pytest.mark.parametrize("kind", MEMORY)
def test_R02_memory(service, make, kind):
    """Whatever it is made of: charged to the sandbox, ended there, and the sandbox goes on."""
    box, neighbour, before = small(service), make(), available()
    with Watch(service, neighbour):
        with box.start(PROBE_INSIDE, "-x", MEMORY[kind]) as stream:
            if kind == "anonymous":
                stream.rest()
                assert "signal" in stream.exit.get("status", "") or stream.exit.get("exitCode") in (-1, 137), stream.exit
            else:
                next(stream.output(), None)
            during = available()
            print(f"{kind}: the machine has {(before - during) / MIB:.0f} MiB less")
    # What no process holds (shared memory, files in memory) stays when the program was killed; then the sandbox may go, but is told apart.
    end = wait_until(lambda: works(box) or service.request("GET", f"/cove/v1/sandboxes/{box.id}")[2].get("end_cause"))
    assert end is True or (kind in ("sysv", "shm") and end == "oom"), f"the whole sandbox went down with one program: {end}"
    if before - during >= 700 * MIB: # it was the sandbox's when it comes back with its end; others take memory, too
        box.kill()
        assert wait_until(lambda: "probe" not in service.processes().values())
        time.sleep(1)
        assert available() - during < 700 * MIB, "the sandbox had more than it was charged"


def test_R02_many_small_programs(service, make):
    """No single one is large: the killer must still take them and not the agent."""
    box, neighbour = small(service), make()
    with Watch(service, neighbour):
        box.sh("for i in $(seq 40); do (python3 -c \"x = bytearray(12 << 20); import time; time.sleep(3)\" &) ; done; sleep 3.5", timeout=60)
    assert wait_until(lambda: works(box)), "the agent was killed in the place of what it started"


def test_R02_out_of_memory_is_told(service):
    box = small(service)
    with box.start(PROBE_INSIDE, "-x", "hog_memory,2000,20", timeout=60) as stream:
        stream.rest()
    kinds = wait_until(lambda: [k for k in service.client.kinds(box.id) if k == "limit.oom"])
    assert kinds, "there is no limit.oom event"


def run_in_session(service, box, code):
    """In an isolated session of OpenSandbox's API, with a network of its own."""
    at, headers = f"/v1/sandboxes/{box.id}/proxy/44772/v1/isolated/session", {"OPEN-SANDBOX-API-KEY": service.key, "Content-Type": "application/json"}
    status, _, made = service.request("POST", at, {"workspace": {"path": "/srv/place"}, "profile": "balanced", "share_net": False}, headers)
    assert status == 201, made
    with contextlib.suppress(Exception):
        service.request("POST", f"{at}/{made['session_id']}/run", {"code": code}, headers)


@pytest.mark.parametrize("in_session", [False, True])
def test_R02_answers_that_nobody_reads(service, make, in_session):
    """What the kernel keeps of them is in no limit: who has much of it when the machine loses memory is ended, and nobody else."""
    box, neighbour = small(service), make()
    before = unreclaimable()
    with Watch(service, neighbour):
        if in_session:
            run_in_session(service, box, f"{PROBE_INSIDE} -x hog_netlink,3000,20")
        else:
            with contextlib.suppress(Exception):
                with box.start(PROBE_INSIDE, "-x", "hog_netlink,3000,20", timeout=30) as stream:
                    stream.rest()
        end = wait_until(lambda: service.request("GET", f"/cove/v1/sandboxes/{box.id}")[2].get("end_cause"))
    assert end == "oom", end
    assert re.search(f"the machine is losing memory: sandbox {box.id} holds [0-9]+ MiB unread in netlink sockets", read(service.log))
    assert wait_until(lambda: unreclaimable() - before < 256 * MIB)


@pytest.mark.parametrize("verb", ["hog_backlog,400,20", "hog_locks,4000000,20", "hog_file_locks,4000000,20"])
def test_R02_connections_and_locks(service, make, verb):
    """The same of connections that nobody accepts, and of locks of files."""
    box, neighbour = small(service), make()
    before = unreclaimable()
    with Watch(service, neighbour):
        with contextlib.suppress(Exception):
            with box.start(PROBE_INSIDE, "-x", verb, timeout=60) as stream:
                stream.rest()
    end = wait_until(lambda: service.request("GET", f"/cove/v1/sandboxes/{box.id}")[2].get("end_cause"))
    assert end == "oom", end
    told = "connections that no program has accepted" if "backlog" in verb else "most of the machine's locks of files"
    assert f"sandbox {box.id} holds" in (log := read(service.log)) and told in log
    assert wait_until(lambda: unreclaimable() - before < 256 * MIB)


@pytest.mark.parametrize("user", USERS)
def test_R02_groups_of_multicast(make, user):
    """To join, and to end when one has, takes the machine's one lock of networks: nobody joins, and nothing is kept."""
    control = outside("groups,200,20", net=True)["groups,200,20"]
    box, neighbour = make(), make()
    attack = inside(box, "groups,180,20", user=user)["groups,180,20"]
    judge(attack, control, {"EPERM"})
    assert attack.note.endswith(" 0 joined"), attack
    before = unreclaimable()
    with hog(box, "hog_groups,200000,20", user) as taken:
        assert taken == 0, f"{taken} groups, and the kernel has {(unreclaimable() - before) / MIB:.1f} MiB more"
        answers(neighbour)


@pytest.mark.parametrize("user", USERS)
def test_R02_connections_that_nobody_has(make, user):
    """Of which the machine has one limit, beyond which what anybody closes is cut: none is kept for longer than a row in a table."""
    if hog_outside("hog_orphans,500,20") < 400:
        pytest.skip("proves nothing: this kernel keeps none of it outside, either")
    box, neighbour = make(), make()
    with hog(box, "hog_orphans,500,20", user) as kept:
        assert kept < 10, kept # the machine has one count: a few of others come in between
        answers(neighbour)


# What the kernel counts by user or for the whole machine: (what to take, how much, what the other needs then)
PURSES = {"inotify": ("hog_inotify,100000,30", "hog_inotify,3,1"), "inotify-watches": ("hog_watches,30000,30", "hog_watches,3,1"),
          "terminals": ("hog_ptys,100000,30", "hog_ptys,3,1"), "pending-signals": ("hog_signals,500000,30", "hog_signals,3,1"),
          "timers": ("hog_signals,500000,30", "hog_timers,3,1"), "message-queues": ("hog_mqueues,100000,30", "hog_mqueues,3,1"),
          "pipes": ("hog_pipes,20000,30", "hog_pipes,3,1"), "epoll": ("hog_epoll,60000,30", "hog_epoll,3,1"),
          "descriptors": ("hog_fds,400000,30", "hog_fds,3,1"), "descriptors-in-flight": ("hog_in_flight,60000,30", "hog_in_flight,3,1"),
          "sockets": ("hog_sockets,1000,30", "hog_sockets,3,1"), "shared-memory": ("hog_sysv,200,30", "hog_sysv,3,1")}


@pytest.mark.parametrize("purse", PURSES)
def test_R09_nobody_takes_what_others_need(pair, service, purse):
    """One takes all that it gets, as root and as a user; the neighbour and root on the host still get theirs."""
    one, other = pair
    take, need = PURSES[purse]
    assert hog_outside(need) == 3, "not even the host gets any now"
    with hog(one, take, "user", 40) as first, hog(one, take, "root", 40) as second:
        with hog(other, need, "user") as theirs, hog(other, need, "root") as as_root:
            print(f"{purse}: took {first} and {second}")
            assert first and theirs == 3 and as_root == 3, f"took {first}; the neighbour got {theirs}, {as_root}"
        assert hog_outside(need) == 3, "root on the host gets none"
        assert other.works() and service.create()


def test_R05_files_of_the_machine(pair):
    """Descriptors are bounded by process and by memory; the machine's table is far from full."""
    one, other = pair
    before = int(Path("/proc/sys/fs/file-nr").read_text().split()[0])
    with hog(one, "hog_fds,2000000,30", "root", 40) as taken:
        now, _, most = map(int, Path("/proc/sys/fs/file-nr").read_text().split())
        print(f"took {taken}, the machine has {now} of {most}")
        assert taken and now < most / 2 and other.works()
    assert wait_until(lambda: int(Path("/proc/sys/fs/file-nr").read_text().split()[0]) < before + 20000)


def test_R09_aio_is_the_machine_s(sandbox):
    before = int(Path("/proc/sys/fs/aio-nr").read_text())
    with hog(sandbox, "hog_aio,200000,20", "root") as taken:
        assert taken == 0 and int(Path("/proc/sys/fs/aio-nr").read_text()) <= before + 4096


def test_sync_is_one_s_own_affair(sandbox, tmp_path):
    """sync() writes back all file systems of the machine; a sandbox could keep its disks busy for ever."""
    import ctypes

    class Range(ctypes.Structure):
        _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]

    class Stat(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently")]

    libc, whole, stat = ctypes.CDLL(None, use_errno=True), Range(0, 0), Stat()

    def dirty(f):
        if libc.syscall(451, f.fileno(), ctypes.byref(whole), ctypes.byref(stat), 0) < 0:
            pytest.skip("this kernel has no cachestat() to look with")
        return stat.dirty + stat.writeback

    with open(tmp_path / "dirty", "wb") as f:
        f.write(b"x" * (8 << 20))
        f.flush()
        if dirty(f) < 1000:
            pytest.skip("this file system writes back at once")
        for _ in range(5): # others on this machine call sync(), too; not each time just now
            must(sandbox, "sync; sync; python3 -c 'import os; os.sync()'", user="root")
            if dirty(f) > 1000:
                break
            f.seek(0)
            f.write(b"y" * (8 << 20))
            f.flush()
        else:
            pytest.fail("the host's file was written back")
        os.sync()
        assert dirty(f) == 0, "not even the host's own sync() writes it back"
