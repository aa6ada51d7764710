// SPDX-License-Identifier: Apache-2.0
// What a sandbox goes through with whatever E2B SDK is named: each step and what it came to, as one line of JSON.
import dns from 'node:dns'

const real = dns.lookup
dns.lookup = (name, options, done) => { // names of the test's domain are this machine
  if (typeof options === 'function') [options, done] = [{}, options]
  if (!name.endsWith('.localhost')) return real(name, options, done)
  if (options.all) return done(null, [{ address: '127.0.0.1', family: 4 }])
  done(null, '127.0.0.1', 4)
}

const { Sandbox } = await import(process.argv[2])
const until = async (check) => {
  for (let i = 0; i < 600 && !check(); i++) await new Promise((r) => setTimeout(r, 100))
}

const steps = {
  run: async (box) => (await box.commands.run('echo hi')).stdout,
  files: async (box) => {
    await box.files.makeDir('/home/user/made')
    await box.files.write('/home/user/made/file.txt', 'text')
    await box.files.rename('/home/user/made/file.txt', '/home/user/made/other.txt')
    const names = (await box.files.list('/home/user/made')).map((entry) => entry.name)
    const text = await box.files.read('/home/user/made/other.txt')
    await box.files.remove('/home/user/made/other.txt')
    return [names, text, await box.files.exists('/home/user/made/other.txt')]
  },
  watch: async (box) => {
    const seen = []
    const handle = await box.files.watchDir('/home/user/made', (event) => void seen.push(event.name))
    await box.files.write('/home/user/made/watched.txt', 'x')
    await until(() => seen.length)
    await handle.stop()
    return seen[0]
  },
  terminal: async (box) => {
    let said = ''
    const handle = await box.pty.create({ rows: 24, cols: 80, onData: (data) => void (said += new TextDecoder().decode(data)) })
    await box.pty.sendInput(handle.pid, new TextEncoder().encode('echo $((40 + 2))_; exit\n'))
    await handle.wait()
    return said.includes('42_')
  },
  background: async (box) => {
    const { pid } = await box.commands.run('sleep 60', { background: true })
    return [(await box.commands.list()).some((p) => p.pid === pid), await box.commands.kill(pid)]
  },
  connect: async (box) => (await (await Sandbox.connect(box.sandboxId)).commands.run('echo again')).stdout,
  pause: async (box) => {
    if (!box.pause && !box.betaPause) return 'none'
    await box.files.write('/home/user/kept', 'kept')
    await (box.pause ? box.pause() : box.betaPause())
    const again = await (Sandbox.resume ? Sandbox.resume(box.sandboxId, { timeoutMs: 120_000 }) : Sandbox.connect(box.sandboxId))
    return await again.files.read('/home/user/kept')
  },
  kill: async (box) => [(await box.kill()) ?? true, await box.isRunning()],
}

const box = await Sandbox.create({ timeoutMs: 120_000 })
const done = {}
for (const [name, step] of Object.entries(steps)) {
  try {
    done[name] = await step(box)
  } catch (error) {
    done[name] = `${error.name}: ${error.message}`
  }
}
console.log(JSON.stringify(done))
process.exit(0)
