# SPDX-License-Identifier: Apache-2.0
"""cove template build, as it looks to who started it."""

import json
import os
import re
import signal
import subprocess

import pytest
from service import wait_until
from terminal import Terminal


@pytest.mark.parametrize("how, options", [(signal.SIGINT, []), (signal.SIGTERM, ["--json"])])
def test_who_interrupts_a_build_cancels_it(service, tmp_path, how, options):
    (tmp_path / "Dockerfile").write_text("FROM base\nRUN echo begun; sleep 60\n")
    build = service.popen("template", "build", "--name", "interrupted", *options, str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = build.stdout if options else build.stderr
    for line in out: # they come as they are made, also into a pipe
        if "begun" in line and "RUN" not in line:
            break
    build.send_signal(how)
    rest = out.read()
    assert build.wait(60) == -how
    assert options or "cancelled" in rest, rest
    build.stdout.close()
    build.stderr.close()
    assert wait_until(lambda: not service.sandboxes())
    shown = service.cove("template", "show", "interrupted", "--json")
    assert shown.returncode or json.loads(shown.stdout)["status"] != "ready", shown
    service.cove("template", "rm", "interrupted")


QUIET = "FROM base\nCOPY some /some\nRUN sleep 3; echo over\n"


def test_a_step_without_a_word_is_seen_to_go_on(service, tmp_path):
    (tmp_path / "Dockerfile").write_text(QUIET)
    (tmp_path / "some").write_bytes(b"x" * 2048)
    terminal = Terminal(service, "template", "build", "--name", "quiet", str(tmp_path), columns=30)
    seen, status = terminal.rest()
    assert status == 0, seen
    shown = re.findall(rb"\r\x1b\[K([^\r\n]+)(?=\r\x1b)", seen) # and taken back
    assert any(re.fullmatch(rb"\[builder \d/\d\] [1-9]\d* s", line) for line in shown), seen
    assert all(len(line) < 30 for line in shown), shown
    assert b"sending some: 2 KiB\r\n" in seen and re.search(rb"\[builder \d/\d\][^\r\n]* over\r\n", seen), seen
    service.cove("template", "rm", "quiet")


def test_nothing_of_that_goes_into_a_pipe(service, tmp_path):
    (tmp_path / "Dockerfile").write_text(QUIET)
    (tmp_path / "some").write_bytes(b"y" * 2048)
    done = service.cove("template", "build", "--name", "quiet", str(tmp_path))
    assert done.returncode == 0, done
    assert "\x1b" not in done.stderr and "\r" not in done.stderr and not re.search(r"\] \d+ s$", done.stderr, re.M), done.stderr
    assert done.stderr.startswith("sending some: 2 KiB\n"), done.stderr
    assert service.cove("template", "create", "-q", "-t", "quiet", "--no-cache", str(tmp_path)).stderr == ""
    service.cove("template", "rm", "quiet")


def test_a_large_context_is_seen_to_be_packed(service, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM base\nCOPY big /tmp/big\n")
    with open(tmp_path / "big", "wb") as file:
        for _ in range(40):
            file.write(os.urandom(4 << 20))
    terminal = Terminal(service, "template", "build", "--name", "large", str(tmp_path))
    seen, status = terminal.rest()
    assert status == 0, seen
    shown = re.findall(rb"\r\x1b\[K((?:reading|packing|sending) big: [^\r\n]+)", seen)
    assert all(re.fullmatch(rb"\w+ big: [\d.]+ [KM]iB( of 160 MiB)?, \d+ s", line) for line in shown if line.startswith((b"reading", b"packing"))), shown
    assert any(line.startswith(b"packing") for line in shown), seen # 160 MiB in less than a second would be news
    service.cove("template", "rm", "large")
