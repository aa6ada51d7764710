// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  AuthenticationError, InvalidArgumentError, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError
} from 'e2b'
import { everything, sandbox, unique, until } from './lib.mjs'

test('a new sandbox runs at once and says what it is', async (t) => {
  const metadata = unique({ purpose: 'a test' })
  const box = await sandbox(t, { metadata, timeoutMs: 300_000 })
  assert.match(box.sandboxId, /^i[a-z0-9]{20}$/)
  assert.equal(await box.isRunning(), true)

  const info = await box.getInfo()
  assert.equal(info.sandboxId, box.sandboxId)
  assert.equal(info.state, 'running')
  assert.deepEqual(info.metadata, metadata)
  assert.match(info.envdVersion, /^\d+\.\d+\.\d+$/)
  assert.ok(info.templateId.length > 0)
  assert.ok(info.cpuCount >= 1, `cpuCount ${info.cpuCount}`)
  assert.ok(info.memoryMB >= 128, `memoryMB ${info.memoryMB}`)
  assert.equal(Math.round((info.endAt - info.startedAt) / 1000), 300)
  assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })
})

test('info by id is the same as info by object, and does not drift', async (t) => {
  const box = await sandbox(t)
  const [first, second] = [await Sandbox.getInfo(box.sandboxId), await box.getInfo()]
  assert.deepEqual(first, second)
})

test('without metadata there is none', async (t) => {
  const box = await sandbox(t)
  assert.deepEqual((await box.getInfo()).metadata, {})
})

test('kill ends it, for good and for everybody', async (t) => {
  const metadata = unique()
  const box = await sandbox(t, { metadata })
  assert.equal(await box.kill(), true)
  assert.equal(await box.isRunning(), false)
  assert.equal(await box.kill(), false)
  assert.equal(await Sandbox.kill(box.sandboxId), false)
  assert.deepEqual(await everything(Sandbox.list({ query: { metadata } })), [])
  await assert.rejects(box.getInfo(), SandboxNotFoundError)
  await assert.rejects(Sandbox.connect(box.sandboxId), SandboxNotFoundError)
  await assert.rejects(box.commands.run('true'), SandboxNotFoundError)
  await assert.rejects(box.files.read('/etc/hostname'), TimeoutError)
})

test('the list is filtered by metadata, all pairs and any characters', async (t) => {
  const both = unique({ name: 'a&b=c d+e%f "ü" \u{1f600}', 'k e&y=': '1' })
  const box = await sandbox(t, { metadata: both })
  await sandbox(t, { metadata: { test: both.test, name: 'other' } })
  const listed = await everything(Sandbox.list({ query: { metadata: both } }))
  assert.deepEqual(listed.map((s) => s.sandboxId), [box.sandboxId])
  assert.deepEqual(listed[0].metadata, both)
  assert.equal((await everything(Sandbox.list({ query: { metadata: { test: both.test } } }))).length, 2)
  assert.deepEqual(await everything(Sandbox.list({ query: { metadata: unique() } })), [])
})

test('the list is ordered by start, newest first unless asked otherwise', async (t) => {
  const metadata = unique()
  const ids = []
  for (let i = 0; i < 3; i++) ids.push((await sandbox(t, { metadata })).sandboxId)
  const listed = async (order) => (await everything(Sandbox.list({ query: { metadata }, order }))).map((s) => s.sandboxId)
  assert.deepEqual(await listed('asc'), ids)
  assert.deepEqual(await listed('desc'), ids.toReversed())
  assert.deepEqual(await listed(undefined), ids.toReversed())
})

test('the list comes in pages that neither lose nor repeat anything', async (t) => {
  const metadata = unique()
  const ids = []
  for (let i = 0; i < 5; i++) ids.push((await sandbox(t, { metadata })).sandboxId)
  for (const order of ['asc', 'desc']) {
    const paginator = Sandbox.list({ query: { metadata }, limit: 2, order })
    const pages = []
    while (paginator.hasNext) pages.push((await paginator.nextItems()).map((s) => s.sandboxId))
    assert.deepEqual(pages.map((page) => page.length), [2, 2, 1])
    assert.deepEqual(pages.flat(), order === 'asc' ? ids : ids.toReversed())
  }
})

