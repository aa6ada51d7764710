# SPDX-License-Identifier: Apache-2.0
"""Services: programs of another template beside a sandbox's own, in its network and its limits."""

import json
import os
import shutil
import signal

import pytest
from archives import docker_archive
from images_test import Registry
from leaks import own_service
from service import wait_until
from tenant_test import ask as by_key

PAGE = "import urllib.request as u; print(u.urlopen(\"http://{at}:{port}/{path}\", timeout=5).read().decode().strip())"
SERVER = "mkdir -p /srv && cd /srv && date +%s%N >>starts && exec python3 -m http.server {port}"


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = Registry(tmp_path_factory.mktemp("registry") / "it")
    yield registry
    registry.stop()


@pytest.fixture(scope="module")
def service(registry, tmp_path_factory):
    config = tmp_path_factory.mktemp("config") / "config.yaml"
    config.write_text(f"images: {{insecure: ['{registry.host}']}}\n")
    with own_service("services", COVE_CONFIG=str(config)) as service:
        yield service


class Box:
    def __init__(self, service, found=None, key=None, **spec):
        self.service, self.key, self.id = service, key, found
        if not found:
            status, made = self.send("POST", "/cove/v1/sandboxes", {"template": "base", **spec})
            assert status == 201, made
            self.id = made["id"]

    def send(self, method, path, body=None):
        if self.key:
            return by_key(self.service, self.key, method, path, body)
        status, _, answer = self.service.request(method, path, body)
        return status, answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.send("DELETE", f"/cove/v1/sandboxes/{self.id}")

    def ask(self, method, rest, body=None):
        return self.send(method, f"/cove/v1/sandboxes/{self.id}{rest}", body)

    def add(self, name="db", port=5432, status=201, **more):
        spec = {"name": name, "command": SERVER.format(port=port), "ports": [port], **({} if "image" in more else {"template": "base"}), **more}
        got, answer = self.ask("POST", "/services", spec)
        assert got == status, answer
        return answer

    def services(self):
        return {s["name"]: s["state"] for s in self.ask("GET", "/services")[1]["services"]}

    def run(self, script, user="user"):
        done = self.service.cove("exec", "-u", user, self.id, "--", "sh", "-c", script)
        return (done.stdout + done.stderr).strip()

    def page(self, at="db", port=5432, path=""):
        return self.run(f"python3 -c '{PAGE.format(at=at, port=port, path=path)}'")

    def starts(self):
        return self.page(path="starts").split()


def test_it_is_reached_by_name_and_at_localhost(service):
    with Box(service, env={"SECRET": "of the agent"}) as box:
        made = box.add(command="echo $NAME $SECRET $(hostname) $(id -un) $PWD >/srv/page; " + SERVER.format(port=5432), env={"NAME": "hello"})
        assert (made["name"], made["ports"], made["state"]) == ("db", [5432], "running") and "env" not in made and "hello" not in json.dumps(made["ports"])
        assert [box.page(at, path="page") for at in ("db", "127.0.0.1", "localhost")] == ["hello db root /"] * 3
        box.add("cache-1", 6379, ready="test -s /srv/starts", command="sleep 0.5; " + SERVER.format(port=6379) + " --bind 127.0.0.1; ")
        assert len(box.page("cache-1", 6379, "starts").split()) == 1 and box.services() == {"db": "running", "cache-1": "running"}
        assert box.run("grep -c '^127.0.0.1.*db$' /etc/hosts") == "1"


LOOK = """
ls /home/user/agents /tmp/agents /dev/shm/agents /proc/*/root/home/user/agents
echo x >>/etc/hosts
mount -t tmpfs x /mnt
unshare -m true
cat /proc/[0-9]*/comm
"""


def test_neither_sees_the_others_files_or_processes(service):
    with Box(service) as box:
        box.run("for at in /home/user /tmp /dev/shm; do echo x >$at/agents; done; sleep 1234 >/dev/null 2>&1 &")
        box.add(command=f"mkdir -p /srv; cd /srv; ({LOOK}) >seen 2>&1; echo x >/only; cat /etc/hosts >hosts; {SERVER.format(port=5432)}")
        seen = box.page(path="seen")
        assert seen.count("No such file") == 4 and "sleep" not in seen, seen
        assert "mount: " in seen and "unshare: " in seen and ("Read-only" in seen or "ermission denied" in seen), seen
        assert "127.0.0.1\tdb" in box.page(path="hosts")
        assert "No such file" in box.run("cat /only", "root") and "No such file" in box.run("cat /srv/seen", "root")
        # The sandbox's own root sees into its processes, whosever root they have.
        assert "denied" in box.run("sh -c 'for p in /proc/[0-9]*; do test $(cat $p/comm) = python3 && cat $p/root/only; done'")


def test_what_is_refused(service):
    with Box(service) as box:
        for name in ("", "A", "-a", "a.b", "a/b", "..", "localhost", "x" * 33, "a\nb"):
            box.add(name, status=400)
        box.add("none", template="no-such-template", status=404)
        box.add("none", ports=[0], status=400)
        box.add("none", ports=[70000], status=400)
        box.add("none", env={"A=B": "c"}, status=400)
        assert "give a command" in box.add("none", command=None, status=400)["error"]["message"]
        assert "ended with status 3: last words" in box.add("none", command="echo last words; exit 3", status=400)["error"]["message"]
        assert box.services() == {}
        box.add()
        assert "there is a service" in box.add(status=409)["error"]["message"]
        for i in range(7):
            box.add(f"more-{i}", 6000 + i)
        box.add("more", 7000, status=429)


