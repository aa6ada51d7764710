# SPDX-License-Identifier: Apache-2.0
"""What programs in a sandbox take its machine for: its limits, and what it uses of them."""

import json
import shutil
import subprocess
import time

import pytest
from leaks import own_service
from service import wait_until

MEMORY = 600 << 20
LATE_S = 15 # a sample comes every 5 s


@pytest.fixture(scope="module")
def service():
    with own_service("figures") as service:
        yield service


def run(service, sandbox, script, **options):
    done = service.cove("exec", sandbox, "--", "bash", "-c", script, **options)
    assert done.returncode == 0, done
    return done.stdout.strip()


@pytest.fixture(scope="module")
def small(service):
    return service.create(memory_bytes=MEMORY, cpu_milli=1000, timeout_ms=0)


def meminfo(service, sandbox, name):
    return int(run(service, sandbox, f"awk '$1 == \"{name}:\" {{ print $2 * 1024 }}' /proc/meminfo"))


def test_memory(service, small):
    assert run(service, small, "free -b | awk '/^Mem/ { print $2 }'") == str(MEMORY)
    assert 0 < meminfo(service, small, "MemAvailable") <= MEMORY
    read = json.loads(run(service, small, "node -p 'JSON.stringify([os.totalmem(), v8.getHeapStatistics().heap_size_limit])'"))
    assert read[0] == MEMORY and read[1] < MEMORY, read


def test_processors(service, small):
    online = run(service, small, "cat /sys/devices/system/cpu/online")
    assert online.isdigit() # one
    assert run(service, small, "nproc; grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat").split() == ["1"] * 3
    assert run(service, small, "python3 -c 'import os; print(os.cpu_count(), os.sched_getaffinity(0))'") == f"1 {{{online}}}"
    assert run(service, small, "node -p 'os.cpus().length'") == "1"
    two = service.create(memory_bytes=MEMORY, cpu_milli=1500)
    assert run(service, two, "nproc; python3 -c 'import os; print(os.cpu_count())'").split() == ["2", "2"]


def test_sandboxes_of_one_processor_are_spread(service):
    used = [run(service, service.create(cpu_milli=1000), "cat /sys/devices/system/cpu/online") for _ in range(4)]
    assert len(set(used)) > 1, used


def test_control_group(service, small):
    there = run(service, small, "head -n 1 /proc/self/cgroup")
    read = run(service, small, "cd /sys/fs/cgroup; cat memory.max cpu.max" if there.startswith("0::") else
               "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us").split()
    assert read == [str(MEMORY), "100000", "100000"]


def test_java(service, small, tmp_path):
    if not shutil.which("jlink"):
        pytest.skip("no JDK at hand")
    subprocess.run(["jlink", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "--add-modules", "java.base", "--strip-debug", "--output", tmp_path / "java"], check=True, timeout=280)
    assert service.cove("cp", f"{tmp_path}/java", f"{small}:/home/user/java").returncode == 0
    flags = run(service, small, "./java/bin/java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '/ MaxHeapSize / { print $4 }'")
    assert MEMORY // 8 < int(flags) <= MEMORY // 2, flags # a quarter, more where there is little
    assert "1" in run(service, small, "./java/bin/java -Xlog:os+container=trace -version | grep -i 'active_processor_count: 1' | head -n 1")


def allocate(service, sandbox, mib):
    program = f"b = bytearray({mib} << 20); b[::4096] = b'x' * len(b[::4096]); print('there', flush=True); import time; time.sleep(600)"
    process = service.popen("exec", sandbox, "--", "python3", "-c", program, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"there\n"
    return process


def gone_from(service, sandbox, before, mib):
    return wait_until(lambda: before - meminfo(service, sandbox, "MemAvailable") > mib << 20, LATE_S)


def test_what_is_used_is_shown(service, small):
    before = meminfo(service, small, "MemAvailable")
    process = allocate(service, small, 200)
    try:
        assert gone_from(service, small, before, 150)
        started = run(service, small, "cut -d' ' -f1 /proc/loadavg; awk '/^cpu / { print $2 }' /proc/stat").split()
        run(service, small, "sh -c 'ulimit -t 4; while :; do :; done' || true")
        time.sleep(5)
        then = run(service, small, "cut -d' ' -f1 /proc/loadavg; awk '/^cpu / { print $2 }' /proc/stat").split()
        assert float(then[0]) > float(started[0]) and int(then[1]) - int(started[1]) > 300, (started, then)
    finally:
        process.kill()
        process.wait()


def test_it_goes_on_when_coved_dies(service):
    sandbox = service.create(memory_bytes=MEMORY, cpu_milli=1000)
    before = meminfo(service, sandbox, "MemAvailable")
    online = run(service, sandbox, "cat /sys/devices/system/cpu/online")
    service.kill_coved()
    process = allocate(service, sandbox, 200)
    try:
        assert gone_from(service, sandbox, before, 150)
        assert run(service, sandbox, "cat /sys/devices/system/cpu/online") == online
    finally:
        process.kill()
        process.wait()


def test_another_sandbox_has_its_own(service):
    """A tree is used again: nothing of the sandbox before shows."""
    first = service.create(memory_bytes=MEMORY, cpu_milli=1000)
    service.request("DELETE", f"/cove/v1/sandboxes/{first}")
    for memory in (300 << 20, 400 << 20):
        assert meminfo(service, service.create(memory_bytes=memory, cpu_milli=2000), "MemTotal") == memory


def test_nobody_inside_writes_them(service, small):
    tried = "for f in /proc/meminfo /proc/stat /sys/fs/cgroup/pids.max /sys/fs/cgroup/cgroup.procs /sys/devices/system/cpu/online; do " \
            "(echo 1 > $f) 2>/dev/null && echo $f; (umount $f) 2>/dev/null && echo $f; touch $f 2>/dev/null && echo $f; done; true"
    assert run(service, small, f"sudo bash -c '{tried}'") == ""
    assert "release_agent" not in run(service, small, "sudo find /sys/fs/cgroup -follow 2>/dev/null || true")
