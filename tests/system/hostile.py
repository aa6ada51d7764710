# SPDX-License-Identifier: Apache-2.0
"""For tests of hostile input: a service of their own, a witness beside them, and what is needed to write bytes by hand."""

import threading
import time

import pytest
from client import Cut, Failed
from leaks import rss_kib, running

GROWTH_KIB = 64 * 1024
GONE = (Cut, ConnectionError, TimeoutError, OSError)
UNARY = ["process.Process/List", "process.Process/SendInput", "process.Process/CloseStdin", "process.Process/SendSignal",
         "process.Process/Update", "filesystem.Filesystem/Stat", "filesystem.Filesystem/MakeDir", "filesystem.Filesystem/Move",
         "filesystem.Filesystem/ListDir", "filesystem.Filesystem/Remove", "filesystem.Filesystem/CreateWatcher",
         "filesystem.Filesystem/GetWatcherEvents", "filesystem.Filesystem/RemoveWatcher"]
STREAMS = ["process.Process/Start", "process.Process/Connect", "filesystem.Filesystem/WatchDir"]


class Witness:
    """Another sandbox, used all along; and what the worker's memory does meanwhile."""

    def __init__(self, service, client):
        self.service, self.sandbox, self.stop = service, client.create(timeout=3600), False
        self.worker = service.child("cove-api")
        self.faults, self.slowest, self.runs, self.most_kib = [], 0, 0, 0
        self.sandbox.works()
        self.first_kib = rss_kib(self.worker)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.stop:
            begin = time.monotonic()
            try:
                if not self.sandbox.works():
                    self.faults.append("it failed")
            except (*GONE, Failed, AssertionError) as e:
                self.faults.append(repr(e))
            self.slowest = max(self.slowest, time.monotonic() - begin)
            self.most_kib = max(self.most_kib, rss_kib(self.worker))
            self.runs += 1
            time.sleep(0.1)

    def end(self):
        self.stop = True
        self.thread.join(60)
        return self


@pytest.fixture(scope="module")
def place():
    """(service, client, witness); at the end the witness is asked."""
    with running() as (service, client):
        witness = Witness(service, client)
        try:
            yield service, client, witness
        finally:
            witness.end()
        print(f"{witness.runs} runs beside it, the slowest {witness.slowest * 1000:.0f} ms; memory {witness.first_kib} KiB, at most "
              f"{witness.most_kib}, at the end {rss_kib(witness.worker)}")
        assert not witness.faults, witness.faults[:5]
        assert service.child("cove-api") == witness.worker, "the worker died:\n" + service.tail()
        assert rss_kib(witness.worker) - witness.first_kib < GROWTH_KIB


@pytest.fixture
def client(place):
    yield place[1]
    service, _, witness = place
    assert service.child("cove-api") == witness.worker, "the worker died:\n" + service.tail()
    assert not witness.faults, witness.faults[:5]


@pytest.fixture(scope="module")
def sandbox(place):
    return place[1].create(timeout=3600)


def http_head(method, target, *headers, host="localhost"):
    return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode("latin-1")


def is_error(answer, status):
    """E2B's error body, whose code is the status."""
    return answer.status == status and answer.json["code"] == status and answer.json["message"]


# ---- multipart ----


def multipart(*parts, boundary=b"B", end=True):
    """Parts are (headers, content)."""
    body = b"".join(b"--" + boundary + b"\r\n" + headers + b"\r\n\r\n" + content + b"\r\n" for headers, content in parts)
    return body + (b"--" + boundary + b"--\r\n" if end else b"")


def file_part(name, content=b"x"):
    return b'Content-Disposition: form-data; name="file"; filename="' + name + b'"', content


WHOLE = multipart(file_part(b"/tmp/whole"))
MULTIPART = "multipart/form-data; boundary="
