# SPDX-License-Identifier: Apache-2.0
"""Checkpoints, cove rewind, cove fork --at and cove replay --again."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from leaks import own_service
from service import UnixConnection, settled, wait_until
from storage_test import prepared, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a service of its own needs root")

ID = re.compile(r"i[a-z0-9]{20}")


def sh(service, sandbox, script):
    done = service.cove("exec", sandbox, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout


def made(service, *flags):
    done = service.cove("run", "--keep", *flags, "--", "true")
    assert done.returncode == 0, done.stderr
    return ID.search(done.stderr)[0]


def checkpoints(service, sandbox):
    return [c["seq"] for c in json.loads(service.cove("rewind", sandbox, "--json").stdout)["checkpoints"]]


def newest(service, sandbox):
    """The seq of the last event, and what there is then."""
    return json.loads(service.cove("log", "--json", sandbox).stdout.splitlines()[-1])["seq"]


@pytest.fixture(scope="module")
def service():
    with prepared() as service, running(service):
        yield service


@pytest.fixture(autouse=True)
def clean(service):
    yield
    service.remove_all()


def test_files_are_put_back_and_forth(service):
    box = made(service, "--checkpoint", "action")
    sh(service, box, "echo one > f")
    one = newest(service, box)
    sh(service, box, "echo two > f; echo more > g; sleep 1000 >/dev/null 2>&1 &")
    two = newest(service, box)
    done = service.cove("rewind", box, str(one))
    assert done.returncode == 0 and re.fullmatch(rf"{box} has its files as of event \d+\n", done.stdout), done
    assert sh(service, box, "cat f; ls; ps -e") .split()[:2] == ["one", "f"]
    assert "sleep" not in sh(service, box, "ps -e")
    assert service.cove("rewind", box, str(two)).returncode == 0
    assert sh(service, box, "cat f g") == "two\nmore\n"
    assert service.cove("rewind", box, "1").returncode == 1
    first = checkpoints(service, box)[0]
    assert service.cove("rewind", box, str(first)).returncode == 0
    assert sh(service, box, "ls") == ""
    kinds = [json.loads(line)["kind"] for line in service.cove("log", "--json", box).stdout.splitlines()]
    assert kinds.count("sandbox.rewind") == kinds.count("sandbox.rewound") == 3
    assert service.cove("log", "--verify", box).returncode == 0


def test_the_list_says_what_each_checkpoint_is_of(service):
    box = made(service, "--checkpoint", "action")
    sh(service, box, "echo one > f")
    sh(service, box, "echo two > f\n:")
    lines = service.cove("rewind", box).stdout.splitlines()
    assert lines[0].split(None, 2) == ["SEQ", "AT", "FILES AS THEY WERE"]
    what = [line.split(None, 2)[2] for line in lines[1:]]
    assert what[0] == "before true" and what[-2:] == ["after sh -c 'echo one > f'", r"after sh -c 'echo two > f\x0a:'"]
    done = service.cove("rewind", made(service))
    assert (done.returncode, done.stdout) == (0, "") and "--checkpoint action" in done.stderr, done
    done = service.cove("rewind", made(service, "--checkpoint", "risk"))
    assert (done.returncode, done.stdout) == (0, "") and done.stderr.endswith("no checkpoints yet\n"), done


def test_only_what_clients_did_is_listed(tmp_path):
    """A certificate that comes with the start is nobody's action."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", "/dev/null", "-out", tmp_path / "x.pem"], check=True, capture_output=True)
    (tmp_path / "config").write_text(f"network:\n  trust: [{tmp_path}/x.pem]\n")
    with prepared(COVE_CONFIG=str(tmp_path / "config")) as service, running(service):
        box = service.create(metadata={"cove.checkpoint": "action"})
        assert wait_until(lambda: "file.done" in service.cove("log", "--json", box).stdout)
        settled(lambda: checkpoints(service, box))
        sh(service, box, "echo one > f")
        what = [line.split(None, 2)[2] for line in service.cove("rewind", box).stdout.splitlines()[1:]]
        assert what == ["before sh -c 'echo one > f'", "after sh -c 'echo one > f'"]
        service.remove_all()


