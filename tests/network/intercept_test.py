# SPDX-License-Identifier: Apache-2.0
"""Secrets and interception under attack. Each attack is judged by what the canary saw; the numbers are those of the attacks they answer."""

import os
import re
import signal
from pathlib import Path

import pytest
from service import read, wait_until
from world import ALLOWED, H2_PORT, OTHER, run

SECRET = "sk-live-9f8e7d6c5b4a39281706"
SENTINEL = "sk-cove-0123456789abcdef"
AUTHORIZATION = f"Bearer {SECRET}"
# api.test holds the account; tenant.test is somebody else's on the same address; allowed.test is opened for a path rule, without any secret.
POLICY = {"default": "deny",
          "rules": [{"allow": "api.test", "ports": [443], "methods": ["GET", "POST", "TRACE"], "path": "/v1/*"},
                    {"allow": "api.test", "ports": [443], "methods": ["GET"], "path": "/redirect"}, {"allow": "api.test", "ports": [80]},
                    {"allow": "tenant.test"}, {"deny": "allowed.test", "ports": [443, H2_PORT], "path": "/forbidden*"}, {"allow": "allowed.test"},
                    {"allow": "expired.test"}, {"allow": "old.test"}, {"allow": "selfsigned.test"}, {"allow": "denied.test", "ports": [1]}],
          "inject": [{"host": host, "headers": [{"name": "authorization", "value": "Bearer ${secret:KEY}"}],
                      "placeholders": [{"sentinel": SENTINEL, "secret": "KEY"}]} for host in ("api.test", "expired.test", "old.test", "selfsigned.test")]}


@pytest.fixture(scope="module")
def one(world, service):
    from conftest import Box

    done = service.cove("secret", "set", "KEY", input=SECRET)
    assert done.returncode == 0, done.stderr
    box = Box(world, service, network=POLICY)
    yield box
    box.kill()


def requests(world, one, *curl):
    """(exit code, output, requests that arrived)"""
    with world.watched() as seen:
        code, out, err = one.curl(*curl)
    return code, out + err, [e for e in seen if e["what"] == "request"]


def values(request, name):
    return [value for key, value in request["fields"] if key == name]


# ---- what is meant to happen ----


def test_the_key_is_on_the_wire_and_not_inside(world, one):
    code, out, (request,) = requests(world, one, "-f", "https://api.test/v1/x", "-H", f"x-api-key: {SENTINEL}")
    assert code == 0, out
    assert (values(request, "authorization"), values(request, "x-api-key")) == ([AUTHORIZATION], [SECRET])
    events = one.events("net.request")
    assert events and events[-1]["data"]["injected"], events
    assert SECRET not in str(one.events())


# ---- secrets: C ----


def test_c04_a_host_that_shows_what_it_got_shows_the_key_and_a_path_rule_keeps_it_away(world, one):
    """What docs/NETWORK.md says of it: answers pass as they are. So no key goes to the paths of a host that reflect."""
    _, out, (request,) = requests(world, one, "https://api.test/v1/x")
    assert values(request, "authorization") == [AUTHORIZATION] and SECRET not in out
    code, out, seen = requests(world, one, "https://api.test/headers", "-H", f"x-api-key: {SENTINEL}", "-w", "%{http_code}")
    assert out.endswith("403") and not seen and SECRET not in out


def test_c13_a_token_endpoint_that_no_rule_allows_gives_no_token(world, one):
    """A fresh token in an answer would be the sandbox's own: the host of the key has its token endpoint out of scope."""
    assert "grant_type" in world.there("curl", "-sk", "--data", "grant_type=refresh_token", "https://api.test/echo").stdout, "the attack does not work outside"
    code, out, seen = requests(world, one, "--data", f"grant_type=refresh_token&refresh_token={SENTINEL}", "https://api.test/echo", "-w", "%{http_code}")
    assert out.endswith("403"), out
    assert not seen and SECRET not in out


GIT_TOKEN = "ghp-for-git-alone-5b1c77"


