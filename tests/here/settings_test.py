# SPDX-License-Identifier: Apache-2.0
"""The settings file: what is taken, and what is refused by its name."""

import json

import pytest
from conftest import settings

GOOD = [{}, {"network": {"allowedDomains": [], "deniedDomains": ["*", "*:25"]}}, {"mandatoryDenySearchDepth": 10}, {"ripgrep": {"command": "rg"}}, {"allowPty": True},
        {"network": {"strictAllowlist": True, "deniedResolvedAddresses": ["10.0.0.0/8"], "allowMachLookup": []}}, {"ignoreViolations": {"*": ["x"]}},
        {"git": {"safeDirectories": ["/x"]}}, {"bwrapPath": "/x", "windows": {}}]
BAD = [("{", "line 1"), ("[]", "must be an object"), ('{"network":{}}', "allowedDomains"), ('{"network":{"allowedDomains":[],"deniedDomains":[]}}', "filesystem")]
DOMAINS = ["*", "*.com", "https://a.example", "a.example/path", "a.example:0", "a.example:65536", "a.example:+443", "a.example:443:80", "a b", "127.1", "localhost", ""]
REFUSED = [({"network": {key: value}}, f"network.{key}") for key, value in (("httpProxyPort", 1), ("socksProxyPort", 1), ("mitmProxy", {}), ("parentProxy", {}),
                                                                        ("nonsense", 1), ("tlsTerminate", {"caCertPath": "/x"}))]
REFUSED += [({"filesystem": {"nonsense": []}}, "filesystem.nonsense"), ({"nonsense": 1}, "nonsense"), ({"mandatoryDenySearchDepth": 11}, "mandatoryDenySearchDepth"),
            ({"credentials": {"sigv4": {}}}, "credentials.sigv4"), ({"credentials": {"allowPlaintextInject": True}}, "credentials.allowPlaintextInject"),
            ({"credentials": {"envVars": [{"name": "A", "mode": "mask", "injectHosts": ["a.example"]}]}}, "a.example"),
            ({"credentials": {"envVars": [{"name": "A", "mode": "mask", "injectHosts": ["a.example"], "decode": "jwt"}]}}, "decode")]


@pytest.mark.parametrize("more", GOOD, ids=str)
def test_taken(here, more):
    done = here.run(settings(**more), "true")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text, says", BAD)
def test_a_file_that_makes_no_sense(here, text, says):
    done = here.run(text, "touch", "/dev/shm/x")
    assert done.returncode == 125 and says in done.stderr


@pytest.mark.parametrize("more, says", REFUSED, ids=lambda value: str(value)[:60])
def test_refused_by_name(here, more, says):
    done = here.run(settings(**more), "true")
    assert done.returncode == 125 and says in done.stderr


@pytest.mark.parametrize("domain", DOMAINS)
def test_domains_that_are_none(here, domain):
    done = here.run(settings(allow=[domain]), "true")
    assert done.returncode == 125 and "network.allowedDomains" in done.stderr


def test_where_settings_come_from(here):
    here.folder("w")
    here.file(".srt-settings.json", '{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["~/w"],"denyWrite":[]}}')
    assert here.sh(None, "touch w/a").returncode == 0
    assert here.run(None, "-s", here.home / "nowhere", "true").returncode == 125
    assert here.run("", "true").returncode == 125
    here.file(".srt-settings.json", "{")
    assert here.run(None, "true").returncode == 125


def test_the_command_line_allows_more(here):
    """With a file of settings and without one; what is denied there stays denied."""
    place, closed = here.folder("w"), here.folder("w/closed")
    assert here.sh(None, "touch w/a").returncode != 0
    assert here.run(None, "-w", "w", "sh", "-c", "touch w/a && ! touch b").returncode == 0 and (place / "a").exists()
    done = here.run(settings(deny_write=[closed]), "-w", place, "--allow", "a.test:80", "sh", "-c", f"touch {place}/c && ! touch {closed}/c")
    assert done.returncode == 0 and (place / "c").exists(), done
    done = here.run(None, "--allow", "http://x", "true")
    assert done.returncode == 125 and "network.allowedDomains" in done.stderr


@pytest.mark.parametrize("named", [True, False])
def test_the_command_does_not_write_the_next_ones_settings(here, named):
    here.folder("w")
    text, wide = json.dumps(settings(write=["~"])), json.dumps(settings(write=["/"]))
    place = here.file("w/mine.json" if named else ".srt-settings.json", text)
    line = f"for f in {place} ~/.srt-settings.json; do echo '{wide}' > $f; rm -f $f; mv $f ~/x; done; echo '{wide}' > {place}; echo end > ~/w/end"
    done = here.run(None, *(["-s", "mine.json"] if named else []), "sh", "-c", line, cwd=here.home / "w")
    assert (here.home / "w/end").exists() and place.read_text() == text, done
    assert (here.home / ".srt-settings.json").exists() != named, "nothing is left behind"


def test_wrong_usage(here):
    for words in ((), ("--nonsense", "true"), ("-c", "true", "true"), ("--control-fd", "1", "true"), ("--violations-fd", "99", "true")):
        assert here.run(None, *words).returncode == 2, words
    assert "--violations-fd" in here.run(None, "--help").stdout and here.run(None, "--version").stdout.startswith("cove ")


def test_variables_that_are_taken_away(here):
    denied = settings(credentials={"envVars": [{"name": "KEY", "mode": "deny"}], "files": [{"path": "~/f", "mode": "deny"}]})
    here.file("f", "secret")
    done = here.sh(denied, "env; cat f", env={"KEY": "secret", "HTTPS_PROXY": "http://x"})
    assert "secret" not in done.stdout and "PROXY" not in done.stdout and "SANDBOX_RUNTIME=1" in done.stdout
