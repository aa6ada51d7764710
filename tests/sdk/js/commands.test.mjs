// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError } from 'e2b'
import { sandbox, until } from './lib.mjs'

test('a command gives its output and exit code', async (t) => {
  const box = await sandbox(t)
  const { stdout, stderr, exitCode, error } = await box.commands.run('echo out; echo err >&2')
  assert.deepEqual({ stdout, stderr, exitCode, error }, { stdout: 'out\n', stderr: 'err\n', exitCode: 0, error: undefined })
})

test('a failing command says how it failed', async (t) => {
  const box = await sandbox(t)
  await assert.rejects(box.commands.run('echo before; echo why >&2; exit 42'), (error) => {
    assert.ok(error instanceof CommandExitError)
    assert.deepEqual([error.exitCode, error.stdout, error.stderr, error.error], [42, 'before\n', 'why\n', 'exit status 42'])
    return true
  })
  await assert.rejects(box.commands.run('no-such-command'), (error) => error.exitCode === 127)
})

test('a command killed by a signal says which', async (t) => {
  const box = await sandbox(t)
  for (const [signal, text] of [['KILL', 'signal: killed'], ['TERM', 'signal: terminated'], ['SEGV', 'signal: segmentation fault']]) {
    await assert.rejects(box.commands.run(`kill -${signal} $$`), (error) => {
      assert.deepEqual([error.exitCode, error.error], [-1, text])
      return true
    })
  }
})

test('output is streamed while the command runs', async (t) => {
  const box = await sandbox(t)
  const seen = []
  const command = await box.commands.run('echo first; read -r line; echo "then $line"', {
    background: true, stdin: true, onStdout: (data) => { seen.push(data) }
  })
  assert.ok(await until(() => seen.join('') === 'first\n'), `saw ${JSON.stringify(seen)}`)
  await command.sendStdin('second\n')
  assert.equal((await command.wait()).stdout, 'first\nthen second\n')
  assert.equal(seen.join(''), 'first\nthen second\n')
})

test('long output arrives whole', async (t) => {
  const box = await sandbox(t)
  const { stdout } = await box.commands.run('seq 1 500000')
  const lines = stdout.split('\n')
  assert.equal(lines.length, 500_001)
  assert.equal(lines[499_999], '500000')
  assert.ok(lines.slice(0, -1).every((line, i) => line === String(i + 1)), 'a line is missing or damaged')
})

test('characters are not torn apart', async (t) => {
  const box = await sandbox(t)
  const { stdout } = await box.commands.run(`python3 -c "print('x' + 'é\u{1f600}' * 100000)"`)
  assert.equal(stdout, 'x' + 'é\u{1f600}'.repeat(100_000) + '\n')
})

test('a command starts in the home directory, or where it is told to', async (t) => {
  const box = await sandbox(t)
  const pwd = async (cwd) => (await box.commands.run('pwd', { cwd })).stdout.trim()
  await box.files.makeDir('some where')
  assert.equal(await pwd(undefined), '/home/user')
  assert.equal(await pwd('/etc'), '/etc')
  assert.equal(await pwd('some where'), '/home/user/some where')
  assert.equal(await pwd('~/some where'), '/home/user/some where')
  await assert.rejects(box.commands.run('pwd', { cwd: '/no/where' }), (error) => {
    assert.ok(error instanceof InvalidArgumentError)
    assert.match(error.message, /cwd '\/no\/where' does not exist/)
    return true
  })
})

test('variables: of the sandbox, of the command, of neither', async (t) => {
  const box = await sandbox(t, { envs: { SHARED: 'sandbox', MINE: 'sandbox' } })
  const out = async (envs) => (await box.commands.run('echo "$SHARED,$MINE,$ONCE"', { envs })).stdout.trim()
  assert.equal(await out({ MINE: 'command', ONCE: 'a "b" $HOME\t\n' }), 'sandbox,command,a "b" $HOME')
  assert.equal(await out(undefined), 'sandbox,sandbox,')
  const { stdout } = await box.commands.run('echo "$E2B_SANDBOX $E2B_SANDBOX_ID $USER $LOGNAME $HOME"')
  assert.equal(stdout.trim(), `true ${box.sandboxId} user user /home/user`)
})

test('commands run as the user, as root if asked, as nobody else', async (t) => {
  const box = await sandbox(t)
  assert.equal((await box.commands.run('id -un; id -gn; id -u')).stdout, 'user\nuser\n1000\n')
  assert.equal((await box.commands.run('id -un; echo $HOME; pwd', { user: 'root' })).stdout, 'root\n/root\n/root\n')
  assert.equal((await box.commands.run('sudo id -un')).stdout, 'root\n')
  await assert.rejects(box.commands.run('id', { user: 'stranger' }), (error) => {
    assert.ok(error instanceof AuthenticationError)
    assert.match(error.message, /invalid username: 'stranger'/)
    return true
  })
})

test('a command that takes too long is ended', async (t) => {
  const box = await sandbox(t)
  await assert.rejects(box.commands.run('echo $$ >pid; exec sleep 60', { timeoutMs: 1000 }), TimeoutError)
  assert.ok(await until(async () => (await box.commands.list()).length === 0), 'it is still listed')
  await assert.rejects(box.commands.run('kill -0 $(cat pid)'), CommandExitError)
})

