# SPDX-License-Identifier: Apache-2.0
"""What is done to templates, secrets and the pool stands in the log of the service."""

import json
import os

import pytest
from leaks import own_service
from service import wait_until


@pytest.fixture(scope="module")
def service():
    with own_service("service-log") as service:
        yield service


def events(service, *flags):
    done = service.cove("log", "--service", "--json", *flags)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_kind(service, kind, begin=1):
    return [e for e in events(service, "--from", str(begin)) if e["kind"] == kind]


def test_who_did_what(service, tmp_path):
    begin = events(service)[-1]["seq"] + 1
    actor = f"cli:uid={os.getuid()}"
    (tmp_path / "Dockerfile").write_text("FROM e2bdev/base\nRUN echo logged > /logged\n")
    built = service.cove("template", "build", "--name", "logged", tmp_path)
    assert built.returncode == 0, built
    template = built.stdout.split()[-1]
    (request,), (build,), (ready,) = (of_kind(service, kind, begin) for kind in ("template.request", "template.build", "template.built"))
    assert request["data"]["name"] == "logged" and build["data"]["template"] == ready["data"]["template"] == template
    assert ready["cause"] == build["seq"] and build["actor"] == request["actor"] == actor

    (tmp_path / "Dockerfile").write_text("FROM e2bdev/base\nRUN exit 7\n")
    assert service.cove("template", "build", "--name", "logged", tmp_path).returncode == 1
    (failed,) = of_kind(service, "template.failed", begin)
    assert "exit" in failed["data"]["reason"] and failed["cause"] == of_kind(service, "template.build", begin)[1]["seq"]

    box = service.create(template="logged")
    refused = service.cove("template", "rm", "logged")
    assert refused.returncode == 1 and box in refused.stderr
    service.remove_all()
    assert service.cove("template", "rm", "logged").returncode == 0
    first, second = of_kind(service, "template.remove", begin)
    assert [e["cause"] for e in of_kind(service, "service.refused", begin)] == [first["seq"]] and second["actor"] == actor

    assert service.cove("secret", "set", "LOGGED", input="not-for-the-log").returncode == 0
    assert service.cove("secret", "rm", "LOGGED").returncode == 0
    assert wait_until(lambda: of_kind(service, "secret.removed", begin))
    assert [(e["actor"], e["data"]) for e in of_kind(service, "secret.set", begin)] == [(actor, {"name": "LOGGED"})]
    assert service.cove("gc").returncode == 0
    assert of_kind(service, "pool.collected", begin)[-1]["cause"] == of_kind(service, "pool.collect", begin)[-1]["seq"]
    assert "not-for-the-log" not in service.cove("log", "--service").stdout


def test_it_is_a_chain_and_can_be_followed(service):
    last = events(service)[-1]["seq"]
    assert service.cove("log", "--verify", "--service").stdout == f"intact: {last} events, 1 to {last}\n"
    follower = service.popen("log", "-f", "--service", "--json", "--from", str(last + 1), stdout=-1, text=True)
    try:
        assert service.cove("warm", "base", "0").returncode == 0
        told = json.loads(follower.stdout.readline())
        assert (told["kind"], told["seq"], told["data"]) == ("pool.warm", last + 1, {"template": "base", "count": 0})
    finally:
        follower.kill()
        follower.communicate()
    assert service.cove("log", "--service", "i3k").returncode == 2
    assert service.cove("log").returncode == 2
