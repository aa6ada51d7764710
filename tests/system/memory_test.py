# SPDX-License-Identifier: Apache-2.0
"""
Memory that is saved: with snapshots, into forks, of sandboxes that are paused to disk, and with templates. The stub tier's memory is /dev/shm/memory
(tests/faults/tiers.c); COVE_TEST_TIER=gvisor and microvm have all of it.
"""

import json
import os
import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from client import wait_for
from crash import FAULTS, SETTLE_S
from leaks import running
from service import BUILD, TIER, children, coved_of, read, wait_until

is_stub = pytest.mark.skipif(TIER not in (None, "stub"), reason="it tells what the tests' own tier says")
DEATHS = ["coved.memory.begun", pytest.param("stub.checkpoint", marks=is_stub), "pool.cloned", "coved.memory.saved", "pool.put", "coved.memory.named"]


@pytest.fixture(scope="module")
def stubs():
    if not (FAULTS / "coved").exists():
        pytest.skip(f"{FAULTS} is not built: tools/compile faults")
    with tempfile.TemporaryDirectory(prefix="test-points-", dir=BUILD) as directory:
        points = Path(directory)
        points.chmod(0o777)
        with running(name="memory", build=FAULTS, COVE_TIER=TIER or "stub", COVE_FAULTS=str(points)) as (service, client):
            service.points, client.service = points, service
            yield service, client


@pytest.fixture
def live(stubs):
    service, client = stubs
    yield service, client
    for point in service.points.iterdir():
        point.unlink()
    client.remove_all()
    assert wait_for(lambda: not client.list())
    for snapshot in client.native("GET", "/cove/v1/snapshots").json["snapshots"]:
        client.native("DELETE", f"/cove/v1/snapshots?ref={snapshot['ref']}")
    def is_gone():
        client.post("pool/collect")
        return not in_pool(service, "memory")
    assert wait_until(is_gone, SETTLE_S), in_pool(service, "memory")
    assert not in_pool(service, "new")


def must(client, path, body=None):
    status, answer = client.post(path, body)
    assert status in (200, 201), (path, status, answer)
    return answer


def show(client, sandbox):
    return client.native("GET", f"/cove/v1/sandboxes/{sandbox}").json


def run(client, sandbox, command):
    done = client.service.cove("exec", "--user", "root", sandbox, "--", "sh", "-c", command)
    assert done.returncode in (0, 1, 2), (sandbox, command, done)
    return done.stdout


def in_pool(service, part):
    stage = Path(f"/proc/{service.coved_pid}/root/pool")
    pool = stage if stage.is_dir() else service.state / "pool"
    return sorted(p.name for p in (pool / part).iterdir())


def remember(client, sandbox, word):
    """In memory and in a file."""
    run(client, sandbox, f"echo {word} > /dev/shm/memory; echo {word} > /home/user/file")


def remembered(client, sandbox):
    return run(client, sandbox, "cat /dev/shm/memory /home/user/file").split()


def test_a_snapshot_with_memory_goes_on(live):
    service, client = live
    sandbox = client.create()
    remember(client, sandbox.id, "one")
    with sandbox.start("/bin/sh", "-c", "for i in $(seq 40); do echo $i; sleep 0.05; done; echo over") as stream:
        stream.started()
        made = must(client, f"sandboxes/{sandbox.id}/snapshots", {"memory": True, "name": "warm"})
        code, out = stream.rest()[:2]
        assert (code, out.split()) == (0, [*(str(i).encode() for i in range(1, 41)), b"over"]) # nothing twice, nothing lost
    assert made["memory"] is True
    assert sandbox.works()
    remember(client, sandbox.id, "two")
    for _ in range(2):
        other = must(client, "sandboxes", {"template": "warm"})["id"]
        assert remembered(client, other) == ["one", "one"]
        told = json.loads(run(client, other, "cat /run/cove/restored"))
        assert told["count"] == 1 and told["sandbox"] == other
        assert run(client, other, "echo $COVE_SANDBOX_ID").strip() == other
    cold = must(client, "sandboxes", {"template": "warm", "memory": False})["id"]
    assert run(client, cold, "ls /dev/shm; cat /home/user/file; ls /run/cove/restored 2>/dev/null").split() == ["one"]
    again = must(client, f"sandboxes/{other}/snapshots", {"memory": True})["ref"]
    third = must(client, "sandboxes", {"template": again})["id"]
    assert json.loads(run(client, third, "cat /run/cove/restored"))["count"] == 2
    run(client, third, "rm /run/cove/restored; mkfifo /run/cove/restored /run/cove/restored.new")
    fourth = must(client, "sandboxes", {"template": must(client, f"sandboxes/{third}/snapshots", {"memory": True})["ref"]})["id"]
    assert json.loads(run(client, fourth, "cat /run/cove/restored"))["count"] == 1 # what was there is no file, and nobody waits for it
    kinds = [e["kind"] for e in client.events(other)]
    assert "exec.start" in kinds and "sandbox.started" in kinds and client.verify(other).json["intact"]


