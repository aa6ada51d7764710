// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { AuthenticationError, FileNotFoundError, InvalidArgumentError } from 'e2b'
import { drain, sandbox } from './lib.mjs'

const sha256 = (data) => createHash('sha256').update(data).digest('hex')

test('what is written is read, in every form', async (t) => {
  const box = await sandbox(t)
  const text = 'one\ntwo é \u{1f600}\n'
  const info = await box.files.write('note.txt', text)
  assert.deepEqual([info.name, info.path, info.type], ['note.txt', '/home/user/note.txt', 'file'])
  assert.equal(await box.files.read('note.txt'), text)
  assert.equal(await box.files.read('/home/user/note.txt'), text)
  assert.equal(await box.files.read('~/note.txt'), text)
  assert.equal(Buffer.from(await box.files.read('note.txt', { format: 'bytes' })).toString(), text)
  assert.equal(await (await box.files.read('note.txt', { format: 'blob' })).text(), text)
  assert.equal((await drain(await box.files.read('note.txt', { format: 'stream' }))).toString(), text)
  assert.equal((await box.commands.run('cat note.txt')).stdout, text)
})

test('an empty file is empty, in every form', async (t) => {
  const box = await sandbox(t)
  await box.files.write('empty', '')
  assert.equal(await box.files.read('empty'), '')
  assert.equal((await box.files.read('empty', { format: 'bytes' })).length, 0)
  assert.equal((await box.files.read('empty', { format: 'blob' })).size, 0)
  assert.equal((await drain(await box.files.read('empty', { format: 'stream' }))).length, 0)
  assert.equal(await box.files.read('empty', { gzip: true }), '')
})

test('bytes stay as they are, whichever way they go', async (t) => {
  const box = await sandbox(t)
  const data = Buffer.concat([Buffer.from(Array.from({ length: 256 }, (_, i) => i)), randomBytes(300_000)])
  const ways = { multipart: {}, octets: { useOctetStream: true }, gzip: { useOctetStream: true, gzip: true } }
  for (const [name, opts] of Object.entries(ways)) {
    await box.files.write(name, new Blob([data]), opts)
    for (const gzip of [false, true]) {
      assert.ok(data.equals(Buffer.from(await box.files.read(name, { format: 'bytes', gzip }))), `${name}, read with gzip ${gzip}`)
    }
  }
})

test('a stream of 64 MiB goes in and out whole', async (t) => {
  const box = await sandbox(t)
  const piece = randomBytes(1 << 20)
  const whole = createHash('sha256')
  let left = 64
  const source = new ReadableStream({
    pull(controller) {
      if (left-- === 0) return controller.close()
      whole.update(piece)
      controller.enqueue(new Uint8Array(piece))
    }
  })
  await box.files.write('big', source)
  const expected = whole.digest('hex')
  assert.equal((await box.commands.run('sha256sum big')).stdout.split(' ')[0], expected)
  const back = createHash('sha256')
  for await (const chunk of await box.files.read('big', { format: 'stream' })) back.update(chunk)
  assert.equal(back.digest('hex'), expected)
})

test('writing replaces what was there and makes the directories', async (t) => {
  const box = await sandbox(t)
  await box.files.write('deep/er/note', 'a long first version')
  await box.commands.run('ln deep/er/note other-name')
  await box.files.write('deep/er/note', 'short')
  assert.equal(await box.files.read('deep/er/note'), 'short')
  assert.equal(await box.files.read('other-name'), 'short')
  assert.equal((await box.commands.run('stat -c "%U %a" deep/er deep/er/note')).stdout, 'user 755\nuser 644\n')
})

test('any name will do', async (t) => {
  const box = await sandbox(t)
  const names = ['a b', 'ü\u{1f600}', 'quote"s', "'", 'a%20b', 'semi;colon', 'back\\slash', '-rf', '#?&=+', 'line\nbreak']
  for (const name of names) {
    await box.files.write(`names/${name}`, name, { useOctetStream: true })
    assert.equal(await box.files.read(`names/${name}`), name)
  }
  const listed = await box.files.list('names')
  assert.deepEqual(listed.map((e) => e.name).toSorted(), names.toSorted())
})

