# SPDX-License-Identifier: Apache-2.0
"""What has to work inside: a sandbox that breaks these is turned off, and protects nobody."""

import pytest
from rig import USERS, inside, must, outside

PROBES = {"ptrace-own-child": "ptrace_child", "program-in-memory": "memfd_exec", "read-interfaces": "netlink_read", "unix-pair": "socketpair,1,1,0",
          "tcp": "socket,2,1,6", "udp-v6": "socket,10,2,17", "personality-plain": "personality,0", "personality-no-randomisation": "personality,0x40000"}

SCRIPTS = {
    "sudo": ("user", 'test "$(sudo -n id -u)" = 0 && sudo -n sh -c "echo 127.0.0.9 other >> /etc/hosts" && sudo -n -u user true && sudo -E true'),
    "su-and-accounts": ("root", "useradd -m second && su second -c 'id -un' | grep -qx second && passwd -d second >/dev/null && userdel -r second 2>/dev/null"),
    "owners-and-modes": ("root", "touch /tmp/f && chown 1234:2345 /tmp/f && chmod 6711 /tmp/f && test \"$(stat -c %u:%g:%a /tmp/f)\" = 1234:2345:6711"),
    "compile-and-run": ("user", "printf '#include <stdio.h>\\nint main(void){puts(\"compiled\");}' > a.c && gcc -O1 -o a a.c && ./a | grep -qx compiled"),
    "git": ("user", "git init -q r && cd r && git config user.email a@b && git config user.name n && date > f && git add f && git commit -qm one && "
                    "git checkout -qb two && git mv f g && git commit -qam two && test \"$(git log --oneline | wc -l)\" = 2 && git clone -q . ../c && git gc -q"),
    "python-venv": ("user", "python3 -m venv --without-pip v && v/bin/python -c 'import sys; assert sys.prefix.endswith(\"/v\")'"),
    "threads-and-pools": ("user", """python3 -c "
import threading, multiprocessing, concurrent.futures, os
t = [threading.Thread(target=sum, args=([1],)) for _ in range(50)]; [x.start() for x in t]; [x.join() for x in t]
with multiprocessing.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]
q = multiprocessing.Queue(); s = multiprocessing.Semaphore(1); s.acquire()
with concurrent.futures.ProcessPoolExecutor(2) as e: assert list(e.map(abs, [-3])) == [3]
" """),
    "shared-memory": ("user", """python3 -c "
from multiprocessing import shared_memory as m
s = m.SharedMemory(create=True, size=1 << 20); s.buf[0] = 7; t = m.SharedMemory(s.name); assert t.buf[0] == 7; t.close(); s.close(); s.unlink()
" && echo x > /dev/shm/x && grep -q x /dev/shm/x"""),
    "pairs-and-loopback": ("user", """python3 -c "
import socket, threading
a, b = socket.socketpair(); a.sendall(b'x'); assert b.recv(1) == b'x'
for family, where in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    l = socket.create_server((where, 0), family=family)
    c = socket.create_connection(l.getsockname()[:2]); s, _ = l.accept(); c.sendall(b'hi'); assert s.recv(2) == b'hi'
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0)); u.sendto(b'x', u.getsockname()); assert u.recv(1) == b'x'
x = socket.socket(socket.AF_UNIX); x.bind('/tmp/sock'); x.listen(); y = socket.socket(socket.AF_UNIX); y.connect('/tmp/sock')
z = socket.socket(socket.AF_UNIX); z.bind('\\0abstract'); z.listen(); w = socket.socket(socket.AF_UNIX); w.connect('\\0abstract')
import array
socket.send_fds(a, [b'f'], [0]); assert socket.recv_fds(b, 1, 1)[1]
" """),
    "low-port": ("root", "python3 -c \"import socket; socket.create_server(('0.0.0.0', 80))\""),
    "extended-attributes": ("user",
                            "touch f && python3 -c \"import os; os.setxattr('f', 'user.k', b'v'); assert os.getxattr('f', 'user.k') == b'v' and os.listxattr('f') == ['user.k']\""),
    "fifo": ("user", "mkfifo p && (echo through > p &) && grep -qx through < p"),
    "inotify": ("user", """python3 -c "
import ctypes, os
libc = ctypes.CDLL(None); fd = libc.inotify_init1(0); os.mkdir('w'); assert libc.inotify_add_watch(fd, b'w', 0xfff) > 0
open('w/f', 'w').close(); assert b'f' in os.read(fd, 4096)
" """),
    "posix-queues-and-semaphores": ("user", """python3 -c "
import ctypes, ctypes.util, os
rt = ctypes.CDLL(None, use_errno=True)
q = rt.mq_open(b'/q', os.O_CREAT | os.O_RDWR, 0o600, None); assert q >= 0, ctypes.get_errno()
assert rt.mq_send(q, b'x', 1, 0) == 0 and rt.mq_unlink(b'/q') == 0
rt.sem_open.restype = ctypes.c_void_p; assert rt.sem_open(b'/s', os.O_CREAT, 0o600, 1); assert rt.sem_unlink(b'/s') == 0
i = rt.shmget(0, 4096, 0o1600); assert i >= 0 and rt.shmctl(i, 0, None) == 0
" """),
    "landlock-inside": ("user", """python3 -c "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
version = libc.syscall(444, None, 0, 1)
if version > 0:
    rules = ctypes.c_uint64(1 << 1)
    fd = libc.syscall(444, ctypes.byref(rules), 8, 0); assert fd >= 0
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, fd, 0) == 0
    try: open('/tmp/f', 'w')
    except PermissionError: pass
    else: raise SystemExit('not restricted')
" """),
    "seccomp-inside": ("user", """python3 -c "
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000)); prog = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 1, ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(317, 1, 0, prog) == 0
" """),
    "terminals": ("user", "python3 -c \"import pty, os; m, s = os.openpty(); os.write(m, b'x\\n'); assert b'x' in os.read(m, 9); assert pty.spawn(['true']) == 0\" && script -qec 'tty' /dev/null | grep -q /dev/pts/"),
    "signals-and-timers": ("user", """python3 -c "
import signal, os, time
got = []; signal.signal(signal.SIGALRM, lambda *a: got.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.05); assert got
signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)
" && (sleep 5 & kill -STOP $!; kill -CONT $!; kill $!) && timeout 5 true && nice -n 5 true"""),
    "clock-and-sync": ("user", "date +%s | grep -q . && sync && sync /tmp && python3 -c 'import os; f = open(\"/tmp/s\", \"w\"); os.fsync(f.fileno()); os.fdatasync(f.fileno())'"),
    "sqlite": ("user", "python3 -c \"import sqlite3; c = sqlite3.connect('d.db'); c.execute('pragma journal_mode=wal'); c.execute('create table t(x)'); c.execute('insert into t values(1)'); c.commit()\""),
    "archives": ("root", "mkdir -p /tmp/d && cp -a /etc/. /tmp/d/ && tar -C /tmp -cf /tmp/d.tar d && rm -rf /tmp/d && tar -C /tmp -xpf /tmp/d.tar && test -f /tmp/d/passwd"),
    "rename-whole-directories": ("root", "mv /usr/share/doc /usr/share/doc2 && mv /usr/share/doc2 /opt/ && test -d /opt/doc2 && rm -rf /opt/doc2"),
    "chroot": ("root", "mkdir -p /tmp/j/bin /tmp/j/lib /tmp/j/lib64 && cp /bin/true /tmp/j/bin && cp $(ldd /bin/true | grep -o '/[^ ]*') /tmp/j/lib/ && cp /tmp/j/lib/ld-linux* /tmp/j/lib64/ 2>/dev/null; "
                       "chroot /tmp/j /bin/true"),
    "proc-and-sys": ("user", "test \"$(nproc)\" -ge 1 && cat /proc/cpuinfo /proc/meminfo /proc/self/maps /proc/net/tcp /sys/devices/system/cpu/online >/dev/null && free >/dev/null && ps aux >/dev/null && df / >/dev/null"),
    "temporary-files": ("user", "f=$(mktemp) && d=$(mktemp -d) && test -w $f && python3 -c 'import tempfile, os; t = tempfile.TemporaryFile(); t.write(b\"x\"); os.memfd_create(\"m\")'"),
}

