# SPDX-License-Identifier: Apache-2.0
"""Evidence: exported, checked offline by 'cove' and by another implementation of DSSE, and what forgers try."""

import base64
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from client import Client
from leaks import own_service
from service import TOP, wait_until

sys.path.append(str(TOP / "tests" / "sdk"))
from installed import Unreachable, uv  # noqa: E402

SECOND = """
import base64, json, sys
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
envelope = Envelope.from_dict(json.load(open(sys.argv[1])))
keyid = json.load(open(sys.argv[1]))["signatures"][0]["keyid"]
key = SSlibKey(keyid, "ed25519", "ed25519", {"public": sys.argv[2]})
assert list(envelope.verify([key], 1)) == [keyid]
assert envelope.payload_type == "application/vnd.in-toto+json"
"""


@pytest.fixture(scope="module")
def service():
    with own_service("evidence") as service:
        yield service


@pytest.fixture(scope="module")
def sandbox(service):
    """Its id, when all is over."""
    client = Client(service.port, service.key)
    sandbox = client.create(network={"denyOut": ["8.8.8.8"]})
    assert sandbox.sh("echo hello")[1] == b"hello\n"
    assert len(sandbox.sh("yes | head -c 100000")[1]) == 100000
    assert sandbox.upload("/tmp/a", b"x").status == 200
    assert sandbox.kill().status == 204
    assert wait_until(lambda: client.kinds(sandbox.id)[-1] == "sandbox.ended")
    return sandbox.id


