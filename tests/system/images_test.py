# SPDX-License-Identifier: Apache-2.0
"""Templates from the images of a real registry (Debian's docker-registry, filled by skopeo): credentials, digests, and registries that fail."""

import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from archives import image_archive
from leaks import end_whole
from service import BUILD, Service, children, read, reserve_port, wait_until
from templates_test import Templates

USER, PASSWORD, WRONG = "puller", "hunter-2-of-the-registry", "no-such-word-in-the-registry"
BCRYPT = "$2b$04$h2URzi160XJQrMMM9iQGkupMWKgimV6S4TGFGETGeGzV05RWlC6Ke" # of PASSWORD
CONFIG = """version: 0.1
log: {{accesslog: {{disabled: true}}, level: error}}
storage: {{filesystem: {{rootdirectory: {storage}}}}}
http: {{addr: "127.0.0.1:{port}"}}
{auth}"""


class Registry:
    """docker-registry on a port of its own."""

    def __init__(self, where, with_auth=False):
        where.mkdir()
        self.where, self.port, self.with_auth = where, reserve_port(), with_auth
        self.host = f"127.0.0.1:{self.port}"
        (where / "users").write_text(f"{USER}:{BCRYPT}\n")
        auth = f"auth: {{htpasswd: {{realm: cove, path: {where / 'users'}}}}}\n" if with_auth else ""
        (where / "config.yml").write_text(CONFIG.format(storage=where / "storage", port=self.port, auth=auth))
        self.process = None

    def answers(self):
        try:
            with urllib.request.urlopen(f"http://{self.host}/v2/", timeout=5) as answer:
                return answer.status == 200
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            return False

    def start(self):
        with open(self.where / "log", "ab") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", self.where / "config.yml"], stdout=log, stderr=log)
        assert wait_until(self.answers), (self.where / "log").read_text()
        return self

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait(60)
        self.process = None

    def push(self, archive, name):
        """The digest of what was pushed."""
        credentials = ["--dest-creds", f"{USER}:{PASSWORD}"] if self.with_auth else []
        digest = self.where / "digest"
        done = subprocess.run(["skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", "--digestfile", digest, *credentials,
                               f"docker-archive:{archive}", f"docker://{self.host}/{name}"],
                              capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, done.stderr
        return digest.read_text().strip()


class Thin:
    """A way to a registry that lets so many bytes of its answers pass, and then is gone for good, the registry with it."""

    def __init__(self, registry, budget):
        self.registry, self.left = registry, budget
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.registry.port))
            except OSError:
                return
            threading.Thread(target=self.pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.pump, args=(server, client, True), daemon=True).start()

    def pump(self, source, target, counts):
        try:
            while part := source.recv(65536):
                if counts:
                    self.left -= len(part)
                    if self.left <= 0:
                        self.registry.stop()
                        self.close()
                        break
                target.sendall(part)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()


class World:
    def __init__(self, where):
        self.open = Registry(where / "open").start()
        self.closed = Registry(where / "closed", with_auth=True).start()
        self.dying = Registry(where / "dying").start()
        self.archive = where / "tiny.tar"
        image_archive(self.archive)
        self.digest = self.open.push(self.archive, "tiny:v1")
        self.closed.push(self.archive, "tiny:v1")
        self.dying.push(self.archive, "tiny:v1")
        self.thin = Thin(self.dying, 400_000)
        self.silent = socket.create_server(("127.0.0.1", 0))
        self.silent_host = f"127.0.0.1:{self.silent.getsockname()[1]}"
        self.service = None

    def stop(self):
        self.thin.close()
        self.silent.close()
        for registry in (self.open, self.closed, self.dying):
            registry.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    for program in ("docker-registry", "skopeo"):
        if not shutil.which(program):
            pytest.skip(f"there is no {program}: install the packages of the test group")
    directory = Path(tempfile.mkdtemp(prefix="test-images-", dir=BUILD))
    directory.chmod(0o755)
    world, service = None, Service(directory)
    try:
        world = World(tmp_path_factory.mktemp("registries"))
        world.service = service
        service.env.update(COVE_IMAGE_INSECURE=",".join((world.open.host, world.closed.host, world.thin.host, world.silent_host)))
        service.env.update(COVE_CONFIG=str(directory / "cove.yaml"))
        (directory / "cove.yaml").write_text("builds: {concurrency: 5}\n")
        service.start()
        yield world
        end_whole(service)
    finally:
        if world:
            world.stop()
            if service.coved and service.coved.poll() is None:
                service.stop()
        service.remove()


