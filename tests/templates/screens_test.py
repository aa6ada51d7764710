# SPDX-License-Identifier: Apache-2.0
"""
Templates with a screen, each by the clients' own packages. The desktop by E2B's SDK: a window is opened, written into and seen; its stream speaks VNC. The browser by
Playwright over its port. Both are built in one service, since they share their largest step. Screenshots are left in build/test/screens.
"""

import base64
import http.client
import http.server
import json
import os
import shutil
import subprocess
import threading

import pytest
from conftest import environment
from leaks import own_service
from service import BUILD

SEEN = BUILD / "test" / "screens"
DESKTOP = """
import json, sys, time
from pathlib import Path
from e2b_desktop import Sandbox
seen = Path(sys.argv[1])
desktop = Sandbox.create(template="desktop", resolution=(1024, 720))
def look(name):
    picture = bytes(desktop.screenshot())
    (seen / f"{name}.png").write_bytes(picture)
    return picture
def until(condition):
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.1)
empty = look("empty")
desktop.commands.run("touch /tmp/note.txt")
desktop.commands.run("DISPLAY=:0 mousepad /tmp/note.txt", background=True)
assert until(lambda: desktop.commands.run("DISPLAY=:0 xdotool search --onlyvisible --name note.txt || true").stdout.strip()), "no window"
time.sleep(1)
desktop.move_mouse(400, 300)
assert desktop.get_cursor_position() == (400, 300)
desktop.left_click()
desktop.write("typed by hand ")
assert until(lambda: look("written") != empty)
desktop.press(["ctrl", "s"])
saved = until(lambda: "typed by hand" in desktop.commands.run("cat /tmp/note.txt").stdout)
look("saved")
desktop.stream.start()
print(json.dumps({"id": desktop.sandbox_id, "saved": bool(saved), "size": desktop.get_screen_size(), "url": desktop.stream.get_url(),
                  "token": desktop._envd_access_token}))
"""
# Text in a font of each kind, something to click and a file; what comes by CDP alone.
BROWSER = r"""
import assert from 'node:assert'
import { setTimeout as wait } from 'node:timers/promises'
import { Sandbox } from 'e2b'
import { chromium } from 'playwright-core'
const sandbox = await Sandbox.create('browser')
const address = { headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '9222' } }
async function connect() {
  for (let tries = 1; ; tries++) {
    try {
      return await chromium.connectOverCDP(process.env.E2B_API_URL, address)
    } catch (error) {
      if (tries == 50) throw error
      await wait(200)
    }
  }
}
const browser = await connect()
const page = await browser.contexts()[0].newPage()
await page.setViewportSize({ width: 800, height: 600 })
await page.setContent(`<body style="margin: 0"><div style="background: #f00; width: 400px; height: 300px"></div><p>Hello \u4f60\u597d \u{1f600}</p>
  <input id="name"><button onclick="document.title = document.getElementById('name').value">set</button>
  <a id="file" download="note.txt" href="data:text/plain,downloaded">get</a>`)
await page.fill('#name', 'typed by hand')
await page.click('button')
assert.equal(await page.title(), 'typed by hand')
await page.screenshot({ path: process.argv[2] })
const cdp = await browser.newBrowserCDPSession()
await cdp.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: '/home/user/Downloads' })
await page.click('#file')
for (let tries = 1; tries < 50 && !(await sandbox.files.exists('Downloads/note.txt')); tries++) await wait(100)
assert.equal(await sandbox.files.read('Downloads/note.txt'), 'downloaded')
await page.goto('data:text/html,<title>later</title>')
await browser.close() // the connection: the browser goes on
const again = await connect()
assert.ok((await again.version()).length > 4)
await again.close()
await assert.rejects(chromium.connectOverCDP(process.env.E2B_API_URL, { headers: { ...address.headers, Origin: 'https://elsewhere.example' } }), /403/)
await sandbox.kill()
console.log('good')
"""
# A page of another site tries all that a page can, in a browser of this machine: read, write, show, open. argv: the page, the service, the sandbox's name.
CROSS_SITE = r"""
import assert from 'node:assert'
import { chromium } from 'playwright-core'
const [page_url, ...targets] = process.argv.slice(2)
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] })
for (const target of targets) {
  let page = await browser.newPage()
  await page.goto(page_url)
  const told = await page.evaluate(async target => {
    const tried = {}
    const file = `${target}/files?username=root&path=`
    const form = new FormData()
    form.append('file', new Blob(['stolen']), 'written')
    for (const [name, url, init] of [['read', file + '/home/user/file', {}], ['credentials', file + '/home/user/file', { credentials: 'include' }],
                                     ['write', file + '/home/user/written', { method: 'POST', body: form }],
                                     ['list', `${target}/process.Process/List`, { method: 'POST', body: '{}' }], ['sandboxes', `${target}/sandboxes`, {}]]) {
      for (const mode of ['cors', 'no-cors']) {
        try {
          const answer = await fetch(url, { ...init, mode })
          tried[`${name} ${mode}`] = answer.type == 'opaque' ? 'opaque' : answer.status
        } catch { tried[`${name} ${mode}`] = 'failed' }
      }
    }
    const shown = what => new Promise(done => { what.onload = () => done('shown'); what.onerror = () => done('failed'); document.body.append(what) })
    tried.image = await shown(Object.assign(new Image(), { src: file + '/home/user/image.svg' }))
    tried.script = await shown(Object.assign(document.createElement('script'), { src: file + '/home/user/script.js' }))
    tried.ran = window.ran === true
    return tried
  }, target)
  console.log(JSON.stringify(told))
  page = await browser.newPage()
  await page.goto(page_url)
  const refused = page.waitForResponse(answer => answer.url().includes('/files'))
  await page.evaluate(target => { location = `${target}/files?username=root&path=/home/user/page.html` }, target)
  console.log((await refused).status())
}
await browser.close()
"""