@pytest.fixture
def exported(service, sandbox, tmp_path):
    path = tmp_path / "evidence.json"
    done = service.cove("evidence", "export", sandbox, "-o", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def key(service):
    return service.cove("evidence", "key").stdout.strip()


def verify(*arguments):
    """Without a service, or a way to one."""
    from service import BUILD
    return subprocess.run([BUILD / "cove", "evidence", "verify", *arguments], capture_output=True, text=True, timeout=60, check=False,
                          env={"COVE_HOST": "http://127.0.0.1:1", "COVE_CONFIG": "/dev/null"})


def statement(path):
    return json.loads(base64.b64decode(json.loads(path.read_text())["payload"]))


def test_says_what_the_record_says(service, sandbox, exported, key):
    done = verify(exported, "--key", key)
    assert done.returncode == 0 and done.stdout.startswith(f"good: {sandbox}, events 1 to "), done.stderr
    said = statement(exported)
    predicate, events = said["predicate"], Client(service.port, service.key).events(sandbox)
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["subject"] == [{"name": sandbox, "digest": {"sha256": events[-1]["hash"]}}]
    assert predicate["log"] == {"id": sandbox, "first": 1, "last": len(events), "base": "0" * 64, "head": events[-1]["hash"]}
    assert [json.loads(r)["seq"] for r in predicate["records"]] == [e["seq"] for e in events]
    assert predicate["actions"]["exec.start"] == 2 and predicate["actions"]["file.write"] == 1 and predicate["observations"]["claimed"]["exec.exit"] == 2
    assert predicate["create"]["layer"].startswith("sha256-") and predicate["end"]["cause"] == "killed" and predicate["policies"]
    output = hashlib.sha256(b"y\n" * 50000).hexdigest()
    assert output in [a["sha256"] for a in predicate["artefacts"]]


def test_a_second_implementation_agrees(exported, key, tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], timeout=120, check=True)
    try:
        command = uv("install", "securesystemslib[crypto]", "--python", venv / "bin/python")
    except Unreachable as reason:
        pytest.skip(str(reason))
    made = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if made.returncode:
        pytest.skip(f"securesystemslib can't be had here: {made.stderr[-200:]}")
    done = subprocess.run([venv / "bin/python", "-c", SECOND, exported, key], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    other = subprocess.run([venv / "bin/python", "-c", SECOND, exported, key[::-1]], capture_output=True, text=True, timeout=60, check=False)
    assert other.returncode != 0


def forged(path, change):
    """The same with another payload, under the old signature."""
    envelope, said = json.loads(path.read_text()), statement(path)
    change(said)
    envelope["payload"] = base64.b64encode(json.dumps(said).encode()).decode()
    path.with_suffix(".forged").write_text(json.dumps(envelope))
    return path.with_suffix(".forged")


def test_what_was_changed_is_found(exported, key):
    assert "signature" in verify(forged(exported, lambda s: s["predicate"]["records"].pop(2))).stderr
    assert "signature" in verify(forged(exported, lambda s: s["predicate"].update(public_key="00" * 32))).stderr
    assert "signature" in verify(exported, "--key", "11" * 32).stderr
    for text in ("", "{}", "[]", '{"payload":"!"}', '{"payload":"e30="}', json.dumps({"payload": "e30=", "signatures": 7})):
        exported.with_suffix(".no").write_text(text)
        done = verify(exported.with_suffix(".no"), "--key", key)
        assert done.returncode == 1, (text, done.stderr)


def test_whoever_holds_the_database_cannot_rewrite_last_week(service, tmp_path):
    client = Client(service.port, service.key)
    sandbox = client.create()
    assert sandbox.works()
    heads, after = tmp_path / "heads.json", tmp_path / "after.json"
    assert wait_until(lambda: list((service.state / "api" / "heads").glob("*.json"))) # today's
    day = time.strftime("%Y-%m-%d", time.gmtime())
    assert service.cove("evidence", "heads", "--day", day, "-o", tmp_path / "day").returncode == 0
    assert service.cove("evidence", "heads", "--day", "2001-01-01").returncode == 1
    assert service.cove("evidence", "heads", "-o", heads).returncode == 0
    assert sandbox.works() # it goes on
    assert service.cove("evidence", "export", sandbox.id, "-o", after).returncode == 0
    done = verify(after, "--heads", heads)
    assert done.returncode == 0 and "goes on from the head" in done.stdout, done.stderr
    sandbox.kill()

    store = sqlite3.connect(service.state / "api" / "cove.db", timeout=20) # somebody rewrites an event and all hashes behind it
    store.execute("BEGIN IMMEDIATE") # or it would be stopped while it writes
    os.kill(service.child("cove-api"), signal.SIGSTOP)
    log, = store.execute("SELECT log FROM event_heads WHERE sandbox = ?", (sandbox.id,)).fetchone()
    chain = bytes(32)
    for seq, us, kind, source, grade, actor, cause, data in store.execute(
            "SELECT seq, time, kind, source, grade, actor, cause, data FROM events WHERE log = ? ORDER BY seq", (log,)).fetchall():
        data = data.replace("true", "false") if kind == "exec.start" else data
        record = f'{{"sandbox":"{sandbox.id}","seq":{seq},"time":{us},"kind":"{kind}","source":"{source}","grade":"{grade}","actor":"{actor}","cause":{cause},"data":{data}}}'
        chain = hashlib.sha256(chain + record.encode()).digest()
        store.execute("UPDATE events SET data = ?, hash = ? WHERE log = ? AND seq = ?", (data, chain, log, seq))
    store.execute("UPDATE event_heads SET last_hash = ? WHERE log = ?", (chain, log))
    store.commit()
    store.close()
    os.kill(service.child("cove-api"), signal.SIGKILL)
    assert wait_until(service.is_healthy)
    assert service.cove("log", "--verify", sandbox.id).returncode == 0 # the chain is as good as ever
    assert service.cove("evidence", "export", sandbox.id, "-o", after).returncode == 0
    assert verify(after).returncode == 0
    assert "rewritten" in verify(after, "--heads", heads).stderr


def test_a_broken_chain_is_not_signed(service):
    client = Client(service.port, service.key)
    sandbox = client.create()
    assert sandbox.works()
    store = sqlite3.connect(service.state / "api" / "cove.db", timeout=20)
    store.execute("UPDATE events SET actor = 'nobody' WHERE seq = 2 AND log = (SELECT log FROM event_heads WHERE sandbox = ?)", (sandbox.id,))
    store.commit()
    store.close()
    done = service.cove("evidence", "export", sandbox.id)
    assert done.returncode == 1 and "broken" in done.stderr and not done.stdout
    sandbox.kill()