def test_c14_git_holds_a_dummy_and_pushes_to_its_own_repository_alone(world, service, box):
    import base64

    basic = base64.b64encode(f"x-access-token:{GIT_TOKEN}".encode()).decode()
    assert service.cove("secret", "set", "GIT", input=basic).returncode == 0
    scope = {"ports": [443], "path": "/git/repo.git/*"}
    two = box({"default": "deny", "rules": [{"allow": "allowed.test", **scope}],
               "inject": [{"host": "allowed.test", **scope, "headers": [{"name": "authorization", "value": "Basic ${secret:GIT}"}]}]})
    foreign = "https://allowed.test/git/foreign.git"
    assert world.there("git", "ls-remote", foreign).returncode == 0, "the attack does not work outside"
    script = ("git config --global credential.helper store; printf 'https://me:dummy@allowed.test\\n' > .git-credentials; "
              "printf 'protocol=https\\nhost=allowed.test\\n\\n' | git credential fill; env; cat .git-credentials .gitconfig; git config -l; "
              "rm -rf c; git clone -q https://allowed.test/git/repo.git c && cd c && git config user.email a@b && git config user.name a && "
              "echo c14 > c14 && git add c14 && git commit -qm c14 && git push -q origin HEAD:refs/heads/c14 && echo pushed")
    with world.watched() as seen:
        code, out = two.run(script, timeout=60)
    assert code == 0 and out.endswith("pushed\n") and "password=dummy" in out, out
    assert GIT_TOKEN not in out and basic not in out
    arrived = [e for e in seen if e["what"] == "request"]
    assert arrived and all(values(e, "authorization") == [f"Basic {basic}"] for e in arrived)
    with world.watched() as seen:
        for command in (f"git ls-remote {foreign}", f"cd c && git push -q {foreign} HEAD:refs/heads/c14", "cd c && git push -q https://allowed.test/git/../git/foreign.git HEAD:refs/heads/c14"):
            code, out = two.run(command)
            assert code != 0 and "403" in out, out
    assert not [e for e in seen if e["what"] == "request"], seen


def test_c01_the_key_is_not_to_be_found_inside(world, one):
    one.run(f"curl -s https://api.test/v1/x -H 'x-api-key: {SENTINEL}'")
    half = len(SECRET) // 2
    # Joined by the program that looks, or the command line that looks would be what is found.
    script = f"""
import os, pathlib, subprocess
key = ({SECRET[:half]!r} + {SECRET[half:]!r}).encode()
pathlib.Path("/tmp/planted").write_bytes(b"x" + key)
def holds(path):
    try:
        return key in pathlib.Path(path).read_bytes()
    except OSError:
        return False
found = [p for p in pathlib.Path("/proc").glob("[0-9]*/*") if p.name in ("environ", "cmdline") and holds(p)]
for top in ("/home", "/tmp", "/etc", "/root", "/run", "/var", "/usr/local"):
    for at, _, names in os.walk(top):
        found += [os.path.join(at, n) for n in names if not os.path.islink(os.path.join(at, n)) and os.path.isfile(os.path.join(at, n)) and holds(os.path.join(at, n))]
os.unlink("/tmp/planted")
print(found)
"""
    done = one.service.cove("exec", "-i", "-u", "root", one.id, "--", "python3", "-", input=script, timeout=60)
    assert done.stdout == "['/tmp/planted']\n", done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [("-H", f"x-api-key: {SENTINEL}", "https://allowed.test/"), (f"https://allowed.test/?key={SENTINEL}",),
                                       ("-H", f"x-api-key: {SENTINEL}", "http://api.test/v1/x")])
def test_c02_c03_the_sentinel_is_worth_nothing_elsewhere(world, one, arguments):
    before = len(one.events("net.misuse"))
    code, out, (request,) = requests(world, one, *arguments)
    assert code == 0, out
    assert SENTINEL in str(request) and SECRET not in str(request)
    assert not values(request, "authorization")
    assert wait_until(lambda: len(one.events("net.misuse")) > before), "nobody is told"


def test_c02_nor_in_a_body(world, one):
    _, _, (request,) = requests(world, one, "-d", f"key={SENTINEL}", "https://tenant.test/", "-k")
    assert request["body"] == f"key={SENTINEL}"


