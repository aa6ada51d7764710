# SPDX-License-Identifier: Apache-2.0
"""GET /cove/v1/ready: can sandboxes be made now? For whoever asks, without a key."""

import http.client
import json
import os
import signal
import socket
import subprocess

import pytest
from leaks import own_service
from service import COVED, wait_until


def ready(service):
    """(status, codes) over TCP, where nobody is known."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request("GET", "/cove/v1/ready")
        answer = connection.getresponse()
        body = json.loads(answer.read())
    finally:
        connection.close()
    assert answer.headers["content-type"] == "application/json"
    assert body["status"] == ("ready" if answer.status == 200 else "not ready")
    return answer.status, [reason["code"] for reason in body.get("reasons", [])]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    config = tmp_path_factory.mktemp("ready") / "cove.yaml"
    config.write_text("disk_reserve: 0\n")
    with own_service("ready", COVE_CONFIG=str(config)) as service:
        yield service


def restart(service, config):
    """With another configuration."""
    assert service.stop() == 0, service.tail()
    with open(service.env["COVE_CONFIG"], "w", encoding="utf-8") as f:
        f.write(config)
    service.start()


def test_it_is(own):
    assert wait_until(lambda: ready(own) == (200, []))
    assert own.request("GET", "/cove/v1/ready")[0] == 200
    assert own.request("DELETE", f"/cove/v1/sandboxes/{own.create()}")[0] == 200


def test_coved_that_says_nothing(own):
    """Who is asked is cove-api, which answers all the same."""
    os.kill(own.coved_pid, signal.SIGSTOP)
    try:
        assert wait_until(lambda: ready(own) == (503, ["supervisor"])), ready(own)
        assert own.request("GET", "/cove/v1/health")[0] == 200
    finally:
        os.kill(own.coved_pid, signal.SIGCONT)
    assert wait_until(lambda: ready(own) == (200, [])), own.tail()


def test_a_disk_without_room(own):
    restart(own, "disk_reserve: 100000TiB\n")
    assert wait_until(lambda: ready(own) == (503, ["disk"])), ready(own)
    assert own.request("POST", "/cove/v1/sandboxes", {})[0] == 429
    restart(own, "disk_reserve: 0\n")
    assert wait_until(lambda: ready(own) == (200, [])), ready(own)


def test_no_base_template():
    with own_service("ready", has_template=False, COVE_CONFIG="/dev/null") as service:
        assert wait_until(lambda: ready(service) == (503, ["template"])), ready(service)
        assert service.request("POST", "/cove/v1/sandboxes", {})[0] == 404


def test_a_base_template_whose_files_are_gone():
    with own_service("ready", COVE_CONFIG="/dev/null") as service:
        assert wait_until(lambda: ready(service) == (200, []))
        layers = list((service.state / "pool" / "layers").glob("sha256-*"))
        assert layers, "where does the pool keep its layers?"
        moved = [(p, p.with_name("away-" + p.name)) for p in layers[:1]]
        for here, there in moved:
            here.rename(there)
        try:
            assert wait_until(lambda: ready(service) == (503, ["template"])), ready(service)
        finally:
            for here, there in moved:
                there.rename(here)
        assert wait_until(lambda: ready(service) == (200, [])), ready(service)


def test_systemd_is_told(own, tmp_path):
    assert own.stop() == 0
    for path in (str(tmp_path / "notify"), f"\0cove-test-{os.getpid()}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(60)
            own.env["NOTIFY_SOCKET"] = path.replace("\0", "@")
            own.start()
            assert manager.recv(100) == b"READY=1"
            own.kill_coved()
            assert own.stop() == 0
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                manager.recv(100) # once
    del own.env["NOTIFY_SOCKET"]
    own.start()


def test_a_service_that_can_not_answer_does_not_start(own):
    assert own.stop() == 0
    store = own.state / "api" / "cove.db"
    good = store.read_bytes()
    store.write_bytes(b"no store at all " * 1000)
    ours, theirs = os.pipe()
    try:
        done = subprocess.run([COVED, "run", "--ready-fd", str(theirs)], env=own.env, pass_fds=[theirs], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and "cove-api ended 3 times before it could answer requests" in done.stderr.splitlines()[-1], done
        assert "not a database" in done.stderr
    finally:
        os.close(theirs)
        store.write_bytes(good)
    with os.fdopen(ours) as pipe:
        assert pipe.read() == ""
    own.start()
    assert wait_until(lambda: ready(own) == (200, []))
