# SPDX-License-Identifier: Apache-2.0
"""Where a sentinel becomes its secret, and where it does not, because servers show what stands there to whoever asked."""

import pytest

SECRET, SENTINEL = "sk-live-5e4d3c2b1a", "sk-cove-fedcba9876543210"
ELSEWHERE = ("origin", "user-agent", "anthropic-beta", "openai-organization", "x-github-api-version", "x-request-id", "content-type", "idempotency-key",
             "sec-websocket-protocol", "access-control-request-headers")


def policy(**more):
    return {"rules": [{"allow": "api.test", "ports": [443]}], "inject": [{"host": "api.test", "placeholders": [{"sentinel": SENTINEL, "secret": "SHOWN", **more}]}]}


@pytest.fixture(scope="module")
def secret(service):
    done = service.cove("secret", "set", "SHOWN", input=SECRET)
    assert done.returncode == 0, done.stderr


def fields(world, one, names):
    """What the server got in these headers, and what the sandbox learns when the server shows all it got."""
    with world.watched() as seen:
        code, out, err = one.curl("https://api.test/headers", *[word for name in names for word in ("-H", f"{name}: {SENTINEL}")])
    assert code == 0, err
    (request,) = [e for e in seen if e["what"] == "request"]
    return {name: value for name, value in request["fields"] if name in names}, out


def test_a_key_goes_where_keys_are_expected(world, box, secret):
    got, _ = fields(world, box(policy()), ("authorization", "x-api-key", "cookie", "private-token"))
    assert set(got.values()) == {SECRET} and len(got) == 4, got


def test_a_server_that_shows_other_headers_shows_no_key(world, box, secret):
    one = box(policy())
    got, shown = fields(world, one, ELSEWHERE)
    assert set(got.values()) == {SENTINEL} and len(got) == len(ELSEWHERE), got
    assert SENTINEL in shown and SECRET not in shown
    assert one.events("net.misuse"), "and it is told"


def test_headers_that_the_policy_names(world, box, secret):
    got, _ = fields(world, box(policy(headers=["X-Honeycomb-Team"])), ("x-honeycomb-team", "x-api-key"))
    assert got == {"x-honeycomb-team": SECRET, "x-api-key": SENTINEL}
