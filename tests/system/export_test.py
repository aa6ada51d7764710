# SPDX-License-Identifier: Apache-2.0
"""Events, traces and figures for a collector over OTLP."""

import http.server
import json
import os
import threading

import pytest
from leaks import own_service
from service import UnixConnection, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a service of its own needs root")

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def service():
    with own_service("export") as service:
        yield service


class Collector:
    """What an OpenTelemetry collector does with JSON, as far as anybody sees it: it takes it, or says a status."""

    def __init__(self):
        self.got = {"logs": [], "traces": [], "metrics": []}
        self.headers, self.status = {}, 200
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                assert self.headers["content-type"].startswith("application/json")
                collector.headers = dict(self.headers.items())
                if collector.status == 200:
                    collector.got[self.path.removeprefix("/v1/")].append(body)
                self.send_response(collector.status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def all(self, signal, of):
        """All records of the batches that came."""
        scope = {"logs": "Logs", "traces": "Spans", "metrics": "Metrics"}[signal]
        return [r for body in self.got[signal] for resource in body[f"resource{scope}"] for s in resource[f"scope{scope}"] for r in s[of]]

    def logs(self):
        return [(attribute(r, "cove.sandbox"), int(attribute(r, "cove.seq")), r["eventName"]) for r in self.all("logs", "logRecords")]


def attribute(thing, name):
    return next((a["value"]["stringValue"] for a in thing["attributes"] if a["key"] == name), None)


@pytest.fixture
def collector(service):
    one = Collector()
    yield one
    assert service.request("DELETE", "/cove/v1/export")[0] == 204
    one.server.shutdown()
    service.remove_all()


def exports(service, collector, **more):
    status, _, answer = service.request("PUT", "/cove/v1/export", {"url": collector.url, **more})
    assert status == 200, answer
    return answer


def recorded(service, box):
    return [json.loads(line) for line in service.cove("log", "--json", box).stdout.splitlines()]


def test_every_event_is_a_log_record_once_and_actions_are_traces(service, collector):
    answer = exports(service, collector, headers={"Authorization": "Bearer s3cret"})
    assert answer["headers"] == {"Authorization": "..."}
    box = service.create(template="base")
    for i in range(5):
        service.cove("exec", box, "--", "sh", "-c", f"exit {i}")
    assert service.cove("rm", box).returncode == 0
    assert wait_until(lambda: (box, "sandbox.ended") in [(b, k) for b, _, k in collector.logs()])
    assert [(seq, kind) for b, seq, kind in collector.logs() if b == box] == [(e["seq"], e["kind"]) for e in recorded(service, box)]
    assert collector.headers["Authorization"] == "Bearer s3cret"
    assert wait_until(lambda: len([s for s in collector.all("traces", "spans") if s["name"] == "exec.start"]) == 5)
    spans = [s for s in collector.all("traces", "spans") if attribute({"attributes": s.get("attributes", [])}, "cove.sandbox") == box or "parentSpanId" in s]
    roots = [s for s in spans if s["name"] == "exec.start"]
    assert [s["status"]["code"] for s in roots] == [1, 2, 2, 2, 2]
    for root in roots:
        hops = [s for s in spans if s.get("parentSpanId") == root["spanId"]]
        assert [h["name"] for h in hops] == ["agent.start", "agent.run"] and {h["traceId"] for h in hops} == {root["traceId"]}
        assert int(root["startTimeUnixNano"]) <= int(hops[0]["endTimeUnixNano"]) == int(hops[1]["startTimeUnixNano"]) <= int(root["endTimeUnixNano"])
    assert len({s["traceId"] for s in roots}) == 5


def test_a_clients_trace_goes_on(service, collector):
    exports(service, collector, signals=["traces"])
    box = service.create(template="base")
    connection = UnixConnection(str(service.run / "cove.sock"))
    for header in (f"00-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", "nonsense\t"):
        connection.request("PUT", f"/cove/v1/sandboxes/{box}/files?path=/home/user/f", b"x", {"traceparent": header})
        answer = connection.getresponse()
        assert answer.status < 300, answer.read()
        answer.read()
    connection.close()
    assert wait_until(lambda: len([s for s in collector.all("traces", "spans") if s["name"] == "file.write"]) == 3)
    first, *others = [s for s in collector.all("traces", "spans") if s["name"] == "file.write"]
    assert (first["traceId"], first["parentSpanId"]) == (TRACE, PARENT)
    assert all("parentSpanId" not in s and s["traceId"] != TRACE for s in others) and collector.got["logs"] == []
    assert [e["data"].get("traceparent") for e in recorded(service, box) if e["kind"] == "file.write"] == [f"00-{TRACE}-{PARENT}-01", None, None]
    assert service.cove("log", "--verify", box).returncode == 0


def test_a_collector_that_is_away_gets_it_later_and_delays_nobody(service, collector):
    exports(service, collector, signals=["logs"])
    collector.status = 503
    box = service.create(template="base")
    for _ in range(10):
        assert service.cove("exec", box, "--", "true").returncode == 0
    assert [k for b, _, k in collector.logs() if b == box] == []
    os.kill(service.child("cove-api"), 9)
    assert wait_until(service.is_ready)
    collector.status = 200
    service.cove("exec", box, "--", "true")
    assert wait_until(lambda: [k for b, _, k in collector.logs() if b == box].count("exec.exit") == 11)
    seqs = [seq for b, seq, _ in collector.logs() if b == box]
    assert seqs == list(range(1, len(seqs) + 1))


def test_metrics_are_those_of_the_service(service, collector):
    service.create(template="base")
    exports(service, collector, signals=["metrics"])
    assert wait_until(lambda: collector.got["metrics"], 90)
    metrics = {m["name"]: m for m in collector.all("metrics", "metrics")}
    states = {attribute(p, "state"): p["asDouble"] for p in metrics["cove_sandboxes"]["gauge"]["dataPoints"]}
    assert states["running"] == len(service.sandboxes()) and metrics["cove_start_seconds_count"]["sum"]["isMonotonic"] is True
    text = service.request("GET", "/metrics")[2].decode()
    assert set(metrics) <= {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}


@pytest.mark.parametrize("wrong", [{}, {"url": "ftp://a"}, {"url": "http://u@a"}, {"url": "http://a", "signals": ["noise"]}, {"url": "http://a", "headers": {"a b": "c"}},
                                   {"url": "http://a", "headers": {"a": "b\r\nc: d"}}, {"url": "http://a", "more": 1}])
def test_what_is_no_collector_is_refused(service, wrong):
    assert service.request("PUT", "/cove/v1/export", wrong)[0] == 400
    assert service.request("GET", "/cove/v1/export")[2] == {}
