# SPDX-License-Identifier: Apache-2.0
"""What copies of a running sandbox must not share, as a program says that was copied with its memory, and that renews what it can when it is told (docs/TIERS.md)."""

import json

# Says what it has, over and over. Its handshakes are with itself, without a certificate.
TELLER = """
import json, os, random, signal, socket, ssl, sys, time
data = bytearray(os.urandom(1 << 20) * int(sys.argv[1]))
random.seed(7)
waked = 0
def on_continue(*_):
    global waked
    ssl.RAND_add(os.urandom(48), 48) # OpenSSL's generator goes on in each copy with the same numbers else
    random.seed(os.urandom(16))
    waked += 1
signal.signal(signal.SIGCONT, on_continue)

def context(side):
    made = ssl.SSLContext(side)
    made.check_hostname, made.verify_mode, made.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
    made.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    return made

client, server = context(ssl.PROTOCOL_TLS_CLIENT), context(ssl.PROTOCOL_TLS_SERVER)
client.keylog_filename = "/tmp/keys"
def session_key():
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
    with open("/tmp/keys", "r+") as keys:
        key = keys.read().split()[-1]
        keys.truncate(0)
    return key

n = 0
while True:
    n += 1
    told = {"n": n, "sum": sum(data[::4096]), "pid": os.getpid(), "waked": waked, "host": socket.gethostname(), "at": time.time(), "kernel": os.urandom(16).hex(),
            "own": random.random(), "openssl": ssl.RAND_bytes(16).hex(), "session_key": session_key(), "waked_after": waked}
    with open("/tmp/told.new", "w") as f:
        json.dump(told, f)
    os.rename("/tmp/told.new", "/tmp/told")
    time.sleep(0.05)
"""
# As the program says, and as a new one that is started there; the rest is the service's.
SECRETS = ["kernel", "own", "openssl", "session_key", "host", "new_process", "access_token", "port_token"]


def facts(inside, shown, sandbox, wait):
    """What SECRETS names, once the program was told. inside(sandbox, command): what root there says; shown: E2B's answer to who connects to it."""
    def told():
        said = json.loads(inside(sandbox, "cat /tmp/told"))
        return said if said["waked"] and said["waked_after"] == said["waked"] else None
    assert wait(told)
    return {**told(), "new_process": inside(sandbox, "head -c 16 /dev/urandom | base64"), "access_token": shown["envdAccessToken"],
            "port_token": shown["trafficAccessToken"]}


def share_none(secret, told):
    values = [t[secret] for t in told]
    assert all(values) and len(set(values)) == len(values) > 1, values
