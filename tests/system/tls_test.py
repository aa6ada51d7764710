# SPDX-License-Identifier: Apache-2.0
"""A domain of one's own: what leads into sandboxes over TLS, as clients see it that trust the CA, and what becomes of it while the service runs."""

import base64
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from client import envelope, wait_for
from leaks import running
from service import opened, reserve_port
from terminal import Terminal

DOMAIN = "sandbox.localhost"
BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "Accept": "text/html"}

# A WebSocket server that echoes, and a page that says what it was asked, in one program of the standard library.
INSIDE = r"""
import base64, hashlib, http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            self.send_response(101)
            for pair in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
                self.send_header(*pair)
            self.end_headers()
            self.close_connection = True
            while True:
                head = self.rfile.read(2)
                if len(head) < 2 or head[0] & 15 == 8:
                    self.wfile.write(b"\x88\x00")
                    return
                size = head[1] & 127
                size = int.from_bytes(self.rfile.read(2), "big") if size == 126 else size
                mask = self.rfile.read(4)
                data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
                self.wfile.write(bytes([0x82]) + (bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")) + data)
        body = json.dumps({"path": self.path, "host": self.headers["Host"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


class Outside:
    """Somebody who trusts the CA and finds every name of the domain at 127.0.0.1."""

    def __init__(self, port, ca):
        self.port, self.ca = port, ca
        self.context = ssl.create_default_context(cafile=ca)
        self.context.set_alpn_protocols(["h2", "http/1.1"])

    def dial(self, name, context=None):
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        try:
            return (context or self.context).wrap_socket(plain, server_hostname=f"{name}.{DOMAIN}")
        except BaseException:
            plain.close()
            raise

    def request(self, name, method="GET", target="/", body=None, headers=None):
        """(status, headers, body)"""
        connection = http.client.HTTPSConnection(f"{name}.{DOMAIN}", self.port, timeout=60, context=self.context)
        connection.sock = self.dial(name)
        try:
            connection.request(method, target, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def curl(self, name, *arguments):
        url = f"https://{name}.{DOMAIN}:{self.port}/"
        done = subprocess.run(["curl", "-sS", "--noproxy", "*", "--max-time", "20", "--cacert", self.ca, "--resolve",
                               f"{name}.{DOMAIN}:{self.port}:127.0.0.1", *arguments, url], capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done
        return done.stdout


def meanwhile(ask):
    """The answer, or None while a worker that goes is replaced by the next."""
    try:
        return ask()
    except (OSError, http.client.HTTPException):
        return None


def serves(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def world():
    """A service that got its domain while it ran, and a sandbox from before that."""
    port = reserve_port()
    with running(COVE_LISTEN_TLS=f"127.0.0.1:{port}") as (service, client):
        yield service, client, port


@pytest.fixture(scope="module")
def box(world):
    """(sandbox, Outside): the domain is set for the first test that needs it."""
    service, client, port = world
    sandbox = client.create(timeout=3600)
    assert client.get(sandbox.id).json["domain"] == f"localhost:{client.port}"
    worker = service.child("cove-api")
    done = service.cove("domain", "set", DOMAIN, "--json")
    assert done.returncode == 0, done
    said = json.loads(done.stdout)
    assert said["in_use"] is True and said["e2b_domain"] == f"{DOMAIN}:{port}", said
    assert wait_for(lambda: serves(port) and service.is_healthy() and service.child("cove-api") != worker), service.tail()
    sandbox.upload("/home/user/inside.py", INSIDE.encode())
    sandbox.start("/usr/bin/python3", "/home/user/inside.py").started().close()
    outside = Outside(port, said["ca"])
    assert wait_for(lambda: (meanwhile(lambda: outside.request(f"8000-{sandbox.id}")) or [0])[0] == 200)
    yield sandbox, outside
    sandbox.kill()


def test_no_listener_without_a_domain():
    port = reserve_port()
    with running(COVE_LISTEN_TLS=f"127.0.0.1:{port}") as (service, _):
        assert not serves(port) and service.cove("domain", "show").returncode == 1
        done = service.cove("domain", "unset")
        assert done.returncode == 1 and "there is no domain" in done.stderr


def test_a_sandbox_outlives_the_change(world, box):
    _, client, port = world
    sandbox, _ = box
    assert sandbox.works()
    assert client.get(sandbox.id).json["domain"] == f"{DOMAIN}:{port}"
    other = client.control("POST", "/v2/sandboxes", {"templateID": "base"}).json
    assert other["domain"] == f"{DOMAIN}:{port}"
    client.control("DELETE", f"/sandboxes/{other['sandboxID']}")


def test_a_port_of_a_sandbox(box):
    sandbox, outside = box
    status, _, body = outside.request(f"8000-{sandbox.id}", target="/a%20b?c=d")
    assert status == 200
    assert json.loads(body) == {"path": "/a%20b?c=d", "host": f"8000-{sandbox.id}.{DOMAIN}:{outside.port}"}
    assert json.loads(outside.curl(f"8000-{sandbox.id}"))["path"] == "/"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_and_alpn(box, version):
    sandbox, outside = box
    context = ssl.create_default_context(cafile=outside.ca)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with outside.dial(f"8000-{sandbox.id}", context) as s:
        assert s.selected_alpn_protocol() == "http/1.1" and s.version() == version.name.replace("_", ".")
        session = s.session
        for _ in range(3):
            s.sendall(b"GET / HTTP/1.1\r\nHost: 8000-" + sandbox.id.encode() + b"." + DOMAIN.encode() + b"\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"): # head and body may be a record each
                answer += exactly(s, 1)
            assert answer.startswith(b"HTTP/1.1 200 OK"), answer
    assert session or version == ssl.TLSVersion.TLSv1_3


def test_a_large_body_both_ways(box):
    sandbox, outside = box
    body = os.urandom(1 << 20) * 24
    status, _, back = outside.request(f"8000-{sandbox.id}", "POST", "/echo", body)
    assert status == 200 and hashlib.sha256(back).digest() == hashlib.sha256(body).digest()


def test_the_daemon_of_a_sandbox(box):
    sandbox, outside = box
    name = f"49983-{sandbox.id}"
    assert outside.request(name, target="/health")[0] in (200, 204)
    headers = {"X-Access-Token": sandbox.token}
    data = os.urandom(3 << 20)
    status, _, said = outside.request(name, "POST", "/files?path=/home/user/over-tls", data,
                                      {**headers, "Content-Type": "application/octet-stream"})
    assert status == 200, said
    status, _, back = outside.request(name, target="/files?path=/home/user/over-tls", headers=headers)
    assert status == 200 and back == data
    assert outside.request(name, target="/files?path=/home/user/over-tls")[0] == 401
    assert outside.request(name, "POST", "/init")[0] == 404


def test_the_end_of_a_sandbox_is_the_end_of_its_streams(world, box):
    """Told in the stream, which then ends as TLS does: with close_notify, for without it a client can't tell an end from a cut."""
    _, client, _ = world
    _, outside = box
    sandbox = client.create()
    request = envelope({"process": {"cmd": "sleep", "args": ["600"]}})
    with outside.dial(f"49983-{sandbox.id}") as s:
        s.suppress_ragged_eofs = False
        s.sendall(b"POST /process.Process/Start HTTP/1.1\r\nHost: 49983-" + f"{sandbox.id}.{DOMAIN}\r\nX-Access-Token: {sandbox.token}".encode() +
                  b"\r\nConnection: close\r\nContent-Type: application/connect+json\r\n" + f"Content-Length: {len(request)}\r\n\r\n".encode() + request)
        said = b""
        while b'"start"' not in said:
            said += s.recv(65536)
        assert sandbox.kill().status == 204
        while data := s.recv(65536): # an end without close_notify raises
            said += data
    assert b'"code":"unavailable"' in said and said.endswith(b"0\r\n\r\n"), said


