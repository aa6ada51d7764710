// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FileNotFoundError, SandboxError } from 'e2b'
import { pause, sandbox, until } from './lib.mjs'

/** Watches `path` and keeps what was seen, as "type name". */
async function watch(t, box, path, opts) {
  const seen = { events: [], text: [] }
  seen.handle = await box.files.watchDir(path, (event) => {
    seen.events.push(event)
    seen.text.push(`${event.type} ${event.name}`)
  }, opts)
  t.after(() => seen.handle.stop())
  seen.has = async (...wanted) =>
    assert.ok(await until(() => wanted.every((w) => seen.text.includes(w))), `no ${wanted.filter((w) => !seen.text.includes(w))} in ${seen.text}`)
  return seen
}

test('a watched directory tells what happens in it', async (t) => {
  const box = await sandbox(t)
  await box.files.makeDir('w')
  const seen = await watch(t, box, 'w')
  await box.files.write('w/a', 'x')
  await seen.has('create a', 'write a')
  await box.commands.run('chmod 600 w/a')
  await seen.has('chmod a')
  await box.files.rename('w/a', 'w/b')
  await seen.has('rename a', 'create b')
  await box.files.remove('w/b')
  await seen.has('remove b')
  await box.files.makeDir('w/sub')
  await seen.has('create sub')
  await box.files.write('w/sub/deep', 'x')
  await box.files.write('w/last', 'x')
  await seen.has('create last')
  assert.deepEqual(seen.text.filter((e) => e.includes('deep')), [])
})

test('a recursive watch follows new directories', async (t) => {
  const box = await sandbox(t)
  await box.files.makeDir('w/old')
  const seen = await watch(t, box, 'w', { recursive: true })
  await box.files.write('w/old/a', 'x')
  await seen.has('create old/a', 'write old/a')
  await box.files.makeDir('w/new')
  await seen.has('create new')
  await box.files.write('w/new/b', 'x')
  await seen.has('write new/b')
  await box.commands.run('mkdir -p w/p/q/r && echo x > w/p/q/r/f')
  await seen.has('create p', 'create p/q/r/f')
})

test('a watch can carry the entry itself', async (t) => {
  const box = await sandbox(t)
  await box.files.makeDir('w')
  const seen = await watch(t, box, 'w', { includeEntry: true })
  await box.files.write('w/a', '1234')
  await seen.has('write a')
  const { entry } = seen.events.findLast((e) => e.type === 'write')
  assert.deepEqual([entry.name, entry.path, entry.type, entry.owner], ['a', '/home/user/w/a', 'file', 'user'])
  await box.files.remove('w/a')
  await seen.has('remove a')
  assert.equal(seen.events.find((e) => e.type === 'remove').entry, undefined)
})

test('a stopped watch is silent', async (t) => {
  const box = await sandbox(t)
  await box.files.makeDir('w')
  const seen = await watch(t, box, 'w')
  const other = await watch(t, box, 'w')
  await seen.handle.stop()
  await box.files.write('w/a', 'x')
  await other.has('write a')
  await pause(100)
  assert.deepEqual(seen.text, [])
})

test('only directories that exist can be watched', async (t) => {
  const box = await sandbox(t)
  await assert.rejects(box.files.watchDir('none', () => {}), FileNotFoundError)
  await box.files.write('file', '')
  await assert.rejects(box.files.watchDir('file', () => {}), SandboxError)
})
