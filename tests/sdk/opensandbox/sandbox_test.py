# SPDX-License-Identifier: Apache-2.0
"""PyPI's opensandbox, unmodified: everything that it has a call for."""

import asyncio
import json
import os
import time
import urllib.request
from datetime import timedelta

import pytest
from conftest import lines
from opensandbox import Sandbox, SandboxManagerSync, SandboxSync
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.execd_sync import ExecutionHandlersSync
from opensandbox.models.filesystem import ContentReplaceEntry, DirectoryListEntry, MoveEntry, SearchEntry, SetPermissionEntry, WriteEntry
from opensandbox.models.isolated import CreateIsolatedSessionRequest, IsolatedWorkspaceSpec
from opensandbox.models.sandboxes import (
    Credential, CredentialBinding, CredentialMutationSet, CredentialProxyConfig, NetworkPolicy, NetworkRule, PVC, SandboxFilter, SnapshotFilter, Volume)
from opensandbox.pool import InMemoryPoolStateStore, PoolCreationSpec, SandboxPoolSync


@pytest.fixture
def manager():
    with SandboxManagerSync.create() as manager:
        yield manager


def wait_for(probe, seconds=20):
    end = time.monotonic() + seconds
    while not (found := probe()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("command, options, out, code", [
    ("echo one; echo; printf 'two\\r\\nthree'", {}, ["one", "\n", "two", "three"], 0),
    ("pwd; echo $OWN", {"working_directory": "/usr", "envs": {"OWN": "mine"}}, ["/usr", "mine"], 0),
    (["printf", "%s|", "$HOME", "", "a b"], {}, ["$HOME||a b|"], 0),
    ("id -un; id -gn", {"uid": 65534, "gid": 65534}, ["nobody", "nogroup"], 0),
    ("echo before; exit 7", {}, ["before"], 7),
    ("echo before; sleep 100", {"timeout": timedelta(seconds=4)}, ["before"], -1)])
def test_commands(box, command, options, out, code):
    done = box.commands.run(command, opts=RunCommandOpts(**options))
    assert (lines(done), done.exit_code) == (out, code) and (done.complete is None) == (code != 0)


def test_an_image_that_cannot_be_had_ends_the_wait_with_the_reason(make):
    with pytest.raises(SandboxApiException) as caught: # and not the one of a wait that took too long
        make("registry.invalid/nobody/nothing:v1", ready_timeout=timedelta(minutes=5))
    assert "IMAGE_PULL_FAILED" in str(caught.value) and "no host registry.invalid" in str(caught.value)


def test_a_command_streams_and_is_interrupted(box):
    seen = []

    def on_stdout(message):
        seen.append(message.text)
        box.commands.interrupt(ids[0])

    ids = []
    done = box.commands.run("echo up; sleep 1000", handlers=ExecutionHandlersSync(on_init=lambda init: ids.append(init.id), on_stdout=on_stdout))
    assert seen == ["up"] and done.error and done.exit_code != 0
    with pytest.raises(SandboxApiException):
        box.commands.interrupt(ids[0])


def test_a_command_in_the_background_is_followed_by_its_cursor(box):
    started = box.commands.run("for i in 1 2 3; do echo line $i; sleep 0.1; done; exit 4", opts=RunCommandOpts(background=True))
    text, cursor = "", 0
    while (status := box.commands.get_command_status(started.id)).running or text.count("\n") < 3:
        logs = box.commands.get_background_command_logs(started.id, cursor=cursor)
        text, cursor = text + logs.content, logs.cursor
    assert text == "line 1\nline 2\nline 3\n" and status.exit_code == 4 and status.finished_at >= status.started_at


def test_a_session_keeps_its_shell(box):
    session = box.commands.create_session(working_directory="/tmp")
    assert lines(box.commands.run_in_session(session, "pwd; export A=1; f() { echo f $1; }; cd /usr")) == ["/tmp"]
    assert lines(box.commands.run_in_session(session, "pwd; echo $A; f x")) == ["/usr", "1", "f x"]
    assert lines(box.commands.run_in_session(session, "pwd", working_directory="/etc")) == ["/etc"]
    box.commands.delete_session(session)
    with pytest.raises(SandboxApiException):
        box.commands.run_in_session(session, "true")


def test_files(box):
    files = box.files
    files.write_files([WriteEntry(path="/tmp/d/a.txt", data="one\ntwo é\nthree\n", mode=640), WriteEntry(path="/tmp/d/b.bin", data=bytes(range(256)))])
    assert files.read_file("/tmp/d/a.txt") == "one\ntwo é\nthree\n" and files.read_bytes("/tmp/d/b.bin") == bytes(range(256))
    assert files.read_file("/tmp/d/a.txt", range_header="bytes=4-6") == "two"
    assert b"".join(files.read_bytes_stream("/tmp/d/b.bin", chunk_size=100)) == bytes(range(256))
    files.set_permissions([SetPermissionEntry(path="/tmp/d/a.txt", mode=600, owner="nobody", group="nogroup")])
    info = files.get_file_info(["/tmp/d/a.txt"])["/tmp/d/a.txt"]
    assert (info.mode, info.owner, info.group, info.size, info.entry_type) == (600, "nobody", "nogroup", 17, "file")
    assert [f.path for f in files.search(SearchEntry(path="/tmp/d", pattern="*.txt"))] == ["/tmp/d/a.txt"]
    assert {f.path for f in files.list_directory(DirectoryListEntry(path="/tmp/d"))} == {"/tmp/d/a.txt", "/tmp/d/b.bin"}
    replaced = files.replace_contents_detailed([ContentReplaceEntry(path="/tmp/d/a.txt", old_content="t", new_content="T")])
    assert [r.replaced_count for r in replaced] == [2] and files.read_file("/tmp/d/a.txt") == "one\nTwo é\nThree\n"
    files.move_files([MoveEntry(src="/tmp/d/a.txt", dest="/tmp/e/f/a.txt")])
    files.create_directories([WriteEntry(path="/tmp/g/h", mode=700)])
    assert files.get_file_info(["/tmp/g/h"])["/tmp/g/h"].mode == 700
    files.delete_files(["/tmp/e/f/a.txt", "/tmp/none"])
    files.delete_directories(["/tmp/d", "/tmp/g"])
    with pytest.raises(SandboxApiException):
        files.read_file("/tmp/e/f/a.txt")


def test_an_isolated_session_runs_in_the_background(box):
    session = box.isolation.create(CreateIsolatedSessionRequest(workspace=IsolatedWorkspaceSpec(path="/data", mode="overlay")))
    run = session.run_background("echo one; touch made; sleep 0.5; echo two >&2; exit 3")
    assert wait_for(lambda: not session.run_status(run.run_id).running)
    status, logs = session.run_status(run.run_id), session.run_logs(run.run_id)
    assert (status.exit_code, logs.text, logs.cursor) == (3, "one\ntwo\n", 8) and status.finished_at > status.started_at >= run.started_at
    assert session.run_logs(run.run_id, cursor=4).text == "two\n" and lines(session.run("ls")) == ["made"] and lines(box.commands.run("ls /data")) == []
    session.delete()
    with pytest.raises(SandboxApiException):
        session.run_status(run.run_id)


def test_memory_outlives_a_pause_and_files_a_snapshot(make, manager, unique):
    box = make(metadata=unique, entrypoint=["sh", "-c", "echo up >/tmp/up; exec sleep 1000"])
    info = box.get_info()
    assert (info.status.state, info.image.image, info.metadata) == ("Running", "base", unique)
    assert wait_for(lambda: lines(box.commands.run("cat /tmp/up; pgrep -x sleep | wc -l")) == ["up", "1"])
    box.commands.run("echo kept >/dev/shm/state; echo kept >/tmp/state")
    box.pause()
    assert [s.id for s in manager.list_sandbox_infos(SandboxFilter(metadata=unique, states=["Paused"])).sandbox_infos] == [box.id]
    again = SandboxSync.resume(box.id)
    assert again.files.read_file("/dev/shm/state") == "kept\n" and again.get_metrics().memory_total_in_mib > 0
    assert box.patch_metadata({"test": None, "n": "1"}).metadata == {"n": "1"}
    assert box.renew(timedelta(minutes=9)).expires_at > info.expires_at
    snapshot = box.create_snapshot("of-" + box.id)
    try:
        assert wait_for(lambda: manager.get_snapshot(snapshot.id).status.state == "Ready")
        assert [s.id for s in manager.list_snapshots(SnapshotFilter(sandbox_id=box.id)).snapshot_infos] == [snapshot.id]
        copy = make(image=None, snapshot_id=snapshot.id)
        assert copy.files.read_file("/tmp/state") == "kept\n" and copy.id != box.id
        copy.kill()
    finally:
        manager.delete_snapshot(snapshot.id)
    box.kill()
    with pytest.raises(SandboxApiException) as gone:
        box.get_info()
    assert gone.value.status_code == 404 and gone.value.request_id


def test_a_fork_is_a_sandbox_of_its_own(box):
    box.commands.run("echo mine >/tmp/state")
    request = urllib.request.Request(f"http://{os.environ['OPEN_SANDBOX_DOMAIN']}/v1/sandboxes/{box.id}/fork", b"{}", method="POST",
                                     headers={"OPEN-SANDBOX-API-KEY": os.environ["OPEN_SANDBOX_API_KEY"], "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 202
        fork = SandboxSync.connect(json.load(answer)["id"])
    try:
        fork.commands.run("echo theirs >>/tmp/state")
        assert (fork.files.read_file("/tmp/state"), box.files.read_file("/tmp/state")) == ("mine\ntheirs\n", "mine\n")
    finally:
        fork.kill()


@pytest.mark.parametrize("proxied", [False, True])
def test_ports_of_programs(make, proxied):
    box = make(connection_config=ConnectionConfigSync(use_server_proxy=proxied))
    box.commands.run("cd /tmp && echo served >page && setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null &")
    assert wait_for(lambda: lines(box.commands.run("python3 -c 'import socket; print(socket.create_connection((\"127.0.0.1\", 8000)) and 1)' 2>/dev/null")))
    for endpoint in box.get_endpoint(8000), box.get_signed_endpoint(8000, int(time.time()) + 60):
        with urllib.request.urlopen(f"http://{endpoint.endpoint}/page", timeout=20) as answer:
            assert answer.read() == b"served\n"


def test_a_policy_changes_while_the_sandbox_runs(make):
    box = make(network_policy=NetworkPolicy(default_action="deny", egress=[NetworkRule(action="allow", target="www.example.net")]))
    box.patch_egress_rules([NetworkRule(action="deny", target="www.example.net"), NetworkRule(action="allow", target="*.example.com")])
    policy = box.get_egress_policy()
    assert policy.default_action == "deny" and {(r.action, r.target) for r in policy.egress} == {("deny", "www.example.net"), ("allow", "*.example.com")}
    box.delete_egress_rules(["www.example.net"])
    assert [(r.action, r.target) for r in box.get_egress_policy().egress] == [("allow", "*.example.com")]


def test_the_vault_never_gives_a_value_back(make):
    box = make(network_policy=NetworkPolicy(default_action="deny", egress=[NetworkRule(action="allow", target="api.example.com")]),
               credential_proxy=CredentialProxyConfig(enabled=True))
    value = "sk-live-" + box.id
    bindings = [CredentialBinding(name="b", match={"schemes": ["https"], "hosts": ["api.example.com"], "paths": ["/v1/*"]}, auth={"type": "bearer", "credential": "k"}),
                CredentialBinding(name="s", match={"schemes": ["http"], "hosts": ["api.example.com"]},
                                  auth={"type": "passthrough", "substitutions": [{"credential": "k", "placeholder": "__k__", "in": ["query", "body"]}]})]
    state = box.credential_vault.create(credentials=[Credential(name="k", source={"type": "inline", "value": value})], bindings=bindings)
    assert state.revision == 1 and value not in state.model_dump_json() and "__k__" not in state.model_dump_json()
    assert box.credential_vault.get_binding("s").auth.type == "passthrough" and box.credential_vault.get_binding("s").match.schemes == ["http"]
    state = box.credential_vault.patch(expected_revision=1, credentials=CredentialMutationSet(add=[Credential(name="l", source={"type": "inline", "value": "other"})]))
    assert state.revision == 2 and [c.name for c in box.credential_vault.list_credentials()] == ["k", "l"]
    assert box.credential_vault.get_binding("b").auth.type == "bearer"
    with pytest.raises(SandboxApiException) as stale:
        box.credential_vault.patch(expected_revision=1, credentials=CredentialMutationSet(delete=["l"]))
    assert stale.value.status_code == 409
    assert not any(value in line for line in lines(box.commands.run("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")))
    box.credential_vault.delete()


def test_the_vault_by_the_asynchronous_client():
    async def use():
        box = await Sandbox.create("base", timeout=timedelta(minutes=2), credential_proxy=CredentialProxyConfig(enabled=True),
                                   network_policy=NetworkPolicy(default_action="deny", egress=[NetworkRule(action="allow", target="*.example.com")]))
        try:
            vault, substitution = box.credential_vault, {"credential": "k", "placeholder": "__k__", "in": ["path", "header"]}
            state = await vault.create(credentials=[Credential(name="k", source={"type": "inline", "value": "sk-live-" + box.id})], bindings=[
                CredentialBinding(name="s", match={"hosts": ["a.example.com"]}, auth={"type": "passthrough", "substitutions": [substitution]})])
            assert state.revision == 1 and "sk-live" not in state.model_dump_json() and "__k__" not in state.model_dump_json()
            assert [b.name for b in await vault.list_bindings()] == ["s"] and (await vault.get_credential("k")).source_type == "inline"
            with pytest.raises(SandboxApiException) as used:
                await vault.patch(expected_revision=1, credentials=CredentialMutationSet(delete=["k"]))
            assert used.value.status_code == 409
            await vault.delete()
        finally:
            await box.kill()
            await box.close()

    asyncio.run(use())


def test_a_pool_has_sandboxes_ready(unique):
    pool = SandboxPoolSync(pool_name=unique["test"], max_idle=2, state_store=InMemoryPoolStateStore(), connection_config=ConnectionConfigSync(),
                           creation_spec=PoolCreationSpec(image="base", metadata=unique))
    pool.start()
    try:
        assert wait_for(lambda: pool.snapshot().idle_count == 2)
        box = pool.acquire()
        assert lines(box.commands.run("echo from a pool")) == ["from a pool"]
        box.kill()
    finally:
        pool.shutdown()
        pool.release_all_idle()


def test_a_named_volume_outlives_its_sandbox(make, unique):
    def volume(**more):
        return [Volume(name="data", pvc=PVC(claim_name="sdk-" + unique["test"][:12]), mount_path="/data", **more)]

    first = make(volumes=volume())
    first.files.write_file("/data/kept", "yes")
    first.kill()
    second = make(volumes=volume(read_only=True))
    assert second.files.read_file("/data/kept") == "yes" and second.commands.run("touch /data/new").exit_code == 1


def test_the_key_stays_outside(box):
    told = lines(box.commands.run("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"))
    assert told and not any(os.environ["OPEN_SANDBOX_API_KEY"] in line for line in told)
