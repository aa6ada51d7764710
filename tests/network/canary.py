#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""canary.py LOG CERTIFICATE KEY ZONE DNS: the offline internet's one server, run in its network namespace. Whatever reaches it is one JSON line in
LOG: DNS queries, connections, requests with their SNI, Host, headers and body. What the log does not show did not get out.

Ports, on all addresses: 53 (TCP; UDP on the address DNS alone, because an answer must come from where it was asked), 80, 443, 8443 (both HTTP over TLS), and TCP sinks on PLAIN_PORTS that greet, then echo, and a UDP sink on UDP_PORTS.
Paths: /status/N, /headers (answers with what came), /bytes/N, /sse (an event each 0.2 s), /turns/NAME (an event, and one for each request of /turn/NAME), /gzip (of "hello gzip"), /redirect?to=URL, /tell (the header x-key in the reason, and encoded in lower case in a header), /echo (the body), /ws (a WebSocket that echoes),
/reset, /stall, /cut (a tenth of an answer, then a reset, nothing, or the end), /git/... (smart HTTP), /files/... (of the directory FILES beside LOG), else "hello from ADDRESS".
Names with a certificate NAME.pem beside CERTIFICATE are answered with that one.
"""

import base64
import gzip
import hashlib
import json
import os
import re
import select
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

PLAIN_PORTS = (22, 25, 3306, 5000, 6379)
UDP_PORTS = (123, 443, 5000)
TYPES = {1: "A", 2: "NS", 5: "CNAME", 10: "NULL", 12: "PTR", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV", 64: "SVCB", 65: "HTTPS", 255: "ANY"}
WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
log_fd, zone, files, contexts = -1, {}, Path(), {}


def turns(name, known={}, lock=threading.Lock()):
    with lock:
        return known.setdefault(name, threading.Semaphore(0))


def plain(address):
    return address.removeprefix("::ffff:")


def log(what, **more):
    more.update({k: plain(more[k]) for k in ("client", "address") if k in more})
    os.write(log_fd, (json.dumps({"what": what, "at": time.time(), **more}) + "\n").encode())


# ---- DNS ----

def read_name(data, at):
    labels = []
    while data[at]:
        labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
        at += 1 + data[at]
    return ".".join(labels).lower(), at + 1


def write_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


class Records:
    """The zone: {"name": {"A": [...], "AAAA": [...], "CNAME": "...", "each": true}}; "*.name" is for everything below; "each" gives one address after the other."""

    turns: dict = {}

    @classmethod
    def find(cls, name):
        if name in zone:
            return zone[name]
        labels = name.split(".")
        return next((zone[f"*.{'.'.join(labels[i:])}"] for i in range(1, len(labels)) if f"*.{'.'.join(labels[i:])}" in zone), None)

    @classmethod
    def answers(cls, name, kind):
        found, chain = cls.find(name), []
        while found and "CNAME" in found and len(chain) < 8:
            chain.append((name, 5, write_name(found["CNAME"])))
            name = found["CNAME"]
            found = cls.find(name)
        if found is None:
            return None if not chain else chain
        addresses = found.get(kind, [])
        if found.get("each") and addresses:
            turn = cls.turns.get((name, kind), 0)
            cls.turns[name, kind] = turn + 1
            addresses = [addresses[min(turn, len(addresses) - 1)]]
        family = socket.AF_INET if kind == "A" else socket.AF_INET6
        return chain + [(name, 1 if kind == "A" else 28, socket.inet_pton(family, a)) for a in addresses if kind in ("A", "AAAA")]


def answer_dns(data, client):
    name, at = read_name(data, 12)
    kind = TYPES.get(struct.unpack_from(">H", data, at)[0], "?")
    log("dns", name=name, type=kind, client=client)
    found = Records.answers(name, kind)
    records = b"".join(write_name(n) + struct.pack(">HHIH", t, 1, 0, len(d)) + d for n, t, d in found or [])
    head = data[:2] + struct.pack(">HHHHH", 0x8180 | (3 if found is None else 0), 1, len(found or []), 0, 0)
    return head + data[12:at + 4] + records


class UdpDns(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(answer_dns(data, self.client_address[0]), self.client_address)


class TcpDns(socketserver.StreamRequestHandler):
    def handle(self):
        head = self.rfile.read(2)
        if len(head) == 2:
            answer = answer_dns(self.rfile.read(struct.unpack(">H", head)[0]), self.client_address[0])
            self.wfile.write(struct.pack(">H", len(answer)) + answer)


# ---- HTTP ----

class Web(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def setup(self):
        super().setup()
        self.sni = getattr(self.connection, "cove_sni", None)

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", kind="text/plain", **headers):
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while size := int(self.rfile.readline(64), 16):
                body += self.rfile.read(size)
                self.rfile.readline(8)
            self.rfile.readline(8)
            return body
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def git(self, url, body):
        env = {**os.environ, "GIT_PROJECT_ROOT": str(files), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": url.path.removeprefix("/git"),
               "REQUEST_METHOD": self.command, "QUERY_STRING": url.query, "CONTENT_TYPE": self.headers.get("content-type", ""),
               "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""), "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
               "REMOTE_USER": "somebody", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        out = subprocess.run(["git", "http-backend"], input=body, stdout=subprocess.PIPE, env=env, timeout=20, check=False).stdout
        head, _, rest = out.partition(b"\r\n\r\n")
        fields = dict(line.decode().lower().split(": ", 1) for line in head.splitlines() if b": " in line)
        self.answer(int(fields.get("status", "200").split()[0]), rest, fields.get("content-type", "text/plain"))

    def websocket(self):
        """Answers each frame (of less than 126 bytes) with the same text, and logs it; until the other end goes."""
        self.close_connection = True
        key = self.headers.get("sec-websocket-key", "").encode()
        self.send_response(101)
        for name, value in (("upgrade", "websocket"), ("connection", "Upgrade"),
                            ("sec-websocket-accept", base64.b64encode(hashlib.sha1(key + WEBSOCKET).digest()).decode())):
            self.send_header(name, value)
        self.end_headers()
        while len(head := self.rfile.read(2)) == 2:
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
            log("frame", data=data.decode("latin-1"))
            self.wfile.write(bytes([head[0], len(data)]) + data)

    def break_off(self, how):
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 100)
        self.wfile.flush()
        if how == "stall":
            select.select([self.connection], [], [], 8)  # it leaves when its client does
        elif how == "reset":
            time.sleep(0.3)  # a reset overtakes what was not read yet
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())

    def do(self):
        body = self.body()
        local = plain(self.connection.getsockname()[0])
        log("request", method=self.command, path=self.path, host=self.headers.get("host"), sni=self.sni, address=local,
            port=self.connection.getsockname()[1], headers=dict(self.headers.items()), fields=[[k.lower(), v] for k, v in self.headers.items()], body=body[:4096].decode("latin-1"), length=len(body))
        url = urlsplit(self.path)
        first, _, rest = url.path.strip("/").partition("/")
        if first == "status":
            self.answer(int(rest))
        elif first == "generate_204":
            self.answer(204)
        elif first == "headers":
            self.answer(200, json.dumps(dict(self.headers.items())).encode(), "application/json")
        elif first == "bytes":
            self.answer(200, b"x" * int(rest), "application/octet-stream")
        elif first == "gzip":
            self.answer(200, gzip.compress(b"hello gzip\n"), content_encoding="gzip")
        elif first == "ws" and self.headers.get("upgrade", "").lower() == "websocket":
            self.websocket()
        elif first in ("reset", "stall", "cut"):
            self.break_off(first)
        elif first == "git":
            self.git(url, body)
        elif first == "files":
            path = (files / unquote(rest)).resolve()
            path = path / "index.html" if path.is_dir() else path
            found = files in path.parents and path.is_file()
            kind = "text/html" if path.suffix == ".html" else "application/octet-stream" if path.suffix else "application/json"
            self.answer(200 if found else 404, path.read_bytes() if found else b"", kind)
        elif first == "echo":
            self.answer(200, body, self.headers.get("content-type", "application/octet-stream"))
        elif first == "redirect":
            self.answer(302, location=unquote(parse_qs(url.query)["to"][0]))
        elif first == "tell":
            key = self.headers.get("x-key", "")
            self.wfile.write(f"HTTP/1.1 200 {key}\r\nx-back: {re.sub('%..', lambda m: m[0].lower(), quote(key, safe=''))}\r\ncontent-length: 0\r\n\r\n".encode())
        elif first == "sse":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for number in range(5):
                self.wfile.write(f"data: {number}\n\n".encode())
                self.wfile.flush()
                time.sleep(0.2)
            self.close_connection = True
        elif first == "turn":
            turns(rest).release()
            self.answer(204)
        elif first == "turns":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for number in range(5):
                if number and not turns(rest).acquire(timeout=100):
                    break
                self.wfile.write(f"data: {number}\n\n".encode())
                self.wfile.flush()
            self.close_connection = True
        elif local in ("1.1.1.1", "8.8.8.8"):  # what the public resolvers answer to a browser
            self.answer(301 if local == "1.1.1.1" else 302, location=f"https://{'one.one.one.one' if local == '1.1.1.1' else 'dns.google'}/")
        else:
            self.answer(200, f"hello from {local}\n".encode())

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = do


class WebServer(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 512

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "canary", self.server_address[1]

    def handle_error(self, request, client_address):
        pass

    def get_request(self):
        sock, client = super().get_request()
        log("connection", client=client[0], address=sock.getsockname()[0], port=self.server_port)
        return sock, client


class SecureServer(WebServer):
    def __init__(self, address, handler, context):
        super().__init__(address, handler)
        self.context = context

    def finish_request(self, request, client_address):
        request.settimeout(20)
        self.names = threading.local()
        secure = self.context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        secure.cove_sni = None
        try:
            secure.do_handshake()
        except (OSError, ssl.SSLError) as error:
            log("handshake", sni=getattr(secure, "cove_sni", None), error=str(error))
            return
        log("handshake", sni=secure.cove_sni, error=None)
        self.RequestHandlerClass(secure, client_address, self)
        try:
            secure.unwrap()
        except (OSError, ssl.SSLError):
            pass


def note_sni(sock, name, _context):
    sock.cove_sni = name
    if name in contexts:
        sock.context = contexts[name]


def secure_context(certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


class Plain(socketserver.StreamRequestHandler):
    def handle(self):
        log("connection", client=self.client_address[0], address=self.connection.getsockname()[0], port=self.connection.getsockname()[1])
        self.wfile.write(b"220 canary\r\n")
        while data := self.connection.recv(65536):
            log("data", address=self.connection.getsockname()[0], port=self.connection.getsockname()[1], data=data[:200].decode("latin-1"))
            self.wfile.write(data)


class PlainServer(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    daemon_threads = allow_reuse_address = True


class UdpServer(socketserver.ThreadingUDPServer):
    address_family = socket.AF_INET6


class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        log("udp", client=self.client_address[0], port=self.server.server_address[1], data=self.request[0][:200].decode("latin-1"))


def main(log_path, certificate, key, zone_path, dns):
    global log_fd, files
    files = Path(log_path).resolve().parent / "files"
    log_fd = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(zone_path, encoding="ascii") as f:
        zone.update(json.load(f))
    context = secure_context(certificate, key)
    context.sni_callback = note_sni
    contexts.update({path.stem: secure_context(path, key) for path in Path(certificate).parent.glob("*.test.pem")})
    servers = [UdpServer((f"::ffff:{dns}", 53), UdpDns), PlainServer(("::", 53), TcpDns), WebServer(("::", 80), Web)]
    servers += [SecureServer(("::", port), Web, context) for port in (443, 8443)]
    servers += [PlainServer(("::", port), Plain) for port in PLAIN_PORTS] + [UdpServer(("::", port), Udp) for port in UDP_PORTS]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    log("ready")
    sys.stdin.read()  # until whoever started us is gone


if __name__ == "__main__":
    main(*sys.argv[1:])
