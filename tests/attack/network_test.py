# SPDX-License-Identifier: Apache-2.0
"""There is no network but the sandbox's own loopback: no address answers, and there is nothing to make one. Section 2 (N..)."""

import socket
import subprocess
import time
from pathlib import Path

import pytest
from rig import USERS, inside, judge, must, outside, raw

EVERYWHERE = ("198.51.100.66", "2001:db8::66", "::ffff:198.51.100.66", "8.8.8.8", "1.1.1.1", "10.0.0.1", "10.0.2.2", "10.0.2.3", "172.17.0.1", "192.168.1.1",
              "100.64.0.1", "169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fe80::1")
PORTS = (22, 25, 53, 80, 443, 465, 3306, 5432, 6379, 7070, 8080)
MULTICAST = (("224.0.0.251", 5353), ("239.255.255.250", 1900), ("255.255.255.255", 67), ("ff02::fb", 5353), ("ff02::1", 1))
UNREACHABLE = {"ENETUNREACH", "EHOSTUNREACH", "EACCES", "EPERM", "ECONNREFUSED", "EADDRNOTAVAIL", "EINVAL"}


def host_addresses():
    """The machine's own, loopback included."""
    found = {"127.0.0.1"}
    for line in Path("/proc/net/fib_trie").read_text().split("/32 host LOCAL"):
        words = line.split()
        if words and words[-1].count(".") == 3:
            found.add(words[-1])
    return sorted(found)


