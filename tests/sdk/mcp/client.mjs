// SPDX-License-Identifier: Apache-2.0
// client.mjs URL KEY | client.mjs COMMAND: the session era by the TypeScript SDK, over HTTP or stdio. Prints one JSON object with what it saw.
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'

const [where, key] = process.argv.slice(2)
const transport = key
  ? new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers: { Authorization: `Bearer ${key}` } } })
  : new StdioClientTransport({ command: where, args: ['mcp'], env: process.env })
const client = new Client({ name: 'cove-tests', version: '1' }, { capabilities: { elicitation: {} } })
const seen = { asked: [], progress: 0 }
client.setRequestHandler(ElicitRequestSchema, async request => {
  seen.asked.push(request.params.message)
  return { action: 'accept', content: { allow: true } }
})
await client.connect(transport)
const tool = async (name, args, options) => (await client.callTool({ name, arguments: args }, undefined, options)).structuredContent
seen.tools = (await client.listTools()).tools.map(t => t.name)
const { sandbox } = await tool('sandbox_create', {})
seen.sandbox = sandbox
seen.exec = await tool('exec', { sandbox, command: 'for i in 1 2 3 4; do echo $i; sleep 0.3; done; exit 3' },
  { onprogress: () => { seen.progress += 1 } })
seen.granted = await tool('request_grant', { sandbox, hosts: ['a.example'], reason: 'to see' })
seen.denied = (await client.callTool({ name: 'file_read', arguments: { sandbox, path: '/nowhere' } })).isError
await tool('file_write', { sandbox, path: '/tmp/x', content: 'one\n' })
seen.file = (await client.readResource({ uri: `cove://${sandbox}/files/tmp/x` })).contents[0].text
seen.resources = (await client.listResources()).resources.length
// What is cancelled ends, and the connection goes on.
const cut = new AbortController()
setTimeout(() => cut.abort('enough'), 500)
seen.cancelled = await tool('exec', { sandbox, command: 'sleep 60' }, { signal: cut.signal }).then(() => false, () => true)
seen.left = await tool('exec', { sandbox, command: 'sleep 1; pgrep -c sleep || true' })
if (key) await transport.terminateSession()
await client.close()
console.log(JSON.stringify(seen))
