# SPDX-License-Identifier: Apache-2.0
"""What a sandbox may reach and who may reach it, as the SDK sets it. Whether allowed things are reached is tested in tests/network."""

import pytest
from conftest import inside, until
from e2b import ALL_TRAFFIC, Sandbox, SandboxException

ECHO = """
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{self.headers['host']} {self.headers['x-forwarded-host']} {self.headers['e2b-traffic-access-token']}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 3000), Echo).serve_forever()
"""


def closed(box, name="denied.test"):
    return box.commands.run(f"getent hosts {name} || echo closed").stdout.strip() == "closed"


def test_no_internet_is_no_name(make):
    assert closed(make(allow_internet_access=False))


def test_rules_are_made_and_replaced(make):
    box = make(network={"allow_out": ["1.1.1.1"], "deny_out": [ALL_TRAFFIC]})
    network = box.get_info().network
    assert (network["allow_out"], network["deny_out"]) == (["1.1.1.1"], [ALL_TRAFFIC])
    assert closed(box)
    box.update_network({"deny_out": ["8.8.8.8"]})
    network = box.get_info().network
    assert network["deny_out"] == ["8.8.8.8"] and not network.get("allow_out")
    box.update_network({})


@pytest.mark.parametrize("network", [
    {"allow_out": ["a.example"]}, {"deny_out": ["not a name"]}, {"allow_out": ["not a name"]},
    {"rules": {"a.example": [{"transform": {"headers": {"host": "x"}}}]}}, {"mask_request_host": "a b"},
])
def test_wrong_rules_are_refused(network):
    with pytest.raises(SandboxException, match="400"):
        Sandbox.create(network=network)


def test_a_value_of_a_header_is_not_seen_again(make):
    box = make(network={"rules": {"a.example": [{"transform": {"headers": {"x-key": "hunter2"}}}]}})
    assert "hunter2" not in str(box.get_info().network)
    assert "BEGIN CERTIFICATE" in box.files.read("/usr/local/share/ca-certificates/cove-sandbox.crt")


def test_ports_are_for_those_who_have_the_token(make):
    box = make(network={"allow_public_traffic": False, "mask_request_host": "localhost:${PORT}"})
    assert box.traffic_access_token
    box.files.write("echo.py", ECHO)
    box.commands.run("python3 echo.py", background=True)
    token = {"E2B-Traffic-Access-Token": box.traffic_access_token}
    def ask(headers):
        return inside(box, 3000, headers={**headers, "Host": f"3000-{box.sandbox_id}.sandboxes.test"})
    assert until(lambda: ask(token).status_code == 200)
    assert ask(token).text == f"localhost:3000 3000-{box.sandbox_id}.sandboxes.test None"
    for headers in ({}, {"E2B-Traffic-Access-Token": "wrong"}):
        answer = ask(headers)
        assert answer.status_code == 403 and answer.json()["code"] == 403
