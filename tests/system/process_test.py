# SPDX-License-Identifier: Apache-2.0
"""The tier process: a container's life with the host's programs, which are there where the operator says so and can only be read."""

import hashlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from client import wait_for
from leaks import own_mount_table, running
from opensandbox_test import Box
from service import coved_of

SECRET = "only-the-host-knows-this"


@pytest.fixture(scope="module")
def module_service():
    """The operator shows /usr and, as /opt, a directory that has what should not be found in one."""
    with own_mount_table():
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "host", "/opt"], check=True)
        opt = Path("/opt")
        (opt / "note").write_text("of the host\n")
        (opt / "secret").write_text(SECRET)
        (opt / "secret").chmod(0o600)
        (opt / "closed").mkdir(mode=0o700)
        (opt / "closed" / "secret").write_text(SECRET)
        shutil.copy("/usr/bin/id", opt / "id")
        (opt / "id").chmod(0o4755)
        os.mknod(opt / "null", 0o666 | 0o020000, os.makedev(1, 3))
        (opt / "null").chmod(0o666)
        (opt / "deeper").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0777", "deeper", "/opt/deeper"], check=True)
        with running(name="process", COVE_TIER_PROCESS="/usr,/opt,/etc/ld.so.cache") as (service, client):
            yield service, client


def test_it_is_had_by_name_alone(live):
    service, client = live
    assert client.tier(client.create().id) == "container"
    assert client.post("sandboxes", {"tier": "process"})[1]["tier"] == "process"
    assert client.tier(client.create(metadata={"cove.tier": "process"}).id) == "process"
    body = {"image": {"uri": "base"}, "timeout": 60, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {}, "extensions": {"cove.tier": "process"}}
    answer = client.request("POST", "/v1/sandboxes", body, {"OPEN-SANDBOX-API-KEY": client.key})
    assert answer.status == 202 and client.tier(answer.json["id"]) == "process", answer
    done = service.cove("run", "--tier", "process", "--", "sha256sum", "/usr/bin/git")
    assert done.stdout.split()[:1] == [hashlib.sha256(Path("/usr/bin/git").read_bytes()).hexdigest()], done


def test_without_a_word_of_the_operator_there_is_none():
    with running(name="process") as (service, client):
        status, refused = client.post("sandboxes", {"tier": "process"})
        assert status == 400 and "tier process is not available here: the configuration names no directories of the host (tiers.process)" in \
            refused["error"]["message"], (status, refused)
        found = next(line for line in service.cove("doctor").stdout.splitlines() if line.split()[1:3] == ["tier", "process"])
        assert found.startswith("missing "), found


@pytest.mark.parametrize(("paths", "why"), [
    ("/", "not all of the host"), ("usr", "absolute"), ("/usr/../etc", "absolute"), ("/var/lib", "nothing of /var can be shown"),
    ("/run", "nothing of /run can be shown"), ("/proc/1/root", "nothing of /proc can be shown"), ("STATE", "has directories of the service's")])
