# SPDX-License-Identifier: Apache-2.0
"""MCP, where its official SDKs don't look (tests/sdk/mcp): across restarts of the service, in the background, to clients who leave or talk nonsense."""

import http.client
import json
import os
import signal
import socket
import subprocess

import pytest
from leaks import own_service
from service import BUILD, wait_until


@pytest.fixture(scope="module")
def service():
    with own_service("mcp") as service:
        yield service


class Bridge:
    """`cove mcp`, spoken to line by line."""

    def __init__(self, service, cwd="/", **env):
        self.process = subprocess.Popen([BUILD / "cove", "mcp"], env={**os.environ, **service.env, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, cwd=cwd)
        self.number = 0

    def send(self, method, **params):
        self.number += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}))
        return self.number

    def write(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, method, **params):
        number = self.send(method, **params)
        answer = self.read()
        assert answer["id"] == number, answer
        return answer

    def begin(self):
        self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "test", "version": "1"})
        self.write('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return self

    def tool(self, name, **arguments):
        result = self.ask("tools/call", name=name, arguments=arguments)["result"]
        assert not result.get("isError"), result
        return result["structuredContent"]

    def end(self, how=None):
        if how:
            self.process.send_signal(how)
        else:
            self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()
        if how:
            self.process.stdin.close()


def alive(service):
    return {box["id"] for box in json.loads(service.cove("ls", "--json").stdout)}


def test_lines_that_are_piped_in_at_once(service):
    """By hand, nobody waits for the answer to initialize."""
    lines = [("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "hand", "version": "1"}}), ("tools/list", {}),
             ("tools/call", {"name": "sandbox_list", "arguments": {}})]
    text = "".join(json.dumps({"jsonrpc": "2.0", "id": i, "method": method, "params": params}) + "\n" for i, (method, params) in enumerate(lines))
    done = subprocess.run([BUILD / "cove", "mcp"], env={**os.environ, **service.env}, input=text, capture_output=True, text=True, timeout=60, check=False)
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0 and set(answers) == {0, 1, 2} and all("result" in answer for answer in answers.values()), done


@pytest.mark.parametrize("how", [None, signal.SIGTERM])
def test_a_session_ends_with_its_client(service, how):
    bridge = Bridge(service).begin()
    ends, stays = bridge.tool("sandbox_create")["sandbox"], bridge.tool("sandbox_create", keep=True)["sandbox"]
    bridge.end(how)
    assert wait_until(lambda: ends not in alive(service)) and stays in alive(service)
    assert service.cove("rm", stays).returncode == 0


def test_a_client_outlives_the_worker(service):
    bridge = Bridge(service).begin()
    box = bridge.tool("sandbox_create", keep=True)["sandbox"]
    bridge.tool("file_write", sandbox=box, path="/tmp/x", content="here")
    job = bridge.tool("exec", sandbox=box, command="echo begun; sleep 1000", background=True)["exec"]
    worker = service.child("cove-api")
    os.kill(worker, signal.SIGKILL)
    assert wait_until(lambda: service.is_healthy() and service.child("cove-api") != worker)
    assert bridge.tool("file_read", sandbox=box, path="/tmp/x")["content"] == "here" # in a session that was made anew
    output = bridge.tool("exec_output", sandbox=box, exec=job)
    assert output["output"] == "begun\n" and "running" not in output # nobody knows here any more
    bridge.tool("exec_kill", sandbox=box, exec=job, signal=9)
    bridge.tool("sandbox_kill", sandbox=box)
    bridge.end()


def test_commands_in_the_background(service):
    bridge = Bridge(service).begin()
    box = bridge.tool("sandbox_create")["sandbox"]
    job = bridge.tool("exec", sandbox=box, background=True, command="echo one; until [ -e /tmp/go ]; do sleep 0.05; done; echo two; exit 5")["exec"]
    text, at, status = "", 0, {"running": True}

    def more():
        nonlocal text, at, status
        status = bridge.tool("exec_output", sandbox=box, exec=job, offset=at)
        text, at = text + status["output"], status["next"]
        return text

    assert wait_until(lambda: more() == "one\n") and status["running"]
    bridge.tool("file_write", sandbox=box, path="/tmp/go", content="")
    assert wait_until(lambda: more() == "one\ntwo\n" and not status["running"]) and status["exit_code"] == 5
    killed = bridge.tool("exec", sandbox=box, background=True, argv=["sleep", "1000"])["exec"]
    bridge.tool("exec_kill", sandbox=box, exec=killed, signal=9)
    assert wait_until(lambda: bridge.tool("exec_output", sandbox=box, exec=killed).get("signal") == 9)
    bridge.end()


def test_several_at_once_and_what_is_cancelled(service):
    bridge = Bridge(service).begin()
    box = bridge.tool("sandbox_create")["sandbox"]
    slow = bridge.send("tools/call", name="exec", arguments={"sandbox": box, "command": "sleep 1000"})
    quick = [bridge.send("tools/call", name="exec", arguments={"sandbox": box, "argv": ["echo", str(i)]}) for i in range(20)]
    assert sorted(bridge.read()["id"] for _ in quick) == quick
    bridge.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow}}))
    assert wait_until(lambda: bridge.tool("exec", sandbox=box, command="pgrep -c sleep || true")["stdout"] == "0\n")
    bridge.end()


