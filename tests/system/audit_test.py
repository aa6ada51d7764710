# SPDX-License-Identifier: Apache-2.0
"""The export for auditors: JSON lines, syslog, OTLP, files by day; killed at any time, nothing is missing and nothing is twice."""

import json
import os
import re
import signal
import socket
import stat
import threading
import time

import pytest
from feed_test import kill_worker
from leaks import own_service
from service import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a service of its own needs root")

SYSLOG = re.compile(r"<(\d+)>1 (\S+) (\S+) cove - (\S{1,32}) - @cee: (\{.*\})", re.S)


@pytest.fixture(scope="module")
def service():
    with own_service("audit") as service:
        box = service.create(template="base")
        assert service.cove("exec", box, "--", "sh", "-c", "echo {}; exit 3").returncode == 3
        yield service


def feed(service, *flags):
    done = service.cove("events", "--hidden", "--json", "--from", "1", *flags)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def exported(service, *flags):
    done = service.cove("audit", "export", *flags)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def lines(directory, suffix=".jsonl"):
    names = sorted(n for n in os.listdir(directory) if re.fullmatch(r"\d{4}-\d\d-\d\d" + re.escape(suffix), n))
    assert names == sorted(os.listdir(directory))
    return [line for name in names for line in (directory / name).read_text().splitlines()]


class Receiver:
    """What listens for syslog: of datagrams, or of a stream with counted octets."""

    def __init__(self, kind, path=None, port=0):
        family = socket.AF_UNIX if path else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind(str(path) if path else ("127.0.0.1", port))
        self.address = str(path) if path else f"{kind}:127.0.0.1:{self.socket.getsockname()[1]}"
        self.got, self.open = [], None
        if kind == "tcp":
            self.socket.listen()
        threading.Thread(target=self.streams if kind == "tcp" else self.datagrams, daemon=True).start()

    def datagrams(self):
        while True:
            try:
                self.got.append(self.socket.recv(1 << 17).decode())
            except OSError:
                return

    def streams(self):
        while True:
            try:
                self.open, _ = self.socket.accept()
                stream = self.open.makefile("rb")
                while number := stream.read(1):
                    while (digit := stream.read(1)) != b" ":
                        number += digit
                    self.got.append(stream.read(int(number)).decode())
            except (OSError, ValueError):
                if self.socket.fileno() < 0:
                    return

    def events(self):
        return [json.loads(SYSLOG.fullmatch(message)[5]) for message in self.got]

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR) if self.socket.type == socket.SOCK_STREAM else None
        self.socket.close()
        if self.open:
            self.open.shutdown(socket.SHUT_RDWR)
            self.open.close()


def test_json_lines_are_the_feed(service):
    assert [json.loads(line) for line in exported(service)] == feed(service)
    assert json.loads(exported(service, "--from", "7")[0])["cursor"] == 7


def test_otlp_has_a_request_a_line(service):
    expected = feed(service)
    records = []
    for line in exported(service, "--format", "otlp"):
        (resource,) = json.loads(line)["resourceLogs"]
        assert resource["resource"]["attributes"][0] == {"key": "service.name", "value": {"stringValue": "cove"}}
        records += resource["scopeLogs"][0]["logRecords"]
    assert len(records) == len(expected)
    for record, event in zip(records, expected):
        attributes = {a["key"]: a["value"]["stringValue"] for a in record["attributes"]}
        assert (attributes["cove.cursor"], attributes["cove.sandbox"], attributes["cove.seq"]) == (str(event["cursor"]), event["sandbox"], str(event["seq"]))
        assert attributes["cove.hash"] == event["hash"] and attributes.get("cove.actor", "") == event["actor"]
        assert record["eventName"] == event["kind"] and json.loads(record["body"]["stringValue"]) == event["data"]
        assert int(record["timeUnixNano"]) % 1000 == 0 and record["timeUnixNano"][:4] == str(time.time_ns())[:4]


