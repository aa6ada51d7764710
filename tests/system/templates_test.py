# SPDX-License-Identifier: Apache-2.0
"""Templates as a client of E2B's API builds them: steps, files, tags, logs, the cache, and builds that are up to no good."""

import hashlib
import http.client
import io
import itertools
import json
import os
import re
import select
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import uuid
from urllib.parse import quote, urlsplit

import pytest
from archives import image_archive
from leaks import own_service
from service import BUILD, Service, below, wait_until

STEP_TIMEOUT_S = 8


class Templates:
    """A client of the template API over TCP, with the key."""

    def __init__(self, service):
        self.service = service

    def call(self, method, target, body=None, headers=None, key=True):
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        headers = {**({"x-api-key": self.service.key} if key else {}), **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers["content-type"] = "application/json"
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content else None
        finally:
            connection.close()

    def upload(self, template, files):
        """Sends a tar of {name: bytes, ("link", target) or None for a directory}; returns its hash."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                if content is None:
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                elif isinstance(content, tuple):
                    info.type, info.linkname = tarfile.SYMTYPE, content[1]
                else:
                    info.size, info.mode = len(content), 0o640
                tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
        digest = hashlib.sha256(repr(sorted(files.items(), key=lambda f: f[0])).encode()).hexdigest()
        status, link = self.call("GET", f"/templates/{template}/files/{digest}")
        assert status == 201, link
        if not link["present"]:
            url = urlsplit(link["url"])
            status, answer = self.call("PUT", f"{url.path}?{url.query}", packed.getvalue(), key=False)
            assert status == 200, (link, answer)
        assert self.call("GET", f"/templates/{template}/files/{digest}")[1]["present"]
        return digest

    def request(self, name=None, **more):
        name = name or f"test-{uuid.uuid4().hex[:12]}"
        status, made = self.call("POST", "/v3/templates", {"name": name, "cpuCount": 1, "memoryMB": 512, **more})
        assert status == 202, made
        return made["templateID"], made["buildID"]

    def start(self, ids, steps=(), files=None, **more):
        steps = [dict(zip(("type", "args"), step)) if isinstance(step, tuple) else step for step in steps]
        for step in steps:
            if step["type"] == "COPY" and "filesHash" not in step:
                step["filesHash"] = self.upload(ids[0], files)
        if not more.keys() & {"fromImage", "fromTemplate"}:
            more["fromTemplate"] = "base"
        return self.call("POST", f"/v2/templates/{ids[0]}/builds/{ids[1]}", {"steps": steps, **more})

    def status(self, ids, offset=0):
        status, found = self.call("GET", f"/templates/{ids[0]}/builds/{ids[1]}/status?logsOffset={offset}")
        assert status == 200, found
        return found

    def wait(self, ids, seconds=200):
        """(the last status, all lines of the log)"""
        lines, found, end = [], {"status": "building"}, time.monotonic() + seconds
        while found["status"] in ("building", "waiting") and time.monotonic() < end:
            found = self.status(ids, len(lines))
            lines += found["logEntries"]
            if not found["logEntries"]:
                time.sleep(0.02)
        last = found
        while found["logEntries"]:
            found = self.status(ids, len(lines))
            lines += found["logEntries"]
        return last, lines

    def build(self, steps=(), name=None, seconds=200, **more):
        """((template, build), status, the log's text)"""
        ids = self.request(name)
        status, answer = self.start(ids, steps, **more)
        assert status == 202, answer
        last, lines = self.wait(ids, seconds)
        return ids, last, "\n".join(line["message"] for line in lines)

    def ready(self, steps=(), name=None, **more):
        ids, last, log = self.build(steps, name, **more)
        assert last["status"] == "ready", (last, log)
        return ids, log

    def fails(self, steps, step, seconds=200, **more):
        """The reason of a build that must fail at that step."""
        ids, last, log = self.build(steps, seconds=seconds, **more)
        assert last["status"] == "error" and last["reason"]["step"] == step, (last, log)
        return last["reason"]["message"], log

    def run(self, template, command, **options):
        """The output of a command in a new sandbox of the template."""
        sandbox = self.service.create(template=template)
        done = self.service.cove("exec", sandbox, *options.pop("flags", ()), "--", "sh", "-c", command)
        self.service.request("DELETE", f"/cove/v1/sandboxes/{sandbox}")
        return done.stdout.strip()


@pytest.fixture(scope="module")
def built_service():
    with own_service("templates", COVE_IMAGE_ALIASES="ubuntu:22.04=base", COVE_BUILD_STEP_TIMEOUT=f"{STEP_TIMEOUT_S}s") as service:
        yield service


@pytest.fixture
def templates(built_service):
    yield Templates(built_service)
    built_service.remove_all()


def test_steps_become_a_template(templates):
    (template, build), log = templates.ready([
        ("ENV", ["GREETING", "hello", "WHOLE", "$GREETING world", "PATH", "/opt/bin:$PATH"]),
        ("WORKDIR", ["/app/deep"]),
        ("RUN", ["echo \"$WHOLE\" >greeting; pwd >where; whoami >who"]),
        ("RUN", ["whoami >/root/who", "root"]),
        ("USER", ["alice"]),
        ("RUN", ["whoami >/tmp/alice"]),
    ])
    assert "[builder 3/6] RUN echo" in log
    assert templates.run(template, "cat /app/deep/greeting /app/deep/where /app/deep/who /tmp/alice; stat -c %U /app /app/deep; whoami; pwd; "
                         "echo $WHOLE") == "hello world\n/app/deep\nuser\nalice\nuser\nuser\nalice\n/app/deep\nhello world"
    status, found = templates.call("GET", f"/templates/{template}")
    assert status == 200 and [(b["buildID"], b["status"], b["cpuCount"], b["memoryMB"]) for b in found["builds"]] == [(build, "ready", 1, 512)]


def test_an_unchanged_prefix_costs_nothing(templates):
    mark = uuid.uuid4().hex
    steps = [("RUN", [f"echo {mark} >one; head -c 8 /dev/urandom | base64 >random"]), ("ENV", ["A", "b"]), ("RUN", ["cp one two"])]
    (first, _), log = templates.ready(steps)
    assert "CACHED" not in log
    random = templates.run(first, "cat /home/user/random")
    started = time.monotonic()
    (second, _), log = templates.ready(steps)
    took = time.monotonic() - started
    assert log.count("CACHED") == 3
    print(f"all cached: {took * 1000:.0f} ms with the client's polls")
    assert templates.run(second, "cat /home/user/random") == random
    (third, _), log = templates.ready([*steps[:2], ("RUN", ["cp one three"])])
    assert log.count("CACHED") == 2
    assert templates.run(third, "cat /home/user/three /home/user/random") == f"{mark}\n{random}"
    # What is forced is run, and so is all behind it.
    (fourth, _), log = templates.ready([{"type": "RUN", "args": steps[0][1], "force": True}, *steps[1:]])
    assert "CACHED" not in log and templates.run(fourth, "cat /home/user/random") != random
    (_, _), log = templates.ready(steps, force=True)
    assert "CACHED" not in log


def test_each_kind_of_step_is_cached(templates):
    steps = [("ENV", ["A", uuid.uuid4().hex]), ("WORKDIR", ["/srv/new"]), ("WORKDIR", ["/srv/new"]), ("USER", ["user"]), ("USER", ["bob"]), ("RUN", ["pwd >~/where"])]
    _, log = templates.ready(steps)
    assert "CACHED" not in log
    (template, _), log = templates.ready(steps)
    assert [f"CACHED [builder {n}/6] {step[0]}" in log for n, step in enumerate(steps, 1)] == [True] * 6, log
    assert "6 of 6 steps from the cache" in log
    assert templates.run(template, "whoami; pwd; echo $A; cat ~/where") == f"bob\n/srv/new\n{steps[0][1][1]}\n/srv/new"


def test_files_are_copied(templates):
    files = {"folder": None, "folder/test.txt": b"content\n", "folder/link.txt": ("link", "test.txt"), "folder/gone.txt": ("link", "nothing"),
             "folder/sub": None, "folder/sub/a": b"a"}
    (template, _), _ = templates.ready([
        ("COPY", ["folder/*", "folder", "", ""]),
        ("COPY", ["folder/test.txt", "/opt/new/name.txt", "root", "0600"]),
        ("COPY", ["folder/test.txt", "/opt/dir/", "", ""]),
        ("COPY", ["folder/link.txt", "/opt/link", "", ""]),
        ("COPY", ["folder", "/opt/new", "root:user", "0755"]),
        ("RUN", ["cat folder/link.txt"]),
    ], files=files)
    assert templates.run(template, "cd /home/user/folder; readlink link.txt gone.txt; cat test.txt sub/a; stat -c '%U:%G' test.txt") == \
        "test.txt\nnothing\ncontent\nauser:user"
    assert templates.run(template, "cd /opt; stat -c '%n %U:%G %a' new/name.txt dir/test.txt new/test.txt new/sub; readlink link; ls /tmp/.cove* 2>&1 | wc -l") == \
        "new/name.txt root:root 600\ndir/test.txt user:user 640\nnew/test.txt root:user 755\nnew/sub root:user 755\ntest.txt\n1"
    reason, _ = templates.fails([("COPY", ["missing", "/x", "", ""])], "1", files=files)
    assert "there is no 'missing'" in reason
    reason, _ = templates.fails([{"type": "COPY", "args": ["a", "/x", "", ""], "filesHash": "0" * 64}], "1")
    assert "were not uploaded" in reason


def test_start_command_is_up_when_a_sandbox_is(templates):
    (template, _), log = templates.ready([("RUN", ["echo page >index.html"])], startCmd="python3 -m http.server 8123",
                                         readyCmd="curl -sf http://localhost:8123/index.html")
    assert "Waiting for template to be ready" in log
    sandbox = templates.service.create(template=template)
    done = templates.service.cove("exec", sandbox, "--", "curl", "-sf", "--retry", "20", "--retry-connrefused", "--retry-delay", "1",
                                  "http://localhost:8123/index.html")
    assert done.stdout == "page\n", done.stderr
    reason, _ = templates.fails([], "finalize", startCmd="echo broken; exit 3")
    assert "exit status 3" in reason
    (again, _), log = templates.ready(fromTemplate=template)
    assert templates.call("GET", f"/templates/{again}")[0] == 200


def test_a_ready_command_may_sleep(templates):
    """As in E2B's SDKs, where a Dockerfile's CMD is ready by `sleep 20`."""
    (template, _), log = templates.ready(startCmd="sleep 1000", readyCmd="sleep 11")
    assert re.search(r"\[finalize\] ready after 1[0-9.]+ s, and so is each sandbox of it\. .*'cove warm'", log), log
    assert templates.service.cove("run", "--template", template, "--", "pgrep", "-f", "sleep 1000").returncode == 0


def test_errors_name_their_step(templates):
    reason, log = templates.fails([("RUN", ["true"]), ("RUN", ["echo to stderr >&2; exit 7"])], "2")
    assert reason == "failed to run command 'echo to stderr >&2; exit 7': exit status 7" and "[stderr]: to stderr" in log
    reason, _ = templates.fails([("RUN", ["exit 7 # " + "\u00e9" * 1000])], "1")
    assert re.fullmatch("failed to run command 'exit 7 # \u00e9{50,100}\\.\\.\\.': exit status 7", reason), reason
    reason, _ = templates.fails([("RUN", ["whoami", "root123"])], "1")
    assert reason == "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'"
    reason, _ = templates.fails([], "base", fromTemplate="nothing-of-that-name")
    assert "not found" in reason


def test_the_base_image_and_aliases_need_no_registry(templates):
    for image in ("e2bdev/base", "e2bdev/base:latest", "ubuntu:22.04", "docker.io/library/ubuntu:22.04"):
        templates.ready([("RUN", ["ls -l"])], fromImage=image)


def test_tags_names_and_lists(templates):
    name = f"tagged-{uuid.uuid4().hex[:8]}"
    (template, build), _ = templates.ready([("RUN", ["echo 1 >v"])], f"{name}:v1")
    (same, second), _ = templates.ready([("RUN", ["echo 2 >v"])], name)
    assert same == template
    status, given = templates.call("POST", "/templates/tags", {"target": f"{name}:v1", "tags": ["production", "latest"]})
    assert status == 201 and given["buildID"] == build and set(given["tags"]) == {"production", "latest"}
    for ref, version in ((name, "2"), (f"{name}:v1", "1"), (f"{name}:production", "1"), (f"anybody/{name}:latest", "1"), (template, "2")):
        assert templates.run(ref, "cat /home/user/v") == version
    for body in ({"target": name, "tags": [":bad"]}, {"target": name, "tags": [f"{name}:"]}, {"target": f"{name}:", "tags": ["x"]},
                 {"target": name, "tags": []}, {"target": name, "tags": [str(uuid.uuid4())]}):
        assert templates.call("POST", "/templates/tags", body)[0] == 400, body
    assert templates.call("POST", "/templates/tags", {"target": f"{name}:none", "tags": ["x"]})[0] == 404
    assert templates.call("DELETE", "/templates/tags", {"name": name, "tags": ["default"]})[0] == 400
    assert templates.call("DELETE", "/templates/tags", {"name": name, "tags": ["v1"]})[0] == 204
    status, tags = templates.call("GET", f"/templates/{template}/tags")
    assert status == 200 and {t["tag"]: t["buildID"] for t in tags} == {"production": build, "latest": build, "default": second}
    assert templates.call("GET", f"/templates/aliases/{name}") == (200, {"templateID": template, "public": False})
    assert templates.call("GET", f"/templates/aliases/{name}:v1")[0] == 404
    assert templates.call("PATCH", f"/v2/templates/{name}", {"public": True}) == (200, {"names": [name]})
    status, listed = templates.call("GET", "/templates")
    mine = next(t for t in listed if t["templateID"] == template)
    assert mine["public"] and mine["buildCount"] == 2 and mine["buildStatus"] == "ready" and mine["aliases"] == [name]
    assert templates.call("DELETE", f"/templates/{template}")[0] == 204
    assert templates.call("DELETE", f"/templates/{template}")[0] == 404
    assert templates.call("GET", f"/templates/aliases/{name}")[0] == 404


def test_what_is_in_use_is_not_deleted(templates):
    (template, _), _ = templates.ready([("RUN", ["true"])])
    sandbox = templates.service.create(template=template)
    status, answer = templates.call("DELETE", f"/templates/{template}")
    assert status == 400 and sandbox in answer["message"]
    templates.service.request("DELETE", f"/cove/v1/sandboxes/{sandbox}")
    assert templates.call("DELETE", f"/templates/{template}")[0] == 204
    status, answer = templates.call("DELETE", "/templates/base")
    assert status == 400, answer


def test_an_upload_link_is_good_once(templates):
    ids = templates.request()
    digest = uuid.uuid4().hex * 2

    def link():
        status, answer = templates.call("GET", f"/templates/{ids[0]}/files/{digest}")
        assert status == 201, answer
        url = urlsplit(answer["url"])
        return f"{url.path}?{url.query}", answer["present"]

    def put(target, content):
        return templates.call("PUT", target, content, key=False)
    first, present = link()
    assert not present
    # One that ends in the middle may be sent again.
    with socket.create_connection(("127.0.0.1", templates.service.port)) as broken:
        broken.sendall(f"PUT {first} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nsome".encode())
        time.sleep(0.2)
    assert not link()[1]
    content = os.urandom(300_000)
    assert put(first, content)[0] == 200
    assert put(first, content)[0] == 200 # its answer got lost, the client believes
    for other in (os.urandom(300_000), content[:-1] + bytes([content[-1] ^ 1]), content[:1000], b"", content + b"x"):
        status, answer = put(first, other)
        assert status == 403 and "ask for a new one" in answer["message"], answer
    path = templates.service.state / "api" / "uploads" / digest
    assert path.read_bytes() == content
    second, present = link()
    assert present
    assert put(second, b"other")[0] == 200 and path.read_bytes() == b"other"
    assert put(first, content)[0] == 403 and path.read_bytes() == b"other"
    assert wait_until(lambda: not below(path.parent, "part-*"))


def test_links_leave_uploads_to_the_key(templates):
    ids, digest = templates.request(), uuid.uuid4().hex * 2

    def begun(target):
        connection = socket.create_connection(("127.0.0.1", templates.service.port), timeout=60)
        connection.sendall(f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nsome".encode())
        return connection

    def link():
        url = urlsplit(templates.call("GET", f"/templates/{ids[0]}/files/{digest}")[1]["url"])
        return f"{url.path}?{url.query}"
    slow = []
    try:
        one = link()
        slow.append(begun(one))
        for _ in range(3): # the same link again, until the first has ended
            status, answer = templates.call("PUT", one, b"x" * 1000, key=False)
            assert status == 429 and "by this link" in answer["message"], answer
        slow += [begun(link()) for _ in range(60)]
        assert wait_until(lambda: sum(bool(select.select([c], [], [], 0)[0]) for c in slow) == 61 - 48)
        assert templates.call("PUT", link(), b"x", key=False)[0] == 429
        put = templates.service.request
        assert put("PUT", f"/cove/v1/uploads/{digest}", b"by the key")[0] == 204
    finally:
        for connection in slow:
            connection.close()
    assert wait_until(lambda: templates.call("PUT", one, b"by a link", key=False)[0] == 200)
    path = templates.service.state / "api" / "uploads" / digest
    # By the key the first content stays; another link replaces it.
    assert put("PUT", f"/cove/v1/uploads/{digest}", b"by a link")[0] == 204
    for other in (b"by a lin?", b"by a", b"", b"by a link and more"):
        status, _, answer = put("PUT", f"/cove/v1/uploads/{digest}", other)
        assert status == 409 and answer["error"]["code"] == "already_exists", answer
    assert path.read_bytes() == b"by a link"
    assert wait_until(lambda: not below(path.parent, "part-*"))


class Small:
    """A service whose uploads lie on a disk of their own, with 40 MiB above the reserve."""

    def __init__(self, directory):
        self.service = Service(directory)
        self.uploads = self.service.state / "api" / "uploads"

    def __enter__(self):
        self.service.start()
        assert self.service.stop() == 0
        owner = self.uploads.stat().st_uid
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={1024 + 40}m,mode=0700,uid={owner},gid={owner}", "tmpfs", self.uploads], check=True)
        self.service.start()
        return self

    def __exit__(self, *_):
        self.service.stop()
        subprocess.run(["umount", self.uploads], check=True)

    def put(self, link, head, pieces):
        """Sends until it is answered; the status and the body."""
        url = urlsplit(link["url"])
        with socket.create_connection(("127.0.0.1", self.service.port), timeout=60) as connection:
            connection.sendall(f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode())
            for piece in pieces:
                if select.select([connection], [], [], 0)[0]:
                    break
                try:
                    connection.sendall(piece)
                except ConnectionError: # it was answered meanwhile
                    break
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, answer.read()


def test_uploads_leave_the_disk_its_reserve(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    directory = tempfile.mkdtemp(prefix="test-uploads-", dir=BUILD)
    os.chmod(directory, 0o755)
    try:
        with Small(directory) as small:
            templates = Templates(small.service)
            ids = templates.request()
            digest = "a" * 64

            def link():
                return templates.call("GET", f"/templates/{ids[0]}/files/{digest}")[1]
            first = link()
            # Refused for what it announces, before it is sent; and where it gets to when it announces nothing.
            status, body = small.put(first, f"Content-Length: {60 << 20}", [])
            assert status == 507 and b"not enough room" in body and b"above its reserve" in body, (status, body)
            mib = b"100000\r\n" + os.urandom(1 << 20) + b"\r\n"
            status, body = small.put(first, "Transfer-Encoding: chunked", itertools.repeat(mib, 60))
            assert status == 507 and b"not enough room" in body, (status, body)
            assert not link()["present"] and wait_until(lambda: list(small.uploads.iterdir()) == [])
            # The command line says so in its words.
            (tmp_path / "Dockerfile").write_text("FROM base\nCOPY big /big\n")
            (tmp_path / "big").write_bytes(os.urandom(45 << 20))
            failed = small.service.cove("template", "build", "--json", str(tmp_path))
            assert failed.returncode == 1 and json.loads(failed.stderr.splitlines()[-1])["error"]["code"] == "resource_exhausted", failed
            assert wait_until(lambda: list(small.uploads.iterdir()) == [])
            # The link was not used up by what failed, and what fits goes on.
            content = os.urandom(10 << 20)
            assert small.put(first, f"Content-Length: {len(content)}", [content])[0] == 200
            assert link()["present"] and (small.uploads / digest).read_bytes() == content
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def test_log_comes_in_pages(templates):
    ids, _ = templates.ready([("RUN", ["seq 1 350"])])
    lines, sizes = [], []
    while True:
        page = templates.status(ids, len(lines))["logEntries"]
        if not page:
            break
        sizes.append(len(page))
        lines += page
    assert sizes[:3] == [100, 100, 100] and sizes[3] > 50
    numbers = [int(line["message"].split()[-1]) for line in lines if "[stdout]" in line["message"]]
    assert numbers == list(range(1, 351)) and all(line["step"] == "1" for line in lines if "[stdout]" in line["message"])


def test_bad_requests(templates):
    ids = templates.request()
    for body in ({}, {"fromImage": "a", "fromTemplate": "b"}, {"fromTemplate": "base", "steps": {}}, {"fromTemplate": 1},
                 {"fromTemplate": "base", "steps": [{"type": "FLY", "args": []}]}, {"fromTemplate": "base", "steps": [{"type": "RUN", "args": []}]},
                 {"fromTemplate": "base", "steps": [{"type": "COPY", "args": ["a", "b"]}]},
                 {"fromTemplate": "base", "steps": [{"type": "COPY", "args": ["a", "b"], "filesHash": "../../etc"}]},
                 {"fromTemplate": "base", "steps": [{"type": "ENV", "args": ["A"]}]}):
        assert templates.call("POST", f"/v2/templates/{ids[0]}/builds/{ids[1]}", body)[0] == 400, body
    assert templates.status(ids)["status"] == "waiting"
    assert templates.start((ids[0], str(uuid.uuid4())))[0] == 404
    assert templates.call("GET", f"/templates/{ids[0]}/builds/{uuid.uuid4()}/status")[0] == 400
    assert templates.start(ids)[0] == 202
    assert templates.start(ids)[0] == 400
    templates.wait(ids)
    for body in ({"name": ""}, {"name": "A/b/c"}, {"name": "x y"}, {"name": "x", "cpuCount": 0}, {"name": "x", "memoryMB": 64},
                 {"name": "x", "memoryMB": 513}, {"name": "x", "tags": ["a:b"]}):
        assert templates.call("POST", "/v3/templates", body)[0] == 400, body
    for target in (f"/templates/{ids[0]}/files/{'g' * 64}", f"/templates/{ids[0]}/files/..%2f..%2fx"):
        assert templates.call("GET", target)[0] == 400
    digest = "1" * 64
    assert templates.call("PUT", f"/templates/{ids[0]}/files/{digest}?token={'a' * 40}", b"x", key=False)[0] == 403
    url = urlsplit(templates.call("GET", f"/templates/{ids[0]}/files/{digest}")[1]["url"])
    assert templates.call("PUT", f"/templates/{ids[0]}/files/{'2' * 64}?{url.query}", b"x", key=False)[0] == 403
    assert templates.call("POST", "/v3/templates", {"name": "x"}, key=False)[0] == 401


@pytest.mark.timeout(600)
def test_builds_that_are_up_to_no_good(templates):
    # Each of these ends by the time that a step may take, so they are built at the same time.
    asleep, flood, bomb = [templates.request() for _ in range(3)]
    for ids, command in ((asleep, "sleep 1000"), (flood, "yes flood"), (bomb, "bomb() { bomb | bomb & }; bomb; sleep 100")):
        assert templates.start(ids, [("RUN", [command])])[0] == 202
    last, _ = templates.wait(asleep)
    assert last["status"] == "error" and last["reason"]["step"] == "1" and f"longer than {STEP_TIMEOUT_S} s" in last["reason"]["message"], last
    last, lines = templates.wait(flood)
    log = "\n".join(line["message"] for line in lines)
    assert last["status"] == "error" and "The log is full" in log and len(log) < 8 << 20
    # A fork bomb meets the limit of processes, and its sandbox ends with the build.
    last, _ = templates.wait(bomb)
    assert last["status"] == "error", last
    # A link to where the archive goes harms nobody but the sandbox itself.
    ids, last, _ = templates.build([("RUN", ["ln -s /etc/passwd /tmp/.cove-copy"]), ("COPY", ["a", "/b", "", ""])], files={"a": b"a"})
    assert last["status"] in ("error", "ready")
    # An archive that leads out of its directory.
    ids, last, _ = templates.build([("COPY", ["a", "/b", "", ""])], files={"a": b"a", "../../../etc/evil": b"x"})
    assert last["status"] in ("error", "ready")
    # An archive that is none.
    (template, _), _ = templates.ready([("RUN", ["true"])])
    digest = uuid.uuid4().hex * 2
    url = urlsplit(templates.call("GET", f"/templates/{template}/files/{digest}")[1]["url"])
    assert templates.call("PUT", f"{url.path}?{url.query}", os.urandom(5000), key=False)[0] == 200
    reason, _ = templates.fails([{"type": "COPY", "args": ["a", "/b", "", ""], "filesHash": digest}], "1")
    assert reason.startswith("failed to copy 'a'")
    assert templates.run("base", "echo still well") == "still well"


def test_cancelled_by_deletion(templates):
    ids = templates.request()
    assert templates.start(ids, [("RUN", ["sleep 600"])])[0] == 202
    assert wait_until(lambda: any("RUN sleep" in line["message"] for line in templates.status(ids)["logEntries"]))
    assert templates.call("DELETE", f"/templates/{ids[0]}")[0] == 204
    assert templates.call("GET", f"/templates/{ids[0]}/builds/{ids[1]}/status")[0] == 400


def test_a_build_that_was_interrupted_failed(templates):
    ids = templates.request()
    service = templates.service
    assert templates.start(ids, [("RUN", ["sleep 600"])])[0] == 202
    assert wait_until(lambda: any("RUN sleep" in line["message"] for line in templates.status(ids)["logEntries"]))
    old = service.child("cove-api")
    os.kill(old, 9)
    assert wait_until(lambda: service.child("cove-api") not in (None, old) and service.is_healthy())
    found = templates.status(ids)
    assert found["status"] == "error" and "while this was being built" in found["reason"]["message"]
    templates.ready([("RUN", ["true"])])


def test_many_at_a_time(templates):
    started = [templates.request() for _ in range(6)]
    for i, ids in enumerate(started):
        assert templates.start(ids, [("RUN", [f"echo {i} >number"])])[0] == 202
        assert templates.status(ids)["status"] in ("building", "ready")
    for i, ids in enumerate(started):
        last, _ = templates.wait(ids)
        assert last["status"] == "ready", last
        assert templates.run(ids[0], "cat /home/user/number") == str(i)


def test_deleting_by_a_quoted_name(templates):
    name = f"quoted-{uuid.uuid4().hex[:8]}"
    templates.ready([("RUN", ["true"])], f"me/{name}:v1")
    assert templates.call("DELETE", f"/templates/{quote(f'me/{name}:v1', safe='')}")[0] == 204


DOCKERFILE = """ARG WHO=world
FROM e2bdev/base AS first
FROM first
# a comment
ENV GREETING="hello $WHO"
WORKDIR /srv
COPY . .
COPY --chown=user:user one.txt /srv/owned.txt
RUN echo "$GREETING $WHO" > greeting && \\
    rm -f nothing
EXPOSE 80
USER user
"""


def test_a_dockerfile_by_the_command_line(templates, tmp_path):
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / ".dockerignore").write_text("*.log\nDockerfile\n")
    (tmp_path / "one.txt").write_text("one\n")
    (tmp_path / "skip.log").write_text("no\n")
    name = f"docker-{uuid.uuid4().hex[:8]}"
    build = ("template", "build", "--name", f"{name}:v1", "--tag", "stable", "--build-arg", "WHO=you", "--memory", "512MiB", str(tmp_path))
    done = templates.service.cove(*build)
    assert done.returncode == 0, done.stderr
    assert "sending ." in done.stderr and "EXPOSE: it has no meaning" in done.stderr and "[builder" in done.stderr
    assert templates.run(f"{name}:stable", "cat /srv/greeting /srv/one.txt; ls /srv; stat -c %U /srv/owned.txt /srv/one.txt; whoami; pwd") == \
        "hello you you\none\ngreeting\none.txt\nowned.txt\nuser\nroot\nuser\n/srv"
    again = templates.service.cove(*build)
    assert again.returncode == 0 and "sending" not in again.stderr and again.stderr.count("CACHED") >= 5, again.stderr
    as_json = templates.service.cove(*build, "--json")
    assert json.loads(as_json.stdout.splitlines()[-1])["status"] == "ready"
    listed = templates.service.cove("template", "ls")
    assert name in listed.stdout and "stable" in listed.stdout
    names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
    named = [one for one in names if one != "-"]
    assert {name, "base"} <= set(named) and names == sorted(named) + ["-"] * (len(names) - len(named)), names
    assert [one["name"] or "-" for one in json.loads(templates.service.cove("template", "ls", "--json").stdout)] == names
    assert re.search(r"^tags +\S+  build [0-9a-f-]{36}$", templates.service.cove("template", "show", name).stdout, re.M)
    assert templates.service.cove("template", "tag", f"{name}:v1", "other").returncode == 0
    assert "other" in templates.service.cove("template", "show", name).stdout
    assert templates.service.cove("template", "tag", "--off", name, "other").returncode == 0
    assert templates.service.cove("template", "publish", name).returncode == 0
    (tmp_path / "Dockerfile").write_text("FROM e2bdev/base\nRUN exit 4\n")
    failed = templates.service.cove("template", "build", "--name", name, str(tmp_path))
    assert failed.returncode == 1 and "exit status 4" in failed.stderr
    assert templates.service.cove("template", "rm", name).returncode == 0
    assert templates.service.cove("template", "show", name).returncode == 1


def made(templates, *arguments, **options):
    """The last object that a build tells, and all of stderr."""
    done = templates.service.cove("template", "build", *arguments, **options)
    told = templates.service.cove("template", "build", *arguments, "--json", **options)
    assert done.returncode == told.returncode == 0, (done, told)
    return json.loads(told.stdout.splitlines()[-1]), done.stderr


def show(templates, name):
    done = templates.service.cove("template", "show", name, "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_sizes_come_from_what_it_begins_with(templates, tmp_path):
    base = show(templates, "base")
    assert base["memory_bytes"] > 512 << 20
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN echo 1 >/one\n")
    made(templates, "--name", "as-base", str(tmp_path))
    assert (show(templates, "as-base")["memory_bytes"], show(templates, "as-base")["cpu_milli"]) == (base["memory_bytes"], base["cpu_milli"])
    made(templates, "--name", "named", "--memory", "640MiB", "--cpus", "1.5", "--from-template", "base")
    made(templates, "--name", "grandchild", "--cpus", "0.5", "--from-template", "named")
    assert (show(templates, "grandchild")["memory_bytes"], show(templates, "grandchild")["cpu_milli"]) == (640 << 20, 500)
    sandbox = templates.service.request("GET", f"/cove/v1/sandboxes/{templates.service.create(template='as-base')}")[2]
    assert sandbox["memory_bytes"] == base["memory_bytes"], sandbox
    # E2B's API has sizes of its own for who says none.
    status, ids = templates.call("POST", "/v3/templates", {"name": "e2b-sizes"})
    assert status == 202
    ids = (ids["templateID"], ids["buildID"])
    assert templates.start(ids)[0] == 202 and templates.wait(ids)[0]["status"] == "ready"
    build = templates.call("GET", f"/templates/{ids[0]}")[1]["builds"][0]
    assert (build["cpuCount"], build["memoryMB"]) == (2, 1024)


def test_each_step_says_what_it_added(templates, tmp_path):
    mark = uuid.uuid4().hex
    (tmp_path / "Dockerfile").write_text(f"FROM base\nENV A={mark}\nRUN head -c 3000000 /dev/urandom >/srv/a\nRUN echo $A >/srv/b\nRUN rm /srv/a\n")
    first = templates.service.cove("template", "build", "--name", "sized", "--json", str(tmp_path))
    steps = {s["step"]: s for s in json.loads(first.stdout.splitlines()[-1])["steps"]}
    assert list(steps) == [str(n) for n in range(1, 9)] and steps["3"]["bytes"] == steps["6"]["bytes"] == 0, steps
    assert 3_000_000 <= steps["4"]["bytes"] < 3_300_000 and steps["5"]["bytes"] < 300_000, steps
    again, log = made(templates, "--name", "sized", str(tmp_path))
    assert again["steps"] == [{**step, "cached": True} for step in steps.values()], (steps, again)
    assert f"/srv/a ({steps['4']['bytes'] / (1 << 20):.1f} MiB)\n" in log, log
    assert "Template is ready: 8 of 8 steps" in log
    old = templates.service.child("cove-api")
    os.kill(old, 9)
    assert wait_until(lambda: templates.service.child("cove-api") not in (None, old) and templates.service.is_healthy())
    assert templates.service.request("GET", f"/cove/v1/builds/{again['id']}")[2]["steps"] == []


def test_from_names_a_template_that_is_here(templates, tmp_path):
    def log_of(image, *flags):
        (tmp_path / "Dockerfile").write_text(f"FROM {image}\nRUN cat /here\n")
        return templates.service.cove("template", "build", "--name", "child", *flags, str(tmp_path)).stderr
    name = f"own{uuid.uuid4().hex[:8]}"
    templates.ready([("RUN", ["echo it is mine >/here", "root"])], f"me/{name}:v2")
    for image in (f"{name}:v2", f"me/{name}:v2"):
        log = log_of(image, "--no-cache")
        assert f"FROM template {image}" in log and "it is mine" in log and f"the image of that name is docker.io/{'' if '/' in image else 'library/'}{image}" in log, log
    # Somebody else's image of that name, one by its full name, and one whose tag we have not: none is ours.
    for image, flags in ((f"you/{name}:v2", ()), (f"docker.io/library/{name}:v2", ()), (f"{name}:v3", ()), ("other", ("--from-image", f"{name}:v2"))):
        log = log_of(image, *flags)
        taken = flags[1] if flags else image
        assert f"FROM image {taken}" in log and "it is mine" not in log and "FROM template" not in log, log
    assert "no finished build of that tag" in log_of(f"{name}:v3")
    # An alias of the configuration comes after what is here.
    assert "the template base stands for the image ubuntu:22.04" in log_of("ubuntu:22.04")


def test_a_failed_first_build_says_why_and_can_be_removed(templates):
    name = f"never-{uuid.uuid4().hex[:8]}"
    ids, last, _ = templates.build([("RUN", ["echo 'no such luck' >&2; exit 9"])], name)
    assert last["status"] == "error"
    cove = templates.service.cove
    listed = cove("template", "ls").stdout.splitlines()
    assert listed[0].split()[-1] == "REASON", listed
    row = next(line for line in listed if name in line)
    assert " failed " in row and "step 1: failed to run command" in row, row
    assert next(line for line in listed if line.startswith("base ")).split()[-1] == "-"
    found = show(templates, name)
    assert (found["status"], found["step"]) == ("failed", "1") and "exit status 9" in found["reason"], found
    shown = cove("template", "show", name).stdout
    assert "exit status 9" in shown and "failed" in shown
    assert "reason" not in cove("template", "show", "base").stdout
    for target in ("/templates", "/v2/templates"):
        mine = next(t for t in templates.call("GET", target)[1] if t["templateID"] == ids[0])
        assert mine["buildStatus"] == "error", mine
    assert templates.service.request("POST", "/cove/v1/sandboxes", {"template": name})[0] == 404
    assert templates.call("POST", "/sandboxes", {"templateID": name})[0] == 404
    removed = cove("template", "rm", name)
    assert removed.returncode == 0, removed
    assert name not in cove("template", "ls").stdout
    # One that has a good build stays ready when a later one fails.
    templates.ready([("RUN", ["true"])], name)
    assert templates.build([("RUN", ["false"])], name)[1]["status"] == "error"
    assert show(templates, name)["status"] == "ready" and "reason" not in show(templates, name)


def on_a_terminal(service, *arguments):
    """Exit code and all that the command writes there."""
    ours, theirs = os.openpty()
    process = service.popen(*arguments, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 4096):
            text += part
    except OSError:
        pass
    os.close(ours)
    return process.wait(60), text.decode().replace("\r\n", "\n")


def test_changes_say_so_on_a_terminal(templates):
    name = f"told-{uuid.uuid4().hex[:8]}"
    templates.ready([], name)
    for arguments, said in ((("tag", name, "one"), f"{name}: one leads to it\n"), (("tag", name, "two", "three"), f"{name}: two, three lead to it\n"),
                            (("tag", "--off", name, "one"), f"{name}: one taken away\n"), (("publish", name), f"{name}: public\n"),
                            (("publish", "--off", name), f"{name}: private again\n")):
        assert on_a_terminal(templates.service, "template", *arguments) == (0, said)
        assert on_a_terminal(templates.service, "template", *arguments, "-q") == (0, "")
        done = templates.service.cove("template", *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = templates.service.cove("template", "tag", name, "no:tag")
    assert done.returncode == 1 and done.stderr.count("nvalid tag") == 1, done.stderr


def test_credentials_go_with_an_image(templates, tmp_path):
    def usage(*arguments):
        done = templates.service.cove("template", "build", *arguments)
        assert done.returncode == 2, done
        return done.stderr
    assert "go together" in usage("--from-image", "a", "--registry-user", "me")
    assert "go together" in usage("--from-image", "a", "--registry-password-stdin")
    assert "needs credentials" in usage("--from-template", "base", "--docker-config")
    assert "exclude" in usage("--from-image", "a", "--registry-user", "me", "--registry-password-stdin", "--docker-config")
    (tmp_path / "config.json").write_text('{"auths":{"r.example":{"auth":"bm90LXNvLXNlY3JldA=="}}}')
    done = templates.service.cove("template", "build", "--name", "x", "--from-image", "r.example/y", "--docker-config-file", str(tmp_path / "config.json"))
    assert done.returncode == 1 and "is invalid" in done.stderr and "bm90" not in done.stderr and "secret" not in done.stderr, done
    done = templates.service.cove("template", "build", "--name", "x", "--from-image", "r.example/y", "--docker-config", env={"DOCKER_CONFIG": str(tmp_path / "no")})
    assert done.returncode == 1 and "no/config.json" in done.stderr, done


def test_an_image_in_an_archive(templates, tmp_path):
    image_archive(tmp_path / "tiny.tar")
    (tmp_path / "Dockerfile").write_text("FROM tiny\nRUN echo $FROM_IMAGE > /made\n")
    done = templates.service.cove("template", "build", "--name", "tiny", "--from-oci", str(tmp_path / "tiny.tar"), "-f", str(tmp_path / "Dockerfile"),
                                  str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert templates.run("tiny", "cat /made; id -un; echo $FROM_IMAGE; pwd") == "yes\nuser\nyes\n/home/user"
    again = templates.service.cove("template", "build", "--name", "tiny", "--from-oci", str(tmp_path / "tiny.tar"), "-f",
                                   str(tmp_path / "Dockerfile"), str(tmp_path))
    assert again.returncode == 0 and "CACHED [base]" in again.stderr, again.stderr
    (tmp_path / "Dockerfile").write_text("FROM scratch\nRUN echo scratch > /made\n")
    build = ["template", "build", "--name", "tiny"]
    done = templates.service.cove(*build, "--from-oci", str(tmp_path / "tiny.tar"), str(tmp_path)) # which was named
    assert done.returncode == 0, done.stderr
    assert templates.run("tiny", "cat /made") == "scratch"
    done = templates.service.cove(*build, "--from-oci", str(tmp_path / "tiny.tar"), cwd=tmp_path)
    assert done.returncode == 0 and "builder" not in done.stderr, done.stderr
    done = templates.service.cove(*build, str(tmp_path))
    assert done.returncode == 1 and "FROM scratch is not supported" in done.stderr, done.stderr
    (tmp_path / "bad.tar").write_bytes(os.urandom(4096))
    failed = templates.service.cove("template", "build", "--name", "bad", "--from-oci", str(tmp_path / "bad.tar"))
    assert failed.returncode == 1 and "at step base" in failed.stderr, failed.stderr


def test_docker_builds_what_docker_runs(templates, tmp_path):
    cove = templates.service.cove
    (tmp_path / "Dockerfile").write_text("FROM base\nARG WORD\nRUN echo $WORD >/word\n")
    done = cove("docker", "build", "-t", "example.org/some/Thing:1.2", "--build-arg", "WORD=built", "-q", ".", cwd=tmp_path)
    assert done.returncode == 0, done
    try:
        assert cove("docker", "run", "--rm", "example.org/some/thing:1.2", "cat", "/word").stdout == "built\n"
        assert len(cove("docker", "images", "-q", "example.org/some/thing:1.2").stdout.split()) == 1
        assert cove("docker", "images", "-q", "example.org/some/thing:2").stdout == ""
    finally:
        assert cove("template", "rm", done.stdout.strip()).returncode == 0
