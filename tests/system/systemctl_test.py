# SPDX-License-Identifier: Apache-2.0
"""Services of templates that expect systemctl: units as E2B's code interpreter has them, and what people do with them."""

import pytest
from leaks import own_service
from service import wait_until

# Two that want each other, the second after the first; the first with what a unit may set.
WEB = """[Unit]
Description=Web
Wants=side.service
StartLimitBurst=0
[Service]
Type=simple
Environment=PORT=8123 "TEXT=two words"
Environment=OTHER=a=b
EnvironmentFile=-/etc/nothing
WorkingDirectory=/srv
User=user
ExecStartPre=/bin/sh -c 'echo pre $PORT'
ExecStart=/usr/bin/python3 -c "import os, sys, time; print(os.environ['TEXT'], os.environ['OTHER'], os.getcwd(), os.getuid(), '%n', sys.argv[1:], flush=True); \\
  time.sleep(1000)" --token="" --arg=${PORT} * a;b
ExecStartPost=-/usr/bin/systemctl reset-failed side
Restart=on-failure
RestartSec=1
StandardError=journal
[Install]
WantedBy=multi-user.target
"""
SIDE = """[Unit]
Requires=web.service
After=web.service
PartOf=web.service
[Service]
ExecStart=/bin/sh -c 'echo seen; exec sleep 1000'
StandardOutput=null
"""
BAD = "[Service]\nExecStart=/bin/false\nRestart=on-failure\nRestartSec=50ms\n"
ONCE = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo once >>/tmp/once'\n"
SAID = "two words a=b /srv 1000 web.service ['--token=', '--arg=8123', '*', 'a;b']"


@pytest.fixture(scope="module")
def service():
    with own_service("units") as service:
        yield service


@pytest.fixture
def box(service, tmp_path):
    sandbox = service.create()

    def run(command, code=0):
        done = service.cove("exec", "-u", "root", sandbox, "--", "sh", "-c", command)
        assert code is None or done.returncode == code, (command, done)
        return done.stdout.strip()

    for name, text in (("web", WEB), ("side", SIDE), ("bad", BAD), ("once", ONCE)):
        (tmp_path / name).write_text(text)
        assert service.cove("cp", "-u", "root", str(tmp_path / name), f"{sandbox}:/etc/systemd/system/{name}.service").returncode == 0
    return run


def test_start_says_what_the_unit_says(box):
    box("systemctl daemon-reload && systemctl start web")
    assert box("systemctl is-active web side.service").split() == ["active", "active"]
    assert wait_until(lambda: SAID in box("journalctl -u web").splitlines()), box("journalctl -u web")
    assert box("journalctl -u web").startswith("pre 8123\n")
    status = box("systemctl status web")
    assert "web.service - Web" in status and "Active: active" in status and SAID in status
    assert box("systemctl status nothing", 4) == "" and box("systemctl start nothing", 5) == ""


def test_what_dies_is_started_again(box):
    box("systemctl start web")
    box("kill -9 $(systemctl show web | sed -n s/MainPID=//p)")
    assert wait_until(lambda: box("journalctl -u web").count(SAID) == 2), box("journalctl -u web")
    assert box("systemctl is-active web") == "active"


def test_what_always_dies_is_given_up(box):
    box("systemctl start bad", None)
    assert wait_until(lambda: box("systemctl is-failed bad", None) == "failed")
    assert box("systemctl is-active bad", 3) == "failed"


def test_stop_leaves_nothing(box):
    box("systemctl start web && systemctl restart web && systemctl is-active web && systemctl stop web side")
    assert box("systemctl is-active web", 3) == "inactive"
    assert box("pgrep -f '[s]leep.1000' || true") == "" # which the shell's own line doesn't match


def test_enabled_ones_start_with_their_target(box):
    assert box("systemctl is-enabled web", 1) == "disabled"
    box("systemctl enable web && systemctl is-enabled web && systemctl start default.target && systemctl is-active web side")
    box("systemctl disable --now web")
    assert box("systemctl is-enabled web; systemctl is-active web", 3).split() == ["disabled", "inactive"]


def test_one_shot(box):
    box("systemctl start once && systemctl start once && systemctl is-active once")
    assert box("cat /tmp/once") == "once"


def test_only_root_starts(service):
    sandbox = service.create()
    done = service.cove("exec", sandbox, "--", "systemctl", "start", "ssh")
    assert done.returncode == 4 and "sudo systemctl" in done.stderr, done


def test_a_template_whose_start_command_is_systemctl(service, tmp_path):
    (tmp_path / "web.service").write_text(WEB)
    (tmp_path / "side.service").write_text(SIDE)
    (tmp_path / "Dockerfile").write_text("FROM base\nCOPY *.service /etc/systemd/system/\nRUN sudo mkdir -p /srv && sudo systemctl start web\n")
    built = service.cove("template", "build", "--name", "units", "--start-cmd", "sudo systemctl start web", "--ready-cmd",
                         "systemctl is-active web && systemctl is-active side", str(tmp_path))
    assert built.returncode == 0, built
    done = service.cove("run", "--template", "units", "--", "systemctl", "is-active", "web")
    assert done.stdout == "active\n", done
