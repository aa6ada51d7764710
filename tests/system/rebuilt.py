# SPDX-License-Identifier: Apache-2.0
"""
The state, made of the record alone: what sandboxes, volumes and snapshots there are, and what they are, from the feed of all logs; and the same read from the
store, to be compared. What the record never has (docs/RECORD.md) is left out: tokens, the values of variables and of metadata.
"""

import calendar
import json
import sqlite3
import time

STATES = ["creating", "running", "pausing", "paused", "resuming", "stopping", "ended", "failed"] # enum sandbox_state
PHASES = {"sandbox.started": "running", "sandbox.failed": "failed", "sandbox.kill": "stopping", "sandbox.ended": "ended", "sandbox.pause": "pausing",
          "sandbox.paused": "paused", "sandbox.resume": "resuming", "sandbox.resumed": "running"}
OVER = ("ended", "failed")
NEAR_US = 30_000_000 # what is stored as an end was reckoned from a clock that was read a little before


def micros(text):
    second, fraction = text.rstrip("Z").split(".")
    return calendar.timegm(time.strptime(second, "%Y-%m-%dT%H:%M:%S")) * 1_000_000 + int(fraction)


class Rebuilt:
    """Folds events of the feed, each once and in their order."""

    def __init__(self):
        self.cursor = 0
        self.sandboxes, self.volumes, self.snapshots = {}, {}, {}

    def take(self, event):
        assert event["cursor"] == self.cursor + 1, (self.cursor, event)
        self.cursor = event["cursor"]
        log, kind, data = event["sandbox"], event["kind"], event["data"]
        if kind.startswith("volume.") and log.startswith("vol-"):
            self.take_volume(log, kind, data)
        elif log == "service":
            self.take_template(kind, data)
        elif kind == "sandbox.create":
            self.create(log, event)
        elif log in self.sandboxes:
            self.take_sandbox(self.sandboxes[log], event)

    def create(self, log, event):
        data = event["data"]
        old = self.sandboxes.get(log, {})
        policy = old.get("policy") if data.get("spare") else None
        self.sandboxes[log] = {
            "state": "creating", "template": data["template"], "alias": data.get("alias", ""), "layer": data["layer"], "tier": data["tier"],
            "cpu": data["cpu_milli"], "memory": data["memory_bytes"], "disk": data.get("disk_bytes", 0), "secure": data["secure"],
            "internet": data["allow_internet"], "pauses": data.get("pause_on_timeout", False), "files_only": data.get("pause_memory") is False,
            "resumes": data.get("auto_resume", False), "private": data.get("private_traffic", False), "hidden": data.get("hidden", False),
            "checkpoint": data.get("checkpoint", ""), "metadata": data["metadata"], "envs": data["envs"], "mounts": data.get("mounts", 0),
            "timeout": data["timeout_ms"], "ends": micros(event["time"]) + 1000 * data["timeout_ms"] if data["timeout_ms"] else 0,
            "policy": policy, "checkpoints": {}, "cause": "", "tenant": data.get("tenant", "default")}

    def take_sandbox(self, s, event):
        kind, data, now = event["kind"], event["data"], micros(event["time"])
        if kind in PHASES and (s["state"] not in OVER or PHASES[kind] in OVER):
            s["state"] = PHASES[kind]
        elif kind == "service.recovered" and s["state"] not in OVER:
            s["state"] = data["state"]
        if kind in ("sandbox.ended", "sandbox.failed"):
            s["cause"], s["checkpoints"] = data["cause"], {}
        elif kind == "sandbox.timeout" or (kind == "sandbox.resume" and "timeout_ms" in data):
            ms = data.get("timeout_ms", 0)
            end = now + 1000 * ms if ms else 0
            if not data.get("extend_only") or (s["ends"] and (not end or end > s["ends"])):
                s["timeout"], s["ends"] = ms, end
        elif kind == "sandbox.metadata":
            s["metadata"] = data["metadata"]
        elif kind == "net.policy":
            s["policy"] = (data["default"], data["n_rules"])
        elif kind == "sandbox.checkpointed" and "failed" not in data:
            s["checkpoints"][event["cause"]] = data["layer"]

    def take_volume(self, log, kind, data):
        if kind == "volume.create":
            self.volumes[log] = {"name": data["name"], "limit": data["limit_bytes"]}
        elif kind == "volume.dropped" or (kind in ("volume.failed", "volume.refused") and data["what"] == "create"
                                          and data.get("code") not in ("unavailable", "deadline_exceeded")): # of these nobody knows: the next start finds out
            self.volumes.pop(log, None)

    def take_template(self, kind, data):
        if kind == "template.built" and "sandbox" in data:
            self.snapshots[data["layer"]] = {"template": data["template"], "name": data.get("name", ""), "of": data["sandbox"]}
        elif kind == "template.remove":
            name = data["template"].split(":")[0]
            self.snapshots = {layer: s for layer, s in self.snapshots.items() if name not in (s["template"], s["name"])}
        elif kind == "service.refused" and data["what"] == "template.remove":
            raise AssertionError("a removal that was refused was taken for one") # no test removes what is in use