test('many files in one go', async (t) => {
  const box = await sandbox(t)
  assert.deepEqual(await box.files.writeFiles([]), [])
  const files = Array.from({ length: 20 }, (_, i) => ({ path: i % 2 ? `/tmp/d${i}/f` : `d${i}/f`, data: `data ${i}` }))
  const infos = await box.files.writeFiles(files)
  assert.deepEqual(infos.map((i) => i.path), files.map((f) => (f.path.startsWith('/') ? f.path : `/home/user/${f.path}`)))
  for (const file of files) assert.equal(await box.files.read(file.path), file.data)
})

test('files of root are root’s', async (t) => {
  const box = await sandbox(t)
  const info = await box.files.write('mine', 'x', { user: 'root' })
  assert.equal(info.path, '/root/mine')
  const stat = await box.files.getInfo('mine', { user: 'root' })
  assert.deepEqual([stat.path, stat.owner, stat.group], ['/root/mine', 'root', 'root'])
  await assert.rejects(box.files.write('x', 'x', { user: 'stranger' }), AuthenticationError)
})

test('a missing file is missing', async (t) => {
  const box = await sandbox(t)
  await assert.rejects(box.files.read('none'), (error) => {
    assert.ok(error instanceof FileNotFoundError)
    assert.match(error.message, /path '\/home\/user\/none' does not exist/)
    return true
  })
  await assert.rejects(box.files.read('none', { format: 'stream' }), FileNotFoundError)
  await assert.rejects(box.files.getInfo('none'), FileNotFoundError)
  await assert.rejects(box.files.list('none'), FileNotFoundError)
  await assert.rejects(box.files.rename('none', 'other'), FileNotFoundError)
  assert.equal(await box.files.exists('none'), false)
  await box.files.remove('none')
})

test('a directory is no file and a file no directory', async (t) => {
  const box = await sandbox(t)
  await box.files.makeDir('dir')
  await box.files.write('file', '')
  await assert.rejects(box.files.read('dir'), InvalidArgumentError)
  await assert.rejects(box.files.write('dir', 'x'), InvalidArgumentError)
  await assert.rejects(box.files.list('file'), InvalidArgumentError)
  await assert.rejects(box.files.makeDir('file'), InvalidArgumentError)
})

test('what is known about a file', async (t) => {
  const box = await sandbox(t)
  const before = Date.now()
  await box.files.write('file', '12345')
  await box.commands.run('chmod 640 file; ln -s file link; ln -s nowhere broken; mkdir dir; ln -s dir dirlink')
  const file = await box.files.getInfo('file')
  assert.deepEqual(
    [file.name, file.path, file.type, file.size, file.mode, file.permissions, file.owner, file.group, file.symlinkTarget],
    ['file', '/home/user/file', 'file', 5, 0o640, '-rw-r-----', 'user', 'user', undefined])
  assert.ok(Math.abs(file.modifiedTime - before) < 60_000, `${file.modifiedTime}`)
  const dir = await box.files.getInfo('dir')
  assert.deepEqual([dir.type, dir.mode, dir.permissions], ['dir', 0o755, 'drwxr-xr-x'])
  assert.ok(dir.size > 0)
  const link = await box.files.getInfo('link')
  assert.deepEqual([link.name, link.type, link.mode, link.permissions, link.symlinkTarget],
    ['link', 'file', 0o640, 'Lrwxrwxrwx', '/home/user/file'])
  assert.equal((await box.files.getInfo('dirlink')).type, 'dir')
  const broken = await box.files.getInfo('broken')
  assert.deepEqual([broken.type, broken.symlinkTarget], [undefined, '/home/user/broken'])
})

test('directories are listed in order, as deep as asked', async (t) => {
  const box = await sandbox(t)
  await box.commands.run('mkdir -p d/b/c/deep d/a; touch d/.hidden d/Z d/z d/b/f d/b/c/g; ln -s b d/link')
  const paths = async (opts) => (await box.files.list('d', opts)).map((e) => e.path.replace('/home/user/d/', ''))
  assert.deepEqual(await paths(undefined), ['.hidden', 'Z', 'a', 'b', 'link', 'z'])
  assert.deepEqual(await paths({ depth: 2 }), ['.hidden', 'Z', 'a', 'b', 'b/c', 'b/f', 'link', 'z'])
  assert.deepEqual(await paths({ depth: 9 }), ['.hidden', 'Z', 'a', 'b', 'b/c', 'b/c/deep', 'b/c/g', 'b/f', 'link', 'z'])
  assert.deepEqual((await box.files.list('d/link')).map((e) => e.path), ['/home/user/d/link/c', '/home/user/d/link/f'])
  assert.deepEqual(await box.files.list('d/a'), [])
})

