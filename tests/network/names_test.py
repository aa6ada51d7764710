# SPDX-License-Identifier: Apache-2.0
"""What a sandbox is told about names: how fast it is refused, for how long an answer holds, and what is on record when an allowed name can't be resolved."""

import shutil
import subprocess
from pathlib import Path

import pytest
from service import wait_until

ONLY = {"default": "deny", "rules": [{"allow": "allowed.test"}, {"allow": "*.allowed.test"}, {"allow": "nowhere.test"}]}

TTL = r"""
import socket, struct, time
q = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0\0\1\0\1"
for i in range(3):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20)
    s.sendto(q, ("10.200.0.1", 53))
    d = s.recv(4096)
    print(struct.unpack(">I", d[len(q) + 6:len(q) + 10])[0])
    time.sleep(1.2)
"""


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="there is no musl-gcc")
def test_musl_waits_for_nobody(box, tmp_path):
    """A static program, as in Alpine: refused names, wherever they come from, and allowed ones."""
    program = tmp_path / "resolve"
    subprocess.run(["musl-gcc", "-static", "-O2", "-o", program, Path(__file__).with_name("resolve.c")], check=True, timeout=60)
    one = box(ONLY)
    one.put(program, "/home/user/resolve")
    code, out = one.run("chmod +x resolve && ./resolve denied.test secret.denied.test allowed.test sub.allowed.test nowhere.test")
    assert code == 0, out
    said = [line.rsplit(" ", 1) for line in out.splitlines()]
    assert [text for text, _ in said] == ["Name does not resolve"] * 2 + ["found"] * 2 + ["Name does not resolve"]
    assert max(int(ms) for _, ms in said) < 5000, out  # when it gives up on a server


def test_glibc_waits_for_nobody_either(box):
    one = box(ONLY)
    # Where it is not refused it asks again after so long.
    code, out = one.run("export RES_OPTIONS=timeout:30; for n in denied.test a.denied.test b.denied.test; do getent ahosts $n && echo found; done; echo $SECONDS")
    assert code == 0 and int(out) < 30, out


def test_an_answer_does_not_tell_that_another_one_asked(box):
    """The cache is shared: what is left of an entry's time would tell who looked up what, and when."""
    first, second = box(ONLY), box(ONLY)
    assert first.run("getent ahosts ttl.allowed.test")[0] == 0
    code, out = second.python(TTL, name="ttl.allowed.test")
    assert (code, out.split()) == (0, ["5"] * 3), out


def test_an_allowed_name_that_can_not_be_resolved_is_told(world, box):
    one = box(ONLY)
    one.run("for i in $(seq 20); do getent ahosts nowhere.test; done")
    assert wait_until(lambda: one.events("net.unresolved")), "nobody is told"
    told = one.events("net.unresolved")
    assert told[0]["data"]["name"] == "nowhere.test" and told[0]["data"]["reason"] == "there is no such name"
    assert len(told) < 10, "each of them is told"
    assert not one.events("net.denied")
    assert "? nowhere.test  not resolved: there is no such name" in one.service.cove("net", one.id).stdout
