# SPDX-License-Identifier: Apache-2.0
"""cove-bwrap: bubblewrap's command line as agents use it, and codex itself with it."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

import pytest
from agent_cli_test import PORT, installed, model_of
from conftest import UID
from world import World

ROOT = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
SMALL = ["--tmpfs", "/", "--dev", "/dev", "--proc", "/proc", *(w for p in ("/bin", "/lib", "/lib64", "/usr", "/etc") for w in ("--ro-bind-try", p, p))]


@pytest.fixture
def bwrap(here):
    def run(*words, **options):
        return here.run(None, *words, program="cove-bwrap", **options)
    run.here = here
    return run


def sh(bwrap, options, line, **more):
    return bwrap(*options, "--", "sh", "-c", line, **more)


def test_what_is_mounted_later_lies_on_top(bwrap):
    home = bwrap.here.home
    bwrap.here.file("work/a", "here")
    bwrap.here.file("work/.git/config", "git")
    work = home / "work"
    first = [*ROOT, "--bind", work, work, "--ro-bind", work / ".git", work / ".git"]
    done = sh(bwrap, first, f"cd {work}; echo x >b && echo wrote; echo x >.git/config; rm -r .git; mv .git g; cat .git/config")
    assert done.stdout == "wrote\ngit" and (work / "b").exists(), done
    other = [*ROOT, "--ro-bind", work / ".git", work / ".git", "--bind", work, work]
    assert sh(bwrap, other, f"echo y >{work}/.git/config && cat {work}/.git/config").stdout == "y\n"
    masked = sh(bwrap, [*ROOT, "--ro-bind", "/dev/null", work / "a", "--perms", "000", "--tmpfs", work / ".git", "--remount-ro", work / ".git"],
                f"cat {work}/a; ls {work}/.git")
    assert masked.stdout == "" and "Permission denied" in masked.stderr, masked


def test_a_root_of_its_own(bwrap):
    here = bwrap.here
    here.file("f", "of the machine")
    done = sh(bwrap, [*SMALL, "--dir", "/a/b", "--symlink", "b", "/a/c", "--bind", here.home / "f", "/a/c/f", "--perms", "0700", "--dir", "/p", "--chmod", "0711", "/p"],
              "ls /; cat /a/b/f; stat -c %a /p; echo z >/made && cat /made; ls /home /root /var")
    assert {"a", "bin", "dev", "etc", "p", "proc", "usr"} <= set(done.stdout.split()) and "home" not in done.stdout.split(), done
    assert "of the machine" in done.stdout and "\n711\n" in done.stdout.replace("machine", "machine\n") and done.stdout.endswith("z\n"), done
    assert bwrap(*ROOT, "--bind", "/nowhere", "/mnt", "true").returncode == 1
    assert bwrap(*ROOT, "--bind-try", "/nowhere", "/mnt", "true").returncode == 0


def test_a_link_in_a_place_leads_nowhere_outside(bwrap):
    here = bwrap.here
    here.folder("work")
    os.symlink("/etc", here.home / "work" / "link")
    done = sh(bwrap, [*SMALL, "--bind", here.home / "work", "/place", "--tmpfs", "/place/link"], "ls /etc; touch /etc/x && echo in-memory")
    assert done.stdout == "in-memory\n" and os.path.exists("/etc/passwd"), done


@pytest.mark.parametrize("kind, mode", [("--ro-bind-data", "444"), ("--bind-data", "600"), ("--file", "600")])
def test_files_from_a_descriptor(bwrap, kind, mode):
    read, write = os.pipe()
    os.write(write, b"from a descriptor")
    os.close(write)
    done = sh(bwrap, [*SMALL, "--perms", mode, kind, read, "/d/f"], "cat /d/f; stat -c ' %a' /d/f; ls -A / | grep cove", pass_fds=[read])
    os.close(read)
    assert done.stdout == f"from a descriptor {mode}\n", done


def test_arguments_from_a_descriptor(bwrap):
    def run(text):
        read, write = os.pipe()
        os.write(write, text)
        os.close(write)
        try:
            return bwrap("--ro-bind", "/", "/", "--args", read, "sh", "-c", "echo $A", pass_fds=[read])
        finally:
            os.close(read)
    assert run(b"--setenv\0A\0b c\0--dev\0/dev").stdout == "b c\n"
    assert run(b"--setenv\0A\0b c\0--share-ipc\0").returncode == 1


def test_the_environment_and_the_directory(bwrap):
    done = sh(bwrap, [*ROOT, "--clearenv", "--setenv", "PATH", os.environ["PATH"], "--setenv", "A", "1", "--unsetenv", "A", "--setenv", "B", "2", "--chdir", "/usr"],
              "env; pwd", env={"GONE": "1"})
    assert "B=2\n" in done.stdout and "PWD=/usr\n" in done.stdout and not re.search("^(GONE|A)=", done.stdout, re.M) and done.stdout.endswith("/usr\n"), done
    assert sh(bwrap, ROOT, "pwd").stdout.strip() == str(bwrap.here.home)
    assert bwrap(*SMALL, "pwd").stdout.strip() == "/"
    assert bwrap(*ROOT, "--chdir", "/nowhere", "true").returncode == 1
    assert bwrap(*ROOT, "--argv0", "other", "sh", "-c", "tr '\\0' ' ' </proc/$$/cmdline").stdout.startswith("other -c")


@pytest.mark.parametrize("line, code", [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_how_it_ends(bwrap, line, code):
    assert sh(bwrap, ROOT, line).returncode == code


def test_what_can_not_be_executed(bwrap):
    done = bwrap(*ROOT, "/nowhere")
    assert done.returncode == 1 and done.stderr == "bwrap: execvp: /nowhere: No such file or directory\n"


@pytest.mark.parametrize("words, says", [
    (["--nonsense", "true"], "--nonsense: there is no such option"), (["--cap-add", "CAP_SYS_ADMIN", "true"], "--cap-add is not supported"),
    (["--userns", "5", "true"], "--userns is not supported"), (["--overlay-src", "/", "true"], "--overlay-src is not supported"), (["--uid", "0", "true"], "--uid 0"),
    (["--json-status-fd", "5", "true"], "--json-status-fd is not supported"), (["--lock-file", "/x", "true"], "--lock-file is not supported"),
    (["--bind", "/"], "--bind wants SRC DEST"), (["--bind", "/", "relative", "true"], "absolute"), (["--share-net", "true"], "--share-net"), ([], "which command"),
    (["--perms", "9", "--tmpfs", "/", "true"], "octal"), (["--perms", "755", "--proc", "/proc", "true"], "--perms"), (["--size", "-1", "--tmpfs", "/", "true"], "--size"),
    (["--seccomp", "99", "true"], "--seccomp"), (["--args", "99", "true"], "--args"), (["-x", "true"], "-x"), (["--chmod", "", "/", "true"], "octal")])
def test_refused_by_name(bwrap, words, says):
    done = bwrap(*words)
    assert done.returncode == 1 and done.stderr.startswith("bwrap: ") and says in done.stderr and done.stdout == "", done


def test_the_boundary_holds_unasked(bwrap):
    """What is bound is writable, and nothing else of the boundary goes with it."""
    done = sh(bwrap, ["--dev-bind", "/", "/", "--dev", "/dev", "--dev", "/dev"], "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; unshare -U true && echo userns; "
              "mount -t tmpfs x /mnt && echo mounted; echo $$; hostname other && echo named")
    assert re.findall(r"\w+", done.stdout)[:8] == ["CapEff", "0" * 16, "CapBnd", "0" * 16, "NoNewPrivs", "1", "Seccomp", "2"] and int(done.stdout.split()[-1]) < 10, done
    assert not set(done.stdout.split()) & {"userns", "mounted", "named"}, done


def test_ids_and_names(bwrap):
    done = sh(bwrap, [*ROOT, "--unshare-user", "--uid", "1234", "--gid", "4321", "--hostname", "box"], "id -u; id -g; hostname; touch w")
    assert done.stdout.split() == ["1234", "4321", "box"], done


@pytest.mark.parametrize("options, reaches", [([], True), (["--unshare-all", "--share-net"], True), (["--unshare-all"], False), (["--unshare-net"], False)])
def test_the_network_is_shared_or_empty(bwrap, options, reaches):
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = sh(bwrap, [*ROOT, *options], f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo reached".replace("exec", "bash -c 'exec", 1) + "'")
    assert ("reached" in done.stdout) == reaches, done


@pytest.mark.parametrize("how", ["bound", "below"])
def test_unix_sockets_of_the_machine_only_where_they_are_bound(bwrap, how):
    path = bwrap.here.home / "service"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o777)
        server.listen()
        done = bwrap(*ROOT, "--unshare-net", *(["--bind", path, path] if how == "bound" else ["--bind", bwrap.here.home, bwrap.here.home]),
                     "/usr/bin/python3", "-c", f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r}); print('reached')")
    assert ("reached" in done.stdout) == (how == "bound"), done


def test_a_filter_of_the_callers(bwrap):
    """Refuses uname(2), 63 on x86-64."""
    program = b"".join(code.to_bytes(2, "little") + bytes((jt, jf)) + k.to_bytes(4, "little") for code, jt, jf, k in
                       ((0x20, 0, 0, 0), (0x15, 0, 1, 63), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)))
    read, write = os.pipe()
    os.write(write, program)
    os.close(write)
    done = sh(bwrap, [*ROOT, "--seccomp", read], "uname; echo on", pass_fds=[read])
    os.close(read)
    assert done.stdout == "on\n" and "Operation not permitted" in done.stderr, done


def test_it_ends_with_the_caller_if_that_is_asked(here):
    line = " ".join(map(str, [here.bin / "cove-bwrap", *ROOT, "--die-with-parent", "sleep", "77"]))
    parent = subprocess.Popen([*here.argv(None)[:-1], "sh", "-c", f"{line} & echo $!; sleep 60"], stdout=subprocess.PIPE, text=True, env=here.environment())
    child = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.kill()
    parent.wait(60)
    end = time.monotonic() + 30
    while os.path.exists(f"/proc/{child}") and time.monotonic() < end:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{child}")


def test_root_is_refused(bwrap):
    done = subprocess.run([bwrap.here.bin / "cove-bwrap", *ROOT, "true"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "root's id" in done.stderr


# ---- codex ----


@pytest.fixture
def codex(here):
    """With cove-bwrap as its bwrap: an argument list, which `before` precedes."""
    binary = installed("agent_kits") / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
    path = here.directory / "codex"
    shutil.copy(binary, path)
    (here.directory / "shim").mkdir()
    os.symlink(here.bin / "cove-bwrap", here.directory / "shim/bwrap")
    here.folder("work")

    def run(*words, before=(), env=None, **options):
        argv = [*before, *here.argv(None)[:-1], path, *words]
        return subprocess.run([str(w) for w in argv], cwd=here.home / "work", capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL,
                              env={**here.environment(), "PATH": f"{here.directory / 'shim'}:/usr/bin:/bin", "RUST_LOG": "error", **(env or {})}, **options)
    run.here = here
    return run


MARK = "grep -c . /proc/1/cmdline; tr '\\0' ' ' </proc/1/cmdline | cut -c -6; "


def test_codex_runs_commands_in_it(codex):
    subprocess.run(["git", "init", "-q", codex.here.home / "work"], check=True)
    subprocess.run(["chown", "-R", f"{UID}:{UID}", codex.here.home / "work"], check=True)
    done = codex("sandbox", "-P", ":workspace", "--", "sh", "-c", MARK + "touch a && echo wrote; touch .git/b || echo kept; touch /etc/c || echo kept; exit 5")
    assert done.returncode == 5 and done.stdout.split()[1:] == ["bwrap", "wrote", "kept", "kept"], done
    done = codex("sandbox", "-P", ":read-only", "--", "sh", "-c", MARK + "touch a2 || echo kept; kill -9 $$")
    assert done.returncode == 137 and done.stdout.split()[1:] == ["bwrap", "kept"], done
    done = codex("sandbox", "-P", ":workspace", "--", "bash", "-c", MARK + "exec 3<>/dev/tcp/127.0.0.1/1")
    assert "bwrap" in done.stdout and "not permitted" in done.stderr, done


def test_codex_itself_works_with_it(codex):
    """It asks its model, runs what that asks for, and tells it what came of it."""
    directory = tempfile.mkdtemp(prefix="cove-here-codex-", dir="/var/tmp")
    os.chmod(directory, 0o755)
    world = World(directory)
    provider = f'model_providers.t={{name="t",base_url="https://api.test:{PORT}/v1",env_key="KEY",wire_api="responses"}}'
    try:
        world.start()
        with model_of(world, MODEL_COMMAND=MARK + "echo right >answer && echo wrote; touch /etc/x || echo kept"):
            done = codex("exec", "-C", codex.here.home / "work", "--skip-git-repo-check", "--sandbox", "workspace-write", "-c", provider, "-c", "model_provider=t", "-m", "gpt-5-codex", "mend it",
                         before=["nsenter", "-t", world.machine.pid, "-m", "-n", "--"], env={"KEY": "sk-real", "SSL_CERT_FILE": str(world.directory / "ca.pem")})
    finally:
        world.stop()
        shutil.rmtree(directory, ignore_errors=True)
    assert done.returncode == 0 and re.search(r"bwrap.*wrote.*kept", done.stdout, re.S), done
    assert (codex.here.home / "work/answer").read_text() == "right\n"
