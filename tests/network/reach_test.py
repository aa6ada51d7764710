# SPDX-License-Identifier: Apache-2.0
"""What a sandbox reaches and what not, judged by the canary's log; each attack works outside first."""

import pytest
from service import wait_until
from world import ALLOWED, DENIED, DENIED6, MACHINE, METADATA, PRIVATE

ALLOWED_ONLY = {"default": "deny", "rules": [{"deny": "bad.allowed.test"}, {"allow": "allowed.test"}, {"allow": "*.allowed.test"}]}


def reached(seen):
    """What got further than DNS."""
    return [e for e in seen if e["what"] != "dns"]


@pytest.mark.parametrize("url", ["http://allowed.test/", "https://allowed.test/", "https://sub.allowed.test/", "https://allowed.test:8443/"])
def test_what_is_allowed_is_reached(world, box, url):
    code, out, err = box(ALLOWED_ONLY).curl("-k", url)
    assert (code, out.split()[:2]) == (0, ["hello", "from"]), err


def test_a_process_of_the_host_s_programs_is_judged_like_all(world, box):
    one = box(ALLOWED_ONLY, tier="process")
    code, out, err = one.curl("-k", "https://allowed.test/")
    assert (code, out.split()[:2]) == (0, ["hello", "from"]), err
    with world.watched() as seen:
        for url in ("https://denied.test/", f"http://{DENIED}/", f"http://{METADATA[0]}/"):
            code, out, _ = one.curl("-k", "-w", "%{http_code}", url)
            assert code != 0 or out.endswith("403"), (url, out)
    assert not seen and one.events("net.denied"), seen


def test_by_default_the_public_internet_is_there(box):
    one = box()
    assert one.curl("-k", "https://denied.test/")[:2] == (0, f"hello from {DENIED}\n")
    assert one.curl("http://1.1.1.1/", "-o", "/dev/null", "-w", "%{http_code}")[1] == "301"
    assert one.curl("http://8.8.8.8/", "-o", "/dev/null", "-w", "%{http_code}")[1] == "302"


@pytest.mark.parametrize("url", ["http://denied.test/", "https://denied.test/", f"http://{DENIED}/", f"https://{DENIED}/", f"http://[{DENIED6}]/",
                                 f"http://[::ffff:{DENIED}]/", "https://bad.allowed.test/", "https://BAD.allowed.TEST./", "http://notallowed.test/"])
def test_what_is_not_allowed_is_not_reached(world, box, url):
    one = box(ALLOWED_ONLY)
    if "notallowed" not in url:
        assert world.there("curl", "-gsSk", "-m", "20", url).returncode == 0, "the attack does not work outside"
    with world.watched() as seen:
        code, out, _ = one.curl("-gk", "-w", "%{http_code}", url)
    assert code != 0 or out.endswith("403"), out
    assert not seen, seen
    assert one.events("net.denied"), "nobody is told"


@pytest.mark.parametrize("address", METADATA + PRIVATE + (MACHINE,))
def test_what_is_not_public_is_refused_even_when_everything_is_allowed(world, box, address):
    url = f"http://[{address}]/" if ":" in address else f"http://{address}/"
    one = box({"default": "allow", "rules": [{"allow": "*"}]})
    with world.watched() as seen:
        code, out, _ = one.curl("-g", "-w", "%{http_code}", url)
    assert code != 0 or out.endswith("403"), out
    assert not seen, seen


@pytest.mark.parametrize("name", ["loopback.test", "metadata.test", "private.test", "zero.test", "mapped.test", "nat64.test", "sixtofour.test", "machine.test"])
def test_a_name_leads_nowhere_private(world, box, name):
    one = box({"default": "deny", "rules": [{"allow": name}]})
    with world.watched() as seen:
        code, out, _ = one.curl("-w", "%{http_code}", f"http://{name}/")
    assert code != 0 or out.endswith("403"), out
    assert not reached(seen), seen


def test_rebinding_finds_nothing(world, box):
    one = box({"default": "deny", "rules": [{"allow": "rebind.test"}]})
    assert one.curl("http://rebind.test/")[1] == f"hello from {ALLOWED}\n"
    for _ in range(3):
        code, out, _ = one.curl("http://rebind.test/")
        assert code != 0 or out == f"hello from {ALLOWED}\n"