def test_c05_a_redirect_takes_no_key_along(world, one):
    code, out, seen = requests(world, one, "-kL", "--location-trusted", "-H", f"x-api-key: {SENTINEL}", "https://api.test/redirect?to=https%3A%2F%2Ftenant.test%2F")
    assert code == 0, out
    first, second = seen
    assert values(first, "authorization") == [AUTHORIZATION]
    assert second["sni"] == "tenant.test" and SECRET not in str(second)


@pytest.mark.parametrize("arguments", [("https://api.test/v2/x",), ("https://api.test/v1/../v2/x", "--path-as-is"), ("https://api.test/v1/%2e%2e/v2", "--path-as-is"),
                                       ("https://api.test/v1/..%2fv2", "--path-as-is"), ("-X", "DELETE", "https://api.test/v1/x"), ("https://api.test/",),
                                       ("-X", "get", "https://api.test/v1/x"), ("https://api.test:8443/v1/x",), ("https://allowed.test/forbidden/x",), ("https://allowed.test/%66orbidden",)])
def test_c06_what_is_out_of_scope_does_not_leave(world, one, arguments):
    code, out, seen = requests(world, one, "-k", "-w", "%{http_code}", *arguments)
    assert out.endswith(("403", "400")) or code != 0, out
    assert not seen, seen


def test_c06_a_refusal_says_why_and_not_with_what(one):
    _, out, _ = one.curl("https://api.test/v2/x", "-H", f"x-api-key: {SENTINEL}")
    assert '"denied"' in out and SECRET not in out


def test_c07_an_encoded_sentinel_stays_what_it_is(world, one):
    import base64

    encoded = base64.b64encode(f"user:{SENTINEL}".encode()).decode()
    _, _, (request,) = requests(world, one, "-H", f"x-key: {encoded}", "-H", f"x-half: {SENTINEL[:12]}", "https://api.test/v1/x")
    assert (values(request, "x-key"), values(request, "x-half")) == ([encoded], [SENTINEL[:12]])


def test_c08_headers_of_ones_own_are_replaced(world, one):
    _, _, (request,) = requests(world, one, "-H", "Authorization: Bearer mine", "-H", "authorization: Basic mine", "-H", "AUTHORIZATION: x", "https://api.test/v1/x")
    assert values(request, "authorization") == [AUTHORIZATION]


def test_c08_no_header_has_the_key_removed_again(world, one):
    _, _, (request,) = requests(world, one, "-H", "Connection: authorization, x-gone", "-H", "x-gone: 1", "https://api.test/v1/x")
    assert values(request, "authorization") == [AUTHORIZATION] and not values(request, "x-gone")
    assert "authorization" not in str(values(request, "connection"))


def test_c08_trace_echoes_no_key(world, one):
    code, out, seen = requests(world, one, "-X", "TRACE", "-w", "%{http_code}", "https://api.test/v1/x")
    assert SECRET not in out
    assert not seen and code == 0 and out.endswith(("403", "405")), out


def test_c09_t01_another_host_in_an_opened_connection_is_misdirected(world, one):
    with world.watched() as seen:
        out = one.raw("GET /v1/x HTTP/1.1\r\nHost: tenant.test\r\n\r\n", host="api.test", port=443, sni="api.test")
    assert " 421 " in out.splitlines()[0], out
    assert not [e for e in seen if e["what"] == "request"], seen


def test_c09_no_key_goes_where_tls_was_not_opened(world, one):
    with world.watched() as seen:
        out = one.raw("GET /v1/x HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n", host="tenant.test", port=443, sni="tenant.test")
    (request,) = [e for e in seen if e["what"] == "request"]
    assert request["sni"] == "tenant.test" and not values(request, "authorization"), out


def memory(pid):
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, mode = line.split()[:2]
        if "r" in mode and not line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
            first, last = (int(x, 16) for x in span.split("-"))
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as f:
                f.seek(first)
                try:
                    yield f.read(last - first)
                except OSError:
                    pass


