# SPDX-License-Identifier: Apache-2.0
"""Builds on a pool of btrfs in a file: their limit of disk, start commands, layers that are shared and given back, images of a registry."""

import json
import os
import shutil
import subprocess
import uuid

import pytest
from archives import image_archive
from images_test import Registry
from service import wait_until
from storage_test import prepared
from templates_test import Templates

DISK = 96 << 20


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    where = tmp_path_factory.mktemp("registry")
    registry = Registry(where / "it")
    yield registry, where
    registry.stop()


@pytest.fixture(scope="module")
def service(registry, tmp_path_factory):
    config = tmp_path_factory.mktemp("config") / "cove.yaml"
    config.write_text(f"builds: {{disk: {DISK}}}\nimages: {{insecure: ['{registry[0].host}']}}\n")
    with prepared(COVE_CONFIG=str(config), COVE_POOL="btrfs") as service:
        yield service.start()
        assert service.stop() == 0, service.tail()


@pytest.fixture
def templates(service):
    yield Templates(service)
    service.remove_all()


def layers(service):
    """Their names, as coved sees them."""
    return set(os.listdir(f"/proc/{service.coved_pid}/root/pool/layers"))


def pool(service):
    """After the file system's commit, which comes by itself, but up to half a minute later."""
    subprocess.run(["btrfs", "filesystem", "sync", f"/proc/{service.coved_pid}/root/pool"], check=True, timeout=60, stdout=subprocess.DEVNULL)
    status, _, found = service.request("GET", "/cove/v1/pool")
    assert status == 200, found
    return found


def test_a_step_that_fills_the_disk(templates):
    reason, log = templates.fails([("RUN", ["head -c 10000000 /dev/zero >/home/user/fits"]),
                                   ("RUN", ["head -c 200000000 /dev/zero >/home/user/big"])], "2")
    assert "exit status 1" in reason and "Disk quota exceeded" in log, (reason, log)
    # The step before it is kept, and what comes next has the whole limit again.
    (template, _), log = templates.ready([("RUN", ["head -c 10000000 /dev/zero >/home/user/fits"]),
                                          ("RUN", ["head -c 60000000 /dev/zero >/home/user/more"])])
    assert "CACHED [builder 1/2]" in log, log
    assert templates.run(template, "stat -c %s fits more", flags=()) == "10000000\n60000000"


def test_a_cached_build_makes_no_layers(service, templates):
    mark = uuid.uuid4().hex
    steps = [("RUN", [f"echo {mark} >one"]), ("WORKDIR", ["/app"]), ("RUN", ["echo two >two", "root"])]
    templates.ready(steps)
    before = layers(service)
    (_, _), log = templates.ready(steps)
    assert log.count("CACHED") == 3 and layers(service) <= before, log


def steps_of(service, *arguments, name=None):
    """{step: (bytes, cached)} and what is told of the build."""
    done = service.cove("template", "build", "--json", "--name", name or f"sizes-{uuid.uuid4().hex[:8]}", *arguments)
    assert done.returncode == 0, done
    build = json.loads(done.stdout.splitlines()[-1])
    return {s["step"]: (s["bytes"], s["cached"]) for s in build["steps"]}, build


def test_each_step_says_what_it_added(service, templates, tmp_path):
    mark = uuid.uuid4().hex
    (tmp_path / "Dockerfile").write_text(f"FROM base\nRUN echo {mark} >/home/user/mark\nENV A=b\nRUN head -c 20000000 /dev/urandom >/srv/a\n"
                                         "COPY big /srv/big\nRUN rm /srv/a\n")
    (tmp_path / "big").write_bytes(os.urandom(5_000_000))
    name = f"sized-{mark[:8]}"
    steps, build = steps_of(service, str(tmp_path), name=name)
    # USER root and WORKDIR / come first, USER user and WORKDIR /home/user last.
    assert list(steps) == [str(n) for n in range(1, 10)] and not any(cached for _, cached in steps.values()), steps
    assert steps["1"][0] == steps["2"][0] == steps["4"][0] == 0 and steps["3"][0] < 300_000, steps
    assert 20_000_000 <= steps["5"][0] < 21_000_000 and 5_000_000 <= steps["6"][0] < 6_000_000 and steps["7"][0] < 300_000, steps
    again, _ = steps_of(service, str(tmp_path), name=name)
    assert again == {step: (size, True) for step, (size, _) in steps.items()}, (steps, again)
    log = service.cove("template", "build", "--name", name, str(tmp_path)).stderr
    assert f"RUN head -c 20000000 /dev/urandom >/srv/a ({steps['5'][0] / (1 << 20):.1f} MiB)" in log, log
    assert service.request("GET", f"/cove/v1/builds/{build['id']}")[2]["steps"] == build["steps"]
    (base,) = service.request("GET", "/cove/v1/templates?ref=base")[2]["templates"]
    (made,) = service.request("GET", f"/cove/v1/templates?ref={name}")[2]["templates"]
    if base["size_bytes"]:
        assert made["size_bytes"] == base["size_bytes"] + sum(size for size, _ in steps.values())


def test_what_is_deleted_gives_its_space_back(service, templates):
    (template, _), _ = templates.ready([("RUN", [f"head -c 80000000 /dev/zero >/home/user/{uuid.uuid4().hex}"])])
    service.request("POST", "/cove/v1/pool/collect", {})
    before = pool(service)
    assert templates.call("DELETE", f"/templates/{template}")[0] == 204
    # A step is kept for the next build; who wants the space now says so.
    assert "80" not in service.cove("gc", "--dry-run").stdout.split("layer")[0]
    done = service.cove("gc", "--cache")
    assert done.returncode == 0 and " deleted" in done.stdout, done
    assert pool(service)["layers"] < before["layers"]
    assert wait_until(lambda: pool(service)["free_bytes"] > before["free_bytes"] + 60_000_000), (before, pool(service))
    templates.ready([("RUN", ["true"])])


def test_a_start_command_is_up_at_once_and_after_a_death(service, templates):
    (template, _), _ = templates.ready([("RUN", ["echo page >index.html"])], startCmd="python3 -m http.server 8123",
                                       readyCmd="curl -sf http://localhost:8123/index.html")

    def is_up():
        done = service.cove("exec", service.create(template=template), "--", "curl", "-sf", "http://localhost:8123/index.html")
        return done.stdout == "page\n"
    assert all(is_up() for _ in range(4))
    old = service.child("cove-api")
    os.kill(old, 9)
    assert wait_until(lambda: service.child("cove-api") not in (None, old) and service.is_healthy())
    assert all(is_up() for _ in range(4))


def test_an_image_of_a_registry(registry, service, templates):
    for program in ("docker-registry", "skopeo"):
        if not shutil.which(program):
            pytest.skip(f"there is no {program}: install the packages of the test group")
    registry, where = registry
    image_archive(where / "tiny.tar")
    registry.start().push(where / "tiny.tar", "tiny:v1")
    image = f"{registry.host}/tiny:v1"
    (template, _), _ = templates.ready([("RUN", ["echo $FROM_IMAGE >/tmp/made"])], fromImage=image)
    assert templates.run(template, "cat /tmp/made; id -un") == "yes\nuser"
    before = layers(service)
    (_, _), log = templates.ready([("RUN", ["echo $FROM_IMAGE >/tmp/made"])], fromImage=image)
    assert log.count("CACHED") == 2 and layers(service) <= before
    reason, _ = templates.fails([], "base", fromImage=f"{registry.host}/tiny:v2")
    assert "no such manifest" in reason
    assert wait_until(lambda: layers(service) <= before), layers(service) - before
