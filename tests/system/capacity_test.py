# SPDX-License-Identifier: Apache-2.0
"""What docs/CAPACITY.md says that one more sandbox takes: it takes no more than that, and not so much less that the figure says nothing."""

import re
from pathlib import Path

import pytest
from leaks import running
from service import TOP, WARM, children, read, wait_until

PAGE = TOP / "docs/CAPACITY.md"
SANDBOXES, SLACK = 60, 6
MIB = 1 << 20


def figure(name):
    """Of the page's table, and its formula has a line for it."""
    (value,) = re.findall(rf"^\| {name} \| ([\d.]+)", PAGE.read_text(), re.M)
    return float(value)


def memory_of(pid):
    """Without pages of files: the programs' own are shared with however many services run beside."""
    return sum(int(kib) for kib in re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", read(f"/proc/{pid}/smaps_rollup"), re.M)) * 1024


def used_by_groups(service):
    """What the kernel charges to the sandboxes' control groups, its own memory included."""
    files = [path for group in service.groups() for name in ("memory.usage_in_bytes", "memory.current") if (path := Path(group) / name).exists()]
    return sum(int(read(path) or 0) for path in files if path.parent.name.isdigit())


def measure(service, sandboxes=0):
    """With the same stock each time: a blank box has a descriptor more than one with files."""
    counts = {}

    def settle():
        counts.update(service.settle(sandboxes))
        return counts["boxes in the pool"] == WARM + sandboxes

    assert wait_until(settle), (counts, service.tail())
    workers = [service.coved_pid, service.child("cove-api"), service.child("cove-egress"), service.coved.pid]
    return {
        "overhead": (used_by_groups(service) + sum(map(memory_of, workers))) / MIB,
        "descriptors of coved": counts["descriptors of coved"],
        "processes": len(children(service.coved.pid)),
    }


@pytest.fixture(scope="module")
def grown():
    with running(name="capacity") as (service, client):
        client.create().kill()
        before = measure(service)
        for _ in range(SANDBOXES):
            client.create(timeout=3600)
        now = measure(service, SANDBOXES)
        yield {name: (now[name] - before[name]) / SANDBOXES for name in now}
        client.remove_all()
        assert wait_until(lambda: not client.list())


@pytest.mark.parametrize("name", ["overhead", "descriptors of coved", "processes"])
def test_one_more_takes_what_the_page_says(grown, name):
    said = figure(name)
    print(f"{name}: {grown[name]:.2f}, {said} said")
    assert said / SLACK <= grown[name] <= said


def test_the_example_is_the_formula():
    """Each line is computed anew, and the least of them is what the text concludes."""
    lines = re.findall(r"^    (memory|processors|disk) +(.*?) += (\d+)$", PAGE.read_text(), re.M)
    assert len(lines) == 3
    units = {"GiB": 1024.0, "MiB": 1.0, "GB": 1000.0}
    found = {}
    for name, text, result in lines:
        expression = re.sub(r"([\d.]+)(?: (GiB|MiB|GB))?", lambda m: str(float(m[1]) * units.get(m[2], 1.0)), text)
        found[name] = int(eval(expression, {"__builtins__": {}}))  # noqa: S307
        assert found[name] == int(result), (name, expression)
    assert f"It holds {min(found.values())} at a time" in PAGE.read_text()
    assert f"({figure('overhead')} MiB + " in dict((n, t) for n, t, _ in lines)["memory"]
