// SPDX-License-Identifier: Apache-2.0
// Pausing, snapshots, forks and volumes.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, SandboxNotFoundError, Volume } from 'e2b'
import { everything, sandbox, unique, until } from './lib.mjs'

test('a paused sandbox goes on where it was', async (t) => {
  const metadata = unique()
  const box = await sandbox(t, { metadata })
  const command = await box.commands.run('i=0; while :; do i=$((i+1)); echo $i > n; sleep 0.05; done', { background: true, timeoutMs: 0 })
  await box.files.write('kept.txt', 'kept')
  assert.equal(await box.pause(), true)
  assert.equal(await box.pause(), false)
  assert.equal(await box.isRunning(), false)
  assert.equal((await box.getInfo()).state, 'paused')
  assert.deepEqual((await everything(Sandbox.list({ query: { metadata, state: ['paused'] } }))).map((s) => s.sandboxId), [box.sandboxId])
  assert.deepEqual(await everything(Sandbox.list({ query: { metadata, state: ['running'] } })), [])

  const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 60_000 })
  assert.equal(await again.isRunning(), true)
  assert.equal(await again.files.read('kept.txt'), 'kept')
  assert.ok((await again.commands.list()).some((p) => p.pid === command.pid), 'its process is still there')
  const before = Number(await again.files.read('n'))
  assert.ok(await until(async () => Number(await again.files.read('n')) > before), 'and goes on')
  await command.kill()
})

test('at its timeout it is paused when asked for, and killing it paused ends it', async (t) => {
  const box = await sandbox(t, { timeoutMs: 1000, lifecycle: { onTimeout: 'pause' } })
  assert.ok(await until(async () => (await box.getInfo()).state === 'paused'))
  const again = await Sandbox.connect(box.sandboxId)
  assert.equal((await again.commands.run('echo up')).stdout, 'up\n')
  await again.pause()
  assert.equal(await Sandbox.kill(box.sandboxId), true)
  await assert.rejects(Sandbox.connect(box.sandboxId), SandboxNotFoundError)
})

test('a snapshot is a template, with a name or without', async (t) => {
  const box = await sandbox(t)
  await box.files.write('state.txt', 'then')
  const name = `snap-${unique().test}`
  const [plain, named] = [await box.createSnapshot(), await box.createSnapshot({ name })]
  t.after(() => Sandbox.deleteSnapshot(plain.snapshotId))
  await box.files.write('state.txt', 'now')
  assert.ok(named.names.some((n) => n.endsWith(`/${name}`)))
  assert.deepEqual((await everything(Sandbox.listSnapshots({ name }))).map((s) => s.snapshotId), [named.snapshotId])
  assert.deepEqual((await everything(box.listSnapshots())).map((s) => s.snapshotId).sort(), [plain.snapshotId, named.snapshotId].sort())
  for (const id of [plain.snapshotId, named.snapshotId]) {
    const copy = await Sandbox.create(id)
    assert.equal(await copy.files.read('state.txt'), 'then')
    await copy.files.write('state.txt', 'elsewhere')
    await copy.kill()
  }
  assert.equal(await box.files.read('state.txt'), 'now')
  assert.equal(await Sandbox.deleteSnapshot(named.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(named.snapshotId), false)
})

test('forks have the files and go their own ways', async (t) => {
  const box = await sandbox(t)
  await box.files.write('state.txt', 'before')
  const forks = await box.fork({ count: 3, timeoutMs: 60_000 })
  t.after(() => Promise.all(forks.map((f) => f.kill())))
  assert.equal(new Set([box, ...forks].map((f) => f.sandboxId)).size, 4)
  await forks[0].files.write('state.txt', 'mine')
  assert.equal(await box.files.read('state.txt'), 'before')
  assert.equal(await forks[1].files.read('state.txt'), 'before')
  await box.kill()
  await assert.rejects(box.fork(), SandboxNotFoundError)
})

test('a volume outlives the sandboxes that it is mounted in', async (t) => {
  const name = `vol-${unique().test.slice(0, 8)}`
  const volume = await Volume.create(name)
  t.after(() => Volume.destroy(volume.volumeId))
  await volume.makeDir('/d')
  await volume.writeFile('/d/f.txt', 'from outside')
  const box = await sandbox(t, { volumeMounts: { '/mnt/v': volume } })
  assert.equal(await box.files.read('/mnt/v/d/f.txt'), 'from outside')
  await box.files.write('/mnt/v/g.txt', 'from inside')
  await box.kill()
  assert.equal(await volume.readFile('/g.txt'), 'from inside')
  assert.deepEqual((await volume.list('/')).map((e) => e.name).sort(), ['d', 'g.txt'])
  assert.ok((await Volume.list()).some((v) => v.volumeId === volume.volumeId && v.name === name))
})
