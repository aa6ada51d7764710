// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, SandboxManager } from '@alibaba-group/opensandbox'
import { Sandbox as E2bSandbox } from 'e2b'
import { everything, unique, until } from './lib.mjs'

// Two variables say where the service is: OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY.
async function sandbox(t, options = {}) {
  const box = await Sandbox.create({ image: 'base', timeoutSeconds: 300, ...options })
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

test('an isolated session has processes and files of its own', async (t) => {
  const box = await sandbox(t)
  await box.commands.run('mkdir -p /data; echo below >/data/file; sleep 4711 &')
  assert.ok((await box.isolation.capabilities()).available)
  const session = await box.isolation.create({ workspace: { path: '/data', mode: 'overlay' }, share_net: false, idle_timeout_seconds: 60 })
  const run = async (code, options) => lines((await session.run(code, options)).logs.stdout)
  assert.deepEqual(await run('pwd; echo above >file; echo $MINE; pgrep -x sleep || echo nobody', { envs: { MINE: 'yes' } }), ['/data', 'yes', 'nobody'])
  assert.equal((await session.run('exit 7')).exitCode, 7)
  await session.files.writeFiles([{ path: '/data/new', data: 'by the session' }])
  assert.equal(await session.files.readFile('/data/file'), 'above\n')
  assert.deepEqual(await run('cat new'), ['by the session'])
  assert.equal((await (await box.isolation.attach(session.sessionId)).get()).workspace.mode, 'overlay')
  assert.deepEqual((await box.isolation.list()).map((one) => one.session_id), [session.sessionId])
  assert.equal(await box.files.readFile('/data/file'), 'below\n')
  await session.delete()
  await assert.rejects(session.run('true'))
  const once = await box.isolation.runOnce('cat file; touch kept', '/data', { workspaceMode: 'rw' })
  assert.deepEqual(lines(once.logs.stdout), ['below'])
  assert.deepEqual(lines((await box.commands.run('ls /data')).logs.stdout), ['file', 'kept'])
  assert.deepEqual(await box.isolation.list(), [])
})

test('its life: info, metadata, time, pause, resume, snapshot, end', async (t) => {
  const box = await sandbox(t, { metadata: { team: 'x' }, entrypoint: ['sh', '-c', 'echo up >/tmp/up; exec sleep 100'] })
  const manager = SandboxManager.create()
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

test('a snapshot has the files', async (t) => {
  const box = await sandbox(t)
  const manager = SandboxManager.create()
  await box.files.writeFiles([{ path: '/tmp/state', data: 'kept' }])
  const { id } = await manager.createSnapshot(box.id, { name: `of-${box.id}` })
  t.after(() => manager.deleteSnapshot(id))
  assert.ok(await until(async () => (await manager.getSnapshot(id)).status.state === 'Ready'))
  assert.deepEqual((await manager.listSnapshots({ sandboxId: box.id })).items.map((s) => s.id), [id])
  const copy = await sandbox(t, { image: undefined, snapshotId: id })
  assert.equal(await copy.files.readFile('/tmp/state'), 'kept')
  await copy.kill() // a snapshot outlives what was made from it
})

test('ports of programs are reached by addresses, signed and not', async (t) => {
  const box = await sandbox(t)
  await box.commands.run('cd /tmp && echo served >page && setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null &')
  for (const ask of [() => box.getEndpoint(8000), () => box.getSignedEndpoint(8000, Math.floor(Date.now() / 1000) + 60)]) {
    const { endpoint, headers } = await ask()
    const answer = await until(async () => { const got = await fetch(`http://${endpoint}/page`, { headers }); return got.ok && got })
    assert.equal(await answer.text(), 'served\n')
  }
})

test('a pool of the service gives ready sandboxes', async (t) => {
  const api = async (method, path, body) => (await fetch(`http://${process.env.OPEN_SANDBOX_DOMAIN}/v1${path}`, {
    method, headers: { 'OPEN-SANDBOX-API-KEY': process.env.OPEN_SANDBOX_API_KEY }, body: body && JSON.stringify(body) })).status
  assert.equal(await api('POST', '/pools', { name: 'base', capacitySpec: { bufferMin: 0, bufferMax: 2, poolMin: 0, poolMax: 10 } }), 201)
  t.after(() => api('DELETE', '/pools/base'))
  const box = await sandbox(t, { extensions: { poolRef: 'base' }, networkPolicy: { defaultAction: 'deny', egress: [{ action: 'allow', target: 'www.example.net' }] } })
  assert.deepEqual((await box.getEgressPolicy()).egress, [{ action: 'allow', target: 'www.example.net' }])
})

test('policy and vault change while the sandbox runs', async (t) => {
  const box = await sandbox(t, { networkPolicy: { defaultAction: 'deny', egress: [{ action: 'allow', target: 'api.example.com' }] }, credentialProxy: { enabled: true } })
  await box.patchEgressRules([{ action: 'allow', target: '*.example.org' }])
  assert.deepEqual((await box.getEgressPolicy()).egress.map((r) => r.target).sort(), ['*.example.org', 'api.example.com'])
  await box.deleteEgressRules(['*.example.org'])
  assert.equal((await box.getEgressPolicy()).egress.length, 1)
  const value = `sk-live-${box.id}`
  const made = await box.credentialVault.create({ credentials: [{ name: 'k', source: { type: 'inline', value } }],
    bindings: [{ name: 'b', match: { hosts: ['api.example.com'] }, auth: { type: 'apiKey', name: 'X-Api-Key', credential: 'k' } }] })
  assert.equal(made.revision, 1)
  assert.equal((await box.credentialVault.patch({ expectedRevision: 1, bindings: { delete: ['b'] } })).revision, 2)
  await assert.rejects(box.credentialVault.patch({ expectedRevision: 1, credentials: { delete: ['k'] } }), (error) => error.statusCode === 409)
  assert.ok(!JSON.stringify([made, await box.credentialVault.get(), await box.credentialVault.listCredentials()]).includes(value))
})

test('one sandbox through two APIs', async (t) => {
  const metadata = unique({ team: 'both' })
  const box = await sandbox(t, { metadata, env: { SHARED: 'a' } })
  await box.files.writeFiles([{ path: '/tmp/note', data: 'from one' }])
  const listed = await everything(E2bSandbox.list({ query: { metadata } }))
  assert.deepEqual(listed.map((one) => [one.sandboxId, one.metadata.team]), [[box.id, 'both']])
  const same = await E2bSandbox.connect(box.id)
  assert.equal(await same.files.read('/tmp/note'), 'from one')
  assert.equal((await same.commands.run('cat /tmp/note; echo " $SHARED" >>/tmp/note', { user: 'root' })).stdout, 'from one')
  assert.equal(await box.files.readFile('/tmp/note'), 'from one a\n')
  const [fork] = await same.fork()
  t.after(() => fork.kill())
  await fork.files.write('/tmp/note', 'of the fork', { user: 'root' })
  const known = await Sandbox.connect({ sandboxId: fork.sandboxId })
  assert.deepEqual([await known.files.readFile('/tmp/note'), await box.files.readFile('/tmp/note')], ['of the fork', 'from one a\n'])
  assert.equal((await known.getInfo()).status.state, 'Running')
  await box.pause()
  assert.equal((await same.getInfo()).state, 'paused')
  assert.equal(await (await E2bSandbox.connect(box.id)).files.read('/tmp/note'), 'from one a\n')
  assert.equal((await box.getInfo()).status.state, 'Running')
})

test('the key and the token stay outside', async (t) => {
  const box = await sandbox(t)
  const { logs } = await box.commands.run(`env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'`)
  assert.ok(!lines(logs.stdout).some((line) => line.includes(process.env.OPEN_SANDBOX_API_KEY)))
  const endpoint = await box.getEndpointUrl(44772)
  assert.equal((await fetch(`${endpoint}/ping`)).status, 401)
})