def test_what_changes_nothing_leaves_no_checkpoint(service):
    box = made(service, "--checkpoint", "action")
    sh(service, box, "echo one > f")
    for _ in range(3):
        sh(service, box, "cat f; ls /") # the first one sets when it was read
    before = checkpoints(service, box)
    for _ in range(5):
        sh(service, box, "cat f; ls /")
    assert checkpoints(service, box) == before
    sh(service, box, "echo two > f")
    assert len(checkpoints(service, box)) == len(before) + 1


def test_one_action_after_the_other_is_told_apart(service):
    """However fast they come: what begins while a checkpoint is made takes effect after it."""
    box = made(service, "--checkpoint", "action")
    seqs = []
    connection = UnixConnection(str(service.run / "cove.sock"))
    for i in range(12):
        connection.request("PUT", f"/cove/v1/sandboxes/{box}/files?path=/home/user/f", f"{i}\n".encode())
        answer = connection.getresponse()
        assert answer.status in (200, 201, 204), answer.read()
        answer.read()
    connection.close()
    for line in service.cove("log", "--json", box).stdout.splitlines():
        event = json.loads(line)
        if event["kind"] == "file.done":
            seqs.append(event["seq"])
    for i, seq in list(enumerate(seqs))[::4]:
        fork = service.cove("fork", "--at", str(seq), box).stdout.strip()
        assert sh(service, fork, "cat f") == f"{i}\n"
        assert service.cove("rm", fork).returncode == 0


def test_many_are_thinned_and_the_first_stays(service):
    box = made(service, "--checkpoint", "action")
    for i in range(45):
        sh(service, box, f"echo {i} > f")
    kept = checkpoints(service, box)
    assert len(kept) == 32
    assert service.cove("rewind", box, str(kept[0])).returncode == 0
    assert sh(service, box, "ls") == ""


def test_each_nth_action_and_off(service):
    box = made(service, "--checkpoint", "3")
    before = len(checkpoints(service, box))
    for i in range(6):
        sh(service, box, f"echo {i} > f")
    assert len(checkpoints(service, box)) == before + 2
    box = made(service)
    sh(service, box, "echo > f")
    assert checkpoints(service, box) == [] and service.cove("rewind", box, "5").returncode == 1
    assert service.cove("run", "--checkpoint", "sometimes", "--", "true").returncode != 0


def test_rules_and_labels_say_when(service):
    box = made(service, "--metadata", "cove.checkpoint=action")
    sh(service, box, "echo one > f")
    assert checkpoints(service, box)
    box = made(service)
    assert service.cove("guard", "set", "-", box, input=json.dumps(
        {"checkpoint": "risk", "rules": [{"name": "rm", "kind": "exec.start", "argv": ["rm"], "risk": "high"}]})).returncode == 0
    sh(service, box, "echo one > f")
    assert checkpoints(service, box) == []
    assert service.cove("exec", box, "--", "rm", "f").returncode == 0
    (seq,) = checkpoints(service, box)
    assert service.cove("rewind", box, str(seq)).returncode == 0
    assert sh(service, box, "cat f") == "one\n"


def test_a_template_says_when_and_a_sandbox_says_otherwise(service):
    assert service.cove("guard", "set", "-", "--template", "base", input="checkpoint: 2\n").returncode == 0
    try:
        box, other = made(service), made(service, "--checkpoint", "off")
        for one in (box, other):
            for number in range(3):
                sh(service, one, f"echo {number} > f")
        assert len(checkpoints(service, box)) >= 2 and checkpoints(service, other) == []
    finally:
        assert service.cove("guard", "rm", "--template", "base").returncode == 0


def test_the_configuration_says_when_nothing_else_does(tmp_path):
    (tmp_path / "cove.yaml").write_text("defaults: {checkpoint: action}\n")
    tmp_path.chmod(0o755)
    with own_service("checkpoint", COVE_CONFIG=str(tmp_path / "cove.yaml")) as service:
        box, other = made(service, "--template", "base"), made(service, "--template", "base", "--checkpoint", "off")
        for one in (box, other):
            sh(service, one, "echo one > f")
        assert checkpoints(service, box) and checkpoints(service, other) == []
        service.remove_all()


