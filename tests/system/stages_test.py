# SPDX-License-Identifier: Apache-2.0
"""Dockerfiles of several stages, which copy from each other and from images."""

import json

import pytest
from leaks import own_service


@pytest.fixture(scope="module")
def service():
    """Of our own: what was run from a template is kept ready for a while."""
    with own_service("stages") as service:
        yield service


STAGES = """
ARG WHO=stages
FROM base AS build
ENV SECRET=of-the-first
RUN mkdir -p /out/bin /out/more && printf "#!/bin/sh\\necho built by $WHO" >/out/bin/tool && chmod 755 /out/bin/tool && \\
    ln -s tool /out/bin/alias && echo 1 >/out/more/a.txt && echo 2 >/out/more/b.txt && echo 3 >/out/more/c.bin

FROM base AS checked
COPY --from=build /out/bin/tool /checked/tool
RUN /checked/tool >/checked/said

FROM base AS never
RUN false

FROM base
COPY --from=checked /checked/said /said
COPY --from=build --chown=user --chmod=700 /out/bin/ /opt/tools/
COPY --from=0 /out/more/*.txt /texts/
COPY --from=base /etc/debian_version /from-image
RUN [ -z "$SECRET" ] && [ ! -e /out ]
"""


def test_stages_copy_from_each_other(service, tmp_path):
    (tmp_path / "Dockerfile").write_text(STAGES)
    done = service.cove("template", "build", "--name", "stages", str(tmp_path))
    assert done.returncode == 0, done
    assert "stage build" in done.stderr and "stage never" not in done.stderr, done.stderr
    assert [t["name"] for t in json.loads(service.cove("template", "ls", "--json").stdout) if "stage" in str(t["name"])] == ["stages"]
    assert not service.sandboxes() and not list(tmp_path.glob("cove-stage-*"))
    script = "cat /said; /opt/tools/alias; ls /texts /opt/tools; stat -c '%U %a' /opt/tools/tool /said; cmp /from-image /etc/debian_version"
    ran = service.cove("run", "--template", "stages", "--", "sh", "-c", script)
    assert ran.stdout.split("\n") == ["built by stages"] * 2 + ["/opt/tools:", "alias", "tool", "", "/texts:", "a.txt", "b.txt", "user 700", "root 644", ""], ran
    again = service.cove("template", "build", "--name", "stages", str(tmp_path))
    assert again.returncode == 0 and again.stderr.count("CACHED") > 8 and "done" not in again.stderr.replace("CACHED", ""), again.stderr
    service.cove("template", "rm", "stages")


@pytest.mark.parametrize("text, why", [("FROM base AS a\nRUN false\nFROM base\nCOPY --from=a /x /x\n", "stage a"),
                                       ("FROM base AS a\nFROM base\nCOPY --from=a /nothing /x\n", "there is no /nothing")])
def test_a_stage_that_fails_is_named(service, tmp_path, text, why):
    (tmp_path / "Dockerfile").write_text(text)
    done = service.cove("template", "build", "--name", "failing", str(tmp_path))
    assert done.returncode == 1 and why in done.stderr and "line " in done.stderr, done
    assert not service.sandboxes() and "stage-" not in service.cove("template", "ls").stdout
