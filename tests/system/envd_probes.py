# SPDX-License-Identifier: Apache-2.0
"""
Requests to the daemon in a sandbox, each with the shape of its answer. Against ours they are a test (envd_test.py); as a program,

    envd_probes.py PORT [HEADER=VALUE...] > tests/system/envd/recorded.json

records the answers of another daemon that listens on 127.0.0.1, in a sandbox of the base template, where the user is `user`.
"""

import base64
import gzip
import http.client
import json
import re
import socket
import struct
import sys
from urllib.parse import quote

JSON, STREAM, OCTETS, FORM = "application/json", "application/connect+json", "application/octet-stream", "multipart/form-data; boundary=XX"
DIR = "/home/user/probes"
HEADERS = ["content-type", "content-encoding", "content-range", "content-disposition", "accept-ranges", "vary", "allow", "accept-post",
           "connect-content-encoding", "last-modified", "access-control-allow-origin", "access-control-allow-methods"]
VOLATILE = {"message", "pid", "modifiedTime", "watcherId", "ts", "owner", "group"} # there or not is what counts
PNG, BYTES, TEXT = b"\x89PNG\r\n\x1a\n" + bytes(range(256)), bytes(range(256)), b"0123456789" * 20


def shape(value, key=None):
    if key in VOLATILE or (key and re.match("(cpu|mem|disk)_", key)):
        return "<number>" if isinstance(value, (int, float)) else f"<{type(value).__name__}>"
    if isinstance(value, dict):
        return {k: shape(v, k) for k, v in sorted(value.items())}
    return [shape(v) for v in value] if isinstance(value, list) else value


def text_shape(data):
    if len(data) > 2000:
        return f"<{len(data)} bytes>"
    return re.sub(r"\b[0-9a-z]{30,}\b", "<boundary>", data.decode("latin-1"))


def messages(data):
    """Of a stream: [flags, shape], what was put out joined by channel."""
    found, out = [], {}
    while data:
        flags, n = struct.unpack(">BI", data[:5])
        body, data = data[5:5 + n], data[5 + n:]
        message = json.loads(gzip.decompress(body) if flags & 1 else body)
        event = message.get("event", {})
        for channel, text in event.get("data", {}).items():
            out[channel] = out.get(channel, b"") + base64.b64decode(text)
        if "data" not in event:
            found.append([flags & 2, shape(message)])
    return found + [[channel, text_shape(text)] for channel, text in sorted(out.items())]