def test_what_can_t_be_shown(module_service, paths, why):
    service, _ = module_service
    env = {**service.env, "COVE_TIER_PROCESS": str(service.state.parent) if paths == "STATE" else paths}
    done = subprocess.run([service_coved(service), "doctor"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and why in done.stderr, done


def service_coved(service):
    return os.readlink(f"/proc/{service.coved.pid}/exe")


def test_the_host_s_programs_over_files_of_its_own(live):
    _, client = live
    sandbox = client.create(metadata={"cove.tier": "process"})
    code, out, err = sandbox.sh("sha256sum < /etc/ld.so.cache; cat /opt/note; python3 -c 'print(6 * 7)'; id -un; touch /home/user/mine /tmp/mine && echo mine")
    assert (code, out.decode().split("\n")[1:-1]) == (0, ["of the host", "42", "user", "mine"]), (code, out, err)
    assert out.split()[0].decode() == hashlib.sha256(Path("/etc/ld.so.cache").read_bytes()).hexdigest()
    assert sandbox.upload("/home/user/f", b"x" * 3000000).status == 200
    assert sandbox.download("/home/user/f").body == b"x" * 3000000
    assert sandbox.upload("/opt/f", b"x").status != 200 and not Path("/opt/f").exists()


# What of the host is neither read nor changed, by whom ever inside. The last word of each that succeeds is REACHED.
ATTEMPTS = {
    "read a file of root's": f"grep -q {SECRET} /opt/secret",
    "read a closed directory": f"grep -rq {SECRET} /opt/closed",
    "find the host's shadow": "grep -qsF \"$(cat /srv/shadow)\" /etc/shadow /proc/1/root/etc/shadow",
    "find the service": "ls -d STATE/*",
    "find other homes": "ls /home | grep -qv '^user$'",
    "talk to the service": "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('RUN/cove.sock')\"",
    "write": "echo x > /opt/note",
    "write below a mount of the host's": "touch /opt/deeper/x",
    "write to programs": "touch /usr/bin/x",
    "remove": "rm -f /opt/note",
    "own": "chown 0 /opt/note || chmod 666 /opt/note",
    "mount again": "mount -o remount,rw /opt",
    "take away": "umount -l /opt",
    "other namespaces": "unshare -Urm true",
    "a device": "echo x > /opt/null",
    "set-uid": "[ \"$(/opt/id -u)\" = 0 ] && [ \"$(id -u)\" != 0 ]",
    "through proc": "echo x > /proc/self/root/opt/note || echo x > /proc/1/root/opt/note",
    "a new directory in the root": "mkdir /new",
    "processes of the host": "kill -0 HOST || grep -qs cove-api /proc/*/comm",
    "trace them": "python3 -c \"import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, HOST, 0, 0) != 0)\"",
    "the host's loopback": "python3 -c \"import socket; socket.create_connection(('127.0.0.1', PORT), 5)\"",
    "the metadata service": "curl -sfm 10 http://169.254.169.254/",
}


@pytest.mark.parametrize("user", ["user", "root"])
def test_nothing_of_the_host_is_reached(live, user):
    service, client = live
    sandbox = client.create(metadata={"cove.tier": "process"})
    host = subprocess.Popen(["sleep", "100"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        shadow = next((line for line in Path("/etc/shadow").read_text().splitlines() if line.startswith("root:")), "root:")
        assert sandbox.upload("/srv/shadow", (shadow + ":the-host").encode()).status == 200
        values = {"HOST": host.pid, "PORT": listener.getsockname()[1], "STATE": service.state, "RUN": service.run}
        reached = []
        for what, script in ATTEMPTS.items():
            for name, value in values.items():
                script = script.replace(name, str(value))
            code, out, err = sandbox.sh(f"if {script}; then echo REACHED; fi", user=user)
            assert code == 0, (what, code, out, err)
            reached += [(what, out, err)] if b"REACHED" in out else []
    host.kill()
    assert host.wait() == -9
    assert any(e["kind"] == "net.denied" and "169.254.169.254" in str(e["data"]) for e in client.events(sandbox.id))
    assert not reached and Path("/opt/note").read_text() == "of the host\n" and not list(Path("/opt/deeper").iterdir())


def test_its_files_are_kept_copied_and_its_tier_with_them(live):
    service, client = live
    sandbox = client.create(metadata={"cove.tier": "process"})
    sandbox.sh("echo kept > /home/user/kept")
    assert client.post(f"sandboxes/{sandbox.id}/pause")[0] == 200 and client.post(f"sandboxes/{sandbox.id}/resume")[0] == 200
    assert client.post(f"sandboxes/{sandbox.id}/pause", {"memory": False})[0] == 200
    assert client.post(f"sandboxes/{sandbox.id}/resume")[0] == 200
    assert sandbox.sh("cat /home/user/kept /opt/note")[1] == b"kept\nof the host\n"
    status, made = client.post(f"sandboxes/{sandbox.id}/snapshots")
    assert status == 201, made
    status, forks = client.post(f"sandboxes/{sandbox.id}/fork", {"count": 2})
    assert status == 201 and [f.get("sandbox", {}).get("tier") for f in forks["forks"]] == ["process"] * 2, forks
    status, other = client.post("sandboxes", {"template": made["ref"]})
    assert (status, other["tier"]) == (201, "process")
    assert service.cove("exec", other["id"], "--", "cat", "/home/user/kept", "/opt/note").stdout == "kept\nof the host\n"
    status, stronger = client.post("sandboxes", {"template": made["ref"], "tier": "container"})
    assert (status, stronger["tier"]) == (201, "container")
    assert service.cove("exec", stronger["id"], "--", "ls", "/opt").stdout == ""


def test_it_outlives_coved(live):
    service, client = live
    sandbox = client.create(metadata={"cove.tier": "process"})
    with sandbox.start("/bin/sh", "-c", "sleep 1; echo still here") as stream:
        stream.started()
        os.kill(coved_of(service.coved.pid), 9)
        assert stream.rest()[1] == b"still here\n"
    assert wait_for(sandbox.works) and client.tier(sandbox.id) == "process"
    assert sandbox.sh("cat /opt/note")[1] == b"of the host\n"
    assert sandbox.kill().status == 204


def test_its_limits_are_a_container_s(live):
    service, client = live
    status, made = client.post("sandboxes", {"tier": "process", "memory_bytes": 64 << 20})
    assert status == 201, made
    done = service.cove("exec", made["id"], "--", "python3", "-c", "x = b'x' * (1 << 30)")
    assert done.returncode not in (0, 125), done
    assert wait_for(lambda: client.native("GET", f"/cove/v1/sandboxes/{made['id']}/metrics").status == 200)


def test_a_template_without_a_place_is_at_fault(live, tmp_path):
    service, client = live
    (tmp_path / "Dockerfile").write_text("FROM base\nUSER root\nRUN rm -rf /opt\n")
    done = service.cove("template", "build", "--name", "placeless", str(tmp_path))
    assert done.returncode == 0, done
    status, refused = client.post("sandboxes", {"template": "placeless", "tier": "process"})
    assert refused["error"]["code"] == "failed_precondition" and "the template has no place to show the host's: /opt: No such file" in refused["error"]["message"], (status, refused)


def test_what_it_can_t_do_is_refused(live):
    service, client = live
    sandbox = client.create(metadata={"cove.tier": "process"})
    status, refused = client.post(f"sandboxes/{sandbox.id}/snapshots", {"memory": True})
    assert status == 501 and "tier process can't save memory to disk" in refused["error"]["message"], (status, refused)
    status, refused = client.post(f"sandboxes/{sandbox.id}/pause", {"to": "disk"})
    assert status == 501, (status, refused)
    made = client.native("POST", "/cove/v1/volumes", {"name": "over"})
    assert made.status == 201, made
    for path in ("/usr", "/usr/local", "/etc"):
        status, refused = client.post("sandboxes", {"tier": "process", "volumes": [{"name": "over", "path": path}]})
        assert status == 400 and f"tier process can't mount volumes at {path}" in refused["error"]["message"], (status, refused)
    box = Box(service, extensions={"cove.tier": "process"})
    status, refused = box.execd("POST", "/v1/isolated/session", {"workspace": {"path": "/srv"}})
    assert status == 501 and "have no isolated sessions" in refused["message"], (status, refused)