def test_forks_go_on_each_by_itself(live):
    _, client = live
    sandbox = client.create()
    remember(client, sandbox.id, "shared")
    forks = [f["sandbox"] for f in must(client, f"sandboxes/{sandbox.id}/fork", {"memory": True, "count": 3})["forks"]]
    assert len({f["id"] for f in forks}) == 3
    for i, fork in enumerate(forks):
        assert remembered(client, fork["id"]) == ["shared", "shared"]
        remember(client, fork["id"], f"own{i}")
    assert [remembered(client, f["id"])[0] for f in forks] == ["own0", "own1", "own2"]
    assert remembered(client, sandbox.id) == ["shared", "shared"]
    names = {run(client, f["id"], "hostname").strip() for f in forks}
    assert len(names) == 3


def remembering(service, word):
    """Boxes that have it in memory, whether they are anybody's or not."""
    memories = (Path(f"/proc/{pid}/root/dev/shm/memory") for pid in children(service.coved.pid))
    return sum(memory.is_file() and memory.read_text().strip() == word for memory in memories)


@is_stub
def test_one_snapshot_right_after_another(live):
    """The second one begins before the session with the agent is open again after the first."""
    service, client = live
    sandbox = client.create().id
    remember(client, sandbox, "both")
    api = service.child("cove-api")
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: client.post(f"sandboxes/{sandbox}/snapshots", {"memory": True}), range(3)))
    assert [status for status, _ in answers] == [201] * 3, answers
    assert remembered(client, sandbox) == ["both", "both"] and service.child("cove-api") == api


@is_stub
def test_what_goes_on_from_a_snapshot_waits_for_who_asks_next(live):
    service, client = live
    sandbox = client.create().id
    remember(client, sandbox, "ahead")
    snapshot = must(client, f"sandboxes/{sandbox}/snapshots", {"memory": True})
    forks = must(client, f"sandboxes/{sandbox}/fork", {"memory": True, "count": 2})["forks"]
    others = [must(client, "sandboxes", {"template": snapshot["ref"]})["id"]]
    assert wait_until(lambda: remembering(service, "ahead") == 2 + len(forks) + 1), remembering(service, "ahead") # of the fork's own memory none waits
    os.truncate(Path(f"/proc/{service.coved_pid}/root/pool/memory") / snapshot["layer"] / "memory", 2) # and it has all of it
    others.append(must(client, "sandboxes", {"template": snapshot["ref"]})["id"])
    assert [remembered(client, other) for other in others] == [["ahead", "ahead"]] * 2
    assert json.loads(run(client, others[1], "cat /run/cove/restored"))["sandbox"] == others[1]
    assert client.post("sandboxes", {"template": snapshot["ref"], "cpu_milli": 1500})[0] >= 400 # another size: none is like that


def named(service, name):
    return {pid for pid in children(service.coved.pid) if (read(f"/proc/{pid}/comm") or "").strip() == name}


