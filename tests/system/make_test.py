# SPDX-License-Identifier: Apache-2.0
"""What make says to people whose machine is not as it should be."""

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import pytest
from leaks import own_service
from service import BUILD, TOP

PROGRAMS = ("cove", "cove-cli", "cove-here", "cove-bwrap", "coved", "cove-api", "cove-egress", "cove-agent", "cove-image")


@pytest.mark.parametrize("verb", ["start", "run"])
@pytest.mark.parametrize("text, why", [("nonsense: 1\n", 'unknown key "nonsense"'), ("listen: [\n", "cove.yaml"), ("defaults:\n  memory: much\n", "memory")])
def test_start_says_that_the_configuration_is_wrong(tmp_path, text, why, verb):
    if os.geteuid() != 0:
        pytest.skip("the service needs root")
    (tmp_path / "tools").mkdir()
    shutil.copy(TOP / "tools" / "service", tmp_path / "tools")
    (tmp_path / "build").symlink_to(BUILD)
    (tmp_path / "cove.yaml").write_text(text)
    env = {k: v for k, v in os.environ.items() if not k.startswith("COVE_")}
    env.update(COVE_CONFIG=str(tmp_path / "cove.yaml"), COVE_STATE=str(tmp_path / "state"), COVE_RUN=str(tmp_path / "run"), COVE_LISTEN="127.0.0.1:1")
    done = subprocess.run([tmp_path / "tools" / "service", verb], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          check=False) # returns when nothing holds its output any more
    assert done.returncode == 1 and why in done.stderr and "template" not in done.stderr, done
    assert "not started" in done.stderr.splitlines()[-1]