def test_c10_the_key_is_in_no_record(world, one):
    one.curl("https://api.test/v1/x", "-H", f"x-api-key: {SENTINEL}")
    one.curl("https://api.test/v2/x", "-H", f"x-api-key: {SENTINEL}")
    service, key, known = one.service, SECRET.encode(), one.id.encode()
    held = [service.log]
    for path, directories, names in os.walk(service.state): # what goes meanwhile is passed over
        directories[:] = [name for name in directories if name != "pool"]
        held += [Path(path) / name for name in names if not (Path(path) / name).is_symlink()]
    texts = {p: read(p) for p in held}
    assert any(one.id in text for text in texts.values()), "what is looked through holds nothing"
    assert not [p for p, text in texts.items() if SECRET in text]
    for name in ("cove-api", "coved"):
        pid = service.child(name)
        found = [(known in block, key in block) for block in memory(pid)]
        assert name == "coved" or any(k for k, _ in found), "what is looked through holds nothing"
        assert not any(k for _, k in found), f"{name} holds the key"
    text = str(service.request("GET", f"/cove/v1/sandboxes/{one.id}")[2]) + service.cove("log", one.id).stdout + service.cove("secret", "ls").stdout
    assert SECRET not in text and "KEY" in text


def test_c12_the_keeper_of_keys_can_not_be_dumped(one):
    pid = one.service.child("cove-egress")
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert re.search(r"Max core file size\s+[01]\s+[01]", limits), limits
    assert Path(f"/proc/{pid}/environ").stat().st_uid == 0, "its files in /proc are not root's: it can be dumped"


def test_a_secret_that_does_not_exist_is_an_error_and_no_request(world, box):
    two = box({"default": "deny", "rules": [{"allow": "api.test"}], "inject": [{"host": "api.test", "headers": [{"name": "authorization", "value": "${secret:NOT_SET}"}]}]})
    code, out, seen = requests(world, two, "-w", "%{http_code}", "https://api.test/")
    assert code == 0 and out.endswith("403") and "NOT_SET" in out, out
    assert not seen, seen


def test_a_key_that_was_changed_or_removed_is_so_at_once(world, box, service):
    assert service.cove("secret", "set", "CHANGING", input="first-value").returncode == 0
    two = box({"default": "deny", "rules": [{"allow": "api.test"}], "inject": [{"host": "api.test", "headers": [{"name": "x-key", "value": "${secret:CHANGING}"}]}]})
    assert values(requests(world, two, "https://api.test/")[2][0], "x-key") == ["first-value"]
    assert service.cove("secret", "set", "CHANGING", input="second-value").returncode == 0
    assert values(requests(world, two, "https://api.test/")[2][0], "x-key") == ["second-value"]
    assert service.cove("secret", "rm", "CHANGING").returncode == 0
    assert not requests(world, two, "https://api.test/")[2]


def test_values_given_literally_reach_forks_and_theirs_and_nobody_else(world, box, service):
    value, changed = "literal-5b1d9c02", "literal-77aa0e41"

    def policy(of):
        return {"default": "deny", "rules": [{"allow": "api.test"}], "inject": [{"host": "api.test", "headers": [{"name": "x-key", "value": of}]}]}

    def fork(of):
        status, _, answer = service.request("POST", f"/cove/v1/sandboxes/{of.id}/fork", {"count": 1})
        assert status == 201, answer
        return box(existing=answer["forks"][0]["sandbox"]["id"])

    def sent(of):
        return [values(request, "x-key") for request in requests(world, of, "https://api.test/")[2]]

    one = box(policy(value))
    two = fork(one)
    three = fork(two)
    for each in (one, two, three):
        assert sent(each) == [[value]]
        status, _, shown = service.request("GET", f"/cove/v1/sandboxes/{each.id}/network")
        assert status == 200 and value not in str(shown) and "${sealed:" in str(shown), shown
    # A fork's own change is its own; what it read of its policy it can give back.
    assert service.request("PUT", f"/cove/v1/sandboxes/{two.id}/network", policy(changed))[0] in (200, 204)
    assert sent(two) == [[changed]] and sent(one) == [[value]]
    shown = service.request("GET", f"/cove/v1/sandboxes/{three.id}/network")[2]
    mine = shown["policy"] if "policy" in shown else shown
    assert service.request("PUT", f"/cove/v1/sandboxes/{three.id}/network", mine)[0] in (200, 204)
    assert sent(three) == [[value]]
    # The sealed text is worth nothing to somebody else's sandbox.
    other = box(mine)
    assert sent(other) == []
    # And it outlives the processes that know of it.
    for process in ("cove-egress", "cove-api"):
        os.kill(service.child(process), signal.SIGKILL)
        assert wait_until(service.is_healthy)
        assert wait_until(lambda: sent(three) == [[value]])