@is_stub
def test_a_fork_takes_what_waits_for_its_memory(live):
    service, client = live
    sandbox = client.create().id
    remember(client, sandbox, "first")
    fork = lambda of, count: [f["sandbox"]["id"] for f in must(client, f"sandboxes/{of}/fork", {"memory": True, "count": count})["forks"]]
    waiting = lambda: named(service, "stub-awaits")
    made = fork(sandbox, 3)
    assert wait_until(lambda: len(waiting()) == 2), waiting() # as many as were forked, but for what is blank
    ahead = waiting()
    remember(client, sandbox, "second")
    made += fork(sandbox, 4) # more than wait
    assert not ahead & waiting() and ahead <= set(children(service.coved.pid))
    assert [remembered(client, one)[0] for one in made] == ["first"] * 3 + ["second"] * 4
    remember(client, made[3], "third")
    assert wait_until(waiting)
    third = fork(made[3], 1)[0] # of what had waited: with its files
    assert remembered(client, third) == ["third", "third"]
    must(client, f"sandboxes/{third}/pause", {"memory": False})
    must(client, f"sandboxes/{third}/resume")
    assert run(client, third, "cat /home/user/file").strip() == "third"
    assert wait_until(waiting)
    for pid in waiting():
        os.kill(pid, signal.SIGKILL)
    assert remembered(client, fork(third, 1)[0])[-1] == "third"
    # Of another size none is.
    other = must(client, "sandboxes", {"cpu_milli": 1500})["id"]
    remember(client, other, "other")
    fork(sandbox, 1)
    assert wait_until(waiting)
    ahead = waiting()
    assert remembered(client, fork(other, 1)[0]) == ["other", "other"]
    still = waiting()
    assert not (ahead & set(children(service.coved.pid))) - still
    ahead = still
    os.kill(coved_of(service.coved.pid), signal.SIGKILL)
    assert wait_until(lambda: not ahead & set(children(service.coved.pid))) and wait_until(service.is_ready)
    assert remembered(client, third)[-1] == "third"


@is_stub
@pytest.mark.parametrize("point", ["stub.dress", "stub.start"])
def test_a_fork_starts_afresh_when_what_waited_has_just_died(live, point):
    service, client = live
    sandbox = client.create().id
    remember(client, sandbox, "word")
    fork = lambda: [f.get("sandbox", f)["id"] for f in must(client, f"sandboxes/{sandbox}/fork", {"memory": True})["forks"]]
    fork()
    assert wait_until(lambda: named(service, "stub-awaits"))
    (service.points / f"{point}.fail").touch(0o666)
    assert [remembered(client, one) for one in fork()] == [["word", "word"]]
    assert not list(service.points.iterdir())


def test_paused_to_disk_it_survives_the_service(live):
    service, client = live
    sandbox = client.create().id
    remember(client, sandbox, "kept")
    must(client, f"sandboxes/{sandbox}/pause", {"to": "disk"})
    paused = show(client, sandbox)
    assert (paused["state"], paused["has_memory"], paused["on_disk"]) == ("paused", True, True)
    assert in_pool(service, "memory") == [sandbox]
    service.stop()
    service.start(FAULTS / "coved")
    paused = show(client, sandbox)
    assert (paused["state"], paused["on_disk"]) == ("paused", True), service.tail()
    must(client, f"sandboxes/{sandbox}/resume")
    assert remembered(client, sandbox) == ["kept", "kept"]
    assert show(client, sandbox)["state"] == "running"
    assert wait_until(lambda: not in_pool(service, "memory"))
    # cold gives it up; so does killing it
    must(client, f"sandboxes/{sandbox}/pause", {"to": "disk"})
    must(client, f"sandboxes/{sandbox}/resume", {"cold": True})
    assert run(client, sandbox, "ls /dev/shm; cat /home/user/file").split() == ["kept"]
    must(client, f"sandboxes/{sandbox}/pause", {"to": "disk"})
    assert client.native("DELETE", f"/cove/v1/sandboxes/{sandbox}").status == 200
    assert wait_until(lambda: not in_pool(service, "memory"))


def build(client, name, **spec):
    """A template whose start command remembers that it was run, in memory and in a file."""
    start = "echo start >> /dev/shm/memory; echo start >> /home/user/file; exec sleep infinity"
    made = must_accept(client, "builds", {"name": name, "spec": {"template": "base", "start_cmd": start, "ready_cmd": "test -s /home/user/file", **spec}})
    status = lambda: client.native("GET", f"/cove/v1/builds/{made['id']}").json
    assert wait_until(lambda: status()["status"] in ("ready", "failed"), 120), status()
    return status()


def must_accept(client, path, body):
    status, answer = client.post(path, body)
    assert status == 202, (status, answer)
    return answer


