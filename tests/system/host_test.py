# SPDX-License-Identifier: Apache-2.0
"""What a service finds on its host, and what the host finds when the service has stopped."""

import os
import re
import sys

from leaks import BUILD, read, running

# A starter of coved with everything ignored that can be, by the system call itself: the C library won't touch 32 and 33.
IGNORER = """#!{python}
import ctypes, os, struct, sys
ignore = struct.pack("PLPQ", 1, 0, 0, 0)
for number in set(range(1, 65)) - {{9, 19}}:
    if ctypes.CDLL(None).syscall({rt_sigaction}, number, ignore, None, 8) != 0:
        sys.exit("can't ignore signal %d" % number)
os.execv("{coved}", ["coved", *sys.argv[1:]])
"""
RT_SIGACTION = {"x86_64": 13, "aarch64": 134}


def signals(text, name):
    mask = int(re.search(rf"^{name}:\s*(\w+)", text, re.M)[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def test_signals_that_the_starter_ignores_are_not_ignored_inside(tmp_path):
    (tmp_path / "coved").write_text(IGNORER.format(python=sys.executable, coved=BUILD / "coved", rt_sigaction=RT_SIGACTION[os.uname().machine]))
    (tmp_path / "coved").chmod(0o755)
    with running(build=tmp_path) as (service, client):
        assert {1, 32, 33, 64} <= signals(read(f"/proc/{service.coved.pid}/status"), "SigIgn")
        sandbox = client.create()
        first = sandbox.sh("cat /proc/1/status")[1].decode()
        assert signals(first, "SigIgn") <= {13}, first # its own wish
        shell = sandbox.sh("cat /proc/self/status")[1].decode()
        assert signals(shell, "SigIgn") == signals(shell, "SigBlk") == set(), shell
