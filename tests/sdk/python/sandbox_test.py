# SPDX-License-Identifier: Apache-2.0
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest
from conftest import everything, unique, until
from e2b import AuthenticationException, Sandbox, SandboxException, SandboxQuery, SandboxState, TimeoutException
from e2b.exceptions import SandboxNotFoundException, SandboxNotRunningException

UNKNOWN = "i" + "0" * 20


def test_info_says_what_a_sandbox_is(make):
    metadata = unique(purpose="a test")
    box = make(metadata=metadata, timeout=300)
    assert box.is_running()
    info = box.get_info()
    assert info.sandbox_id == box.sandbox_id
    assert info.state == SandboxState.RUNNING
    assert info.metadata == metadata
    assert info.template_id
    assert info.cpu_count >= 1 and info.memory_mb >= 128
    assert round((info.end_at - info.started_at).total_seconds()) == 300
    assert info == Sandbox.get_info(box.sandbox_id)


def test_kill_ends_a_sandbox_for_everybody(make):
    metadata = unique()
    box = make(metadata=metadata)
    assert box.kill() is True
    assert box.is_running() is False
    assert box.kill() is False
    assert Sandbox.kill(UNKNOWN) is False
    assert everything(Sandbox.list(SandboxQuery(metadata=metadata))) == []
    with pytest.raises(SandboxNotFoundException):
        box.get_info()
    with pytest.raises(SandboxNotRunningException, match="The sandbox was not found"):
        box.commands.run("true")


def test_a_context_kills_its_sandbox():
    with Sandbox.create(timeout=60) as box:
        assert box.commands.run("echo hi").stdout == "hi\n"
    assert box.is_running() is False


def test_the_list_is_filtered_by_metadata(make):
    both = unique(name='a&b=c d+e%f "ü" 😀')
    box = make(metadata=both)
    make(metadata={"test": both["test"], "name": "other"})
    listed = everything(Sandbox.list(SandboxQuery(metadata=both)))
    assert [s.sandbox_id for s in listed] == [box.sandbox_id]
    assert listed[0].metadata == both
    assert len(everything(Sandbox.list(SandboxQuery(metadata={"test": both["test"]})))) == 2


def test_the_list_is_filtered_by_state_template_and_start(make):
    metadata = unique()
    info = make(metadata=metadata).get_info()

    def count(**query):
        return len(everything(Sandbox.list(SandboxQuery(metadata=metadata, **query))))

    assert count(state=[SandboxState.RUNNING]) == 1
    assert count(state=[SandboxState.PAUSED]) == 0
    assert count(template=info.template_id) == 1
    assert count(template="no-such-template") == 0
    assert count(started_after=info.started_at) == 1
    assert count(started_after=info.started_at + timedelta(seconds=1)) == 0


def test_the_list_is_ordered_and_paged(make):
    metadata = unique()
    ids = [make(metadata=metadata).sandbox_id for _ in range(5)]
    for order, expected in (("asc", ids), ("desc", ids[::-1]), (None, ids[::-1])):
        paginator = Sandbox.list(SandboxQuery(metadata=metadata), limit=2, order=order)
        pages = []
        while paginator.has_next:
            pages.append([s.sandbox_id for s in paginator.next_items()])
        assert [len(page) for page in pages] == [2, 2, 1]
        assert sum(pages, []) == expected


def test_connect_finds_the_sandbox_and_only_lengthens_its_life(make):
    box = make(timeout=200)
    box.files.write("note", "from the first")
    before = box.get_info().end_at
    again = Sandbox.connect(box.sandbox_id, timeout=10)
    assert again.files.read("note") == "from the first"
    assert box.get_info().end_at == before
    box.connect(timeout=900)
    assert box.get_info().end_at > before + timedelta(seconds=600)


def test_set_timeout_moves_the_end_and_the_end_comes(make):
    box = make(timeout=60)
    started = box.get_info().started_at
    box.set_timeout(600)
    assert box.get_info().end_at - started > timedelta(seconds=500)
    box.set_timeout(5)
    assert box.get_info().end_at - started < timedelta(seconds=60)
    assert until(lambda: not box.is_running(), 30), "still running long after its end"
    with pytest.raises(SandboxNotFoundException):
        box.set_timeout(1)


def test_metrics_come_and_not_from_the_past(box):
    metrics = until(box.get_metrics, 30, 0.5)
    assert metrics, "no metric within 30 s"
    assert metrics[0].cpu_count >= 1
    assert 0 < metrics[0].mem_used <= metrics[0].mem_total
    assert metrics[0].disk_total > 0
    now = datetime.now(timezone.utc)
    assert box.get_metrics(start=now - timedelta(hours=2), end=now - timedelta(hours=1)) == []


def test_sandboxes_are_made_in_parallel(make):
    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(lambda n: make().commands.run(f"echo {n}").stdout, range(8)))
    assert outputs == [f"{n}\n" for n in range(8)]


def test_an_unknown_sandbox_is_said_to_be_unknown():
    for call in (Sandbox.get_info, Sandbox.connect, lambda i: Sandbox.set_timeout(i, 1)):
        with pytest.raises(SandboxNotFoundException):
            call(UNKNOWN)


def test_a_wrong_key_opens_nothing(box):
    key = "e2b_" + "0123456789" * 4
    with pytest.raises(AuthenticationException):
        Sandbox.create(api_key=key)
    with pytest.raises(AuthenticationException):
        Sandbox.kill(box.sandbox_id, api_key=key)
    assert box.is_running()


def test_what_cannot_be_created_is_refused_with_the_reason():
    with pytest.raises(SandboxException, match="404.*no-such-template"):
        Sandbox.create("no-such-template")
    with pytest.raises(SandboxException, match="400.*[Tt]imeout"):
        Sandbox.create(timeout=0)


def test_a_command_learns_that_its_sandbox_was_killed(box):
    command = box.commands.run("sleep 60", background=True)
    box.kill()
    with pytest.raises(TimeoutException, match="killed|not found"):
        command.wait()
