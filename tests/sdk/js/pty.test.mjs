// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CommandExitError } from 'e2b'
import { sandbox, until } from './lib.mjs'

/** A terminal and what it has shown so far. */
async function terminal(box, opts = {}) {
  const decoder = new TextDecoder()
  const screen = { text: '' }
  const onData = (data) => { screen.text += decoder.decode(data, { stream: true }) }
  screen.pty = await box.pty.create({ cols: 80, rows: 24, onData, ...opts })
  screen.type = (text) => box.pty.sendInput(screen.pty.pid, new TextEncoder().encode(text))
  screen.shows = (pattern) => until(() => pattern.test(screen.text), 20_000)
  return screen
}

test('a terminal is one: a shell, a size, a type', async (t) => {
  const box = await sandbox(t)
  const screen = await terminal(box, { envs: { MARK: 'set' }, cwd: '/tmp' })
  await screen.type('tty; tput cols; tput lines; echo "$TERM $MARK $PWD"; exit\n')
  const { exitCode } = await screen.pty.wait()
  assert.equal(exitCode, 0)
  assert.match(screen.text, /\/dev\/pts\/\d+\r\n80\r\n24\r\nxterm-256color set \/tmp\r\n/)
})

test('a terminal can be resized', async (t) => {
  const box = await sandbox(t)
  const screen = await terminal(box)
  await screen.type('trap "echo size-$(echo changed)" WINCH; echo read""y\n')
  assert.ok(await screen.shows(/[\r\n]ready\r/), screen.text)
  await box.pty.resize(screen.pty.pid, { cols: 132, rows: 50 })
  await screen.type('\n')
  assert.ok(await screen.shows(/size-changed/), `no SIGWINCH: ${screen.text}`)
  await screen.type('stty size; exit\n')
  await screen.pty.wait()
  assert.match(screen.text, /[\r\n]50 132\r/)
})

test('keys have their meaning in a terminal', async (t) => {
  const box = await sandbox(t)
  const screen = await terminal(box)
  await screen.type('echo rea""dy; cat; echo inter""rupted\n')
  assert.ok(await screen.shows(/[\r\n]ready\r/), screen.text) // while bash reads a line, it is bash that echoes
  await screen.type('echoed\n')
  assert.ok(await screen.shows(/echoed\r\nechoed\r\n/), screen.text)
  await screen.type('\x03')
  assert.ok(await screen.shows(/\^C[^]*\$ /), screen.text) // what comes before bash asks for more is lost, as on any terminal
  await screen.type('echo sleep""ing; sleep 60\n')
  assert.ok(await screen.shows(/[\r\n]sleeping\r/), screen.text)
  await screen.type('\x03')
  assert.ok(await screen.shows(/\^C[^]*\^C[^]*\$ /), screen.text)
  await screen.type('echo al""ive; exit 7\n')
  await assert.rejects(screen.pty.wait(), (error) => error instanceof CommandExitError && error.exitCode === 7)
  assert.match(screen.text, /[\r\n]alive\r/)
})

test('a terminal survives its client and takes another', async (t) => {
  const box = await sandbox(t)
  const screen = await terminal(box)
  await screen.type('KEPT=yes; echo go""ing\n')
  assert.ok(await screen.shows(/[\r\n]going\r/), screen.text)
  await screen.pty.disconnect()
  let text = ''
  const again = await box.pty.connect(screen.pty.pid, { onData: (data) => { text += Buffer.from(data).toString() } })
  await screen.type('echo "kept $KEPT"; exit\n')
  assert.equal((await again.wait()).exitCode, 0)
  assert.match(text, /[\r\n]kept yes\r/)
})

test('a terminal is killed, with what runs in it', async (t) => {
  const box = await sandbox(t)
  const screen = await terminal(box)
  const alive = async () => (await box.commands.run('kill -0 "$(cat pid)" 2>/dev/null && echo alive || true')).stdout !== ''
  await screen.type('sh -c \'echo $$ >~/pid; exec sleep 4242\'\n')
  assert.ok(await until(alive), 'sleep does not run')
  assert.equal(await box.pty.kill(screen.pty.pid), true)
  assert.ok(await until(async () => !(await alive())), 'sleep goes on')
  assert.equal(await box.pty.kill(screen.pty.pid), false)
  assert.equal(await box.pty.kill(999_999), false)
})
