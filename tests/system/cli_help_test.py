# SPDX-License-Identifier: Apache-2.0
"""What the command line says of itself, command by command, against what it does. No service is needed, and none is there."""

import json
import os
import platform
import pty
import re
import shlex
import string
import subprocess

import pytest
from service import BUILD

# What is right behind an option, by what its help calls it.
VALUES = {"CURSOR": "1", "SIZE": "1G", "NUMBER": "1", "N": "1", "TIME": "5m", "NAME:PATH[:ro]": "v:/v", "NAME[=VALUE]": "A=1", "KEY=VALUE": "k=v", "NAME=VALUE": "A=1",
          "allow|deny": "deny", "stdout|stderr|pty": "pty", "TARGET": "a.test", "NAME[=HOST]": "KEY=a.test", "SEQ": "1", "SECONDS": "5", "ADDRESS": "127.0.0.1:1"}
FILES = ("Dockerfile", "main.py", "policy.yaml", "key.txt", "fullchain.pem", "privkey.pem")


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory):
    """A directory that holds what examples name, and an environment without a service."""
    directory = tmp_path_factory.mktemp("nowhere")
    for name in FILES:
        (directory / name).write_text("default: deny\n" if name.endswith("yaml") else "FROM base\n")
    (directory / "src").mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COVE_", "E2B_"))}
    env.update(COVE_STATE=str(directory / "state"), COVE_RUN=str(directory / "run"), COVE_CONFIG="/dev/null", COVE_LISTEN_TLS="127.0.0.1:1",
               PATH=f"{BUILD}:{os.environ['PATH']}", TMPDIR=str(directory))
    return directory, env


def cove(nowhere, *arguments, **options):
    directory, env = nowhere
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([BUILD / "cove", *arguments], cwd=directory, env=env, capture_output=True, text=True, timeout=60, check=False, **options)


def described():
    """All commands, at collection: nothing, where nothing was built yet."""
    try:
        return json.loads(subprocess.run([BUILD / "cove", "help", "--json"], capture_output=True, text=True, timeout=60, check=True).stdout)
    except OSError:
        return []


COMMANDS = described()
each_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c["name"])


def own(command):
    return [o for o in command["options"] if o["name"] not in ("json", "host", "tenant", "help")]


def forms_of(option):
    """{"ls", "tag"} of "ls, tag: ...": what an option goes with; empty: with all."""
    found = [re.match(r"([a-z]+(?:, [a-z]+)*): ", part) for part in option["help"].split("; ")]
    return set(re.split(", ", ", ".join(m[1] for m in found if m))) - {""} if found[0] else set()


def forms(command):
    """Of a command that has them: {"ls": "ls [-q]", ...}; "" is the one without a word."""
    lines = [line for line in command["synopsis"].split("\n") if line]
    words = [re.match(r"(?:\[[^]]*\] )*([a-z][a-z-]*)(?: |$)", line) for line in lines]
    return {m[1] if m else "": line for m, line in zip(words, lines)} if any(words) and command["name"] not in ("completion", "help") else {}