def test_progress_under_a_short_name_alone(service):
    """Its token is in each message."""
    bridge = Bridge(service).begin()
    box = bridge.tool("sandbox_create")["sandbox"]
    for token, is_told in (("x" * 256, True), (5, True), ("x" * 257, False)):
        number = bridge.send("tools/call", _meta={"progressToken": token}, name="exec",
                             arguments={"sandbox": box, "argv": ["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.5; done"]})
        said = [bridge.read()]
        while said[-1].get("id") != number:
            said.append(bridge.read())
        assert [m["params"]["progressToken"] for m in said[:-1]] == [token] * (len(said) - 1) and (len(said) > 1) == is_told, said
    bridge.end()


def test_a_client_that_leaves_takes_its_command_along(service):
    bridge = Bridge(service).begin()
    box = bridge.tool("sandbox_create")["sandbox"]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "exec", "arguments": {"sandbox": box, "command": "sleep 1000"},
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}})
    with socket.create_connection(("127.0.0.1", service.port)) as s:
        s.sendall((f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {service.key}\r\nContent-Type: application/json\r\n"
                   f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: exec\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
        assert wait_until(lambda: bridge.tool("exec", sandbox=box, command="pgrep -c sleep || true")["stdout"] == "1\n")
    assert wait_until(lambda: bridge.tool("exec", sandbox=box, command="pgrep -c sleep || true")["stdout"] == "0\n")
    bridge.end()


def test_files_changes_copies_and_denials(service):
    bridge = Bridge(service).begin()
    box = bridge.tool("sandbox_create")["sandbox"]
    tool = lambda what, **arguments: bridge.ask("tools/call", name=what, arguments={"sandbox": box, **arguments})["result"]["structuredContent"]
    tool("file_write", path="/tmp/d/one.py", content="x = 1\nif x == 1:\n    x = 1\n")
    tool("file_write", path="/tmp/d/two.txt", content="x = 1\n")
    assert [(m["path"], m["line"]) for m in tool("file_search", pattern="x = [0-9]", path="/tmp/d", include="*.py")["matches"]] == [("/tmp/d/one.py", 1), ("/tmp/d/one.py", 3)]
    assert len(tool("file_search", pattern="x = [0-9]", path="/tmp/d", fixed=True)["matches"]) == 0
    several = bridge.ask("tools/call", name="file_edit", arguments={"sandbox": box, "path": "/tmp/d/one.py", "search": "x = 1", "replace": "x = 2"})["result"]
    assert several["isError"], several
    assert tool("file_edit", path="/tmp/d/one.py", search="x = 1", replace="x = 2", which="2")["replaced"] == 1
    assert tool("file_read", path="/tmp/d/one.py", start_line=2, end_line=3)["content"] == "if x == 1:\n    x = 2\n"
    assert {(e["path"], e["type"]) for e in tool("file_list", path="/tmp", depth=2)["entries"]} >= {("/tmp/d", "directory"), ("/tmp/d/two.txt", "file")}
    assert {("added", "/tmp/d/one.py"), ("added", "/tmp/d/two.txt")} <= {(c["change"], c["path"]) for c in tool("diff")["changes"]}
    copy, = tool("fork")["forks"]
    kept = tool("snapshot", name="kept-files")["snapshot"]
    for name in ("kept-files", "kept-files:other", "base", "x/base", "cove-copy-0:1", "x/devcontainer-0"): # what others' sandboxes are made from
        refused = bridge.ask("tools/call", name="snapshot", arguments={"sandbox": box, "name": name})["result"]
        assert refused["isError"] and "is taken" in refused["content"][0]["text"], (name, refused)
    again = bridge.tool("sandbox_create", template=kept)["sandbox"]
    for other in (copy["sandbox"], again):
        assert bridge.tool("file_read", sandbox=other, path="/tmp/d/two.txt")["content"] == "x = 1\n"
    assert {box, copy["sandbox"], again} <= {one["sandbox"] for one in bridge.tool("sandbox_list")["sandboxes"]}
    assert tool("policy_show")["policy"]["default"] == "deny"
    tool("exec", argv=["curl", "-sS", "-m", "5", "http://denied.example/"])
    assert wait_until(lambda: "denied.example" in json.dumps(tool("denials_list")))
    assert all("denied" in e["kind"] for e in tool("denials_list")["events"])
    seen = tool("events_since", kinds=["exec."])
    assert {"exec.start", "exec.exit"} <= {e["kind"] for e in seen["events"]} and tool("events_since", **{"from": seen["next"]})["next"] >= seen["next"]
    for one in (copy["sandbox"], again, box):
        bridge.tool("sandbox_kill", sandbox=one)
    assert service.cove("snapshot", "rm", "kept-files").returncode == 0
    bridge.end()


THEIRS = {f"environment_{name}" for name in ("open", "create", "update_metadata", "config", "list", "run_cmd", "file_read", "file_list", "file_write", "file_edit",
                                             "file_delete", "add_service", "checkpoint", "log", "diff")}


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_repository_here(service, tmp_path, version):
    for words in ("init -q -b main .", "config user.name Person", "config user.email p@example.org"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    (tmp_path / "README").write_text("one\n")
    (tmp_path / ".cove").mkdir()
    (tmp_path / ".cove/env.yaml").write_text("checks: ['grep -q two README']\n")
    for words in ("add .", "commit -q -m first"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    bridge = Bridge(service, cwd=tmp_path)
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}}} if version > "2026" else {}
    if not meta:
        bridge.begin()
    ask = lambda name, /, **arguments: bridge.ask("tools/call", name=name, arguments=arguments, **meta)["result"]
    tool = lambda name, /, **arguments: ask(name, **arguments)["structuredContent"]
    tools = {one["name"]: one for one in bridge.ask("tools/list", **meta)["result"]["tools"]}
    assert THEIRS <= set(tools) and "propose" in tools and not {"apply", "merge"} & set(tools)
    made = tool("environment_create", title="Mend the -- README!", environment_source=str(tmp_path), explanation="x")
    box = made["environment_id"]
    # Clients that were written for container-use read its "id".
    assert made["id"] == tool("environment_open", environment_id=box)["id"] == box in [one["id"] for one in tool("environment_list")["sandboxes"]]
    assert made["name"].startswith("mend-the-readme-") and made["sandbox"] == box and len(made["base"]) == 40
    assert tool("environment_run_cmd", environment_id=box, command="cat README; pwd", explanation="To see it")["stdout"] == f"one\n{tmp_path}\n"
    tool("environment_file_write", environment_id=box, target_file="README", contents="two\n", explanation="Two was \"asked\" for\033[2J")
    assert tool("environment_file_read", environment_id=box, target_file="README")["content"] == "two\n" == tool("file_read", sandbox=box, path=f"{tmp_path}/README")["content"]
    assert f"{tmp_path}/README" in [one["path"] for one in tool("environment_file_list", environment_id=box, path=".")["entries"]]
    assert [one["path"] for one in tool("file_search", sandbox=box, pattern="^two$")["matches"]] == ["./README"]
    tool("environment_file_write", environment_id=box, target_file=f"{tmp_path}/long", contents="line\n" * 20000)
    commit = tool("commit", sandbox=box, message="it's \"mended\"")["commit"]
    assert "mended" in tool("environment_log", environment_id=box, explanation="To look at it")["output"]
    text, at, more = "", 0, True
    while more: # bounded, with a cursor
        part = tool("environment_diff", environment_id=box, offset=at)
        text, at, more = text + part["output"], part["next"], part["more"]
        assert len(part["output"]) <= 48 * 1024
    assert "+two" in text and text.count("+line\n") == 20000 and at > 100000
    added = ask("environment_add_service", environment_id=box, name="db", image="base", command="exec python3 -m http.server $PORT", ports=[5432], envs=["PORT=5432"])
    assert added["content"][0]["text"].startswith("Service added and started successfully: {")
    assert added["structuredContent"]["config"] == {"name": "db", "image": "base", "command": "exec python3 -m http.server $PORT", "exposed_ports": [5432], "env": ["PORT"]}
    assert added["structuredContent"]["endpoints"]["5432"]["environment_internal"] == "tcp://db:5432"
    assert tool("environment_run_cmd", environment_id=box, command="curl -sI http://db:5432/ | head -n 1")["stdout"].startswith("HTTP/1.0 200")
    told = tool("environment_config", environment_id=box, config={"base_image": "base", "setup_commands": ["pwd", "echo $ONE; exit 3", "echo no"], "envs": ["ONE=1", "TWO=2"]})
    assert (told["exit_code"], told["output"], told["env"]) == (3, f"{tmp_path}\n1\n", ["ONE", "TWO"]), told
    assert tool("environment_run_cmd", environment_id=box, command="echo $ONE$TWO")["stdout"] == "12\n"
    proposal = ask("propose", environment_id=made["name"], message="as asked")
    assert "grep -q two README: exit code 0" in proposal["content"][0]["text"] and proposal.get("resultType", "complete") == "complete"
    git = lambda *words: subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    assert git("rev-parse", f"refs/cove/proposal/{made['name']}") == commit and git("rev-parse", "main") != commit
    git("checkout", "-q", commit)
    why = service.cove("why", "--repo", tmp_path, "README:1").stdout
    assert "because   To see it\nbecause   Two was \"asked\" for" in why and "To look" not in why and "\033" not in why and "names this commit" in why, why
    git("checkout", "-q", "main")
    for name, arguments, told in (("environment_create", {"title": "x", "environment_source": "/"}, "for the repository"), ("environment_create", {}, "title is needed"),
                                  ("environment_create", {"title": "x", "from_git_ref": "--help"}, "no commit"), ("environment_log", {"environment_id": "--help"}, "no name"),
                                  ("environment_config", {"environment_id": box, "config": {"base_image": "other"}}, "env.yaml"),
                                  ("environment_config", {"environment_id": box, "config": {"envs": ["x"]}}, "NAME=value"),
                                  ("environment_add_service", {"environment_id": box, "name": "other", "image": "base"}, "give a command"),
                                  ("environment_diff", {"environment_id": "none"}, "no environment none")):
        refused = ask(name, **arguments)
        assert refused["isError"] and told in refused["content"][0]["text"], (name, refused)
    slow = bridge.send("tools/call", name="propose", arguments={"environment_id": box}, **meta)
    bridge.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow}}))
    assert tool("environment_checkpoint", environment_id=box, destination="kept-by-mcp")
    service.cove("env", "--repo", tmp_path, "abort", made["name"])
    assert service.cove("snapshot", "rm", "kept-by-mcp").returncode == 0
    bridge.end()


