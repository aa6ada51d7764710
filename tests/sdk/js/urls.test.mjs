// SPDX-License-Identifier: Apache-2.0
// What people reach without the SDK: signed links, and servers inside.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox } from 'e2b'
import { inside, sandbox, until } from './lib.mjs'

test('a signed link downloads one file, for one user', async (t) => {
  const box = await sandbox(t)
  await box.files.write('hello é.txt', 'hello')
  await box.files.write('mine', 'of root', { user: 'root' })
  for (const opts of [{}, { useSignatureExpiration: 60 }, { user: 'user' }]) {
    const reply = await fetch(await box.downloadUrl('hello é.txt', opts))
    assert.deepEqual([reply.status, await reply.text()], [200, 'hello'])
    assert.match(reply.headers.get('content-disposition'), /^inline; filename/)
  }
  const reply = await fetch(await box.downloadUrl('mine', { user: 'root' }))
  assert.deepEqual([reply.status, await reply.text()], [200, 'of root'])
})

test('a signed link takes a range', async (t) => {
  const box = await sandbox(t)
  await box.files.write('digits', '0123456789')
  const reply = await fetch(await box.downloadUrl('digits'), { headers: { Range: 'bytes=2-4' } })
  assert.deepEqual([reply.status, await reply.text(), reply.headers.get('content-range')], [206, '234', 'bytes 2-4/10'])
})

test('a signed link uploads one file', async (t) => {
  const box = await sandbox(t)
  for (const [opts, path] of [[{}, '/home/user/up.txt'], [{ user: 'root' }, '/root/up.txt']]) {
    const form = new FormData()
    form.append('file', 'uploaded')
    const reply = await fetch(await box.uploadUrl('up.txt', opts), { method: 'POST', body: form })
    assert.equal(reply.status, 200)
    assert.deepEqual(await reply.json(), [{ name: 'up.txt', path, type: 'file' }])
    assert.equal(await box.files.read(path), 'uploaded')
  }
})

test('a link that is expired, changed or meant for another use opens nothing', async (t) => {
  const box = await sandbox(t)
  await box.files.write('hello', 'hello')
  await box.files.write('other', 'other')
  const expect401 = async (url, init, message) => {
    const reply = await fetch(url, init)
    const body = await reply.json()
    assert.deepEqual([reply.status, body.code], [401, 401], JSON.stringify(body))
    if (message) assert.equal(body.message, message)
  }
  await expect401(await box.downloadUrl('hello', { useSignatureExpiration: -10 }), {}, 'signature is already expired')
  const good = await box.downloadUrl('hello')
  await expect401(good.replace('hello', 'other'), {})
  const form = new FormData()
  form.append('file', 'x')
  await expect401(good, { method: 'POST', body: form })
  const bare = new URL(good)
  bare.searchParams.delete('signature')
  const routed = { headers: { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '49983' } }
  await expect401(bare, routed, 'missing signature query parameter')
  assert.equal(await box.files.read('hello'), 'hello')
})

test('a link of one sandbox opens nothing in another', async (t) => {
  const [a, b] = [await sandbox(t), await sandbox(t)]
  await b.files.write('hello', 'of b')
  const headers = { 'E2b-Sandbox-Id': b.sandboxId, 'E2b-Sandbox-Port': '49983' }
  const reply = await fetch(await a.downloadUrl('hello'), { headers })
  assert.equal(reply.status, 401)
})

test('nothing inside answers to a client without the token', async (t) => {
  const box = await sandbox(t)
  for (const path of ['/process.Process/List', '/filesystem.Filesystem/Stat']) {
    const init = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' }
    assert.equal((await inside(box, 49983, path, init)).status, 401)
  }
  assert.equal((await inside(box, 49983, '/envs')).status, 401)
  assert.equal((await inside(box, 49983, '/health')).status, 204)
  assert.equal((await inside(box, 49983, '/init', { method: 'POST' })).status, 404)
})

test('a server inside is reached from outside', async (t) => {
  const box = await sandbox(t)
  await box.files.write('site/page', 'served from inside')
  await box.commands.run('python3 -m http.server 8123 --bind 127.0.0.1 -d site', { background: true })
  const reply = await until(async () => ((r) => r.status === 200 && r)(await inside(box, 8123, '/page')), 20_000)
  assert.ok(reply, 'no answer from the server inside')
  assert.equal(await reply.text(), 'served from inside')
  assert.equal((await inside(box, 8123, '/none')).status, 404)
})

test('a port without a server says so', async (t) => {
  const box = await sandbox(t)
  const reply = await inside(box, 8124)
  assert.equal(reply.status, 502)
  assert.deepEqual(await reply.json(), {
    sandboxId: box.sandboxId, message: 'The sandbox is running but port is not open', port: 8124, code: 502
  })
})

test('a sandbox that is gone says so, on every port', async (t) => {
  const box = await sandbox(t)
  await Sandbox.kill(box.sandboxId)
  for (const port of [8123, 49983]) {
    const reply = await inside(box, port, '/health')
    assert.equal(reply.status, 502)
    assert.deepEqual(await reply.json(), { sandboxId: box.sandboxId, message: 'The sandbox was not found', code: 502 })
  }
})
