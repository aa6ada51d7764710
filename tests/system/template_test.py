# SPDX-License-Identifier: Apache-2.0
"""What the E2B API tells of templates."""

import json
import re
import uuid

import pytest
from client import Client
from terminal import Terminal


@pytest.fixture
def client(service):
    return Client(service.port, service.key)


@pytest.fixture
def written(service):
    """Adds templates on the layer of the base one; they are gone after the test."""
    folder = service.state / "templates"
    layer = re.search(r"layer = (\S+)", (folder / "base.conf").read_text())[1]
    made = []

    def write(name, more):
        made.append(folder / f"{name}.conf")
        made[-1].write_text(f"id = {name}\nlayer = {layer}\n{more}")

    yield write
    for path in made:
        path.unlink()


def test_the_base_template_is_told(client, service):
    every = client.control("GET", "/templates").json
    base = next(t for t in every if t["templateID"] == "base")
    said = dict(re.findall(r"^(\w+) = (.*)$", (service.state / "templates" / "base.conf").read_text(), re.M))
    assert set(base) == {"templateID", "aliases", "names", "buildID", "cpuCount", "memoryMB", "diskSizeMB", "public", "createdAt", "updatedAt", "createdBy",
                         "lastSpawnedAt", "spawnCount", "buildCount", "envdVersion", "buildStatus"}
    assert (base["aliases"], base["names"], base["buildStatus"], base["public"]) == (["base"], ["base"], "ready", False)
    assert (base["cpuCount"], base["memoryMB"]) == (int(said["cpu_milli"]) // 1000, int(said["memory_bytes"]) >> 20)
    assert base["createdAt"][:19] == base["updatedAt"][:19] == said["built"][:19]
    assert uuid.UUID(base["buildID"]).variant == uuid.RFC_4122
    assert base["buildID"].replace("-", "")[:12] == said["layer"].removeprefix("sha256-")[:12]
    one = client.control("GET", "/templates/base").json
    assert (one["templateID"], one["names"], one["createdAt"]) == ("base", ["base"], base["createdAt"])
    assert [(b["buildID"], b["status"], b["memoryMB"]) for b in one["builds"]] == [(base["buildID"], "ready", base["memoryMB"])]
    made = client.create()
    assert client.control("GET", f"/sandboxes/{made.id}").json["memoryMB"] == base["memoryMB"]


def test_names_and_pages(client, written):
    written("t-2", "alias = me/tool\nalias = me/tool:v2\nalias = other\ncpu_milli = 1500\ndisk_bytes = 2147483648\nbuilt = 2026-01-02T03:04:05Z\n")
    written("t-1", "")
    every = client.control("GET", "/v2/templates").json
    assert [t["templateID"] for t in every] == sorted(t["templateID"] for t in every)
    found = {t["templateID"]: t for t in every}
    tool = found["t-2"]
    assert (tool["names"], tool["aliases"]) == (["me/tool", "other"], ["tool", "other"])
    assert (tool["cpuCount"], tool["diskSizeMB"], tool["createdAt"]) == (2, 2048, "2026-01-02T03:04:05.000Z")
    assert (found["t-1"]["names"], found["t-1"]["diskSizeMB"]) == ([], 0)
    seen, token = [], ""
    while token is not None:
        page = client.control("GET", f"/v2/templates?limit=1&nextToken={token}")
        assert len(page.json) == 1
        seen += page.json
        token = page.headers.get("x-next-token")
    assert seen == every
    for name, status in (("tool", 200), ("me%2Ftool", 200), ("me%2Ftool:v2", 200), ("other", 200), ("t-1", 200), ("you%2Ftool", 404), ("tool:v3", 404),
                         ("nothing", 404), ("..%2Fbase", 400), ("a%00b", 400), ("x" * 400, 400)):
        answer = client.control("GET", f"/templates/aliases/{name}")
        assert answer.status == status, (name, answer)
        assert status != 200 or answer.json == {"templateID": "t-1" if name == "t-1" else "t-2", "public": False}
        assert client.control("GET", f"/templates/{name}").status == status


def test_what_stands_in_a_file_stays(client):
    for method, path in (("DELETE", "/templates/base"), ("PATCH", "/v2/templates/base")):
        answer = client.control(method, path, {"public": True})
        assert answer.status == 400 and "comes from a file" in answer.json["message"]
    assert client.request("GET", "/templates").status == 401


@pytest.mark.parametrize(("name", "next_step"), [
    ("code-interpreter-v1", "cove template add code-interpreter"), ("desktop", "cove template add desktop"), ("mcp-gateway", "cove template build --name mcp-gateway"),
    ("nothing", "cove template ls"), ("python:3.12-slim", "--from-image IMAGE"),
])
def test_a_template_that_is_not_there_comes_with_the_next_step(client, name, next_step):
    answer = client.control("POST", "/sandboxes", {"templateID": name})
    assert answer.status == 404 and name in answer.json["message"] and next_step in answer.json["message"], answer.json


@pytest.mark.parametrize("name", ["my.app", "ghcr.io/example/tool:1", "app:a/b"])
def test_what_a_name_may_be_is_told_where_one_is_none(service, name):
    done = service.cove("template", "build", "--from-template", "base", "--name", name)
    assert done.returncode == 1 and "[NAMESPACE/]NAME[:TAG]" in done.stderr, done


def test_the_list_fits_a_terminal(service, written):
    """However long a name is: a row is a line."""
    written("long-named", "alias = " + "y" * 60 + "\n")
    seen, status = Terminal(service, "template", "ls", columns=100).rest()
    lines = seen.decode().splitlines()
    assert status == 0 and len(lines) == 1 + len(json.loads(service.cove("template", "ls", "--json").stdout)), lines
    assert max(map(len, lines)) <= 100 and any("yyy..." in line for line in lines), lines


def test_the_base_template_is_what_pythons_and_nodes_users_expect(service):
    """E2B's base has these: pip that installs for its user, virtual environments, Node 20 or later with npm and yarn, git and compilers."""
    script = """set -e
        python3 -m venv v; v/bin/pip --version; node --version; npm --version; yarn --version; git --version; cc --version
        mkdir p; printf '[project]\nname = "made-here"\nversion = "1"\n[tool.setuptools]\npackages = []\n' >p/pyproject.toml
        pip install --no-index --no-build-isolation ./p; pip list"""
    done = service.cove("run", "--", "sh", "-c", script)
    assert done.returncode == 0 and "made-here" in done.stdout and "externally-managed" not in done.stderr, done
    assert int(re.search(r"^v(\d+)\.", done.stdout, re.M)[1]) >= 20, done
