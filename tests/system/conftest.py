# SPDX-License-Identifier: Apache-2.0
import os
import tempfile

import pytest
from client import wait_for
from leaks import end_whole
from service import BUILD, Service, prepare_templates


def pytest_sessionstart(session):
    """Here and not in a fixture: it takes longer than a test may."""
    if os.geteuid() == 0 and not session.config.option.collectonly:
        prepare_templates()


@pytest.fixture(scope="session")
def session_service():
    """One service for all tests; when it is stopped, nothing of it may be left on the machine."""
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    directory = tempfile.mkdtemp(prefix="test-service-", dir=BUILD) # beside the templates, so that layers can be linked
    os.chmod(directory, 0o755) # the unprivileged worker passes through
    service = Service(directory)
    try:
        service.start()
        # What is made once only, on first use, is no leak; nor are the boxes that are made ahead of need, of which there may be fewer at first.
        for _ in range(3):
            for sandbox in [service.create() for _ in range(4)]:
                service.cove("exec", sandbox, "--", "true")
                service.request("GET", f"/cove/v1/sandboxes/{sandbox}/verify")
            service.remove_all()
            now = service.settle()
            service.baseline = {what: max(n, (service.baseline or now)[what]) for what, n in now.items()}
        yield service
        end_whole(service)
    finally:
        if service.coved and service.coved.poll() is None:
            service.stop()
        service.remove()


@pytest.fixture
def service(session_service):
    """The service; after each test its sandboxes are removed and what it holds must be what it held before."""
    yield session_service
    session_service.remove_all()
    leaks = session_service.leaks()
    assert not leaks, leaks


@pytest.fixture
def sandbox(service):
    """The id of a fresh sandbox."""
    return service.create()


@pytest.fixture
def live(module_service):
    """(service, client) of a module's own service; after each test its sandboxes are removed."""
    service, client = module_service
    yield service, client
    client.remove_all()
    assert wait_for(lambda: not client.list())