@pytest.fixture
def templates(world):
    yield Templates(world.service)
    world.service.remove_all()


def layers(service):
    return {path.name for path in (service.state / "pool" / "layers").iterdir()}


def fails(templates, **more):
    reason, log = templates.fails([], "base", **more)
    assert WRONG not in reason + log and PASSWORD not in reason + log
    return reason


def in_what_is_kept(service, secret):
    """Files of the service that hold the text: its log, its store with all events. Not those of sandboxes."""
    files = [str(service.log)]
    for path, directories, names in os.walk(service.state): # and what goes meanwhile is passed over
        directories[:] = [name for name in directories if (path, name) != (str(service.state), "pool")]
        files += [os.path.join(path, name) for name in names]
    return [path for path in files if secret in read(path)]


def test_by_the_api(world, templates):
    image = f"{world.open.host}/tiny:v1"
    (template, _), log = templates.ready([("RUN", ["echo $FROM_IMAGE >/tmp/made"])], fromImage=image)
    assert world.digest in log and "MiB" in log, log
    assert templates.run(template, "cat /tmp/made; id -un; echo $FROM_IMAGE; pwd") == "yes\nuser\nyes\n/home/user"
    before = layers(world.service)
    (_, _), log = templates.ready([("RUN", ["echo $FROM_IMAGE >/tmp/made"])], fromImage=image)
    assert "CACHED [base]" in log and log.count("CACHED") == 2
    assert layers(world.service) <= before
    (template, _), log = templates.ready(fromImage=f"{world.open.host}/tiny@{world.digest}")
    assert templates.run(template, "echo $FROM_IMAGE") == "yes"


