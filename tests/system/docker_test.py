# SPDX-License-Identifier: Apache-2.0
"""`cove docker`: the verbs of Docker's command line that agents call, with the arguments that they give."""

import io
import json
import os
import subprocess
import tarfile

import pytest
from leaks import own_service
from service import BUILD, wait_until


@pytest.fixture
def docker(service, tmp_path):
    """By a link of that name, as an agent calls it; removes what is left."""
    link = tmp_path / "bin/docker"
    link.parent.mkdir()
    link.symlink_to(BUILD / "cove")

    def run(*words, env=None, **options):
        return subprocess.run([str(w) for w in (link, *words)], **{"env": {**os.environ, **service.env, **(env or {})}, "capture_output": True, "text": True,
                                                                   "timeout": 100, "check": False, "stdin": subprocess.DEVNULL, "cwd": tmp_path, **options})
    yield run
    for name in run("ps", "-aq").stdout.split():
        run("rm", "-f", name)


def test_one_command(docker):
    done = docker("run", "--rm", "-w", "/made/here", "-e", "A=b c", "base", "sh", "-c", "pwd; echo $A; id -u; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "/made/here\nb c\n0\n", "err\n")
    assert docker("run", "-i", "--rm", "base", "cat", stdin=None, input="from here").stdout == "from here"
    assert docker("run", "--rm", "base", "cat", stdin=None, input="not asked for").stdout == ""
    assert docker("run", "--rm", "base", "sh", "-c", "kill -9 $$").returncode == 137
    assert docker("run", "--rm", "base", "/nowhere").returncode == 127
    assert docker("run", "--rm", "--entrypoint", "echo", "base", "words").stdout == "words\n"
    assert "not a TTY" in docker("run", "-it", "base", "true").stderr
    assert docker("ps", "-aq").stdout == ""


def test_a_container_from_its_beginning_to_its_end(docker, tmp_path):
    done = docker("run", "-d", "--name", "box", "-w", "/place", "--label", "a=1", "base", "sh", "-c", "echo out; echo err >&2; exec sleep 100")
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout.split()) == 1, done
    container = done.stdout.strip()
    assert docker("run", "-d", "--name", "box", "base", "true").returncode == 125
    for name in ("box", container, container[:12]):
        done = docker("exec", "-w", "/tmp", "-e", "K=v", name, "bash", "-lc", "echo $K; pwd; cat; exit 3")
        assert (done.returncode, done.stdout) == (3, "v\n/tmp\n"), done
    assert docker("exec", "box", "pwd").stdout == "/place\n"
    assert docker("exec", "-i", "-u", "user", "box", "sh", "-c", "cat; id -un", stdin=None, input="in\n").stdout == "in\nuser\n"
    (tmp_path / "file").write_text("content")
    assert docker("cp", tmp_path / "file", "box:/place/there").returncode == 0
    assert docker("cp", "box:/place/there", tmp_path / "back").returncode == 0 and (tmp_path / "back").read_text() == "content"
    (one,) = [json.loads(line) for line in docker("ps", "--format", "{{json .}}").stdout.splitlines()]
    assert one["ID"] == container and one["Names"] == "box" and one["Image"] == "base" and one["State"] == "running", one
    assert docker("ps", "--filter", "name=bo", "--format", "{{.ID}} {{.Names}}").stdout == f"{container} box\n"
    assert docker("ps", "-q", "--filter", "name=other").stdout == "" and docker("ps", "-q", "-f", "label=a=1").stdout.strip() == container
    assert docker("inspect", "-f", "{{.State.Running}}", "box").stdout == "true\n"
    wait_until(lambda: docker("logs", "box").stdout)
    done = docker("logs", "box")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert docker("rm", "box").returncode == 1
    assert docker("stop", "-t", "0", "box").stdout == "box\n"
    assert docker("ps", "-q").stdout == "" and docker("ps", "-a", "--format", "{{.State}}").stdout == "exited\n"
    assert docker("exec", "box", "true").returncode != 0
    assert docker("inspect", "-f", "{{.State.ExitCode}}", "box").stdout == "137\n"
    assert docker("rm", "box").stdout == "box\n" and docker("ps", "-aq").stdout == ""
    done = docker("inspect", "box")
    assert done.returncode == 1 and "No such object: box" in done.stderr


def test_stopped_ones_are_not_resumed_with_all_others(service, docker, sandbox):
    stopped, paused = (docker("run", "-d", "base", "sleep", "2h").stdout.strip() for _ in range(2))
    assert docker("stop", "-t", "0", stopped).returncode == 0
    assert service.cove("pause", "--files-only", sandbox).returncode == service.cove("pause", "--all").returncode == 0
    done = service.cove("resume", "--all")
    assert (done.returncode, set(done.stdout.split())) == (0, {sandbox, paused}), done
    assert docker("ps", "-q", "--no-trunc").stdout == f"{paused}\n" and docker("inspect", "-f", "{{.State.Running}}", stopped).stdout == "false\n"


