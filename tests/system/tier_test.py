# SPDX-License-Identifier: Apache-2.0
"""Boundaries behind one table: who asks for one gets it or is told why not, boxes of two kinds live side by side, and a third kind (tests/faults/tiers.c), which
shares no mechanism with containers that could be in the way, has the same life."""

import os
import signal
import time

import pytest
from client import wait_for
from crash import FAULTS
from leaks import running
from service import coved_of

MISSING = "the stub was taken out; put it back"


@pytest.fixture(scope="module")
def module_service():
    if not (FAULTS / "coved").exists():
        pytest.skip(f"{FAULTS} is not built: tools/compile faults")
    with running(name="tiers", build=FAULTS, COVE_TIER="stub") as (service, client):
        yield service, client


def created(client, sandbox):
    return next(e for e in client.events(sandbox) if e["kind"] == "sandbox.create")["data"]["tier"]


def test_a_stub_lives_like_all_others(live):
    service, client = live
    sandbox = client.create()
    assert client.tier(sandbox.id) == created(client, sandbox.id) == "stub"
    code, out, _ = sandbox.sh("echo $COVE_SANDBOX_ID; hostname; id -u; mount | grep -c cgroup", user="root")
    assert code in (0, 1) and out.split()[0].decode() == sandbox.id and out.split()[2] == b"0"
    assert sandbox.upload("/home/user/f", b"x" * 3000000).status == 200
    assert sandbox.download("/home/user/f").body == b"x" * 3000000
    with sandbox.start("/bin/cat", stdin=True) as stream:
        pid = stream.started().pid
        assert pid > 1
        sandbox.unary("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    assert client.native("GET", f"/cove/v1/sandboxes/{sandbox.id}/metrics").status == 200
    assert sandbox.kill().status == 204
    assert wait_for(lambda: client.get(sandbox.id).status == 404)


def test_a_stub_is_paused_and_resumed(live):
    _, client = live
    sandbox = client.create()
    sandbox.sh("(while :; do date +%s%N > /home/user/now; sleep 0.02; done) >/dev/null 2>&1 &")
    assert wait_for(lambda: sandbox.sh("cat /home/user/now")[1])
    assert client.post(f"sandboxes/{sandbox.id}/pause")[0] == 200
    begin = time.time_ns()
    time.sleep(0.3)
    assert client.post(f"sandboxes/{sandbox.id}/resume")[0] == 200
    assert wait_for(lambda: int(sandbox.sh("cat /home/user/now")[1] or 0) > begin) # it is empty while it is written
    # its files alone: kept, and found again by a new box of the same tier
    sandbox.sh("echo kept > /home/user/kept; sync")
    assert client.post(f"sandboxes/{sandbox.id}/pause", {"memory": False})[0] == 200
    assert client.post(f"sandboxes/{sandbox.id}/resume")[0] == 200
    assert sandbox.sh("cat /home/user/kept; pgrep -c date")[1].split()[0] == b"kept"
    assert client.tier(sandbox.id) == "stub"


def test_snapshots_and_forks_keep_the_tier(live):
    _, client = live
    for name in ("stub", "container"):
        status, answer = client.post("sandboxes", {"tier": name})
        assert status == 201 and answer["tier"] == name
        sandbox = answer["id"]
        status, made = client.post(f"sandboxes/{sandbox}/snapshots")
        assert status in (200, 201), made
        status, forks = client.post(f"sandboxes/{sandbox}/fork", {"count": 2})
        assert status in (200, 201), forks
        assert {f["sandbox"]["tier"] for f in forks["forks"]} == {name}
        status, other = client.post("sandboxes", {"template": made["ref"]})
        assert (status, other["tier"]) == (201, name)
        weaker = "container" if name == "stub" else None
        if weaker:
            status, refused = client.post("sandboxes", {"template": made["ref"], "tier": weaker})
            assert status == 400 or status == 409, refused
            assert "requires tier stub" in refused["error"]["message"]


def test_a_stub_outlives_coved(live):
    service, client = live
    sandbox, other = client.create(), client.create(metadata={"cove.tier": "container"})
    assert client.tier(other.id) == "container"
    with sandbox.start("/bin/sh", "-c", "sleep 1; echo still here") as stream:
        stream.started()
        os.kill(coved_of(service.coved.pid), signal.SIGKILL)
        assert stream.rest()[1] == b"still here\n"
    assert wait_for(lambda: sandbox.works() and other.works())
    assert (client.tier(sandbox.id), client.tier(other.id)) == ("stub", "container")
    assert sandbox.kill().status == 204 and other.kill().status == 204


def test_other_facades_have_a_word_for_it(live):
    service, client = live
    sandbox = client.create(metadata={"cove.tier": "container"})
    assert created(client, sandbox.id) == "container"
    body = {"image": {"uri": "base"}, "timeout": 60, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {},
            "extensions": {"cove.tier": "container"}}
    answer = client.request("POST", "/v1/sandboxes", body, {"OPEN-SANDBOX-API-KEY": client.key})
    assert answer.status == 202, answer
    assert client.tier(answer.json["id"]) == "container"
    done = service.cove("run", "--tier", "container", "--keep", "--", "true")
    assert done.returncode == 0, done
    listed = service.cove("ls").stdout
    assert " container " in listed


def test_unknown_and_missing_ones_are_refused(module_service):
    _, client = module_service
    status, refused = client.post("sandboxes", {"tier": "castle"})
    assert status == 400 and refused["error"]["message"].startswith("there is no tier 'castle' (available: container, stub"), refused
    answer = client.control("POST", "/v2/sandboxes", {"templateID": "base", "metadata": {"cove.tier": "castle"}})
    assert answer.status == 400 and "there is no tier 'castle'" in answer.json["message"], answer
    with running(name="tiers", build=FAULTS, COVE_STUB_MISSING=MISSING) as (service, client):
        status, refused = client.post("sandboxes", {"tier": "stub"})
        assert status in (400, 409, 412), (status, refused)
        assert refused["error"]["message"].startswith(f"tier stub is not available here: {MISSING} (available: container")
        assert not client.list()
        sandbox = client.create()
        assert client.tier(sandbox.id) == "container"
        sandbox.kill()


def test_what_the_configuration_says(tmp_path):
    config = tmp_path / "cove.yaml"
    config.write_text("tiers: {minimum: stub}\n")
    with running(name="tiers", build=FAULTS, COVE_CONFIG=str(config)) as (_, client):
        status, refused = client.post("sandboxes", {"tier": "container"})
        assert status >= 400 and "demands stub at least (available: stub" in refused["error"]["message"], refused
        sandbox = client.create()
        assert client.tier(sandbox.id) == "stub" and sandbox.works()
        sandbox.kill()