def test_an_entry_in_etc_hosts_changes_nothing(world, box):
    one = box(ALLOWED_ONLY)
    assert one.run(f"echo '{DENIED} allowed.test' | sudo tee -a /etc/hosts")[0] == 0
    with world.watched() as seen:
        assert one.curl("-k", "https://allowed.test/")[0] != 0
        assert one.curl("-f", "http://allowed.test/")[0] != 0
    assert not [e for e in reached(seen) if e.get("address") == DENIED], seen


# ---- DNS ----


@pytest.mark.parametrize("server", ["", "@8.8.8.8", "@9.9.9.9"])
@pytest.mark.parametrize("tcp", [False, True])
def test_names_that_are_not_allowed_are_not_asked_about(world, box, server, tcp):
    one = box(ALLOWED_ONLY)
    script = ("import socket,struct,sys\n"
              f"server={server.lstrip('@') or '10.200.0.1'!r}\n"
              "q=b'\\x12\\x34\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00'+b''.join(bytes([len(l)])+l.encode() for l in 'secret.denied.test'.split('.'))+b'\\0\\0\\1\\0\\1'\n"
              f"tcp={tcp}\n"
              "s=socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM); s.settimeout(20); s.connect((server,53))\n"
              "s.sendall((struct.pack('>H',len(q)) if tcp else b'')+q); d=s.recv(4096); d=d[2:] if tcp else d\n"
              "print('rcode', d[3]&15)\n")
    with world.watched() as seen:
        code, out = one.run(f"python3 - <<'E'\n{script}E")
    assert (code, out) == (0, "rcode 5\n")
    assert not seen, seen


def test_only_addresses_come_out_of_dns(world, box):
    one = box(ALLOWED_ONLY)
    with world.watched() as seen:
        assert "allowed.test" in one.run("getent ahosts allowed.test")[1]
    assert {e["type"] for e in seen} <= {"A", "AAAA"}


# ---- streams ----


def test_a_tightened_policy_cuts_what_is_open(world, box):
    one = box(ALLOWED_ONLY)
    reader = one.service.popen("exec", one.id, "--", "bash", "-c",
                               "exec 3<>/dev/tcp/allowed.test/5000; cat <&3; echo cut", stdout=-1, stderr=-2, text=True)
    assert reader.stdout.readline() == "220 canary\n"
    status, _, body = one.service.request("PUT", f"/cove/v1/sandboxes/{one.id}/network", {"default": "deny"})
    assert status in (200, 204), body
    assert "cut" in reader.communicate(timeout=60)[0]


TALKS = "exec 3<>/dev/tcp/denied.test/5000; cat <&3 >/tmp/said; echo cut >>/tmp/said; exec sleep 1000"


def test_what_a_spares_start_command_opened_is_judged_again(service, box, tmp_path):
    """It begins under the default policy, before anybody has asked; from the hand-over on the asker's holds."""
    (tmp_path / "Dockerfile").write_text("FROM base\n")
    built = service.cove("template", "build", "--name", "talks", "--start-cmd", TALKS, "--ready-cmd", "grep -q canary /tmp/said", str(tmp_path))
    assert built.returncode == 0, built.stderr

    def spare(policy):
        key = {"Authorization": f"Bearer {service.key}"}
        assert wait_until(lambda: b"\ncove_spares 1\n" in service.request("GET", "/metrics", None, key)[2])
        one = box(policy, template="talks")
        assert one.events("sandbox.create")[-1]["data"].get("spare"), "it was made anew"
        return one

    first = box(template="talks")
    left_alone, cut = spare(None), spare({"default": "deny"})
    assert wait_until(lambda: "cut" in cut.run("cat /tmp/said")[1])
    assert left_alone.run("cat /tmp/said")[1].split() == ["220", "canary"]
    for one in (first, left_alone, cut):
        one.kill()
    assert wait_until(lambda: service.cove("template", "rm", "talks").returncode == 0)


def test_a_large_download_is_whole(box):
    code, out, err = box(ALLOWED_ONLY).curl("-k", "https://allowed.test/bytes/50000000", "-o", "/dev/null", "-w", "%{size_download}")
    assert (code, out) == (0, "50000000"), err
