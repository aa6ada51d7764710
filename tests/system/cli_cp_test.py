# SPDX-License-Identifier: Apache-2.0
"""cove cp, both ways, with what may come out of a sandbox that means harm."""

import json
import os
import signal
import socket
import stat
import subprocess

import pytest
from service import wait_until


def test_cp_keeps_content_and_permissions(service, sandbox, tmp_path):
    data = os.urandom(3 << 20)
    script = tmp_path / "it's.sh"
    script.write_bytes(data)
    script.chmod(0o750)
    assert service.cove("cp", script, f"{sandbox}:").returncode == 0
    assert service.cove("cp", "-r", script, f"{sandbox}:new/dir/").returncode == 0
    assert service.cove("cp", script, f"{sandbox}:/tmp/x y").returncode == 0
    listed = service.cove("exec", sandbox, "--", "stat", "-c", "%a %U %s", "it's.sh", "new/dir/it's.sh", "/tmp/x y").stdout
    assert listed == f"750 user {len(data)}\n" * 3
    back = tmp_path / "back"
    back.mkdir()
    assert service.cove("cp", f"{sandbox}:/tmp/x y", back).returncode == 0
    assert service.cove("cp", f"{sandbox}:it's.sh", back / "named").returncode == 0
    for name in ("x y", "named"):
        assert (back / name).read_bytes() == data
        assert stat.S_IMODE((back / name).stat().st_mode) == 0o750
    assert [p.name for p in sorted(back.iterdir())] == ["named", "x y"]


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o664, 0o644, 0o700])
def test_cp_keeps_private_files_private(service, sandbox, tmp_path, mode):
    secret = tmp_path / "secret"
    secret.write_text("key")
    secret.chmod(mode)
    assert service.cove("cp", secret, f"{sandbox}:deep/er/").returncode == 0
    assert service.cove("cp", secret, f"{sandbox}:/tmp/over").returncode == 0
    assert service.cove("cp", secret, f"{sandbox}:/tmp/over").returncode == 0
    listed = service.cove("exec", sandbox, "--", "stat", "-c", "%a %U %s", "deep/er/secret", "/tmp/over").stdout
    assert listed == f"{mode:o} user 3\n" * 2
    assert service.cove("exec", sandbox, "--", "stat", "-c", "%a", "deep", "deep/er").stdout == "755\n755\n"


def test_cp_uses_stdin_and_stdout(service, sandbox):
    assert service.cove("cp", "-", f"{sandbox}:f", input="text").returncode == 0
    assert service.cove("cp", f"{sandbox}:f", "-").stdout == "text"
    assert service.cove("cp", f"{sandbox}:/proc/version", "-").stdout.startswith("Linux")
    assert service.cove("cp", "-", f"{sandbox}:/tmp", input="text").returncode == 1


