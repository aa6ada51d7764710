// SPDX-License-Identifier: Apache-2.0
// What every SDK test of this folder shares: a sandbox that ends with its test, and waiting for a condition instead of for a time.
import { randomUUID } from 'node:crypto'
import { Sandbox } from 'e2b'

export const URL_OF_SANDBOXES = process.env.E2B_SANDBOX_URL

/** A sandbox that is killed when test `t` ends, whatever became of it meanwhile. */
export async function sandbox(t, opts = {}) {
  const made = await Sandbox.create({ timeoutMs: 120_000, ...opts })
  t.after(() => made.kill())
  return made
}

/** Metadata that no other sandbox has. */
export function unique(more = {}) {
  return { test: randomUUID(), ...more }
}

/** Calls `probe` until it returns something truthy, and returns that; undefined after `limitMs`. */
export async function until(probe, limitMs = 60_000, everyMs = 50) {
  const end = Date.now() + limitMs
  for (;;) {
    const value = await probe()
    if (value) return value
    if (Date.now() > end) return undefined
    await pause(everyMs)
  }
}

export function pause(ms) {
  return new Promise((done) => setTimeout(done, ms))
}

/** What a stream of bytes holds. */
export async function drain(stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks)
}

/** All pages of a list. */
export async function everything(paginator) {
  const all = []
  while (paginator.hasNext) all.push(...(await paginator.nextItems()))
  return all
}

/** Sends a request to a port inside a sandbox, through the service. */
export function inside(box, port, path = '/', init = {}) {
  const headers = { ...init.headers, 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': String(port) }
  return fetch(URL_OF_SANDBOXES + path, { ...init, headers })
}
