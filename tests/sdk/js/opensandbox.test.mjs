// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ConnectionConfig, Sandbox, SandboxManager } from '@alibaba-group/opensandbox'
import { Sandbox as E2bSandbox } from 'e2b'

const connectionConfig = new ConnectionConfig({ domain: process.env.E2B_API_URL, apiKey: process.env.E2B_API_KEY, disableMetrics: true })

async function sandbox(t, options = {}) {
  const box = await Sandbox.create({ connectionConfig, image: 'base', timeoutSeconds: 300, ...options })
  t.after(() => box.kill().catch(() => {}))
  return box
}

const lines = (output) => output.map((line) => line.text)

test('a command gives its lines, its exit code and its time', async (t) => {
  const box = await sandbox(t, { env: { SHARED: 'a' } })
  const done = await box.commands.run('echo one; echo; printf "two\\r\\nthree"; echo why >&2; echo $SHARED$OWN >&2', { envs: { OWN: 'b' } })
  assert.deepEqual(lines(done.logs.stdout), ['one', '\n', 'two', 'three'])
  assert.deepEqual(lines(done.logs.stderr), ['why', 'ab'])
  assert.equal(done.exitCode, 0)
  assert.ok(done.complete.executionTimeMs >= 0)
  const failed = await box.commands.run('exit 7')
  assert.deepEqual([failed.exitCode, failed.error.name, failed.error.value, failed.complete], [7, 'CommandExecError', '7', undefined])
  const late = await box.commands.run('sleep 60', { timeoutSeconds: 1 })
  assert.equal(late.error.value, '-1')
})

test('a command in the background has a status and a log', async (t) => {
  const box = await sandbox(t)
  const { id } = await box.commands.run('for i in 1 2 3; do echo line $i; done; exit 4', { background: true })
  let status
  while ((status = await box.commands.getCommandStatus(id)).running) await new Promise((done) => { setTimeout(done, 20) })
  assert.equal(status.exitCode, 4)
  const log = await box.commands.getBackgroundCommandLogs(id)
  assert.equal(log.content, 'line 1\nline 2\nline 3\n')
  assert.equal((await box.commands.getBackgroundCommandLogs(id, log.cursor)).content, '')
  await assert.rejects(box.commands.getCommandStatus('nobody'))
})

test('an interrupted command ends, and one whose client leaves too', async (t) => {
  const box = await sandbox(t)
  let id
  const running = box.commands.run('sleep 1000', undefined, { onInit: (init) => { id = init.id } })
  while (!id) await new Promise((done) => { setTimeout(done, 5) })
  await box.commands.interrupt(id)
  assert.ok((await running).error)
  await assert.rejects(box.commands.interrupt(id))
  const { endpoint, headers } = await box.getEndpoint(44772)
  const leaves = new AbortController()
  const left = await fetch(`http://${endpoint}/command`,
    { method: 'POST', headers, body: JSON.stringify({ command: 'sleep 1001' }), signal: leaves.signal })
  assert.equal(JSON.parse(Buffer.from((await left.body.getReader().read()).value)).type, 'init')
  leaves.abort()
  for (let i = 0; i < 200; i++) {
    const { logs } = await box.commands.run('pgrep -x sleep || true')
    if (!logs.stdout.length) return
  }
  assert.fail('the command goes on')
})

test('a session keeps what its shell knew', async (t) => {
  const box = await sandbox(t)
  const session = await box.commands.createSession({ workingDirectory: '/tmp' })
  const run = async (command) => lines((await box.commands.runInSession(session, command)).logs.stdout)
  assert.deepEqual(await run('pwd; export A=1; B="two words"; f() { echo "f $1"; }'), ['/tmp'])
  assert.deepEqual(await run('cd /usr; echo $A $B; f x'), ['1 two words', 'f x'])
  assert.deepEqual(await run('pwd'), ['/usr'])
  assert.equal((await box.commands.runInSession(session, 'exit 7')).error.value, '7')
  assert.deepEqual(await run('echo $A'), ['1'])
  await box.commands.deleteSession(session)
  await assert.rejects(box.commands.runInSession(session, 'true'))
})