test('a command without a time limit is not ended', async (t) => {
  const box = await sandbox(t)
  assert.equal((await box.commands.run('sleep 1; echo done', { timeoutMs: 0 })).stdout, 'done\n')
})

test('running commands are listed as they were started', async (t) => {
  const box = await sandbox(t)
  const command = await box.commands.run('sleep 60', { background: true, envs: { A: 'b' }, cwd: '/tmp' })
  const [listed, ...more] = await box.commands.list()
  assert.deepEqual(more, [])
  assert.equal(listed.pid, command.pid)
  assert.equal(listed.cmd, '/bin/bash')
  assert.deepEqual(listed.args, ['-l', '-c', 'sleep 60'])
  assert.deepEqual({ ...listed.envs }, { A: 'b' })
  assert.equal(listed.cwd, '/tmp')
})

test('kill ends a command, once', async (t) => {
  const box = await sandbox(t)
  const command = await box.commands.run('exec sleep 60', { background: true })
  assert.equal(await box.commands.kill(command.pid), true)
  await assert.rejects(box.commands.run(`kill -0 ${command.pid}`), CommandExitError)
  await assert.rejects(command.wait(), (error) => error.exitCode === -1 && error.error === 'signal: killed')
  assert.equal(await box.commands.kill(command.pid), false)
  assert.equal(await command.kill(), false)
  assert.equal(await box.commands.kill(999_999), false)
})

test('a second client sees a running command through', async (t) => {
  const box = await sandbox(t)
  const first = await box.commands.run('read -r line; echo "$line"; exit 3', { background: true, stdin: true })
  const second = await box.commands.connect(first.pid)
  assert.equal(second.pid, first.pid)
  await second.sendStdin('to both\n')
  for (const handle of [first, second]) {
    await assert.rejects(handle.wait(), (error) => error.exitCode === 3 && error.stdout === 'to both\n')
  }
})

test('a client that left finds the command going on', async (t) => {
  const box = await sandbox(t)
  const first = await box.commands.run('read -r line; echo "got $line"', { background: true, stdin: true })
  await first.disconnect()
  const second = await box.commands.connect(first.pid)
  await second.sendStdin('it\n')
  assert.match((await second.wait()).stdout, /got it\n$/)
})

test('a client that comes late still learns how the command ended', async (t) => {
  const box = await sandbox(t)
  const command = await box.commands.run('read -r line; exit 5', { background: true, stdin: true })
  await command.disconnect()
  await box.commands.sendStdin(command.pid, 'go\n')
  assert.ok(await until(async () => (await box.commands.list()).length === 0), 'it has not ended')
  const late = await box.commands.connect(command.pid)
  await assert.rejects(late.wait(), (error) => error instanceof CommandExitError && error.exitCode === 5)
})

test('there is no connecting to a command that never was', async (t) => {
  const box = await sandbox(t)
  await assert.rejects(box.commands.connect(999_999), (error) => {
    assert.ok(error instanceof NotFoundError)
    assert.match(error.message, /process with pid 999999 not found/)
    return true
  })
})

test('standard input: text, bytes, nothing, and its end', async (t) => {
  const box = await sandbox(t)
  const command = await box.commands.run('cat | od -An -v -tx1 | tr -d " \\n"', { background: true, stdin: true })
  const bytes = randomBytes(5000)
  await command.sendStdin('text é\n')
  await command.sendStdin('')
  await command.sendStdin(bytes)
  await command.closeStdin()
  const { stdout } = await command.wait()
  assert.equal(stdout, Buffer.concat([Buffer.from('text é\n'), bytes]).toString('hex'))
})

test('without standard input there is nothing to read and nowhere to write', async (t) => {
  const box = await sandbox(t)
  assert.equal((await box.commands.run('cat; echo end')).stdout, 'end\n')
  const command = await box.commands.run('sleep 60', { background: true })
  await assert.rejects(box.commands.sendStdin(command.pid, 'x'), /stdin/)
  await assert.rejects(box.commands.sendStdin(999_999, 'x'), NotFoundError)
})

test('what a command leaves in the background does not hold it up', async (t) => {
  const box = await sandbox(t)
  const { stdout } = await box.commands.run('sleep 300 >/dev/null 2>&1 & echo $!', { timeoutMs: 20_000 })
  await box.commands.run(`kill -0 ${stdout.trim()}`)
})

test('commands run side by side', async (t) => {
  const box = await sandbox(t)
  const results = await Promise.all(Array.from({ length: 20 }, (_, i) => box.commands.run(`sleep 0.2; echo ${i}`)))
  assert.deepEqual(results.map((r) => r.stdout), Array.from({ length: 20 }, (_, i) => `${i}\n`))
})

test('a command learns that its sandbox was killed', async (t) => {
  const box = await sandbox(t)
  const command = await box.commands.run('sleep 60', { background: true })
  await box.kill()
  await assert.rejects(command.wait(), (error) => {
    assert.ok(error instanceof TimeoutError, `${error}`)
    assert.match(error.message, /the sandbox was killed or reached its end of life/)
    return true
  })
})
