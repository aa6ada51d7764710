# SPDX-License-Identifier: Apache-2.0
"""cove template build, as it looks to who started it."""

import json
import signal
import subprocess

import pytest
from service import wait_until


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
    assert build.wait(20) == -how
    assert options or "cancelled" in rest, rest
    build.stdout.close()
    build.stderr.close()
    assert wait_until(lambda: not service.sandboxes(), 20)
    shown = service.cove("template", "show", "interrupted", "--json")
    assert shown.returncode or json.loads(shown.stdout)["status"] != "ready", shown
    service.cove("template", "rm", "interrupted")
