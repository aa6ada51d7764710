# SPDX-License-Identifier: Apache-2.0
"""When the other end breaks off, and when cove-egress itself does: clients learn the truth, and nothing gets out that should not."""

import os
import signal
import subprocess
import time

import pytest
from service import wait_until
from world import ALLOWED

RULES = [{"allow": "allowed.test"}]
PASSED = {"default": "deny", "rules": RULES}
SECRET = "value-that-shows-who-asked"
OPENED = {**PASSED, "inject": [{"host": "allowed.test", "headers": [{"name": "x-who", "value": "${secret:WHO}"}]}]}


@pytest.fixture(scope="module")
def boxes(world, service):
    from conftest import Box

    assert service.cove("secret", "set", "WHO", input=SECRET).returncode == 0
    made = {"passed": Box(world, service, network=PASSED), "opened": Box(world, service, network=OPENED)}
    yield made
    for one in made.values():
        one.kill()


# ---- upstream ----

WAYS = [("passed", "http://allowed.test"), ("passed", "https://allowed.test"), ("opened", "https://allowed.test")]


@pytest.mark.parametrize("how, url", WAYS)
@pytest.mark.parametrize("fault, codes", [("reset", (18, 56)), ("cut", (18, 56)), ("stall", (28,))])
def test_a_part_is_never_passed_off_as_the_whole(boxes, how, url, fault, codes):
    code, out, err = boxes[how].curl("-k", "-m", "4", "-w", "%{size_download}", "-o", "/dev/null", f"{url}/{fault}")
    assert code in codes, (code, out, err)
    assert int(out) == 100, "what had come was not passed on"


@pytest.mark.parametrize("how", ["passed", "opened"])
@pytest.mark.parametrize("port", [444, 1])
def test_where_nobody_listens_a_connection_breaks_at_once(boxes, how, port):
    code, _, err = boxes[how].curl("-k", f"https://allowed.test:{port}/")
    assert code in (7, 35, 56), (code, err) # 28 would be a time-out


@pytest.mark.parametrize("how", ["passed", "opened"])
def test_what_is_no_tls_there_is_told(boxes, how):
    code, _, err = boxes[how].curl("-k", "https://allowed.test:80/")
    assert code in (35, 52, 56), (code, err)


def test_half_closed_connections_carry_what_comes_back(boxes):
    code, out = boxes["passed"].python("""
import socket
s = socket.create_connection(("allowed.test", 5000), 60)
assert s.recv(100) == b"220 canary\\r\\n"
s.sendall(b"x" * 100000)
s.shutdown(socket.SHUT_WR)
n = 0
while got := s.recv(65536):
    n += len(got)
print(n)
""")
    assert (code, out) == (0, "100000\n"), out


@pytest.mark.parametrize("how", ["passed", "opened"])
def test_a_client_that_leaves_is_left_by_the_other_side(world, boxes, how):
    one = boxes[how]
    assert one.curl("-k", "-m", "1", "https://allowed.test/stall")[0] == 28
    def open_flows():
        return {e["data"]["flow"] for e in one.events("net.open")} - {e["data"]["flow"] for e in one.events("net.close")}
    assert wait_until(lambda: not open_flows()), "connections of clients that are gone stay"


# ---- coved ----


