# SPDX-License-Identifier: Apache-2.0
"""What every suite of tools/test is made of: a Report that counts, and run(), which shows a command's progress and bounds it.

A suite is a function `suite(report)`. It calls report.passed/failed/skipped, once per test, and nothing else is asked of it;
report.junit(directory) does that from JUnit files, the common currency of test programs that are not ours.
"""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
BUILD = TOP / "build"
OUT = BUILD / "test"
CPUS = os.cpu_count() or 1

# ninja's and meson's "[3/70]" and "3/70": shown now and then only; everything is in the log.
PROGRESS = re.compile(r"^\s*\[?\d+/\d+[\] ]")
QUIET_S = 5

# Characters and references that XML 1.0 knows no way to say: a test that fails with them in its text must not hide the others.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|&#(?:x0*(?:[0-8bcefBCEF]|1[0-9a-fA-F]);|0*(?:[0-8]|1[124-9]|2[0-9]|3[01]);)")


class Report:
    def __init__(self, name):
        self.name = name
        self.passes = 0
        self.failures = []  # (test, text)
        self.unsteady = []  # (test, text): failed beside others, passed alone
        self.skips = []  # (test, reason)
        self.start = time.monotonic()
        self.seconds = 0.0
        self.dir = OUT / name

    def passed(self, test, count=1):
        del test
        self.passes += count

    def failed(self, test, text=""):
        self.failures.append((test, text.strip()))
        say(f"FAILED {self.name}: {test}")

    def skipped(self, test, reason):
        self.skips.append((test, reason.strip() or "no reason given"))

    def judge(self, test, result):
        """One test that is one command: passed by exit code 0, skipped by 77 with the reason as its last line."""
        if result.code == 0:
            self.passed(test)
        elif result.code == 77:
            self.skipped(test, result.tail(1))
        else:
            self.failed(test, result.tail(60))

    def junit(self, directory):
        """Counts every *.xml below directory; returns how many tests that were."""
        count = 0
        for path in sorted(Path(directory).rglob("*.xml")):
            try:
                cases = list(xml.fromstring(NOT_XML.sub("?", path.read_text(errors="replace"))).iter("testcase"))
            except xml.ParseError as error:
                self.failed(path.name, f"not a JUnit file: {error}")
                continue
            for case in cases:
                count += 1
                name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
                bad = next((e for e in case if e.tag in ("failure", "error")), None)
                skip = case.find("skipped")
                if bad is not None:
                    self.failed(name, "\n".join(filter(None, (bad.get("message"), bad.text))))
                elif skip is not None:
                    self.skipped(name, skip.get("message") or skip.text or "")
                else:
                    self.passed(name)
        return count


class Result:
    def __init__(self, code, log):
        self.code = code
        self.log = log

    def tail(self, lines):
        """The last lines, without those that only count."""
        text = [line for line in self.log.read_text(errors="replace").rstrip().splitlines() if not PROGRESS.match(line)]
        return "\n".join(text[-lines:])


_suite_start = _said = time.monotonic()


def start_clock():
    global _suite_start
    _suite_start = time.monotonic()


def say(text):
    global _said
    _said = time.monotonic()
    print(f"  {time.monotonic() - _suite_start:4.0f} s  {text}", flush=True)