def stored(path):
    """What the store says, in the same words."""
    store = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    store.row_factory = sqlite3.Row
    store.execute("BEGIN")
    tenants = {r["tenant"]: r["name"] for r in store.execute("SELECT tenant, name FROM tenants")}
    sandboxes = {r["id"]: stored_sandbox(r, tenants) for r in store.execute("SELECT * FROM sandboxes")}
    volumes = {r["id"]: {"name": r["name"], "limit": r["limit_bytes"]} for r in store.execute("SELECT * FROM volumes")}
    snapshots = {r["layer"]: {"template": r["template"], "name": r["name"], "of": r["source"]} for r in store.execute(
        "SELECT b.template, t.name, b.layer, b.source FROM template_builds b JOIN templates t ON t.id = b.template WHERE b.snapshot")}
    store.close()
    return sandboxes, volumes, snapshots


def stored_sandbox(row, tenants):
    extra, network = json.loads(row["extra"]), json.loads(row["network"])
    policy, state = network["policy"], STATES[row["state"]]
    mode = {0: "", -1: "off", -2: "risk", 1: "action"}
    checkpoint = extra.get("checkpoint", 0)
    return {"state": state, "template": row["template_id"], "alias": row["template_alias"], "layer": row["layer_digest"], "tier": row["tier"],
            "cpu": row["cpu_milli"], "memory": row["memory_bytes"], "disk": row["disk_bytes"], "secure": bool(row["secure"]),
            "internet": bool(row["allow_internet"]), "pauses": bool(row["on_timeout"]), "files_only": extra.get("files_only", False),
            "resumes": bool(row["auto_resume"]), "private": row["traffic_token"] != "", "hidden": extra.get("hidden", False),
            "checkpoint": mode.get(checkpoint, str(checkpoint)), "metadata": len(json.loads(row["metadata"])), "envs": len(json.loads(row["envs"])),
            "mounts": len(extra.get("mounts", [])), "timeout": row["timeout"] // 1000, "ends": row["end_at"],
            "policy": (policy["default"], len(policy.get("rules", []))) if network["rules"] else None,
            "checkpoints": {seq: layer for seq, _, layer in extra.get("checkpoints", {}).get("all", [])} if state not in OVER else {},
            "cause": row["end_cause"], "tenant": tenants[row["tenant"]]}


def differences(rebuilt, path):
    """Where the two differ: (thing, what, of the record, of the store)."""
    sandboxes, volumes, snapshots = stored(path)
    found = []
    for what, ours, theirs in (("volume", rebuilt.volumes, volumes), ("snapshot", rebuilt.snapshots, snapshots)):
        found += [(thing, what, ours.get(thing), theirs.get(thing)) for thing in ours.keys() | theirs.keys() if ours.get(thing) != theirs.get(thing)]
    for name in rebuilt.sandboxes.keys() | sandboxes.keys():
        a, b = rebuilt.sandboxes.get(name), sandboxes.get(name)
        if not a or not b:
            found.append((name, "sandbox", a, b))
            continue
        found += [(name, key, a[key], b[key]) for key in a if a[key] != b[key] and not (key == "ends" and a[key] and b[key] and abs(a[key] - b[key]) < NEAR_US)
                  and not (key == "cause" and b["state"] == "stopping")]
    return found
