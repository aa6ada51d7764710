# SPDX-License-Identifier: Apache-2.0
"""/metrics, read by promtool and by a real Prometheus, and the dashboard that is made of it."""

import http.client
import json
import re
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from client import Client
from leaks import own_service
from service import end_with_us, reserve_port, wait_until

DASHBOARD = Path(__file__).parents[2] / "packaging" / "grafana.json"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def service():
    with own_service("metrics") as service:
        yield service


def scrape(service, key=None, accept="text/plain"):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {key or service.key}", "Accept": accept})
    answer = connection.getresponse()
    return answer.status, answer.getheader("content-type"), answer.read().decode()


def figures(service):
    status, _, text = scrape(service)
    assert status == 200, text
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.M)}


def use(service):
    """One sandbox, one command, one name that it may not reach."""
    client = Client(service.port, service.key)
    sandbox = client.create(allow_internet_access=False)
    assert sandbox.sh("echo hello; getent hosts denied.example; true")[1] == b"hello\n"
    assert sandbox.kill().status == 204


def test_promtool_finds_nothing_to_complain_of(service):
    use(service)
    status, kind, text = scrape(service)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    status, kind, text = scrape(service, accept=OPENMETRICS + ",text/plain;q=0.5")
    assert status == 200 and kind.startswith("application/openmetrics-text; version=1.0.0") and text.endswith("\n# EOF\n")


def test_what_is_done_is_counted_once(service):
    before = figures(service)
    client = Client(service.port, service.key)
    sandbox = client.create()
    running = figures(service)
    assert running['cove_sandboxes{state="running"}'] == before['cove_sandboxes{state="running"}'] + 1
    assert running['cove_used{what="sandboxes"}'] == before['cove_used{what="sandboxes"}'] + 1
    for _ in range(3):
        assert sandbox.works()
    assert sandbox.kill().status == 204
    after = figures(service)
    grew = {name: after[name] - before[name] for name in after if name in before and after[name] != before[name]}
    assert grew['cove_events_total{kind="sandbox.create"}'] == grew['cove_events_total{kind="sandbox.started"}'] == 1
    assert grew['cove_events_total{kind="exec.start"}'] == grew['cove_events_total{kind="exec.exit"}'] == 3
    assert sum(grew.get(f'cove_start_seconds_count{{way="{way}"}}', 0) for way in ("create", "claim")) == 1
    assert grew['cove_start_step_seconds_count{step="told"}'] == 1
    assert 'cove_sandboxes{state="running"}' not in grew


def test_only_the_default_tenant_may_look(service):
    assert service.cove("tenant", "create", "other").returncode == 0
    for tenant, status in (("other", 403), ("default", 200)):
        made = service.cove("key", "create", "--tenant", tenant, "--name", "scraper", "--scope", "read")
        assert made.returncode == 0, made.stderr
        assert scrape(service, key=made.stdout.strip())[0] == status
    assert scrape(service, key="wrong")[0] == 401


@pytest.fixture
def prometheus(service, tmp_path):
    port = reserve_port()
    (tmp_path / "prometheus.yml").write_text(json.dumps({ # which is YAML
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "cove", "authorization": {"credentials": service.key},
                            "static_configs": [{"targets": [f"127.0.0.1:{service.port}"]}]}]}))
    checked = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                    f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    end_with_us(process.pid)

    def ask(query):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query}), timeout=60) as f:
            return json.load(f)["data"]["result"]

    def is_up():
        try:
            return [r["value"][1] for r in ask("up")] == ["1"]
        except OSError:
            return False

    try:
        assert wait_until(is_up), (tmp_path / "log").read_text()
        yield ask
    finally:
        process.terminate()
        process.wait(60)


def test_every_query_of_the_dashboard_has_data(service, prometheus):
    queries = [t["expr"].replace("$__rate_interval", "20s") for p in json.loads(DASHBOARD.read_text())["panels"] for t in p["targets"]]
    assert len(queries) > 20

    def empty():
        return [q for q in queries if not any(r["value"][1] != "NaN" for r in prometheus(q))]

    def all_have_data():
        use(service)
        return not empty()

    assert wait_until(all_have_data), empty()
