# SPDX-License-Identifier: Apache-2.0
"""The network namespace of a sandbox: all that it sends ends in the hands of cove-egress, and there is nothing to change that. Section 2 (N..).

The cove-egress of these attacks is tests/system/egress_standin.py, which lets nobody out and keeps a list of who came. An attack has
failed when the host's canary saw nobody, and what was captured stands in that list with the address that was asked for.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from egress_standin import Seen
from rig import BUILD, USERS, attacked, inside, judge, must, outside, raw, text
from service import COVED, TIER, wait_until

SYSTEM = Path(__file__).resolve().parent.parent / "system"
EVERYWHERE = ("198.51.100.66", "2001:db8::66", "::ffff:198.51.100.66", "8.8.8.8", "1.1.1.1", "10.0.0.1", "10.0.2.2", "10.0.2.3", "10.200.0.1", "172.17.0.1",
              "192.168.1.1", "100.64.0.1", "169.254.169.254", "169.254.170.2", "fd00:ec2::254", "fd00:c0fe::1", "100.100.100.200", "168.63.129.16", "192.0.0.192")
PORTS = (1, 22, 25, 80, 443, 465, 853, 3306, 5432, 6379, 7070, 8080, 61053, 61080, 65535)
MULTICAST = (("224.0.0.251", 5353), ("239.255.255.250", 1900), ("255.255.255.255", 67), ("ff02::fb", 5353), ("ff02::1", 1))
REFUSED = {"ENETUNREACH", "EHOSTUNREACH", "EACCES", "EPERM", "ECONNREFUSED", "EADDRNOTAVAIL", "EINVAL"}
OWN = ("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.200.0.2", "::1", "::", "fd00:c0fe::2", "::ffff:127.0.0.1", "::ffff:10.200.0.2")
OUR_PORTS = (61080, 61053)

# Behind a gate what a sandbox sends is refused on its way and not by the call: it learns so by an answer, and the proof is that nobody saw it.
GATED = TIER not in (None, "container", "process")
REFUSED |= {"reached"} if GATED else set()
OTHER_KERNEL = TIER == "gvisor" # whose stack has no fast open, answers some calls by other errors, and gives options of its own that touch nobody
REFUSED |= {"EPIPE"} if OTHER_KERNEL else set()
of_linux = pytest.mark.skipif(OTHER_KERNEL, reason="it tells how Linux refuses; gVisor's own stack is the sandbox's to change")
of_host = pytest.mark.skipif(TIER == "microvm", reason="the kernel is the machine's own: its root may do anything to it, and the gate holds")
filtered = pytest.mark.skipif(TIER == "stub", reason="the tests' own tier has no filter of system calls and no interface of its own to keep from changes")


@pytest.fixture(scope="module")
def session_service(canary):
    """In the place of the one that all other attacks share."""
    with tempfile.TemporaryDirectory(prefix="test-programs-", dir=BUILD) as directory:
        os.chmod(directory, 0o755) # the unprivileged workers pass through
        for name in ("coved", "cove-api", "cove-agent"):
            shutil.copy(COVED.parent / name, directory)
        shutil.copy(SYSTEM / "egress_standin.py", Path(directory) / "cove-egress")
        (Path(directory) / "cove-egress").chmod(0o755)
        with attacked(canary, directory) as service:
            service.seen = Seen(service)
            assert wait_until(lambda: service.seen.of("start")), service.tail()
            yield service


@pytest.fixture
def seen(service):
    return service.seen


def plain(address):
    return address.removeprefix("::ffff:")


def host_addresses():
    """The machine's own, loopback included."""
    found = {"127.0.0.1"}
    for line in Path("/proc/net/fib_trie").read_text().split("/32 host LOCAL"):
        words = line.split()
        if words and words[-1].count(".") == 3:
            found.add(words[-1])
    return sorted(found)


