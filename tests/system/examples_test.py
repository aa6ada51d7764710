# SPDX-License-Identifier: Apache-2.0
"""The examples in the help of every command, and those of the README and docs/COMMAND-LINE.md, typed as they stand into a shell beside a service; and the programs in examples/."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from cli_help_test import COMMANDS, examples_of
from leaks import running
from service import BUILD, TOP, reserve_port

# What has no place here, and where it is tested.
ELSEWHERE = {
    "-it ": "a terminal: cli_run_test.py", "set GITHUB_TOKEN": "a terminal: secret_test.py", "sudo ": "the same without follows",
    "deb.debian.org": "the internet: tests/network", "api.test": "a network: tests/network", "apt-get": "the internet: tests/network",
    "example.org/": "the internet: cli_cp_test.py", "ghcr.io": "the internet: images_test.py", "--cert": "a certificate: tls_test.py",
    "s -f": "goes on until the sandbox ends: cli_test.py", "net -f": "as that", "log -f": "as that", "--disk": "a pool with limits: storage_test.py",
    "cove env ": "a repository: env_test.py", "cove agent": "a repository: agent_test.py", "cove shell": "the same", "cove attach": "the same", "cove why": "the same", "cove here": "somebody who is not root: tests/here", "--key 9f86": "its service's key: evidence_test.py", "--heads": "the same",
    "cove replay": "a terminal: replay_test.py", "h7f3k2": "an action that waits: guard_test.py", "claude mcp": "that program: tests/sdk/mcp", "codex mcp": "the same",
    "--memory i3k": "a tier that saves memory: memory_test.py, gvisor_test.py", "--memory -n": "as that", "cove audit": "a receiver, or goes on: audit_test.py",
    "template add": "a package index: code_test.py", "cove eval": "a template of toolchains: eval_test.py",
}
# What a reader has, before each line; and takes away behind the last.
HAS = "cove exec $ID -- sh -c 'seq 100000 >&2; echo x > report.pdf; rm .profile; printf \"#!/bin/sh\\n\" > attempt; chmod +x attempt' 2>/dev/null; "
HAS_FOR = {"diff": "cove snapshot $ID before-the-upgrade", "resume": "cove pause $ID", "log": "cove volume create data 2>/dev/null || :",
           "snapshot": "cove snapshot $ID before-the-upgrade", "template": "cove template build --name app:v2 -q"}
BEHIND = {"domain": "cove domain unset", "secret": "cove secret rm OPENAI_API_KEY", "log": "cove volume rm data", "warm": "cove warm base 0"}
FILES = {"Dockerfile": "FROM base\nCOPY server /home/user/\n", "server": "#!/bin/sh\n", "main.py": "", "policy.yaml": "default: deny\n", "rules.yaml": "rails: [force-push]\n", "strict.yaml": "rails: [force-push]\n", "key.txt": "x\n",
         "Makefile": "test:\n\ttrue\n", "src/a.c": "int a;\n"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A service, and a directory with what examples name."""
    directory = tmp_path_factory.mktemp("examples")
    for name, text in FILES.items():
        file = directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    with running(name="examples", COVE_LISTEN_TLS=f"127.0.0.1:{reserve_port()}") as (service, _):
        service.env.update(PATH=f"{BUILD}:{os.environ['PATH']}", HOME=str(directory), TMPDIR=str(directory))
        yield service, directory


def type_in(service, directory, script):
    return subprocess.run(["bash", "-o", "pipefail", "-c", script], cwd=directory, env=service.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120, check=False)


def is_elsewhere(line):
    programs = [words.split()[0] for words in re.split(r"\|", line) if words.split()]
    missing = any(re.fullmatch("jq|gh|xargs|grep|curl", program) and not shutil.which(program) for program in programs)
    return missing or any(part in line for part in ELSEWHERE)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c["name"])
def test_examples_of_the_help_work(place, command):
    service, directory = place
    text = service.cove(command["name"], "--help").stdout
    lines = examples_of(text)
    for line in lines:
        if is_elsewhere(line):
            continue
        sandbox = service.create(timeout_ms=0, checkpoint="action")
        before = (HAS + HAS_FOR.get(command["name"], ":")).replace("$ID", sandbox)
        try:
            assert type_in(service, directory, before).returncode == 0, before
            done = type_in(service, directory, re.sub(r"\bi3k\b", sandbox, line))
            assert done.returncode == 0, (line, done)
        finally:
            service.remove_all()
    assert type_in(service, directory, BEHIND.get(command["name"], ":")).returncode == 0


