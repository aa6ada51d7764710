#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Learns to balance gymnasium's CartPole. Every episode runs in a fork of one prepared sandbox, so none can leave anything behind for the next; what is learned,
four weights, stays out here (the cross-entropy method).

    cartpole.py [GENERATIONS [EPISODES]]
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

EPISODE = """import sys, gymnasium
env, weights = gymnasium.make("CartPole-v1"), [float(w) for w in sys.argv[2:]]
seen, reward, over = env.reset(seed=int(sys.argv[1]))[0], 0, False
while not over:
    seen, gain, ended, cut, _ = env.step(int(sum(w * s for w, s in zip(weights, seen)) > 0))
    reward, over = reward + gain, ended or cut
print(reward)
"""


def cove(*arguments, **more):
    done = subprocess.run(["cove", *arguments], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"cove {arguments[0]}: {done.stderr}")
    return done


def create():
    """Without a network."""
    made = cove("run", "--keep", "--json", "--timeout", "30m", "--net", "deny", "--", "true")
    return json.loads(made.stdout)["sandbox"]


def prepare(sandbox):
    """Installs gymnasium, whose packages are fetched out here."""
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "-d", wheels, "--python-version", "3.11", "--only-binary", ":all:", "gymnasium==1.2.0"], check=True)
        cove("cp", "-q", wheels, f"{sandbox}:wheels")
    cove("exec", sandbox, "--", "sh", "-c", "pip install -q --no-compile --no-index --find-links wheels/* gymnasium && rm -r wheels && python3 -c 'import gymnasium'")
    cove("cp", "-q", "-", f"{sandbox}:episode.py", input=EPISODE)


def play(fork, seed, weights):
    return float(cove("exec", fork, "--", "python3", "episode.py", str(seed), *map(str, weights)).stdout)


def main(generations, episodes):
    prepared, dice = create(), random.Random(1)
    mean, spread = [0.0] * 4, [1.0] * 4
    try:
        prepare(prepared)
        for generation in range(generations):
            forks = [one["sandbox"]["id"] for one in json.loads(cove("fork", "-n", str(episodes), "--timeout", "5m", prepared, "--json").stdout)["forks"]]
            tried = [[dice.gauss(m, s) for m, s in zip(mean, spread)] for _ in forks]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                rewards = list(pool.map(play, forks, [dice.randrange(1000) for _ in forks], tried))
            cove("rm", *forks)
            best = [weights for _, weights in sorted(zip(rewards, tried), reverse=True)[:max(2, episodes // 4)]]
            mean = [statistics.mean(column) for column in zip(*best)]
            spread = [statistics.pstdev(column) + 0.05 for column in zip(*best)]
            print(f"generation {generation + 1}: mean reward {statistics.mean(rewards):.1f}, best {max(rewards):.0f}", flush=True)
    finally:
        cove("rm", prepared)


if __name__ == "__main__":
    main(*([int(word) for word in sys.argv[1:]] + [6, 16][len(sys.argv) - 1:]))
