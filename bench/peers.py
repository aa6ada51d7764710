# SPDX-License-Identifier: Apache-2.0
"""What a user would pick instead, on the same root file system: docker, runc, bubblewrap. Each says how to run a command once."""

import json
import os
import shutil
import signal
import subprocess
import time

from rig import Broken, Missing, run, say, wait_gone

IMAGE, CONTAINER = "cove-bench", "cove-bench-live"


class Docker:
    """A dockerd of our own: own directories, no bridge, no host rules, no sysctls."""

    def __init__(self, scratch, layer=None, packed=None):
        """packed: what writes the image's files as tar, where it is not one layer."""
        # Debian's client first: a newer one of somebody else's may refuse the daemon's version of the API.
        client = next((c for c in ("/usr/bin/docker", shutil.which("docker")) if c and os.access(c, os.X_OK)), None)
        daemon = shutil.which("dockerd")
        if not client or not daemon:
            raise Missing("dockerd is not installed")
        self.dir = scratch.path / "docker"
        self.dir.mkdir()
        self.base = [client, "--host", f"unix://{self.dir}/sock"]
        self.env = {**os.environ, "DOCKER_CONFIG": str(self.dir / "client")}
        self.pid = 0
        with open(self.dir / "log", "wb") as log:
            self.pid = subprocess.Popen(
                [daemon, "--data-root", self.dir / "data", "--exec-root", self.dir / "exec", "--pidfile", self.dir / "pid",
                 "--host", f"unix://{self.dir}/sock", "--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false",
                 "--ip-masq=false", "--userland-proxy=false", "--exec-opt", "native.cgroupdriver=cgroupfs"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True).pid
        try:
            self.await_ready()
            say("docker: importing the same files as an image")
            with subprocess.Popen(packed or ["tar", "-C", layer, "-c", "."], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as tar:
                run([*self.base, "import", "-", IMAGE], timeout=600, stdin=tar.stdout, env=self.env)
            run([*self.base, "run", "-d", "--name", CONTAINER, "--network", "none", IMAGE, "sleep", "600"], env=self.env)
        except BaseException:
            self.stop()
            raise

    def await_ready(self):
        deadline = time.monotonic() + 20
        while subprocess.run([*self.base, "version"], env=self.env, capture_output=True, check=False).returncode != 0:
            if time.monotonic() > deadline or os.waitpid(self.pid, os.WNOHANG)[0]:
                tail = (self.dir / "log").read_text(errors="replace").splitlines()[-1:]
                raise Missing(f"dockerd can't start here: {' '.join(tail)[-200:]}")
            time.sleep(0.1)

    def run_argv(self, *argv):
        return [*self.base, "run", "--rm", "--network", "none", IMAGE, *(argv or ("echo", "hi"))]

    def exec_argv(self):
        return [*self.base, "exec", CONTAINER, "echo", "hi"]

    def copy_in(self, source, target):
        run([*self.base, "cp", source, f"{CONTAINER}:{target}"], timeout=120, env=self.env)

    def copy_out(self, source, target):
        run([*self.base, "cp", f"{CONTAINER}:{source}", target], timeout=120, env=self.env)

    def stop(self):
        if not self.pid:
            return
        try:
            run([*self.base, "rm", "-f", CONTAINER], env=self.env)
        except (Broken, Missing):
            pass
        try:
            os.kill(self.pid, signal.SIGTERM)
            if not wait_gone(self.pid, 20):
                os.kill(self.pid, signal.SIGKILL)
                wait_gone(self.pid, 5)
        except (ProcessLookupError, ChildProcessError):
            pass
        self.pid = 0


class Runc:
    """The default spec on the layer, which it mounts read-only."""

    def __init__(self, scratch, layer):
        if not shutil.which("runc"):
            raise Missing("runc is not installed")
        self.dir = scratch.path / "runc"
        self.dir.mkdir()
        run(["runc", "spec", "--bundle", self.dir])
        spec = json.loads((self.dir / "config.json").read_text())
        spec["process"] |= {"terminal": False, "args": ["/bin/echo", "hi"]}
        spec["root"] = {"path": str(layer), "readonly": True}
        (self.dir / "config.json").write_text(json.dumps(spec))

    def run_argv(self):
        return ["runc", "--root", str(self.dir / "state"), "run", "--bundle", str(self.dir), f"cove-bench-{os.getpid()}"]

    def stop(self):
        pass


class Bwrap:
    def __init__(self, _scratch, layer):
        if not shutil.which("bwrap"):
            raise Missing("bubblewrap is not installed")
        self.layer = layer

    def run_argv(self):
        return ["bwrap", "--unshare-all", "--ro-bind", str(self.layer), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
                "/bin/echo", "hi"]

    def stop(self):
        pass