def test_a_template_begins_after_its_start_command(live):
    service, client = live
    try:
        made = build(client, "begun", steps=[{"type": "RUN", "args": ["echo step > /dev/shm/memory"]}]) # of which nothing goes on
        assert made["status"] == "ready", (made.get("reason"), service.tail())
        assert len(in_pool(service, "memory")) == 1
        runs = {"begun": 1, "stored": {"template": "begun"}, "variables": {"template": "begun", "env": {"A": "b"}}, "files": {"template": "begun", "memory": False}}
        started = {name: must(client, "sandboxes", spec)["id"] for name, spec in runs.items() if name != "begun"}
        assert remembered(client, started["stored"]) == ["start", "start"]
        assert json.loads(run(client, started["stored"], "cat /run/cove/restored"))["sandbox"] == started["stored"]
        for name in ("variables", "files"): # its files are those of then, and it is run again; in memory is what that run left
            assert remembered(client, started[name]) == ["start", "start", "start"], name
        must(client, f"sandboxes/{started['stored']}/pause", {"memory": False})
        must(client, f"sandboxes/{started['stored']}/resume")
        assert remembered(client, started["stored"]) == ["start", "start", "start"]
        os.truncate(next(f for f in (Path(f"/proc/{service.coved_pid}/root/pool") / "memory").glob("*/*") if f.name in ("memory", "pages.img")), 1)
        damaged = must(client, "sandboxes", {"template": "begun", "cpu_milli": 1500})["id"] # no spare is like that
        assert remembered(client, damaged) == ["start", "start", "start"]
        assert build(client, "plain", memory=False)["status"] == "ready"
        plain = must(client, "sandboxes", {"template": "plain"})["id"]
        assert remembered(client, plain) == ["start", "start"] and run(client, plain, "ls /run/cove/restored 2>/dev/null") == ""
    finally:
        drop_templates(client, service, "begun", "plain")


def drop_templates(client, service, *names):
    client.remove_all()
    for name in names:
        service.cove("template", "rm", name)
    assert service.cove("gc", "--cache").returncode == 0


@pytest.mark.parametrize("point", DEATHS)
def test_who_dies_over_a_template_leaves_it_to_its_start_command(live, point):
    service, client = live
    try:
        (service.points / point).touch(0o666)
        build(client, "died")
        assert wait_until(lambda: not (service.points / point).exists()), point
        assert wait_until(service.is_ready)
        assert build(client, "died")["status"] == "ready", service.tail()
        sandbox = must(client, "sandboxes", {"template": "died"})["id"]
        assert remembered(client, sandbox) == ["start", "start"]
    finally:
        drop_templates(client, service, "died")


def test_what_can_t_is_told(live):
    service, client = live
    plain = client.create(metadata={"cove.tier": "container"}).id
    for path, body in (("snapshots", {"memory": True}), ("fork", {"memory": True}), ("pause", {"to": "disk"})):
        status, answer = client.post(f"sandboxes/{plain}/{path}", body)
        assert status == 501 and "stub" in answer["error"]["message"], answer
    sandbox = client.create().id
    for path, body in (("pause", {"to": "tape"}), ("pause", {"to": "disk", "memory": False}), ("fork", {"memory": True, "at": 3})):
        assert client.post(f"sandboxes/{sandbox}/{path}", body)[0] == 400
    must(client, f"sandboxes/{sandbox}/pause")
    status, answer = client.post(f"sandboxes/{sandbox}/snapshots", {"memory": True})
    assert status == 409 or status == 400, answer
    assert "resume it" in answer["error"]["message"]


@is_stub
def test_another_version_and_damage_are_refused(live):
    service, client = live
    sandbox = client.create().id
    remember(client, sandbox, "old")
    made = must(client, f"sandboxes/{sandbox}/snapshots", {"memory": True})
    must(client, f"sandboxes/{sandbox}/pause", {"to": "disk"})
    service.stop()
    service.env["COVE_STUB_VERSION"] = "2"
    service.start(FAULTS / "coved")
    try:
        for path, body in (("sandboxes", {"template": made["ref"]}), (f"sandboxes/{sandbox}/resume", {})):
            status, answer = client.post(path, body)
            assert status >= 400 and "another version of the tier (stub 1, not stub 2)" in answer["error"]["message"], answer
    finally:
        service.stop()
        del service.env["COVE_STUB_VERSION"]
        service.start(FAULTS / "coved")
    assert show(client, sandbox)["on_disk"]
    pool = Path(f"/proc/{service.coved_pid}/root/pool")
    for name in (made["layer"], sandbox):
        file = pool / "memory" / name / "memory"
        os.truncate(file, 2)
    for path, body in (("sandboxes", {"template": made["ref"]}), (f"sandboxes/{sandbox}/resume", {})):
        status, answer = client.post(path, body)
        assert status >= 400 and "damaged" in answer["error"]["message"], answer
    must(client, f"sandboxes/{sandbox}/resume", {"cold": True})
    assert run(client, sandbox, "cat /home/user/file").strip() == "old"


