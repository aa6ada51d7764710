# SPDX-License-Identifier: Apache-2.0
"""What every SDK test of this folder shares: a sandbox that ends with its test, and waiting for a condition instead of for a time."""

import os
import time
import uuid

import httpx
import pytest
from e2b import Sandbox


def until(probe, limit_s=60.0, every_s=0.05):
    """Calls `probe` until it returns something true, and returns that; what it returned last after `limit_s`."""
    end = time.monotonic() + limit_s
    while not (value := probe()) and time.monotonic() < end:
        time.sleep(every_s)
    return value


def unique(**more):
    """Metadata that no other sandbox has."""
    return {"test": str(uuid.uuid4()), **more}


def everything(paginator):
    """All pages of a list."""
    found = []
    while paginator.has_next:
        found += paginator.next_items()
    return found


def inside(box, port, path="/", method="GET", **request):
    """Sends a request to a port inside a sandbox, through the service."""
    headers = {**request.pop("headers", {}), "E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": str(port)}
    return httpx.request(method, os.environ["E2B_SANDBOX_URL"] + path, headers=headers, timeout=60, **request)


@pytest.fixture
def make():
    """Makes sandboxes that are killed when the test ends, whatever became of them meanwhile."""
    made = []

    def create(*args, **kwargs):
        made.append(Sandbox.create(*args, **{"timeout": 120, **kwargs}))
        return made[-1]

    yield create
    for box in made:
        box.kill()


@pytest.fixture
def box(make):
    return make()
