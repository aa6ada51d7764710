# SPDX-License-Identifier: Apache-2.0
"""cove snapshot, fork, diff, gc and pool."""

import base64
import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from leaks import processes, running
from service import UnixConnection, below, opened, read, settled, wait_until
from storage_test import prepared

ID = re.compile(r"i[a-z0-9]{20}")


def sh(service, sandbox, script):
    done = service.cove("exec", sandbox, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def snapshots(service):
    """Forgets all that a test has left."""
    yield
    service.remove_all()
    left = service.cove("snapshot", "ls", "-q").stdout.split()
    for name in {ref.removesuffix(":default") if not ref.startswith("local/") else ref.rpartition(":")[0] for ref in left}:
        assert service.cove("snapshot", "rm", name).returncode == 0
    assert service.cove("gc").returncode == 0


def test_a_snapshot_keeps_what_was(service, sandbox, snapshots):
    sh(service, sandbox, "echo then > f")
    name = service.cove("snapshot", sandbox, "kept:v1").stdout.strip()
    assert name.endswith("kept:v1")
    plain = service.cove("snapshot", sandbox).stdout.strip()
    sh(service, sandbox, "echo now > f")
    for ref in (name, "kept:v1", plain):
        assert service.cove("run", "--template", ref, "--", "cat", "f").stdout == "then\n"
    assert service.cove("snapshot", "ls", "-q", "--sandbox", sandbox).stdout.split() == [plain, name]
    listed = json.loads(service.cove("snapshot", "ls", "--json").stdout)
    assert [(s["ref"], s["sandbox"]) for s in listed] == [(plain, sandbox), (name, sandbox)]
    assert service.cove("snapshot", sandbox, "no name").returncode == 1
    assert sh(service, sandbox, "cat f") == "now\n"


def test_a_snapshot_that_is_used_is_not_removed(service, sandbox, snapshots):
    name = service.cove("snapshot", sandbox, "used").stdout.strip()
    user = ID.search(service.cove("run", "--keep", "--template", name, "--", "true").stderr)[0]
    done = service.cove("snapshot", "rm", name)
    assert done.returncode == 1 and user in done.stderr and "cove rm" in done.stderr
    assert service.cove("rm", user).returncode == 0
    assert service.cove("snapshot", "rm", name).stdout == f"{name}\n"
    assert "cove snapshot ls" in service.cove("snapshot", "rm", name).stderr
    assert service.cove("run", "--template", name, "--", "true").returncode == 125
    assert service.cove("snapshot", "rm", "base").returncode == 1


def test_tags_of_a_name_are_removed_one_by_one_or_together(service, sandbox, snapshots):
    for tag in ("", ":v1", ":v2"):
        assert service.cove("snapshot", sandbox, f"many{tag}").returncode == 0
    assert service.cove("snapshot", "rm", "many:v1").returncode == 0
    assert [ref.rpartition(":")[2] for ref in service.cove("snapshot", "ls", "-q").stdout.split()] == ["v2", "default"]
    done = service.cove("snapshot", "rm", "many:default")
    assert done.returncode == 1 and "other tags" in done.stderr
    assert service.cove("snapshot", "rm", "many").returncode == 0
    assert service.cove("snapshot", "ls", "-q").stdout == ""


def test_forks_have_the_files_and_their_own_life(service, sandbox, snapshots):
    sh(service, sandbox, "echo before > f")
    forks = service.cove("fork", "-n", "4", "--timeout", "5m", sandbox).stdout.split()
    assert len(set(forks)) == 4 and all(ID.fullmatch(f) for f in forks)
    sh(service, forks[0], "echo mine > f")
    assert [sh(service, box, "cat f") for box in (sandbox, *forks)] == ["before\n", "mine\n"] + 3 * ["before\n"]
    answer = json.loads(service.cove("fork", "--json", sandbox).stdout)
    assert len(answer["forks"]) == 1 and answer["forks"][0]["sandbox"]["state"] == "running"
    assert service.cove("fork", "-n", "0", sandbox).returncode == 2
    assert service.cove("fork", "i" + "0" * 20).returncode == 1


def test_diff_tells_what_was_added_changed_and_deleted(service, sandbox, snapshots):
    sh(service, sandbox, "echo a > a; mkdir d; echo b > d/b; sudo rm /etc/motd; echo x | sudo tee -a /etc/issue")
    lines = service.cove("diff", sandbox).stdout.splitlines()
    assert {"A /home/user/a", "A /home/user/d/", "A /home/user/d/b", "D /etc/motd", "M /etc/issue"} <= set(lines)
    assert [line[2:] for line in lines] == sorted(line[2:] for line in lines)
    name = service.cove("snapshot", sandbox, "one").stdout.strip()
    sh(service, sandbox, "rm a; echo bb > d/b; echo c > c")
    assert service.cove("diff", name, sandbox).stdout == "D /home/user/a\nA /home/user/c\nM /home/user/d/b\n"
    back = [json.loads(line) for line in service.cove("diff", "--json", sandbox, name).stdout.splitlines()]
    assert {(e["change"], e["path"]) for e in back} == {("added", "/home/user/a"), ("deleted", "/home/user/c"), ("modified", "/home/user/d/b")}
    assert service.cove("diff", name, name).stdout == ""
    assert "cove snapshot ls" in service.cove("diff", "no-such-thing").stderr


def test_what_cove_wrote_itself_is_no_change(service, sandbox, snapshots):
    assert service.cove("diff", sandbox).stdout == service.cove("diff", "base", sandbox).stdout == ""
    name = service.cove("snapshot", sandbox, "untouched").stdout.strip()
    fork = service.create(template=name)
    for sides in ((name,), ("base", name), (name, fork), (fork, sandbox)):
        assert service.cove("diff", *sides).stdout == "", sides
    sh(service, fork, "echo 10.0.0.9 db | sudo tee -a /etc/hosts; echo web1 | sudo tee /etc/hostname")
    assert service.cove("diff", fork).stdout == "M /etc/hostname\nM /etc/hosts\n"
    changed = service.cove("snapshot", fork, "changed").stdout.strip()
    assert service.cove("diff", name, changed).stdout == "M /etc/hostname\nM /etc/hosts\n"
    assert service.cove("pause", "--files-only", sandbox).returncode == 0
    assert service.cove("diff", sandbox).stdout == ""


ALIKE = 200


def write_alike(service, sandboxes, letters):
    """The same in each, at the same moment: what they make has sizes and, on some file systems, times and numbers in common."""
    script = ("import sys, time\ntime.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
              f"for i in range({ALIKE}):\n with open(f'/home/user/alike{{i}}', 'w') as f: f.write(sys.argv[1] * 5000)")
    at = str(time.time() + 2)
    with ThreadPoolExecutor(len(sandboxes)) as all_of_them:
        for done in all_of_them.map(lambda box, letter: service.cove("exec", box, "--", "python3", "-c", script, letter, at), sandboxes, letters):
            assert done.returncode == 0, done.stderr


def forks_differ(service, sandbox):
    forks = service.cove("fork", "-n", "2", "--timeout", "5m", sandbox).stdout.split()
    for letters in ("ab", "cd", "ef"):
        write_alike(service, forks, letters)
        assert service.cove("diff", *forks).stdout.splitlines() == sorted(f"M /home/user/alike{i}" for i in range(ALIKE))
    write_alike(service, forks, "gg")
    assert service.cove("diff", *forks).stdout == ""


def test_forks_that_did_the_same_at_once_with_other_bytes_differ(service, sandbox, snapshots):
    forks_differ(service, sandbox)


def test_forks_on_btrfs_that_did_the_same_at_once_with_other_bytes_differ():
    """There they are subvolumes, which count their inodes alike."""
    with prepared(COVE_POOL="btrfs") as service:
        service.start()
        forks_differ(service, service.create())
        service.remove_all()
        assert service.stop() == 0, service.tail()


def test_the_root_and_what_lies_too_deep(service, sandbox, snapshots):
    sh(service, sandbox, "sudo chmod 711 /")
    assert service.cove("diff", sandbox).stdout == "M /\n"
    sh(service, sandbox, "sudo chmod 755 /")
    script = "import os\nfor _ in range(300):\n os.mkdir('d')\n os.chdir('d')"
    assert service.cove("exec", sandbox, "--", "python3", "-c", script).returncode == 0
    done = service.cove("diff", sandbox)
    assert done.returncode == 1 and "deeper than 256" in done.stderr and done.stdout == ""
    told = service.cove("diff", "--json", sandbox)
    assert told.returncode == 1 and len(told.stdout.splitlines()) == 256 - len(["home", "user"])


NAMES = [b"a\nD passwd", b"back\\x0aslash", b"b\x1b[31mred", b"c\xff\xfe", b"d\xe2\x80\xaetxt", "e\u00e9".encode(), "f\u200b\ufeff".encode()]
PRINTED = ["a\\x0aD passwd", "b\\x1b[31mred", "back\\\\x0aslash", "c\\xff\\xfe", "d\\xe2\\x80\\xaetxt", "e\u00e9", "f\\xe2\\x80\\x8b\\xef\\xbb\\xbf"]


def test_names_are_told_such_that_each_can_be_had_back(service, sandbox, snapshots):
    script = f"for n in {NAMES!r}: open(b'/home/user/' + n, 'w')"
    assert service.cove("exec", sandbox, "--", "python3", "-c", script).returncode == 0
    assert service.cove("diff", sandbox).stdout.split("\n") == [f"A /home/user/{name}" for name in PRINTED] + [""]
    raw = service.cove("diff", "-z", sandbox, text=False).stdout
    assert raw == b"".join(b"A /home/user/" + name + b"\0" for name in sorted(NAMES))
    told = [json.loads(line) for line in service.cove("diff", "--json", sandbox).stdout.splitlines()]
    assert {base64.b64decode(e["path_base64"]) if "path_base64" in e else e["path"].encode() for e in told} == {b"/home/user/" + n for n in NAMES}
    assert [e["path"] for e in told if "path_base64" in e] == ["/home/user/c\ufffd\ufffd"]
    assert service.cove("diff", "-z", "--json", sandbox).returncode == 2


# ---- what comparisons cost, and their ends ----

LOOKUPS = re.compile(r"compare files: (\d+) look-ups")
DEPTH, ROUNDS, FILES = 12, 6, 5000


def lookups(service):
    """Of each comparison so far."""
    return [int(n) for n in LOOKUPS.findall(read(service.log))]


def diff_lookups(service, *sides):
    """(what was told, look-ups)"""
    before = len(lookups(service))
    done = service.cove("diff", *sides)
    assert done.returncode == 0, done.stderr
    assert wait_until(lambda: len(lookups(service)) > before)
    return done.stdout, lookups(service)[before]


@pytest.fixture(scope="module")
def talkative():
    """A service that says what comparisons cost."""
    with running(COVE_LOG="debug") as (service, _):
        yield service


def test_chains_renamed_over_several_snapshots_cost_their_length_and_no_more(talkative):
    """Each directory gets another parent and another name in each snapshot, so that each has an absolute path to where it was."""
    service = talkative
    box = service.create()
    path = "/".join(f"a{i}" for i in range(DEPTH))
    sh(service, box, f"mkdir -p {path}; echo x > {path}/f")
    names = [service.cove("snapshot", box, "chain0").stdout.strip()]
    for n in range(1, ROUNDS + 1):
        box = service.create(template=names[-1])
        old, new = ([f"{chr(ord('a') + of)}{i}" for i in range(DEPTH)] for of in (n - 1, n))
        apart = [("/".join(old[:i + 1]), new[i]) for i in range(DEPTH - 1, -1, -1)]
        together = [(new[i], f"{new[i - 1]}/{new[i]}") for i in range(DEPTH - 1, 0, -1)]
        done = service.cove("exec", box, "--", "python3", "-c", f"import os\nfor a, b in {apart + together}: os.rename(a, b)")
        assert done.returncode == 0, done.stderr
        names.append(service.cove("snapshot", box, f"chain{n}").stdout.strip())
    layer = next(s["layer"] for s in json.loads(service.cove("snapshot", "ls", "--json").stdout) if s["ref"] == names[-1])
    last = service.state / "pool" / "layers" / layer / "u" / "home" / "user"
    for i in range(DEPTH):
        last /= new[i]
        assert os.getxattr(last, "trusted.overlay.redirect").startswith(b"/") or i == 0
    told, used = diff_lookups(service, names[0], names[-1])
    path = "/home/user"
    expected = {f"D {path}/a0/"}
    for i in range(DEPTH):
        path += f"/{new[i]}"
        expected.add(f"A {path}/")
    assert set(told.splitlines()) == expected | {f"A {path}/f"}
    assert used < 12 * (DEPTH + 4) * (ROUNDS + 2) * 4 # their square at most: DEPTH ** ROUNDS would be 3 million
    service.remove_all()


@pytest.fixture(scope="module")
def alike(talkative):
    """Two snapshots whose files have the same bytes in other copies: comparing them takes a while and tells nothing."""
    service = talkative
    box = service.create()
    sh(service, box, f"mkdir d; cd d; i=0; while [ $i -lt {FILES} ]; do echo $i > $i; i=$((i+1)); done")
    first = service.cove("snapshot", box, "first").stdout.strip()
    box = service.create(template=first)
    sh(service, box, "find d -type f -exec chmod 600 {} +; find d -type f -exec chmod 644 {} +")
    second = service.cove("snapshot", box, "second").stdout.strip()
    told, used = diff_lookups(service, first, second)
    assert told == "" and used > 3 * FILES
    return first, second, used


def comparing(service):
    """Pids of comparisons that are under way: children of coved that bear its name and are nobody's user."""
    return [pid for pid in service.children() if read(f"/proc/{pid}/comm").strip() == "coved" and re.search(r"^Uid:\t1879048191\t", read(f"/proc/{pid}/status"), re.M)]


def held_in_the_middle(service, first, second, others=()):
    """(connection, pid): somebody waits for a comparison, none of the others, that stands still in the middle."""
    for _ in range(20):
        connection = UnixConnection(str(service.run / "cove.sock"))
        connection.request("GET", f"/cove/v1/diff?a={first}&b={second}")
        end = time.monotonic() + 10
        before = len(lookups(service))
        while time.monotonic() < end and len(lookups(service)) == before:
            for pid in set(comparing(service)) - set(others):
                try:
                    os.kill(pid, signal.SIGSTOP)
                except ProcessLookupError:
                    continue
                if wait_until(lambda pid=pid: re.search(r"^State:\tT", read(f"/proc/{pid}/status"), re.M), 1) and len(lookups(service)) == before:
                    return connection, pid
        connection.close()
    raise AssertionError("comparisons end before they can be held")


def test_a_comparison_ends_when_its_client_leaves(talkative, alike):
    service, (first, second, used) = talkative, alike
    connection, pid = held_in_the_middle(service, first, second)
    before = len(lookups(service))
    api = service.child("cove-api")
    had = settled(lambda: len(opened(api)), quiet=1)
    connection.close()
    assert wait_until(lambda: len(opened(api)) < had) # cove-api has seen it
    os.kill(pid, signal.SIGCONT)
    assert wait_until(lambda: len(lookups(service)) > before)
    assert lookups(service)[before] < used
    assert wait_until(lambda: not comparing(service))


def test_a_comparison_of_which_a_side_is_removed_does_not_end_well(talkative, alike):
    service, (first, _, _) = talkative, alike
    box = service.create(template=first)
    sh(service, box, "find d -type f -exec chmod 600 {} +; find d -type f -exec chmod 644 {} +")
    connection, pid = held_in_the_middle(service, first, box)
    before = len(lookups(service))
    try:
        assert service.cove("rm", box).returncode == 0
        assert wait_until(lambda: not below(service.state / "pool", f"boxes/*/{box}*"))
    finally:
        os.kill(pid, signal.SIGCONT)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status in (200, 409), text
    error = json.loads(text.splitlines()[-1])["error"]
    assert error["code"] == "aborted" and "was removed" in error["message"], text
    assert wait_until(lambda: len(lookups(service)) > before)


def test_comparisons_of_one_sandbox_leave_room_for_those_of_others(talkative, alike):
    service, (first, second, _) = talkative, alike
    held = []
    try:
        held.append(held_in_the_middle(service, first, second))
        held.append(held_in_the_middle(service, first, second, [pid for _, pid in held]))
        waiting = []
        for _ in range(4):
            connection = UnixConnection(str(service.run / "cove.sock"))
            connection.request("GET", f"/cove/v1/diff?a={first}&b={second}")
            waiting.append(connection)
        other = service.create()
        sh(service, other, "echo x > x")
        assert service.cove("diff", other).stdout == "A /home/user/x\n"
        assert sorted(comparing(service)) == sorted(pid for _, pid in held)
        for connection in waiting[:2]:
            connection.close()
        for _, pid in held:
            os.kill(pid, signal.SIGCONT)
        for connection in [c for c, _ in held] + waiting[2:]:
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
    finally:
        for connection, pid in held:
            connection.close()
            if pid in comparing(service):
                os.kill(pid, signal.SIGCONT)
        service.remove_all()
    assert wait_until(lambda: not comparing(service))


def test_nothing_is_left_of_a_comparison_when_coved_is_killed(talkative, alike):
    service, (first, second, used) = talkative, alike
    service.remove_all()
    connection, pid = held_in_the_middle(service, first, second)
    try:
        service.coved.kill()
        service.coved.wait(60)
    finally:
        connection.close()
    assert wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    service.start()
    assert comparing(service) == [] and pid not in processes(service.state)
    assert wait_until(lambda: not below(service.state / "pool", "trash/*"))
    assert list((service.state / "pool").glob("new/*")) == []
    told, again = diff_lookups(service, first, second)
    assert told == "" and again == used


def test_what_waits_for_another_template_gives_way_to_blanks(service, sandbox, snapshots):
    """A blank has no files in the pool: two are kept, whatever was asked for before."""
    other = service.cove("snapshot", sandbox, "other").stdout.strip()
    service.create(template=other)
    service.create()
    most = service.baseline["boxes in the pool"] + 3
    assert wait_until(lambda: settled(service.counts, quiet=1)["boxes in the pool"] <= most), (service.counts(), most)


def test_what_nobody_needs_goes(service, sandbox, snapshots):
    before = {e["layer"] for e in json.loads(service.cove("gc", "--dry-run", "--json").stdout)["layers"]}
    name = service.cove("snapshot", sandbox, "short").stdout.strip()
    layer = json.loads(service.cove("snapshot", "ls", "--json").stdout)[0]["layer"]
    assert layer not in service.cove("gc", "--dry-run").stdout
    assert service.cove("snapshot", "rm", name).returncode == 0
    found = json.loads(service.cove("gc", "--dry-run", "--json").stdout)["layers"]
    assert {e["layer"] for e in found} - before <= {layer} and not any(e["dropped"] for e in found)
    assert service.cove("gc").returncode == 0
    assert json.loads(service.cove("gc", "--json").stdout) == {"layers": []}


def test_the_pool_says_what_it_is(service):
    pool = json.loads(service.cove("pool", "--json").stdout)
    assert pool["kind"] in ("btrfs", "reflink", "copy") and 0 < pool["free_bytes"] <= pool["total_bytes"] and pool["layers"] >= 1
    assert f"kind    {pool['kind']}\n" in service.cove("pool").stdout


def test_some_are_kept_ready(session_service):
    """Without the look at leaks: what was made ahead goes as others take it."""
    service = session_service
    try:
        assert service.cove("warm", "base", "2").returncode == 0
        (one,) = json.loads(service.cove("warm", "--json").stdout)
        assert (one["template"], one["count"]) == ("base", 2) and service.cove("warm", "ls", "-q").stdout == "base\n"
        assert wait_until(lambda: re.fullmatch(r"TEMPLATE +KEPT +READY\nbase +2 +2\n", service.cove("warm", "ls").stdout))
        assert service.cove("run", "--", "echo", "taken").stdout == "taken\n"
    finally:
        assert service.cove("warm", "base", "0").returncode == 0
    assert wait_until(lambda: service.cove("warm").stdout == "") and service.cove("warm", "ls", "--json").stdout == "[]\n"
    assert "cove template ls" in service.cove("warm", "nothing", "1").stderr
    assert service.cove("warm", "base", "1000").returncode == 2
    for _ in range(4):
        assert service.cove("run", "--", "true").returncode == 0