def test_only_loopback_is_there(sandbox):
    assert must(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1").split() == ["lo"]
    assert must(sandbox, "tail -n +2 /proc/net/route") == ""
    assert set(must(sandbox, "awk '{print $NF}' /proc/net/if_inet6").split()) <= {"lo"}
    assert must(sandbox, "cat /etc/resolv.conf").strip() == ""


def test_N01_N03_N04_N05_N12_nothing_answers(sandbox):
    """Refused at once, not by a time-out."""
    verbs = [f"tcp,{a},{p}" for a in EVERYWHERE for p in (80, 443)] + [f"udp,{a},53" for a in EVERYWHERE] + [f"tcp,198.51.100.66,{p}" for p in PORTS]
    verbs += [f"udp_many,{a},443" for a in EVERYWHERE[:4]] + [f"tcp_fast_open,{a},443" for a in EVERYWHERE[:4]]
    for user in USERS:
        begin = time.monotonic()
        for outcome in inside(sandbox, *verbs, user=user).values():
            assert outcome.name in UNREACHABLE, outcome
        print(f"{len(verbs)} attempts by {user} in {time.monotonic() - begin:.2f} s")
        assert time.monotonic() - begin < 30


def test_N10_services_of_the_host(sandbox, canary, service):
    addresses = host_addresses()
    verbs = [f"tcp,{a},{p}" for a in addresses for p in (canary.port, service.port)] + [f"udp,127.0.0.1,{canary.udp_port}", f"tcp,::1,{service.port}"]
    verbs += [f"tcp_fast_open,127.0.0.1,{canary.port}", f"udp_many,127.0.0.1,{canary.udp_port}"]
    control = outside(f"tcp,127.0.0.1,{canary.port}", f"tcp,127.0.0.1,{service.port}", f"udp,127.0.0.1,{canary.udp_port}")
    assert all(o.reached for o in control.values()), control
    assert canary.visitors() == 2, "the canary is asleep"
    for user in USERS:
        for outcome in inside(sandbox, *verbs, user=user).values():
            # A datagram to one's own loopback goes to nobody; that nobody of the host got it is what the canary says.
            assert outcome.name in UNREACHABLE or (outcome.verb.startswith("udp") and outcome.reached), outcome
    assert canary.visitors() == 0


def test_N11_names_of_the_host(sandbox):
    names = ("host.docker.internal", "host.containers.internal", "gateway.docker.internal", "metadata.google.internal", "_gateway", "localhost.localdomain.",
             socket.gethostname())
    for name in names:
        code, out, _ = sandbox.sh(f"getent hosts {name}", timeout=20)
        assert code != 0 or out.split()[0] in (b"127.0.0.1", b"::1", b"127.0.1.1"), (name, out)


def test_N14_multicast_and_broadcast(sandbox):
    verbs = [f"udp,{a},{p}" for a, p in MULTICAST]
    for user in USERS:
        for outcome in inside(sandbox, *verbs, user=user).values():
            assert outcome.name in UNREACHABLE, outcome


def test_N16_ping(sandbox):
    control = outside("ping,127.0.0.1", "ping,127.0.0.1,raw")
    for user in USERS:
        found = inside(sandbox, "ping,198.51.100.66", "ping,8.8.8.8,raw", "ping,2001:db8::66", "ping,127.0.0.1,raw", user=user)
        for outcome in found.values():
            judge(outcome, control["ping,127.0.0.1,raw"], UNREACHABLE)


def test_N22_sockets_by_the_other_entries(sandbox):
    """socketcall() of the 32-bit entry takes its arguments from memory, where no filter sees them."""
    control = outside("int80,359", "int80,102", "x32,41")
    for user in USERS:
        for verb, outcome in inside(sandbox, "int80,359", "int80,102", "x32,41", user=user).items():
            assert outcome.name == "ENOSYS", outcome
    if not any(o.reached or o.name in ("EINVAL", "EAFNOSUPPORT") for o in control.values()):
        pytest.skip("this kernel has no other entries")


def test_N23_vsock(sandbox):
    verbs = [f"vsock,{cid},{port}" for cid in (0, 1, 2, 3, 4294967295) for port in (1, 22, 1024)]
    control = outside(*verbs)
    for user in USERS:
        for verb, outcome in inside(sandbox, *verbs, user=user).items():
            judge(outcome, control[verb], {"EAFNOSUPPORT"})


def test_N24_the_network_can_not_be_changed(sandbox):
    control = outside("netlink_write", "interface_down,lo", net=True)
    for user in USERS:
        found = inside(sandbox, "netlink_write", "interface_down,lo", user=user)
        for verb, outcome in found.items():
            judge(outcome, control[verb], {"EPERM"})
        for command in ("ip route add default dev lo", "ip addr add 10.9.8.7/32 dev lo", "ip link set lo down", "ip link add dummy0 type dummy",
                        "ip link add v0 type veth peer name v1", "ip tuntap add t0 mode tun", "ip netns add x", "sysctl -w net.ipv4.ip_forward=1",
                        "echo 1 > /proc/sys/net/ipv4/ip_forward"):
            assert sandbox.sh(command, user=user)[0] != 0, command
    assert inside(sandbox, "tcp,127.0.0.1,9")["tcp,127.0.0.1,9"].name == "ECONNREFUSED", "loopback is gone"


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


def test_N27_tunnels(sandbox):
    control = outside("tun", net=True)["tun"]
    for user in USERS:
        judge(inside(sandbox, "tun", user=user)["tun"], control, {"ENOENT", "EPERM", "EACCES"})


def test_N29_unix_sockets_of_the_host(sandbox, canary, service):
    verbs = [f"abstract,{canary.name}", f"unix,{canary.path}", f"unix,{service.run / 'cove.sock'}", "unix,/run/cove/cove.sock", "unix,/var/run/docker.sock",
             "unix,/run/systemd/private", "unix,/run/dbus/system_bus_socket", f"unix,/proc/1/root{canary.path}"]
    control = outside(*verbs[:3])
    assert all(o.reached for o in control.values()), control
    assert canary.visitors() == 2
    for user in USERS:
        for outcome in inside(sandbox, *verbs, user=user).values():
            assert outcome.name in ("ECONNREFUSED", "ENOENT", "EACCES"), outcome


def test_N33_ports_inside_are_not_the_host_s(sandbox):
    with sandbox.start("python3", "-c",
                       "import socket,time; s=socket.create_server(('0.0.0.0',45711)); t=socket.create_server(('::',45712),family=socket.AF_INET6); print('up',flush=True); time.sleep(30)") as up:
        next(up.output())
        for port in (45711, 45712):
            for address in host_addresses():
                with pytest.raises(OSError):
                    socket.create_connection((address, port), timeout=1)
        assert not subprocess.run(["grep", "-q", ":B28F", "/proc/net/tcp"], check=False).returncode == 0


def test_N36_nothing_leaves_before_the_first_program(make, canary):
    """The namespace is there before the process is: what runs first is already without a network."""
    for _ in range(3):
        box = make()
        assert inside(box, f"tcp,127.0.0.1,{canary.port}", f"udp,127.0.0.1,{canary.udp_port}")[f"tcp,127.0.0.1,{canary.port}"].name == "ECONNREFUSED"


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