def test_another_tenants_template_is_not_there(service):
    with Box(service) as box:
        status, made = box.ask("POST", "/snapshots", {"name": "mine"})
        assert status in (200, 201), made
    assert service.cove("tenant", "create", "other").returncode == 0
    key = service.cove("key", "create", "--tenant", "other", "--name", "k", "--scope", "use").stdout.strip()
    with Box(service, key=key) as other:
        assert "mine" in json.dumps(other.add("db", template="mine", status=404))


def test_a_key_for_one_sandbox_has_its_template_alone(service):
    with Box(service) as box:
        assert box.ask("POST", "/snapshots", {"name": "others"})[0] in (200, 201)
        key = service.cove("key", "create", "--name", "one", "--sandbox", box.id).stdout.strip()
        one = Box(service, found=box.id, key=key)
        assert "for one sandbox" in one.add(template="others", status=403)["error"]["message"]
        one.add()
        assert box.services() == {"db": "running"}


def test_it_goes_on_through_pauses_and_forks(service):
    with Box(service) as box:
        box.add()
        first = box.starts()
        assert len(first) == 1
        assert box.ask("POST", "/pause", {"memory": True})[0] == 200 and box.ask("POST", "/resume")[0] == 200
        assert box.starts() == first and box.services() == {"db": "running"}
        status, forks = box.ask("POST", "/fork", {})
        assert status in (200, 201), forks
        with Box(service, found=forks["forks"][0]["sandbox"]["id"]) as fork:
            assert wait_until(lambda: fork.services() == {"db": "running"})
            assert fork.starts()[0] == first[0] and len(fork.starts()) == 2
            assert fork.run("grep -c db /etc/hosts") == "1"
        assert box.ask("POST", "/pause", {"memory": False})[0] == 200 and box.services() == {"db": "stopped"}
        assert box.ask("POST", "/resume")[0] == 200
        assert wait_until(lambda: box.services() == {"db": "running"})
        assert box.starts()[0] == first[0] and len(box.starts()) == 2


def test_a_killed_worker_or_coved_costs_at_most_a_start(service):
    with Box(service) as box:
        box.add()
        service.kill_coved()
        assert len(box.starts()) == 1 and box.services() == {"db": "running"}
        old = service.child("cove-api")
        os.kill(old, signal.SIGKILL)
        assert wait_until(lambda: service.child("cove-api") not in (None, old) and service.is_healthy())
        assert wait_until(lambda: box.services() == {"db": "running"})
        assert len(box.starts()) == 2


def test_one_that_ends_is_told_and_replaced(service):
    with Box(service) as box:
        box.add(command="python3 -m http.server 5432 2>/log & until grep GET /log; do sleep 0.1; done; exit 4")
        assert box.page()
        assert wait_until(lambda: box.services() == {"db": "exited"})
        told = box.ask("GET", "/services")[1]["services"][0]
        assert told["exit_code"] == 4 and "status 4" in told["error"], told
        assert box.add()["state"] == "running" and box.services() == {"db": "running"}
        log = service.cove("log", box.id).stdout
        assert log.count("sandbox.nest ") == 2, log


def test_it_trusts_the_sandboxs_certificate(service):
    with Box(service, network={"default": "allow", "rules": [{"allow": "inspected.test", "path": "/*"}]}) as box:
        box.add(command='cp "$SSL_CERT_FILE" /tmp/bundle && cd /tmp && exec python3 -m http.server 5432')
        own = box.run("cat /usr/local/share/ca-certificates/cove-sandbox.crt")
        assert own.startswith("-----BEGIN") and own in box.page(path="bundle")


def test_what_it_writes_is_the_sandboxs_disk_and_goes_with_it(service):
    with Box(service) as box:
        box.add()
        where = list((service.state / "pool" / "boxes").glob("*/*/services/db.*/u/srv/starts"))
        assert len(where) == 1, where
    assert wait_until(lambda: not where[0].exists())


def test_the_other_way_to_mount_layers(registry):
    with own_service("services-attached", COVE_OVERLAY="attached") as service, Box(service) as box:
        box.add()
        assert len(box.starts()) == 1


def test_an_image_says_what_it_runs(service, registry, tmp_path):
    for program in ("docker-registry", "skopeo", "busybox"):
        if not shutil.which(program):
            pytest.skip(f"there is no {program}: install the packages of the test group")
    docker_archive(tmp_path / "tiny.tar", {"www/index.html": b"of the image"}, ("sh", "id", "mkdir", "chown", "chmod", "cat", "ls", "tar", "od", "tr", "dirname", "rm", "mv", "readlink", "gzip", "touch", "busybox"),
                   Env=["WHO=image"], Entrypoint=["busybox", "httpd", "-f"], Cmd=["-p", "8080"], WorkingDir="/www", User="4711:0")
    registry.start().push(tmp_path / "tiny.tar", "httpd:1")
    with Box(service) as box:
        made = box.add("web", 8080, image=f"{registry.host}/httpd:1", command=None)
        assert made["state"] == "running" and box.page("web", 8080) == "of the image", made
