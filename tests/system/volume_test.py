# SPDX-License-Identifier: Apache-2.0
"""cove volume, and volumes in sandboxes."""

import json
import re
import subprocess

import pytest
from service import wait_until

ID = re.compile(r"i[a-z0-9]{20}")


@pytest.fixture
def volume(service):
    assert service.cove("volume", "create", "data").stdout == "data\n"
    yield "data"
    service.remove_all()
    assert service.cove("volume", "rm", "data").stdout == "data\n"


def test_what_is_written_outlives_the_sandbox(service, volume):
    assert service.cove("run", "--volume", f"{volume}:/mnt/v", "--", "sh", "-c", "echo kept > /mnt/v/f").returncode == 0
    assert service.cove("run", "--volume", f"{volume}:/home/user/there", "--", "cat", "there/f").stdout == "kept\n"


def test_two_sandboxes_see_the_same(service, volume):
    boxes = [service.create(volumes=[{"name": volume, "path": "/v"}]) for _ in range(2)]
    assert service.cove("exec", boxes[0], "--", "sh", "-c", "echo shared > /v/f").returncode == 0
    assert service.cove("exec", boxes[1], "--", "cat", "/v/f").stdout == "shared\n"
    assert service.request("GET", f"/v1/sandboxes/{boxes[0]}")[2]["volumes"] == [{"name": volume, "path": "/v", "read_only": False}]


def test_read_only_is_for_root_too(service, volume):
    script = "echo no > /v/f || sudo sh -c 'echo no > /v/f' || sudo mount -o remount,rw /v || true; ls -A /v"
    done = service.cove("run", "--volume", f"{volume}:/v:ro", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_one_that_is_mounted_is_not_removed(service, volume):
    box = service.create(volumes=[{"name": volume, "path": "/v"}])
    done = service.cove("volume", "rm", volume)
    assert done.returncode == 1 and box in done.stderr and "cove rm" in done.stderr
    assert json.loads(service.cove("volume", "ls", "--json").stdout)[0]["mounted"] == 1
    assert re.search(rf"{volume} .* 1\b", service.cove("volume", "ls").stdout)


def test_what_is_wrong_is_said(service, volume):
    assert service.cove("volume", "create", volume).returncode == 1
    assert service.cove("volume", "create", "no name").returncode == 1
    assert "cove volume ls" in service.cove("volume", "rm", "nothing").stderr
    done = service.cove("run", "--volume", "nothing:/v", "--", "true")
    assert done.returncode == 125 and "cove volume create" in done.stderr
    for wrong in ("data", "data:", "data:relative", ":/v"):
        assert service.cove("run", "--volume", wrong, "--", "true").returncode == 2, wrong
    for path in ("/", "/v/../w", "//v"):
        assert service.cove("run", "--volume", f"data:{path}", "--", "true").returncode == 125, path
    assert service.sandboxes() == []


def test_content_by_its_token_alone(service, volume):
    def ask(method, target, *more):
        done = subprocess.run(["curl", "-sS", "-m", "20", "-X", method, "-w", " %{http_code}", service.url + target, *more],
                              capture_output=True, text=True, timeout=30, check=True)
        body, _, status = done.stdout.rpartition(" ")
        return int(status), body
    key = ("-H", f"X-API-KEY: {service.key}")
    listed = json.loads(ask("GET", "/volumes", *key)[1])
    ref = next(v["volumeID"] for v in listed if v["name"] == volume)
    token = ("-H", "Authorization: Bearer " + json.loads(ask("GET", f"/volumes/{ref}", *key)[1])["token"])
    base = f"/volumecontent/{ref}"
    assert ask("GET", f"{base}/path?path=/", *key)[0] == 401
    assert ask("PUT", f"{base}/file?path=/a/b&mode=384&uid=7&gid=8", *token, "--data-binary", "bytes")[0] == 201
    entry = json.loads(ask("GET", f"{base}/path?path=/a/b", *token)[1])
    assert (entry["type"], entry["size"], entry["mode"], entry["uid"], entry["gid"]) == ("file", 5, 0o600, 7, 8)
    assert ask("GET", f"{base}/file?path=a/b", *token) == (200, "bytes")
    assert ask("GET", f"{base}/file?path=/../../etc/passwd", *token)[0] == 404
    assert service.cove("run", "--volume", f"{volume}:/v", "--", "sudo", "sh", "-c", "ln -s /etc/passwd /v/l; cat /v/a/b").stdout == "bytes"
    assert [e["name"] for e in json.loads(ask("GET", f"{base}/dir?path=/&depth=2", *token)[1])] == ["a", "b", "l"]
    assert ask("DELETE", f"{base}/path?path=/a", *token)[0] == 204
    assert ask("DELETE", f"{base}/path?path=/a", *token)[0] == 404


def test_what_happens_to_it_is_on_record(service):
    def events(ref):
        done = service.cove("log", "--json", ref)
        assert done.returncode == 0, done
        return [json.loads(line) for line in done.stdout.splitlines()]
    assert service.cove("volume", "create", "data").returncode == 0
    box = service.create(volumes=[{"name": "data", "path": "/v", "read_only": True}])
    assert service.cove("volume", "rm", "data").returncode == 1
    assert service.cove("rm", box).returncode == 0
    wait_until(lambda: "volume.unmounted" in {e["kind"] for e in events("data")}, 10)
    found = events("data")
    ref = found[0]["sandbox"]
    assert [e["kind"] for e in found] == ["volume.create", "volume.created", "volume.mounted", "volume.refused", "volume.unmounted"], found
    assert found[0]["actor"] and found[0]["data"]["name"] == "data"
    assert found[2]["data"] == {"sandbox": box, "path": "/v", "read_only": True}
    assert found[3]["data"]["what"] == "drop" and box in found[3]["data"]["message"]
    assert next(e["data"]["volume"] for e in events(box) if e["kind"] == "volume.mounted") == ref
    assert service.cove("volume", "rm", "data").returncode == 0
    assert [e["kind"] for e in events(ref)][-2:] == ["volume.drop", "volume.dropped"] # by its id, as long as those of sandboxes
    assert service.cove("log", "--verify", ref).returncode == 0
    assert service.cove("log", "data").returncode == 1
