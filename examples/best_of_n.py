#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Best of N: one sandbox is prepared, each attempt gets a fork of it, tests decide, the winner's patch is printed.

    best_of_n.py [N]
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

BROKEN = "def median(values):\n    return sorted(values)[len(values) // 2]\n"
TESTS = """import unittest
from median import median

class Median(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([3, 1, 2]), 2)
    def test_even(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)
    def test_empty(self):
        self.assertRaises(ValueError, median, [])
"""


def cove(*arguments, **more):
    done = subprocess.run(["cove", *arguments], capture_output=True, text=True, check=False, **more)
    if done.returncode and arguments[0] != "exec":
        sys.exit(done.stderr)
    return done


def write(sandbox, path, text):
    cove("cp", "-q", "-", f"{sandbox}:{path}", input=text)


def propose(attempt):
    """What a model would be asked for. A real one gets the task, the code and what the tests said; here are three answers, of which the last is right."""
    return (BROKEN,
            "def median(values):\n    s, n = sorted(values), len(values)\n    return s[n // 2] if n % 2 else (s[n // 2 - 1] + s[n // 2]) / 2\n",
            "def median(values):\n    s, n = sorted(values), len(values)\n    if not n:\n        raise ValueError('no values')\n"
            "    return s[n // 2] if n % 2 else (s[n // 2 - 1] + s[n // 2]) / 2\n")[attempt % 3]


def attempt(number, sandbox):
    write(sandbox, "project/median.py", propose(number))
    tests = cove("exec", "-w", "/home/user/project", sandbox, "--", "timeout", "30", "python3", "-Bm", "unittest", "-v")
    return tests.stderr.count("... ok"), tests.returncode == 0, number


def main(n):
    prepared = json.loads(cove("run", "--keep", "--json", "--timeout", "10m", "--net", "deny", "--", "mkdir", "project").stdout)["sandbox"]
    sandboxes = [prepared]
    try:
        write(prepared, "project/median.py", BROKEN)
        write(prepared, "project/test_median.py", TESTS)
        forks = [one["sandbox"]["id"] for one in json.loads(cove("fork", "-n", str(n), prepared, "--json").stdout)["forks"]]
        sandboxes += forks
        with ThreadPoolExecutor(n) as pool:
            scores = list(pool.map(attempt, range(n), forks))
        for passed, is_done, number in scores:
            print(f"attempt {number}: {passed} of 3 tests pass{', done' if is_done else ''}", file=sys.stderr)
        _, is_done, number = max(scores, key=lambda score: (score[0], -score[2]))
        print(cove("diff", "--patch", prepared, forks[number]).stdout, end="")
        return 0 if is_done else 1
    finally:
        cove("rm", *sandboxes)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