def examples(title):
    """What the page types below this title, and what it shows of each: [(command, output)]."""
    page, title = title.split(": ", 1)
    (part,) = re.findall(rf"^##+ {title}\n(.*?)(?=^##+ )", (TOP / page).read_text(), re.M | re.S)
    shown = "\n".join(re.findall(r"^```\n(.*?)^```$", part, re.M | re.S))
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", shown, re.M)
    assert len(found) >= 3, title
    return [(command, output.rstrip()) for command, output in found]


def plain(text):
    """Without what differs from run to run: ids, digests, times, sizes, numbers of events."""
    text = re.sub(r"\b(?:i[a-z0-9]{20}|l?[a-z0-9]{20}|sha256-[0-9a-f]{12})\b", "ID", text)
    return re.sub(r"\b\d+(?:\.\d+)?(?: (?:s|MiB|KiB|B))?\b|\b\d+[ms](?: \d+s)?", "N", re.sub(r" +", " ", text)).strip()


SHOWN = ["README.md: Use it: command line", *(f"docs/COMMAND-LINE.md: {title}" for title in ("First steps", "Templates", "State: pause, snapshots, forks, volumes"))]


@pytest.mark.parametrize("title", SHOWN)
def test_what_pages_show_comes(place, title, tmp_path):
    service, _ = place
    (tmp_path / "hello.txt").write_text("hello\n")
    (tmp_path / "Dockerfile").write_text(next((output + "\n" for command, output in examples(title) if command == "cat Dockerfile"), ""))
    ids = {}
    try:
        for command, output in examples(title):
            for theirs, ours in ids.items():
                command = command.replace(theirs, ours)
            if "--size" in command and '"limits":false' in service.cove("pool", "--json").stdout:
                command = command.replace(" --size 2GiB", "") # a pool of copies has no limits
            done = type_in(service, tmp_path, command)
            assert done.returncode == 0 and plain(done.stdout) == plain(output), (command, done)
            ids.update(zip(re.findall(r"\bi[a-z0-9]{20}\b", output), re.findall(r"\bi[a-z0-9]{20}\b", done.stdout)))
    finally:
        service.remove_all()
        for kind, name in (("template", "app"), ("template", "before"), ("volume", "cache")):
            service.cove(kind, "rm", name) # where it came so far


def run_example(service, tmp_path, *arguments):
    done = subprocess.run([sys.executable, TOP / "examples" / arguments[0], *arguments[1:]], cwd=tmp_path, env=service.env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=600, check=False)
    if "No matching distribution" in done.stderr or "HTTPSConnectionPool" in done.stderr:
        pytest.skip("packages can't be had")
    assert not service.sandboxes(), "sandboxes are left"
    return done


def test_best_of_n_keeps_the_winner(place, tmp_path):
    done = run_example(place[0], tmp_path, "best_of_n.py", "4")
    assert done.returncode == 0 and re.findall(r"attempt \d: (\d)", done.stderr) == ["1", "2", "3", "1"], done
    (tmp_path / "home/user/project").mkdir(parents=True)
    (tmp_path / "home/user/project/median.py").write_text("def median(values):\n    return sorted(values)[len(values) // 2]\n")
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=done.stdout, text=True, check=True)
    assert "no values" in (tmp_path / "home/user/project/median.py").read_text() and done.stdout.count("diff --git") == 1
    assert run_example(place[0], tmp_path, "best_of_n.py", "2").returncode == 1, "nobody's tests all pass"


def test_cartpole_learns_in_forks(place, tmp_path):
    done = run_example(place[0], tmp_path, "cartpole.py", "3", "8")
    rewards = [float(mean) for mean in re.findall(r"mean reward ([\d.]+), best \d+\n", done.stdout)]
    assert done.returncode == 0 and len(rewards) == 3 and rewards[2] > 2 * rewards[0] > 0, done