def test_stopping_one_that_is_to_be_removed_removes_it(docker):
    container = docker("run", "-d", "--rm", "base", "sleep", "2h").stdout.strip()
    assert docker("stop", container).returncode == 0 and docker("ps", "-aq").stdout == ""


def test_a_command_that_ended_is_no_longer_up(docker):
    container = docker("run", "-d", "-u", "user", "base", "true").stdout.strip()
    assert docker("exec", container, "id", "-un").stdout == "user\n"
    assert docker("ps", "-q").stdout == "" and docker("ps", "-aq").stdout.strip() == container
    assert docker("inspect", "-f", "{{.State.Status}} {{.State.ExitCode}}", container).stdout == "exited 0\n"
    kept = docker("run", "--name", "kept", "base", "sh", "-c", "echo x >/f")
    assert kept.returncode == 0 and docker("ps", "-a", "--format", "{{.Names}}").stdout.split().count("kept") == 1


def test_what_is_built_is_told_in_words_to_type(docker, tmp_path):
    with own_service("built") as other: # which keeps the build's layers
        build = lambda: docker("build", "-t", "my/app", tmp_path, env=other.env)
        done = build()
        assert done.returncode == 1 and "with -f FILE" in done.stderr and "--from" not in done.stderr, done
        (tmp_path / "Dockerfile").write_text("FROM base\nRUN echo hello > /built\n")
        done = build()
        assert done.returncode == 0 and "\nmy/app is the template my-app: 'cove run --template my-app'" in done.stderr, done
        assert other.cove("run", "--template", "my-app", "--", "cat", "/built").stdout == "hello\n"


def test_images(docker, service, tmp_path):
    assert docker("images", "-q", "base").stdout.strip() and docker("images", "-q", "not-there").stdout == ""
    assert "base" in docker("images", "--format", "{{.Repository}}").stdout.split()
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN exit 3\n")
    assert service.cove("template", "build", "--name", "half", str(tmp_path)).returncode != 0
    assert "half" in service.cove("template", "ls").stdout
    assert "half" not in docker("images").stdout and docker("image", "inspect", "half").returncode == 1
    assert docker("image", "inspect", "base").returncode == 0 and docker("image", "inspect", "not-there").returncode == 1


def test_directories_of_this_machine(docker, tmp_path):
    here = tmp_path / "project"
    here.mkdir()
    (here / "a").write_text("mine")
    done = docker("run", "--rm", "-v", f"{here}:/p:ro", "base", "sh", "-c", "cat /p/a; echo theirs >/p/a; echo new >/p/b")
    assert done.stdout == "mine" and (here / "a").read_text() == "mine" and not (here / "b").exists(), done
    done = docker("run", "--rm", "-v", f"{here}:/p", "base", "true")
    assert done.returncode == 125 and "COVE_DOCKER_VOLUMES" in done.stderr
    done = docker("run", "--rm", "-v", f"{here}:/p", "base", "sh", "-c", "echo theirs >/p/a; echo new >/p/b", env={"COVE_DOCKER_VOLUMES": "copy"})
    assert done.returncode == 0 and (here / "a").read_text() == "theirs\n" and (here / "b").read_text() == "new\n", done


def test_the_network_is_the_policys_or_none(docker, service):
    for words, default in (([], None), (["--network", "none"], "deny"), (["--network=bridge"], None), (["--network", "internal-one"], "deny")):
        container = docker("run", "-d", "--rm", *words, "base", "sleep", "60").stdout.strip()
        policy = service.request("GET", f"/cove/v1/sandboxes/{container}/network")[2]
        assert (policy["default"] == "deny") == (default == "deny"), policy
    assert docker("network", "create", "--internal", "x").stdout == "x\n"
    assert docker("network", "create", "x").returncode == 1 and docker("network", "inspect", "x").returncode == 1 and "bridge" in docker("network", "ls").stdout