def test_by_the_command_line(world, templates, tmp_path):
    service, image = world.service, f"{world.open.host}/tiny:v1"
    done = service.cove("template", "build", "--name", "line", "--from-image", image)
    assert done.returncode == 0, done.stderr
    assert templates.run("line", "echo $FROM_IMAGE") == "yes"
    (tmp_path / "Dockerfile").write_text(f"FROM {world.open.host}/tiny@{world.digest}\nCOPY page /srv/page\nRUN echo $FROM_IMAGE >/srv/made\n")
    (tmp_path / "page").write_text("page\n")
    done = service.cove("template", "build", "--name", "file", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert templates.run("file", "cat /srv/page /srv/made") == "page\nyes"
    done = service.cove("template", "build", "--name", "none", "--from-image", f"{world.open.host}/none")
    assert done.returncode == 1 and "at step base" in done.stderr and "none" in done.stderr, done.stderr


def test_with_credentials(world, templates):
    image = f"{world.closed.host}/tiny:v1"
    given = {"type": "registry", "username": USER, "password": PASSWORD}
    reason = fails(templates, fromImage=image)
    assert image in reason and "credentials" in reason, reason
    reason = fails(templates, fromImage=image, fromImageRegistry={**given, "password": WRONG})
    assert image in reason, reason
    (template, _), log = templates.ready(fromImage=image, fromImageRegistry=given)
    assert PASSWORD not in log
    assert templates.run(template, "echo $FROM_IMAGE") == "yes"
    # Who does not know the password gets nothing of what was fetched with it.
    fails(templates, fromImage=image)
    fails(templates, fromImage=image, fromImageRegistry={**given, "password": WRONG})
    for secret in (PASSWORD, WRONG):
        assert in_what_is_kept(world.service, secret) == []


def test_with_credentials_by_the_command_line(world, templates, tmp_path):
    image, told = f"{world.closed.host}/tiny:v1", []
    config = tmp_path / "docker" / "config.json"
    config.parent.mkdir()
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\nRUN echo $FROM_IMAGE >/made\n")

    def build(*arguments, **options):
        done = world.service.cove("template", "build", "--name", "closed", "--no-cache", *arguments, **options)
        told.append(done.stdout + done.stderr)
        return done
    given = ("--registry-user", USER, "--registry-password-stdin")
    done = build("--from-image", image, *given, input=PASSWORD + "\n")
    assert done.returncode == 0, done.stderr
    done = build(str(tmp_path), *given, "--json", input=PASSWORD)
    assert done.returncode == 0, done.stderr
    assert templates.run("closed", "cat /made") == "yes"
    done = build("--from-image", image, *given, input=WRONG)
    assert done.returncode == 1 and "at step base" in done.stderr, done.stderr
    assert build("--from-image", image, *given, input="").returncode == 1
    # What stands in the configuration of Docker is used when asked for, and only for the registry that it names.
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    config.write_text(json.dumps({"auths": {f"http://{world.closed.host}/v2/": {"auth": auth}}}))
    environment = {"DOCKER_CONFIG": str(config.parent)}
    assert build(str(tmp_path), env=environment).returncode == 1
    done = build(str(tmp_path), "--docker-config", env=environment)
    assert done.returncode == 0 and f"has credentials for {world.closed.host}" in done.stderr, done.stderr
    assert build(str(tmp_path), "--docker-config-file", str(config)).returncode == 0
    assert build(str(tmp_path), "--docker-config", env={"HOME": str(tmp_path)}).returncode == 1
    config.write_text(json.dumps({"auths": {"ghcr.io": {"auth": auth}}}))
    done = build(str(tmp_path), "--docker-config", env=environment)
    assert done.returncode == 1 and f"no credentials for {world.closed.host}" in done.stderr, done.stderr
    rows = json.dumps(world.service.request("GET", "/cove/v1/templates?ref=closed")[2])
    for secret in (PASSWORD, WRONG, auth):
        assert secret not in "".join(told) + rows and in_what_is_kept(world.service, secret) == []


def test_what_is_not_there(world, templates):
    before = layers(world.service)
    for image, said in ((f"{world.open.host}/tiny:v2", "v2"), (f"{world.open.host}/nobody/nothing", "nothing"),
                        (f"{world.open.host}/tiny@sha256:{'0' * 64}", "0000")):
        reason = fails(templates, fromImage=image)
        assert said in reason and "no such" in reason, reason
    assert "image" in fails(templates, fromImage="NOT/a name")
    assert wait_until(lambda: layers(world.service) <= before), layers(world.service) - before


def test_private_addresses_are_refused_unless_they_are_listed(world, templates):
    for host in (f"127.0.0.2:{world.open.port}", f"localhost:{world.open.port}", f"[::1]:{world.open.port}", "169.254.169.254", "10.0.0.1:5000"):
        reason = fails(templates, fromImage=f"{host}/tiny:v1")
        assert "private" in reason or "not public" in reason or "insecure" in reason, reason


@pytest.mark.timeout(600)
def test_a_registry_that_dies_in_the_middle(world, templates):
    before = layers(world.service)
    _, last, log = templates.build(fromImage=f"{world.thin.host}/tiny:v1", seconds=300)
    assert last["status"] == "error" and last["reason"]["step"] == "base", (last, log)
    assert world.thin.host in last["reason"]["message"] and not world.dying.process, last
    assert wait_until(lambda: layers(world.service) <= before), layers(world.service) - before
    # The service is none the worse for it.
    templates.ready(fromImage=f"{world.open.host}/tiny:v1", force=True)


class OpenSandbox:
    """Its lifecycle API, of images alone."""

    def __init__(self, service):
        self.service = service

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        connection.request(method, f"/v1/sandboxes{path}", body and json.dumps(body), headers or {"OPEN-SANDBOX-API-KEY": self.service.key})
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if "json" in answer.headers.get("Content-Type", "") else data

    def create(self, uri, **image):
        status, made = self.ask("POST", "", {"image": {"uri": uri, **image}, "timeout": 300, "metadata": {"of": "pull"}, "entrypoint": ["sh", "-c", "echo up >/tmp/up"]})
        assert status == 202, made
        return made

    def settled(self, made):
        def look():
            seen = self.ask("GET", f"/{made['id']}")[1]
            return seen["status"]["state"] != "Pending" and seen
        return wait_until(look)


def test_sandboxes_of_opensandbox_wait_for_their_image(world):
    api, image = OpenSandbox(world.service), f"{world.open.host}/tiny@{world.digest}"
    first, second = api.create(image), api.create(image)
    assert first["status"]["state"] == "Pending" and first["status"]["reason"] == "IMAGE_PULLING" and first["image"] == {"uri": image}
    assert second["status"]["state"] in ("Pending", "Running") # a small image may be there by now
    listed = {i["id"] for i in api.ask("GET", "?state=Pending&metadata=of%3Dpull")[1]["items"]}
    still = {made["id"] for made in (first, second) if api.ask("GET", f"/{made['id']}")[1]["status"]["state"] == "Pending"}
    assert still <= listed <= {first["id"], second["id"]} # a small image may be there meanwhile
    status, endpoint = api.ask("GET", f"/{first['id']}/endpoints/44772")
    assert status == 200 and endpoint["endpoint"].endswith(f"/{first['id']}/proxy/44772")
    token = endpoint["headers"]
    assert api.ask("GET", f"/{first['id']}/proxy/44772/ping", headers=token)[0] in (200, 503)
    assert api.ask("POST", f"/{first['id']}/pause")[0] in (202, 409)
    for made in (first, second):
        assert api.settled(made)["status"]["state"] in ("Running", "Paused"), api.settled(made)
    assert api.ask("GET", f"/{second['id']}/proxy/44772/metrics", headers=token)[0] == 401
    token = api.ask("GET", f"/{second['id']}/endpoints/44772")[1]["headers"]
    status, events = api.ask("POST", f"/{second['id']}/proxy/44772/command", {"command": "cat /tmp/up; echo $FROM_IMAGE"}, token)
    assert status == 200 and b'"yes"' in events, events
    third = api.create(image)
    assert third["status"]["state"] == "Running" # it is here now
    for made in (first, second, third):
        assert api.ask("DELETE", f"/{made['id']}")[0] == 204


def test_a_private_image_of_opensandbox_wants_its_credentials_each_time(world):
    api, image = OpenSandbox(world.service), f"{world.closed.host}/tiny:v1"
    good = {"username": USER, "password": PASSWORD}
    assert api.settled(api.create(image, auth=good))["status"]["state"] == "Running"
    for auth in ({}, {"auth": {**good, "password": WRONG}}):
        made = api.create(image, **auth)
        seen = api.settled(made)["status"]
        assert (seen["state"], seen["reason"]) == ("Failed", "IMAGE_PULL_FAILED") and seen["message"], seen
        # What SDKs wait by ends with the reason.
        assert api.ask("GET", f"/{made['id']}/endpoints/44772")[0] == 409
        status, answer = api.ask("GET", f"/{made['id']}/proxy/44772/ping")
        assert status == 403 and answer == {"code": "IMAGE_PULL_FAILED", "message": seen["message"]}, answer
        assert api.ask("DELETE", f"/{made['id']}")[0] == 204 and api.ask("GET", f"/{made['id']}")[0] == 404
    assert api.settled(api.create(image, auth=good))["status"]["state"] == "Running"
    assert api.ask("POST", "", {"image": {"uri": image, "auth": {"username": 1}}})[0] == 422
    for secret in (PASSWORD, WRONG):
        assert in_what_is_kept(world.service, secret) == []
    world.service.remove_all()


def test_a_registry_that_hangs_keeps_no_sandbox_of_opensandbox(world):
    api = OpenSandbox(world.service)
    made = api.create(f"{world.silent_host}/tiny:v1")
    assert made["status"]["state"] == "Pending"
    image = wait_until(lambda: world.service.child("cove-image"))
    halves = wait_until(lambda: len(found := children(image)) == 2 and found)
    # Nobody's sandbox is killed for the memory that it takes.
    assert [read(f"/proc/{pid}/oom_score_adj") for pid in (image, *halves)] == ["1000\n"] * 3
    assert api.ask("DELETE", f"/{made['id']}")[0] == 204
    assert api.ask("GET", f"/{made['id']}")[0] == 404
    assert wait_until(lambda: world.service.child("cove-image") is None)
    refused = api.ask("POST", "", {"image": {"uri": "Not An Image"}})
    assert refused[0] == 400 or api.settled(refused[1])["status"]["state"] == "Failed", refused


def test_as_many_images_are_fetched_as_builds_may_run(world, templates):
    fetchers = lambda: [pid for pid in world.service.children() if read(f"/proc/{pid}/comm") == "cove-image\n"]
    asked = [templates.request() for _ in range(5)]
    for ids in asked:
        assert templates.start(ids, fromImage=f"{world.silent_host}/tiny:v1")[0] == 202
    wait_until(lambda: len(fetchers()) == 5 or any(templates.status(ids)["status"] == "error" for ids in asked))
    assert [templates.status(ids)["status"] for ids in asked] == ["building"] * 5 and len(fetchers()) == 5
    for ids in asked:
        assert templates.call("DELETE", f"/templates/{ids[0]}")[0] == 204
    assert wait_until(lambda: world.service.child("cove-image") is None)
