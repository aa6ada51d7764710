# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox's API row by row: what each route answers where its SDKs don't look, or aren't told."""

import http.client
import json
import time

import pytest
from feed_test import kill_worker
from leaks import own_service
from opensandbox_test import Box, first_events, multipart, seconds
from service import wait_until


@pytest.fixture(scope="module")
def service():
    with own_service("opensandbox-rows") as service:
        yield service


@pytest.fixture(scope="module")
def box(service):
    return Box(service, timeout=3000, env={"ROWS": "/root/rows"})


def test_what_the_lifecycle_answers(service):
    box = Box(service, timeout=None, resourceLimits={"cpu": "500m", "memory": "512Mi"}, metadata={"row": "one"})
    assert box.headers["Location"] == f"/v1/sandboxes/{box.id}"
    one = f"/v1/sandboxes/{box.id}"
    status, seen = box.ask("GET", one, headers={**box.key, "X-Request-ID": "mine"})
    assert status == 200 and box.headers["X-Request-ID"] == "mine" and "expiresAt" not in seen and seen["createdAt"].endswith("Z"), seen
    figures = box.execd("GET", "/metrics")[1]
    assert figures["mem_total_mib"] == 512 and 0 < figures["mem_used_mib"] < 512 and 0 <= figures["cpu_used_pct"] <= 100 and abs(figures["timestamp"] / 1000 - time.time()) < 120, figures
    for body, wanted in (({"expiresAt": "2001-01-01T00:00:00Z"}, 400), ({"expiresAt": "soon"}, 400), ({}, 422), ({"expiresAt": 7}, 422)):
        assert box.ask("POST", f"{one}/renew-expiration", body)[0] == wanted, body
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 900))
    assert abs(seconds(box.ask("POST", f"{one}/renew-expiration", {"expiresAt": until})[1]["expiresAt"]) - seconds(until)) < 1
    assert box.ask("POST", f"{one}/resume")[0] == 409
    assert box.ask("POST", f"{one}/pause")[0] == 202 and box.ask("POST", f"{one}/pause")[0] == 409
    listed = lambda query: [s["id"] for s in box.ask("GET", f"/v1/sandboxes?metadata=row%3Done&{query}")[1]["items"]]
    assert listed("state=Paused&state=Failed") == [box.id] == listed("state=paused") and listed("state=Running") == []
    assert box.ask("POST", f"{one}/resume")[0] == 202
    other = Box(service, metadata={"row": "one"})
    page = box.ask("GET", "/v1/sandboxes?metadata=row%3Done&pageSize=1")[1]["pagination"]
    assert page == {"page": 1, "pageSize": 1, "totalItems": 2, "totalPages": 2, "hasNextPage": True}, page
    assert box.ask("GET", "/v1/sandboxes?pageSize=5000")[1]["pagination"]["pageSize"] == 200
    for port, wanted in (("44772", 200), ("18080", 200), ("1", 200), ("0", 400), ("65536", 400), ("http", 400)):
        assert box.ask("GET", f"{one}/endpoints/{port}?use_server_proxy=true")[0] in (wanted, 422 if wanted == 400 else wanted), port
    status, made = box.ask("POST", f"{one}/snapshots", {"name": "first"})
    assert status == 202 and box.headers["Location"] == f"/v1/snapshots/{made['id']}" and made["sandboxId"] == box.id and made["name"] == "first", made
    same = box.ask("POST", f"{one}/snapshots", {"name": "first"})[1] # a name is no key
    named = lambda name: sorted(s["id"] for s in box.ask("GET", f"/v1/snapshots?name={name}&state=Ready")[1]["items"])
    assert same["id"] != made["id"] and "/" not in made["id"] and named("first") == sorted((made["id"], same["id"])) and named("second") == [] == named("local/first")
    # one with two tags is one, and the newest is the first
    assert box.ask("POST", "/templates/tags", {"target": "first", "tags": ["kept"]}, {"X-API-KEY": service.key, "Content-Type": "application/json"})[0] == 201
    assert [s["id"] for s in box.ask("GET", f"/v1/snapshots?sandboxId={box.id}")[1]["items"]] == [same["id"], made["id"]]
    for one_of in made, same:
        assert box.ask("GET", f"/v1/snapshots/{one_of['id']}")[1] == one_of
        assert box.ask("DELETE", f"/v1/snapshots/{one_of['id']}")[0] == 204 and box.ask("GET", f"/v1/snapshots/{one_of['id']}")[0] == 404
    assert box.ask("POST", "/v1/metrics/events", {"eventType": "sandbox.create", "sandboxId": box.id, "success": True}, {})[0] == 204
    for sandbox in box, other:
        assert sandbox.ask("DELETE", f"/v1/sandboxes/{sandbox.id}")[0] == 204
    for method, rest in (("GET", ""), ("DELETE", ""), ("PATCH", "/metadata"), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/renew-expiration"), ("POST", "/snapshots"), ("POST", "/fork"),
                         ("GET", "/endpoints/44772"), ("GET", "/diagnostics/logs")):
        body = {"expiresAt": until} if "renew" in rest else {} if method in ("PATCH", "POST") else None
        status, answer = box.ask(method, one + rest, body, {**box.key, "X-Request-ID": "gone"})
        assert (status, answer["code"], box.headers["X-Request-ID"]) == (404, "DOCKER::SANDBOX_NOT_FOUND", "gone"), (method, rest, answer)
    for headers, code in (({}, "MISSING_API_KEY"), ({"OPEN-SANDBOX-API-KEY": "wrong"}, "INVALID_API_KEY")):
        status, answer = box.ask("GET", "/v1/sandboxes", headers=headers)
        assert status == 401 and answer["code"] == code and box.headers["X-Request-ID"], answer