def test_only_loopback_is_there(sandbox):
    if GATED:
        assert must(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1").split() == ["lo", "eth0"]
        return
    assert must(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1").split() == ["lo"]
    assert {line.split()[0] for line in must(sandbox, "tail -n +2 /proc/net/route").splitlines()} == {"lo"}
    assert set(must(sandbox, "awk '{print $NF}' /proc/net/ipv6_route /proc/net/if_inet6").split()) == {"lo"}
    assert must(sandbox, "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding").split() == ["0", "0"]


def test_N01_N03_N04_N05_N19_tcp_is_captured(sandbox, seen):
    """Whoever is asked for, by whatever call: cove-egress gets it, with that address."""
    wanted = {(a, p) for a in EVERYWHERE for p in (80, 443)} | {("198.51.100.66", p) for p in PORTS}
    for user in USERS:
        for call in ("tcp",) if OTHER_KERNEL else ("tcp", "tcp_fast_open"):
            before = len(seen.of("tcp", id=sandbox.id))
            found = inside(sandbox, *(f"{call},{a},{p}" for a, p in sorted(wanted)), user=user)
            assert all(o.reached for o in found.values()), found
            arrived = lambda: [tuple(e["to"]) for e in seen.of("tcp", id=sandbox.id)[before:]]
            assert wait_until(lambda: len(arrived()) == len(wanted)), len(arrived())
            assert sorted(arrived()) == sorted((plain(a), p) for a, p in wanted)


def test_names_are_asked_of_cove_egress_alone(sandbox, seen):
    """Whatever server is asked: a query by UDP that nobody else could answer is answered."""
    query = ("import socket; s=socket.socket({family}, socket.SOCK_DGRAM); s.settimeout(60); "
             "s.sendto(bytes.fromhex('123401000001000000000000') + b'\\x04{label}\\x04test\\0\\0\\1\\0\\1', ('{server}', 53)); print(s.recvfrom(512)[1][0])")
    for i, server in enumerate(("8.8.8.8", "198.51.100.66", "2001:db8::66", "10.200.0.1", "169.254.169.253")):
        family = "socket.AF_INET6" if ":" in server else "socket.AF_INET"
        assert must(sandbox, f"python3 -c \"{query.format(family=family, label=f'nam{i}', server=server)}\"").strip() == server
        assert seen.of("dns", id=sandbox.id, name=f"nam{i}.test")


def test_N12_N15_N20_udp_is_refused_at_once(sandbox, seen):
    verbs = [f"{call},{a},{p}" for a in EVERYWHERE for p in (123, 443, 54, 61053) for call in ("udp", "udp_many")]
    for user in USERS:
        begin = time.monotonic()
        for outcome in inside(sandbox, *verbs, user=user).values():
            assert outcome.name in REFUSED, outcome
        print(f"{len(verbs)} attempts by {user} in {time.monotonic() - begin:.2f} s")
    assert not seen.of("dns", id=sandbox.id)


def test_N10_services_of_the_host(sandbox, canary, service, seen):
    addresses = [a for a in host_addresses() if not a.startswith("127.")]
    ports = (canary.port, service.port)
    own = [f"tcp,127.0.0.1,{p}" for p in ports] + [f"tcp_fast_open,127.0.0.1,{canary.port}", f"tcp,::1,{service.port}"]
    udp = [f"udp,127.0.0.1,{canary.udp_port}", f"udp_many,127.0.0.1,{canary.udp_port}"]
    control = outside(f"tcp,127.0.0.1,{canary.port}", f"tcp,127.0.0.1,{service.port}", f"udp,127.0.0.1,{canary.udp_port}")
    assert all(o.reached for o in control.values()), control
    assert canary.visitors() == 2, "the canary is asleep"
    for user in USERS:
        for outcome in inside(sandbox, *own, *udp, user=user).values():
            # A datagram to one's own loopback goes to nobody; that nobody of the host got it is what the canary says.
            assert outcome.name in REFUSED or (outcome.verb.startswith("udp") and outcome.reached), outcome
        inside(sandbox, *(f"tcp,{a},{p}" for a in addresses for p in ports), *(f"udp,{a},{canary.udp_port}" for a in addresses), user=user)
    wanted = 2 * len(addresses) * len(ports)
    assert wait_until(lambda: len(seen.of("tcp", id=sandbox.id)) == wanted)
    assert canary.visitors() == 0


def test_N11_names_of_the_host(sandbox):
    """They are names like any others: the machine is asked for none of them."""
    for name in ("host.docker.internal", "host.containers.internal", "gateway.docker.internal", "metadata.google.internal", socket.gethostname()):
        code, out, _ = sandbox.sh(f"getent ahostsv4 {name}", timeout=100)
        assert code != 0 or out.split()[0] in (b"127.0.0.1", b"127.0.1.1", b"198.51.100.10"), (name, out)


def test_N14_multicast_and_broadcast(sandbox):
    verbs = [f"udp,{a},{p}" for a, p in MULTICAST]
    for user in USERS:
        for outcome in inside(sandbox, *verbs, user=user).values():
            assert outcome.name in REFUSED, outcome


@of_host
@of_linux
def test_N16_ping(sandbox):
    control = outside("ping,127.0.0.1", "ping,127.0.0.1,raw")
    for user in USERS:
        found = inside(sandbox, "ping,198.51.100.66", "ping,8.8.8.8,raw", "ping,2001:db8::66", "ping,127.0.0.1,raw", user=user)
        for outcome in found.values():
            judge(outcome, control["ping,127.0.0.1,raw"], REFUSED)


@of_host
def test_N17_raw_and_packet_sockets(sandbox):
    verbs = ("socket,2,3,255", "socket,2,3,6", "socket,10,3,58", "socket,17,3,768", "socket,17,2,768")
    control = outside(*verbs)
    for user in USERS:
        for verb, outcome in inside(sandbox, *verbs, user=user).items():
            judge(outcome, control[verb], {"EPERM", "EAFNOSUPPORT", "EPROTONOSUPPORT"})


@of_host
@filtered
def test_N22_sockets_by_the_other_entries(sandbox):
    """socketcall() of the 32-bit entry takes its arguments from memory, where no filter sees them. gVisor has no such entry: there 102 is getuid()."""
    verbs = ["int80,359", "x32,41", *(["int80,102"] if not OTHER_KERNEL else [])]
    control = outside(*verbs)
    for user in USERS:
        for outcome in inside(sandbox, *verbs, user=user).values():
            assert outcome.name == "ENOSYS", outcome
    if not any(o.reached or o.name in ("EINVAL", "EAFNOSUPPORT") for o in control.values()):
        pytest.skip("this kernel has no other entries")


@filtered
def test_N23_vsock(sandbox):
    verbs = [f"vsock,{cid},{port}" for cid in (0, 1, 2, 3, 4294967295) for port in (1, 22, 1024)]
    control = outside(*verbs)
    for user in USERS:
        for verb, outcome in inside(sandbox, *verbs, user=user).items():
            judge(outcome, control[verb], {"EAFNOSUPPORT"})


@of_host
@of_linux
@filtered
def test_N24_the_network_can_not_be_changed(sandbox, seen):
    control = outside("netlink_write", "interface_down,lo", net=True)
    for user in USERS:
        found = inside(sandbox, "netlink_write", "interface_down,lo", user=user)
        for verb, outcome in found.items():
            judge(outcome, control[verb], {"EPERM"})
        for command in ("ip route add 198.51.100.0/24 dev lo", "ip route del default", "ip addr add 10.9.8.7/32 dev lo", "ip addr del 10.200.0.2/32 dev lo",
                        "ip link set lo down", "ip rule add prio 1 blackhole", "ip link add dummy0 type dummy", "ip link add v0 type veth peer name v1",
                        "ip tuntap add t0 mode tun", "ip netns add x", "unshare -n true", "unshare -Un true", "nsenter -t 1 -n ip link set lo down"):
            assert sandbox.sh(command, user=user)[0] != 0, command
        for setting in ("ipv4/ip_forward", "ipv4/ip_local_port_range", "ipv4/ping_group_range", "ipv4/conf/all/route_localnet", "ipv6/conf/all/disable_ipv6",
                        "ipv6/conf/lo/disable_ipv6", "netfilter/nf_conntrack_tcp_timeout_established", "netfilter/nf_conntrack_tcp_loose"):
            assert sandbox.sh(f"cat /proc/sys/net/{setting} >/tmp/setting && cat /tmp/setting >/proc/sys/net/{setting}", user=user)[0] != 0, setting
        for protocol in (5, 9, 10, 12, 16, 21): # firewall, audit, IPv6 firewall, netfilter, generic, crypto
            assert inside(sandbox, f"socket,16,3,{protocol}", user=user)[f"socket,16,3,{protocol}"].name == "EPROTONOSUPPORT"
    assert inside(sandbox, "tcp,127.0.0.1,9")["tcp,127.0.0.1,9"].name == "ECONNREFUSED", "loopback is gone"
    inside(sandbox, "tcp,198.51.100.66,4242")
    assert wait_until(lambda: seen.of("tcp", id=sandbox.id, to=["198.51.100.66", 4242])), "the network is not captured any more"


@of_host
@of_linux
def test_socket_options_of_the_administrator(sandbox):
    """iptables' tables, repair, marks, transparent proxies: by socket options, on sockets that anybody may have."""
    options = {"iptables-replace": (0, 64, 96), "ip6tables-replace": (41, 64, 96), "arptables": (0, 96, 96), "tcp-repair": (6, 19, 4), "so-mark": (1, 36, 4),
               "ip-transparent": (0, 19, 4), "bind-to-device": (1, 25, 4), "priority": (1, 12, 4), "ebtables": (0, 128, 96), "lock-filter-bpf": (1, 50, 4)}
    verbs = {f"option,{level},{name},{size}": what for what, (level, name, size) in options.items() if what not in ("priority", "bind-to-device")}
    control = outside(*verbs, net=True)
    checked = 0
    for user in USERS:
        for verb, outcome in inside(sandbox, *verbs, user=user).items():
            if verbs[verb] in ("iptables-replace", "ip6tables-replace", "arptables", "ebtables", "tcp-repair", "so-mark",
                               "ip-transparent") and control[verb].reached and \
                    not outcome.reached:
                assert outcome.name in ("EPERM", "ENOPROTOOPT", "EBADF"), (verbs[verb], outcome)
                checked += 1
    for what in ("tcp-repair", "so-mark", "ip-transparent"):
        level, name, size = options[what]
        outcome = inside(sandbox, f"option,{level},{name},{size}")[f"option,{level},{name},{size}"]
        assert outcome.name == "EPERM", (what, outcome)
    if not checked:
        pytest.skip("this kernel has none of them")


INTERFACES = """import array, ctypes, fcntl, socket, struct
libc = ctypes.CDLL(None)
found = ctypes.c_void_p()
assert libc.getifaddrs(ctypes.byref(found)) == 0 and found and socket.if_nameindex() == [(1, 'lo')]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
space = array.array('B', bytes(4096))
answer = fcntl.ioctl(s, 0x8912, struct.pack('iP', 4096, space.buffer_info()[0]))
assert struct.unpack('iP', answer)[0] and space.tobytes().startswith(b'lo')
for request in (0x8913, 0x8915, 0x891b, 0x8921, 0x8927): # flags, address, netmask, size, address of hardware
    fcntl.ioctl(s, request, struct.pack('256s', b'lo'))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
"""


@of_host
@of_linux
@filtered
def test_interfaces_can_be_asked_for(sandbox):
    """As Node, Go, Java and Python do it; what asks a device for its hardware hears what lo says to it anywhere."""
    for user in USERS:
        must(sandbox, f"python3 -c \"{INTERFACES}\"", user=user)
        ask = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8946, struct.pack('256s', b'lo'))"
        code, _, err = sandbox.sh(f'python3 -c "{ask}"', user=user)
        assert code != 0 and b"not supported" in err, err


def test_N27_tunnels(sandbox):
    control = outside("tun", net=True)["tun"]
    for user in USERS:
        judge(inside(sandbox, "tun", user=user)["tun"], control, {"ENOENT", "EPERM", "EACCES"})


def test_N29_unix_sockets_of_the_host(sandbox, canary, service):
    verbs = [f"abstract,{canary.name}", f"unix,{canary.path}", f"unix,{service.run / 'cove.sock'}", f"unix,{service.run / 'vault.sock'}", "unix,/run/cove/cove.sock",
             "unix,/run/cove/vault.sock", "unix,/var/run/docker.sock", "unix,/run/systemd/private", "unix,/run/dbus/system_bus_socket",
             f"unix,/proc/1/root{canary.path}"]
    control = outside(*verbs[:4])
    assert all(o.reached for o in control.values()), control
    assert canary.visitors() == 2
    for user in USERS:
        for outcome in inside(sandbox, *verbs, user=user).values():
            assert outcome.name in ("ECONNREFUSED", "ENOENT", "EACCES"), outcome


def test_N30_nobody_inside_holds_the_sockets_of_cove_egress(sandbox):
    listening = must(sandbox, "cat /proc/net/tcp6 /proc/net/udp6 | awk '$2 ~ /:(EE98|EE7D)$/ {print $10}'", user="root").split()
    assert len(listening) == (0 if GATED else 3), listening
    held = must(sandbox, "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -o 'socket:.*' || true", user="root")
    assert not [inode for inode in listening if f"[{inode}]" in held], held
    assert must(sandbox, "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c 'net:' || true", user="root").strip() == "0"


def test_N31_our_sockets_are_no_relay(sandbox, canary, seen):
    """They take what was captured. Who addresses them, from wherever, is refused, and can't take their place either."""
    for user in USERS:
        for port in OUR_PORTS:
            found = inside(sandbox, *(f"{call},{a},{port}" for a in OWN for call in ("tcp", "tcp_fast_open")), user=user)
            assert {o.name for o in found.values()} <= {"ECONNREFUSED"} | ({"EPIPE"} if OTHER_KERNEL else set()), found
        found = inside(sandbox, *(f"{call},{a},61053" for a in OWN for call in ("udp", "udp_many")), user=user)
        assert {o.name for o in found.values()} <= ({"reached", "ECONNREFUSED"} if GATED else {"EPERM"}), found
        for proxy in ("http://127.0.0.1:61080", "http://10.200.0.2:61080", "socks5h://10.200.0.2:61080", "http://[fd00:c0fe::2]:61080"):
            code, out, _ = sandbox.sh(f"curl -gsm5 -x '{proxy}' http://127.0.0.1:{canary.port}/", user=user)
            assert code in (7, 97) and out == b"", (proxy, code, out)
        steal = ("import socket\nfor f, a in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '10.200.0.2'), (socket.AF_INET, ''), (socket.AF_INET6, '::1'), "
                 "(socket.AF_INET6, 'fd00:c0fe::2'), (socket.AF_INET6, '::')):\n for t, p in ((socket.SOCK_STREAM, 61080), (socket.SOCK_STREAM, 61053), "
                 "(socket.SOCK_DGRAM, 61053)):\n  s = socket.socket(f, t)\n  s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
                 "  s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n  try:\n   s.bind((a, p))\n   t == socket.SOCK_STREAM and s.listen()\n"
                 "   print('stolen', f, a, t, p)\n  except OSError as e:\n   assert e.errno == 98, e\n")
        assert GATED or must(sandbox, f"python3 -c \"{steal}\"", user=user) == ""
    assert not seen.of("tcp", id=sandbox.id) and not seen.of("dns", id=sandbox.id)


def test_loopback_and_low_ports_are_the_sandbox_s_own(sandbox, seen):
    """Positive: servers of one's own, also on ports that elsewhere are root's, also by the address that the sandbox has."""
    script = ("import socket\nfor f, a in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '10.200.0.2'), (socket.AF_INET6, '::1'), (socket.AF_INET6, 'fd00:c0fe::2')):\n"
              " for p in (53, 80, 443, 9000):\n  s = socket.socket(f); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((a, p)); s.listen()\n"
              "  c = socket.create_connection((a, p), 5); d = s.accept()[0]; d.sendall(b'hello'); assert c.recv(9) == b'hello'\n"
              "  u = socket.socket(f, socket.SOCK_DGRAM); u.bind((a, p)); v = socket.socket(f, socket.SOCK_DGRAM); v.settimeout(5)\n"
              "  v.sendto(b'who', (a, p)); u.sendto(b'me', u.recvfrom(9)[1]); assert v.recv(9) == b'me'\nprint('all')\n")
    for user in USERS:
        assert must(sandbox, f"python3 -c \"{script}\"", user=user) == "all\n"
    assert not seen.of("tcp", id=sandbox.id) and not seen.of("dns", id=sandbox.id)


def test_N33_ports_inside_are_not_the_host_s(sandbox):
    with sandbox.start("python3", "-c",
                       "import socket,time; s=socket.create_server(('0.0.0.0',15711)); t=socket.create_server(('::',15712),family=socket.AF_INET6); print('up',flush=True); time.sleep(200)") as up:
        next(up.output())
        for port in (15711, 15712): # none that the kernel gives to anybody who asks for any
            for address in host_addresses():
                with pytest.raises(OSError):
                    socket.create_connection((address, port), timeout=1)
        assert not subprocess.run(["grep", "-q", ":3D5F", "/proc/net/tcp"], check=False).returncode == 0


def test_N13_N32_a_neighbour_is_not_there(pair, seen):
    """What listens in one sandbox, on the address that both have, is nobody's elsewhere."""
    one, two = pair
    with one.start("python3", "-c", "import socket,time; s=socket.create_server(('10.200.0.2',45713)); print('up',flush=True); time.sleep(200)") as up:
        next(up.output())
        assert inside(one, "tcp,10.200.0.2,45713")["tcp,10.200.0.2,45713"].reached
        assert inside(two, "tcp,10.200.0.2,45713")["tcp,10.200.0.2,45713"].name == "ECONNREFUSED"
    inside(one, "tcp,198.51.100.1,1111")
    inside(two, "tcp,198.51.100.2,2222")
    for box, other, to in ((one, two, ["198.51.100.1", 1111]), (two, one, ["198.51.100.2", 2222])):
        assert wait_until(lambda: seen.of("tcp", id=box.id, to=to))
        assert not seen.of("tcp", id=other.id, to=to)


def test_N35_without_cove_egress_nothing_gets_out(sandbox, service, canary, seen):
    address = next((a for a in host_addresses() if not a.startswith("127.")), None)
    if not address:
        pytest.skip("this machine has no address but loopback")
    old = service.child("cove-egress")
    os.kill(service.coved_pid, 19)
    try:
        os.kill(old, 9)
        for user in USERS:
            inside(sandbox, f"tcp,{address},{canary.port}", f"udp,{address},{canary.udp_port}", "tcp,198.51.100.66,443", user=user)
    finally:
        os.kill(service.coved_pid, 18)
    assert wait_until(lambda: service.child("cove-egress") not in (None, old)), service.tail()
    assert wait_until(lambda: len(seen.of("net", id=sandbox.id)) == 2)
    assert canary.visitors() == 0


def test_N36_nothing_leaves_before_the_first_program(service, canary, seen):
    """The namespace is captured before the process is born: the first that runs is captured, and it is by the sandbox's own sockets."""
    address = next((a for a in host_addresses() if not a.startswith("127.")), "127.0.0.1")
    for i in range(12): # more than are made ahead
        box = service.client.create()
        script = f"exec 3<>/dev/tcp/198.51.100.9/{2000 + i}; read -t 60 line <&3; echo \"$line\"; exec 4<>/dev/tcp/{address}/{canary.port}"
        with box.start("/bin/bash", "-c", script) as stream:
            code, out, err = stream.rest()
        assert text(out).strip() == f"('198.51.100.9', {2000 + i})", (code, err)
        assert seen.of("tcp", id=box.id, to=["198.51.100.9", 2000 + i])
    assert canary.visitors() == 0


def test_N37_a_survivor_is_captured_too(sandbox, seen):
    assert sandbox.sh("setsid nohup bash -c 'sleep 1; exec 3<>/dev/tcp/198.51.100.9/3738' >/dev/null 2>&1 & ", user="user")[0] == 0
    assert wait_until(lambda: seen.of("tcp", id=sandbox.id, to=["198.51.100.9", 3738]))


def test_a_flood_of_new_flows_harms_nobody_else(pair, seen):
    """Each flow that is captured costs the kernel memory that no control group counts: there is a bound, and the neighbour does not feel it."""
    one, two = pair
    flood = ("import socket, struct\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setblocking(False); sent = refused = 0\n"
             "for i in range(100000):\n try:\n  s.sendto(b'x', (socket.inet_ntoa(struct.pack('!I', 0xc6120000 + i)), 53)); sent += 1\n"
             " except BlockingIOError:\n  pass\n except PermissionError:\n  refused += 1\nprint(sent, refused)\n")
    sent, refused = map(int, must(one, f"python3 -c \"{flood}\"").split())
    tracked = 0 if OTHER_KERNEL else int(must(one, "cat /proc/sys/net/netfilter/nf_conntrack_count"))
    print(f"{sent} flows in, {refused} refused, {tracked} tracked")
    assert GATED or (refused > 0 and tracked <= sent < 60000) # src/kernel/netns_test.c looks into the gate
    assert inside(two, "tcp,198.51.100.9,4343")["tcp,198.51.100.9,4343"].reached
    assert wait_until(lambda: seen.of("tcp", id=two.id, to=["198.51.100.9", 4343]))


def test_reverse_proxy_reaches_inside_only(sandbox, service, canary):
    """Asked for a port of a sandbox, the service connects inside it, never to the host's port of that number; for a name, to no other host."""
    headers = {"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": str(canary.port)}
    answer = service.client.request("GET", "/", None, headers)
    assert answer.status in (502, 503, 404), answer
    for port in ("0", "65536", "-1", "80,22", "127.0.0.1:80", "99999999999999999999", "0x50", " 80", "80@canary"):
        answer = service.client.request("GET", "/", None, {**headers, "E2b-Sandbox-Port": port})
        assert 400 <= answer.status < 600, (port, answer)
    for target in (f"http://127.0.0.1:{canary.port}/", f"//127.0.0.1:{canary.port}/", f"/@127.0.0.1:{canary.port}/", f"/http://127.0.0.1:{canary.port}/"):
        answer = raw(service.port, f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{canary.port}\r\nConnection: close\r\n\r\n".encode())
        assert b" 200 " not in answer.split(b"\r\n")[0], answer[:200]
    answer = raw(service.port, f"CONNECT 127.0.0.1:{canary.port} HTTP/1.1\r\nHost: 127.0.0.1:{canary.port}\r\nConnection: close\r\n\r\n".encode())
    assert b" 200 " not in answer.split(b"\r\n")[0], answer[:200]


def test_the_host_is_unchanged(service, make):
    """No rule, no interface, no route on the host, however many sandboxes there are."""
    def state():
        links = Path("/proc/net/dev").read_text().splitlines()[2:]
        return ([line.split(":")[0] for line in links], Path("/proc/net/route").read_text(), Path("/proc/net/fib_trie").read_text(),
                Path("/proc/sys/net/ipv4/ip_forward").read_text())
    before = state()
    boxes = [make() for _ in range(3)]
    inside(boxes[0], "tcp,198.51.100.9,80")
    assert wait_until(lambda: state() == before)
