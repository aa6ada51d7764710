# SPDX-License-Identifier: Apache-2.0
"""What a sandbox may have is told when it wants more: in its log, by the kernel, as often as it helps whoever reads it."""

import json

import pytest
from leaks import own_service

LIMIT = 40
BOMB = """
import os, time
end = time.monotonic() + 12 # longer than two of the samples that are taken by themselves
while time.monotonic() < end:
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    except OSError:
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    config = tmp_path_factory.mktemp("limits") / "cove.yaml"
    config.write_text(f"defaults: {{pids: {LIMIT}}}\n")
    with own_service("limits", COVE_CONFIG=str(config)) as service:
        yield service


def told(service, sandbox):
    service.on_record()
    events = map(json.loads, service.request("GET", f"/cove/v1/sandboxes/{sandbox}/events")[2].splitlines())
    return [e for e in events if e["kind"] == "limit.pids"]


def test_a_fork_bomb_is_told_once(service):
    bombed, other = service.create(), service.create()
    assert service.cove("exec", other, "--", "true").returncode == 0
    assert service.cove("exec", bombed, "--", "python3", "-c", BOMB).returncode == 0
    assert len(told(service, bombed)) == 1, told(service, bombed)
    event = told(service, bombed)[0]
    assert (event["source"], event["grade"], event["data"]["limit"]) == ("kernel", "observed-kernel", LIMIT), event
    assert event["data"]["refused"] > 0
    assert told(service, other) == []


def test_a_command_that_can_not_start_its_own_is_told_at_once(service):
    """Not at the next sample, which this one may not live to see."""
    sandbox = service.create()
    done = service.cove("exec", sandbox, "--", "sh", "-c", f"for i in $(seq {2 * LIMIT}); do sleep 0.1 & done; wait")
    assert done.returncode != 0 and "fork" in done.stderr.lower(), done
    service.request("DELETE", f"/cove/v1/sandboxes/{sandbox}")
    assert [e["data"]["limit"] for e in told(service, sandbox)] == [LIMIT]
