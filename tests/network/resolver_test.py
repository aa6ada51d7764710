# SPDX-License-Identifier: Apache-2.0
"""The machine's DNS servers, as cove-egress asks them: those that /etc/resolv.conf names now."""

import time

import pytest
from world import DNS


@pytest.fixture
def servers(world):
    """servers(*addresses): what the machine's resolv.conf names; as it was after the test."""
    path = world.directory / "resolv.conf"
    before = path.read_text()

    def name(*addresses):
        path.write_text("".join(f"nameserver {a}\n" for a in addresses))
        time.sleep(1.2)  # it is looked at once a second

    yield name
    path.write_text(before)
    time.sleep(1.2)


def test_what_is_open_is_asked_again_where_the_servers_change(box, servers):
    one = box({"rules": [{"allow": "*.allowed.test"}]})
    servers("11.0.0.99")  # nobody there
    one.run("for i in $(seq 20); do (getent ahostsv4 late$i.allowed.test > /tmp/late$i) & done; sleep 0.2")
    servers(DNS)
    code, out = one.run("getent ahostsv4 now.allowed.test && until [ $(cat /tmp/late* | grep -c STREAM) = 20 ]; do sleep 0.1; done; echo all")
    assert code == 0 and out.split()[-1] == "all", out
