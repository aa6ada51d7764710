// SPDX-License-Identifier: Apache-2.0
// h2.mjs LOG CERTIFICATE KEY PORT: the offline internet's HTTP/2 server (HTTP/1.1 too, when that is asked for), beside the canary and into the same log.
// POST /cove.Echo/Say is a unary call of gRPC that answers with its argument; /redirect?to=URL; /hold ends when /release is asked for, with what came as x-key in a trailer;
// anything else "hello h2".
import fs from 'node:fs'
import http2 from 'node:http2'

const [log, certificate, key, port] = process.argv.slice(2)
const out = fs.openSync(log, 'a')

function note(what, more) {
  fs.writeSync(out, JSON.stringify({ what, at: Date.now() / 1000, ...more }) + '\n')
}

const held = []
const server = http2.createSecureServer({ cert: fs.readFileSync(certificate), key: fs.readFileSync(key), allowHTTP1: true })
server.on('secureConnection', (socket) => note('connection', { port: Number(port), alpn: socket.alpnProtocol }))
server.on('request', (request, response) => {
  const body = []
  request.on('data', (data) => body.push(data))
  request.on('end', () => {
    const all = Buffer.concat(body)
    note('request', {
      method: request.method, path: request.url, host: request.headers[':authority'] ?? request.headers.host, port: Number(port), version: request.httpVersion,
      sni: request.socket.servername ?? request.stream?.session?.socket?.servername, headers: { ...request.headers }, body: all.toString('latin1'), length: all.length,
    })
    if (request.headers['content-type'] === 'application/grpc') {
      response.writeHead(200, { 'content-type': 'application/grpc' })
      response.addTrailers({ 'grpc-status': '0' })
      response.end(all)
    } else if (request.url === '/hold') {
      response.writeHead(200)
      response.write('held')
      response.addTrailers({ 'x-back': request.headers['x-key'] })
      held.push(response)
    } else if (request.url === '/release') {
      held.splice(0).forEach((r) => r.end())
      response.end()
    } else if (request.url.startsWith('/redirect?to=')) {
      response.writeHead(302, { location: decodeURIComponent(request.url.slice(13)) })
      response.end()
    } else {
      response.writeHead(200, { 'content-type': 'text/plain' })
      response.end('hello h2\n')
    }
  })
})
server.on('sessionError', (error) => note('error', { error: String(error) }))
server.listen(Number(port), '::', () => note('ready', { port: Number(port) }))
process.stdin.on('end', () => process.exit()).resume()
