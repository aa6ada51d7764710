# SPDX-License-Identifier: Apache-2.0
"""What a sandbox may reach, by the command line and the native API, against the real cove-egress. What is allowed is reached in tests/network;
here nothing of the world outside is needed."""

import json
import secrets
import subprocess

import pytest
from secret_test import memory_of
from service import wait_until

DENIED = "http://denied.test/"


@pytest.fixture(autouse=True)
def egress(session_service):
    if not session_service.child("cove-egress"):
        pytest.skip("this machine can't capture networks: cove-egress does not run")


@pytest.fixture
def up(service):
    """The id of a fresh sandbox whose network is up."""
    sandbox = service.create()
    assert wait_until(lambda: service.request("GET", f"/cove/v1/sandboxes/{sandbox}")[2]["network"] == "up")
    return sandbox


def net(service, sandbox, kind="net."):
    return [json.loads(line) for line in service.request("GET", f"/cove/v1/sandboxes/{sandbox}/events?kind={kind}")[2].splitlines()]


def policy(service, sandbox):
    return json.loads(service.cove("policy", "show", "--json", sandbox).stdout)


# ---- run ----


def test_what_run_denies_is_denied_and_told(service):
    done = service.cove("run", "--keep", "--net", "deny", "--", "curl", "-sS", "-m", "10", DENIED)
    assert done.returncode not in (0, 28, 125), done.stderr # refused at once, not by a time-out
    sandbox = service.sandboxes()[0]["id"]
    assert wait_until(lambda: net(service, sandbox, "net.denied"))
    denied = net(service, sandbox, "net.denied")[0]
    assert (denied["data"]["proto"], denied["data"]["name"]) == ("dns", "denied.test")
    assert (denied["grade"], denied["source"]) == ("observed-host", "host")
    shown = service.cove("net", sandbox)
    assert shown.returncode == 0
    assert "! dns denied.test  denied: " in shown.stdout
    assert "# policy set: 0 rules, else deny  by cli:uid=0" in shown.stdout


def test_run_makes_a_policy_of_its_flags(service):
    done = service.cove("run", "--keep", "--allow", "*.example.com:443", "--deny", "10.0.0.0/8", "--", "true")
    assert done.returncode == 0, done.stderr
    sandbox = service.sandboxes()[0]["id"]
    assert policy(service, sandbox) == {"default": "deny", "rules": [{"allow": "*.example.com", "ports": [443]}, {"deny": "10.0.0.0/8"}]}


