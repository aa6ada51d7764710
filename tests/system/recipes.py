# SPDX-License-Identifier: Apache-2.0
"""Recipes of templates/ for a service of a test: Python's packages are fetched outside of any sandbox, and builds may ask the mirrors that this machine has for Debian's."""

import contextlib
import fcntl
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from service import BUILD, TOP

sys.path.append(str(TOP / "tests" / "sdk"))
from installed import pip  # noqa: E402


class Unreachable(Exception):
    """The registry is."""


def mirrors():
    """Addresses of Debian's archives as this machine knows them: one within a private network is one that builds must be told of."""
    sources = "".join(p.read_text(errors="replace") for p in Path("/etc/apt").glob("sources.list*") if p.is_file())
    sources += "".join(p.read_text(errors="replace") for p in Path("/etc/apt/sources.list.d").glob("*") if p.is_file())
    hosts = {urlsplit(url).hostname for url in re.findall(r"https?://\S+", re.sub(r"#.*", "", sources))}
    found = set()
    for host in hosts - {None}:
        with contextlib.suppress(OSError):
            found |= {info[4][0] for info in socket.getaddrinfo(host, 80, socket.AF_INET)}
    return sorted(found)


def prepared(recipe, place, requirements="requirements-*.txt", config="", base="base"):
    """What a service's environment needs for `cove template add RECIPE`; place: of recipes. config: more of its configuration. base: what the recipe begins with."""
    home, wheels = place / recipe, BUILD / "code-packages"
    shutil.copytree(TOP / "templates" / recipe, home, ignore=shutil.ignore_patterns("__pycache__"))
    (home / "Dockerfile").write_text((home / "Dockerfile").read_text().replace("FROM base\n", f"FROM {base}\n"))
    wanted = sorted(home.glob(requirements))
    if wanted:
        wheels.mkdir(exist_ok=True)
        with open(wheels / ".lock", "w", encoding="utf-8") as lock: # kept for later runs
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = subprocess.run([*pip(), "download", "-q", "-d", home / "packages", "--python-version", "3.11", "--only-binary", ":all:",
                                   "--find-links", wheels, *(f"-r{one}" for one in wanted)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                raise Unreachable(f"packages can't be had: {done.stderr[-300:]}")
            for wheel in (home / "packages").glob("*.whl"):
                if not (wheels / wheel.name).exists():
                    shutil.copy(wheel, wheels)
    (place / "cove.yaml").write_text(f"builds: {{allow: {['*', *mirrors()]}}}\n{config}")
    return {"COVE_TEMPLATES": str(place), "COVE_CONFIG": str(place / "cove.yaml")}


AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


def trust(service, place):
    """Builds the template "trusting": the base template with this machine's authorities, since a mirror's certificate may be signed by one of its own."""
    home = place / "trusting"
    home.mkdir()
    shutil.copy(AUTHORITIES, home / "authorities.crt")
    (home / "Dockerfile").write_text(f"FROM base\nUSER root\nCOPY authorities.crt {AUTHORITIES}\nENV NODE_EXTRA_CA_CERTS={AUTHORITIES} PIP_CERT={AUTHORITIES}\n")
    done = service.cove("template", "build", "--name", "trusting", str(home))
    assert done.returncode == 0, done.stderr[-2000:]
