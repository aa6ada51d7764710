# SPDX-License-Identifier: Apache-2.0
"""cove volume, and volumes in sandboxes."""

import json
import re
import subprocess

import pytest
from leaks import own_service
from service import wait_until
from storage_test import prepared

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
    assert service.request("GET", f"/cove/v1/sandboxes/{boxes[0]}")[2]["volumes"] == [{"name": volume, "path": "/v", "read_only": False}]


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


def test_what_lies_in_the_way_is_told_and_can_be_mended(service, volume):
    box = service.create(volumes=[{"name": volume, "path": "/srv/v"}])
    script = "echo kept >/srv/v/f; mv /srv /elsewhere && touch /srv"
    assert service.cove("exec", box, "--", "sudo", "sh", "-c", script).returncode == 0
    assert service.cove("pause", "--files-only", box).returncode == 0
    done = service.cove("resume", box)
    assert (done.returncode, done.stdout) == (0, f"{box}\n")
    assert re.match(f"cove resume: {box} runs without all of its volumes: mount volume {volume}: .*\n  mend it inside, then ", done.stderr), done
    assert service.request("GET", f"/cove/v1/sandboxes/{box}")[2]["volumes_failed"].startswith(f"mount volume {volume}: ")
    assert service.cove("exec", box, "--", "sudo", "rm", "/srv").returncode == 0
    assert service.cove("pause", "--files-only", box).returncode == 0
    done = service.cove("resume", "--json", box)
    assert (done.returncode, done.stderr) == (0, "")
    assert "volumes_failed" not in service.request("GET", f"/cove/v1/sandboxes/{box}")[2]
    assert service.cove("exec", box, "--", "cat", "/srv/v/f").stdout == "kept\n"


def test_a_link_on_the_way_is_told_and_can_be_mended(service, volume):
    def resumed():
        done = service.cove("log", "--json", box)
        return [e["data"] for e in map(json.loads, done.stdout.splitlines()) if e["kind"] == "sandbox.resumed"]
    box = service.create(volumes=[{"name": volume, "path": "/v/data"}])
    assert service.cove("exec", box, "--", "sudo", "sh", "-c", "echo kept >/v/data/f && mv /v /w && ln -s /w /v").returncode == 0
    for command in (["pause", "--files-only"], ["resume"]):
        assert service.cove(*command, box).returncode == 0
    assert "symbolic link" in resumed()[0]["volumes_failed"]
    assert service.cove("exec", box, "--", "cat", "/v/data/f").returncode != 0
    assert service.cove("exec", box, "--", "sudo", "sh", "-c", "rm /v && mv /w /v").returncode == 0
    for command in (["pause", "--files-only"], ["resume"]):
        assert service.cove(*command, box).returncode == 0
    assert len(resumed()) == 2 and "volumes_failed" not in resumed()[1]
    assert service.cove("exec", box, "--", "cat", "/v/data/f").stdout == "kept\n"


def test_all_are_listed_with_what_is_in_them():
    """More than coved is asked about at a time."""
    names = [f"v{i:02}" for i in range(35)]
    with prepared(COVE_POOL="btrfs") as service:
        service.start()
        for name in names:
            assert service.request("POST", "/cove/v1/volumes", {"name": name, "limit_bytes": 1 << 30})[0] == 201
        assert service.cove("run", "--volume", "v33:/v", "--", "sh", "-c", "head -c 3000000 /dev/urandom > /v/f; sync").returncode == 0
        listed = service.request("GET", "/cove/v1/volumes?usage=true")[2]["volumes"]
        used = {v["name"]: v["used_bytes"] for v in listed}
        assert list(used) == names and all(used.values()) and used["v33"] >= 3000000 > used["v34"]
        assert used == {name: service.request("GET", f"/cove/v1/volumes/{name}/usage")[2]["used_bytes"] for name in names}
        assert json.loads(service.cove("volume", "ls", "--json").stdout) == listed
        sizes = {words[0]: words[3] for words in map(str.split, service.cove("volume", "ls").stdout.splitlines()[1:])}
        assert list(sizes) == names and sizes["v33"] != sizes["v34"] != "-"
        assert "used_bytes" not in service.request("GET", "/cove/v1/volumes")[2]["volumes"][0]
        assert service.request("GET", "/cove/v1/volumes?usage=maybe")[0] == 400
        assert service.cove("volume", "rm", *names).returncode == 0


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


