# SPDX-License-Identifier: Apache-2.0
"""Docker's Engine API, by plain HTTP and by the real docker."""

import base64
import contextlib
import http.client
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import tarfile
import urllib.parse
from pathlib import Path

import pytest
from group_test import GROUP, DAEMON
from group_test import service as group_service # noqa: F401
from service import BUILD, UnixConnection, wait_until


class Engine:
    def __init__(self, service):
        self.service = service

    def ask(self, method, path, body=None, status=None):
        code, _, answer = self.service.request(method, path, body)
        assert status is None or code == status, (method, path, code, answer)
        return answer

    def create(self, *cmd, host=None, name=None, status=201, **more):
        path = "/v1.44/containers/create" + (f"?name={name}" if name else "")
        return self.ask("POST", path, {"Image": "base", "Cmd": list(cmd), "HostConfig": host or {}, **more}, status)

    def run(self, *cmd, **more):
        made = self.create(*cmd, **more)["Id"]
        self.ask("POST", f"/containers/{made}/start", status=204)
        return made

    def state(self, container):
        return self.ask("GET", f"/v1.44/containers/{container}/json", status=200)["State"]

    @contextlib.contextmanager
    def hijack(self, path, body=None):
        """The socket behind the 101."""
        text = b"" if body is None else json.dumps(body).encode()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            sock.connect(str(self.service.run / "cove.sock"))
            sock.sendall(f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\n"
                         f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
            head = b""
            while b"\r\n\r\n" not in head:
                got = sock.recv(1)
                assert got, head
                head += got
            assert head.startswith(b"HTTP/1.1 101"), head
            yield sock


def everything(sock):
    return b"".join(iter(lambda: sock.recv(65536), b""))


def frames(data):
    out, at = {1: bytearray(), 2: bytearray()}, 0
    while at < len(data):
        channel, n = struct.unpack(">BxxxL", data[at:at + 8])
        out[channel] += data[at + 8:at + 8 + n]
        at += 8 + n
    return bytes(out[1]), bytes(out[2])


@pytest.fixture
def engine(service):
    return Engine(service)


def raw(service, method, path, body=None, key=None):
    """With a key: by TCP."""
    connection = UnixConnection(str(service.run / "cove.sock")) if key is None else http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"X-API-KEY": key} if key else {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def test_what_answers(engine, service):
    status, headers, _ = raw(service, "HEAD", "/_ping")
    assert status == 200 and headers["Api-Version"] == "1.44"
    assert engine.ask("GET", "/version", status=200)["ApiVersion"] == "1.44" and engine.ask("GET", "/v1.41/info", status=200)["OSType"] == "linux"
    assert "not supported" in engine.ask("POST", "/v1.44/build", {}, 501)["message"] and "not supported" in engine.ask("GET", "/v1.44/swarm", status=501)["message"]
    assert engine.ask("DELETE", "/v1.44/info", status=501)["message"] == "DELETE /info is not supported" and engine.ask("GET", "/v1.44/containers/nobody/json", status=404)["message"] == "No such container: nobody"


def test_who_asks(engine, service):
    assert b"key is needed" in raw(service, "GET", "/containers/json", key="")[2] and raw(service, "GET", "/v1.44/containers/json", key="no")[0] == 401
    assert raw(service, "GET", "/_ping", key="")[2] == b"OK" and json.loads(raw(service, "GET", "/containers/json", key=service.key)[2]) == []
    read = json.loads(service.cove("key", "create", "--name", "reads", "--scope", "read", "--json").stdout)["key"]
    try:
        assert raw(service, "GET", "/images/json", key=read)[0] == 200
        assert b"scope is 'read'" in raw(service, "POST", "/containers/create", '{"Image": "base", "Cmd": ["true"]}', key=read)[2]
    finally:
        service.cove("key", "revoke", "reads")


def test_a_user_without_an_account(engine):
    made = engine.create("true", User="nosuch")["Id"]
    assert engine.ask("POST", f"/containers/{made}/start", status=400)["message"].endswith("unable to find user 'nosuch': no matching entries in passwd file")
    engine.ask("DELETE", f"/containers/{made}?force=1", status=204)
    engine.ask("POST", f"/containers/{engine.run('sh', '-c', '[ $(id -u):$(id -g) = 4711:12 ]', name='number', User='4711:12')}/wait", status=200)
    assert engine.state("number")["ExitCode"] == 0
    engine.ask("DELETE", "/containers/number", status=204)


def test_a_container_from_its_beginning_to_its_end(engine):
    made = engine.create("sh", "-c", "echo out; echo err >&2; trap 'exit 5' TERM; while :; do sleep 0.1; done", name="box", WorkingDir="/place", Labels={"a": "1"},
                         Env=["K=secret"])["Id"]
    assert engine.create("true", name="box", status=409)["message"].startswith("Conflict")
    assert engine.state("box")["Status"] == "created" and engine.ask("GET", "/containers/json", status=200) == []
    engine.ask("POST", f"/containers/{made}/exec", {"Cmd": ["true"]}, 409)
    engine.ask("POST", "/containers/box/start", status=204)
    engine.ask("POST", "/containers/box/start", status=304)
    one, = engine.ask("GET", "/containers/json?filters=" + urllib.parse.quote('{"label":["a=1"]}'), status=200)
    assert one["Id"] == made and one["Names"] == ["/box"] and one["State"] == "running" and one["Labels"] == {"a": "1"}
    assert engine.ask("GET", "/containers/json?all=1&filters=" + urllib.parse.quote('{"label":{"a=2":true}}'), status=200) == []
    shown = engine.ask("GET", f"/containers/{made[:12]}/json", status=200)
    assert shown["Config"]["WorkingDir"] == "/place" and "secret" not in json.dumps(shown) and shown["State"]["Running"]
    assert wait_until(lambda: frames(engine.ask("GET", "/containers/box/logs?stdout=1&stderr=1", status=200)) == (b"out\n", b"err\n"))
    assert frames(engine.ask("GET", "/containers/box/logs?stderr=1&tail=1", status=200)) == (b"", b"err\n")
    engine.ask("DELETE", "/containers/box", status=409)
    engine.ask("POST", "/containers/box/stop?t=30", status=204)
    assert engine.state("box") | {"ExitCode": 5, "Status": "exited", "Running": False} == engine.state("box")
    engine.ask("POST", "/containers/box/stop", status=304)
    assert engine.ask("POST", "/containers/box/wait", status=200) == {"StatusCode": 5}
    began = engine.ask("GET", "/containers/box/json", status=200)["State"]["StartedAt"]
    engine.ask("POST", "/containers/box/restart?t=1", status=204)
    assert engine.ask("GET", "/containers/box/json", status=200)["State"]["StartedAt"] > began
    assert engine.state("box")["Running"]
    engine.ask("POST", "/containers/box/kill?signal=SIGKILL", status=204)
    assert wait_until(lambda: engine.state("box")["Status"] == "exited") and engine.state("box")["ExitCode"] == 137
    engine.ask("DELETE", "/containers/box", status=204)
    assert engine.ask("GET", "/containers/json?all=1", status=200) == []


def test_one_that_ends_is_gone_when_it_was_to_be(engine):
    made = engine.create("sh", "-c", "exit 3", host={"AutoRemove": True})["Id"]
    with UnixWait(engine.service, made, "removed") as wait:
        engine.ask("POST", f"/containers/{made}/start", status=204)
        assert wait() == {"StatusCode": 3}
    engine.ask("GET", f"/containers/{made}/json", status=404)
    lost = engine.create("/nowhere", host={"AutoRemove": True})["Id"]
    assert "no such file" in engine.ask("POST", f"/containers/{lost}/start", status=400)["message"]
    assert wait_until(lambda: not engine.service.sandboxes())


class UnixWait:
    """A wait that has begun: its head is there."""

    def __init__(self, service, container, condition):
        self.connection = UnixConnection(str(service.run / "cove.sock"))
        self.connection.request("POST", f"/v1.44/containers/{container}/wait?condition={condition}")
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200

    def __enter__(self):
        return lambda: json.loads(self.answer.read())

    def __exit__(self, *_):
        self.connection.close()


def test_commands_beside_it(engine):
    box = engine.run("sleep", "1000", WorkingDir="/w")

    def made(cmd, **more):
        return engine.ask("POST", f"/containers/{box}/exec", {"Cmd": cmd, "AttachStdout": True, "AttachStderr": True, **more}, 201)["Id"]

    one = made(["sh", "-c", "pwd; id -u; echo $K; echo err >&2; exit 4"], Env=["K=v"])
    assert engine.ask("GET", f"/exec/{one}/json", status=200) | {"Running": False, "ExitCode": None} == engine.ask("GET", f"/exec/{one}/json", status=200)
    with engine.hijack(f"/v1.44/exec/{one}/start", {"Detach": False}) as sock:
        assert frames(everything(sock)) == (b"/w\n0\nv\n", b"err\n")
    assert engine.ask("GET", f"/exec/{one}/json", status=200)["ExitCode"] == 4
    engine.ask("POST", f"/exec/{one}/start", {}, 409)
    with engine.hijack(f"/exec/{made(['cat'], AttachStdin=True)}/start", {}) as sock:
        sock.sendall(b"some\n")
        assert sock.recv(8 + 5, socket.MSG_WAITALL)[8:] == b"some\n"
        sock.sendall(b"more\n" * 100000)
        sock.shutdown(socket.SHUT_WR)
        assert frames(everything(sock))[0] == b"more\n" * 100000
    tty = made(["sh", "-c", "stty size; read x; stty size; echo $x"], AttachStdin=True, Tty=True)
    with engine.hijack(f"/exec/{tty}/start", {"Tty": True, "ConsoleSize": [30, 100]}) as sock:
        assert sock.recv(100).startswith(b"30 100")
        engine.ask("POST", f"/exec/{tty}/resize?h=40&w=120", status=200)
        sock.sendall(b"typed\n")
        assert b"40 120" in (data := everything(sock)) and b"typed" in data
    assert frames(engine.ask("POST", f"/exec/{made(['echo', 'plain'])}/start", {}, 200))[0] == b"plain\n"
    # The request that starts it says whether its output has heads.
    assert frames(engine.ask("POST", f"/exec/{made(['echo', 'headed'], Tty=True)}/start", {}, 200))[0] == b"headed\r\n"
    assert engine.ask("POST", f"/exec/{made(['echo', 'bare'])}/start", {"Tty": True}, 200) == b"bare\n"
    engine.ask("POST", f"/exec/{(left := made(['sh', '-c', 'echo x >/w/left']))}/start", {"Detach": True}, 200)
    assert wait_until(lambda: engine.ask("GET", f"/exec/{left}/json", status=200)["ExitCode"] == 0)
    missing = made(["nothing-of-that-name"])
    with engine.hijack(f"/exec/{missing}/start", {}) as sock:
        assert b"executable file not found" in everything(sock)
    assert engine.ask("GET", f"/exec/{missing}/json", status=200)["ExitCode"] == 127
    assert "Privileged" in engine.ask("POST", f"/containers/{box}/exec", {"Cmd": ["true"], "Privileged": True}, 400)["message"]
    for _ in range(70): # those that ended are forgotten for new ones
        engine.ask("POST", f"/exec/{(last := made(['true']))}/start", {}, 200)
    engine.ask("GET", f"/exec/{one}/json", status=404)
    assert [engine.ask("POST", f"/containers/{box}/exec", {"Cmd": ["true"]}).get("Id") for _ in range(65)][-1] is None
    engine.ask("POST", f"/exec/{last}/start", {}, 404)


def test_a_slow_reader_slows_the_command(engine):
    box = engine.create("sh", "-c", "head -c 50000000 /dev/zero; echo end", Tty=False)["Id"]
    with engine.hijack(f"/containers/{box}/attach?stream=1&stdout=1&stderr=1") as sock:
        engine.ask("POST", f"/containers/{box}/start", status=204)
        assert not wait_until(lambda: not engine.state(box)["Running"], 1.5)
        out, err = frames(everything(sock))
        assert len(out) == 50000004 and out.endswith(b"end\n") and err == b""
    assert len(engine.ask("GET", f"/containers/{box}/logs?stdout=1", status=200)) <= 128 * 1024


def test_files(engine):
    box = engine.run("sleep", "1000")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in {"a": b"one", "d/b": b"two"}.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o640
            tar.addfile(info, io.BytesIO(content))
    engine.ask("PUT", f"/containers/{box}/archive?path=/tmp/in", data.getvalue(), 200)
    for path, names in (("/tmp/in/a", {"a": b"one"}), ("/tmp/in", {"in/a": b"one", "in/d/b": b"two"}), ("/tmp/in/d/", {"d/b": b"two"})):
        with tarfile.open(fileobj=io.BytesIO(engine.ask("GET", f"/containers/{box}/archive?path={path}", status=200))) as tar:
            assert {m.name: tar.extractfile(m).read() for m in tar if m.isfile()} == names
    status, headers, _ = raw(engine.service, "HEAD", f"/containers/{box}/archive?path=/tmp/in/a")
    stat = json.loads(base64.b64decode(headers["X-Docker-Container-Path-Stat"]))
    assert status == 200 and stat["name"] == "a" and stat["size"] == 3 and stat["mode"] == 0o640
    assert "Could not find the file /none" in engine.ask("GET", f"/containers/{box}/archive?path=/none", status=404)["message"]


@pytest.mark.parametrize("host, says", [
    ({"Privileged": True}, "HostConfig.Privileged"), ({"CapAdd": ["SYS_ADMIN"]}, "HostConfig.CapAdd"), ({"Devices": [{"PathOnHost": "/dev/kvm"}]}, "HostConfig.Devices"),
    ({"PidMode": "host"}, "HostConfig.PidMode host"), ({"NetworkMode": "host"}, "HostConfig.NetworkMode host"), ({"NetworkMode": "container:x"}, "NetworkMode container:x"),
    ({"UsernsMode": "host"}, "UsernsMode"), ({"IpcMode": "host"}, "IpcMode host"), ({"UTSMode": "host"}, "UTSMode"), ({"CgroupnsMode": "host"}, "CgroupnsMode host"),
    ({"SecurityOpt": ["seccomp=unconfined"]}, "SecurityOpt"), ({"Runtime": "crun"}, "Runtime crun"), ({"PortBindings": {"80/tcp": [{"HostPort": "80"}]}}, "PortBindings is not supported: 'cove url NAME PORT'"),
    ({"ReadonlyRootfs": True}, "ReadonlyRootfs"), ({"RestartPolicy": {"Name": "always"}}, "RestartPolicy"), ({"Tmpfs": {"/t": ""}, "Sysctls": {"a": "b"}}, "Sysctls"),
    ({"VolumesFrom": ["x"]}, "VolumesFrom"), ({"Binds": ["/etc:/e"]}, "/etc"), ({"Binds": ["/var/run/docker.sock:/s"]}, "docker.sock"), ({"Binds": ["novolume:/v"]}, "novolume"),
    ({"Mounts": [{"Type": "tmpfs", "Target": "/t"}]}, "Type tmpfs"), ({"DeviceRequests": [{"Driver": "nvidia", "Count": -1}]}, "DeviceRequests"), ({"Unheard": 1}, "Unheard")])
def test_refused_by_name(engine, host, says):
    said = engine.create("true", host=host, status=400)["message"]
    assert says in said and not engine.service.sandboxes(), said


def test_limits_and_network(engine):
    box = engine.create("true", host={"Memory": 256 << 20, "NanoCpus": 500000000, "NetworkMode": "none", "CapDrop": ["ALL"], "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}})["Id"]
    shown = engine.service.request("GET", f"/cove/v1/sandboxes/{box}")[2]
    assert shown["memory_bytes"] == 256 << 20 and shown["cpu_milli"] == 500
    assert engine.service.request("GET", f"/cove/v1/sandboxes/{box}/network")[2]["default"] == "deny"
    assert engine.create(status=400)["message"].startswith("no command") and engine.ask("POST", "/containers/create", {"Image": "none", "Cmd": ["x"]}, 404)["message"] == "No such image: none"


def test_a_name_is_of_its_tenant_alone(engine, service):
    """Whoever sees all tenants' gets none of another one's by a name or an id that is somebody's own."""
    def ran(*arguments):
        done = service.cove(*arguments)
        assert done.returncode == 0, done
        return done.stdout.strip()
    ran("tenant", "create", "other")
    key = ran("key", "create", "--tenant", "other", "--name", "k", "--scope", "admin")

    def other(name):
        status, _, answer = raw(service, "POST", f"/containers/create?name={name}", '{"Image": "base", "Cmd": ["true"]}', key=key)
        assert status == 201, answer
        return json.loads(answer)["Id"]
    mine = engine.create("true", name="web")["Id"]
    theirs = [other("web"), other(mine), other("db")]
    for name in ("web", mine):
        assert engine.ask("GET", f"/containers/{name}/json", status=200)["Id"] == mine
        assert json.loads(ran("docker", "inspect", name))[0]["Id"] == mine
    engine.ask("GET", "/containers/db/json", status=404)
    assert engine.ask("GET", f"/containers/{theirs[2]}/json", status=200)["Name"] == "/db"
    engine.create("true", name="db")
    assert json.loads(raw(service, "GET", "/containers/web/json", key=key)[2])["Id"] == theirs[0]
    engine.ask("DELETE", "/containers/i", status=404) # the beginning of them all
    assert len(engine.ask("GET", "/containers/json?all=1", status=200)) == 5
    for made in theirs: # their tenant goes with them
        engine.ask("DELETE", f"/containers/{made}", status=204)
    ran("tenant", "rm", "other")


def test_what_a_terminal_would_obey_is_no_name(engine):
    for name in ("a%0ab", "a%1b%5b2Jb", "a/b", "-a", "%e2%80%ae", "a%20b"):
        assert "container name" in engine.create("true", name=name, status=400)["message"]
    assert "reference" in engine.ask("POST", "/containers/create", {"Image": "base\x1b[2J", "Cmd": ["true"]}, 400)["message"]


def test_what_is_kept_and_compared_is_bounded(engine):
    box = engine.run("sleep", "1000")
    made = [engine.ask("POST", f"/containers/{box}/exec", {"Cmd": ["true"], "DetachKeys": "x" * 200000}) for _ in range(6)]
    assert [("Id" in answer) for answer in made] == [True] * 5 + [False] and "1 MiB" in made[5]["message"]
    engine.ask("POST", f"/exec/{made[0]['Id']}/start", {}, 200)
    engine.ask("POST", f"/containers/{box}/exec", {"Cmd": ["true"], "DetachKeys": "x" * 200000}, 201)
    labels = urllib.parse.quote(json.dumps({"label": ["a"] * 101}))
    pattern = urllib.parse.quote('{"name":["^/x$"]}')
    assert "no regular expression" in engine.ask("GET", f"/containers/json?filters={pattern}", status=400)["message"]
    assert "more than 100" in engine.ask("GET", f"/containers/json?filters={labels}", status=400)["message"]


def test_images(engine):
    assert "base:latest" in [tag for image in engine.ask("GET", "/images/json", status=200) for tag in image["RepoTags"]]
    assert engine.ask("GET", "/v1.44/images/docker.io/library/base:latest/json", status=200)["Os"] == "linux"
    assert engine.ask("GET", "/v1.44/images/some/where/none:1/json", status=404)["message"] == "No such image: some/where/none:1"
    assert b"up to date" in raw(engine.service, "POST", "/v1.44/images/create?fromImage=base&tag=latest")[2]
    said = [json.loads(line) for line in raw(engine.service, "POST", "/v1.44/images/create?fromImage=127.0.0.1:1/none&tag=1")[2].splitlines()]
    assert "Pulling" in said[0]["status"] and said[-1]["error"] == said[-1]["errorDetail"]["message"]
    engine.ask("POST", "/images/create?fromSrc=-", b"", 400)


def test_the_api_s_end_is_not_the_containers(engine, service):
    """What a container's command is doing is known to the next worker, too."""
    box = engine.run("sh", "-c", "sleep 3; exit 9", name="kept")
    made = engine.create("true", name="idle")["Id"]
    os.kill(service.child("cove-api"), 9)
    assert wait_until(lambda: service.is_ready() and engine.state(box)["Status"] in ("running", "exited"))
    assert engine.state(made)["Status"] == "created"
    assert wait_until(lambda: engine.state(box)["Status"] == "exited")
    engine.ask("POST", "/containers/kept/start", status=204)
    assert engine.state("kept")["Running"] and engine.ask("POST", "/containers/kept/wait", status=200) == {"StatusCode": 9}


# ---- the real one ----

REAL = shutil.which("docker")
needs_docker = pytest.mark.skipif(not REAL or Path(REAL).resolve() == (BUILD / "cove").resolve(), reason="there is no docker here")


@pytest.fixture
def docker(service, tmp_path):
    def run(*words, env=None, **options):
        return subprocess.run([REAL, *map(str, words)], env={**os.environ, "DOCKER_HOST": f"unix://{service.run}/cove.sock", "DOCKER_CONFIG": str(tmp_path), **(env or {})},
                              **{"capture_output": True, "text": True, "timeout": 100, "check": False, "stdin": subprocess.DEVNULL, **options})
    return run


@needs_docker
def test_docker_run(docker):
    done = docker("run", "--rm", "-w", "/made/here", "-e", "A=b c", "base", "sh", "-c", "pwd; echo $A; id -u; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "/made/here\nb c\n0\n", "err\n")
    assert docker("run", "-i", "--rm", "base", "cat", stdin=None, input="from here").stdout == "from here"
    assert docker("run", "--rm", "base", "sh", "-c", "kill -9 $$").returncode == 137 and docker("run", "--rm", "base", "/nowhere").returncode == 127
    assert docker("run", "--rm", "--entrypoint", "echo", "base", "words").stdout == "words\n" and docker("run", "base").returncode == 125
    done = docker("run", "--rm", "--privileged", "base", "true")
    assert done.returncode == 125 and "HostConfig.Privileged is not supported" in done.stderr


@needs_docker
def test_docker_verbs(docker, tmp_path):
    box = docker("run", "-d", "--name", "box", "--label", "a=1", "base", "sh", "-c", "echo out; echo err >&2; exec sleep 100").stdout.strip()
    assert docker("ps", "-q", "--no-trunc").stdout.strip() == box and docker("ps", "--filter", "name=bo", "--format", "{{.Names}} {{.State}}").stdout == "box running\n"
    assert docker("inspect", "-f", "{{.State.Running}}", "box").stdout == "true\n"
    done = docker("exec", "-i", "-w", "/tmp", "-e", "K=v", "box", "sh", "-c", "echo $K; pwd; cat; exit 3", stdin=None, input="in")
    assert (done.returncode, done.stdout) == (3, "v\n/tmp\nin"), done
    done = docker("exec", "-d", "box", "touch", "/tmp/made")
    assert done.returncode == 0 and wait_until(lambda: docker("exec", "box", "ls", "/tmp/made").returncode == 0)
    assert wait_until(lambda: docker("logs", "box").stdout == "out\n") and docker("logs", "box").stderr == "err\n"
    (tmp_path / "d").mkdir()
    (tmp_path / "d/file").write_text("content")
    assert docker("cp", tmp_path / "d/file", "box:/place").returncode == 0 and docker("exec", "box", "cat", "/place").stdout == "content"
    assert docker("cp", tmp_path / "d", "box:/tmp/dir").returncode == 0 and docker("cp", "box:/tmp/dir", tmp_path / "back").returncode == 0
    assert (tmp_path / "back/file").read_text() == "content" and docker("cp", "box:/tmp/dir/file", tmp_path / "one").returncode == 0
    assert (tmp_path / "one").read_text() == "content"
    assert docker("stop", "-t", "1", "box").stdout == "box\n" and docker("ps", "-aq", "--filter", "status=exited", "--no-trunc").stdout.strip() == box
    assert docker("start", "box").stdout == "box\n" and docker("kill", "box").returncode == 0 and docker("wait", "box").stdout == "137\n"
    assert docker("rm", "box").stdout == "box\n" and "base" in docker("images", "--format", "{{.Repository}}").stdout.split()
    assert "25.0.0" in docker("version").stdout and docker("info").returncode == 0 and docker("image", "inspect", "base").returncode == 0
    done = docker("commit", "box")
    assert done.returncode and "is not supported" in done.stderr, done


@needs_docker
def test_docker_with_a_key(docker, service, tmp_path):
    where = {"DOCKER_HOST": f"tcp://127.0.0.1:{service.port}"}
    assert "key is needed" in docker("ps", env=where).stderr
    (tmp_path / "config.json").write_text(json.dumps({"HttpHeaders": {"X-API-KEY": service.key}}))
    assert docker("run", "--rm", "base", "echo", "there", env=where).stdout == "there\n"


# ---- users of the group ----

@needs_docker
def test_users_of_the_group_have_their_own(group_service): # noqa: F811
    service = group_service

    def docker(uid, *words):
        return subprocess.run([REAL, *map(str, words)], user=uid, group=uid, extra_groups=[GROUP], env={"DOCKER_HOST": f"unix://{service.run}/cove.sock", "HOME": "/nonexistent", "PATH": os.environ["PATH"]},
                              capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL)
    mine, other = service.allowed / "mine", service.allowed / "others"
    for place, uid in ((mine, DAEMON), (other, 4002)):
        place.mkdir()
        os.chown(place, uid, uid)
    assert docker(DAEMON, "run", "-d", "--name", "box", "-v", f"{mine}:/w", "base", "sleep", "100").returncode == 0
    assert docker(DAEMON, "exec", "-u", "user", "box", "sh", "-c", "echo hi >/w/f").returncode == 0 and (mine / "f").read_text() == "hi\n"
    assert "box" in docker(DAEMON, "ps").stdout and "box" not in docker(4002, "ps", "-a").stdout and "No such container" in docker(4002, "rm", "-f", "box").stderr
    for place in (other, "/etc", "/root"):
        assert docker(DAEMON, "run", "--rm", "-v", f"{place}:/w", "base", "true").returncode == 125, place
    assert docker(DAEMON, "rm", "-f", "box").returncode == 0
