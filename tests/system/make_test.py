# SPDX-License-Identifier: Apache-2.0
"""What make says to people whose machine is not as it should be."""

import os
import shutil
import subprocess

import pytest
from service import BUILD, TOP

PROGRAMS = ("cove", "coved", "cove-api", "cove-egress", "cove-agent", "cove-image")


@pytest.mark.parametrize("text, why", [("nonsense: 1\n", 'unknown key "nonsense"'), ("listen: [\n", "cove.yaml"), ("defaults:\n  memory: much\n", "memory")])
def test_start_says_that_the_configuration_is_wrong(tmp_path, text, why):
    if os.geteuid() != 0:
        pytest.skip("the service needs root")
    (tmp_path / "tools").mkdir()
    shutil.copy(TOP / "tools" / "service", tmp_path / "tools")
    (tmp_path / "build").symlink_to(BUILD)
    (tmp_path / "cove.yaml").write_text(text)
    env = {k: v for k, v in os.environ.items() if not k.startswith("COVE_")}
    env.update(COVE_CONFIG=str(tmp_path / "cove.yaml"), COVE_STATE=str(tmp_path / "state"), COVE_RUN=str(tmp_path / "run"), COVE_LISTEN="127.0.0.1:1")
    done = subprocess.run([tmp_path / "tools" / "service", "start"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and why in done.stderr and "template" not in done.stderr, done
    assert "not started" in done.stderr.splitlines()[-1]


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
    removed, kept = uninstall(tmp_path)
    assert removed.startswith("removed: ") and all(f"{tmp_path}/usr/local/bin/{name}" in removed.split() for name in PROGRAMS)
    assert kept == f"kept, as they are yours: {tmp_path}/etc/cove"
    assert os.listdir(tmp_path / "usr/local/bin") == ["other"] and not (tmp_path / "usr/local/share/doc/cove").exists()
    assert uninstall(tmp_path) == [f"nothing is installed in {tmp_path}/usr/local", kept]
    assert uninstall(tmp_path / "nowhere") == [f"nothing is installed in {tmp_path}/nowhere/usr/local"]
