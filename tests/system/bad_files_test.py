# SPDX-License-Identifier: Apache-2.0
"""Odd paths, forged signatures, ranges, bombs: files stay inside, every question has an answer."""

import base64
import contextlib
import gzip
import hashlib
import os
import time
import zlib
from urllib.parse import quote

import pytest
from client import ENVD_PORT, Failed
from hostile import MULTIPART, WHOLE, client, is_error, place, sandbox  # noqa: F401  (fixtures)
from leaks import rss_kib

# ---- paths ----


@pytest.fixture(scope="module")
def trap(sandbox):
    """A sandbox full of traps."""
    script = """
        mkdir -p /tmp/t && cd /tmp/t && ln -s /etc/shadow shadow && ln -s / root && ln -s ../../../../../../../../etc/passwd up && ln -s loop loop
        ln -s /proc/1/root proc-root && ln -s /proc/self/fd fds && ln -s /nowhere broken && mkfifo fifo && mkdir dir && echo file > file
        i=0; p=deep; while [ $i -lt 100 ]; do mkdir -p $p; p=$p/d; i=$((i+1)); done
        ln -s /dev/zero zero-link; chmod 000 dir; echo secret > own; chmod 600 own; chown -h user: *
    """
    assert sandbox.sh(script, user="root")[0] == 0
    return sandbox