def content_of(service, volume):
    """A function (method, target below its content, arguments of curl) -> (status, body), with the volume's token."""
    def ask(method, target, *more):
        done = subprocess.run(["curl", "-sS", "-m", "50", "-X", method, "-w", " %{http_code}", service.url + target, *more],
                              capture_output=True, text=True, timeout=60, check=True)
        body, _, status = done.stdout.rpartition(" ")
        return int(status), body
    key = ("-H", f"X-API-KEY: {service.key}")
    ref = next(v["volumeID"] for v in json.loads(ask("GET", "/volumes", *key)[1]) if v["name"] == volume)
    token = ("-H", "Authorization: Bearer " + json.loads(ask("GET", f"/volumes/{ref}", *key)[1])["token"])
    assert ask("GET", f"/volumecontent/{ref}/path?path=/", *key)[0] == 401
    return lambda method, target, *more: ask(method, f"/volumecontent/{ref}/{target}", *token, *more)


def test_content_by_its_token_alone(service, volume):
    ask = content_of(service, volume)
    assert ask("PUT", "file?path=/a/b&mode=384&uid=7&gid=8", "--data-binary", "bytes")[0] == 201
    entry = json.loads(ask("GET", "path?path=/a/b")[1])
    assert (entry["type"], entry["size"], entry["mode"], entry["uid"], entry["gid"]) == ("file", 5, 0o600, 7, 8)
    assert (entry["path"], entry["name"]) == ("/a/b", "b")
    assert ask("GET", "file?path=a/b") == (200, "bytes")
    assert json.loads(ask("PATCH", "path?path=/a/b", "-H", "Content-Type: application/json", "-d", '{"mode":420,"gid":9}')[1])["mode"] == 0o644
    root = json.loads(ask("GET", "path?path=/")[1])
    assert (root["type"], root["path"], root["name"]) == ("directory", "/", "/")
    assert ask("POST", "dir?path=/d/e")[0] == 404
    made = json.loads(ask("POST", "dir?path=/d/e&force=true&mode=448&uid=5")[1])
    assert (made["path"], made["mode"], made["uid"]) == ("/d/e", 0o700, 5)
    assert ask("POST", "dir?path=/d/e")[0] == 409 and ask("POST", "dir?path=/d/e&force=true")[0] == 201
    assert ask("POST", "dir?path=/a/b&force=true")[0] == 400
    done = service.cove("run", "--volume", f"{volume}:/v", "--", "sudo", "sh", "-c", "cat /v/a/b; stat -c '%a %u %g' /v/a/b /v/d/e")
    assert done.stdout == "bytes644 7 9\n700 5 0\n", done
    assert ask("DELETE", "path?path=/d")[0] == 204
    assert [e["path"] for e in json.loads(ask("GET", "dir?path=/&depth=2")[1])] == ["/a", "/a/b"]
    assert ask("DELETE", "path?path=/a")[0] == 204
    assert ask("DELETE", "path?path=/a")[0] == 404