def without_build(tmp_path, *arguments, **env):
    """tools/service of a tree in which nothing is built."""
    (tmp_path / "tools").mkdir(exist_ok=True)
    shutil.copy(TOP / "tools" / "service", tmp_path / "tools")
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("COVE_")}, "COVE_CONFIG": "/dev/null", **env}
    return subprocess.run([tmp_path / "tools" / "service", *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False)


def test_a_service_without_template_and_build(tmp_path):
    with own_service("make", has_template=False) as service:
        env = {"COVE_RUN": str(service.run)}
        done = service.cove("run", "--", "true")
        assert done.returncode == 125 and "template 'base' not found" in done.stderr and "'coved prepare'" in done.stderr, done
        assert "no base template" in service.log.read_text() and service.request("GET", "/cove/v1/info")[2]["sandboxes"] == 0
        pid_file = service.run / "coved.pid"
        done = without_build(tmp_path, "left", **env)
        assert (done.returncode, done.stdout) == (0, f"Cove still runs, pid {service.coved.pid}: COVE_RUN={service.run} make stop ends it\n"), done
        pid_file.write_text(f"{os.getpid()}\n") # of one that is long gone, and used again: it is no coved
        done = without_build(tmp_path, "stop", **env)
        assert (done.returncode, done.stdout, done.stderr) == (0, "Cove has stopped\n", ""), done
        assert service.coved.wait(60) == 0 and not pid_file.exists()
        for verb, said in (("stop", "Cove is not running\n"), ("left", "")):
            done = without_build(tmp_path, verb, **env)
            assert (done.returncode, done.stdout, done.stderr) == (0, said, ""), done


def test_what_runs_on_another_state_is_said(service, tmp_path):
    env = {"COVE_RUN": str(service.run), "COVE_STATE": str(tmp_path / "other")}
    for arguments in (("check", "start"), ("check", "run")):
        done = without_build(tmp_path, *arguments, **env)
        assert done.returncode == 1 and f"pid {service.coved.pid}, on the state in {service.state}, and not in {tmp_path}/other" in done.stderr, done
    same = {**env, "COVE_STATE": str(service.state)}
    assert without_build(tmp_path, "check", "start", **same).returncode == 0
    done = without_build(tmp_path, "check", "run", **same)
    assert done.returncode == 1 and f"running already, pid {service.coved.pid}" in done.stderr, done


@pytest.mark.parametrize("name", ["COVE_LISTEN", "COVE_LISTEN_TLS"])
@pytest.mark.parametrize("text", ["banana", "banana:80", "127.0.0.1:65536", "127.0.0.1:", "127.0.0.1:9,7070"])
def test_what_is_no_address_is_said_before_anything_is_installed(tmp_path, name, text):
    done = without_build(tmp_path, "check", "run", **{"COVE_RUN": str(tmp_path / "run"), "COVE_LISTEN": "127.0.0.1:9", name: text})
    wrong = text.split(",")[-1]
    assert done.returncode == 1 and f'"{wrong}" is not an address to listen on' in done.stderr, done


@pytest.mark.parametrize("written, host", [
    ("listen: 127.0.0.1:{}", "127.0.0.1"), ('listen: "[::1]:{}" # other: 127.0.0.1:1', "[::1]"), ("listen: ['127.0.0.1:1', '[::1]:{}']", "[::1]"),
    ('log_level: info\nlisten:\n  # - 127.0.0.1:1\n  - 127.0.0.1:1\n  - "[::]:{}"\nowner: 0', "[::]"), ('listen: [\n  127.0.0.1:1,\n  "[::1]:{}" ]', "[::1]"),
    ("listen_tls: 127.0.0.1:1\nlisten: ['*:{}']", "*")])
def test_a_port_that_somebody_has_is_found_whatever_its_address(tmp_path, written, host):
    family = socket.AF_INET6 if "[" in host else socket.AF_INET
    with socket.socket(family) as taken:
        try:
            taken.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        port = taken.getsockname()[1]
        (tmp_path / "cove.yaml").write_text(written.format(port) + "\n")
        env = {"COVE_RUN": str(tmp_path / "run"), "COVE_CONFIG": str(tmp_path / "cove.yaml")}
        assert without_build(tmp_path, "check", "start", **env).returncode == 0 # nobody listens there yet
        taken.listen()
        done = without_build(tmp_path, "check", "start", **env)
        assert done.returncode == 1 and done.stderr.startswith(f"cove: {host}:{port} is in use by another program"), done
        seen = {"[::]": "[::1]", "*": "127.0.0.1"}.get(host, host)
        assert f"COVE_LISTEN='{host}:{port + 1}' COVE_URL='http://{seen}:{port + 1}' make start" in done.stderr, done


def test_only_what_is_another_users_keeps_make_from_building():
    if os.geteuid() != 0:
        pytest.skip("another user's files need root")
    with tempfile.TemporaryDirectory() as tree: # pytest's own are closed to others
        os.chmod(tree, 0o777)
        layer = Path(tree) / "build/bench/prepared/pool/layers/one/u"
        layer.mkdir(parents=True)
        (layer / "dangling").symlink_to("/nowhere/at/all")

        def check(user):
            makefile = (TOP / "Makefile").read_text()
            return subprocess.run(["make", "-s", "-f", "-", "check-build"], input=makefile, cwd=tree, user=user, capture_output=True, text=True, timeout=60, check=False)
        assert (check(0).returncode, check(0).stderr) == (0, "")
        done = check(65534)
        assert done.returncode == 2 and "make: build is another user's" in done.stderr, done
        for path in [Path(tree) / "build", *Path(tree, "build").rglob("*")]:
            os.lchown(path, 65534, 65534)
        assert check(65534).returncode == 0


def uninstall(tree):
    done = subprocess.run(["make", "-s", "-C", TOP, "uninstall", f"DESTDIR={tree}"], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_uninstall_says_what_went_and_what_stays(tmp_path):
    for name in PROGRAMS:
        file = tmp_path / "usr/local/bin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "usr/local/bin/other").touch()
    (tmp_path / "usr/local/share/doc/cove").mkdir(parents=True)
    (tmp_path / "etc/cove").mkdir(parents=True)
    removed, kept, how = uninstall(tmp_path)
    assert removed.startswith("removed: ") and all(f"{tmp_path}/usr/local/bin/{name}" in removed.split() for name in PROGRAMS)
    assert kept == f"kept, as they are yours: {tmp_path}/etc/cove" and how.endswith(f": rm -rf {tmp_path}/etc/cove")
    assert os.listdir(tmp_path / "usr/local/bin") == ["other"] and not (tmp_path / "usr/local/share/doc/cove").exists()
    assert uninstall(tmp_path) == [f"nothing is installed in {tmp_path}/usr/local", kept, how]
    assert uninstall(tmp_path / "nowhere") == [f"nothing is installed in {tmp_path}/nowhere/usr/local"]


def test_stop_says_how_many_end_with_it(tmp_path):
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "cove").symlink_to(BUILD / "cove")
    with own_service("make") as service:
        for _ in range(3):
            kept = service.create()
        assert service.cove("pause", kept).returncode == 0
        done = without_build(tmp_path, "stop", COVE_RUN=str(service.run))
        assert (done.returncode, done.stdout) == (0, "Ending 2 running sandboxes\nCove has stopped\n"), done
        assert service.coved.wait(60) == 0


def test_start_says_why_the_service_does_not_answer(tmp_path):
    """coved runs, but not what it starts: here of an older Cove than the one that wrote the store."""
    (tmp_path / "build").symlink_to(BUILD)
    with own_service("older") as service:
        service.coved.terminate()
        assert service.coved.wait(60) == 0
        with sqlite3.connect(service.state / "api" / "cove.db") as store:
            store.execute("PRAGMA user_version = 1000")
        store.close()
        env = {k: v for k, v in service.env.items() if k.startswith("COVE_")}
        done = without_build(tmp_path, "start", **env)
        assert done.returncode == 1 and "written by a newer Cove" in done.stderr and "coved.log" in done.stderr, done
        assert without_build(tmp_path, "stop", **env).stdout == "Cove is not running\n"


def test_the_percentages_of_a_build_never_go_back(tmp_path):
    """ninja counts anew when it has made its own file anew, and when what is to be done turns out to be more."""
    for directory in ("tools", "build", "bin"):
        (tmp_path / directory).mkdir()
    shutil.copy(TOP / "tools" / "compile", tmp_path / "tools")
    (tmp_path / "build" / "build.ninja").touch()
    steps = [f"[{i}/{n}] step" for n, last in ((4, 3), (50, 50), (548, 548)) for i in range(1, last + 1)]
    ninja = tmp_path / "bin" / "ninja"
    ninja.write_text("#!/bin/sh\ncat <<END\nninja: Entering directory\n" + "\n".join(steps) + "\nEND\n")
    ninja.chmod(0o755)
    done = subprocess.run([tmp_path / "tools" / "compile"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}, timeout=60)
    shown = [int(line.split()[1]) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and shown == sorted(shown) and shown[-1] == 100, done


def test_no_test_stands_in_for_a_function_of_all_others(tmp_path):
    """What the build looks for in each folder's tests, which are one program."""
    stamp = tmp_path / "seen"
    for name, text in (("good", "static int fd_close(int fd) { return fd; } static int (*here)(int) = fd_close;"),
                       ("bad", "int fd_close(int fd) { return fd; }\n"), ("data", "int log_level_now = 1;\n")):
        (tmp_path / f"{name}.c").write_text(text + "\n")
        subprocess.run(["cc", "-c", "-o", tmp_path / f"{name}.o", tmp_path / f"{name}.c"], capture_output=True, check=True)
        stamp.unlink(missing_ok=True)
        done = subprocess.run([TOP / "tools" / "test-objects", stamp, tmp_path / f"{name}.o"], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == stamp.exists() == (name == "good"), done
        assert name == "good" or "tests_alone" in done.stderr and ("fd_close" in done.stderr or "log_level_now" in done.stderr)


def test_install_brings_man_pages_and_completions(tmp_path):
    subprocess.run(["make", "-s", "-C", TOP, "-o", "build", "install", f"BUILD={BUILD}", f"DESTDIR={tmp_path}"], capture_output=True, timeout=120, check=True)
    share = tmp_path / "usr/local/share"
    for name in ("man/man1/cove.1.gz", "man/man1/cove-run.1.gz", "bash-completion/completions/cove", "zsh/site-functions/_cove", "fish/vendor_completions.d/cove.fish"):
        assert (share / name).stat().st_size > 100, name
    uninstall(tmp_path)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