test('a page that goes on is found again by its token', async (t) => {
  const metadata = unique()
  for (let i = 0; i < 2; i++) await sandbox(t, { metadata })
  const first = Sandbox.list({ query: { metadata }, limit: 1 })
  const [newest] = await first.nextItems()
  const [oldest] = await Sandbox.list({ query: { metadata }, limit: 1, nextToken: first.nextToken }).nextItems()
  assert.notEqual(oldest.sandboxId, newest.sandboxId)
  await assert.rejects(Sandbox.list({ nextToken: 'no-token' }).nextItems(), /400/)
})

test('the list is filtered by state, template and start', async (t) => {
  const metadata = unique()
  const box = await sandbox(t, { metadata })
  const { templateId, startedAt } = await box.getInfo()
  const count = async (query) => (await everything(Sandbox.list({ query: { metadata, ...query } }))).length
  assert.equal(await count({ state: ['running'] }), 1)
  assert.equal(await count({ state: ['paused'] }), 0)
  assert.equal(await count({ state: ['running', 'paused'] }), 1)
  assert.equal(await count({ template: templateId }), 1)
  assert.equal(await count({ template: 'base' }), 1)
  assert.equal(await count({ template: 'no-such-template' }), 0)
  assert.equal(await count({ startedAfter: startedAt }), 1)
  assert.equal(await count({ startedAfter: new Date(startedAt.getTime() + 1000) }), 0)
})

test('connect reaches a running sandbox with the rights of its maker', async (t) => {
  const box = await sandbox(t)
  await box.files.write('note', 'from the first')
  const again = await Sandbox.connect(box.sandboxId)
  assert.equal(again.sandboxId, box.sandboxId)
  assert.equal(await again.files.read('note'), 'from the first')
})

test('connect never shortens the life of a sandbox, but lengthens it', async (t) => {
  const box = await sandbox(t, { timeoutMs: 200_000 })
  const before = (await box.getInfo()).endAt.getTime()
  await Sandbox.connect(box.sandboxId, { timeoutMs: 10_000 })
  assert.equal((await box.getInfo()).endAt.getTime(), before)
  await Sandbox.connect(box.sandboxId, { timeoutMs: 900_000 })
  assert.ok((await box.getInfo()).endAt.getTime() > before + 600_000)
})

test('setTimeout moves the end both ways, and the end comes', async (t) => {
  const metadata = unique()
  const box = await sandbox(t, { metadata, timeoutMs: 60_000 })
  const { startedAt } = await box.getInfo()
  await box.setTimeout(600_000)
  assert.ok((await box.getInfo()).endAt - startedAt > 500_000)
  await box.setTimeout(5_000)
  assert.ok((await box.getInfo()).endAt - startedAt < 60_000)
  assert.equal(await box.isRunning(), true)
  assert.ok(await until(async () => !(await box.isRunning()), 30_000), 'still running long after its end')
  assert.deepEqual(await everything(Sandbox.list({ query: { metadata } })), [])
  await assert.rejects(box.setTimeout(1000), SandboxNotFoundError)
})

test('metrics come within seconds, none from before the sandbox was', async (t) => {
  const box = await sandbox(t)
  const metrics = await until(async () => ((m) => m.length && m)(await box.getMetrics()), 30_000, 500)
  assert.ok(metrics, 'no metric within 30 s')
  const [metric] = metrics
  assert.ok(metric.timestamp instanceof Date && Math.abs(Date.now() - metric.timestamp) < 60_000, `${metric.timestamp}`)
  assert.ok(metric.cpuCount >= 1 && metric.cpuUsedPct >= 0)
  assert.ok(metric.memUsed > 0 && metric.memTotal >= metric.memUsed)
  assert.ok(metric.diskUsed >= 0 && metric.diskTotal > metric.diskUsed)
  const hour = 3_600_000
  const past = { start: new Date(Date.now() - 2 * hour), end: new Date(Date.now() - hour) }
  assert.deepEqual(await box.getMetrics(past), [])
})