def test_a_stream_of_a_command(box):
    path, headers = box.endpoint(44772)
    connection = http.client.HTTPConnection("127.0.0.1", box.service.port, timeout=60)
    begun = time.time()
    connection.request("POST", path + "/command", json.dumps({"command": "echo; printf 'a\\rb\\r\\nc'; echo e >&2; sleep 4; kill -9 $$"}), headers)
    answer = connection.getresponse()
    assert answer.headers["Content-Type"].startswith("text/event-stream") and answer.headers["Cache-Control"] == "no-cache" and answer.headers["X-Accel-Buffering"] == "no"
    text = answer.read()
    assert text.startswith(b"{") and b"data:" not in text
    events = [json.loads(line) for line in text.split(b"\n\n") if line]
    assert events[0]["type"] == "init" and [e["text"] for e in events if e["type"] == "stdout"] == ["\n", "a", "b", "c"] and [e["text"] for e in events if e["type"] == "stderr"] == ["e"], events
    assert [e["text"] for e in events if e["type"] == "ping"] == ["pong"] and all(abs(e["timestamp"] / 1000 - begun) < 120 for e in events)
    assert events[-1]["type"] == "error" and events[-1]["error"]["ename"] == "CommandExecError" and events[-1]["error"]["evalue"] == "-1", events[-1]
    for body, wanted in (({"command": "true", "cwd": "/nowhere"}, 400), ({}, 400), ({"command": "true", "argv": ["true"]}, 400), ({"command": "true", "gid": 1}, 400), ({"command": "true", "timeout": 0}, 400)):
        assert box.execd("POST", "/command", body)[0] == wanted, body
    assert box.execd("POST", "/command", {"argv": ["/none"]})[0] == 400


def test_who_ignores_an_interrupt_is_killed_with_its_group(box):
    path, headers = box.endpoint(44772)
    connection = http.client.HTTPConnection("127.0.0.1", box.service.port, timeout=60)
    connection.request("POST", path + "/command", json.dumps({"command": "trap '' TERM; sleep 4712 & echo up; while :; do sleep 0.2; done"}), headers)
    answer = connection.getresponse()
    seen = first_events(answer, 2)
    assert box.execd("DELETE", f"/command?id={seen[0]['text']}")[0] == 200
    rest = [json.loads(line) for line in answer.read().split(b"\n\n") if line]
    assert rest[-1]["type"] == "error" and rest[-1]["error"]["evalue"] == "-1", rest
    assert box.run("pgrep -f '^sleep 4712' || echo none") == "none"
    assert box.execd("DELETE", f"/command?id={seen[0]['text']}")[0] == 500


def test_a_user_without_a_group_has_those_of_the_machine(box):
    box.run("groupadd -f crew; usermod -aG crew nobody; groupadd -f others")
    assert box.run("id -G", uid=65534) == box.run("id -G nobody") and len(box.run("id -G", uid=65534).split()) == 2
    assert box.run("id -u; id -g; id -G", uid=4321) == "4321\n4321\n4321" and box.run("id -g; id -G", uid=65534, gid=7) == "7\n7"


def test_a_log_is_kept_for_more_than_a_day(service):
    box = Box(service, timeout=3000)
    command = next(e["text"] for e in box.events("/command", {"command": "echo kept; exit 4", "background": True}))
    assert wait_until(lambda: box.execd("GET", f"/command/{command}/logs") == (200, b"kept\n"))
    for i in range(1030): # nor is it lost behind more of them than are remembered
        assert box.execd("POST", "/command", {"argv": ["true"], "background": True})[0] == 200, i
    box.run("touch -d '2 days ago' /run/cove-opensandbox/*")
    kill_worker(service)
    assert wait_until(lambda: box.execd("GET", "/ping")[0] == 200)
    assert box.execd("GET", f"/command/{command}/logs") == (200, b"kept\n") and box.headers["EXECD-COMMANDS-TAIL-CURSOR"] == "5"
    told = box.execd("GET", f"/command/status/{command}")[1]
    assert (told["running"], told["exit_code"], told["content"]) == (False, 4, "echo kept; exit 4"), told


