# SPDX-License-Identifier: Apache-2.0
"""`cove here` as an ordinary user types it, beside a bare program and others' boundaries."""

import contextlib
import shutil
import tempfile
from pathlib import Path

from report import column, median

USER = "61234"
PROGRAMS = ("cove", "cove-cli", "cove-here", "cove-bwrap", "cove-egress")


@contextlib.contextmanager
def ordinary(build):
    """A directory with the programs, where everybody gets in, and what starts a command as that user; wherever root has his build."""
    directory = Path(tempfile.mkdtemp(prefix="cove-bench-", dir="/var/tmp"))
    try:
        directory.chmod(0o755)
        for name in PROGRAMS:
            shutil.copy(build / name, directory / name)
        yield directory, ["env", "-C", str(directory), "HOME=/nonexistent", "setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--"]
    finally:
        shutil.rmtree(directory)


def here(bench):
    """`true` behind a boundary without root, beside a bare one and others' boundaries, all as an ordinary user."""
    from rows import alternate, ms, spawner
    report, root = bench.report, ["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    with ordinary(bench.build) as (programs, user):
        work = {"true": ["/bin/true"], "cove here true": [programs / "cove", "here", "--", "/bin/true"], "cove-here true": [programs / "cove-here", "/bin/true"],
                "cove-bwrap true": [programs / "cove-bwrap", *root, "/bin/true"], "bwrap true": ["bwrap", *root, "/bin/true"], "srt true": ["srt", "true"],
                "h5i box -- true": ["h5i", "box", "--", "true"]}
        for name in list(work):
            if not shutil.which(str(work[name][0])):
                report.missing("here", f"{work.pop(name)[0]}: not installed")
        work = {name: spawner(bench, [*user, *map(str, argv)], 2 if name == "srt true" else 20) for name, argv in work.items()}
        samples = {name: ms(column(rows, 1)) for name, rows in alternate(5 if bench.quick else 20, **work).items()}
    for name, taken in samples.items():
        report.samples("here", name, "ms", taken)
    bare = samples["true"]
    for name in ("cove here true", "cove-here true"):
        report.value("here", f"{name.removesuffix(' true')} above a bare true", "ms", median(samples[name]) - median(bare), 3,
                     note=f"the fastest tenth {sorted(samples[name])[len(samples[name]) // 10] - sorted(bare)[len(bare) // 10]:+.2f}")