def test_connections_go_on_without_coved(world, service, boxes):
    """One that is open, over the death of coved; new ones are judged as before."""
    one = boxes["passed"]
    with service.popen("exec", one.id, "--", "python3", "-uc", """
import socket, sys
s = socket.create_connection(("allowed.test", 5000), 60)
print(len(s.recv(100)))
for line in sys.stdin:
    s.sendall(b"x" * 1000)
    print("sent")
s.shutdown(socket.SHUT_WR)
n = 0
while got := s.recv(65536):
    n += len(got)
print(n)
""", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as talking:
        assert talking.stdout.readline() == "12\n"
        egress = service.child("cove-egress")
        for _ in range(3):
            service.kill_coved()
            talking.stdin.write("more\n")
            talking.stdin.flush()
            assert talking.stdout.readline() == "sent\n"
        talking.stdin.close()
        assert talking.stdout.read() == "3000\n"
    assert service.child("cove-egress") == egress
    assert one.curl("http://allowed.test")[0] == 0 and one.curl("http://denied.test")[0] != 0
    fresh = type(one)(world, service, network=PASSED)
    assert fresh.curl("http://allowed.test")[0] == 0
    fresh.kill()


# ---- cove-egress ----

LOAD = r"""
import http.client, os, socket, ssl, sys, threading, time, urllib.request
counts = {}
def count(what):
    counts[what] = counts.get(what, 0) + 1
def ask(url):
    while not os.path.exists("/tmp/enough"):
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                count("ok" if answer.read().startswith(b"hello") else "wrong")
        except (OSError, http.client.HTTPException) as error: # the latter where an answer ends in the middle
            count("denied" if "denied" in url or "403" in str(error) else "failed")
            time.sleep(0.02)
def leak():
    while not os.path.exists("/tmp/enough"):
        for address in addresses:
            s = socket.socket()
            s.settimeout(0.5)
            try:
                s.connect((address, 5000))
                s.sendall(b"leak")
                count("leaked" if s.recv(10) else "closed")
            except OSError:
                pass
            s.close()
        try:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.sendto(b"leak", (addresses[0], 5000))
        except OSError:
            pass
        try:
            socket.getaddrinfo("secret.denied.test", 80)
            count("leaked")
        except OSError:
            pass
threads = [threading.Thread(target=ask, args=(url,)) for url in ("https://allowed.test/load", "https://allowed.test/load", "http://denied.test/load")] + [threading.Thread(target=leak)]
print("started", flush=True)
[t.start() for t in threads]
[t.join() for t in threads]
print(counts, flush=True)
"""


def test_killed_under_load_it_leaks_nothing_and_comes_back(world, service, boxes):
    one, kills = boxes["opened"], 3
    load = service.popen("exec", "-i", one.id, "--", "python3", "-u", "-", stdin=-1, stdout=-1, stderr=-2, text=True)
    with world.watched(settle=1) as seen:
        load.stdin.write(f"addresses = {['11.0.0.66', '10.0.0.5', '169.254.169.254']!r}\n{LOAD}")
        load.stdin.close()
        assert load.stdout.readline() == "started\n"
        for _ in range(kills):
            time.sleep(1.5)
            pid = service.child("cove-egress")
            os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda: service.child("cove-egress") not in (None, pid)), service.tail()
            at = time.time()
            assert wait_until(lambda: [e for e in world.events("request", since=at) if e["path"] == "/load"]), "no network since it is back"
        assert one.run("touch /tmp/enough")[0] == 0
        counts = eval(load.stdout.readline())
        load.wait(60)
    assert counts.get("ok") and not counts.get("leaked") and not counts.get("wrong"), counts
    requests = [e for e in seen if e["what"] == "request"]
    assert requests and all(dict(e["fields"]).get("x-who") == SECRET for e in requests), "a request without what is injected"
    assert {e["address"] for e in seen if "address" in e} <= {ALLOWED, "2a00:11::10"}, seen
    assert not [e for e in seen if e["what"] in ("data", "udp") or "denied" in str(e.get("name"))], seen


def test_after_that_policies_are_in_force_as_before(world, boxes):
    for one in boxes.values():
        assert one.curl("-k", "https://allowed.test/")[0] == 0
        with world.watched() as seen:
            assert one.curl("-k", "https://denied.test/")[0] != 0
        assert not seen, seen


def test_while_it_stands_still_nothing_gets_out(world, service, boxes):
    pid = service.child("cove-egress")
    os.kill(pid, signal.SIGSTOP)
    try:
        with world.watched() as seen:
            code, _, _ = boxes["passed"].curl("-k", "-m", "2", f"https://{ALLOWED}/")
            assert code != 0
            assert boxes["passed"].curl("-k", "-m", "2", "https://allowed.test/")[0] != 0
        assert not seen, seen
    finally:
        os.kill(pid, signal.SIGCONT)
    assert wait_until(lambda: boxes["passed"].curl("-k", "https://allowed.test/")[0] == 0)


def test_a_connection_that_was_open_ends_with_it(service, boxes):
    reader = service.popen("exec", boxes["passed"].id, "--", "bash", "-c", "exec 3<>/dev/tcp/allowed.test/5000; cat <&3; echo ended", stdout=-1, stderr=-2, text=True)
    assert reader.stdout.readline() == "220 canary\n"
    pid = service.child("cove-egress")
    os.kill(pid, signal.SIGKILL)
    assert "ended" in reader.communicate(timeout=60)[0]
    assert wait_until(lambda: service.child("cove-egress") not in (None, pid))


def test_a_worker_that_dies_takes_no_policy_with_it(world, service, boxes):
    """cove-api has the policies; cove-egress enforces them, with it or without."""
    pid = service.child("cove-api")
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: service.child("cove-api") not in (None, pid) and service.is_healthy()), service.tail()
    with world.watched() as seen:
        assert wait_until(lambda: boxes["opened"].curl("https://allowed.test/after")[0] == 0)
        assert boxes["opened"].curl("-k", "https://denied.test/")[0] != 0
    assert [dict(e["fields"]).get("x-who") for e in seen if e["what"] == "request"] == [SECRET], seen
    assert not [e for e in seen if "denied" in str(e)], seen