LONG = "/tmp/" + "x/" * 2100
NOT_FILES = ["", "/", "/tmp", "/tmp/t", "/tmp/t/fifo", "/dev/zero", "/dev/random", "/dev/null", "/dev/tty", "/dev/ptmx", "/dev/full", "/tmp/t/zero-link", "/proc", "/proc/1/fd",
             "/tmp/t/loop", "/tmp/t/broken", "/no/such/file", "/tmp/t/file/x", LONG, "/" + "x" * 300, "/tmp/t/\0x", "/tmp/t/dir/x",
             "/proc/1/mem", "/proc/kcore", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/self/fd/0", "/tmp/t/fds/0", "/sys/kernel/debug", "~nobody/x", "/proc/self/mem"]


@pytest.mark.parametrize("path", NOT_FILES, ids=lambda p: repr(p)[:40])
def test_paths_that_are_no_files_to_read(client, trap, path):
    answer = trap.download(path, timeout=60)
    assert answer.status in (400, 403, 404, 500), answer
    assert is_error(answer, answer.status)


def test_paths_stay_inside(client, trap):
    for path in ("/tmp/t/../../../../../etc/hostname", "../../../../../../etc/hostname", "/tmp/t/root/etc/hostname", "//etc///hostname", "/./etc/./hostname"):
        answer = trap.download(path)
        assert answer.status == 200 and answer.body.startswith(b"cove-"), (path, answer)
    assert trap.download("/tmp/t/up").body == trap.sh("cat /etc/passwd")[1]
    host = open("/etc/machine-id", "rb").read() if os.path.exists("/etc/machine-id") else b"\n"
    assert len(host) < 2 or trap.download("/proc/1/root/etc/machine-id").body != host


def test_proc_files_end(client, trap):
    for path in ("/proc/cpuinfo", "/proc/self/status", "/proc/self/maps", "/proc/mounts", "/proc/version"):
        answer = trap.download(path, timeout=60)
        assert answer.status == 200 and answer.body, (path, answer)
    # The agent reads for the owner of the sandbox, as root of it, which can't read of the agent what could be traced.
    environ = trap.download("/proc/1/environ")
    assert environ.status == 403 and b"permission denied" in environ.body, environ


NOT_TO_WRITE = ["", "/", "/tmp", "/tmp/t/fifo", "/dev/full", "/dev/zero", "/dev/sda", "/proc/x", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/self/mem", "/proc/1/oom_score_adj",
                "/sys/x", "/tmp/t/loop", "/tmp/t/file/x", LONG, "/" + "x" * 300, "/tmp/a\0b", "/tmp/t/zero-link", "/dev/ptmx", "/dev/tty", "/proc/self/fd/0"]


@pytest.mark.parametrize("path", NOT_TO_WRITE, ids=lambda p: repr(p)[:40])
def test_paths_that_cannot_be_written(client, trap, path):
    answer = trap.upload(path, b"x" * 100_000, timeout=60)
    assert answer.status in (400, 403, 404, 500, 507), answer
    assert is_error(answer, answer.status)


@pytest.mark.parametrize("path", ["/tmp/t/fifo", "/dev/zero", "/proc/self/mem", "/proc/kcore", "/tmp/t/loop", "/tmp/t/broken", "/tmp/t/\0x", LONG, "x" * 300, "", "/"],
                         ids=lambda p: repr(p)[:30])
def test_file_calls_answer_for_any_path(client, trap, path):
    for method, field in (("Stat", "path"), ("ListDir", "path"), ("MakeDir", "path"), ("CreateWatcher", "path")):
        answer = trap.unary(f"filesystem.Filesystem/{method}", {field: path}, timeout=60)
        assert answer.status in (200, 400, 403, 404, 409, 500), (method, answer)
        assert answer.status == 200 or answer.json["code"] in ("invalid_argument", "not_found", "already_exists", "permission_denied", "failed_precondition",
                                                                  "internal"), (method, answer)
    for source, destination in ((path, "/proc/x"), ("/tmp/t/file", path.rstrip("/") + "/x" if path.strip("/") else "/proc/y")):
        answer = trap.unary("filesystem.Filesystem/Move", {"source": source, "destination": destination}, timeout=60)
        assert answer.status in (400, 403, 404, 409, 500), (source, destination, answer)
    with trap.stream("filesystem.Filesystem/WatchDir", {"path": path}, timeout=60) as stream:
        with contextlib.suppress(Failed):
            assert "start" in stream.next()


def test_calls_about_directories(client, trap):
    call = lambda method, body: trap.unary(f"filesystem.Filesystem/{method}", body, timeout=60)
    for depth in (0, 1, 99, 1000, 0xffffffff):
        answer = call("ListDir", {"path": "/tmp/t/deep", "depth": depth})
        assert answer.status == 200 and len(answer.json["entries"]) == min(max(depth, 1), 99), (depth, answer)
    for depth in (-1, 1 << 32, "x", 1.5, None):
        assert call("ListDir", {"path": "/tmp/t/deep", "depth": depth}).status in ((200,) if depth is None else (400,)), depth
    answer = call("ListDir", {"path": "/", "depth": 1000})
    assert answer.status in (200, 400, 403, 429, 500), answer
    assert call("Remove", {"path": "/"}).json["code"] in ("invalid_argument", "permission_denied")
    assert call("Remove", {"path": "/proc"}).status in (400, 403, 500)
    assert call("Remove", {"path": "/tmp/t/root/"}).status in (200, 400, 403)
    for method, body, code in (("Move", {"source": "/tmp/t", "destination": "/tmp/t/deep/inside"}, "invalid_argument"),
                               ("Move", {"source": "/tmp/t/file", "destination": "/tmp/t/" + "n" * 256}, "invalid_argument"),
                               ("Move", {"source": "/tmp/t/file", "destination": "/tmp/t/file/x"}, "invalid_argument"),
                               ("Move", {"source": "/tmp/t/file", "destination": "/tmp/t/deep"}, "already_exists"),
                               ("MakeDir", {"path": "/tmp/t/" + "n" * 256}, "invalid_argument"), ("Stat", {"path": "/" + "n" * 256}, "invalid_argument"),
                               ("Stat", {"path": "/tmp/t/file/x"}, "invalid_argument"), ("ListDir", {"path": "/tmp/t/loop"}, "failed_precondition"),
                               ("CreateWatcher", {"path": "/tmp/t/loop"}, "failed_precondition")):
        answer = call(method, body)
        assert (answer.status, answer.json["code"]) == (409 if code == "already_exists" else 400, code), (method, body, answer)
    assert call("RemoveWatcher", {"watcherId": "../x"}).json["code"] == "not_found"
    assert call("GetWatcherEvents", {"watcherId": "x" * 10_000}).json["code"] == "not_found"
    assert trap.works()


def test_watchers_are_bounded(client, trap):
    answers_ = [trap.unary("filesystem.Filesystem/CreateWatcher", {"path": "/tmp"}) for _ in range(300)]
    refused = [a for a in answers_ if a.status != 200]
    assert all(a.json["code"] == "resource_exhausted" for a in refused), refused[:1]
    for a in answers_:
        if a.status == 200:
            assert trap.unary("filesystem.Filesystem/RemoveWatcher", {"watcherId": a.json["watcherId"]}).status == 200


# ---- signatures ----


def sign(sandbox, path, operation, user="", expiration=None):
    text = f"{path}:{operation}:{user}:{sandbox.token}" + (f":{expiration}" if expiration is not None else "")
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def test_signatures(client, sandbox):
    assert sandbox.upload("/tmp/signed", b"signed").status == 200
    def get(query, method="GET", headers=None):
        body = b"x" if method == "POST" else None
        return client.request(method, "/files?" + query, body, {"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": str(ENVD_PORT),
                                                              "Content-Type": "application/octet-stream", **(headers or {})})
    good, soon = quote(sign(sandbox, "/tmp/signed", "read"), safe=""), int(time.time()) + 100
    assert get(f"path=/tmp/signed&signature={good}").body == b"signed"
    expiring = quote(sign(sandbox, "/tmp/signed", "read", expiration=soon), safe="")
    assert get(f"path=/tmp/signed&signature={expiring}&signature_expiration={soon}").status == 200
    past = soon - 1000
    bad = [
        "path=/tmp/signed", "path=/tmp/signed&signature=", f"path=/tmp/signed&signature={good[:-1]}", f"path=/tmp/signed&signature={good}A",
        f"path=/tmp/signed&signature={good.swapcase()}", f"path=/etc/passwd&signature={good}", f"path=/tmp/../tmp/signed&signature={good}",
        f"path=/tmp/signed&username=root&signature={good}", f"path=/tmp/signed&signature={good}&signature_expiration={soon}",
        f"path=/tmp/signed&signature={expiring}&signature_expiration={soon + 1}", f"path=/tmp/signed&signature={expiring}",
        f"path=/tmp/signed&signature={quote(sign(sandbox, '/tmp/signed', 'read', expiration=past), safe='')}&signature_expiration={past}",
        f"path=/tmp/signed&signature={quote(sign(sandbox, '/tmp/signed', 'write'), safe='')}", "path=/tmp/signed&signature=" + "A" * 7000,
        f"path=/tmp/signed&signature=v1_{'%00' * 43}", f"path=/tmp/signed&signature={good[3:]}", f"path=/tmp/signed&signature=v2_{good[3:]}",
    ]
    for query in bad:
        assert is_error(get(query), 401), (query, get(query))
    for query in (f"path=/tmp/signed&path=/etc/passwd&signature={good}", f"path=/tmp/signed&signature={good}&signature={good}",
                  f"path=/tmp/signed&signature={expiring}&signature_expiration=x", f"path=/tmp/signed&signature={expiring}&signature_expiration=-1",
                  f"path=/tmp/signed&signature={expiring}&signature_expiration=99999999999999999999", f"path=%zz&signature={good}"):
        assert get(query).status in (400, 401), (query, get(query))
    assert get(f"path=/tmp/signed&signature={good}", "POST").status == 401
    assert get(f"path=/tmp/signed&signature={good}", headers={"X-Access-Token": "wrong"}).status in (200, 401)
    assert sandbox.download("/tmp/signed").body == b"signed"


# ---- ranges and compression ----

RANGES = {
    "bytes=0-0": (206, b"0"), "bytes=-1": (206, b"9"), "bytes=5-": (206, b"56789"), "bytes=9-9": (206, b"9"), "bytes=0-9": (206, b"0123456789"),
    "bytes=3-100": (206, b"3456789"), "bytes=-100": (206, b"0123456789"), "bytes=0-18446744073709551615": (206, b"0123456789"),
    "bytes=10-": (416, None), "bytes=10-20": (416, None), "bytes=-0": (416, None), "bytes=18446744073709551615-": (416, None), "bytes=99999999999999999999-": (416, None),
    "bytes=5-2": (200, None), "bytes=": (200, None), "bytes=-": (200, None), "bytes=a-b": (200, None), "bytes=0-1,3-4": (206, None), "bytes": (200, None), "": (200, None),
    "lines=0-1": (200, None), "bytes=--1": (200, None), "bytes=0x0-1": (200, None), "bytes=1-2-3": (200, None), "bytes=" + "0-0," * 4000 + "0-0": (200, None),
    "bytes=0-0;": (200, None), "bytes=1 - 2": (206, b"12"),
}


@pytest.mark.parametrize("value", RANGES, ids=lambda v: v[:30])
def test_ranges(client, sandbox, value):
    assert sandbox.upload("/tmp/digits", b"0123456789").status == 200
    status, body = RANGES[value]
    answer = sandbox.download("/tmp/digits", {"Range": value})
    if status == 206 and body is None:
        assert answer.status == 206 and answer.headers["Content-Type"].startswith("multipart/byteranges"), answer
        assert b"\r\n\r\n01\r\n" in answer.body and b"\r\n\r\n34\r\n" in answer.body
    elif status == 206:
        assert (answer.status, answer.body) == (206, body) and answer.headers["Content-Range"].endswith("/10"), answer
    else:
        # What is no valid range may be ignored or refused.
        assert answer.status in {200: (200, 400, 416), 416: (416,)}[status], answer
        assert answer.status != 200 or answer.body == b"0123456789"


def test_gzip_bombs(place, client, sandbox):
    _, _, witness = place
    before = rss_kib(witness.worker)
    size = 128 << 20
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(deflater.compress(bytes(1 << 20)) for _ in range(size >> 20)) + deflater.flush()
    answer = sandbox.upload("/tmp/bomb", bomb, {"Content-Encoding": "gzip"}, timeout=60)
    assert answer.status == 200, answer # it is the sandbox's disk; ours is not the memory
    assert sandbox.sh("stat -c %s /tmp/bomb; rm /tmp/bomb")[1] == b"%d\n" % size
    twice = gzip.compress(bomb)
    assert sandbox.upload("/tmp/bomb2", twice, {"Content-Encoding": "gzip"}).status == 200
    assert sandbox.download("/tmp/bomb2").body == bomb
    for name, body in {"cut": bomb[:-20], "no gzip": b"x" * 10_000, "only a head": bomb[:10], "bad sum": bomb[:-8] + b"\0" * 8, "empty": b"", "garbage behind": gzip.compress(b"x") + b"y" * 100}.items():
        answer = sandbox.upload("/tmp/bad", body, {"Content-Encoding": "gzip"}, timeout=60)
        assert is_error(answer, 400), (name, answer)
    assert sandbox.upload("/tmp/bad", bomb, {"Content-Encoding": "br"}).status in (400, 415)
    assert sandbox.upload("/tmp/bad", bomb, {"Content-Encoding": "gzip, gzip"}).status in (400, 415)
    answer = sandbox.request("POST", "/files", gzip.compress(WHOLE[:-9] + bytes(32 << 20)), {"Content-Type": MULTIPART + "B", "Content-Encoding": "gzip"}, timeout=60)
    assert is_error(answer, 400), answer
    print(f"bombs grew the worker by {rss_kib(witness.worker) - before} KiB")


def test_metadata_headers(client, sandbox):
    for headers, expected in (({"X-Metadata-a": "x" * 4000}, 200), ({"X-Metadata-a": "x" * 5000}, 400), ({"X-Metadata-" + "k" * 247: "v"}, 400), ({"X-Metadata-a": "\xff"}, 400),
                              ({f"X-Metadata-{i}": "x" * 100 for i in range(50)}, 400), ({"X-Metadata-a": "tab\there"}, 400)):
        answer = sandbox.upload("/tmp/metadata", b"x", headers)
        assert answer.status == expected, (list(headers)[:2], answer)


def test_queries(client, sandbox):
    for query in ("limit=0", "limit=-1", "limit=101", "limit=x", "limit=99999999999999999999", "nextToken=x", "nextToken=" + "A" * 5000, "order=up", "state=gone", "startedAfter=yesterday",
                  "metadata=%ZZ", "metadata=%25ZZ"):
        answer = client.control("GET", f"/v2/sandboxes?{query}")
        assert answer.status in (200, 400), (query, answer)
        assert answer.status == 200 or is_error(answer, 400)
    for query in ("start=x", "start=-1", "start=99999999999999999999", "end=1&start=2", "limit=-5"):
        for what in ("metrics", "logs"):
            answer = client.control("GET", f"/sandboxes/{sandbox.id}/{what}?{query}")
            assert answer.status in (200, 400), (query, what, answer)
    for query in ("from=x", "from=-1", "from=99999999999999999999"):
        answer = client.native("GET", f"/cove/v1/sandboxes/{sandbox.id}/events?{query}")
        assert answer.status in (200, 400), (query, answer)
