# SPDX-License-Identifier: Apache-2.0
from uuid import uuid4

import pytest
from e2b import Sandbox, Template
from e2b.exceptions import BuildException


def name():
    return f"sdk-{uuid4()}"


def test_a_template_is_built_and_sandboxes_are_made_of_it(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("content")
    (tmp_path / "folder" / "link.txt").symlink_to("a.txt")
    alias, lines = name(), []
    template = (Template(file_context_path=str(tmp_path)).from_base_image().copy("folder/*", "folder").set_envs({"GREETING": "hello"})
                .set_workdir("/app").run_cmd('echo "$GREETING" > greeting', user="root"))
    built = Template.build(template, alias, cpu_count=1, memory_mb=512, on_build_logs=lambda line: lines.append(line.message))
    assert built.template_id and built.build_id
    assert any("RUN echo" in line for line in lines)
    with Sandbox.create(alias, timeout=60) as box:
        assert box.commands.run("cat /app/greeting ~/folder/a.txt; readlink ~/folder/link.txt").stdout == "hello\ncontenta.txt\n"
    again = []
    Template.build(template, alias, cpu_count=1, memory_mb=512, on_build_logs=lambda line: again.append(line.message))
    assert any("CACHED" in line for line in again)


def test_a_build_that_fails_says_where():
    with pytest.raises(BuildException, match="failed to run command 'exit 3': exit status 3"):
        Template.build(Template().from_template("base").run_cmd("exit 3"), name())
