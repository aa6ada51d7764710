# SPDX-License-Identifier: Apache-2.0
"""The E2B SDKs, unmodified, against a service with a domain: they are told nothing but E2B_DOMAIN and the CA. The SDKs are those that tests/sdk/run
installs; without them there is nothing to test. Names are found at 127.0.0.1 because the test says so to the language's resolver."""

import json
import os
import re
import shutil
import subprocess

import pytest
from client import wait_for
from leaks import running
from service import TOP, reserve_port
from tls_test import DOMAIN, serves

SDK = TOP / "build" / "sdk"

JS_NAMES = """
import dns from 'node:dns'
const real = dns.lookup
dns.lookup = (name, options, done) => {
  if (typeof options === 'function') [options, done] = [{}, options]
  if (!name.endsWith('.localhost')) return real(name, options, done)
  if (options.all) return done(null, [{ address: '127.0.0.1', family: 4 }])
  done(null, '127.0.0.1', 4)
}
"""

JS = """
import { Sandbox } from 'e2b'
const box = await Sandbox.create({ timeoutMs: 60_000 })
try {
  const said = (await box.commands.run('echo over tls')).stdout
  await box.files.write('/home/user/page/index.html', 'a page')
  await box.commands.run('python3 -m http.server 8000 --directory /home/user/page', { background: true })
  let page
  for (let i = 0; i < 600 && page?.status !== 200; i++) {
    if (page) await new Promise(resolve => setTimeout(resolve, 100))
    page = await fetch('https://' + box.getHost(8000))
  }
  const nothing = await fetch('https://' + box.getHost(9))
  const link = await fetch(await box.downloadUrl('/home/user/page/index.html', { useSignatureExpiration: 60 }))
  console.log(JSON.stringify({ said, host: box.getHost(8000), page: await page.text(), nothing: nothing.status, link: await link.text(), running: await box.isRunning() }))
} finally {
  await box.kill()
}
"""

PYTHON = """
import json, socket, time
real = socket.getaddrinfo
def lookup(host, *more, **options):
    name = host.decode() if isinstance(host, bytes) else host
    return real("127.0.0.1" if name and name.endswith(".localhost") else host, *more, **options)
socket.getaddrinfo = lookup
import httpx
from e2b import Sandbox
box = Sandbox.create(timeout=60)
try:
    said = box.commands.run("echo over tls").stdout
    box.files.write("/home/user/page/index.html", "a page")
    box.commands.run("python3 -m http.server 8000 --directory /home/user/page", background=True)
    for _ in range(600):
        page = httpx.get("https://" + box.get_host(8000))
        if page.status_code == 200:
            break
        time.sleep(0.1)
    nothing = httpx.get("https://" + box.get_host(9))
    link = httpx.get(box.download_url("/home/user/page/index.html", use_signature_expiration=60))
    print(json.dumps({"said": said, "host": box.get_host(8000), "page": page.text, "nothing": nothing.status_code, "link": link.text, "running": box.is_running()}))
finally:
    box.kill()
"""


@pytest.fixture(scope="module")
def env():
    """What an SDK needs to know."""
    port = reserve_port()
    with running(COVE_LISTEN_TLS=f"127.0.0.1:{port}") as (service, client):
        ca = json.loads(service.cove("domain", "set", DOMAIN, "--json").stdout)["ca"]
        assert wait_for(lambda: serves(port) and service.is_healthy()), service.tail()
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("COVE_", "E2B_")) and not k.lower().endswith("_proxy")}
        yield {**keep, "E2B_DOMAIN": f"{DOMAIN}:{port}", "E2B_API_KEY": client.key, "NODE_EXTRA_CA_CERTS": ca, "SSL_CERT_FILE": ca}


def check(done, env):
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert re.fullmatch(r"8000-[a-z0-9]+\." + re.escape(env["E2B_DOMAIN"]), said.pop("host")), said
    assert said == {"said": "over tls\n", "page": "a page", "nothing": 502, "link": "a page", "running": True}


def test_javascript(env):
    node = next((str(p) for p in [SDK / "node" / "bin" / "node"] if p.exists()), shutil.which("node"))
    if not node or not (SDK / "js" / "node_modules" / "e2b").exists():
        pytest.skip("the JavaScript SDK is not installed: tests/sdk/run does it")
    # Modules are looked for beside the file that asks for them.
    names, program = SDK / "js" / f"names-{os.getpid()}.mjs", SDK / "js" / f"tls-{os.getpid()}.mjs"
    names.write_text(JS_NAMES)
    program.write_text(JS)
    try:
        check(subprocess.run([node, "--import", names, program], env=env, capture_output=True, text=True, timeout=100, check=False), env)
    finally:
        names.unlink()
        program.unlink()


def test_python(env):
    python = SDK / "python" / "bin" / "python"
    if not python.exists():
        pytest.skip("the Python SDK is not installed: tests/sdk/run does it")
    check(subprocess.run([python, "-c", PYTHON], env=env, capture_output=True, text=True, timeout=100, check=False), env)