class _Command:
    """A started command: its output goes to a log, and to the screen as far as it tells something new."""

    def __init__(self, argv, log, timeout_s, env, show):
        self.log, self.show = Path(log), show
        self.timeout_s, self.end = timeout_s, time.monotonic() + timeout_s
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.log, "wb")
        self.rest, self.spoke, self.ended, self.timed_out = b"", time.monotonic(), None, False
        self.start = time.monotonic()
        self.process = subprocess.Popen([str(a) for a in argv], cwd=TOP, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def read(self):
        data = os.read(self.process.stdout.fileno(), 65536)
        self.file.write(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            if re.search(self.show, text) and (not PROGRESS.match(text) or time.monotonic() - self.spoke >= QUIET_S):
                self.tell(text)
        return bool(data)

    def tell(self, text):
        self.spoke = time.monotonic()
        say(text)

    def tick(self):
        """Keeps the person and the clock informed; true when the output will not end by itself."""
        now = time.monotonic()
        if now > self.end and not self.timed_out:
            self.timed_out = True
            self.tell(f"no end after {self.timeout_s} s: killed")
            self.kill()
        elif now - _said >= 3 * QUIET_S:
            say("...")
        if not os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):  # finish() is who waits
            return False
        self.kill()  # it has ended: so does what it left behind, unless that made itself a session
        self.ended = self.ended or now
        return now - self.ended > QUIET_S

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def finish(self):
        _, status, used = os.wait4(self.process.pid, 0)
        code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = used.ru_utime + used.ru_stime
        if self.timed_out:
            self.file.write(f"\nkilled: no end after {self.timeout_s} s\n".encode())
        self.file.close()
        self.process.stdout.close()
        return Result(1 if self.timed_out else code, self.log)


def run_all(jobs, width, stop=None):
    """
    Runs jobs (dicts of run()'s arguments), at most width() at a time; yields (job, Result) as they end, with job["seconds"], and with
    job["cpu"], the seconds of processors that it and what it waited for took. stop: an event that ends it before.
    """
    jobs, running = list(jobs), {}
    with selectors.DefaultSelector() as selector:
        try:
            while (jobs or running) and not (stop and stop.is_set()):
                while jobs and len(running) < width():
                    job = jobs.pop(0)
                    command = _Command(job["argv"], job["log"], job["timeout_s"], job.get("env"), job.get("show", "."))
                    running[command] = job
                    selector.register(command.process.stdout, selectors.EVENT_READ, command)
                done = [key.data for key, _ in selector.select(timeout=1) if not key.data.read()]
                done += [command for command in running if command.tick() and command not in done]
                for command in done:
                    selector.unregister(command.process.stdout)
                    job = running.pop(command)
                    job["seconds"] = time.monotonic() - command.start
                    result = command.finish()
                    job["cpu"] = command.cpu
                    yield job, result
        finally:
            for command in running:
                command.kill()


def run(argv, log, timeout_s, env=None, show=".", stop=None):
    """Runs one command, never longer than timeout_s. All its output goes to log, what matches show to the screen as it comes."""
    job = {"argv": argv, "log": log, "timeout_s": timeout_s, "env": env, "show": show}
    for _, result in run_all([job], lambda: 1, stop):
        return result
    raise InterruptedError("stopped")


def summary(reports, stream=sys.stdout):
    """Skips with their reasons, failures with their text, a table; returns the numbers of the line that machines read.

    What failed stands last, and is named once more behind the table, because who reads a long log reads its end.
    """
    def out(text=""):
        print(text, file=stream)

    for report in reports:
        by_reason = {}
        for test, reason in report.skips:
            by_reason.setdefault(reason, []).append(test)
        for reason, tests in by_reason.items():
            shown = ", ".join(tests[:3]) + (f" and {len(tests) - 3} more" if len(tests) > 3 else "")
            out(f"\n--- SKIPPED {report.name}: {shown}\n    {reason}")
    for report in reports:
        for what, cases in (("UNSTEADY", report.unsteady), ("FAILED", report.failures)):
            for test, text in cases:
                out(f"\n--- {what} {report.name}: {test}")
                for line in text.splitlines()[-80:]:
                    out(f"    {line}")
    out(f"\n{'':10} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for report in reports:
        out(f"{report.name:10} {report.passes:7} {len(report.failures):7} {len(report.skips):8} {report.seconds:8.1f}")
    for report in reports:
        for test, _ in report.unsteady:
            out(f"UNSTEADY {report.name}: {test} (failed beside others, passed alone)")
        for test, _ in report.failures:
            out(f"FAILED {report.name}: {test}")
    counts = [sum(n) for n in zip(*((r.passes, len(r.failures), len(r.skips)) for r in reports))]
    return counts or [0, 0, 0]
