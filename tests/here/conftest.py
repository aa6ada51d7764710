# SPDX-License-Identifier: Apache-2.0
"""cove here as an ordinary user: the tests run as root and start it with an id that no account has."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests" / "network"), str(TOP / "tests" / "system")]

UID = 61234
AS = ["setpriv", "--reuid", UID, "--regid", UID, "--clear-groups", "--"]


class Here:
    """A directory of the user's, and programs that he can execute."""

    def __init__(self, directory):
        self.directory = directory
        self.bin, self.home = directory / "bin", directory / "home"
        build = Path(os.environ.get("COVE_BUILD", TOP / "build"))
        self.bin.mkdir()
        for name in ("cove", "cove-cli", "cove-here", "cove-bwrap", "cove-egress"):
            shutil.copy(build / name, self.bin / name)
        self.home.mkdir()
        self.give(self.home)

    def give(self, path):
        os.chown(path, UID, UID)
        return path

    def file(self, name, text=""):
        path = self.home / name
        for part in reversed([p for p in path.parents if self.home in p.parents]):
            if not part.exists():
                part.mkdir()
                self.give(part)
        path.write_text(text)
        return self.give(path)

    def folder(self, name):
        (self.home / name).mkdir(parents=True)
        path = self.home / name
        while path != self.home:
            self.give(path)
            path = path.parent
        return self.home / name

    def argv(self, settings, *words, before=(), program="cove-here"):
        if settings is not None:
            (self.directory / "settings.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
            words = ("-s", self.directory / "settings.json", *words)
        return [str(word) for word in (*before, *AS, self.bin / program, *words)]

    def environment(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), **more}

    def run(self, settings, *words, env=None, before=(), program="cove-here", **options):
        return subprocess.run(self.argv(settings, *words, before=before, program=program),
                              **{"cwd": self.home, "env": self.environment(**(env or {})), "capture_output": True, "text": True, "timeout": 60, "check": False,
                                 **options})

    def sh(self, settings, line, **options):
        return self.run(settings, "sh", "-c", line, **options)


def settings(write=(), deny_write=(), deny_read=(), allow=(), deny=(), **more):
    files = {"denyRead": [*map(str, deny_read)], "allowWrite": [*map(str, write)], "denyWrite": [*map(str, deny_write)]}
    network = {"allowedDomains": list(allow), "deniedDomains": list(deny)}
    files.update(more.pop("filesystem", {}))
    network.update(more.pop("network", {}))
    return {"network": network, "filesystem": files, **more}


@pytest.fixture
def here():
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    directory = Path(tempfile.mkdtemp(prefix="cove-here-", dir="/var/tmp"))
    directory.chmod(0o755)
    try:
        yield Here(directory)
    finally:
        shutil.rmtree(directory)