@pytest.mark.parametrize("said, fits", [(100000, True), (20 << 20, False)])
def test_what_a_setup_says_is_not_kept_without_end(service, tmp_path, said, fits):
    """What is installed inside is a stranger's, and what it writes to stderr is held in memory here."""
    (tmp_path / ".cove").mkdir()
    (tmp_path / ".cove/env.yaml").write_text(f"setup: ['head -c {said} /dev/zero >&2']\n")
    for words in ("init -q -b main .", "config user.name Person", "config user.email p@example.org", "add .", "commit -q -m first"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    bridge = Bridge(service, cwd=tmp_path).begin()
    made = bridge.ask("tools/call", name="environment_create", arguments={"title": "loud"})["result"]
    assert ("isError" not in made) == fits, made
    bridge.end()
    service.remove_all()


def test_nonsense(service):
    bridge = Bridge(service).begin()
    for line in "nonsense", "[]", "5", "[" * 5000, '{"jsonrpc":"2.0","id":1}', '{"jsonrpc":"1.0","id":1,"method":"ping"}':
        bridge.write(line)
        if line != '{"jsonrpc":"2.0","id":1}': # an answer to what nobody asked: there is none to that
            assert "error" in bridge.read()
    for method, params in ("tools/call", {"name": "no such"}), ("tools/call", {"name": "exec", "arguments": []}), ("nothing", {}), \
            ("resources/read", {"uri": "file:///etc/passwd"}), ("tools/list", {"cursor": "x"}), ("tools/call", {"name": "exec\r\nX: y", "arguments": {}}):
        assert "error" in bridge.ask(method, **params), method
    deep = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
    for _ in range(100):
        deep = {"params": deep}
    for body, status in (json.dumps(deep), 400), ("x" * (5 << 20), 413), ('{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}', 400):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        try:
            connection.request("POST", "/mcp", body, {"Content-Type": "application/json", "Authorization": f"Bearer {service.key}"})
        except (BrokenPipeError, ConnectionResetError):
            pass # it answers before it has read all of what is too much
        answer = connection.getresponse()
        assert answer.status == status and json.load(answer)["error"]["code"] < 0
        connection.close()
    missing = bridge.ask("tools/call", name="exec", arguments={"command": "true"})["result"]
    assert missing["isError"] and "the argument 'sandbox' is missing" in json.dumps(missing), missing
    assert bridge.ask("ping")["result"] == {}
    bridge.end()


def test_without_a_service_or_a_key(service):
    nowhere = subprocess.run([BUILD / "cove", "mcp"], env={**os.environ, "COVE_HOST": "unix:/nowhere"}, input="", capture_output=True, text=True,
                             timeout=60, check=False)
    assert nowhere.returncode == 1 and "cannot reach the service" in nowhere.stderr and not nowhere.stdout
    bridge = Bridge(service, COVE_HOST=f"127.0.0.1:{service.port}", COVE_API_KEY="wrong")
    answer = bridge.ask("initialize", protocolVersion="2025-11-25", capabilities={})
    assert "API key is wrong" in answer["error"]["message"]
    bridge.end()