def gets_all(receiver, service, state):
    """Exports until it has the feed: what is recorded between an export and the look at the feed comes with the next one."""
    def has_all():
        exported(service, "--syslog", receiver.address, "--state", str(state))
        return receiver.events() == feed(service)
    assert wait_until(has_all), [[e["cursor"] for e in events] for events in (receiver.events(), feed(service))]
    return receiver.events()


@pytest.mark.parametrize("kind", ["unix", "udp", "tcp"])
def test_syslog(service, tmp_path, kind):
    receiver = Receiver(kind, tmp_path / "log" if kind == "unix" else None)
    expected = gets_all(receiver, service, tmp_path / "state")
    for message, event in zip(receiver.got, expected):
        priority, at, host, kind_name, _ = SYSLOG.fullmatch(message).groups()
        assert (int(priority) >> 3, at, host, kind_name) == (13, event["time"], socket.gethostname(), event["kind"])
        assert int(priority) & 7 == (4 if event["kind"].endswith((".failed", ".denied", ".refused")) else 6)
    # The next one goes on behind the state.
    assert service.cove("warm", "base", "0").returncode == 0
    assert len(gets_all(receiver, service, tmp_path / "state")) > len(expected)
    receiver.close()


def test_a_receiver_that_comes_back_gets_the_rest(service, tmp_path):
    receiver = Receiver("tcp")
    with service.popen("audit", "export", "-f", "--syslog", receiver.address, "--state", str(tmp_path / "state")) as export:
        try:
            assert wait_until(lambda: len(receiver.got) >= len(feed(service)))
            before = receiver.events()
            port = receiver.socket.getsockname()[1]
            receiver.close()
            for _ in range(3):
                assert service.cove("warm", "base", "0").returncode == 0
            receiver = Receiver("tcp", port=port)
            assert wait_until(lambda: receiver.got and receiver.events()[-1]["cursor"] == feed(service)[-1]["cursor"])
            assert [e["cursor"] for e in before + receiver.events()] == [e["cursor"] for e in feed(service)]
        finally:
            export.kill()
    receiver.close()


@pytest.mark.parametrize("form,suffix", [("jsonl", ".jsonl"), ("syslog", ".log"), ("otlp", ".otlp.jsonl")])
def test_files_by_day_survive_kills(service, tmp_path, form, suffix):
    directory = tmp_path / "audit"

    def cursors():
        found = [re.search(r'"cursor":(\d+)|"cove.cursor","value":\{"stringValue":"(\d+)"', line) for line in lines(directory, suffix)]
        return [int(m[1] or m[2]) for m in found]

    for round_ in range(5):
        with service.popen("audit", "export", "-f", "--dir", str(directory), "--format", form) as export:
            for _ in range(3):
                assert service.cove("warm", "base", "0").returncode == 0
            time.sleep(0.02 * round_)
            if round_ == 4: # and of the service
                assert wait_until(lambda: len(cursors()) == len(feed(service)))
                kill_worker(service)
                assert wait_until(lambda: len(cursors()) == len(feed(service)))
            export.send_signal(signal.SIGKILL)
        newest = sorted(directory.iterdir())[-1] if directory.exists() and list(directory.iterdir()) else None
        if round_ == 2 and newest: # a kill in the middle of a line
            with open(newest, "rb+") as file:
                file.truncate(newest.stat().st_size - 30)
        if round_ == 3 and newest: # a power cut
            with open(newest, "ab") as file:
                file.write(b"\0" * 5000 + b"\n" + b"\0" * 10)
    exported(service, "--dir", str(directory), "--format", form)
    assert cursors() == [e["cursor"] for e in feed(service)]
    assert {stat.S_IMODE(f.stat().st_mode) for f in directory.iterdir()} == {0o600}