test('two sandboxes share nothing', async (t) => {
  const [a, b] = await Promise.all([sandbox(t), sandbox(t)])
  await a.files.write('/tmp/secret', 'a')
  await a.commands.run('sleep 60', { background: true })
  assert.equal(await b.files.exists('/tmp/secret'), false)
  assert.deepEqual(await b.commands.list(), [])
  assert.notEqual((await a.commands.run('hostname')).stdout, (await b.commands.run('hostname')).stdout)
})

test('sandboxes are made in parallel', async (t) => {
  const metadata = unique()
  const boxes = await Promise.all(Array.from({ length: 10 }, () => sandbox(t, { metadata })))
  const results = await Promise.all(boxes.map((box, i) => box.commands.run(`echo ${i}`)))
  assert.deepEqual(results.map((r) => r.stdout), boxes.map((_, i) => `${i}\n`))
  assert.equal((await everything(Sandbox.list({ query: { metadata } }))).length, 10)
})

test('an unknown sandbox is said to be unknown', async () => {
  const id = 'i' + '0'.repeat(20)
  await assert.rejects(Sandbox.getInfo(id), SandboxNotFoundError)
  await assert.rejects(Sandbox.connect(id), SandboxNotFoundError)
  await assert.rejects(Sandbox.setTimeout(id, 1000), SandboxNotFoundError)
  assert.equal(await Sandbox.kill(id), false)
  await assert.rejects(Sandbox.getInfo('Not_An-Id-At-All'), /400/)
})

test('a wrong key opens nothing', async (t) => {
  const box = await sandbox(t)
  const apiKey = 'e2b_' + '0123456789'.repeat(4)
  await assert.rejects(Sandbox.create({ apiKey }), AuthenticationError)
  await assert.rejects(Sandbox.getInfo(box.sandboxId, { apiKey }), AuthenticationError)
  await assert.rejects(Sandbox.kill(box.sandboxId, { apiKey }), AuthenticationError)
  await assert.rejects(Sandbox.list({ apiKey }).nextItems(), AuthenticationError)
  assert.equal(await box.isRunning(), true)
})

test('what cannot be created is refused with the reason', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), /404: .*no-such-template/)
  await assert.rejects(Sandbox.create('not a template!'), /400/)
  await assert.rejects(Sandbox.create({ timeoutMs: 0 }), /400: .*[Tt]imeout/)
  await assert.rejects(Sandbox.create({ metadata: { number: 1 } }), /400/)
})

// Each of these goes when the thing itself comes: a made-up success would be worse than the refusal.
test('what a sandbox may reach is set and replaced', async (t) => {
  const box = await sandbox(t, { network: { denyOut: ['0.0.0.0/0'], allowOut: ['1.1.1.1'] } })
  const closed = await box.commands.run('getent hosts denied.test || echo closed')
  assert.equal(closed.stdout, 'closed\n')
  assert.deepEqual((await box.getInfo()).network.allowOut, ['1.1.1.1'])
  await box.updateNetwork({ denyOut: ['8.8.8.8'] })
  assert.deepEqual((await box.getInfo()).network.denyOut, ['8.8.8.8'])
  await assert.rejects(box.updateNetwork({ denyOut: ['a example'] }), /400/)
})

test('a failing MCP gateway takes its sandbox with it', async () => {
  const metadata = unique()
  await assert.rejects(Sandbox.create('base', { metadata, mcp: { nothing: {} } }), /Failed to start MCP gateway/)
  assert.deepEqual(await everything(Sandbox.list({ query: { metadata } })), [])
})

test('the SDK itself still refuses what it always refused', async (t) => {
  const box = await sandbox(t)
  await assert.rejects(box.files.list('.', { depth: 0 }), InvalidArgumentError)
})