# ---- TLS: T ----

HELLO = r"""
import socket, ssl, struct, sys
def hello(name):
    context, into, out = ssl.create_default_context(), ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(into, out, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return out.read()
def parts(record):
    at = 9 + 2 + 32
    at += 1 + record[at]
    at += 2 + struct.unpack_from(">H", record, at)[0]
    at += 1 + record[at]
    head, at, found = record[9:at], at + 2, []
    while at < len(record):
        kind, n = struct.unpack_from(">HH", record, at)
        found.append((kind, record[at + 4:at + 4 + n]))
        at += 4 + n
    return head, found
def build(head, extensions):
    packed = b"".join(struct.pack(">HH", kind, len(data)) + data for kind, data in extensions)
    body = head + struct.pack(">H", len(packed)) + packed
    body = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(body[i:i + 16000])) + body[i:i + 16000] for i in range(0, len(body), 16000))
def names(*all):
    packed = b"".join(b"\0" + struct.pack(">H", len(n)) + n for n in all)
    return (0, struct.pack(">H", len(packed)) + packed)
ECH = (0xfe0d, b"\0\0\1\0\1\x07" + struct.pack(">H", 32) + b"k" * 32 + struct.pack(">H", 144) + b"p" * 144)
PAD = (21, bytes(12000))
head, extensions = parts(hello("allowed.test"))
rest = [e for e in extensions if e[0] not in (0, 21)]
good = names(b"allowed.test")
s = socket.create_connection((host, 443), 60)
s.settimeout(60)
data = build(head, eval(change))
for i in range(0, len(data), step or len(data)):
    s.sendall(data[i:i + (step or len(data))])
try:
    got = s.recv(5)
    print({0x16: "answered", 0x15: "alert"}.get(got[0], "?") if got else "closed", end="")
    if got and got[0] == 0x15:
        print(s.recv(2)[1], end="")
except ConnectionResetError:
    print("reset", end="")
except socket.timeout:
    print("nothing", end="")
"""


def hello(one, change, host=OTHER, step=0):
    code, out = one.python(HELLO, change=change, host=host, step=step)
    assert code == 0, out
    return out


@pytest.mark.parametrize("change", ["[good] + rest", "[good, PAD] + rest"])
@pytest.mark.parametrize("step", [0, 7])
def test_client_hellos_of_all_sizes_in_all_pieces_pass(box, change, step):
    assert hello(box({"default": "deny", "rules": [{"allow": "allowed.test"}]}), change, ALLOWED, step * 100 if "PAD" in change else step) == "answered"


@pytest.mark.parametrize("policy, passes", [
    ({"default": "allow"}, True),
    ({"default": "allow", "rules": [{"deny": OTHER}]}, True),
    ({"default": "deny", "rules": [{"allow": "allowed.test", "ech": "allow"}]}, True),
    ({"default": "deny", "rules": [{"allow": "allowed.test", "path": "/*"}]}, True),
    ({"default": "deny", "rules": [{"allow": "allowed.test"}]}, False),
    ({"default": "deny", "rules": [{"allow": "allowed.test"}, {"allow": "tenant.test", "ech": "allow"}]}, False),
    ({"default": "allow", "rules": [{"deny": "denied.test"}]}, False),
])
def test_an_encrypted_hello_passes_where_no_hidden_name_could_be_denied(world, box, policy, passes):
    """Noise and a hidden name look alike. What is intercepted ends at us, whatever is hidden in it."""
    two = box(policy)
    two.run("getent ahosts allowed.test")
    assert hello(two, "[good] + rest", ALLOWED) == "answered"
    with world.watched() as seen:
        out = hello(two, "[good, ECH] + rest", ALLOWED)
    if passes:
        assert out == "answered" and not two.events("net.denied"), out
        return
    assert out == "alert49", out
    assert not [e for e in seen if e["what"] not in ("dns", "request")], seen
    (denied,) = two.events("net.denied")
    assert "ECH" in denied["data"]["reason"] and '"ech":"allow"' in denied["data"]["suggestion"], denied


