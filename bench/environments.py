# SPDX-License-Identifier: Apache-2.0
"""Environments of a large repository, as a person at a command line waits for them."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rig import run


def timed(bench, *words, cwd, first_byte=False):
    """Milliseconds to its end, or to the first byte that it prints."""
    begun = time.monotonic()
    process = subprocess.Popen([bench.service.build / "cove", *words], env=bench.service.env, cwd=cwd, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if first_byte:
        process.stdout.read(1)
        first = (time.monotonic() - begun) * 1000
    _, told = process.communicate(timeout=900)
    assert process.returncode == 0, (words, told)
    return first if first_byte else (time.monotonic() - begun) * 1000


def make_repository(path, files, size):
    git = lambda *words: run(["git", "-c", "core.compression=0", "-c", "gc.auto=0", "-C", path, *words], timeout=900)
    for i in range(files):
        file = Path(path) / f"d{i // 100}" / f"f{i % 100}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(size // 2).hex().encode())
    git("init", "-q", "-b", "main", ".")
    git("config", "user.name", "Bench")
    git("config", "user.email", "bench@localhost")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    git("-c", "pack.window=0", "repack", "-adq")


def environments(bench):
    """The first copy of a repository is made; the others begin with what was kept of it."""
    files, size, n = (2000, 20000, 3) if bench.quick else (50000, 20000, 10)
    report, repository = bench.report, bench.service.dir / "repository"
    repository.mkdir()
    make_repository(repository, files, size)
    env = lambda *words, **more: timed(bench, "env", *words, cwd=repository, **more)
    what = f"of {files * size >> 20} MiB in {files} files"
    report.value("env", f"create, the first {what}", "ms", env("create", "first"))
    report.samples("env", f"create, a later one {what}", "ms", [env("create", f"n{i}") for i in range(n)], budget=100)
    env("run", "n0", "--", "sh", "-c", "for i in $(seq 0 19); do echo x >> d$i/f1; done")
    report.samples("env", "diff of 20 changed files in it", "ms", [env("diff", "n0") for _ in range(n)], budget=50)
    (repository / "d0/f0").write_text("next\n")
    run(["git", "-C", repository, "-c", "user.name=Bench", "-c", "user.email=bench@localhost", "commit", "-q", "-a", "-m", "next"], timeout=900)
    report.value("env", "create, of the next commit", "ms", env("create", "next"))
    with ThreadPoolExecutor(n) as pool:
        begun = time.monotonic()
        list(pool.map(lambda i: env("create", f"p{i}"), range(n)))
        report.value("env", f"create, {n} at once, all of them", "ms", (time.monotonic() - begun) * 1000)
    timed(bench, "shell", "--name", "agent", ".", "--", "-c", "true", cwd=repository)
    report.samples("env", "a later start of an agent, to its first byte", "ms",
                   [timed(bench, "shell", "--name", "agent", ".", "--", "-c", "echo", cwd=repository, first_byte=True) for _ in range(n)], budget=1000)
    for name in ["first", "next", "agent", *(f"{p}{i}" for p in "np" for i in range(n))]:
        env("abort", name)
    env("gc")