def test_run_reads_a_policy_in_yaml(service, tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text('default: allow\nrules:\n  - deny: "*.example.com"\n    ports: [80, 8000-8099]\n')
    done = service.cove("run", "--keep", "--policy", str(file), "--", "true")
    assert done.returncode == 0, done.stderr
    assert policy(service, service.sandboxes()[0]["id"]) == {"default": "allow", "rules": [{"deny": "*.example.com", "ports": [80, "8000-8099"]}]}


@pytest.mark.parametrize("arguments, status, message", [
    (["--net", "maybe"], 2, "allow or deny"),
    (["--allow", "a b"], 2, "--allow a b"),
    (["--policy", "/no/such/file"], 2, "/no/such/file"),
    (["--secret", "KEY"], 2, "for which host"),
    (["--secret", "KEY=a.example", "-e", "KEY=x"], 2, "KEY"),
])
def test_run_says_what_is_wrong(service, arguments, status, message):
    done = service.cove("run", *arguments, "--", "true")
    assert done.returncode == status
    assert message in done.stderr
    assert service.sandboxes() == []


def test_a_secret_is_stood_in_for_and_never_inside(service):
    assert service.cove("secret", "set", "TEST_KEY", input="the-real-one").returncode == 0
    try:
        done = service.cove("run", "--keep", "--net", "deny", "--secret", "TEST_KEY=api.example.com", "--", "sh", "-c",
                            'echo "$TEST_KEY"; cat /usr/local/share/ca-certificates/cove-sandbox.crt; echo "$SSL_CERT_FILE"')
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("cove-secret-") and "the-real-one" not in done.stdout
        assert "-----BEGIN CERTIFICATE-----" in done.stdout
        assert done.stdout.endswith("/etc/ssl/certs/ca-certificates.crt\n")
        sandbox = service.sandboxes()[0]["id"]
        inside = service.cove("exec", sandbox, "--", "sh", "-c", "grep -c BEGIN /etc/ssl/certs/ca-certificates.crt; env")
        assert int(inside.stdout.split()[0]) > 0
        assert "the-real-one" not in json.dumps(net(service, sandbox, "")) + json.dumps(policy(service, sandbox))
    finally:
        service.cove("secret", "rm", "TEST_KEY")


def test_a_certificate_is_trusted_inside(service):
    spec = {"network": {"default": "deny", "rules": [{"allow": "a.example"}],
                        "inject": [{"host": "a.example", "headers": [{"name": "x-key", "value": "hunter2"}]}]}}
    sandbox = service.create(**spec)
    done = service.cove("exec", sandbox, "--", "openssl", "verify", "/usr/local/share/ca-certificates/cove-sandbox.crt")
    assert "OK" in done.stdout, done.stderr
    count = "grep -c 'BEGIN CERT' /etc/ssl/certs/ca-certificates.crt"
    before = service.cove("exec", sandbox, "--", "sh", "-c", count).stdout
    assert service.request("PUT", f"/cove/v1/sandboxes/{sandbox}/network", spec["network"])[0] == 200
    assert service.cove("exec", sandbox, "--", "sh", "-c", count).stdout == before
    text = json.dumps(policy(service, sandbox))
    assert "hunter2" not in text and "${sealed:" in text
    assert "hunter2" not in json.dumps(net(service, sandbox, ""))


@pytest.mark.parametrize("size", [16, 200, 1500, 4000])
def test_a_value_that_was_sealed_is_in_no_memory(service, size):
    """Of what JSON was made of it, nothing is left. What read the request holds it until it reads the next."""
    value = secrets.token_hex(size // 2)
    network = {"default": "deny", "rules": [{"allow": "a.example"}], "inject": [{"host": "a.example", "headers": [{"name": "x-key", "value": value}]}]}
    sandbox = service.create(network=network)
    assert service.request("PUT", f"/cove/v1/sandboxes/{sandbox}/network", network)[0] == 200
    assert service.request("PUT", f"/cove/v1/sandboxes/{sandbox}/files?path=/tmp/zeros", bytes(1 << 20))[0] < 300
    for name in ("cove-api", "cove-egress"):
        assert memory_of(service.child(name)).count(value[-16:].encode()) == 0, name


# ---- policy ----


def test_policy_is_shown_set_and_checked(service, up, tmp_path):
    assert policy(service, up) == {"default": "allow"}
    assert "else  allow  (every public address)\n" == service.cove("policy", "show", up).stdout
    assert service.cove("policy", "set", up, "--net", "deny", "--allow", "127.0.0.2:80", "--allow", "a.test").returncode == 0
    shown = service.cove("policy", "show", up).stdout
    assert "0  allow  127.0.0.2  ports 80" in shown and "1  allow  a.test" in shown and "else  deny" in shown

    done = service.cove("policy", "check", up, "http://127.0.0.2/")
    assert (done.returncode, done.stdout.startswith("allow  ")) == (0, True), (done.stdout, done.stderr)
    assert "rule 0 (allow 127.0.0.2" in done.stdout
    done = service.cove("policy", "check", up, "http://127.0.0.2:81/")
    assert (done.returncode, done.stdout.startswith("deny  ")) == (1, True)
    done = service.cove("policy", "check", "--json", up, "https://denied.test/x")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["verdict"], answer["rule"]) == (1, "deny", -1)
    assert json.loads(answer["suggestion"])["allow"] == "denied.test"

    file = tmp_path / "p.json"
    file.write_text('{"default": "allow"}')
    assert service.cove("policy", "set", up, str(file)).returncode == 0
    assert service.cove("policy", "set", up, "-", input="default: deny").returncode == 0
    assert policy(service, up)["default"] == "deny"
    actors = [e["actor"] for e in net(service, up, "net.policy")]
    assert actors == ["cli:uid=0"] * 3


@pytest.mark.parametrize("arguments, status, message", [
    (["show"], 2, "id is missing"),
    (["set", "ID"], 2, "policy is missing"),
    (["check", "ID"], 2, "a sandbox's id and a URL"),
    (["check", "--net", "deny", "ID", "http://a/"], 2, "for set"),
    (["show", "--method", "GET", "ID"], 2, "goes with check"),
    (["forget", "ID"], 2, "show, set, allow, deny, check and presets"),
    (["allow", "ID"], 2, "target is missing"),
    (["deny", "ID", "x..y"], 1, "is not a name"),
    (["allow", "--replace", "ID", "a.test"], 2, "goes with set"),
    (["check", "ID", "ftp://a.test/"], 2, "https://"),
    (["check", "ID", "https:///"], 2, "host"),
    (["check", "i00000000000000000000", "http://a.test/"], 125, "no sandbox"),
    (["show", "i00000000000000000000"], 1, "no sandbox"),
    (["set", "ID", "--deny", "x..y"], 2, "--deny x..y"),
])
def test_policy_says_what_is_wrong(service, up, arguments, status, message):
    done = service.cove("policy", *[up if a == "ID" else a for a in arguments])
    assert done.returncode == status, (done.stdout, done.stderr)
    assert message in done.stderr


def test_a_rule_is_added_and_a_secret_is_not_dropped(service):
    assert service.cove("secret", "set", "TEST_KEY", input="the-real-one").returncode == 0
    try:
        assert service.cove("run", "--keep", "--net", "deny", "--secret", "TEST_KEY=api.example.com", "--", "true").returncode == 0
        sandbox = service.sandboxes()[0]["id"]
        before = policy(service, sandbox)
        assert service.cove("policy", "allow", sandbox, "a.test:443", "*.b.test").returncode == 0
        assert service.cove("policy", "deny", sandbox, "api.example.com").returncode == 0
        now = policy(service, sandbox)
        assert now["inject"] == before["inject"] and now["rules"][3:] == before["rules"], now
        assert [r.get("deny") or r["allow"] for r in now["rules"][:3]] == ["api.example.com", "a.test", "*.b.test"]
        refused = service.cove("policy", "set", sandbox, "--allow", "a.test")
        assert refused.returncode == 1 and "inject secrets into requests to api.example.com" in refused.stderr and "--replace" in refused.stderr
        assert policy(service, sandbox) == now
        assert service.cove("policy", "set", "--replace", sandbox, "--allow", "a.test").returncode == 0
        assert "inject" not in policy(service, sandbox)
    finally:
        service.cove("secret", "rm", "TEST_KEY")


def test_a_secret_that_is_not_there_is_warned_of(service, up):
    headers, placeholders = [{"name": "authorization", "value": "Bearer ${secret:GONE}"}], [{"sentinel": "sentinel-1", "secret": "ALSO_GONE"}]
    set_ = service.cove("policy", "set", up, "-", input=json.dumps({"inject": [{"host": "a.test", "headers": headers, "placeholders": placeholders}]}))
    assert set_.returncode == 0 and "there is no secret GONE," in set_.stderr and "'cove secret set ALSO_GONE' makes it" in set_.stderr, set_.stderr


def test_half_of_a_host_is_warned_of(service, up):
    set_ = service.cove("policy", "set", up, "--deny", "8.8.8.8")
    assert set_.returncode == 0 and "rules[0] denies 8.8.8.8 and no IPv6 address" in set_.stderr, set_
    assert "warning" not in set_.stdout and "warnings" not in policy(service, up)
    status, _, answer = service.request("PUT", f"/cove/v1/sandboxes/{up}/network", policy(service, up))
    assert status == 200 and len(answer["warnings"]) == 1, answer
    assert [len(e["data"]["warnings"]) for e in net(service, up, "net.policy")] == [1, 1]
    named = service.cove("policy", "set", up, "--deny", "8.8.8.8", "--deny", "2001:4860:4860::8888", "--deny", "dns.google")
    assert named.returncode == 0 and not named.stderr, named


# ---- net ----


def test_net_follows_until_the_end(service, up):
    process = service.popen("net", "--follow", "--json", up, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        service.cove("policy", "set", up, "--net", "deny")
        service.cove("exec", up, "--", "getent", "hosts", "denied.test")
        kinds = [json.loads(process.stdout.readline())["kind"] for _ in range(2)]
        assert kinds == ["net.policy", "net.denied"]
        service.cove("rm", up)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_events_can_be_narrowed_to_kinds(service, up):
    service.cove("exec", up, "--", "true")
    kinds = {e["kind"] for e in net(service, up, "exec.")}
    assert kinds and all(kind.startswith("exec.") for kind in kinds)


# ---- the API ----


@pytest.mark.parametrize("body, code", [
    ({"network": {"default": "maybe"}}, "invalid_argument"),
    ({"network": {"rules": [{"allow": "1.2.3"}]}}, "invalid_argument"),
    ({"network": [], }, "invalid_argument"),
    ({"network": {}, "internet": True}, "invalid_argument"),
    ({"network": {"inject": [{"host": "a.b", "headers": [{"name": "host", "value": "x"}]}]}}, "invalid_argument"),
    ({"network": {"unknown": 1}}, "invalid_argument"),
])
def test_wrong_policies_are_refused(service, body, code):
    status, _, answer = service.request("POST", "/cove/v1/sandboxes", body)
    assert (status, answer["error"]["code"]) == (400, code)
    assert service.sandboxes() == []


def test_a_policy_survives_both_workers(service, up):
    service.cove("policy", "set", up, "--net", "deny")
    for name in ("cove-egress", "cove-api"):
        old = service.child(name)
        subprocess.run(["kill", "-9", str(old)], check=True)
        assert wait_until(lambda old=old, name=name: service.child(name) not in (None, old))
        assert wait_until(service.is_healthy)
        assert wait_until(lambda: service.request("GET", f"/cove/v1/sandboxes/{up}")[2]["network"] == "up"), service.tail()
        assert policy(service, up) == {"default": "deny", "rules": []} or policy(service, up) == {"default": "deny"}
        assert service.cove("exec", up, "--", "getent", "hosts", "denied.test").returncode == 2
    kinds = [e["kind"] for e in net(service, up)]
    assert kinds.count("net.down") == 1 and kinds.count("net.up") == 1, kinds
