# SPDX-License-Identifier: Apache-2.0
"""Plain HTTP and names in all the forms that two readers could understand differently. What the canary saw decides; the numbers are those of the attacks."""

import ipaddress
import time

import pytest
from world import ALLOWED, DENIED, METADATA

POLICY = {"default": "deny", "rules": [{"deny": "bad.allowed.test"}, {"allow": "allowed.test"}, {"allow": "*.allowed.test"}]}
NUMBER = int(ipaddress.ip_address(DENIED))


@pytest.fixture(scope="module")
def one(world, service):
    from conftest import Box

    box = Box(world, service, network=POLICY)
    box.run("getent ahosts allowed.test")
    yield box
    box.kill()


def arrived(seen):
    return [e for e in seen if e["what"] not in ("dns", "connection")]


# ---- names and addresses ----


@pytest.mark.parametrize("host", [str(NUMBER), hex(NUMBER), "0" + ".0".join(oct(int(p))[2:] for p in DENIED.split(".")), "0x0b.0.0.66", "11.66", "11.0.66", "0", "[::]", f"[::ffff:{DENIED}]"])
def test_p02_odd_notations_lead_nowhere(world, one, host):
    with world.watched() as seen:
        code, out, _ = one.curl("-g", "-w", "%{http_code}", f"http://{host}/")
    assert code != 0 or out.endswith("403"), out
    assert not seen, seen


@pytest.mark.parametrize("host", [str(NUMBER), "0x0b000042", "013.0.0.0102", "11.66", DENIED, f"[::ffff:{DENIED}]", "denied.test%00.allowed.test", "denied.test\0.allowed.test", "allowed.test\0", "allowed.test%2edenied.test",
                                  "denied.test#.allowed.test", "denied.test\\.allowed.test", "denied.test/.allowed.test", "allowed.test@denied.test", "denied.test@allowed.test", "denied.test .allowed.test",
                                  "denied.test\t", "allowed.test, denied.test", "allowed.test:443:80", "allowed.test:0", "allowed.test:65536", "allowed.test:+80", "allowed.test:443", "allowed.test:80x", "allowed.test..",
                                  "notallowed.test", "allowed.test.denied.test", "allowed-test.denied.test", "bad.allowed.test", "BAD.Allowed.Test.", "allowed\uff0etest".encode().decode("latin-1"), "*.allowed.test", "."])