@pytest.mark.parametrize("words, says", [
    (["run", "--privileged", "base", "true"], "unknown flag: --privileged"), (["run", "--pid=host", "base", "true"], "--pid"),
    (["run", "-v", "/var/run/docker.sock:/s", "base", "true"], "--volume"), (["run", "--network", "host", "base", "true"], "--network host"),
    (["run", "--security-opt", "seccomp=unconfined", "base", "true"], "--security-opt"), (["run", "-p", "80:80", "base", "true"], "cove url NAME PORT"), (["run", "-P", "base", "true"], "cove url NAME PORT"),
    (["run", "--device", "/dev/kvm", "base", "true"], "--device"), (["run", "--cap-add", "ALL", "base", "true"], "--cap-add"),
    (["run", "--add-host", "a:1.2.3.4", "base", "true"], "--add-host"), (["run", "base"], "No command"), (["run", "-e"], "needs an argument"),
    (["swarm", "init"], "'swarm' is not a docker command"), (["volume", "ls"], "try 'cove volume'"), (["start", "x"], "try 'cove docker run'"), (["ps", "--filter", "status=running"], "invalid filter"),
    (["ps", "--filter", "name=^x$"], "no regular expression"), (["run", "-v", "nowhere:/x", "base", "true"], "daemon: there is no volume 'nowhere'"), (["exec", "x"], "at least 2"),
    (["compose", "watch"], "'compose watch' is not a docker command"), (["compose", "-p", "x", "exec", "-x", "a", "true"], "unknown shorthand flag: 'x'"),
    (["compose", "-f", "/nowhere.yaml", "config"], "/nowhere.yaml"), (["cp", "a", "b"], "NAME:PATH"), (["cp", "-", "x:/y"], "not -")])
def test_refused_by_name(docker, words, says):
    done = docker(*words)
    assert done.returncode == 125 and says in done.stderr and done.stdout == "", done


def test_as_gemini_calls_it(docker, tmp_path):
    """Its own arguments, with a command in the place of itself."""
    project, home = tmp_path / "project", tmp_path / "gemini-sandbox-x"
    project.mkdir()
    home.mkdir()
    (project / "a").write_text("before")
    (home / "settings.json").write_text("{}")
    assert docker("images", "-q", "base").stdout.strip()
    assert docker("network", "inspect", "gemini-cli-sandbox").returncode and docker("network", "create", "--internal", "gemini-cli-sandbox").returncode == 0
    done = docker("run", "-i", "--rm", "--init", "--workdir", project, "--entrypoint", "", "--add-host", "host.docker.internal:host-gateway",
                  "--volume", f"{project}:{project}", "--env", "HOME=/home/node", "--volume", f"{home}:/home/node/.gemini:rw",
                  "--network", "gemini-cli-sandbox", "--name", "sandbox-0", "--hostname", "sandbox-0", "--env", "TERM=xterm", "--env", "SANDBOX=sandbox-0",
                  "--user", "root", "base", "bash", "-c", "pwd; cat a $HOME/.gemini/settings.json; echo after >a; exit 4", env={"COVE_DOCKER_VOLUMES": "copy"})
    assert (done.returncode, done.stdout) == (4, f"{project}\nbefore{{}}"), done
    assert (project / "a").read_text() == "after\n" and docker("ps", "-aq").stdout == ""


def test_formats_that_make_no_sense(docker):
    docker("run", "-d", "base", "sleep", "100")
    for text in ("{{", "{{.Nothing}}", "{{range .}}", "{{json .Nothing}}"):
        done = docker("ps", "--format", text)
        assert done.returncode == 125 and "template parsing error" in done.stderr, done


def test_other_sandboxes_are_not_seen(docker, service):
    other = json.loads(service.cove("run", "--keep", "--json", "--", "true").stdout)["sandbox"]
    try:
        assert docker("ps", "-aq").stdout == "" and docker("rm", "-f", other).returncode == 1 and docker("exec", other, "true").returncode == 1
    finally:
        service.cove("rm", other)
    assert docker("version").stdout.startswith("Docker version") and docker("--version").returncode == 0


COMPOSE = """
x-common: {}
services:
  default:
    image: ${IMAGE:-base}
    command: sh -c 'echo "$$A $$B" > "/in it"; exec tail -f /dev/null'
    environment: {A: "${NOT_SET-x}y", B: "${B}"}
    working_dir: /work
    init: true
    network_mode: none
    stop_grace_period: 1s
    x-default: true
  done:
    image: base
    entrypoint: [sh, -c]
    command: ["exit 3"]
"""


