# SPDX-License-Identifier: Apache-2.0
"""The Debian package: what is in it, what it says of itself, and that what it holds runs from where it is unpacked."""

import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from service import BUILD, TOP, Service

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="no dpkg-deb")


def run(*arguments, **options):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=280, check=True, **options).stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    directory = tmp_path_factory.mktemp("package")
    path = run(TOP / "tools" / "package-deb", str(directory), env={"COVE_BUILD": str(BUILD), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}).strip()
    run("dpkg-deb", "--extract", path, directory / "root")
    return path, directory / "root"


def test_what_it_says_of_itself(package):
    path, _ = package
    fields = dict(re.findall(r"^ ([A-Z][A-Za-z-]+): (.*)$", run("dpkg-deb", "--info", path), re.M))
    version = json.loads(run(BUILD / "cove", "version", "--json"))["cove"]
    assert (fields["Package"], fields["Version"], fields["Architecture"]) == ("cove", version, run("dpkg", "--print-architecture").strip())
    needed = fields["Depends"].split(", ")
    assert {"libc6", "libuv1", "libarchive13", "mmdebstrap", "python3"} <= set(needed) and len(needed) < 30, needed
    assert {"postinst", "prerm", "postrm", "control"} <= set(re.findall(r"\b(postinst|prerm|postrm|control)\b", run("dpkg-deb", "--info", path)))


def test_what_is_in_it(package):
    path, root = package
    entries = [line.split(None, 5) for line in run("dpkg-deb", "--contents", path).splitlines()]
    assert all(e[1] == "root/root" and e[0][0] in "-dl" and "s" not in e[0] and e[0][8] != "w" for e in entries), entries
    assert {p.name for p in (root / "usr/bin").iterdir()} == {"cove", "cove-cli", "cove-here", "cove-bwrap", "coved", "cove-api", "cove-egress", "cove-agent", "cove-guest", "cove-image"}
    assert not (root / "usr/local").exists()
    unit = (root / "lib/systemd/system/cove.service").read_text()
    assert "/usr/local" not in unit and "ExecStart=/usr/bin/coved run\n" in unit
    for command in json.loads(run(BUILD / "cove", "help", "--json")) + [{"name": None}]:
        name = f"cove-{command['name']}" if command["name"] else "cove"
        page = gzip.open(root / f"usr/share/man/man1/{name}.1.gz", "rt").read()
        assert re.search(rf"^{name} - ", page.replace("\\-", "-"), re.M) and all(f".SH {s}" in page for s in ("NAME", "SYNOPSIS", "DESCRIPTION")), name
    for script in ("bash-completion/completions/cove", "zsh/vendor-completions/_cove", "fish/vendor_completions.d/cove.fish"):
        assert "snapshot" in (root / "usr/share" / script).read_text()
    assert {"README.md", "SECURITY.md", "changelog.gz", "copyright"} <= {p.name for p in (root / "usr/share/doc/cove").iterdir()}


def test_what_is_unpacked_runs(package):
    _, root = package
    assert "cove runs commands in sandboxes" in run(root / "usr/bin/cove", "help")
    assert "run" in run(root / "usr/bin/coved", "--help")
    assert run(root / "usr/bin/cove", "agent", "--list") == run(BUILD / "cove", "agent", "--list")
    for what in ("kits", "templates"):
        assert {p.name for p in (TOP / what).iterdir()} == {p.name for p in (root / "usr/share/cove" / what).iterdir()}


def test_a_removal_disables_the_unit_even_where_systemd_does_not_run(package, tmp_path):
    path, _ = package
    run("dpkg-deb", "--control", path, tmp_path / "control")
    (tmp_path / "systemctl").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "systemctl").chmod(0o755)
    called = {what: run(tmp_path / "control/prerm", what, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}).splitlines() for what in ("remove", "upgrade")}
    assert "disable cove" in called["remove"] and not called["upgrade"], called


WHERE = """set -e
for place in etc var/lib; do
    mkdir "$0/upper-$(basename $place)" "$0/work-$(basename $place)"
    mount -t overlay -o "lowerdir=/$place,upperdir=$0/upper-$(basename $place),workdir=$0/work-$(basename $place)" none "/$place"
done
rm -rf /etc/cove /var/lib/cove
mkdir -p /etc/cove /var/lib/cove/pool
touch /etc/cove/cove.yaml /var/lib/cove/lock /var/lib/cove/pool/file
sh -c "$2"
"$1" remove
ls -d /etc/cove/cove.yaml /var/lib/cove/pool/file
"$1" purge
ls -d /etc/cove /var/lib/cove || true
"""


@pytest.mark.parametrize("what,kept", [("", ""), ("flock /var/lib/cove/lock sleep 20 >/dev/null 2>&1 & sleep 1", "still runs"),
                                       ("mount -t tmpfs none /var/lib/cove/pool; touch /var/lib/cove/pool/file", "is mounted")], ids=["all", "running", "mounted"])
def test_a_purge_leaves_nothing_but_what_is_in_use(package, what, kept):
    if os.geteuid() != 0:
        pytest.skip("a mount namespace of its own needs root")
    path, _ = package
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        run("dpkg-deb", "--control", path, f"{directory}/control")
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", WHERE, directory, f"{directory}/control/postrm", what],
                              capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.split() == ["/etc/cove/cove.yaml", "/var/lib/cove/pool/file"] + (["/var/lib/cove"] if kept else []), done
    assert ("kept: " in done.stderr and kept in done.stderr and "rm -rf /var/lib/cove" in done.stderr) == bool(kept), done


RECIPE = TOP / "packaging" / "container"
WITHIN = """#!/bin/sh
shift
exec unshare --mount sh -c 'mount -t overlay -o lowerdir="$0/usr/bin":/usr/bin none /usr/bin && exec "$@"' {root} {start} "$@"
"""


def test_the_container_starts_what_is_in_the_package(package):
    """Its first program, where the package is installed: it prepares and serves, and ends in order when it is told to. The rest of the recipe leads there."""
    recipe = (RECIPE / "Containerfile").read_text()
    copied = dict(re.findall(r"^COPY (\S+) (\S+)$", recipe, re.M))
    assert copied.pop("cove.deb") in recipe.split("RUN ")[1] and copied == {"start": "/usr/local/bin/cove-start"}
    assert json.loads(re.search(r"^ENTRYPOINT (.*)$", recipe, re.M)[1]) == ["/usr/bin/tini", "--", copied["start"]] and " tini " in recipe
    if os.geteuid() != 0:
        pytest.skip("coved is root's")
    directory = Path(tempfile.mkdtemp(prefix="test-container-", dir=BUILD))
    directory.chmod(0o755)
    within = directory / "within"
    within.write_text(WITHIN.format(root=package[1], start=RECIPE / "start"))
    within.chmod(0o755)
    service = Service(directory)
    try:
        service.start(within)
        done = service.cove("run", "--", "echo", "hello")
        assert (done.returncode, done.stdout) == (0, "hello\n"), done
        assert os.readlink(f"/proc/{service.coved_pid}/exe") == "/usr/bin/coved"
    finally:
        assert service.coved is None or service.stop() == 0, service.tail()
        shutil.rmtree(directory)
