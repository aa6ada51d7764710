#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""model_server.py LOG CERTIFICATE KEY PORT: stands in for a model's API (Anthropic's Messages, streamed), over TLS. The first answer of a conversation asks for the tool
Bash, the one that brings the tool's result ends with what it said. Each request is a line of JSON in LOG, with the key that came with it."""

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMAND = "echo the-agent-was-here"


def events(message):
    """What a stream says that ends with this text or tool call."""
    usage = {"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    yield "message_start", {"message": {"id": "msg_1", "type": "message", "role": "assistant", "model": message["model"], "content": [],
                                        "stop_reason": None, "stop_sequence": None, "usage": usage}}
    if "text" in message:
        yield "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
        yield "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": message["text"]}}
    else:
        yield "content_block_start", {"index": 0, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}}
        yield "content_block_delta", {"index": 0, "delta": {"type": "input_json_delta", "partial_json": json.dumps(message["input"])}}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": {"stop_reason": "end_turn" if "text" in message else "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 5}}
    yield "message_stop", {}


def results(body):
    """The texts of all tool results that the conversation holds."""
    found = []
    for message in body.get("messages", []):
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block.get("type") == "tool_result":
                content = block.get("content", "")
                found.append(content if isinstance(content, str) else " ".join(c.get("text", "") for c in content))
    return found


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.loads(raw or b"{}")
        self.server.note({"path": self.path, "key": self.headers.get("x-api-key"), "authorization": self.headers.get("authorization"),
                          "stream": body.get("stream"), "tools": [t.get("name") for t in body.get("tools", [])], "results": results(body)})
        if "count_tokens" in self.path:
            self.plain({"input_tokens": 10})
            return
        model, has_bash = body.get("model", "stand-in"), any(t.get("name") == "Bash" for t in body.get("tools", []))
        if results(body):
            message = {"model": model, "text": f"it said: {results(body)[-1]}"}
        elif has_bash:
            message = {"model": model, "input": {"command": COMMAND, "description": "Say so"}}
        else:
            message = {"model": model, "text": "a title"}
        if not body.get("stream"):
            self.plain({"id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn", "stop_sequence": None,
                        "content": [{"type": "text", "text": message.get("text", "")}], "usage": {"input_tokens": 10, "output_tokens": 5}})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for kind, data in events(message):
            text = f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def plain(self, answer):
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.server.note({"path": self.path, "key": self.headers.get("x-api-key"), "authorization": self.headers.get("authorization")})
        self.plain({"data": []})


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, log, context):
        super().__init__(("0.0.0.0", port), Model)
        self.log = open(log, "a", encoding="utf-8", buffering=1)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def note(self, entry):
        self.log.write(json.dumps(entry) + "\n")

    def handle_error(self, request, client_address):
        pass


def main(log, certificate, key, port):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    server = Server(int(port), log, context)
    server.note({"path": "ready"})
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
