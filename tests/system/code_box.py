# SPDX-License-Identifier: Apache-2.0
"""A sandbox of the code interpreter's template, as tests use it."""

import http.client
import json


class Box:
    """A sandbox; execute() and what goes with it as E2B's SDKs do it."""

    def __init__(self, service, template="code-interpreter-v1", **more):
        self.service = service
        status, body = self.call("POST", "/v2/sandboxes", {"templateID": template, "timeout": 600, **({"envVars": more["envs"]} if more else {})}, {"X-API-KEY": service.key})
        assert status == 201, body
        made = json.loads(body)
        self.id, self.token = made["sandboxID"], made["envdAccessToken"]
        self.headers = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": "49999", "X-Access-Token": self.token}

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=120)

    def call(self, method, target, body=None, headers=None):
        connection = self.connection()
        connection.request(method, target, None if body is None else json.dumps(body),
                           {"Content-Type": "application/json", **(self.headers if headers is None else headers)})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def execute(self, code, **more):
        status, body = self.call("POST", "/execute", {"code": code, **more})
        assert status == 200, body
        events = [json.loads(line) for line in body.splitlines()]
        assert events[-1] == {"type": "end_of_execution"}
        return events[:-1]

    def one(self, kind, code, **more):
        """The only event of that kind; output may come in pieces."""
        events = self.execute(code, **more)
        found = [e for e in events if e["type"] == kind]
        if kind in ("stdout", "stderr") and found:
            found = [{**found[0], "text": "".join(e["text"] for e in found)}]
        assert len(found) == 1, events
        return found[0]

    def text(self, code, **more):
        return self.one("result", code, **more)["text"]

    def contexts(self):
        return json.loads(self.call("GET", "/contexts")[1])