def test_p04_p06_p07_p09_p10_hosts_that_are_not_this_one(world, one, host):
    with world.watched() as seen:
        out = one.raw(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1"))
    assert out.split(" ")[1:2] in (["400"], ["403"], ["421"]), out
    assert not arrived(seen), seen


@pytest.mark.parametrize("host", ["ALLOWED.TEST", "allowed.test.", "allowed.test:80", "Sub.Allowed.test"])
def test_p07_and_forms_that_are(world, one, host):
    one.run("getent ahosts sub.allowed.test")
    with world.watched() as seen:
        out = one.raw(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    assert " 200 " in out.splitlines()[0], out
    assert len(arrived(seen)) == 1


def test_p08_a_wildcard_is_not_its_apex(world, box):
    two = box({"default": "deny", "rules": [{"allow": "*.allowed.test"}]})
    assert two.curl("-k", "https://sub.allowed.test/")[0] == 0
    with world.watched() as seen:
        assert two.curl("-k", "https://allowed.test/")[0] != 0
    assert not seen, seen


def test_p10_only_the_ports_that_are_listed(world, box):
    two = box({"default": "deny", "rules": [{"allow": "allowed.test", "ports": [443, "9000-9999"]}]})
    assert two.curl("-k", "https://allowed.test/")[0] == 0
    with world.watched() as seen:
        for port in (22, 25, 5000, 6379, 8443):
            code, out = two.run(f"timeout 20 bash -c 'exec 3<>/dev/tcp/allowed.test/{port} && head -c 4 <&3'")
            assert code != 0 or not out, (port, out)
            assert code != 124, "a refusal that takes so long is a time-out"
        assert two.curl("-w", "%{http_code}", "http://allowed.test/")[1].endswith("403")
    assert not [e for e in seen if e["what"] != "dns"], seen


# ---- requests ----

HIDDEN = "GET /hidden HTTP/1.1\r\nHost: denied.test\r\n\r\n"


@pytest.mark.parametrize("head, body", [
    ("Content-Length: 4\r\nTransfer-Encoding: chunked", "0\r\n\r\n" + HIDDEN),
    ("Transfer-Encoding: chunked\r\nContent-Length: 4", "0\r\n\r\n" + HIDDEN),
    ("Transfer-Encoding : chunked", "0\r\n\r\n" + HIDDEN),
    ("Transfer-Encoding:\x0bchunked", "0\r\n\r\n" + HIDDEN),
    ("Transfer-Encoding: xchunked", "0\r\n\r\n" + HIDDEN),
    ("Transfer-Encoding: chunked, identity", "0\r\n\r\n" + HIDDEN),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "0\r\n\r\n" + HIDDEN),
    ("X: 1\r\n Transfer-Encoding: chunked", "0\r\n\r\n" + HIDDEN),
    ("Content-Length: +5", "12345" + HIDDEN),
    ("Content-Length: 5,5", "12345" + HIDDEN),
    ("Content-Length: 5\r\nContent-Length: 6", "12345" + HIDDEN),
    ("Content-Length: 0x5", "12345" + HIDDEN),
    ("Content-Length: -1", HIDDEN),
    ("Content-Length: 18446744073709551616", HIDDEN),
    ("Content-Length: 5\n\nGET /hidden HTTP/1.1\nHost: denied.test\n", ""),
    ("Host: denied.test", ""),
    ("X\0: 1", ""), ("X: 1\r2", ""), ("X 1", ""), (": 1", ""), ("Transfer-Encoding: chunked", "5;\n\r\n12345\r\n0\r\n\r\n"), ("Transfer-Encoding: chunked", "-1\r\n\r\n" + HIDDEN),
    ("Transfer-Encoding: chunked", "ffffffffffffffff1\r\n" + HIDDEN), ("Transfer-Encoding: chunked", "1\r\nxx\r\n0\r\n\r\n" + HIDDEN)])
def test_p13_nothing_is_smuggled(world, one, head, body):
    with world.watched() as seen:
        out = one.raw(f"POST /seen HTTP/1.1\r\nHost: allowed.test\r\n{head}\r\n\r\n{body}")
    assert not [e for e in arrived(seen) if "hidden" in str(e["path"]) or e.get("host") != "allowed.test"], seen
    assert " 400 " in out.split("\n")[0] or " 501 " in out.split("\n")[0] or out.startswith("<"), out
    assert out.count("HTTP/1.1 200") == 0, out


@pytest.mark.parametrize("line", ["GET http://denied.test/ HTTP/1.1", "GET //denied.test/ HTTP/9.9", "CONNECT denied.test:443 HTTP/1.1", "GET / HTTP/1.1 ", "GET  / HTTP/1.1", "GET /\t HTTP/1.1", "GET / HTTP/2.0", "GET /", "get / http/1.1"])
def test_p01_p12_request_lines(world, one, line):
    with world.watched() as seen:
        out = one.raw(f"{line}\r\nHost: allowed.test\r\n\r\n")
    assert not [e for e in arrived(seen) if e["what"] == "request"], (out, seen)


def test_each_request_of_a_kept_connection_is_judged(world, one):
    ask = "GET /{} HTTP/1.1\r\nHost: {}\r\n\r\n"
    with world.watched() as seen:
        out = one.raw(ask.format(1, "allowed.test") + ask.format(2, "denied.test") + ask.format(3, "allowed.test"))
    assert "hello from" in out and " 403 " in out, out
    assert [e["path"] for e in arrived(seen)] in (["/1", "/3"], ["/1"]), seen


@pytest.mark.parametrize("to", ["http://denied.test/", f"http://{METADATA[0]}/latest", f"http://{DENIED}/", "http://[::1]:80/"])
def test_p15_a_redirect_is_judged_like_any_request(world, one, to):
    with world.watched() as seen:
        code, out, _ = one.curl("-L", "-g", "-w", "%{http_code}", f"http://allowed.test/redirect?to={to}")
    assert code != 0 or out.endswith("403"), out
    assert [e["host"] for e in arrived(seen)] == ["allowed.test"], seen


def upgraded(one, secure):
    """A WebSocket through which something has gone already."""
    script = r"""
import socket, ssl, sys
s = socket.create_connection(("allowed.test", 443 if secure else 80), 5)
if secure:
    s = ssl.create_default_context().wrap_socket(s, server_hostname="allowed.test")
s.sendall(b"GET /ws HTTP/1.1\r\nHost: allowed.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
f = s.makefile("rb")
print(f.readline().split()[1].decode(), flush=True)
while f.readline().strip():
    pass
s.sendall(bytes([0x81, 0x82, 0, 0, 0, 0]) + b"hi")
print(f.read(4)[2:].decode(), flush=True)
s.settimeout(60)
try:
    print("end" if not f.read(1) else "more", flush=True)
except (OSError, ssl.SSLError) as error:
    print("timeout" if isinstance(error, TimeoutError) else "end", flush=True)
"""
    reader = one.service.popen("exec", "-i", one.id, "--", "python3", "-u", "-", stdin=-1, stdout=-1, stderr=-2, text=True)
    reader.stdin.write(f"secure = {secure}\n{script}")
    reader.stdin.close()
    return reader


INJECTING = {**POLICY, "inject": [{"host": "allowed.test", "headers": [{"name": "x-a", "value": "b"}]}]}


@pytest.mark.parametrize("secure", [False, True])
def test_p16_a_websocket_ends_when_the_policy_does(box, secure):
    two = box(INJECTING)
    reader = upgraded(two, secure)
    assert (reader.stdout.readline(), reader.stdout.readline()) == ("101\n", "hi\n")
    status, _, body = two.service.request("PUT", f"/cove/v1/sandboxes/{two.id}/network", {"default": "deny"})
    assert status in (200, 204), body
    assert reader.stdout.readline() == "end\n"
    reader.wait(60)


@pytest.mark.parametrize("url", ["http://allowed.test/turns/cut", "https://allowed.test/turns/cut"])
@pytest.mark.parametrize("rules", [[], [{"allow": "allowed.test", "path": "/elsewhere"}]])
def test_an_answer_under_way_ends_when_its_request_is_no_longer_allowed(box, url, rules):
    two = box(INJECTING)
    reader = two.service.popen("exec", two.id, "--", "sh", "-c", f"curl -sN {url}; echo ended $?", stdout=-1, stderr=-2, text=True)
    assert reader.stdout.readline() == "data: 0\n"
    status, _, body = two.service.request("PUT", f"/cove/v1/sandboxes/{two.id}/network", {**INJECTING, "rules": rules})
    assert status in (200, 204), body
    out = reader.communicate(timeout=60)[0]
    assert "data: 4" not in out and "ended 0" not in out, out


def test_and_one_that_still_is_goes_on(box):
    two = box(INJECTING)
    reader = two.service.popen("exec", two.id, "--", "sh", "-c", "curl -sN http://allowed.test/sse; curl -sN https://allowed.test/sse; echo ended $?", stdout=-1, stderr=-2, text=True)
    assert reader.stdout.readline() == "data: 0\n"
    for n in range(8):
        two.service.request("PUT", f"/cove/v1/sandboxes/{two.id}/network", {**INJECTING, "rules": INJECTING["rules"] + [{"allow": f"other{n}.test"}]})
        time.sleep(0.2)
    out = reader.communicate(timeout=60)[0]
    assert out.count("data: 4") == 2 and out.endswith("ended 0\n"), out


@pytest.mark.parametrize("first", ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"])
def test_p17_no_http2_without_tls(world, one, first):
    with world.watched() as seen:
        out = one.raw(first)
    assert " 101 " not in out, out
    for request in arrived(seen):
        assert request["what"] == "request" and "h2c" not in str(request["headers"]).lower(), request


@pytest.mark.parametrize("first", ["SSH-2.0-OpenSSH_9.2\r\n", "\5\1\0", "\4\1\0\x50\x0b\0\0\x42\0", "HELLO\r\n", "\x16\x03\x01\0\x05\1\0\0\1\0", "\x80\x2e\1\0\2\0\x15\0\0\0\x10"])
@pytest.mark.parametrize("port", [80, 443])
def test_p18_p19_p20_what_is_neither_tls_nor_http_does_not_pass_where_these_are_meant(world, one, first, port):
    with world.watched() as seen:
        out = one.raw(first, port=port)
    assert not [e for e in seen if e["what"] in ("request", "handshake", "data", "connection")], (out, seen)


def test_p24_heads_without_end(world, one, box):
    before, other = rss(one), box(POLICY)
    with world.watched() as seen:
        for big in ("X: " + "x" * 10_000_000, "\r\n".join(f"X{n}: 1" for n in range(100_000))):
            out = one.python("data = ('GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n' + (%s)).encode()\n" % ("'X: ' + 'x' * 10_000_000" if big.startswith("X: ") else "''.join(f'X{n}: 1\\r\\n' for n in range(100_000))") + SEND)[1]
            assert " 431 " in out or " 400 " in out or out.startswith("<"), out[:200]
    assert not arrived(seen), seen
    assert other.curl("http://allowed.test/")[0] == 0
    assert rss(one) - before < 8 << 20


SEND = r"""
import socket
s = socket.create_connection(("allowed.test", 80), 5)
s.settimeout(5)
try:
    s.sendall(data)
except OSError:
    pass
try:
    print(s.recv(500).decode())
except OSError as error:
    print(f"<{error}>")
"""


def rss(one):
    with open(f"/proc/{one.service.child('cove-egress')}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS"))


def test_p24_many_slow_clients_hold_up_nobody_else(one, box):
    before, other = rss(one), box(POLICY)
    slow = one.service.popen("exec", "-i", one.id, "--", "python3", "-u", "-", stdin=-1, stdout=-1, stderr=-2, text=True)
    slow.stdin.write("import resource, socket, time\nresource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)\n"
                     f"all = []\nfor n in range(900):\n    s = socket.create_connection(({ALLOWED!r}, 80), 60)\n    s.sendall(b'GET / HTTP/1.1\\r\\nHost: al')\n    all.append(s)\n"
                     "print('open', flush=True)\nend = time.monotonic() + 100\nwhile all and time.monotonic() < end:\n    time.sleep(0.5)\n    for s in list(all):\n        s.setblocking(False)\n"
                     "        try:\n            if not s.recv(4096): all.remove(s)\n        except BlockingIOError: pass\n        except OSError: all.remove(s)\nprint('left', len(all), flush=True)\n")
    slow.stdin.close()
    assert slow.stdout.readline() == "open\n"
    for _ in range(3):
        code, out, err = other.curl("-m", "8", "-w", "%{time_total}", "-o", "/dev/null", "http://allowed.test/") # before those are given up, after 10 s
        assert code == 0, (out, err)
    assert rss(one) - before < 900 * (64 << 10)
    assert slow.stdout.readline() == "left 0\n", "they are kept without end"
    slow.wait(60)


def test_p26_nothing_of_ours_listens_inside(one):
    """The redirect's own port, the resolver, the service's: reached directly they are nothing."""
    code, out = one.python("""
import socket
found = []
for host in ("127.0.0.1", "10.200.0.1", "::1"):
    for port in list(range(1, 1100)) + list(range(7000, 7200)):
        s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        s.settimeout(0.2)
        if s.connect_ex((host, port)) == 0:
            try:
                s.sendall(b"GET /cove/v1/sandboxes HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
                if s.recv(100).startswith(b"HTTP/1.1 200"):
                    found.append((host, port))
            except OSError:
                pass
        s.close()
print(found)
""")
    assert (code, out) == (0, "[]\n"), out
