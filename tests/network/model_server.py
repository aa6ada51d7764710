#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""model_server.py LOG CERTIFICATE KEY PORT: stands in for models' APIs, streamed, over TLS: Anthropic's Messages, OpenAI's Responses, Google's streamGenerateContent. The first answer
of a conversation asks for the tool that runs commands, with $MODEL_COMMAND; the one that brings the tool's result ends with what it said. Without such a tool, $MODEL_TEXT is streamed. Each request is a line of JSON in
LOG, with the key that came with it."""

import json
import os
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMAND = os.environ.get("MODEL_COMMAND", "echo the-agent-was-here")
TEXT = os.environ.get("MODEL_TEXT", "a title")
SHELLS = {"shell_command": "command", "exec_command": "cmd", "shell": "command", "run_shell_command": "command", "bash": "command"}


def responses(body):
    """OpenAI's Responses."""
    said = [i["output"] for i in body.get("input", []) if isinstance(i, dict) and i.get("type") in ("function_call_output", "custom_tool_call_output")]
    names = [t.get("name") for t in body.get("tools", [])]
    (tool, *_) = [n for n in SHELLS if n in names] or [None]
    if said or not tool:
        item = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                "content": [{"type": "output_text", "text": f"it said: {said[-1] if said else names}", "annotations": []}]}
    else:
        value = ["sh", "-c", COMMAND] if tool == "shell" else COMMAND
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool, "arguments": json.dumps({SHELLS[tool]: value}), "status": "completed"}
    answer = {"id": "resp_1", "object": "response", "created_at": 1, "model": body.get("model"), "status": "completed", "output": [item],
              "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": {"cached_tokens": 0},
                        "output_tokens_details": {"reasoning_tokens": 0}}}
    yield "response.created", {"response": {**answer, "status": "in_progress", "output": []}}
    yield "response.output_item.added", {"output_index": 0, "item": {**item, "status": "in_progress"}}
    if item["type"] == "message":
        yield "response.output_text.delta", {"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": item["content"][0]["text"]}
    yield "response.output_item.done", {"output_index": 0, "item": item}
    yield "response.completed", {"response": answer}


def contents(body):
    """Google's: one chunk."""
    said = [p["functionResponse"]["response"] for c in body.get("contents", []) for p in c.get("parts", []) if "functionResponse" in p]
    names = [f.get("name") for t in body.get("tools", []) for f in t.get("functionDeclarations", [])]
    if not said and "run_shell_command" in names:
        part = {"functionCall": {"name": "run_shell_command", "args": {"command": COMMAND, "description": "Say so"}}}
    elif body.get("generationConfig", {}).get("responseMimeType") == "application/json" or body.get("generationConfig", {}).get("responseJsonSchema"):
        part = {"text": "{}"}
    else:
        part = {"text": f"it said: {json.dumps(said[-1]) if said else names}"}
    yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
           "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}


def events(message):
    """What a stream says that ends with this text or tool call."""
    usage = {"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    yield "message_start", {"message": {"id": "msg_1", "type": "message", "role": "assistant", "model": message["model"], "content": [],
                                        "stop_reason": None, "stop_sequence": None, "usage": usage}}
    if "text" in message:
        yield "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
        yield "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": message["text"]}}
    else:
        yield "content_block_start", {"index": 0, "content_block": {"type": "tool_use", "id": "toolu_1", "name": message["tool"], "input": {}}}
        yield "content_block_delta", {"index": 0, "delta": {"type": "input_json_delta", "partial_json": json.dumps(message["input"])}}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": {"stop_reason": "end_turn" if "text" in message else "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 5}}
    yield "message_stop", {}


def results(body):
    """The texts of all tool results that the conversation holds."""
    found = []
    for message in body.get("messages", []) if isinstance(body.get("messages"), list) else []:
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
        self.server.note({"path": self.path, "key": self.headers.get("x-api-key") or self.headers.get("x-goog-api-key"),
                          "authorization": self.headers.get("authorization"), "stream": body.get("stream"),
                          "tools": [t.get("name") for t in body.get("tools", [])], "results": results(body)})
        if self.path.endswith("/responses"):
            self.stream(responses(body))
            return
        if "GenerateContent" in self.path or "generateContent" in self.path:
            chunks = [c for c in contents(body)]
            self.plain(chunks[0]) if ":generateContent" in self.path else self.stream((None, c) for c in chunks)
            return
        if "count_tokens" in self.path:
            self.plain({"input_tokens": 10})
            return
        model, has_bash = body.get("model", "stand-in"), next((t["name"] for t in body.get("tools", []) if t.get("name") in ("Bash", "bash")), None)
        if results(body):
            message = {"model": model, "text": f"it said: {results(body)[-1]}"}
        elif has_bash:
            message = {"model": model, "tool": has_bash, "input": {"command": COMMAND, "description": "Say so"}}
        else:
            message = {"model": model, "text": TEXT if body.get("stream") else "fixed"}
        if not body.get("stream"):
            self.plain({"id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn", "stop_sequence": None,
                        "content": [{"type": "text", "text": message.get("text", "")}], "usage": {"input_tokens": 10, "output_tokens": 5}})
            return
        self.stream(events(message))

    def stream(self, all_events):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for kind, data in all_events:
            text = (f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n" if kind else f"data: {json.dumps(data)}\n\n").encode()
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
