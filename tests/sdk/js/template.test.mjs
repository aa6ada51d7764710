// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdtempSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { Sandbox, Template, waitForPort } from 'e2b'
import { sandbox } from './lib.mjs'

function contextDir(t) {
  const dir = mkdtempSync(join(tmpdir(), 'cove-template-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  mkdirSync(join(dir, 'folder'))
  writeFileSync(join(dir, 'folder', 'a.txt'), 'content')
  symlinkSync('a.txt', join(dir, 'folder', 'link.txt'))
  return dir
}

test('a template is built, and sandboxes are made of it', async (t) => {
  const name = `sdk-${randomUUID()}`
  const lines = []
  const template = Template({ fileContextPath: contextDir(t) })
    .fromBaseImage()
    .copy('folder/*', 'folder', { forceUpload: true })
    .setEnvs({ GREETING: 'hello' })
    .setWorkdir('/app')
    .runCmd('echo "$GREETING" > greeting', { user: 'root' })
    .setStartCmd('python3 -m http.server 8321', waitForPort(8321))
  const built = await Template.build(template, name, { cpuCount: 1, memoryMB: 512, onBuildLogs: (l) => lines.push(l.message) })
  assert.ok(built.templateId && built.buildId)
  assert.ok(lines.some((l) => l.includes('RUN echo')), lines.join('\n'))
  assert.equal(await Template.exists(name), true)
  assert.equal(await Template.exists(`${name}-not`), false)

  const made = await Sandbox.create(name, { timeoutMs: 120_000 })
  t.after(() => made.kill())
  const run = await made.commands.run('cat /app/greeting ~/folder/a.txt; readlink ~/folder/link.txt; curl -s -o /dev/null -w "%{http_code}" localhost:8321')
  assert.equal(run.stdout, 'hello\ncontenta.txt\n200')
})

test('tags lead to builds', async (t) => {
  const name = `sdk-${randomUUID()}`
  const built = await Template.build(Template().fromTemplate('base').runCmd('echo 1 > ~/v'), `${name}:v1`)
  const tagged = await Template.assignTags(`${name}:v1`, ['stable', 'latest'])
  assert.equal(tagged.buildId, built.buildId)
  assert.deepEqual((await Template.getTags(built.templateId)).map((x) => x.tag).sort(), ['latest', 'stable', 'v1'])
  await Template.removeTags(name, 'latest')
  const box = await sandbox(t)
  await box.kill()
  const made = await Sandbox.create(`${name}:stable`, { timeoutMs: 60_000 })
  t.after(() => made.kill())
  assert.equal((await made.commands.run('cat ~/v')).stdout, '1\n')
  await assert.rejects(Sandbox.create(`${name}:latest`))
})

test('a build that fails says where', async () => {
  const template = Template().fromTemplate('base').runCmd('true').runCmd('exit 3')
  await assert.rejects(Template.build(template, `sdk-${randomUUID()}`), /failed to run command 'exit 3': exit status 3/)
})

test('a build in the background is building', async () => {
  const template = Template().fromTemplate('base').skipCache().runCmd('sleep 3')
  const info = await Template.buildInBackground(template, `sdk-${randomUUID()}`)
  assert.equal((await Template.getBuildStatus(info)).status, 'building')
})
