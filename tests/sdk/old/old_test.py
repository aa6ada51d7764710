# SPDX-License-Identifier: Apache-2.0
"""
SDKs of E2B since 1.0, unmodified: each makes a sandbox, uses it and ends it. They are told a domain and the CA alone, because the first ones know nothing else; each is
installed from its lock file beside this. Where the registry can't be reached its test is skipped, with that reason.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent.parent
for folder in (TOP / "tests" / "system", HERE.parent):
    sys.path.insert(0, str(folder))

from client import wait_for  # noqa: E402
from installed import INSTALLED, Unreachable, node_packages, node_path, python_packages  # noqa: E402
from leaks import running  # noqa: E402
from service import prepare_templates, reserve_port  # noqa: E402
from tls_test import DOMAIN, serves  # noqa: E402

PYTHON = ["1.0.0", "1.5.3", "2.0.0", "2.7.0", "2.20.0", "2.26.0", "2.27.0", "newest"]
NODE = ["1.0.1", "1.5.0", "2.0.1", "2.20.0", "2.51.0"]
EXPECTED = {"run": "hi\n", "files": [["other.txt"], "text", False], "watch": "watched.txt", "terminal": True, "background": [True, True], "connect": "again\n",
            "pause": "kept", "kill": [True, False]}
WITHOUT = {"1.0.0": ["pause"], "1.0.1": ["pause"], "1.5.3": ["pause"], "1.5.0": ["pause"]}  # what these have no call for


@pytest.fixture(scope="module")
def env():
    """What an SDK needs to know."""
    if os.geteuid() != 0:
        pytest.skip("making sandboxes needs root")
    prepare_templates()
    port = reserve_port()
    with running(COVE_LISTEN_TLS=f"127.0.0.1:{port}") as (service, client):
        ca = json.loads(service.cove("domain", "set", DOMAIN, "--json").stdout)["ca"]
        assert wait_for(lambda: serves(port) and service.is_healthy()), service.tail()
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("COVE_", "E2B_")) and not k.lower().endswith("_proxy")}
        yield {**keep, "E2B_DOMAIN": f"{DOMAIN}:{port}", "E2B_API_KEY": client.key, "NODE_EXTRA_CA_CERTS": ca, "SSL_CERT_FILE": ca}


def installed(install, *arguments):
    INSTALLED.mkdir(parents=True, exist_ok=True)
    try:
        return install(*arguments)
    except Unreachable as reason:
        pytest.skip(str(reason))


def check(version, command, env):
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == {**EXPECTED, **dict.fromkeys(WITHOUT.get(version, []), "none")}


@pytest.mark.parametrize("version", PYTHON)
def test_python(env, version):
    name, lock = ("python", HERE.parent / "python" / "requirements.txt") if version == "newest" else (f"python-{version}", HERE / f"python-{version}.txt")
    check(version, [installed(python_packages, name, lock) / "python", HERE / "life.py"], env)


@pytest.mark.parametrize("version", NODE)
def test_node(env, version):
    path = installed(node_path)
    home = installed(node_packages, "old", HERE, path)
    shutil.copy(HERE / "life.mjs", home)  # modules are looked for beside the file that asks for them
    check(version, [shutil.which("node", path=path), home / "life.mjs", f"e2b-{version}"], env)