@pytest.mark.parametrize("change", ["rest", "[ECH] + rest", "[names(b'denied.test'), ECH] + rest", "[good, good] + rest", "[good, names(b'denied.test')] + rest", "[names(b'allowed.test', b'denied.test')] + rest",
                                    "[names(b'')] + rest", "[names()] + rest", "[names(b'11.0.0.10')] + rest", "[names(b'allowed.test\\0.denied.test')] + rest",
                                    "[names(b'denied.test\\0.allowed.test')] + rest", "[names(b'allowed.test/')] + rest", "[(0, b'\\0\\0')] + rest"])
def test_t04_t06_names_that_mean_nothing_or_two_things_are_refused(world, box, change):
    two = box({"default": "deny", "rules": [{"allow": "allowed.test"}]})
    two.run("getent ahosts allowed.test")
    with world.watched() as seen:
        out = hello(two, change, ALLOWED)
    assert out.startswith("alert") or out in ("reset", "closed"), out
    assert not [e for e in seen if e["what"] not in ("dns", "request")], seen
    assert two.events("net.denied"), "nobody is told"


def test_t04_no_keys_for_encrypted_hellos_come_out_of_dns(world, one):
    script = ("import socket\nq = b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + b''.join(bytes([len(l)]) + l for l in (b'allowed', b'test')) + b'\\0\\0\\x41\\0\\1'\n"
              "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.connect(('10.200.0.1', 53)); s.send(q); d = s.recv(4096)\nprint(d[3] & 15, d[7])\n")
    with world.watched() as seen:
        code, out = one.python(script)
    assert code == 0 and out.split()[1] == "0", out
    assert not seen, seen


H2 = r"""
import socket, ssl, struct
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])
s = context.wrap_socket(socket.create_connection(("allowed.test", port), 5), server_hostname="allowed.test")
s.settimeout(10)
assert s.selected_alpn_protocol() == "h2"
def field(name, value):
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
def frame(kind, flags, stream, data):
    return struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data
s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
s.sendall(frame(1, 5 if ends else 4, 1, b"".join(field(n, v) for n, v in first)) + frame(1, 5, 3, b"".join(field(n, v) for n, v in
          ((":method", "GET"), (":scheme", "https"), (":path", "/second"), (":authority", f"allowed.test:{port}")))))
data, found = b"", {}
try:
    while len(found) < 2:
        got = s.recv(65536)
        if not got:
            break
        data += got
        while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
            n, kind, stream = int.from_bytes(data[:3], "big"), data[3], int.from_bytes(data[5:9], "big")
            if kind == 4 and not data[4] & 1:
                s.sendall(frame(4, 1, 0, b""))
            elif kind == 1:
                found[stream] = "ok" if data[9] == 0x88 else "refused"
            elif kind == 3:
                found.setdefault(stream, "reset")
            elif kind == 7:
                found["goaway"] = True
            data = data[9 + n:]
except (OSError, ssl.SSLError):
    pass
print(found.get(1), found.get(3), end="")
"""
PSEUDO = ((":method", "GET"), (":scheme", "https"), (":path", "/first"), (":authority", f"allowed.test:{H2_PORT}"))


def pseudo(**changes):
    return tuple((n, changes.get(n[1:], v)) for n, v in PSEUDO)


