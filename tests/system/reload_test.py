# SPDX-License-Identifier: Apache-2.0
"""The configuration and the API key change under a service that runs: what changed holds from then on, what is wrong is refused, sandboxes go on."""

import http.client
import os
import signal
import socket

import pytest
from client import Client
from leaks import running
from service import read, reserve_port, wait_until

KEY = "another-key-of-the-operator"


@pytest.fixture(scope="module")
def module_service(tmp_path_factory):
    config, port = tmp_path_factory.mktemp("reload") / "cove.yaml", reserve_port()
    config.write_text(f"listen: 127.0.0.1:{port}\n")
    with running(name="reload", COVE_CONFIG=str(config), COVE_LISTEN="") as (service, _):
        service.config, service.port = config, port
        yield service, Client(port, service.key)


@pytest.fixture
def live(module_service):
    """The service by its defaults, with a sandbox whose process must survive whatever happens."""
    service, client = module_service
    reload(service)
    sandbox = client.create(timeout=600)
    background = sandbox.sh("sleep 1000 & echo $!")[1].strip().decode()
    yield service, client
    assert sandbox.sh(f"kill -0 {background} && echo there")[1] == b"there\n"
    client.remove_all()


def configure(service, text="", port=None):
    service.config.write_text(f"listen: 127.0.0.1:{port or service.port}\n{text}")


def reload(service, text=""):
    """The configuration is this from now on."""
    configure(service, text)
    done = service.cove("reload")
    assert done.returncode == 0, (done, service.tail())
    assert wait_until(service.is_ready), service.tail()


def status_with(service, key):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request("GET", "/cove/v1/sandboxes", headers={"X-API-Key": key})
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def workers(service):
    return {name: service.child(name) for name in ("cove-api", "cove-egress")}


def test_what_changed_is_in_force(live):
    service, client = live
    before = workers(service)
    reload(service, "limits: {sandboxes: 1}\ndefaults: {timeout: 7m}\n")
    assert wait_until(lambda: workers(service)["cove-api"] not in (None, before["cove-api"]))
    refused = service.cove("run", "--", "true")
    assert refused.returncode == 125, refused
    assert workers(service)["cove-egress"] == before["cove-egress"], "whose settings did not change"
    reload(service, "limits: {sandboxes: 10}\n")
    assert service.cove("run", "--", "true").returncode == 0
    assert client.list()
    assert "an earlier coved died" not in read(service.log)


def test_what_did_not_change_replaces_no_worker(live):
    service, _ = live
    before, coved = workers(service), service.coved_pid
    reload(service)
    assert service.coved_pid != coved and workers(service) == before


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2])
def test_signals_reload(live, number):
    service, _ = live
    before = service.coved_pid
    configure(service, "limits: {sandboxes: 1}\n")
    os.kill(service.coved.pid, number)
    assert wait_until(lambda: service.coved_pid != before)
    assert wait_until(lambda: service.cove("run", "--", "true").returncode == 125)


@pytest.mark.parametrize("text, why", [("limits: {sandboxes: none}\n", "cove.yaml:2"), ("unknown: 1\n", "unknown key"),
                                       ("network: {trust: /nowhere}\n", "/nowhere")])
def test_a_wrong_file_is_refused_and_the_old_one_stays(live, text, why):
    service, _ = live
    before, coved = workers(service), service.coved_pid
    configure(service, text)
    done = service.cove("reload")
    assert done.returncode == 1 and why in done.stderr, done
    os.kill(service.coved.pid, signal.SIGHUP)
    assert wait_until(lambda: "nothing was reloaded" in service.tail())
    assert service.coved_pid == coved and workers(service) == before
    service.kill_coved()
    assert workers(service) == before, "a crash takes nothing in either"


def test_what_the_service_cannot_run_with_is_taken_back(live):
    service, client = live
    before = workers(service)
    with socket.create_server(("127.0.0.1", 0)) as other:
        configure(service, "limits: {sandboxes: 1}\n", other.getsockname()[1])
        done = service.cove("reload")
        assert done.returncode == 1 and "the previous one is in force" in done.stderr, done
        assert wait_until(service.is_ready) and workers(service) == before
        service.kill_coved()
        assert client.list() and workers(service) == before


def test_it_moves_to_another_address(live):
    service, _ = live
    other = reserve_port()
    configure(service, "", other)
    assert service.cove("reload").returncode == 0
    service.port, was = other, service.port
    assert wait_until(lambda: status_with(service, service.key) == 200)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", was), timeout=60).close()
    service.port = was
    reload(service)
    assert wait_until(lambda: status_with(service, service.key) == 200)


def test_a_new_key_is_in_force_and_the_old_one_is_not(live):
    service, _ = live
    file, old = service.state / "key", service.key
    was = read(file)
    assert status_with(service, old) == 200
    file.write_text(KEY + "\n")
    reload(service)
    assert wait_until(lambda: status_with(service, KEY) == 200) and status_with(service, old) == 401
    file.write_text("short\n")
    done = service.cove("reload")
    assert done.returncode == 1 and "characters" in done.stderr, done
    assert status_with(service, KEY) == 200
    file.write_text(was)
    reload(service)
    assert wait_until(lambda: status_with(service, old) == 200) and status_with(service, KEY) == 401


def test_without_a_service_it_says_so(module_service, tmp_path):
    service, _ = module_service
    done = service.cove("reload", env={"COVE_STATE": str(tmp_path)})
    assert done.returncode == 1 and "no service runs" in done.stderr, done
