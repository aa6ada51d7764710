#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
For the checks: which files there are, and how a finding is told (file:line: what). `sources.py [--changed] PATTERN...` prints, with NULs between
them, those that match, or of these the ones that have changed.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent


def files(*patterns):
    """Files that are or would be committed, below the top, that match a Git pathspec."""
    listed = subprocess.run(["git", "-C", TOP, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
                            check=True, capture_output=True, text=True).stdout
    return sorted(p for name in listed.split("\0") if name and (p := TOP / name).is_file())


def git(*words):
    done = subprocess.run(["git", "-C", TOP, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def changed():
    """
    (commit, files that are not as they were there). By default that is where this branch left main, and on main itself 20 commits ago, with those
    of merged branches counted: they have been checked there. COVE_BASE names another. (None, None): nobody knows.
    """
    head, since = git("rev-parse", "HEAD"), None
    for name in filter(None, (os.environ.get("COVE_BASE"), "origin/main", "main")):
        left = git("merge-base", "HEAD", name)
        if left and left != head:
            since = left
            break
    since = since or dict(enumerate((git("rev-list", "--max-count=21", "HEAD") or "").split())).get(20)
    listed = git("diff", "--name-only", since, "--") if since else None
    if listed is None:
        return None, None
    # What is only said in another way in C is compiled as before.
    coded = git("diff", "--numstat", "--no-renames", r"-I^ *(/\*|\* |\*/|\*$)", since, "--", "*.[ch]") or ""
    coded = {line.split("\t")[2] for line in coded.split("\n") if line}
    return since, {name for name in listed.split("\n") if name and (not name.endswith((".c", ".h")) or name in coded)}


def due(*patterns, only_changed):
    """Those of files(*patterns) that a check looks at: all, or those that have changed, themselves or in their header."""
    _, names = changed() if only_changed else (None, None)
    if names is None or ".clang-format" in names:
        return files(*patterns)
    return [p for p in files(*patterns) if {str(p.relative_to(TOP)), str(p.with_suffix(".h").relative_to(TOP))} & names]


def is_test(path):
    return path.name.endswith("_test.c") or path.name.startswith("test_") or path.name.endswith("_fuzz.c")


def code(path):
    """C text without comments and without what stands in string and character literals; line numbers stay."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        text = match[0]
        lines = "\n" * text.count("\n")
        return lines if text[0] == "/" else text[0] + lines + text[0]

    return token.sub(blank, path.read_text(errors="replace"))


def end(findings):
    """Prints findings, sorted, and exits as a check does."""
    for path, line, text in sorted(findings):
        print(f"{path.relative_to(TOP)}:{line}: {text}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    words = sys.argv[1:]
    only_changed = words[:1] == ["--changed"]
    print(*due(*words[only_changed:], only_changed=only_changed), sep="\0", end="")