def complete(nowhere, line):
    words = line.split(" ")
    program = (f"source <(cove completion bash); COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _cove; "
               "printf '%s\\n' \"${COMPREPLY[@]}\"")
    directory, env = nowhere
    return subprocess.run(["bash", "-c", program], cwd=directory, env=env, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def test_there_are_commands():
    assert len(COMMANDS) >= 26


@each_command
def test_every_option_is_taken(nowhere, command):
    """Before --help is, so that nothing else happens: an option that is listed and not dealt with would not get there."""
    for option in own(command):
        value = [VALUES.get(option["argument"], "policy.yaml")] if option["argument"] else []
        for name in [f"--{option['name']}"] + ([f"-{option['letter']}"] if option["letter"] else []):
            done = cove(nowhere, command["name"], name, *value, "--help")
            assert (done.returncode, done.stderr) == (0, ""), (name, done)
            assert f"--{option['name']}" in done.stdout
        if value:
            done = cove(nowhere, command["name"], f"--{option['name']}")
            assert done.returncode == 2 and "needs a value" in done.stderr, done


LOCAL = {"doctor", "domain", "help", "here", "completion", "reload"}


@each_command
def test_where_the_service_is_can_be_said_to_who_asks_it(nowhere, command):
    """And to nobody else: what would be done here would seem to be done there."""
    done = cove(nowhere, command["name"], "--host", "unix:/nowhere/cove.sock", "--help")
    if command["name"] in LOCAL:
        assert done.returncode == 2 and "there is no --host" in done.stderr, done
    else:
        assert (done.returncode, done.stderr) == (0, "") and "--host ADDRESS" in done.stdout, done


@each_command
def test_options_and_forms_agree(nowhere, command):
    """Each option stands in a form that it goes with; with the others it is refused."""
    has = forms(command)
    named = set(re.findall(r"--([a-z-]+)", command["synopsis"])) | {o["name"] for o in own(command)
                                                                    if re.search(rf"-{o['letter']}\b" if o["letter"] else "(?!)", command["synopsis"])}
    assert named <= {o["name"] for o in own(command)}
    for option in own(command):
        assert option["name"] in named or "[OPTION]..." in command["synopsis"], option
        goes_with = forms_of(option)
        assert goes_with <= set(has), (option, has)
        value = [VALUES.get(option["argument"], "policy.yaml")] if option["argument"] else []
        for form in has if goes_with else []:
            done = cove(nowhere, command["name"], *([form] if form else ["i0"]), f"--{option['name']}", *value)
            refused = f"--{option['name']} goes with" in done.stderr
            assert refused == (form not in goes_with) and (not refused or done.returncode == 2), (form, option, done)


@each_command
def test_forms_are_completed_and_told(nowhere, command):
    has = set(forms(command)) - {""}
    if not has:
        return
    assert set(complete(nowhere, f"cove {command['name']} ")) == has
    assert set(complete(nowhere, f"cove {command['name']} {min(has)} ")) & has == set()
    for arguments in (["no-such-form"],) if command["name"] in ("domain", "key") else ([], ["no-such-form"]): # whole commands
        done = cove(nowhere, command["name"], *arguments)
        if "" in forms(command) and arguments: # it may be the name of something
            continue
        assert done.returncode == 2 and ("" in forms(command) or all(re.search(rf"\b{form}\b", done.stderr) for form in has)), done
    for form in has:
        assert re.search(rf"\b{form}\b", command["description"] + command["synopsis"]), form


@each_command
def test_all_shells_complete_all_options(nowhere, command):
    names = {f"--{o['name']}" for o in command["options"]} | {f"-{o['letter']}" for o in command["options"] if o["letter"]}
    assert set(complete(nowhere, f"cove {command['name']} -")) == names
    zsh = re.search(rf"^    {command['name']}\) _arguments -s(.*?)\n        ;;$", cove(nowhere, "completion", "zsh").stdout, re.S | re.M)[1]
    assert set(re.findall(r"^        '\*?(--[a-z-]+)=?\[", zsh, re.M)) | set(re.findall(r"^        '(?:\*|\(--[a-z-]+\))(-[a-z])\[", zsh, re.M)) == names
    fish = re.findall(rf"^complete -c cove -n '__cove_at {command['name']}(?: first)?' -l ([a-z-]+)(?: -s ([a-z]))?", cove(nowhere, "completion", "fish").stdout,
                      re.M)
    assert {f"--{long}" for long, _ in fish} | {f"-{short}" for _, short in fish if short} == names


def examples_of(text):
    """The lines below EXAMPLES."""
    return [line.strip() for line in text[text.index("\nEXAMPLES\n"):text.index("\nDESCRIPTION\n")].split("\n")[2:] if line.strip()]


@each_command
def test_help_fits_a_terminal_and_begins_with_examples(nowhere, command):
    text = cove(nowhere, command["name"], "--help").stdout
    assert max(map(len, text.splitlines())) <= 110, max(text.splitlines(), key=len)
    assert re.findall(r"^[A-Z ]+$", text, re.M)[:4] == ["NAME", "SYNOPSIS", "EXAMPLES", "DESCRIPTION"]


def test_the_list_of_commands_is_grouped_and_whole(nowhere):
    text = cove(nowhere, "help").stdout
    listed = re.findall(r"^  ([a-z]+) {2,}\S", text, re.M)
    assert sorted(listed) == sorted(c["name"] for c in COMMANDS) and max(map(len, text.splitlines())) <= 110
    groups = re.findall(r"^([A-Z][a-z ]+):\n((?:  .*\n)+)", text, re.M)
    assert len(groups) >= 6 and sum(len(lines.splitlines()) for _, lines in groups) == len(COMMANDS), "a command without a group"
    run = cove(nowhere, "run", "--help").stdout
    assert len(re.findall(r"^OPTIONS: ", run, re.M)) >= 4 and len(run.splitlines()) < 110


@each_command
def test_examples_are_good_command_lines(nowhere, command):
    """They fail for want of a service, never as misuse."""
    text = cove(nowhere, command["name"], "--help").stdout
    examples = examples_of(text)
    found = 0
    for line in filter(None, examples):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        words = list(lexer)
        for start in (i for i, word in enumerate(words) if word == "cove" and words[i + 1:i + 2] != ["--"]): # that is what another program calls it
            end = next((i for i in range(start, len(words)) if re.fullmatch(r"[|&;<>()]+", words[i])), len(words))
            given = ["i0"] if "xargs" in words[:start] else []
            ours, theirs = pty.openpty() if "-it" in words else (None, subprocess.DEVNULL)
            try:
                done = cove(nowhere, *words[start + 1:end], *given, stdin=theirs)
            finally:
                for fd in (ours, theirs) if ours else ():
                    os.close(fd)
            assert done.returncode != 2, (line, done)
            found += 1
    assert found >= 1, text


def test_what_is_said_of_exit_codes_is_said_of_each(nowhere):
    for command in COMMANDS:
        text = cove(nowhere, command["name"], "--help").stdout
        assert not re.search(r" $", text, re.M), command["name"]
        codes = re.findall(r"^ +(\S+)  ", text[text.index("\nEXIT STATUS\n"):], re.M)
        usage = "125" if command["name"] == "docker" else "2"  # docker's own
        assert usage in codes and codes[0] in ("0", "N"), (command["name"], codes)


def test_output_that_can_not_be_written_is_a_failure(nowhere):
    directory, env = nowhere
    for arguments in (["help"], ["--help"], ["run", "--help"], ["completion", "bash"], ["help", "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([BUILD / "cove", *arguments], cwd=directory, env=env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert done.returncode == 1 and "write the output" in done.stderr, (arguments, done)
        assert "--json" not in arguments or json.loads(done.stderr)["error"]["message"]
        ours, theirs = os.pipe()
        os.close(ours)
        done = subprocess.run([BUILD / "cove", *arguments], cwd=directory, env=env, stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False)
        os.close(theirs)
        assert done.returncode in (0, -13) and done.stderr == b"", (arguments, done) # a reader that left


SAYING = [("cove", "--help"), ("cove", "--version"), ("cove", "version"), ("coved", "--help"), ("coved", "--version"), ("coved", "help"),
          ("cove-agent", "--version"),
          *((program, option) for program in ("cove-api", "cove-egress", "cove-image") for option in ("--help", "--version"))]


@pytest.mark.parametrize("program, option", SAYING, ids=" ".join)
def test_no_program_succeeds_that_could_not_say_what_it_was_asked(nowhere, program, option):
    """The workers, which nobody starts by hand, know neither option."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([BUILD / program, option], env=nowhere[1], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == (1 if program in ("cove", "coved", "cove-agent") else 2), done


@each_command
def test_no_option_is_taken_that_is_not_listed(nowhere, command):
    """
    Of those that any command has, each with every eighth command: one function reads them all, from one kind of table. The beginning of a listed one will
    do, when it is the only such.
    """
    listed, first = {o["name"]: o["argument"] for o in command["options"]}, COMMANDS.index(command)
    for i, (name, argument) in enumerate({o["name"]: o["argument"] for other in COMMANDS for o in other["options"]}.items(), first):
        if i % 8 == 0 and (name in listed or not any(one.startswith(name) for one in listed)):
            argument = listed.get(name, argument)
            done = cove(nowhere, command["name"], f"--{name}", *([VALUES.get(argument, "x")] if argument else []), "--help")
            assert done.returncode == (0 if name in listed else 2), (name, done)
    for i, letter in enumerate(string.ascii_letters, first):
        is_listed = any(o["letter"] == letter and not o["argument"] for o in command["options"])
        if i % 8 == 0 and (is_listed or not any(o["letter"] == letter for o in command["options"])):
            done = cove(nowhere, command["name"], f"-{letter}", "--help")
            assert done.returncode == (0 if is_listed else 2), (letter, done)


def test_coved_takes_the_options_that_its_help_lists():
    """Asked by who may do nothing, so that nothing is done."""
    def coved(*words):
        return subprocess.run([BUILD / "coved", *words], env={"COVE_CONFIG": "/dev/null"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              check=False, user=65534, group=65534, extra_groups=[])
    texts = {name: coved(name, "--help").stdout for name in re.findall(r"^ {7}([a-z]+) {2,}", coved("--help").stdout.split("COMMANDS")[1].split("ENVIRONMENT")[0], re.M)}
    assert {"run", "prepare", "doctor", "version"} <= set(texts)
    texts.pop("help")
    listed = {name: set(re.findall(r"^ {7}--([a-z-]+)", text.split("OPTIONS")[1], re.M)) if "OPTIONS" in text else set() for name, text in texts.items()}
    for name, own_ones in listed.items():
        assert own_ones == set(re.findall(r"--([a-z-]+)", texts[name].split("DESCRIPTION")[0])), name
        for option in set().union(*listed.values(), {"verbose", "config"}):
            done = coved(name, f"--{option}", *(["3"] if option in ("ready-fd", "from") else []))
            assert ("unknown option" not in done.stderr) == (option in own_ones), (name, option, done)


def test_what_few_commands_need_is_loaded_when_they_do():
    """To load libarchive, which brings ICU, took two fifths of every command's start, and OpenSSL half of what was left."""
    loaded = subprocess.run([BUILD / "cove-cli"], env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True, timeout=60, check=False).stdout
    assert "libjansson" in loaded and "libarchive" not in loaded and "libicu" not in loaded
    if platform.machine() == "x86_64":
        taken = subprocess.run(f"nm -D -u {BUILD / 'cove-cli'} | grep OPENSSL_", shell=True, capture_output=True, text=True, check=False).stdout
        assert "libcrypto" not in loaded and "libssl" not in loaded, f"missing in src/cli/openssl.c: {taken}"