@pytest.mark.parametrize("operation", ["snapshot", "pause"])
@pytest.mark.parametrize("point", DEATHS)
def test_who_dies_over_it_leaves_it_whole_or_absent(live, operation, point):
    service, client = live
    if operation == "pause" and point == "pool.cloned":
        pytest.skip("nothing is cloned before that is over")
    sandbox = client.create().id
    remember(client, sandbox, "safe")
    (service.points / point).touch(0o666)
    path, body = (f"sandboxes/{sandbox}/snapshots", {"memory": True}) if operation == "snapshot" else (f"sandboxes/{sandbox}/pause", {"to": "disk"})
    status, answer = client.post(path, body)
    assert wait_until(lambda: not (service.points / point).exists()), (status, answer, service.tail())
    assert wait_until(service.is_ready)
    if status in (200, 201) and operation == "pause":
        must(client, f"sandboxes/{sandbox}/resume")
    assert wait_until(lambda: show(client, sandbox)["state"] == "running", SETTLE_S), (show(client, sandbox), service.tail())
    assert remembered(client, sandbox) == ["safe", "safe"] # it goes on
    if status in (200, 201) and operation == "snapshot":
        other = must(client, "sandboxes", {"template": answer["ref"]})["id"]
        assert remembered(client, other) == ["safe", "safe"]


@pytest.mark.parametrize("operation", ["snapshot", "pause"])
@pytest.mark.parametrize("who", ["coved", "cove-api"])
def test_coved_and_the_worker_die_meanwhile(live, operation, who):
    service, client = live
    point = {"snapshot": {"coved": "coved.snapshot.frozen", "cove-api": "core.store.asked"}, "pause": {"coved": "coved.save.done", "cove-api": "core.pause.answered"}}
    sandbox = client.create().id
    remember(client, sandbox, "safe")
    before = service.coved_pid, service.child("cove-api")
    (service.points / point[operation][who]).touch(0o666)
    path, body = (f"sandboxes/{sandbox}/snapshots", {"memory": True}) if operation == "snapshot" else (f"sandboxes/{sandbox}/pause", {"to": "disk"})
    try:
        client.post(path, body)
    except OSError:
        assert who == "cove-api"
    assert wait_until(lambda: (service.coved_pid, service.child("cove-api")) != before and service.is_healthy() and service.is_ready())
    assert wait_until(lambda: show(client, sandbox)["state"] in ("running", "paused"), SETTLE_S), service.tail()
    if show(client, sandbox)["state"] == "paused":
        must(client, f"sandboxes/{sandbox}/resume")
    assert remembered(client, sandbox)[-1] == "safe", service.tail()
    assert remembered(client, sandbox) == ["safe", "safe"], service.tail()


@pytest.mark.parametrize("operation", ["snapshot", "pause"])
@pytest.mark.parametrize("fault", ["coved.save.full", "coved.save.fail"])
def test_a_disk_that_is_full_or_fails_is_told(live, operation, fault):
    service, client = live
    sandbox = client.create().id
    remember(client, sandbox, "safe")
    (service.points / fault).touch(0o666)
    path, body = (f"sandboxes/{sandbox}/snapshots", {"memory": True}) if operation == "snapshot" else (f"sandboxes/{sandbox}/pause", {"to": "disk"})
    status, answer = client.post(path, body)
    assert status >= 400 and ("the storage pool is full" if "full" in fault else "save the memory") in answer["error"]["message"], answer
    assert wait_until(lambda: show(client, sandbox)["state"] == "running")
    assert remembered(client, sandbox) == ["safe", "safe"]
    must(client, path, body) # and works the next time
    if operation == "pause":
        must(client, f"sandboxes/{sandbox}/resume")
    assert remembered(client, sandbox) == ["safe", "safe"]


def test_a_keeper_that_dies_leaves_what_is_on_disk(live):
    service, client = live
    sandbox = client.create().id
    remember(client, sandbox, "kept")
    must(client, f"sandboxes/{sandbox}/pause", {"to": "disk"})
    os.kill(coved_of(service.coved.pid), signal.SIGKILL)
    assert wait_until(lambda: service.is_healthy() and service.is_ready())
    service.coved.kill()
    service.coved.wait()
    service.start(FAULTS / "coved")
    must(client, f"sandboxes/{sandbox}/resume")
    assert remembered(client, sandbox) == ["kept", "kept"]