@pytest.mark.parametrize("first", [pseudo(authority="denied.test"), pseudo(authority=f"tenant.test:{H2_PORT}"), (*PSEUDO, ("host", "denied.test")), pseudo(path="/forbidden"),
                                   pseudo(authority="allowed.test@denied.test"), pseudo(authority="allowed.test:1"), pseudo(method="CONNECT"),
                                   ((":method", "CONNECT"), (":authority", "denied.test:443")), (*pseudo(method="CONNECT"), (":protocol", "websocket")),
                                   pseudo(path="/first HTTP/1.1\r\nHost: denied.test\r\n\r\n"), (*PSEUDO, ("x", "1\r\ny: 2")), (*PSEUDO, ("connection", "close")),
                                   (*PSEUDO, ("transfer-encoding", "chunked")), (*PSEUDO, (":path", "/twice")), (*PSEUDO, ("Upper", "1"))])
def test_t07_each_stream_is_judged(world, one, first):
    if not world.h2:
        pytest.skip("there is no node to serve HTTP/2 with")
    with world.watched() as seen:
        code, out = one.python(H2, port=H2_PORT, first=first, ends=True)
    assert code == 0, out
    assert out.split()[0] in ("refused", "reset", "None"), out
    assert not [e for e in seen if e["what"] == "request" and e["path"] != "/second"], seen


OVERRIDES = [("x_original_url", "/forbidden"), ("x-original_uri", "/forbidden"), ("x_rewrite_url", "/forbidden"), ("x-envoy-original-path", "/forbidden"),
             ("x.original~url", "/forbidden")]


@pytest.mark.parametrize("field, value", OVERRIDES)
def test_fields_that_name_another_path_are_judged_in_both_protocols(world, one, field, value):
    with world.watched() as seen:
        code, out, _ = one.curl("-w", "%{http_code}", "https://allowed.test/first", "-H", f"{field}: {value}")
        assert code == 0 and out.endswith("403"), out
        if world.h2:
            assert one.python(H2, port=H2_PORT, first=(*PSEUDO, (field, value)), ends=True) == (0, "refused ok")
    assert not [e for e in seen if e["what"] == "request" and e["path"] != "/second"], seen


@pytest.mark.parametrize("field", ["X_HTTP_Method_Override", "X-Original-Method", "x.http_method", "X-Method_Override"])
def test_fields_that_name_another_method_are_judged(world, one, field):
    for method, status in (("DELETE", "403"), ("GET, DELETE", "403"), ("POST", "200")):
        code, out, seen = requests(world, one, "-w", "%{http_code}", "https://api.test/v1/x", "-H", f"{field}: {method}")
        assert code == 0 and out.endswith(status) and len(seen) == (status == "200"), (method, out)


@pytest.mark.parametrize("field", ["X-Forwarded-Host", "X_Forwarded_Uri", "X-Forwarded-Method", "x_forwarded-prefix", "X-Forwarded-Path", "Forwarded", "Script_Name"])
def test_what_proxies_say_does_not_leave_with_what_is_judged(world, one, field):
    code, out, (request,) = requests(world, one, "-f", "https://api.test/v1/x", "-H", f"{field}: denied.test", "-H", "X-Other: stays")
    assert code == 0 and values(request, "x-other") == ["stays"], out
    assert not [v for _, v in request["fields"] if v == "denied.test"], request


def test_t07_what_is_refused_harms_no_other_stream(world, one):
    if not world.h2:
        pytest.skip("there is no node to serve HTTP/2 with")
    assert one.python(H2, port=H2_PORT, first=pseudo(authority="tenant.test"), ends=True) == (0, "refused ok")


def test_t08_a_resumed_session_is_judged_by_its_own_name(world, one):
    script = f"""
import socket, ssl
context = ssl.create_default_context()
context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
a = context.wrap_socket(socket.create_connection(({OTHER!r}, 443), 5), server_hostname="tenant.test")
a.sendall(b"GET / HTTP/1.1\\r\\nHost: tenant.test\\r\\n\\r\\n")
a.recv(1000)
try:
    context.wrap_socket(socket.create_connection(({OTHER!r}, 443), 5), server_hostname="denied.test", session=a.session)
    print("connected")
except (OSError, ssl.SSLError):
    print("refused")
"""
    one.run("getent ahosts tenant.test")
    with world.watched() as seen:
        code, out = one.python(script)
    assert (code, out) == (0, "refused\n"), out
    assert not [e for e in seen if e.get("sni") == "denied.test"], seen