def test_files_answer_row_by_row(box):
    ask = box.execd
    box.run("mkdir -p /root/rows/sub/deep; cd $ROWS; printf 'one\\r\\ntwo\\nthree' >lines; echo hidden >sub/deep/x.txt; ln -s /etc link; ln -s lines soft; export")
    info = lambda path: list(ask("GET", f"/files/info?path={path}")[1].values())[0]
    assert ask("GET", "/files/info") == (200, {}) and ask("GET", "/files/info?path=/none")[1]["code"] == "FILE_NOT_FOUND" and ask("GET", "/files/info?path=/none")[0] == 404
    assert info("~/rows/link")["type"] == "symlink" and info("/root/rows/lines")["size"] == 14 and info("/root/rows")["type"] == "directory" and info("/dev/null")["type"] == "other"
    assert set(info("/root/rows/lines")) == {"path", "type", "size", "modified_at", "created_at", "owner", "group", "mode"}
    assert ask("DELETE", "/files?path=/none") == (200, b"") and ask("DELETE", "/files?path=/root/rows/sub")[0] == 500
    assert ask("POST", "/files/permissions", {"/root/rows/lines": {"mode": 4755, "owner": "nobody", "group": "nogroup"}}) == (200, b"") and info("/root/rows/lines")["mode"] == 4755
    assert ask("POST", "/files/permissions", {"/root/rows/lines": {"mode": 0}})[0] == 200 and info("/root/rows/lines")["owner"] == "nobody"
    assert ask("POST", "/files/permissions", {"/root/rows/lines": {"mode": 789}})[0] == 400
    assert ask("POST", "/files/mv", [{"src": "/root/rows/lines", "dest": "/root/rows/soft"}])[0] == 500 and ask("POST", "/files/mv", [{"src": "/none", "dest": "/root/rows/new"}])[0] == 404
    found = lambda query: [f["path"] for f in ask("GET", f"/files/search?path=/root/rows{query}")[1]]
    assert found("&pattern=*.txt") == ["/root/rows/sub/deep/x.txt"] and "/root/rows/sub" not in found("") and "/root/rows/lines" in found("")
    assert ask("POST", "/files/replace", {"/root/rows/lines": {"old": "", "new": "x"}})[0] == 400
    assert ask("POST", "/files/replace?verbose=true", {"/root/rows/lines": {"old": "t", "new": "t"}})[1] == {"/root/rows/lines": {"replacedCount": 2}}
    assert ask("POST", "/files/replace?verbose=true", {"/root/rows/lines": {"old": "nothing", "new": "t"}})[1] == {"/root/rows/lines": {"replacedCount": 0}}
    box.run("echo here >'/root/rows/a b'")
    assert info("${HOME}/rows/a b".replace(" ", "%20"))["size"] == 5 == info("$ROWS/a%20b")["size"] and ask("GET", "/files/download?path=$ROWS/a%20b")[1] == b"here\n"
    assert ask("POST", "/files/mv", [{"src": "~/rows/a b", "dest": "${ROWS}/b"}])[0] == 200 and ask("POST", "/files/replace", {"$HOME/rows/b": {"old": "here", "new": "there"}})[0] == 200
    assert ask("POST", "/files/permissions", {"$ROWS/b": {"mode": 600}})[0] == 200 and box.run("cat /root/rows/b; stat -c %a /root/rows/b") == "there\n600"
    assert info("$HOME" + "/../$HOME" * 7 + "/rows/b")["size"] == 6 and ask("POST", "/files/mv", [{"src": "/none", "dest": "/x"}] * 1025)[0] == 400
    for route in "/files/permissions", "/files/replace", "/directories":
        assert ask("POST", route, {f"/none{i}": {"old": "x"} for i in range(1025)})[1]["message"] == "more than 1024 paths", route
    for at in "$UNHEARD/x", "${ROWS", "$/x", "$ROWS" + "x" * 4096, "x" * 4096, "$HOME" + "/../$HOME" * 8:
        assert ask("GET", f"/files/info?path={at}")[0] == 400 == ask("POST", "/files/mv", [{"src": at, "dest": "/tmp/x"}])[0] == ask("GET", f"/directories/list?path={at}")[0], at
    assert ask("DELETE", "/files?path=$ROWS/b")[0] == 200 and "No such" in box.run("ls /root/rows/b")
    path, headers = box.endpoint(44772)
    read = lambda query="", **more: box.ask("GET", f"{path}/files/download?path=/root/rows/lines{query}", headers={**headers, **more})
    assert read() == (200, b"one\r\ntwo\nthree") and box.headers["Content-Length"] == "14" and box.headers["Content-Disposition"].startswith("attachment") and box.headers["Content-Type"] == "application/octet-stream"
    assert read(Range="bytes=1-2,4-5") == (206, b"ne") and box.headers["Content-Range"] == "bytes 1-2/14" and read(Range="bytes=-2") == (206, b"ee") and read(Range="bytes=99-")[0] == 416
    assert read("&offset=1&limit=2") == (200, b"one\ntwo") and box.headers["Content-Type"].startswith("text/plain") and read("&offset=3")[1] == b"three" and read("&limit=1")[1] == b"one"
    assert read("&offset=1", Range="bytes=0-1")[0] == 400 and ask("GET", "/files/download?path=/none")[0] == 404
    listed = lambda query: [f["path"].removeprefix("/root/rows") for f in ask("GET", f"/directories/list?path=/root/rows{query}")[1]]
    assert sorted(listed("")) == ["/lines", "/link", "/soft", "/sub"] and listed("&depth=0") == [] and "/sub/deep/x.txt" in listed("&depth=9") and not any("/link/" in p for p in listed("&depth=9"))
    assert [ask("GET", f"/directories/list?path=/root/rows/{p}")[0] for p in ("link", "lines", "none")] == [400, 400, 404]
    assert ask("POST", "/directories", {"/root/rows/a/b": {"mode": 700}}) == (200, b"") and info("/root/rows/a/b")["mode"] == 700
    assert ask("POST", "/directories", {"/root/rows/a/b": {"mode": 755}})[0] == 200 and info("/root/rows/a/b")["mode"] == 700 # it was there
    assert ask("DELETE", "/directories?path=/root/rows/a&path=/none") == (200, b"") and "/a" not in listed("")