PACKAGE = """set -e; mkdir -p /tmp/pkg/DEBIAN /tmp/pkg/usr/bin; cd /tmp
printf 'Package: cove-probe\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: nobody <n@localhost>\\nDescription: probe\\n' > pkg/DEBIAN/control
printf '#!/bin/sh\\nset -e\\nadduser --system --group probe-user 2>/dev/null || useradd -r probe-user\\nchown probe-user /usr/bin/cove-probe\\n' > pkg/DEBIAN/postinst
printf '#!/bin/sh\\necho installed\\n' > pkg/usr/bin/cove-probe; chmod 755 pkg/DEBIAN/postinst pkg/usr/bin/cove-probe
dpkg-deb --root-owner-group -b pkg cove-probe.deb >/dev/null"""


@pytest.fixture
def positive(service):
    return service.client.create()


@pytest.mark.parametrize("name", SCRIPTS)
def test_works(positive, name):
    user, script = SCRIPTS[name]
    must(positive, script, user=user)


@pytest.mark.parametrize("name", PROBES)
def test_probe_works(sandbox, name):
    verb = PROBES[name]
    if not outside(verb)[verb].reached:
        pytest.skip("this machine can't do it outside of a sandbox either")
    for user in USERS:
        assert inside(sandbox, verb, user=user)[verb].reached


def test_dpkg(positive):
    must(positive, PACKAGE + "; dpkg -i cove-probe.deb; cove-probe | grep -qx installed; test $(stat -c %U /usr/bin/cove-probe) = probe-user; dpkg -r cove-probe", user="root")


def test_apt_installs_a_local_package(positive):
    """Without a network: apt drops to its own user, unpacks, configures."""
    must(positive, f"sudo sh -c '{PACKAGE.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}' && sudo apt-get install -y --no-install-recommends /tmp/cove-probe.deb && cove-probe")


def test_terminal_of_the_service(positive):
    """A PTY by the API: job control and a window size."""
    with positive.start("/bin/bash", "-c", "tty; stty size; sleep 9 & jobs -p | grep -q . && kill %1; exec true",
                        pty={"size": {"cols": 91, "rows": 33}}) as stream:
        code, out, _ = stream.rest()
    assert code == 0 and b"/dev/pts/0" in out and b"33 91" in out