@pytest.fixture(scope="module")
def service(added):
    with added("desktop", "browser") as service:
        yield service


@pytest.fixture
def own():
    with own_service("site") as service:
        yield service


def look(sdk, name):
    """(size, colours, {where: colour}) of a screenshot."""
    program = ("import json, sys; from PIL import Image; i = Image.open(sys.argv[1]).convert('RGB'); "
               "print(json.dumps([i.size, len(i.getcolors(1 << 24)), {f'{x},{y}': i.getpixel((x, y)) for x, y in ((10, 10), (700, 20))}]))")
    size, colours, at = json.loads(subprocess.run([sdk[0], "-c", program, SEEN / f"{name}.png"], capture_output=True, text=True, timeout=60, check=True).stdout)
    return tuple(size), colours, at


def test_a_desktop_is_worked_on(service, sdk):
    SEEN.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([sdk[0], "-c", DESKTOP, SEEN], env=environment(service), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["saved"] and told["size"] == [1024, 720] and told["url"].startswith(f"https://6080-{told['id']}."), told
    pictures = {name: look(sdk, name) for name in ("empty", "written", "saved")}
    assert all(size == (1024, 720) for size, _, _ in pictures.values())
    assert pictures["written"][1] > 50, "a window has an edge, buttons and letters"

    # What a person's browser does who takes over: the page, then VNC in a WebSocket.
    headers = {"E2b-Sandbox-Id": told["id"], "E2b-Sandbox-Port": "6080"}
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("GET", "/vnc.html", headers=headers)
    assert b"noVNC" in connection.getresponse().read()
    connection.request("GET", "/websockify", headers={**headers, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                                                      "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(), "Sec-WebSocket-Protocol": "binary"})
    answer = connection.getresponse()
    assert answer.status == 101
    frame = answer.fp.read1(64) if not answer.closed else connection.sock.recv(64)
    assert frame == b"\x82\x0cRFB 003.008\n"
    connection.close()


def test_a_browser_is_driven_from_outside(service, sdk):
    SEEN.mkdir(parents=True, exist_ok=True)
    (sdk[1] / "browser.mjs").write_text(BROWSER)
    done = subprocess.run(["node", sdk[1] / "browser.mjs", SEEN / "browser.png"], env=environment(service, PATH=sdk[2]), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.stdout == "good\n", done.stderr[-3000:]
    size, colours, at = look(sdk, "browser")
    assert size == (800, 600) and at == {"10,10": [255, 0, 0], "700,20": [255, 255, 255]} and colours > 50, "coloured pictures of letters"


def test_a_page_of_another_site_gets_nothing(own, sdk):
    """In a real browser, with an open sandbox, the only one: neither by the service's address nor by the sandbox's name."""
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><body>evil</body>")

        def log_message(self, *_):
            pass

    service, sandbox = own, own.create(secure=False)
    fill = "cd /home/user; echo mine > file; echo '<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"/>' > image.svg; echo 'window.ran = true' > script.js; echo hello > page.html"
    assert service.cove("exec", sandbox, "--", "sh", "-c", fill).returncode == 0
    name = f"http://49983-{sandbox}.localhost:{service.port}"
    (sdk[1] / "cross-site.mjs").write_text(CROSS_SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(["node", sdk[1] / "cross-site.mjs", f"http://evil.localhost:{server.server_port}/", service.url, name], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=300, check=False, env=environment(service, PATH=sdk[2], CHROMIUM=chromium))
        server.shutdown()
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for tried, status in zip(lines[::2], lines[1::2], strict=True):
        assert status in (401, 403) and not tried.pop("ran"), lines
        assert all(result in ("failed", "opaque", 401, 403, 404) for result in tried.values()), lines
    assert len(lines) == 4 and service.cove("exec", sandbox, "--", "ls", "/home/user").stdout.split() == ["file", "image.svg", "page.html", "script.js"]