def test_an_upload_in_chunks(box):
    path, headers = box.endpoint(44772)
    body, kind = multipart(("metadata", b'{"path":"$HOME/../tmp/chunks/one","mode":600}'), ("file", b"x" * 3000000), ("metadata", b'{"path":"/tmp/chunks/two"}'), ("file", b""))
    connection = http.client.HTTPConnection("127.0.0.1", box.service.port, timeout=60)
    connection.request("POST", path + "/files/upload", (body[i:i + 70001] for i in range(0, len(body), 70001)), {**headers, "Content-Type": kind}, encode_chunked=True)
    assert connection.getresponse().status == 200
    assert box.run("stat -c '%s %a' /tmp/chunks/one; stat -c %s /tmp/chunks/two") == "3000000 600\n0"


def test_metrics_are_watched(box):
    path, headers = box.endpoint(44772)
    connection = http.client.HTTPConnection("127.0.0.1", box.service.port, timeout=60)
    connection.request("GET", path + "/metrics/watch", headers=headers)
    answer, seen = connection.getresponse(), b""
    while seen.count(b"\n\n") < 2:
        seen += answer.read1(65536)
    connection.close()
    figures = [json.loads(line.removeprefix(b"data: ")) for line in seen.split(b"\n\n")[:2]]
    assert figures[1]["timestamp"] > figures[0]["timestamp"] and figures[0]["mem_used_mib"] <= figures[0]["mem_total_mib"] and figures[0]["cpu_count"] >= 1, figures


def test_a_pool_with_a_volume_and_a_policy(service):
    box = Box(service)
    assert box.ask("POST", "/v1/pools", {"name": "base", "capacitySpec": {"bufferMax": 1, "bufferMin": 1, "poolMax": 5, "poolMin": 0}})[0] == 201
    policy = {"defaultAction": "deny", "egress": [{"action": "allow", "target": "a.example"}]}
    volume = {"name": "v", "mountPath": "/mnt/v", "pvc": {"claimName": "of-a-pool"}}
    kept = Box(service, image=None, extensions={"poolRef": "base"}, volumes=[volume], networkPolicy=policy)
    assert kept.run("echo stays >/mnt/v/note; cat /mnt/v/note") == "stays"
    path, headers = kept.endpoint(18080)
    assert kept.ask("GET", f"{path}/policy", headers=headers)[1]["policy"] == policy and kept.ask("GET", f"{path}/healthz", headers=headers)[0] == 200
    status, text = kept.ask("GET", f"{path}/policy", headers={})
    assert status == 401 and isinstance(text, bytes) and kept.headers["Content-Type"].startswith("text/plain")
    assert kept.ask("DELETE", f"/v1/sandboxes/{kept.id}")[0] == 204 and box.ask("DELETE", "/v1/pools/base")[0] == 204