def test_cp_takes_trees_both_ways(service, sandbox, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub" / "empty").mkdir(parents=True)
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    (tree / "sub" / "\u00fc\n.txt").write_text("odd name")
    (tree / "link").symlink_to("run")
    (tree / "big").write_bytes(os.urandom(1 << 20))
    os.mkfifo(tree / "fifo")
    assert service.cove("cp", tree, f"{sandbox}:").returncode == 0
    assert service.cove("cp", tree, f"{sandbox}:deep/other").returncode == 0
    listed = service.cove("exec", sandbox, "--", "sh", "-c", "cd tree && find . ! -name '*.txt' | sort && stat -c %a:%U run && readlink link")
    assert listed.stdout.split() == [".", "./big", "./link", "./run", "./sub", "./sub/empty", "755:user", "run"]
    assert service.cove("exec", sandbox, "--", "diff", "-r", "tree", "deep/other").returncode == 0
    assert service.cove("cp", f"{sandbox}:tree", tmp_path / "out").returncode == 0
    assert service.cove("cp", f"{sandbox}:tree/.", tmp_path / "out").returncode == 0
    (tree / "fifo").unlink()
    assert subprocess.run(["diff", "-r", "--no-dereference", tree, tmp_path / "out"], check=False).returncode == 0
    assert stat.S_IMODE((tmp_path / "out" / "run").stat().st_mode) == 0o755


def test_cp_does_not_trust_a_tree_from_a_sandbox(service, sandbox, tmp_path):
    """tar inside is the sandbox's: here it sends an archive that climbs out, follows its own link, and brings set-id bits."""
    out = tmp_path / "out"
    hostile = f"""
import io, sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
    def add(name, data=b"evil", **fields):
        entry = tarfile.TarInfo(name)
        for key, value in fields.items():
            setattr(entry, key, value)
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    add("good", b"good", mode=0o6755)
    add("link", b"", type=tarfile.SYMTYPE, linkname="{tmp_path}")
    add("{'link/' + 'through'}")
"""
    fake = "cat > /usr/local/bin/tar && chmod 755 /usr/local/bin/tar"
    for program, escaped in ((hostile, "through"), (hostile.replace("link/through", "../climbed"), "climbed"),
                             (hostile.replace("link/through", f"{tmp_path}/absolute"), "absolute")):
        made = service.cove("exec", "-i", "-u", "root", sandbox, "--", "sh", "-c", fake, input="#!/usr/bin/python3" + program)
        assert made.returncode == 0
        done = service.cove("cp", f"{sandbox}:/tmp", out)
        # A link in the way is replaced by the directory that the archive claims; names that point out are refused.
        assert done.returncode == (0 if escaped == "through" else 1), escaped
        assert not (tmp_path / escaped).exists()
        assert (out / "good").read_bytes() == b"good"
        assert stat.S_IMODE((out / "good").stat().st_mode) == 0o755
        subprocess.run(["rm", "-rf", out], check=True)


def test_cp_says_what_the_tar_of_the_sandbox_said(service, sandbox, tmp_path):
    def replace(script):
        made = service.cove("exec", "-u", "root", sandbox, "--", "sh", "-c", "rm -f /usr/bin/tar; cat > /usr/bin/tar; chmod +x /usr/bin/tar", input=script)
        assert made.returncode == 0
    replace("#!/bin/sh\necho no archive; echo sorry >&2; exit 3\n")
    done = service.cove("cp", f"{sandbox}:/etc", tmp_path / "out")
    assert (done.returncode, done.stderr) == (1, "cove cp: in the sandbox: sorry\n")
    replace("#!/bin/sh\necho no archive\n")
    done = service.cove("cp", f"{sandbox}:/etc", tmp_path / "out")
    assert (done.returncode, done.stderr) == (1, "cove cp: tar's output in the sandbox is not an archive\n")
    service.cove("exec", "-u", "root", sandbox, "rm", "/usr/bin/tar")
    done = service.cove("cp", f"{sandbox}:/etc", tmp_path / "out")
    assert done.returncode == 1 and "not found" in done.stderr and "the sandbox's own tar" in done.stderr, done
    assert list(tmp_path.iterdir()) == []


def test_cp_of_a_tree_is_one_event(service, sandbox, tmp_path):
    """However large it is: what was done, as what it was asked for, and what came of it."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for i in range(300):
        (tree / f"f{i}").write_bytes(os.urandom(40000))
    assert service.cove("cp", tree, f"{sandbox}:").returncode == 0
    assert service.cove("cp", f"{sandbox}:tree", tmp_path / "back").returncode == 0
    assert subprocess.run(["diff", "-r", tree, tmp_path / "back"], check=False).returncode == 0
    events = [json.loads(line) for line in service.cove("log", "--json", sandbox).stdout.splitlines()]
    done = [(e["kind"], e["data"].get("path")) for e in events if e["kind"].startswith(("exec.", "file.")) and e["kind"] != "file.stat"]
    assert done == [("file.unpack", "./tree"), ("file.done", None), ("file.pack", "tree"), ("file.done", None)] or \
        done == [("file.unpack", "tree"), ("file.done", None), ("file.pack", "tree"), ("file.done", None)], done
    assert all(e["data"]["bytes"] > 300 * 40000 for e in events if e["kind"] == "file.done")


def test_an_archive_that_is_cut_is_not_done(service, sandbox):
    with socket.create_connection(("127.0.0.1", service.port)) as s:
        s.sendall(f"PUT /cove/v1/sandboxes/{sandbox}/archive?path=cut HTTP/1.1\r\nHost: x\r\nX-API-Key: {service.key}\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n400\r\n".encode() + b"x" * 0x400 + b"\r\n")
        assert wait_until(lambda: "file.unpack" in service.cove("log", sandbox).stdout)
    assert wait_until(lambda: "file.failed" in service.cove("log", sandbox).stdout)
    assert "file.done" not in service.cove("log", sandbox).stdout
    assert wait_until(lambda: "tar" not in service.cove("exec", sandbox, "--", "sh", "-c", "cat /proc/[0-9]*/comm").stdout.split())


def test_what_is_no_archive_or_may_not_be_written_is_said(service, sandbox, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "f").write_text("x")
    done = service.cove("cp", tmp_path / "tree", f"{sandbox}:/etc/new")
    assert done.returncode == 1 and "/etc/new" in done.stderr, done
    assert service.cove("cp", "-u", "root", tmp_path / "tree", f"{sandbox}:/etc/new").returncode == 0
    status, _, answer = service.request("PUT", f"/cove/v1/sandboxes/{sandbox}/archive?path=x", {"no": "archive"})
    assert status >= 400 and "in the sandbox: tar" in answer["error"]["message"], answer
    assert service.cove("exec", "-u", "root", sandbox, "--", "sh", "-c", "mkdir /home/user/d; echo s > /home/user/d/secret; chmod 600 /home/user/d/secret; echo o > /home/user/d/open").returncode == 0
    done = service.cove("cp", f"{sandbox}:d", tmp_path / "d")
    assert done.returncode == 1 and "secret" in done.stderr and "Permission denied" in done.stderr, done
    status, _, answer = service.request("GET", f"/cove/v1/sandboxes/{sandbox}/archive?path=/etc/passwd")
    assert (status, answer["error"]["code"]) == (404, "not_found"), answer


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_cp_that_is_ended_leaves_nothing_half_done(service, sandbox, tmp_path, how):
    service.cove("exec", sandbox, "--", "sh", "-c", "head -c 300000000 /dev/zero > big")
    process = service.popen("cp", f"{sandbox}:big", tmp_path / "big", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert wait_until(lambda: list(tmp_path.iterdir()))
    process.send_signal(how)
    assert process.wait(60) == -how
    assert list(tmp_path.iterdir()) == []


def test_cp_says_what_is_wrong(service, sandbox, tmp_path):
    assert service.cove("cp", "a", "b").returncode == 2
    assert service.cove("cp", f"{sandbox}:a", f"{sandbox}:b").returncode == 2
    for source, target, message in ((tmp_path / "none", f"{sandbox}:", "none"), (f"{sandbox}:none", tmp_path, "none"),
                                    (f"{sandbox}:/etc/hostname", "/no/such/place", "/no/such/place"),
                                    (f"{sandbox}:/dev/null", tmp_path, "neither"), ("/etc/hostname", f"{sandbox}:/proc/nothing", "")):
        done = service.cove("cp", source, target)
        assert done.returncode == 1, (source, target)
        assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_cp_says_that_there_is_no_such_user(service, sandbox, tmp_path):
    for source, target in (("/etc/hostname", f"{sandbox}:"), (f"{sandbox}:.bashrc", tmp_path), ("-", f"{sandbox}:f")):
        done = service.cove("cp", "-u", "nosuch", source, target)
        assert (done.returncode, done.stderr) == (1, "cove cp: there is no user 'nosuch' in the sandbox\n"), done


def test_cp_does_not_spread_a_sandbox_over_a_directory(service, sandbox, tmp_path):
    assert service.cove("exec", sandbox, "--", "sh", "-c", "echo evil > .bashrc; mkdir sub; echo in > sub/.profile").returncode == 0
    here = tmp_path / "here"
    here.mkdir()
    (here / ".bashrc").write_text("mine")
    for path in ("", ".", "./", "./.", "..", "../", "/", "//", "sub/..", "/home/user/..", "sub/../."):
        for target in (".", f"{here}/"):
            done = service.cove("cp", f"{sandbox}:{path}", target, cwd=here)
            assert done.returncode == 2, (path, done)
            said = f"cove cp: {sandbox}:{path} has no name of its own; say where to put it: cove cp {sandbox}:{path} {target.rstrip('/')}/box\n"
            assert done.stderr.startswith(said), done.stderr
    assert [p.name for p in here.rglob("*")] == [".bashrc"] and (here / ".bashrc").read_text() == "mine"
    assert service.cove("cp", f"{sandbox}:", f"{here}/box").returncode == 0
    assert (here / "box" / ".bashrc").read_text() == "evil\n" and (here / ".bashrc").read_text() == "mine"
    assert service.cove("cp", f"{sandbox}:sub/.", here).returncode == 0 # what is asked for by name is had
    assert (here / ".profile").read_text() == "in\n"


@pytest.mark.parametrize("direction", ["up", "down"])
def test_cp_says_that_the_sandbox_was_paused(service, sandbox, direction):
    assert service.cove("exec", sandbox, "--", "sh", "-c", "head -c 50000000 /dev/zero > big").returncode == 0
    if direction == "down":
        process = service.popen("cp", f"{sandbox}:big", "-", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.read(1) == b"\0"
    else:
        process = service.popen("cp", "-", f"{sandbox}:new", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(b"x" * (1 << 20))
        process.stdin.flush()
        assert wait_until(lambda: service.cove("exec", sandbox, "--", "sh", "-c", "ls -A | grep -v big").stdout)
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"sandbox {sandbox} was paused while this was copied".encode() in said and f"cove resume {sandbox}".encode() in said, said
    done = service.cove("cp", f"{sandbox}:big", "/tmp/never")
    assert done.returncode == 1 and "is paused" in done.stderr and "cove resume" in done.stderr