def test_days(service, tmp_path):
    """Each event is in the file of its day; a clock that was set back, and a file that is empty, change nothing."""
    exported(service, "--dir", str(tmp_path))
    (today,) = os.listdir(tmp_path)
    assert {f"{e['time'][:10]}.jsonl" for e in feed(service)} == {today}
    os.rename(tmp_path / today, tmp_path / "2001-02-03.jsonl")
    (tmp_path / "2001-02-04.jsonl").touch()
    assert service.cove("warm", "base", "0").returncode == 0
    exported(service, "--dir", str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["2001-02-03.jsonl", "2001-02-04.jsonl", today]
    os.rename(tmp_path / today, tmp_path / "2999-01-01.jsonl")
    assert service.cove("warm", "base", "0").returncode == 0
    exported(service, "--dir", str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["2001-02-03.jsonl", "2001-02-04.jsonl", "2999-01-01.jsonl"]
    assert [json.loads(line)["cursor"] for line in lines(tmp_path)] == [e["cursor"] for e in feed(service)]
    (tmp_path / "2001-02-05.otlp.jsonl.gz").touch()
    exported(service, "--dir", str(tmp_path))
    done = service.cove("audit", "export", "--dir", str(tmp_path), "--format", "syslog")
    assert done.returncode == 2 and "has files in the format jsonl: write --format jsonl" in done.stderr and len(os.listdir(tmp_path)) == 4, done


def test_one_writer_at_a_time(service, tmp_path):
    with service.popen("audit", "export", "-f", "--dir", str(tmp_path)) as export:
        assert wait_until(lambda: os.listdir(tmp_path))
        second = service.cove("audit", "export", "--dir", str(tmp_path))
        export.kill()
    assert second.returncode == 1 and "another export" in second.stderr


def test_a_tenant_exports_its_own_events(service):
    assert service.cove("tenant", "create", "acme").returncode == 0
    done = service.cove("run", "--keep", "--template", "base", "--tenant", "acme", "--", "true")
    box = service.cove("ls", "-q", "--tenant", "acme").stdout.strip()
    assert done.returncode == 0 and box, done
    events = [json.loads(line) for line in exported(service, "--tenant", "acme")]
    assert events and {e["sandbox"] for e in events} == {e["sandbox"] for e in feed(service, "--tenant", "acme")}
    assert len({e["sandbox"] for e in events}) < len({e["sandbox"] for e in feed(service)})
    assert box in {e["sandbox"] for e in events}


@pytest.mark.parametrize("flags,why", [
    ((), "export is the only form"), (("import",), "only form"), (("export", "--format", "xml"), "jsonl, syslog or otlp"),
    (("export", "--dir", "d", "--syslog", "/dev/log"), "another target"), (("export", "--syslog", "/dev/log", "--format", "otlp"), "of its own"),
    (("export", "--syslog", "foo"), "write /dev/log"), (("export", "--from", "0"), "cursor"), (("export", "--from", "x"), "cursor")])
def test_wrong_command_lines(service, flags, why):
    done = service.cove("audit", *flags)
    assert done.returncode == 2 and why in done.stderr, done


@pytest.mark.parametrize("address", ["log", "udp:", "udp:127.0.0.1", "tcp:127.0.0.1:0", "tcp:127.0.0.1:70000", "tcp::514", "/nonexistent/log", "udp:127.0.0.1:x"])
def test_what_is_no_receiver_is_refused(service, address):
    done = service.cove("audit", "export", "--syslog", address)
    assert done.returncode == (1 if address.startswith("/") else 2) and done.stderr, done


def test_foreign_files_stay_as_they_are(service, tmp_path):
    state = tmp_path / "state"
    state.write_text("not a cursor")
    assert service.cove("audit", "export", "--state", str(state)).returncode == 1 and state.read_text() == "not a cursor"
    directory = tmp_path / "d"
    directory.mkdir()
    foreign = directory / "2999-01-01.jsonl"
    foreign.write_bytes(b"x" * (2 << 20))
    done = service.cove("audit", "export", "--dir", str(directory))
    assert done.returncode == 1 and "was not written by this command" in done.stderr and foreign.stat().st_size == 2 << 20
    target = tmp_path / "target"
    target.write_text("")
    foreign.unlink()
    foreign.symlink_to(target)
    assert service.cove("audit", "export", "--dir", str(directory)).returncode == 2 and target.read_text() == ""