def test_paused_ones_and_workers_that_die(service):
    box = made(service, "--checkpoint", "action", "--timeout", "1h")
    sh(service, box, "echo one > f")
    one = newest(service, box)
    sh(service, box, "echo two > f")
    assert service.cove("pause", box).returncode == 0
    assert service.cove("rewind", box, str(one)).returncode == 0
    assert sh(service, box, "cat f") == "one\n"
    os.kill(service.child("cove-api"), signal.SIGKILL)
    assert wait_until(service.is_ready)
    assert checkpoints(service, box)
    assert sh(service, box, "cat f") == "one\n"


def test_they_go_with_the_sandbox(service):
    def layers():
        return json.loads(service.cove("pool", "--json").stdout)["layers"]

    before = settled(layers)
    box = made(service, "--checkpoint", "action")
    for i in range(3):
        sh(service, box, f"echo {i} > f")
    assert layers() > before
    assert service.cove("rm", box).returncode == 0
    assert wait_until(lambda: layers() == before)


# ---- a database that is written to meanwhile ----

POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), None)


def postgres_archive():
    """Debian's package as it lies on this machine, with the libraries that it needs, as a tar archive."""
    version = POSTGRES.parents[1]
    libraries = set()
    for program in (POSTGRES, POSTGRES.with_name("pgbench"), POSTGRES.with_name("psql"), POSTGRES.with_name("initdb")):
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        libraries |= set(re.findall(r"=> (/\S+)", listed))
    libraries = {path for path in libraries if not re.match(r"(libc|libm|libpthread|libdl|librt|ld-linux.*)\.so", Path(path).name)}
    return subprocess.run(["tar", "-chf", "-", "--exclude=*/bitcode", "-C", "/", *(str(p).lstrip("/") for p in (version, f"/usr/share/postgresql/{version.name}")),
                           *(path.lstrip("/") for path in libraries)], capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def database(service):
    """A snapshot with a PostgreSQL in which pgbench's tables are."""
    if not POSTGRES:
        pytest.skip("PostgreSQL (Debian's package postgresql) is not installed here")
    box = made(service)
    done = service.cove("exec", "-u", "root", box, "--", "tar", "-xf", "-", "-C", "/", input=postgres_archive(), text=False)
    assert done.returncode == 0, done.stderr
    sh(service, box, f"""mkdir -p pg run && {POSTGRES.parent}/initdb -D pg -A trust -U bench >/dev/null &&
        echo "listen_addresses = ''\nunix_socket_directories = '/home/user/run'\nshared_buffers = 16MB\njit = off" >> pg/postgresql.conf""")
    start(service, box)
    sh(service, box, f"{POSTGRES.parent}/pgbench -q -h ~/run -U bench -i -s 2 postgres 2>&1")
    query(service, box, "create table told (n int)")
    sh(service, box, f"{POSTGRES.parent}/pg_ctl -D pg -m fast stop")
    name = service.cove("snapshot", box, "database").stdout.strip()
    assert service.cove("rm", box).returncode == 0
    return name


def start(service, box):
    """After a crash, as it may be: recovery comes first. What is left of the lock of a process that is no more goes."""
    sh(service, box, f"rm -f pg/postmaster.pid; {POSTGRES.parent}/pg_ctl -D pg -l pg.log -w -t 60 start >/dev/null || (tail pg.log; false)")


def query(service, box, text):
    return sh(service, box, f"{POSTGRES.parent}/psql -h ~/run -U bench -At -v ON_ERROR_STOP=1 -c \"{text}\" postgres").strip()


def is_consistent(service, box):
    """pgbench's invariant: what was moved is the same seen from accounts, tellers, branches and the history."""
    sums = query(service, box, "select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers), "
                               "(select sum(bbalance) from pgbench_branches), (select coalesce(sum(delta), 0) from pgbench_history)").split("|")
    assert len(set(sums)) == 1, sums
    # Every page of every table and index is read.
    assert query(service, box, "select count(*) from pgbench_accounts") == "200000"
    return int(query(service, box, "select count(*) from pgbench_history"))


def test_postgres_comes_through_snapshot_fork_and_rewind(service, database):
    box = made(service, "--template", database, "--checkpoint", "action", "--timeout", "1h")
    start(service, box)
    sh(service, box, f"nohup {POSTGRES.parent}/pgbench -h ~/run -U bench -c 4 -R 100 -T 600 postgres > bench.log 2>&1 &")
    copies = []
    for n in range(3):
        # Committed, and told to us: no copy that is made from here on may be without it.
        query(service, box, f"insert into told values ({n})")
        before = int(query(service, box, "select count(*) from pgbench_history"))
        copies.append((n, before, service.cove("fork", box).stdout.strip()))
    seq = newest(service, box)
    query(service, box, "insert into told values (99)")
    snapshot = service.cove("snapshot", box).stdout.strip()
    copies.append((2, 1, service.cove("fork", "--at", str(seq), box).stdout.strip()))
    copies.append((2, 1, ID.search(service.cove("run", "--keep", "--template", snapshot, "--", "true").stderr)[0]))
    told = []
    for n, before, copy in copies:
        start(service, copy)
        assert is_consistent(service, copy) >= before
        told.append(query(service, copy, "select string_agg(n::text, ' ' order by n) from told"))
        assert service.cove("rm", copy).returncode == 0
    assert told == ["0", "0 1", "0 1 2", "0 1 2", "0 1 2 99"]
    assert "sandbox.checkpointed" in service.cove("log", box).stdout
    assert service.cove("rewind", box, str(seq)).returncode == 0
    assert "pgbench" not in sh(service, box, "ps -e")
    start(service, box)
    assert "database system was not properly shut down" in sh(service, box, "cat pg.log")
    assert is_consistent(service, box) > 0
    assert query(service, box, "select string_agg(n::text, ' ' order by n) from told") == "0 1 2"


# ---- again ----

def test_what_was_done_is_done_again_and_compared(service):
    box = made(service, "--checkpoint", "action")
    assert service.request("PUT", f"/cove/v1/sandboxes/{box}/files?path=/home/user/in", b"one\n")[0] < 300
    sh(service, box, "cat in; mkdir d; cp in d/out")
    assert service.request("PUT", f"/cove/v1/sandboxes/{box}/files?path=/home/user/in", b"two\n")[0] < 300
    sh(service, box, "cat in d/out; cat in >> d/out")
    assert service.cove("exec", box, "--", "sh", "-c", "exit 3").returncode == 3
    done = service.cove("replay", box, "--again")
    assert done.returncode == 0 and re.search(r"i\w{20}: 6 done again, 0 skipped, 0 differ", done.stdout), done
    # What depends on the moment does not come to the same, and the line names the event.
    sh(service, box, "date +%N > stamp")
    sh(service, box, "date +%N")
    sh(service, box, "test -e /tmp/seen || exit 0; exit 1")
    seq = [json.loads(line)["seq"] for line in service.cove("log", "--json", box).stdout.splitlines() if json.loads(line)["kind"] == "exec.start"][-2]
    before = [s["id"] for s in service.sandboxes()]
    done = service.cove("replay", box, "--again")
    assert done.returncode == 1 and re.search(rf"^ *{seq}  differs  its output", done.stdout, re.M) and "modified: /home/user/stamp" in done.stdout, done
    assert "2 differ" in done.stdout
    assert [s["id"] for s in service.sandboxes()] == before
    assert service.cove("rm", box).returncode == 0
    done = service.cove("replay", box, "--again", "--keep")
    assert "skipped  nobody has its contents" in done.stdout and "exit_code 1, was 0" in done.stdout and "were not compared" in done.stdout, done
    assert ID.search(done.stdout)[0] in [s["id"] for s in service.sandboxes()]


def test_again_has_no_network_where_there_were_rules(service):
    """The record has not all of a policy, so the new sandbox has the one that allows nothing."""
    box = made(service, "--deny", "denied.test")
    done = service.cove("replay", box, "--again", "--keep")
    assert done.returncode == 0, done
    new = ID.search(done.stdout)[0]
    assert new != box and service.request("GET", f"/cove/v1/sandboxes/{new}/network")[2] == {"default": "deny"}
    assert service.cove("rm", box, new).returncode == 0