def test_no_link_leads_out_of_the_volume(service, volume):
    ask = content_of(service, volume)
    script = """set -e; cd /v; mkdir d; echo inside >d/f; ln -s /etc/passwd absolute; ln -s ../../../../etc/passwd up; ln -s / root; ln -s /etc dir
                ln -s /d/f own; ln -s d/f beside; ln -s /proc/self/root magic; ln -s loop loop"""
    assert service.cove("run", "--volume", f"{volume}:/v", "--", "sudo", "sh", "-c", script).returncode == 0
    for path in ("absolute", "up", "dir/passwd", "root/etc/passwd", "magic/etc/passwd", "../../etc/passwd", "/etc/passwd"):
        assert ask("GET", f"file?path={path}")[0] == 404, path
    assert ask("GET", "file?path=own") == ask("GET", "file?path=beside") == ask("GET", "file?path=root/root/d/f") == (200, "inside\n")
    assert ask("GET", "dir?path=dir")[0] == 404 and ask("GET", "file?path=loop")[0] >= 400
    found = {e["name"]: e for e in json.loads(ask("GET", "dir?path=/&depth=9")[1])}
    assert set(found) == {"absolute", "beside", "d", "dir", "f", "loop", "magic", "own", "root", "up"}
    assert (found["absolute"]["type"], found["absolute"]["target"], found["own"]["target"]) == ("symlink", "/absolute", "/d/f")
    # What is written through one comes to lie in the volume.
    assert ask("PUT", "file?path=up&force=true", "--data-binary", "written")[0] == 404
    assert ask("POST", "dir?path=/etc")[0] == 201
    assert ask("PUT", "file?path=up&force=true", "--data-binary", "written")[0] == 201
    assert ask("POST", "dir?path=dir/new")[0] == 201
    done = service.cove("run", "--volume", f"{volume}:/v", "--", "sudo", "sh", "-c", "cat /v/etc/passwd; echo; ls /v/etc; ls -d /etc/new; head -c 4 /etc/passwd")
    assert done.stdout == "written\nnew\npasswd\nroot", done
    # Somebody who has it mounted swaps a directory for a link while it is read.
    box = service.create(volumes=[{"name": volume, "path": "/v"}])
    swap = "cd /v; ln -s /etc link; while :; do mv -T d kept; mv -T link d; mv -T d link; mv -T kept d; done"
    assert service.cove("exec", box, "--", "sudo", "sh", "-c", f"({swap}) >/dev/null 2>&1 &").returncode == 0
    answers = [ask("GET", "file?path=d/f") for _ in range(60)] + [ask("GET", "file?path=d/hostname") for _ in range(60)]
    assert {a for a in answers if a[0] == 200} == {(200, "inside\n")}, answers
    assert all(status in (200, 404) for status, _ in answers), answers


def test_what_happens_to_it_is_on_record(service):
    def events(ref):
        done = service.cove("log", "--json", ref)
        assert done.returncode == 0, done
        return [json.loads(line) for line in done.stdout.splitlines()]
    assert service.cove("volume", "create", "data").returncode == 0
    box = service.create(volumes=[{"name": "data", "path": "/v", "read_only": True}])
    assert service.cove("volume", "rm", "data").returncode == 1
    assert service.cove("rm", box).returncode == 0
    wait_until(lambda: "volume.unmounted" in {e["kind"] for e in events("data")})
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


def test_those_of_another_pool_are_said_to_be():
    """Their files are moved away and back while the service is down, which is what another pool looks like."""
    with own_service("volumes", COVE_POOL="copy") as service:
        def listed():
            return {v["name"]: (v["in_pool"], v["used_bytes"]) for v in json.loads(service.cove("volume", "ls", "--json").stdout)}
        for name in ("away", "far", "here"):
            assert service.cove("volume", "create", name).returncode == 0
        assert [in_pool for in_pool, _ in listed().values()] == [True] * 3
        ids = {v["name"]: v["id"] for v in service.request("GET", "/cove/v1/volumes")[2]["volumes"]}
        pool = service.state / "pool" / "volumes"
        assert service.stop() == 0
        for name in ("away", "far"):
            (pool / ids[name]).rename(pool.parent / ids[name])
        service.start()
        assert wait_until(lambda: listed() == {"away": (False, None), "far": (False, None), "here": listed()["here"]}), listed()
        assert listed()["here"][0] is True
        done = service.cove("volume", "ls")
        assert done.returncode == 0 and [bool(re.search(r" not in pool ", line)) for line in done.stdout.splitlines()[1:]] == [True, True, False], done
        assert re.match(r"cove volume: away and 1 more can't be used: not in this pool, .*\n  .*COVE_POOL.*'cove volume rm'\n$", done.stderr), done
        assert service.cove("volume", "ls", "-q").stdout == "away\nfar\nhere\n"
        done = service.cove("run", "--volume", "away:/v", "--", "true")
        assert done.returncode == 125 and "not in this pool" in done.stderr, done
        assert service.cove("volume", "rm", "far").returncode == 0 and service.stop() == 0
        for name in ("away", "far"):
            (pool.parent / ids[name]).rename(pool / ids[name])
        service.start()
        assert wait_until(lambda: listed().get("away", (False,))[0]) and "far" not in listed()
        assert "not in pool" not in service.cove("volume", "ls").stdout