class Daemon:
    def __init__(self, port, headers):
        self.port, self.headers, self.pids = port, headers, {} # by name; of tags the other daemon finds one alone

    def call(self, method, target, body=None, headers=None, part=False):
        """(status, headers, body); part: what a stream said until its first event of output or none came for a second."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, target, body, {**self.headers, **(headers or {})})
            answer = connection.getresponse()
            if not part:
                return answer.status, answer.headers, answer.read()
            data = b""
            try:
                while b'"start"' not in data:
                    data += answer.read1(65536)
                assert data and b'"error"' not in data, data
            except socket.timeout:
                pass
            answer.close()
            return answer.status, answer.headers, data
        finally:
            connection.close()

    # ---- what a probe is made of ----

    def http(self, method, target, body=None, **headers):
        status, got, data = self.call(method, target, body, {k.replace("_", "-"): v for k, v in headers.items()})
        found = {"status": status, "headers": {h: text_shape(got[h].encode()) for h in HEADERS if got.get(h) and h != "last-modified"}}
        if got.get("last-modified"):
            found["headers"]["last-modified"] = "<date>"
        kind = got.get("content-type", "")
        if kind.startswith(JSON):
            found["headers"]["content-type"] = JSON # in UTF-8, said or not
        if got.get("content-encoding") == "gzip" and data:
            data = gzip.decompress(data)
        if kind.startswith(STREAM):
            found["messages"] = messages(data)
        elif data and (kind.startswith(JSON) or method == "POST" and data[:1] == b"["): # what was uploaded; its type was a guess of the other's library
            found["headers"]["content-type"] = JSON
            found["json"] = shape(json.loads(data))
        else:
            found["body"] = text_shape(data)
        return found

    def file(self, name, method="GET", query="", **headers):
        return self.http(method, f"/files?path={quote(name if name.startswith('/') else DIR + '/' + name)}{query}", **headers)

    def put(self, name, data, query="", **headers):
        return self.http("POST", f"/files?path={quote(name if name.startswith('/') else DIR + '/' + name)}{query}", data, **{"Content_Type": OCTETS, **headers})

    def form(self, *parts, query=""):
        body = b"".join(b'--XX\r\nContent-Disposition: form-data; name="file"; filename="' + n.encode() + b'"\r\n\r\n' + d + b"\r\n" for n, d in parts)
        return self.http("POST", f"/files{query}", body + b"--XX--\r\n", Content_Type=FORM)

    def rpc(self, method, message, **headers):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.http("POST", f"/{method}", body, **{"Content_Type": JSON, "Connect_Protocol_Version": "1", **headers})

    def stream(self, method, message, **headers):
        body = message if isinstance(message, bytes) else frame(json.dumps(message).encode())
        return self.http("POST", f"/{method}", body, **{"Content_Type": STREAM, "Connect_Protocol_Version": "1", **headers})

    def start(self, *command, **more):
        headers = more.pop("headers", {})
        process = {"cmd": command[0], "args": list(command[1:]), **more.pop("process", {})}
        return self.stream("process.Process/Start", {"process": process, "stdin": False, **more}, **headers)

    def begin(self, tag, *command, **more):
        """A process that goes on."""
        body = frame(json.dumps({"process": {"cmd": command[0], "args": list(command[1:])}, "tag": tag, **more}).encode())
        data = self.call("POST", "/process.Process/Start", body, {"Content-Type": STREAM, "Connect-Protocol-Version": "1"}, part=True)[2]
        self.pids[tag] = int(re.search(rb'"pid": *(\d+)', data)[1])

    def input(self, tag, data, channel="stdin", **headers):
        return self.rpc("process.Process/SendInput", {"process": self.of(tag), "input": {channel: base64.b64encode(data).decode()}}, **headers)

    def of(self, tag):
        return {"pid": self.pids[tag]} if tag in self.pids else {"tag": tag}

    def fs(self, method, **message):
        return self.rpc(f"filesystem.Filesystem/{method}", message)

    def process(self, method, **message):
        return self.rpc(f"process.Process/{method}", message)

    def end(self):
        for pid in self.pids.values():
            self.process("SendSignal", process={"pid": pid}, signal="SIGNAL_SIGKILL")


def frame(data, flags=0):
    return struct.pack(">BI", flags, len(data)) + data


def prepare(d):
    made = d.start("/bin/bash", "-c", f"""rm -rf {DIR}; mkdir -p {DIR}/dir/sub {DIR}/list/a/b && cd {DIR} && ln -s text.txt link && ln -s nowhere broken
        touch list/one list/a/two && chmod 644 list/* list/a/two; chmod 755 list/a && mkfifo fifo""")
    assert made["messages"][1][1]["event"]["end"].get("exitCode", 0) == 0, made
    for name, data in {"text.txt": TEXT, "text": TEXT, "bytes": BYTES, "picture": PNG, "page": b"<html><p>x", "page.html": b"<html>", "data.json": b'{"a": 1}', "empty": b"",
                       "a.png": PNG, "large.txt": TEXT * 500, "in space.txt": b"x", "not-run": b"#!/bin/sh\n"}.items():
        assert d.put(name, data)["status"] == 200
    d.begin("cat", "cat")
    d.begin("sink", "/bin/sh", "-c", "cat > /dev/null")
    d.begin("deaf", "sleep", "600", stdin=False)
    d.begin("pty", "/bin/sh", pty={"size": {"cols": 80, "rows": 24}})
    d.begin("closed", "cat")
    d.fs("CreateWatcher", path=f"{DIR}/dir")


LIST, START, SEND, STAT = "process.Process/List", "process.Process/Start", "process.Process/SendInput", "filesystem.Filesystem/Stat"
ECHO = {"process": {"cmd": "echo", "args": ["x"]}}
NO_TYPE = {"Content_Type": ""}

PROBES = {
    # ---- plain routes ----
    "health": lambda d: d.http("GET", "/health"),
    "health by HEAD": lambda d: d.http("HEAD", "/health"),
    "health by POST": lambda d: d.http("POST", "/health", b""),
    "metrics": lambda d: d.http("GET", "/metrics"),
    "nothing there": lambda d: d.http("GET", "/nothing"),
    "the root": lambda d: d.http("GET", "/"),
    "a preflight": lambda d: d.http("OPTIONS", "/files", Origin="http://x", Access_Control_Request_Method="POST"),
    "of another origin": lambda d: d.http("GET", "/health", Origin="http://x"),
    # ---- downloads ----
    "download text": lambda d: d.file("text.txt"),
    "download text without extension": lambda d: d.file("text"),
    "download bytes without extension": lambda d: d.file("bytes"),
    "download a page": lambda d: d.file("page.html"),
    "download a page without extension": lambda d: d.file("page"),
    "download JSON": lambda d: d.file("data.json"),
    "download a picture": lambda d: d.file("a.png"),
    "download a picture without extension": lambda d: d.file("picture"),
    "download nothing": lambda d: d.file("empty"),
    "download a name with a space": lambda d: d.file("in space.txt"),
    "download a link": lambda d: d.file("link"),
    "download a broken link": lambda d: d.file("broken"),
    "download what is not there": lambda d: d.file("nothing"),
    "download a directory": lambda d: d.file("dir"),
    "download without a path": lambda d: d.http("GET", "/files"),
    "download by a relative path": lambda d: d.http("GET", "/files?path=probes/text.txt"),
    "download from home": lambda d: d.http("GET", "/files?path=~/probes/text.txt"),
    "download as root": lambda d: d.file("text.txt", query="&username=root"),
    "download as nobody known": lambda d: d.file("text.txt", query="&username=nobodyhere"),
    "head of text": lambda d: d.file("text.txt", "HEAD"),
    "head of text without extension": lambda d: d.file("text", "HEAD"),
    "head of bytes without extension": lambda d: d.file("bytes", "HEAD"),
    "head of what is not there": lambda d: d.file("nothing", "HEAD"),
    "a range": lambda d: d.file("text.txt", Range="bytes=2-5"),
    "a range without extension": lambda d: d.file("text", Range="bytes=2-5"),
    "a range of bytes without extension": lambda d: d.file("bytes", Range="bytes=20-25"),
    "a range from the end": lambda d: d.file("text.txt", Range="bytes=-5"),
    "an open range": lambda d: d.file("text.txt", Range="bytes=190-"),
    "two ranges": lambda d: d.file("text.txt", Range="bytes=0-2,10-12"),
    "two ranges without extension": lambda d: d.file("bytes", Range="bytes=65-67,100-102"),
    "two ranges, one beyond": lambda d: d.file("text.txt", Range="bytes=0-2,1000-"),
    "ranges that are more than all": lambda d: d.file("text.txt", Range="bytes=0-,0-"),
    "a range beyond": lambda d: d.file("text.txt", Range="bytes=1000-"),
    "a range that is none": lambda d: d.file("text.txt", Range="bytes=x"),
    "a range of another unit": lambda d: d.file("text.txt", Range="lines=1-2"),
    "a range of nothing": lambda d: d.file("empty", Range="bytes=0-1"),
    "if modified since long ago": lambda d: d.file("text.txt", If_Modified_Since="Thu, 01 Jan 1970 00:00:00 GMT"),
    "if modified since tomorrow": lambda d: d.file("text.txt", If_Modified_Since="Fri, 31 Dec 9999 23:59:59 GMT"),
    "if range of another date": lambda d: d.file("text.txt", Range="bytes=0-1", If_Range="Thu, 01 Jan 1970 00:00:00 GMT"),
    "download gzip": lambda d: d.file("large.txt", Accept_Encoding="gzip"),
    "download gzip only": lambda d: d.file("large.txt", Accept_Encoding="gzip, identity;q=0"),
    "download gzip of a small one": lambda d: d.file("text.txt", Accept_Encoding="gzip"),
    "download no coding": lambda d: d.file("text.txt", Accept_Encoding="br, identity;q=0"),
    "download a range as gzip": lambda d: d.file("text.txt", Accept_Encoding="gzip, identity;q=0", Range="bytes=0-1"),
    # ---- uploads ----
    "upload": lambda d: d.put("up", b"x"),
    "upload nothing": lambda d: d.put("up-empty", b""),
    "upload below new directories": lambda d: d.put("new/er/up", b"x"),
    "upload to a directory": lambda d: d.put("dir", b"x"),
    "upload below a file": lambda d: d.put("text.txt/up", b"x"),
    "upload without a path": lambda d: d.http("POST", "/files", b"x", Content_Type=OCTETS),
    "upload without a type": lambda d: d.put("up", b"x", Content_Type=""),
    "upload of another type": lambda d: d.put("up", b"x", Content_Type="text/plain"),
    "upload gzip": lambda d: d.put("up", gzip.compress(b"x"), Content_Encoding="gzip"),
    "upload gzip that is none": lambda d: d.put("up", b"xxxxxxxxxxxxxxxxxxxx", Content_Encoding="gzip"),
    "upload br": lambda d: d.put("up", b"x", Content_Encoding="br"),
    "upload with metadata": lambda d: d.put("up-meta", b"x", X_Metadata_Kind="a"),
    "upload as nobody known": lambda d: d.put("up", b"x", query="&username=nobodyhere"),
    "upload a form": lambda d: d.form((f"{DIR}/form", b"x")),
    "upload a form of two": lambda d: d.form((f"{DIR}/form1", b"x"), (f"{DIR}/form2", b"y")),
    "upload a form with a path": lambda d: d.form(("z", b"x"), query=f"?path={DIR}/form3"),
    "upload a form of two with a path": lambda d: d.form(("y", b"x"), ("z", b"x"), query=f"?path={DIR}/form4"),
    "upload a form that names a file twice": lambda d: d.form((f"{DIR}/twice", b"x"), (f"{DIR}/twice", b"y")),
    "upload a form without files": lambda d: d.form(),
    "upload a form without an end": lambda d: d.http("POST", "/files", b"--XX\r\nContent-Disp", Content_Type=FORM),
    # ---- compose ----
    "compose": lambda d: (d.put("c1", b"a"), d.put("c2", b"b"), compose(d, ["c1", "c2"], "c3"))[2],
    "compose made this": lambda d: d.file("c3"),
    "compose removed this": lambda d: d.file("c1"),
    "compose without a type": lambda d: (d.put("c1", b"a"), compose(d, ["c1"], "c3", **NO_TYPE))[1],
    "compose what is not there": lambda d: compose(d, ["nothing"], "c3"),
    "compose a directory": lambda d: compose(d, ["dir"], "c3"),
    "compose into itself": lambda d: compose(d, ["text.txt"], "text.txt"),
    "compose of nothing": lambda d: compose(d, [], "c3"),
    "compose into nothing": lambda d: d.http("POST", "/files/compose", json.dumps({"source_paths": ["a"]}).encode(), Content_Type=JSON),
    "compose nonsense": lambda d: d.http("POST", "/files/compose", b"{", Content_Type=JSON),
    # ---- RPC itself ----
    "list": lambda d: list_shape(d.rpc(LIST, {})),
    "no body": lambda d: d.rpc(LIST, b""),
    "not JSON": lambda d: d.rpc(LIST, b"{"),
    "no object": lambda d: d.rpc(LIST, b"[]"),
    "a field that is not known": lambda d: d.rpc(STAT, {"path": "/tmp", "other": 1})["status"],
    "a field of another type": lambda d: d.rpc(STAT, {"path": 1}),
    "null is absent": lambda d: d.rpc("filesystem.Filesystem/ListDir", {"path": f"{DIR}/list", "depth": None}),
    "a method that is not there": lambda d: d.rpc("process.Process/Nothing", {}),
    "a service that is not there": lambda d: d.rpc("nothing.Nothing/Nothing", {}),
    "a method by GET": lambda d: d.http("GET", f"/{LIST}"),
    "a method by PUT": lambda d: d.http("PUT", f"/{LIST}", b"{}", Content_Type=JSON),
    "a method without a type": lambda d: d.rpc(LIST, {}, **NO_TYPE),
    "a method of another type": lambda d: d.rpc(LIST, {}, Content_Type="text/plain")["status"],
    "a stream as a call": lambda d: d.rpc(START, ECHO)["status"],
    "a call as a stream": lambda d: d.stream(LIST, {})["status"],
    "another protocol version": lambda d: d.rpc(LIST, {}, Connect_Protocol_Version="2"),
    "no protocol version": lambda d: d.rpc(LIST, {}, Connect_Protocol_Version="")["status"],
    "a bad timeout": lambda d: d.rpc(LIST, {}, Connect_Timeout_Ms="soon"),
    "a long timeout": lambda d: d.rpc(LIST, {}, Connect_Timeout_Ms="12345678901"),
    "a gzip call": lambda d: d.rpc(STAT, gzip.compress(json.dumps({"path": f"{DIR}/text.txt"}).encode()), Content_Encoding="gzip"),
    "a gzip call that is none": lambda d: d.rpc(STAT, b"{}", Content_Encoding="gzip"),
    "a br call": lambda d: d.rpc(STAT, b"{}", Content_Encoding="br"),
    "a gzip answer": lambda d: d.rpc("filesystem.Filesystem/ListDir", {"path": DIR, "depth": 3}, Accept_Encoding="gzip")["headers"],
    "a short gzip answer": lambda d: d.rpc(STAT, {"path": f"{DIR}/text.txt"}, Accept_Encoding="gzip"),
    "a stream of gzip": lambda d: d.stream(START, frame(gzip.compress(json.dumps(ECHO).encode()), 1), Connect_Content_Encoding="gzip"),
    "a stream of gzip unannounced": lambda d: d.stream(START, frame(gzip.compress(json.dumps(ECHO).encode()), 1)),
    "a stream answered in gzip": lambda d: d.start("echo", "x" * 5000, headers={"Connect_Accept_Encoding": "gzip"}),
    "a stream without messages": lambda d: d.stream(START, b""),
    "a stream of two messages": lambda d: d.stream(START, frame(json.dumps(ECHO).encode()) * 2),
    "half a message": lambda d: d.stream(START, frame(json.dumps(ECHO).encode())[:-3]),
    "an empty message": lambda d: d.stream(START, frame(b"")),
    "a message of other flags": lambda d: d.stream(START, frame(b"{}", 4)),
    "as nobody known": lambda d: d.rpc(STAT, {"path": "/tmp"}, Authorization="Basic " + base64.b64encode(b"nobodyhere:").decode()),
    "as root": lambda d: d.start("id", "-un", headers={"Authorization": "Basic " + base64.b64encode(b"root:").decode()}),
    # ---- processes ----
    "echo": lambda d: d.start("echo", "x"),
    "exit 3": lambda d: d.start("/bin/sh", "-c", "echo a; echo b >&2; exit 3"),
    "killed": lambda d: d.start("/bin/sh", "-c", "kill -9 $$"),
    "terminated": lambda d: d.start("/bin/sh", "-c", "kill $$"),
    "a program that is not there": lambda d: exit_of(d.start("no-such-program")),
    "a program that is not there, by path": lambda d: exit_of(d.start("/no/such/program")),
    "a program that may not be run": lambda d: exit_of(d.start(f"{DIR}/not-run")),
    "a directory that is not there": lambda d: d.start("true", process={"cwd": "/nowhere"}),
    "no process": lambda d: d.stream(START, {}),
    "variables": lambda d: d.start("/bin/sh", "-c", "echo $X $HOME $USER $LOGNAME $PWD", process={"envs": {"X": "y"}}),
    "a terminal": lambda d: d.start("/bin/sh", "-c", "stty size", pty={"size": {"cols": 91, "rows": 17}}),
    "a deadline": lambda d: d.start("sleep", "60", headers={"Connect_Timeout_Ms": "300"}),
    "connect to none": lambda d: d.stream("process.Process/Connect", {"process": {"pid": 999999}}),
    "connect to no tag": lambda d: d.stream("process.Process/Connect", {"process": {"tag": "no"}}),
    "connect without saying to what": lambda d: d.stream("process.Process/Connect", {}),
    "input": lambda d: d.input("cat", b"x"),
    "5 MiB of input": lambda d: d.input("sink", bytes(5 << 20)),
    "20 MiB of input": lambda d: d.input("sink", bytes(20 << 20)),
    "input that is not base64": lambda d: d.rpc(SEND, {"process": d.of("cat"), "input": {"stdin": "?"}}),
    "input for none": lambda d: d.input("none", b"x"),
    "input without saying what": lambda d: d.process("SendInput", process=d.of("cat")),
    "input for who takes none": lambda d: d.input("deaf", b"x"),
    "input for a terminal": lambda d: d.input("pty", b"x", "pty"),
    "stdin for a terminal": lambda d: d.input("pty", b"x"),
    "terminal input for who has none": lambda d: d.input("cat", b"x", "pty"),
    "streamed input": lambda d: d.stream("process.Process/StreamInput", frame(json.dumps({"start": {"process": d.of("cat")}}).encode()) + frame(
        b'{"data":{"input":{"stdin":"eA=="}}}') + frame(b'{"keepalive":{}}')),
    "streamed input for none": lambda d: d.stream("process.Process/StreamInput", frame(b'{"start":{"process":{"tag":"none"}}}')),
    "close stdin": lambda d: d.process("CloseStdin", process=d.of("closed")),
    "close stdin of none": lambda d: d.process("CloseStdin", process=d.of("none")),
    "close stdin of a terminal": lambda d: d.process("CloseStdin", process=d.of("pty")),
    "resize": lambda d: d.process("Update", process=d.of("pty"), pty={"size": {"cols": 10, "rows": 10}}),
    "resize what is no terminal": lambda d: d.process("Update", process=d.of("cat"), pty={"size": {"cols": 10, "rows": 10}}),
    "update nothing": lambda d: d.process("Update", process=d.of("cat")),
    "update none": lambda d: d.process("Update", process=d.of("none")),
    "no signal": lambda d: d.process("SendSignal", process=d.of("cat")),
    "another signal": lambda d: d.process("SendSignal", process=d.of("cat"), signal="SIGNAL_SIGHUP"),
    "a signal": lambda d: d.process("SendSignal", process=d.of("deaf"), signal="SIGNAL_SIGTERM"),
    "a signal for none": lambda d: d.process("SendSignal", process={"pid": 999999}, signal="SIGNAL_SIGTERM"),
    # ---- the file system ----
    "stat a file": lambda d: d.fs("Stat", path=f"{DIR}/text.txt"),
    "stat a directory": lambda d: d.fs("Stat", path=f"{DIR}/dir")["json"]["entry"]["type"],
    "stat a link": lambda d: d.fs("Stat", path=f"{DIR}/link"),
    "stat a broken link": lambda d: d.fs("Stat", path=f"{DIR}/broken"),
    "stat a fifo": lambda d: d.fs("Stat", path=f"{DIR}/fifo"),
    "stat metadata": lambda d: d.fs("Stat", path=f"{DIR}/up-meta"),
    "stat what is not there": lambda d: d.fs("Stat", path=f"{DIR}/nothing"),
    "stat nothing": lambda d: d.fs("Stat")["status"],
    "make a directory": lambda d: d.fs("MakeDir", path=f"{DIR}/made/in/it"),
    "make a directory that is there": lambda d: d.fs("MakeDir", path=f"{DIR}/dir"),
    "make a directory of a file": lambda d: d.fs("MakeDir", path=f"{DIR}/text.txt"),
    "make a directory below a file": lambda d: d.fs("MakeDir", path=f"{DIR}/text.txt/x"),
    "list a directory": lambda d: d.fs("ListDir", path=f"{DIR}/list"),
    "list two levels": lambda d: names(d.fs("ListDir", path=f"{DIR}/list", depth=2)),
    "list a file": lambda d: d.fs("ListDir", path=f"{DIR}/text.txt"),
    "list what is not there": lambda d: d.fs("ListDir", path=f"{DIR}/nothing"),
    "move": lambda d: d.fs("Move", source=f"{DIR}/up-empty", destination=f"{DIR}/moved/there"),
    "move what is not there": lambda d: d.fs("Move", source=f"{DIR}/nothing", destination=f"{DIR}/x"),
    "move a file onto a directory": lambda d: d.fs("Move", source=f"{DIR}/text", destination=f"{DIR}/dir"),
    "remove": lambda d: d.fs("Remove", path=f"{DIR}/moved"),
    "remove what is not there": lambda d: d.fs("Remove", path=f"{DIR}/moved"),
    "watch what is not there": lambda d: d.stream("filesystem.Filesystem/WatchDir", {"path": f"{DIR}/nothing"}),
    "watch a file": lambda d: d.stream("filesystem.Filesystem/WatchDir", {"path": f"{DIR}/text.txt"}),
    "a watcher of what is not there": lambda d: d.fs("CreateWatcher", path=f"{DIR}/nothing"),
    "a watcher of a file": lambda d: d.fs("CreateWatcher", path=f"{DIR}/text.txt"),
    "a watcher": lambda d: d.fs("CreateWatcher", path=f"{DIR}/dir"),
    "events of no watcher": lambda d: d.fs("GetWatcherEvents", watcherId="no"),
    "remove no watcher": lambda d: d.fs("RemoveWatcher", watcherId="no"),
}


def compose(d, sources, destination, **headers):
    body = {"source_paths": [f"{DIR}/{s}" for s in sources], "destination": f"{DIR}/{destination}"}
    return d.http("POST", "/files/compose", json.dumps(body).encode(), **{"Content_Type": JSON, **headers})


def list_shape(answer):
    """Without what only one of the two has by itself."""
    answer["json"]["processes"] = sorted(p["tag"] for p in answer["json"]["processes"] if "tag" in p)
    return answer


def exit_of(answer):
    """The end, whatever the shell's own words on stderr are."""
    return [m if isinstance(m[0], int) else [m[0], bool(m[1])] for m in answer["messages"]]


def names(answer):
    return sorted(e["path"] for e in answer["json"]["entries"])


def run(d):
    """{name: shape of the answer}"""
    prepare(d)
    try:
        return {name: json.loads(json.dumps(probe(d))) for name, probe in PROBES.items()}
    finally:
        d.end()


if __name__ == "__main__":
    recorded = run(Daemon(int(sys.argv[1]), dict(h.split("=", 1) for h in sys.argv[2:])))
    print(json.dumps(recorded, indent=1, sort_keys=True))
