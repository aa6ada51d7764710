#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""A cove-api that hands its socket to coved over to the test (supervisor.py) and stays until the test lets go of it.

coved starts it in the place of cove-api, with the same rights: it may write in STATE/api and nowhere else.
"""

import select
import socket
import sys
from pathlib import Path

if __name__ == "__main__":
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    with socket.socket(socket.AF_UNIX) as test:
        test.connect(str(Path(arguments["--data"]) / "test.sock"))
        socket.send_fds(test, [b"s"], [int(arguments["--supervisor-fd"])])
        with socket.socket(fileno=int(arguments["--pulse-fd"])) as pulse:
            while test not in select.select([test, pulse], [], [])[0]:
                if not pulse.recv(16): # coved is gone
                    break
                pulse.send(b"!")
            test.recv(1)
