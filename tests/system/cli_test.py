# SPDX-License-Identifier: Apache-2.0
"""The command line against a running service, as a person or a script uses it: all but run, exec, cp and builds, which have files of their own."""

import json
import platform
import re
import shlex
import socket
import ssl
import subprocess

import pytest
from leaks import running
from service import BUILD, reserve_port, wait_until
from terminal import Terminal


def test_errors_say_the_next_step(service):
    assert "cove template ls" in service.cove("run", "--template", "nothing", "--", "true").stderr
    assert "sh -c" in service.cove("run", "--", "no-such-program").stderr
    sandbox = service.create()
    done = service.cove("policy", "check", sandbox, "ftp://x/")
    assert done.returncode == 2 and "https://" in done.stderr, done
    assert service.cove("rm", sandbox).returncode == 0
    done = service.cove("cp", f"{sandbox}:x", "/tmp/never")
    assert done.returncode == 1 and "has ended" in done.stderr and "cove log" in done.stderr
    done = service.cove("ls", "--host", f"127.0.0.1:{service.port}", env={"COVE_API_KEY": "wrong"})
    assert done.returncode == 1 and "cove key" in done.stderr
    for command, parts in ((["template", "rm", "base"], ("comes from a file", "coved prepare --force")),
                           (["snapshot", "rm", "nothing"], ("there is no snapshot 'nothing'", "cove snapshot ls")),
                           (["volume", "rm", "nothing"], ("there is no volume 'nothing'", "cove volume ls")),
                           (["log", "nothing"], ("no sandbox and no volume nothing", "cove volume ls", "whole id"))):
        done = service.cove(*command)
        assert done.returncode == 1 and all(part in done.stderr for part in parts) and "cove rm'" not in done.stderr, done


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there, the linker takes OpenSSL (src/cli/openssl.c)")
def test_openssl_is_not_loaded_to_talk_through_a_socket_in_the_file_system(service):
    """That would be two thirds of the time of most commands."""
    done = subprocess.run([BUILD / "cove-cli", "exec", service.create(), "--", "true"], env={**service.env, "LD_DEBUG": "files"}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "libjansson" in done.stderr, done
    assert "libcrypto" not in done.stderr and "libssl" not in done.stderr


def test_what_would_allow_a_request_is_a_flag_that_does(service):
    sandbox = service.create(network={"default": "deny"})
    for url in ("https://denied.test/", "http://1.2.3.4:8080/x", "https://[2001:4860:4860::8888]/"):
        done = service.cove("policy", "check", sandbox, url)
        flag = re.search(r"^  (--allow .+) would allow it$", done.stdout, re.M)
        assert done.returncode == 1 and flag, done
        assert service.cove("policy", "set", sandbox, "--net", "deny", *shlex.split(flag[1])).returncode == 0
        done = service.cove("policy", "check", sandbox, url)
        assert "no rule matches" not in done.stdout and (done.returncode == 0 or "denied.test" in url), done # which has no address


def test_misuse_is_misuse_and_told_as_asked_for(service):
    for command in (["gc", "--dry-run", "--cache"], ["no-such-command"], ["--no-such-option"], ["ls", "--no-such-option"], ["ls", "operand"], ["help", "run", "exec"],
                    ["run", "--memory", "much"], ["run", "--allow", "https://a.test/"], ["run", "--timeout"]):
        done = service.cove(*command)
        assert done.returncode == 2 and done.stderr.startswith("cove"), (command, done)
        if command[-1] != "--timeout":
            done = service.cove(*command, "--json")
            assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (2, "invalid_argument"), (command, done)


@pytest.mark.parametrize("flags", [
    ["--allow", "a b"], ["--allow", "a.b:99999"], ["--allow", "a.b:"], ["--allow", ""], ["--deny", "10.0.0.0/99"], ["--deny", "x..y"],
    ["--net", "maybe"], ["--policy", "/no/such/file"], ["--policy", "FILE"], ["--secret", "=x"], ["--secret", "A B=x.y"],
], ids=" ".join)
def test_what_is_no_policy_is_misuse_everywhere(service, sandbox, tmp_path, flags):
    (tmp_path / "policy").write_text("default: allow\nrules: [{allow: 1}]\n")
    flags = [str(tmp_path / "policy") if word == "FILE" else word for word in flags]
    commands = [["run", *flags, "--", "true"]] + ([["policy", "set", sandbox, *flags]] if flags[0] != "--secret" else [])
    for command in commands:
        done = service.cove(*command)
        assert done.returncode == 2 and (flags[0] in done.stderr or flags[1] in done.stderr), (command, done)
        assert json.loads(service.cove(*command[:1], "--json", *command[1:]).stderr)["error"]["code"] in ("invalid_argument", "not_found"), command
    assert [s["id"] for s in service.sandboxes()] == [sandbox]


def test_what_was_done_is_said_unless_it_shall_not_be(service, sandbox, tmp_path):
    (tmp_path / "f").write_text("12345")
    for command, said in ((["warm", "base", "1"], "1 of base is kept ready from now on\n"), (["warm", "base", "0"], "none of base is kept ready any more\n"),
                          (["policy", "set", sandbox, "--allow", "a.test"], f"{sandbox}: 1 rule, else deny\n"),
                          (["cp", f"{tmp_path}/f", f"{sandbox}:g"], f"copied {tmp_path}/f to {sandbox}:g (5 B)\n"),
                          (["cp", f"{sandbox}:g", f"{tmp_path}/h"], f"copied {sandbox}:g to {tmp_path}/h (5 B)\n")):
        done = service.cove(*command)
        assert (done.returncode, done.stdout) == (0, said), done
        assert service.cove(*command, "-q").stdout == ""
        json.loads(service.cove(*command, "--json").stdout)
    assert service.cove("cp", f"{sandbox}:g", "-").stdout == "12345"
    assert "create a spare sandbox" not in service.log.read_text() # what is dropped while it is made has not failed
    if service.child("cove-egress"):
        assert service.cove("secret", "set", "SAID", input="x").stdout == "SAID is set\n"
        assert service.cove("secret", "set", "-q", "SAID", input="x").stdout == ""
        assert service.cove("secret", "rm", "SAID").stdout == "SAID\n"


def test_names_that_look_like_flags_are_refused(service, sandbox):
    for target, body in (("/cove/v1/volumes", {"name": "-x"}), (f"/cove/v1/sandboxes/{sandbox}/snapshots", {"name": "-x"}),
                         (f"/cove/v1/sandboxes/{sandbox}/snapshots", {"name": "-me/x"})):
        status, _, answer = service.request("POST", target, body)
        assert (status, answer["error"]["code"]) == (400, "invalid_argument"), answer
    headers = {"X-API-KEY": service.key, "Content-Type": "application/json"}
    for target, body in (("/volumes", {"name": "-x"}), ("/v3/templates", {"name": "-x"}), ("/v3/templates", {"name": "-me/x"}),
                         (f"/sandboxes/{sandbox}/snapshots", {"name": "-x"})):
        status, _, answer = service.request("POST", target, body, headers)
        assert (status, answer["code"]) == (400, 400), (target, answer)
    assert service.cove("volume", "create", "--", "-x").returncode == 1
    if service.child("cove-egress"):
        assert service.cove("secret", "set", "--", "-x", input="x").returncode == 1
    assert service.cove("volume", "create", "x-").stdout == "x-\n"
    assert service.cove("volume", "rm", "x-").returncode == 0


def test_a_volume_where_none_can_be_is_the_requests_mistake(service):
    assert service.cove("volume", "create", "misplaced").returncode == 0
    headers = {"X-API-KEY": service.key, "Content-Type": "application/json"}
    try:
        for path, why in (("/etc/passwd", "not a directory"), ("/etc/passwd/x", "etc/passwd"), ("/bin/x", "symbolic link"), ("/proc/x", "/proc/x")):
            status, _, answer = service.request("POST", "/cove/v1/sandboxes", {"volumes": [{"name": "misplaced", "path": path}]})
            assert (status, answer["error"]["code"], why in answer["error"]["message"]) == (400, "invalid_argument", True), (path, answer)
            body = {"templateID": "base", "volumeMounts": [{"name": "misplaced", "path": path}]}
            status, _, answer = service.request("POST", "/sandboxes", body, headers)
            assert (status, answer["code"]) == (400, 400), (path, answer)
    finally:
        assert wait_until(lambda: service.cove("volume", "rm", "misplaced").returncode == 0)


# ---- ls, rm ----


def test_ls_shows_what_runs(service):
    assert service.cove("ls").stdout == ""
    assert json.loads(service.cove("ls", "--json").stdout) == []
    first = service.create(metadata={"job": "one"}, timeout_ms=0)
    second = service.create(memory_bytes=256 << 20, cpu_milli=1500)
    lines = service.cove("ls").stdout.splitlines()
    assert lines[0].split() == ["ID", "STATE", "TEMPLATE", "TIER", "AGE", "ENDS", "IN", "MEMORY", "CPUS", "LABELS"]
    assert [line.split()[0] for line in lines[1:]] == [second, first]
    assert re.search(r"running +base +container +\d+s +4m \d+s +256 MiB +1\.5 +-$", lines[1])
    assert re.search(r"running +base +container +\d+s +- .*job=one$", lines[2])
    assert service.cove("ls", "-q").stdout == f"{second}\n{first}\n"
    listed = json.loads(service.cove("ls", "--json").stdout)
    assert [s["id"] for s in listed] == [second, first]
    assert (listed[1]["end_at"], listed[1]["metadata"]) == (None, {"job": "one"})


def test_ls_shows_labels_without_their_control_characters(service):
    service.create(metadata={"k": "a\x1b[31mb\nc"})
    line = service.cove("ls").stdout.splitlines()[1]
    assert line.endswith("k=a\\x1b[31mb\\x0ac")


def test_ls_shows_no_labels_of_our_own(service):
    labels = {"job": "one", "cove.env": "mine", "cove.repo": "/repo", "docker.image": "base", "docker.name": "box", "docker.config": "{}"}
    sandbox = service.create(metadata=labels)
    line = service.cove("ls").stdout.splitlines()[1]
    assert set(line.split()[-3:]) == {"job=one", "cove.env=mine", "docker.name=box"} and "=" not in " ".join(line.split()[:-3]), line
    assert json.loads(service.cove("ls", "--json").stdout)[0]["metadata"] == labels
    assert service.cove("rm", sandbox).returncode == 0


def test_labels_of_any_length_fit_a_terminal(service):
    sandbox = service.create(metadata={"name": "x" * 300})
    seen, status = Terminal(service, "ls").rest()
    line = next(line for line in seen.decode().splitlines() if line.startswith(sandbox))
    assert status == 0 and line.endswith("name=" + "x" * 55 + "..."), line
    assert "x" * 300 in service.cove("ls").stdout


def test_what_comes_closed_is_not_written_to_something_else(service, sandbox):
    """Without a standard output its number is free for the connection to the service."""
    for arguments in (("run", "--", "echo", "x"), ("exec", sandbox, "--", "echo", "x"), ("ls",), ("cp", f"{sandbox}:/etc/hostname", "-"), ("log", sandbox)):
        done = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', BUILD / "cove", *arguments], env=service.env, stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert done.returncode == (125 if arguments[0] in ("run", "exec") else 1) and "Bad file descriptor" in done.stderr, done
    done = subprocess.run(["sh", "-c", 'exec "$0" "$@" <&-', BUILD / "cove", "exec", sandbox, "--", "wc", "-c"], env=service.env, capture_output=True, text=True,
                          timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", ""), done


def test_what_to_do_about_a_state_is_to_be_typed_as_it_stands(service, sandbox):
    assert service.cove("pause", sandbox).returncode == 0
    done = service.cove("exec", sandbox, "--", "true")
    assert done.returncode == 125 and done.stderr.endswith(f"\n  'cove resume {sandbox}' continues it\n"), done
    assert service.cove("rm", sandbox).returncode == 0
    done = service.cove("exec", sandbox, "--", "true")
    assert done.returncode == 125 and done.stderr.endswith(f"\n  its log is still there: 'cove logs {sandbox}'\n"), done


def test_rm_removes_what_it_is_told(service):
    ids = [service.create() for _ in range(3)]
    done = service.cove("rm", ids[0], "i00000000000000000000", ids[1])
    assert done.returncode == 1
    assert done.stdout.split() == ids[:2]
    assert "i00000000000000000000" in done.stderr
    assert service.cove("ls", "-q").stdout.split() == ids[2:]
    assert service.cove("rm").returncode == 2
    assert service.cove("rm", "--all", ids[2]).returncode == 2
    assert json.loads(service.cove("rm", "--json", "--all").stdout) == {"removed": ids[2:]}
    assert service.cove("rm", "--all").returncode == 0
    assert service.cove("rm", ids[0]).returncode == 1


def test_all_of_them_are_paused_and_resumed(service):
    ids = {service.create() for _ in range(3)}
    one = min(ids)
    assert service.cove("pause", one).returncode == 0
    done = service.cove("pause", "--all")
    assert done.returncode == 0 and set(done.stdout.split()) == ids - {one}, done  # the other one is paused, which is no failure
    assert {s["state"] for s in service.sandboxes()} == {"paused"}
    assert service.cove("resume", "--all", one).returncode == 2 and service.cove("pause").returncode == 2
    done = service.cove("resume", "--json", "--all")
    assert set(json.loads(done.stdout)["resumed"]) == ids and {s["state"] for s in service.sandboxes()} == {"running"}, done
    service.remove_all()


def test_a_sandbox_goes_by_its_name(service):
    done = service.cove("run", "--keep", "--metadata", "name=a-name-that-is-longer-than-any-id", "--", "sh", "-c", "echo said-by-it")
    assert done.returncode == 0, done
    name = "a-name-that-is-longer-than-any-id"
    assert service.cove("exec", name, "--", "echo", "there").stdout == "there\n"
    assert "said-by-it" in service.cove("logs", name).stdout and "exec.start" in service.cove("log", name).stdout
    service.create(metadata={"name": name})
    done = service.cove("rm", name)
    assert done.returncode == 1 and f"2 sandboxes are called {name}: i" in done.stderr, done
    service.remove_all()
    done = service.cove("exec", name, "--", "true")
    assert done.returncode == 125 and "there is no sandbox " + name in done.stderr, done


@pytest.mark.parametrize("argv", (["debian:12", "true"], ["app", "--", "true"]), ids=" ".join)
def test_an_image_in_place_of_the_command_is_answered(service, argv):
    done = service.cove("run", *argv)
    assert done.returncode == 127 and "--template NAME; 'cove docker run IMAGE'" in done.stderr, done


def test_the_beginning_of_an_id_must_be_clear(service):
    ids = [service.create() for _ in range(2)]
    done = service.cove("exec", "i", "--", "true")
    assert done.returncode == 125
    assert ids[0] in done.stderr and ids[1] in done.stderr


def test_policy_of_a_sandbox_that_has_ended(service, sandbox):
    assert service.cove("policy", "set", sandbox, "--net", "deny").returncode == 0
    assert service.cove("pause", sandbox).returncode == 0
    assert service.cove("policy", "show", sandbox).stdout == "else  deny  (no network)\n"
    assert service.cove("rm", sandbox).returncode == 0
    for command, status in ((["show", sandbox], 1), (["set", sandbox, "--net", "allow"], 1), (["check", sandbox, "https://a.test/"], 125)):
        done = service.cove("policy", *command)
        assert done.returncode == status and f"{sandbox} has ended" in done.stderr and "cove log" in done.stderr, done
    done = service.cove("policy", "show", "i00000000000000000000")
    assert done.returncode == 1 and "there is no sandbox" in done.stderr


# ---- logs, log ----


def test_logs_tell_what_ran(service, sandbox):
    service.cove("exec", sandbox, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert wait_until(lambda: "exit_code=3" in service.cove("logs", sandbox).stdout)
    text = re.sub(r"^[\d:.]{12} ", "", service.cove("logs", sandbox).stdout, flags=re.M)
    assert "$ sh -c 'echo out; echo err >&2; exit 3'\n" in text
    assert "  out\n" in text
    assert "! err\n" in text
    kinds = [json.loads(line)["kind"] for line in service.cove("logs", "--json", sandbox).stdout.splitlines()]
    assert (kinds[0], kinds[-1]) == ("exec.start", "exec.exit")


def test_nothing_that_is_written_hides_it_from_the_logs(service, sandbox):
    """NUL, terminal escapes, bytes that are not UTF-8: what was written is shown, and what came behind it."""
    def logs():
        return service.cove("logs", sandbox, errors="replace").stdout
    for script in (r"printf 'a\000b\n'; printf '\033[2Kc\n' >&2", r"printf '\377d\n'; sleep 0.1; printf '\377e\n' >&2; sleep 0.1; echo last"):
        service.cove("exec", sandbox, "--", "sh", "-c", script, errors="replace")
    assert wait_until(lambda: logs().count("exit_code=0") == 2)
    assert set(re.findall(r"^[\d:.]{12} ([ !]) (.*)$", logs(), re.M)) == {
        (" ", "a\0b"), ("!", "\x1b[2Kc"), (" ", "\ufffdd"), ("!", "\ufffde"), (" ", "last")}, logs()
    lines = service.cove("log", sandbox).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [str(n + 1) for n in range(len(lines))]
    assert any(r"a\u0000b\n" in line for line in lines)


def test_the_log_is_gapless_chained_and_outlives_the_sandbox(service, sandbox):
    service.cove("exec", sandbox, "--", "true")
    service.cove("rm", sandbox)
    assert wait_until(lambda: "sandbox.ended" in service.cove("log", sandbox).stdout)
    events = [json.loads(line) for line in service.cove("log", "--json", sandbox).stdout.splitlines()]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert events[0]["kind"] == "sandbox.create" and events[0]["actor"] == "cli:uid=0"
    assert [e["kind"] for e in events if e["kind"].startswith("exec.")] == ["exec.start", "exec.started", "exec.exit"]
    later = service.cove("log", "--from", "3", sandbox).stdout.splitlines()
    assert len(later) == len(events) - 2 and later[0].split()[0] == "3"
    done = service.cove("log", "--verify", sandbox)
    assert (done.returncode, done.stdout) == (0, f"intact: {len(events)} events, 1 to {len(events)}\n")
    assert json.loads(service.cove("log", "--verify", "--json", sandbox).stdout)["checked"] == len(events)
    assert service.cove("log", "i00000000000000000000").returncode == 1


def test_long_output_is_kept(service, sandbox):
    script = "seq 100000; seq 300000 >&2"
    done = service.cove("exec", sandbox, "--", "sh", "-c", script)
    assert done.returncode == 0
    seq = next(e["seq"] for e in map(json.loads, service.cove("log", "--json", sandbox).stdout.splitlines()) if e["kind"] == "exec.start")
    for _ in range(2): # also when the sandbox has ended
        assert service.cove("log", "--output", str(seq), sandbox).stdout == done.stdout
        kept = service.cove("log", "--output", str(seq), "--channel", "stderr", sandbox).stdout
        assert kept == done.stderr
        none = service.cove("log", "--output", str(seq), "--channel", "pty", sandbox)
        assert none.returncode == 1 and f"no output was kept for event {seq}, channel pty" in none.stderr and "exec.start" in none.stderr
        assert service.cove("log", "--output", "999", sandbox).returncode == 1
        service.cove("rm", sandbox)
    for wrong in (["--output", "x"], ["--channel", "pty"], ["--output", "1", "--channel", "tty"], ["--output", "1", "--verify"], ["--json", "--output", "1"]):
        assert service.cove("log", *wrong, sandbox).returncode == 2, wrong
    status, _, body = service.request("GET", f"/cove/v1/sandboxes/{sandbox}/output?seq={seq}&channel=x")
    assert status == 400 and "channel" in str(body)
    assert service.request("GET", "/cove/v1/sandboxes/no/output?seq=1")[0] == 404


def test_log_follows_until_the_sandbox_ends(service, sandbox):
    process = service.popen("log", "-f", "--json", sandbox, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert json.loads(process.stdout.readline())["kind"] == "sandbox.create"
    service.cove("exec", sandbox, "--", "echo", "now")
    service.cove("rm", sandbox)
    kinds = [json.loads(line)["kind"] for line in process.stdout]
    assert process.wait(60) == 0
    assert kinds[-1] == "sandbox.ended" and "exec.output" in kinds
    process.stdout.close()
    assert service.cove("log", "-f", sandbox).returncode == 0


# ---- what needs no sandbox ----


def test_what_is_shown_as_json_is_one_line(service, sandbox):
    service.cove("volume", "create", "listed")
    for command in (["ls"], ["volume", "ls"], ["snapshot", "ls"], ["template", "ls"], ["template", "show", "base"], ["secret", "ls"], ["pool"], ["version"],
                    ["policy", "show", sandbox], ["policy", "set", sandbox, "--net", "deny"], ["policy", "check", sandbox, "https://a.test/"], ["key"],
                    ["gc", "--dry-run"], ["log", "--verify", sandbox], ["help"], ["doctor"]):
        done = service.cove(*command, "--json")
        assert len(done.stdout.splitlines()) == 1, (command, done)
        json.loads(done.stdout)
    assert json.loads(service.cove("log", "--verify", "--json", sandbox).stdout)["fault"] is None
    volume, = [v for v in json.loads(service.cove("volume", "ls", "--json").stdout) if v["name"] == "listed"]
    assert volume["used_bytes"] is None or volume["used_bytes"] > 0 # as the kind of the pool knows it
    assert re.search(r"^memory +1 GiB\ncpus +2$", service.cove("template", "show", "base").stdout, re.M)
    assert service.cove("volume", "rm", "listed").returncode == 0


def test_key_prints_the_key_and_it_opens_the_door(service):
    key = service.cove("key").stdout.strip()
    assert len(key) > 20
    assert json.loads(service.cove("key", "--json").stdout) == {"key": key}
    assert service.cove("key", env={"COVE_API_KEY": "other"}).stdout == "other\n"
    host = f"127.0.0.1:{service.port}"
    assert service.cove("ls", "--host", host).returncode == 0
    assert service.cove("ls", env={"COVE_HOST": service.url}).returncode == 0
    done = service.cove("ls", "--host", host, env={"COVE_API_KEY": "wrong"})
    assert (done.returncode, "key is wrong" in done.stderr, "cove key" in done.stderr) == (1, True, True)
    done = service.cove("run", "--host", host, "--", "echo", "over", "TCP")
    assert (done.returncode, done.stdout) == (0, "over TCP\n")


def test_those_that_ended_are_listed_and_their_logs_found(service):
    sandbox = service.create()
    assert service.cove("rm", sandbox).returncode == 0
    assert sandbox not in service.cove("ls", "-q").stdout
    ended = lambda: [s for s in json.loads(service.cove("ls", "--all", "--json").stdout) if s["id"] == sandbox]
    assert wait_until(ended) # it is answered before its files are gone
    one, = ended()
    assert (one["state"], one["end_cause"]) == ("ended", "killed") and one["ended_at"]
    assert re.search(rf"^{sandbox}  ended, killed +base ", service.cove("ls", "-a").stdout, re.M)
    for command in ("log", "logs", "net"):
        assert service.cove(command, sandbox[:8]).returncode == 0
    assert "sandbox.ended" in service.cove("log", sandbox[:8]).stdout
    done = service.cove("run", "--", "echo", "the last one")
    for command in (["log", "--last"], ["logs", "--last"]):
        assert "the last one" in service.cove(*command).stdout, done
    assert service.cove("log", "--last", "--verify").stdout.startswith("intact")
    assert service.cove("net", "--last").returncode == 0
    for command in (["log", "--last", sandbox], ["log", "--last", "--service"], ["logs", "--last", sandbox]):
        assert service.cove(*command).returncode == 2
    assert service.request("GET", "/cove/v1/sandboxes?state=no")[0] == 400
    assert service.cove("rm", sandbox[:8]).returncode == 1 # it takes those alone that live


def test_an_ambiguous_prefix_is_refused_with_the_candidates(service):
    ids = {service.create() for _ in range(3)}
    done = service.cove("rm", "i")
    assert done.returncode == 1 and "3 sandboxes begin with i: " in done.stderr and all(i in done.stderr for i in ids), done
    assert {s["id"] for s in service.sandboxes()} == ids
    service.remove_all()


def test_a_command_goes_on_without_its_caller(service, sandbox):
    done = service.cove("exec", "-d", sandbox, "--", "sh", "-c", "echo begun; exec sleep 1000")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "sleep 1000" in service.cove("exec", sandbox, "--", "ps", "-eo", "args").stdout
    assert wait_until(lambda: "  begun\n" in service.cove("logs", sandbox).stdout)
    assert service.cove("exec", "-d", sandbox, "--", "no-such-program").returncode == 127
    for flags in (("-di",), ("-dt",), ("-d", "--json")):
        assert service.cove("exec", *flags, sandbox, "--", "true").returncode == 2


def test_what_runs_and_what_it_uses(service, sandbox):
    assert service.cove("ps", sandbox).stdout == ""
    with service.popen("exec", sandbox, "--", "sleep", "1000") as sleeping:
        assert wait_until(lambda: re.search(r"^\d+ +user +\d+s +sleep 1000$", service.cove("ps", sandbox).stdout, re.M))
        process, = json.loads(service.cove("ps", "--json", sandbox).stdout)
        assert process["cmd"] == ["sleep", "1000"]
        sleeping.terminate()
    assert service.cove("ps").returncode == 2 and service.cove("ps", "inothere").returncode == 1
    assert wait_until(lambda: re.search(rf"^{sandbox} +[\d.]+% of 2 +[\d.]+ [KMG]iB / 1 GiB +-$", service.cove("stats", sandbox).stdout, re.M)) # a pool that counts no disk
    one, = json.loads(service.cove("stats", "--json").stdout)
    assert one["sandbox"] == sandbox and one["sample"]["memory_total"] == 1 << 30
    assert one["sample"]["disk_used"] is None and one["sample"]["disk_total"] is None
    assert service.cove("stats", "inothere").returncode == 1


def test_who_uses_most_memory_comes_first(service):
    ids = [service.create() for _ in range(3)]
    for mib, sandbox in zip((60, 180, 120), ids, strict=True): # of memory: /dev/shm is
        assert service.cove("exec", sandbox, "--", "dd", "if=/dev/zero", "of=/dev/shm/f", "bs=1M", f"count={mib}").returncode == 0
    wants = [ids[1], ids[2], ids[0]]
    # One that isn't measured just now comes last.
    assert wait_until(lambda: [one["sandbox"] for one in json.loads(service.cove("stats", "--json").stdout)] == wants)
    assert wait_until(lambda: [line.split()[0] for line in service.cove("stats").stdout.splitlines()[1:]] == wants)
    assert wait_until(lambda: [one["sandbox"] for one in json.loads(service.cove("stats", "--json", *ids).stdout)] == wants)
    service.remove_all()


@pytest.mark.parametrize(("command", "instead"), [
    (["kill", "i3k"], "cove rm"), (["destroy", "i3k"], "cove rm"), (["stop", "i3k"], "cove pause"), (["images"], "cove template ls"), (["undo", "i3k"], "cove rewind"), (["ssh", "i3k"], "cove exec -it"), (["inspect", "i3k"], "cove ls --json"),
    (["run", "-d", "--", "true"], "--keep"), (["run", "-p", "80:80", "--", "true"], "cove url"), (["run", "-p80:80", "true"], "cove url"),
    (["run", "--name=x", "--", "true"], "--metadata"), (["run", "-v", "data:/data", "true"], "--volume data:/data"),
    (["run", "--rm", "--", "true"], "leave it out"), (["rm", "-f", "i3k"], "leave it out"), (["stats", "--no-stream"], "leave it out"),
    (["pull", "python:3.12-slim"], "--name NAME --from-image IMAGE"), (["network", "ls"], "cove policy"), (["tag", "a", "b"], "cove template tag"), (["sandbox", "list"], "cove ls"), (["upload", "a", "b"], "cove cp"),
    (["exec", "--workdir", "/", "i3k", "true"], "--cwd"),
], ids=" ".join)
def test_what_docker_calls_otherwise_is_told(service, command, instead):
    done = service.cove(*command)
    assert done.returncode == 2 and instead in done.stderr, done
    done = service.cove(*command[:1], "--json", *command[1:])
    assert instead in "".join(json.loads(done.stderr)["error"].values()), done


@pytest.mark.parametrize(("command", "meant"), [(["lgo", "i3k"], "'cove log'"), (["rum"], "'cove run'"), (["tempalte"], "'cove template'"), (["snapshots"], "'cove snapshot'"),
                                               (["run", "--memroy", "1G", "true"], "--memory"), (["run", "--alow=x", "true"], "--allow"), (["frobnicate"], "'cove help'")], ids=" ".join)
def test_slips_are_noticed(service, command, meant):
    done = service.cove(*command)
    assert done.returncode == 2 and meant in done.stderr and done.stderr.count("did you mean") == (meant != "'cove help'"), done


def test_bytes_are_for_json(service, sandbox):
    assert service.cove("exec", sandbox, "--", "sh", "-c", "head -c 300 /dev/zero | tr '\\0' '\\377'", text=False).returncode == 0
    ones = "/" * 200
    assert wait_until(lambda: "stdout_base64" in service.cove("log", sandbox).stdout)
    assert ones not in service.cove("log", sandbox).stdout and ones in service.cove("log", "--json", sandbox).stdout


@pytest.mark.parametrize("thing", ["key", "secret", "snapshot", "template", "tenant", "volume"])
def test_things_are_listed_by_either_word(service, thing):
    assert service.cove("volume", "create", "listed").returncode == 0
    one, other = service.cove(thing, "ls", "--json"), service.cove(thing, "list", "--json")
    assert other.returncode == 0 and type(json.loads(one.stdout)) is type(json.loads(other.stdout)), other
    assert service.cove("volume", "delete", "listed").returncode == 0


def test_a_key_is_revoked_by_the_word_that_removes_other_things(service):
    assert service.cove("key", "create", "--name", "short-lived").returncode == 0
    assert service.cove("key", "rm", "short-lived").returncode == 0
    assert not json.loads(service.cove("key", "ls", "--json").stdout)


def test_version_with_and_without_a_service(service):
    both = json.loads(service.cove("version", "--json").stdout)
    assert both["cove"] == both["service"]["version"]
    alone = service.cove("version", env={"COVE_RUN": "/nowhere"})
    assert alone.returncode == 0
    assert "/nowhere/cove.sock" in alone.stdout


def test_without_a_service_it_is_said_how_to_start_it(service):
    for arguments, status in ((["ls"], 1), (["run", "true"], 125), (["exec", "i0", "true"], 125), (["rm", "--all"], 1)):
        done = service.cove(*arguments, env={"COVE_RUN": "/nowhere"})
        assert done.returncode == status
        assert "cannot reach the service at unix:/nowhere/cove.sock" in done.stderr
        assert "make start" in done.stderr
    for arguments in (["ls"], ["secret", "ls"]): # the vault is another process, and no other error
        done = service.cove(*arguments, "--json", env={"COVE_RUN": "/nowhere"})
        assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (1, "unavailable"), done


def test_others_are_kept_out(service):
    done = service.cove("ls", user=65534, group=65534, extra_groups=[])
    assert (done.returncode, "uid 65534" in done.stderr) == (1, True)


def test_every_command_explains_itself(service):
    overview = service.cove("help").stdout
    commands = json.loads(service.cove("help", "--json").stdout)
    assert {c["name"] for c in commands} >= {"run", "ls", "exec", "cp", "rm", "logs", "log", "key", "doctor", "version", "completion"}
    for command in commands:
        assert f"  {command['name']} " in overview
        done = service.cove(command["name"], "--help")
        assert done.returncode == 0
        headings = re.findall(r"^[A-Z][A-Z: ]+$", done.stdout, re.M)
        assert headings[:4] == ["NAME", "SYNOPSIS", "EXAMPLES", "DESCRIPTION"] and headings[-1] == "EXIT STATUS"
        assert all(re.match("OPTIONS", heading) for heading in headings[4:-1]) and len(headings) >= 6
        assert all(len(line) <= 110 for line in done.stdout.splitlines())
        assert done.stdout == service.cove("help", command["name"]).stdout
        wrong = service.cove(command["name"], "--no-such-option")
        assert (wrong.returncode, "--no-such-option" in wrong.stderr) == (2, True)
    assert service.cove("nothing").returncode == 2
    assert service.cove().returncode == 2


def test_the_exit_codes_are_told(service):
    table = service.cove("help", "exit-codes")
    assert table.returncode == 0
    for code in ("0", "1", "2", "N", "128+N", "124", "125", "126", "127"):
        assert re.search(rf"^ +{re.escape(code)} +\w", table.stdout, re.M), code
    assert "cove help exit-codes" in service.cove("--help").stdout
    assert service.cove("help", "no-such-topic").returncode == 2


def certificate(port, ca):
    """The one that is shown to clients, or None."""
    context = ssl.create_default_context(cafile=ca)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain, \
            context.wrap_socket(plain, server_hostname="api.sandbox.localhost") as channel:
        return channel.getpeercert(binary_form=True)


def test_domain_set_finds_out_who_has_the_port():
    port = reserve_port()
    with socket.create_server(("127.0.0.1", port)) as other:
        with running(COVE_LISTEN_TLS=f"127.0.0.1:{port}") as (service, _):
            for more in ([], ["--json"]):
                done = service.cove("domain", "set", "sandbox.localhost", *more)
                assert (done.returncode, done.stdout) == (1, ""), done
                for part in (f"127.0.0.1:{port}", "another program's", f"ss -ltnp sport = :{port}", "COVE_LISTEN_TLS"):
                    assert part in done.stderr, (part, done.stderr)
            assert service.cove("domain", "show").returncode == 1 # nothing was changed
            other.close()
            shown = []
            for _ in range(2): # the second time the port is the service's own
                done = service.cove("domain", "set", "sandbox.localhost", "--json")
                said = json.loads(done.stdout)
                assert (done.returncode, said["in_use"]) == (0, True), done
                shown.append(certificate(port, said["ca"])) # without waiting: that was waited for
            assert shown[0] != shown[1]
            # One that listens elsewhere than is said here.
            elsewhere = f"127.0.0.1:{reserve_port()}"
            done = service.cove("domain", "set", "sandbox.localhost", env={"COVE_LISTEN_TLS": elsewhere})
            assert done.returncode == 1 and f"does not answer at {elsewhere}" in done.stderr and "from now on" not in done.stdout, done
            assert service.cove("domain", "unset").returncode == 0


def test_doctor_measures_this_machine(service):
    done = service.cove("doctor", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True), report
    assert len(report["probes"]) >= 8
    assert all(p["name"] and p["status"] in ("ok", "degraded", "missing", "failed") and p["detail"] for p in report["probes"])
    table = service.cove("doctor")
    assert (table.returncode, table.stdout.splitlines()[-1]) == (0, "Sandboxes can be made on this machine.")
    assert all(p["name"] in table.stdout for p in report["probes"])
    without_root = service.cove("doctor", user=65534, group=65534, extra_groups=[])
    assert (without_root.returncode, "root" in without_root.stderr) == (1, True)


def test_timeout_sets_when_a_sandbox_ends(service):
    sandbox = service.create(timeout_ms=60000)
    before = service.request("GET", f"/cove/v1/sandboxes/{sandbox}")[2]["end_at"]
    done = service.cove("timeout", sandbox[:8], "1h")
    after = service.request("GET", f"/cove/v1/sandboxes/{sandbox}")[2]["end_at"]
    assert (done.returncode, done.stdout) == (0, f"{sandbox} ends at {after}\n") and after > before
    assert json.loads(service.cove("timeout", "--json", "--extend", sandbox, "1m").stdout)["end_at"] == after
    assert service.cove("timeout", sandbox, "soon").returncode == 2
    assert service.cove("timeout", sandbox).returncode == 2
    assert service.cove("timeout", "i00000000000000000000", "1h").returncode == 1