test('files are written, read, found, edited and moved', async (t) => {
  const box = await sandbox(t)
  await box.files.writeFiles([{ path: '/tmp/d/a.txt', data: 'one\ntwo é\nthree\n', mode: 640 }, { path: '/tmp/d/b.bin', data: new Uint8Array([0, 255, 10]) }])
  assert.equal(await box.files.readFile('/tmp/d/a.txt'), 'one\ntwo é\nthree\n')
  assert.equal(await box.files.readFile('/tmp/d/a.txt', { range: 'bytes=4-6' }), 'two')
  assert.deepEqual([...await box.files.readBytes('/tmp/d/b.bin')], [0, 255, 10])
  const info = (await box.files.getFileInfo(['/tmp/d/a.txt']))['/tmp/d/a.txt']
  assert.deepEqual([info.mode, info.owner, info.size, info.type], [640, 'root', 17, 'file'])
  await box.files.setPermissions([{ path: '/tmp/d/a.txt', mode: 600, owner: 'nobody', group: 'nogroup' }])
  assert.equal((await box.files.getFileInfo(['/tmp/d/a.txt']))['/tmp/d/a.txt'].owner, 'nobody')
  assert.deepEqual((await box.files.search({ path: '/tmp/d', pattern: '*.txt' })).map((f) => f.path), ['/tmp/d/a.txt'])
  await box.files.replaceContents([{ path: '/tmp/d/a.txt', oldContent: 'o', newContent: '0' }])
  assert.equal(await box.files.readFile('/tmp/d/a.txt'), '0ne\ntw0 é\nthree\n')
  await box.files.moveFiles([{ src: '/tmp/d/a.txt', dest: '/tmp/e/f/a.txt' }])
  await assert.rejects(box.files.readFile('/tmp/d/a.txt'))
  await box.files.createDirectories([{ path: '/tmp/g/h', mode: 700 }])
  await box.files.deleteFiles(['/tmp/e/f/a.txt', '/tmp/nothing'])
  await box.files.deleteDirectories(['/tmp/d', '/tmp/g'])
  assert.deepEqual((await box.files.search({ path: '/tmp/e', pattern: '**' })), [])
})

test('its life: info, metadata, time, pause, resume, snapshot, end', async (t) => {
  const box = await sandbox(t, { metadata: { team: 'x' }, entrypoint: ['sh', '-c', 'echo up >/tmp/up; exec sleep 100'] })
  const manager = SandboxManager.create({ connectionConfig })
  const info = await box.getInfo()
  assert.deepEqual([info.status.state, info.image.uri, info.metadata], ['Running', 'base', { team: 'x' }])
  assert.deepEqual((await box.patchMetadata({ team: null, n: '1' })).metadata, { n: '1' })
  assert.deepEqual((await manager.listSandboxInfos({ metadata: { n: '1' }, states: ['Running'] })).items.map((i) => i.id), [box.id])
  assert.ok((await box.renew(600)).expiresAt > info.expiresAt)
  assert.equal(await box.files.readFile('/tmp/up'), 'up\n')
  await box.commands.run('echo kept >/dev/shm/state')
  await box.pause()
  assert.equal((await box.getInfo()).status.state, 'Paused')
  const again = await box.resume()
  assert.equal(await again.files.readFile('/dev/shm/state'), 'kept\n')
  assert.ok((await again.getMetrics()).memoryTotalMiB > 0)
  await again.kill()
  await assert.rejects(again.getInfo(), (error) => error.requestId && error.statusCode === 404)
})

test('one sandbox through two APIs', async (t) => {
  const box = await sandbox(t)
  await box.files.writeFiles([{ path: '/tmp/note', data: 'from one' }])
  const same = await E2bSandbox.connect(box.id)
  assert.equal(await same.files.read('/tmp/note'), 'from one')
  assert.equal((await same.commands.run('cat /tmp/note')).stdout, 'from one')
})

test('the key and the token stay outside', async (t) => {
  const box = await sandbox(t)
  const { logs } = await box.commands.run(`env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'`)
  assert.ok(!lines(logs.stdout).some((line) => line.includes(process.env.E2B_API_KEY)))
  const endpoint = await box.getEndpointUrl(44772)
  assert.equal((await fetch(`${endpoint}/ping`)).status, 401)
})