def test_compose_as_inspect_calls_it(docker, tmp_path):
    """Its own arguments. tests/sdk/inspect has the package itself."""
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    env = {"B": 'quo"te: {'}
    compose = lambda *words, **more: docker("compose", "--ansi", "never", "--project-name", "inspect-t-i1", "-f", tmp_path / "compose.yaml", *words, env=env, **more)
    assert json.loads(docker("version", "--format", "json").stdout)["Server"]["Version"] and json.loads(docker("compose", "version", "--format", "json").stdout)["version"]
    told = json.loads(compose("config").stdout)
    assert told["services"]["default"]["environment"] == {"A": "xy", "B": 'quo"te: {'} and told["services"]["default"]["x-default"] is True
    assert compose("config", "--images").stdout == "base\nbase\n" and compose("build").returncode == 0
    assert compose("pull", "--ignore-buildable", "--policy", "missing", "default").returncode == 0
    done = compose("up", "--detach", "--wait", "--wait-timeout", "661")
    assert (done.returncode, done.stdout) == (0, ""), done
    try:
        rows = lambda *words: {one["Service"]: one for one in map(json.loads, compose("ps", "--format", "json", *words).stdout.splitlines())}
        assert wait_until(lambda: set(rows("--status", "running")) == {"default"}) and rows("--all")["done"]["ExitCode"] == 3 and set(rows("--status", "exited")) == {"done"}
        assert set(rows()) == {"default"} and rows()["default"]["Name"] == "inspect-t-i1-default-1"
        done = compose("exec", "--workdir", "/tmp", "--env", "K=v", "default", "sh", "-c", "pwd; echo $K; cat '/in it'; cat; exit 4", stdin=None, input="in")
        assert (done.returncode, done.stdout) == (4, '/tmp\nv\nxy quo"te: {\nin'), done
        assert 'service "done" is not running' in compose("exec", "done", "true").stderr and 'service "x" is not running' in compose("exec", "x", "true").stderr
        done = compose("cp", "-L", "--", "default:/in it", "-", text=False)
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            assert archive.getnames() == ["in it"] and archive.extractfile("in it").read() == b'xy quo"te: {\n'
        assert "No such file" in compose("cp", "-L", "--", "default:/nothing", "-").stderr
        (project,) = json.loads(docker("compose", "ls", "--all", "--format", "json").stdout)
        assert project == {"Name": "inspect-t-i1", "Status": "running", "ConfigFiles": str(tmp_path / "compose.yaml")}
        container = rows()["default"]["ID"]
        assert compose("up", "--detach").returncode == 0 and rows()["default"]["ID"] == container
    finally:
        assert compose("down", "--volumes").returncode == 0
    assert docker("ps", "-aq").stdout == ""


def test_compose_builds(docker, tmp_path):
    (tmp_path / "image").mkdir()
    (tmp_path / "image/Dockerfile").write_text("ARG WORD\nFROM base\nARG WORD\nRUN echo $WORD > /built\n")
    (tmp_path / "compose.yaml").write_text("name: built\nservices:\n  one:\n    build: {context: image, args: {WORD: hello}}\n    command: sleep 100\n")
    with own_service("compose") as other: # which may keep what it made ahead of need for a template
        run = lambda *words: docker(*words, env=other.env)
        assert run("compose", "config", "--images").stdout == "built-one\n"
        done = run("compose", "up", "-d")
        assert done.returncode == 0 and done.stdout == "", done
        assert run("compose", "exec", "one", "cat", "/built").stdout == "hello\n"
        assert run("compose", "down").returncode == 0
        assert run("rmi", "built-one").returncode == 0 and run("images", "-q", "built-one").stdout == "" and run("rmi", "built-one").returncode == 1


@pytest.mark.parametrize("text, says", [
    ("services: {a: {image: base, privileged: true}}", "services.a.privileged is not supported"), ("services: {a: {image: base, ports: ['80:80']}}", "services.a.ports"),
    ("services: {a: {image: base, volumes: ['/:/host']}}", "services.a.volumes"), ("services: {a: {image: base}}\nnetworks: {x: {}}", "networks is not supported"),
    ("services: {a: {image: base, network_mode: host, command: x}}", "--network host"), ("services: {a: {command: x}}", "neither an image"), ("services: {}", "empty"),
    ("services: {a: {image: '${', command: x}}", "interpolation"), ("services: {a: {image: '${A:?no}', command: x}}", "interpolation"), ("services: [a", "compose.yaml:"),
    ("services: {a: {image: base, command: \"'open\"}}", "command and entrypoint"), ("services: {a: {image: base, environment: {A: [1]}, command: x}}", "services.a.environment"),
    ("services: {a: {image: base}}", "No command"), ("services: {a: {image: base, labels: {docker.image: x}, command: x}}", "--label"), ("[]", "empty"), ("services: x", "empty"),
    ("services: {a: x}", "neither an image"),
    ("services: {a: {image: '--name=x', command: x}}", "--name=x"), ("services: {a: {build: {context: ., target: x}, command: x}}", "services.a.build.target")])
def test_compose_refuses_by_name(docker, tmp_path, text, says):
    (tmp_path / "compose.yaml").write_text(text)
    done = docker("compose", "up", "-d")
    assert done.returncode == 125 and says in done.stderr and done.stdout == "", done
    assert docker("ps", "-aq").stdout == ""