def test_the_control_plane(world, box):
    _, client, _ = world
    sandbox, outside = box
    assert outside.request("api", target="/sandboxes")[0] == 401
    status, _, body = outside.request("api", target="/v2/sandboxes", headers={"X-API-KEY": client.key})
    assert status == 200 and sandbox.id in [s["sandboxID"] for s in json.loads(body)]


def frame(data):
    mask = os.urandom(4)
    size = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + len(data).to_bytes(2, "big")
    return b"\x82" + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data))


def exactly(s, n):
    data = b""
    while len(data) < n:
        piece = s.recv(n - len(data))
        assert piece, f"ended after {len(data)} of {n}"
        data += piece
    return data


def test_a_websocket(box):
    sandbox, outside = box
    key = base64.b64encode(os.urandom(16))
    with outside.dial(f"8000-{sandbox.id}") as s:
        s.sendall(b"GET /ws HTTP/1.1\r\nHost: 8000-%s.%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                  b"Sec-WebSocket-Key: %s\r\n\r\n" % (sandbox.id.encode(), DOMAIN.encode(), key))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += exactly(s, 1)
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        assert head.startswith(b"HTTP/1.1 101 ") and accept in head, head
        for data in (b"hello", os.urandom(60000), b""):
            s.sendall(frame(data))
            first = exactly(s, 2)
            size = int.from_bytes(exactly(s, 2), "big") if first[1] == 126 else first[1]
            assert first[0] == 0x82 and exactly(s, size) == data
        s.sendall(b"\x88\x80" + os.urandom(4))
        assert exactly(s, 2) == b"\x88\x00"


def test_what_is_not_there(box):
    sandbox, outside = box
    status, headers, body = outside.request("3000-i00000000000000000000")
    assert status == 502 and json.loads(body) == {"sandboxId": "i00000000000000000000", "message": "The sandbox was not found", "code": 502}
    status, _, body = outside.request(f"9-{sandbox.id}")
    assert status == 502 and json.loads(body)["port"] == 9
    status, headers, body = outside.request(f"9-{sandbox.id}", headers=BROWSER)
    assert status == 502 and headers["content-type"].startswith("text/html") and b"port is not open" in body
    status, _, body = outside.request(f"99999-{sandbox.id}")
    assert status == 400 and body == b"Invalid sandbox port\n"


def test_plain_http_is_told(box):
    _, outside = box
    with socket.create_connection(("127.0.0.1", outside.port), timeout=60) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while piece := s.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400 ") and b"https://" in answer, answer


def test_who_does_not_trust_the_ca(box):
    _, outside = box
    with pytest.raises(ssl.SSLCertVerificationError):
        outside.dial("api", ssl.create_default_context())
    # A name that is not below the domain has no certificate here.
    plain = socket.create_connection(("127.0.0.1", outside.port), timeout=60)
    with pytest.raises(ssl.SSLCertVerificationError):
        outside.context.wrap_socket(plain, server_hostname="example.org")
    plain.close()


def test_handshakes_that_never_end_hold_nobody_up(box):
    sandbox, outside = box
    silent = [socket.create_connection(("127.0.0.1", outside.port), timeout=60) for _ in range(200)]
    for number, s in enumerate(silent):
        s.sendall([b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", os.urandom(40)][number % 4])
    try:
        assert outside.request(f"8000-{sandbox.id}")[0] == 200
        assert silent[0].recv(1) == b"" # after 10 s
    finally:
        for s in silent:
            s.close()


def test_keys_are_roots_alone(world, box):
    service, _, _ = world
    directory = service.state / "tls"
    modes = {path.name: (path.stat().st_uid, path.stat().st_mode & 0o777) for path in directory.iterdir()}
    assert modes == {"ca.key": (0, 0o600), "ca.pem": (0, 0o644), "server.pem": (0, 0o600)}
    # The worker's certificate came in memory: nothing of it is in a file that it could open, or in its arguments.
    worker = service.child("cove-api")
    held = opened(worker)
    assert held and not any("server.pem" in target for target in held.values()), held
    assert b"PRIVATE" not in open(f"/proc/{worker}/cmdline", "rb").read()


def made(tmp_path, *arguments):
    """A self-signed certificate; (certificate, key)."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test", "-keyout",
                    key, "-out", cert, *arguments], check=True, capture_output=True, timeout=60)
    return cert, key


def test_certificates_that_do_not_fit(world, tmp_path):
    service, _, _ = world
    names = f"subjectAltName=DNS:*.{DOMAIN}"
    cert, key = made(tmp_path, "-days", "1", "-addext", names)
    other = tmp_path / "other"
    other.mkdir()
    _, other_key = made(other, "-days", "1")

    def refused(cert, key, domain=DOMAIN):
        done = service.cove("domain", "set", domain, "--cert", str(cert), "--key", str(key))
        assert done.returncode == 1 and done.stdout == "", done
        return done.stderr

    assert "is not that of the first certificate" in refused(cert, other_key)
    assert f'for "*.{DOMAIN}", not for *.example.org' in refused(cert, key, "example.org")
    assert "holds no certificate" in refused(key, key)
    assert "holds no private key" in refused(cert, cert)
    assert "No such file" in refused(tmp_path / "none", key)
    assert "two labels or more" in refused(cert, key, "localhost")
    (tmp_path / "names").write_text(names)
    subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=old", "-out", tmp_path / "request"], check=True, timeout=60)
    subprocess.run(["openssl", "x509", "-req", "-in", tmp_path / "request", "-signkey", key, "-days", "-1", "-extfile", tmp_path / "names", "-out",
                    cert], check=True, capture_output=True, timeout=60)
    assert "has expired" in refused(cert, key)
    assert service.cove("domain", "set", DOMAIN, "--cert", "x").returncode == 2
    assert service.cove("domain", "show", "--key", "x").returncode == 2
    assert service.cove("domain").stdout == service.cove("domain", "show").stdout


def leaf(outside):
    with outside.dial("api", ssl._create_unverified_context()) as s:
        return s.getpeercert(True)


def test_a_given_certificate_and_back(world, box, tmp_path):
    """The service goes over to it without ending a sandbox, and back; the CA is the one from before."""
    service, _, _ = world
    sandbox, outside = box
    first, ca = leaf(outside), (service.state / "tls" / "ca.pem").read_bytes()
    cert, key = made(tmp_path, "-days", "5", "-addext", f"subjectAltName=DNS:{DOMAIN},DNS:*.{DOMAIN}")
    done = service.cove("domain", "set", DOMAIN, "--cert", str(cert), "--key", str(key))
    assert done.returncode == 0 and "The service uses it from now on" in done.stdout, done
    wanted = ssl.PEM_cert_to_DER_cert(cert.read_text())
    assert wait_for(lambda: meanwhile(lambda: leaf(outside)) == wanted), service.tail()
    assert wait_for(lambda: meanwhile(sandbox.works))
    assert json.loads(service.cove("domain", "show", "--json").stdout)["source"] == "given"
    assert "NODE_EXTRA_CA_CERTS" not in service.cove("domain", "trust").stdout
    assert service.cove("domain", "set", DOMAIN).returncode == 0
    assert wait_for(lambda: meanwhile(lambda: leaf(outside)) not in (None, first, wanted)), service.tail()
    assert (service.state / "tls" / "ca.pem").read_bytes() == ca
    assert wait_for(lambda: (meanwhile(lambda: outside.request(f"8000-{sandbox.id}")) or [0])[0] == 200)
    trust = service.cove("domain", "trust").stdout
    assert re.search(rf"^export NODE_EXTRA_CA_CERTS={re.escape(outside.ca)}$", trust, re.M), trust


def test_who_trusts_the_ca_trusts_the_machines_authorities_as_well(world, box):
    """Programs that are given a file trust nothing else: HTTPS of the same shell must go on."""
    service, _, _ = world
    _, outside = box
    ca = Path(outside.ca)
    assert service.cove("domain", "show").returncode == 0 and service.cove("domain").stdout == service.cove("domain", "show").stdout
    done = subprocess.run(["sh", "-c", 'eval "$1"; printf "%s\\n" "$SSL_CERT_FILE" "$CURL_CA_BUNDLE"', "sh", service.cove("domain", "trust").stdout],
                          capture_output=True, text=True, timeout=60, check=True)
    files = set(done.stdout.split())
    assert files == {str(ca.with_name("bundle.pem"))} and done.stderr == "", done
    bundle = Path(files.pop())
    assert bundle.stat().st_mode & 0o777 == 0o644
    machines = ssl.create_default_context(cafile="/etc/ssl/certs/ca-certificates.crt").get_ca_certs(True)
    trusted = ssl.create_default_context(cafile=str(bundle)).get_ca_certs(True)
    assert len(machines) > 1 and set(machines) < set(trusted) and ssl.PEM_cert_to_DER_cert(ca.read_text()) in trusted


def test_renew_says_until_when(world, box):
    service, _, _ = world
    seen, status = Terminal(service, "domain", "renew").rest()
    assert status == 0 and re.search(rb"the certificate for \*\.\S+ is good until 20\d\d-\d\d-\d\d; ", seen), seen
    found = json.loads(service.cove("domain", "renew", "--json").stdout)
    assert found["domain"] == DOMAIN and found["source"] == "own"


def test_unset_and_set_again(world, box):
    service, client, _ = world
    sandbox, outside = box
    assert service.cove("domain", "unset").returncode == 0
    assert wait_for(lambda: not serves(outside.port))
    assert wait_for(lambda: meanwhile(lambda: client.get(sandbox.id).json["domain"] == f"localhost:{client.port}"))
    assert service.cove("domain", "set", DOMAIN).returncode == 0
    with outside.dial("api"): # whom the worker of before waits for, with its address
        for arguments in (["unset"], ["set", DOMAIN]):
            done = service.cove("domain", *arguments)
            assert done.returncode == 0, done
    assert wait_for(lambda: (meanwhile(lambda: outside.request(f"8000-{sandbox.id}")) or [0])[0] == 200)


def let_end_soon(service, tmp_path):
    """Puts a certificate of the service's own CA in the place of its own, with a day left."""
    tls = service.state / "tls"
    ca_key = tmp_path / "ca.key"
    ca_key.write_text((tls / "ca.key").read_text().split("\n", 1)[1])
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=old", "-keyout",
                    tmp_path / "key", "-out", tmp_path / "request"], check=True, capture_output=True, timeout=60)
    (tmp_path / "names").write_text(f"subjectAltName=DNS:{DOMAIN},DNS:*.{DOMAIN}\n")
    subprocess.run(["openssl", "x509", "-req", "-in", tmp_path / "request", "-CA", tls / "ca.pem", "-CAkey", ca_key, "-CAcreateserial", "-days",
                    "1", "-extfile", tmp_path / "names", "-out", tmp_path / "cert", "-CAserial", tmp_path / "serial"], check=True,
                   capture_output=True, timeout=60)
    (tls / "server.pem").write_text(f"domain: {DOMAIN}\nsource: own\n" + (tmp_path / "key").read_text() + (tmp_path / "cert").read_text())
    os.chmod(tls / "server.pem", 0o600)


def ends_at(outside):
    """0: nobody answers, as for a moment while the worker is replaced."""
    try:
        with outside.dial("api") as s:
            return ssl.cert_time_to_seconds(s.getpeercert()["notAfter"])
    except OSError:
        return 0


def test_what_is_renewed_by_hand_is_used_at_once(world, box, tmp_path):
    service, client, _ = world
    sandbox, outside = box
    let_end_soon(service, tmp_path)
    service.coved.send_signal(signal.SIGUSR1)
    assert wait_for(lambda: 0 < ends_at(outside) < time.time() + 2 * 86400)
    done = service.cove("domain", "renew")
    assert (done.returncode, done.stdout) == (0, "The service uses it from now on; sandboxes go on.\n"), done
    assert "was renewed" in done.stderr
    assert ends_at(outside) > time.time() + 80 * 86400 # and not only after a while
    assert wait_for(service.is_healthy) and client.get(sandbox.id).json["domain"] and sandbox.works()
    let_end_soon(service, tmp_path)
    said = json.loads(service.cove("domain", "renew", "--json").stdout)
    assert said["in_use"] is True and said["until"] > time.strftime("%Y-%m-%d", time.gmtime(time.time() + 80 * 86400)), said


def test_a_start_with_a_domain_renews_what_ends_soon(tmp_path):
    port = reserve_port()
    with running(COVE_LISTEN_TLS=f"127.0.0.1:{port}") as (service, client):
        assert service.cove("domain", "set", DOMAIN).returncode == 0
        assert service.stop() == 0
        done = service.cove("domain", "renew")
        assert done.returncode == 0 and done.stderr == "" # it is new
        tls = service.state / "tls"
        let_end_soon(service, tmp_path)
        service.start()
        assert "was renewed" in service.log.read_text() and "from its next start on" not in service.log.read_text()
        outside = Outside(port, str(tls / "ca.pem"))
        assert wait_for(lambda: serves(port))
        assert ends_at(outside) > time.time() + 80 * 86400
        # A file that others may read, and one that is damaged, are not served with.
        assert service.stop() == 0
        os.chmod(tls / "server.pem", 0o644)
        with pytest.raises(AssertionError, match="only root may have access to it"):
            service.start()
        os.chmod(tls / "server.pem", 0o600)
        (tls / "server.pem").write_text("domain: x\n")
        with pytest.raises(AssertionError, match="damaged"):
            service.start()
        shutil.rmtree(tls)
        service.start()
        assert "nothing listens there until" in service.log.read_text() and not serves(port)


@pytest.mark.parametrize("listen, ok", [({"COVE_LISTEN": "0.0.0.0:{}"}, False), ({"COVE_LISTEN_TLS": "0.0.0.0:{}"}, True)])
def test_beyond_loopback_with_tls_only(listen, ok):
    with running(COVE_LISTEN_TLS=f"127.0.0.1:{reserve_port()}") as (service, _):
        assert service.cove("domain", "set", DOMAIN).returncode == 0
        assert service.stop() == 0
        before = dict(service.env)
        service.env["COVE_LISTEN_TLS"] = f"127.0.0.1:{reserve_port()}"
        service.env.update({name: value.format(reserve_port()) for name, value in listen.items()})
        if ok:
            service.start()
        else:
            with pytest.raises(AssertionError, match="nothing encrypts what they send"):
                service.start()
            service.env = {**before, "COVE_LISTEN_TLS": service.env["COVE_LISTEN_TLS"]}
            service.start()


def test_the_command_line_over_tls(world, box, tmp_path):
    """With the key and the authority it does all that it does here; without either it says what is missing, and sends the key to nobody."""
    service, _, port = world
    sandbox, outside = box
    host = f"https://api.{DOMAIN}:{port}"
    env = {"COVE_HOST": host, "SSL_CERT_FILE": outside.ca, "COVE_API_KEY": service.key}
    assert sandbox.id in service.cove("ls", "-q", env=env).stdout.split()
    done = service.cove("exec", sandbox.id, "--", "sh", "-c", "tr a-z A-Z; exit 3", input="over tls", env=env)
    assert (done.returncode, done.stdout) == (3, "OVER TLS"), done
    (tmp_path / "big").write_bytes(os.urandom(3 << 20))
    assert service.cove("cp", str(tmp_path / "big"), f"{sandbox.id}:/tmp/big", env=env).returncode == 0
    assert service.cove("cp", f"{sandbox.id}:/tmp/big", str(tmp_path / "back"), env=env).returncode == 0
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()
    done = service.cove("ls", env={**env, "SSL_CERT_FILE": "/dev/null"})
    assert done.returncode == 1 and "not trusted here" in done.stderr and "SSL_CERT_FILE" in done.stderr, done
    done = service.cove("ls", env={**env, "COVE_HOST": f"https://127.0.0.1:{port}"})
    assert done.returncode == 1 and "not trusted here" in done.stderr, done
    done = service.cove("ls", env={**env, "COVE_API_KEY": "wrong"})
    assert done.returncode == 1 and "key is wrong" in done.stderr, done
    done = service.cove("ls", env={**env, "COVE_HOST": f"https://127.0.0.1:{service.port}"})
    assert done.returncode == 1 and ("does not speak TLS" in done.stderr or "broke" in done.stderr or "cannot reach" in done.stderr), done