@pytest.mark.parametrize("name", ["expired.test", "old.test", "selfsigned.test"])
def test_t09_a_bad_certificate_gets_no_key_and_is_the_clients_to_know(world, one, name):
    code, out, seen = requests(world, one, "-k", f"https://{name}/")
    assert code in (35, 60), out  # curl reads some alerts as its own opinion, in spite of -k
    assert not seen, "the key went to somebody who could not prove who they are"
    closed = [e for e in one.events("net.close") if e["data"].get("name") == name or name in str(e)]
    assert closed or any("certificate" in str(e) for e in one.events("net.")), "nobody is told"


@pytest.mark.parametrize("name", ["expired.test", "old.test", "selfsigned.test"])
def test_t09_passed_through_it_is_shown_as_it_is(world, box, name):
    two = box({"default": "deny", "rules": [{"allow": name}]})
    two.trust(world.directory / "ca.pem")
    assert two.curl(f"https://{name}/")[0] == 60
    assert two.curl("-k", f"https://{name}/")[:2] == (0, f"hello from {OTHER}\n")


def authority(one):
    done = one.run("python3 - <<'E'\nimport os\nprint(open(os.environ['NODE_EXTRA_CA_CERTS']).read(), end='')\nE")
    assert done[0] == 0 and done[1].startswith("-----BEGIN CERTIFICATE-----"), done
    return done[1]


def test_t10_each_sandbox_has_an_authority_of_its_own(world, one, box):
    two = box(POLICY)
    first, second = authority(one), authority(two)
    assert first != second
    assert two.run(f"cat > /tmp/other.pem <<'E'\n{first}E\ncurl -s --cacert /tmp/other.pem https://api.test/v1/x")[0] == 60
    for path in ("/etc/ssl/certs", "/usr/local/share/ca-certificates"):
        for certificate in Path(path).glob("*"):
            assert not certificate.is_file() or "".join(first.split("\n")[1:3]) not in certificate.read_text(errors="replace").replace("\n", ""), "on the machine itself"
    text = run("openssl", "x509", "-noout", "-text", input=first).stdout
    assert "CA:TRUE" in text and "Certificate Sign" in text, text


def test_t10_its_key_is_not_inside(one):
    code, out = one.run("sudo grep -rlE 'BEGIN (EC |RSA )?PRIVATE KEY' /etc /home /root /tmp /run /var /usr/local/share 2>/dev/null; true")
    assert (code, out) == (0, ""), out


def test_t11_who_pins_keys_sees_another_one(world, one):
    pin = run("sh", "-c", f"openssl x509 -in {world.directory}/server.pem -noout -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64").stdout.strip()
    assert one.curl("--pinnedpubkey", f"sha256//{pin}", "https://api.test/v1/x")[0] == 90
    assert one.curl("-k", "--pinnedpubkey", f"sha256//{pin}", "https://tenant.test/")[0] == 0


@pytest.mark.parametrize("length", [10, 3000])
def test_a_change_of_policy_judges_whole_paths_again(world, box, length):
    """What is still allowed goes on, what is not is cut, however long its path is."""
    path = "/turns/" + "a" * length
    rule = {"allow": "allowed.test", "ports": [443], "path": path + "*"}
    other = {**rule, "path": path + "-*"}
    one = box({"default": "deny", "rules": [rule]})
    for rules, goes_on in (([rule, {"allow": "tenant.test"}], True), ([other], False)):
        reader = one.service.popen("exec", one.id, "--", "curl", "-sN", f"https://allowed.test{path}x", stdout=-1, stderr=-2, text=True)
        assert reader.stdout.readline() == "data: 0\n"
        status, _, body = one.service.request("PUT", f"/cove/v1/sandboxes/{one.id}/network", {"default": "deny", "rules": rules})
        assert status in (200, 204), body
        for _ in range(4 if goes_on else 0):
            assert world.there("curl", "-sSf", f"http://allowed.test/turn/{'a' * length}x").returncode == 0
        rest = reader.communicate(timeout=60)[0]
        assert ("data: 4\n" in rest) == goes_on, rest