test('directories are made once, with those above them', async (t) => {
  const box = await sandbox(t)
  assert.equal(await box.files.makeDir('one/two/three'), true)
  assert.equal(await box.files.makeDir('one/two/three'), false)
  assert.equal((await box.commands.run('stat -c "%U:%G %a" one one/two/three')).stdout, 'user:user 755\nuser:user 755\n')
})

test('renaming moves, into new directories and over old files', async (t) => {
  const box = await sandbox(t)
  await box.files.write('from', 'content')
  await box.files.write('old', 'old')
  const info = await box.files.rename('from', 'new/place')
  assert.deepEqual([info.name, info.path, info.type], ['place', '/home/user/new/place', 'file'])
  assert.equal(await box.files.exists('from'), false)
  await box.files.rename('new/place', 'old')
  assert.equal(await box.files.read('old'), 'content')
  assert.equal(await box.files.exists('new'), true)
})

test('removing takes all of it, and of a link only the link', async (t) => {
  const box = await sandbox(t)
  await box.commands.run('mkdir -p tree/of/things keep; touch tree/of/things/{1,2,3} keep/me; ln -s ~/keep tree/link; ln -s ~/keep link')
  await box.files.remove('tree')
  await box.files.remove('link')
  assert.equal(await box.files.exists('tree'), false)
  assert.equal(await box.files.exists('link'), false)
  assert.equal(await box.files.exists('keep/me'), true)
})

test('metadata stays with a file until it is written anew', async (t) => {
  const box = await sandbox(t)
  const metadata = { author: 'somebody', 'content-kind': 'plain text; of a kind' }
  for (const useOctetStream of [false, true]) {
    const written = await box.files.write('tagged', 'x', { metadata, useOctetStream })
    assert.deepEqual(written.metadata, metadata)
    assert.deepEqual((await box.files.getInfo('tagged')).metadata, metadata)
    assert.deepEqual((await box.files.list('.')).find((e) => e.name === 'tagged').metadata, metadata)
    assert.deepEqual((await box.files.rename('tagged', 'moved')).metadata, metadata)
    const again = await box.files.write('moved', 'y', { useOctetStream })
    assert.equal(again.metadata, undefined)
    assert.equal((await box.files.getInfo('moved')).metadata, undefined)
  }
  await box.commands.run(`python3 -c "import os; os.setxattr('moved', 'user.e2b.set', b'inside'); os.setxattr('moved', 'user.other', b'no')"`)
  assert.deepEqual((await box.files.getInfo('moved')).metadata, { set: 'inside' })
})

test('too much metadata is refused and nothing is written', async (t) => {
  const box = await sandbox(t)
  await assert.rejects(box.files.write('tagged', 'x', { metadata: { big: 'x'.repeat(5000) } }), InvalidArgumentError)
  assert.equal(await box.files.exists('tagged'), false)
})

test('special files do not hang anybody', async (t) => {
  const box = await sandbox(t)
  await box.commands.run('mkfifo pipe')
  assert.deepEqual((await box.files.list('.')).filter((e) => e.name === 'pipe'), [])
  const giveUp = new AbortController()
  const timer = setTimeout(() => giveUp.abort(), 60_000)
  await box.files.read('pipe', { signal: giveUp.signal }).catch(() => {})
  clearTimeout(timer)
  assert.equal(giveUp.signal.aborted, false, 'reading a pipe hangs')
  assert.match(await box.files.read('/proc/sys/kernel/random/boot_id'), /^[0-9a-f-]{36}\n$/)
})

test('a file is as big as its bytes', async (t) => {
  const box = await sandbox(t)
  const data = randomBytes(123_457)
  await box.files.write('sized', new Blob([data]))
  assert.equal((await box.files.getInfo('sized')).size, data.length)
  assert.equal((await box.commands.run('sha256sum < sized')).stdout.split(' ')[0], sha256(data))
})
