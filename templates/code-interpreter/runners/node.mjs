// SPDX-License-Identifier: Apache-2.0
// One context of JavaScript and TypeScript: Node's own inspector, in this process, between frames (src/sandbox/code/frame.h) on fds 3 and 4. What is written to 1
// and 2 comes out of 5 and 6.
import fs from 'node:fs';
import inspector from 'node:inspector';
import module from 'node:module';
import net from 'node:net';
import path from 'node:path';
import url from 'node:url';
import util from 'node:util';
import vm from 'node:vm';

const READY = 1, STDOUT = 2, STDERR = 3, RESULT = 4, ERROR = 5, COUNT = 6, END = 7;
const RESULT_MAX = 7 << 20;

function write(bytes) {
  for (let at = 0; at < bytes.length;) {
    try {
      at += fs.writeSync(4, bytes, at);
    } catch (e) {
      if (e.code !== 'EAGAIN') process.exit(1);
    }
  }
}

const text = (s) => {
  const bytes = Buffer.isBuffer(s) ? s : Buffer.from(String(s));
  const size = Buffer.alloc(4);
  size.writeUInt32LE(bytes.length);
  return Buffer.concat([size, bytes]);
};
const number = (n) => { const b = Buffer.alloc(4); b.writeUInt32LE(n); return b; };

let pending = [], pendingKind = STDOUT, pendingBytes = 0, timer = null;

function flush() {
  if (timer) clearTimeout(timer);
  timer = null;
  if (!pendingBytes) return;
  const all = text(Buffer.concat(pending)), head = Buffer.alloc(5);
  pending = [];
  pendingBytes = 0;
  head.writeUInt32LE(all.length);
  head[4] = pendingKind;
  write(Buffer.concat([head, all]));
}

function frame(kind, ...parts) {
  flush();
  const payload = Buffer.concat(parts), head = Buffer.alloc(5);
  head.writeUInt32LE(payload.length);
  head[4] = kind;
  write(Buffer.concat([head, payload]));
}

function output(kind, data) {
  if (kind !== pendingKind) flush();
  pendingKind = kind;
  for (let at = 0; at < data.length; at += 32768) {
    const piece = data.subarray(at, at + 32768);
    pending.push(piece);
    pendingBytes += piece.length;
    if (pendingBytes >= 32768) flush();
  }
  if (pendingBytes && !timer) timer = setTimeout(flush, 10);
}

for (const [name, kind] of [['stdout', STDOUT], ['stderr', STDERR]])
  process[name].write = (data, encoding, done) => {
    output(kind, typeof data === 'string' ? Buffer.from(data, typeof encoding === 'string' ? encoding : 'utf8') : Buffer.from(data));
    const after = typeof encoding === 'function' ? encoding : done;
    if (after) process.nextTick(after);
    return true;
  };
const raw = [5, 6].map((fd, i) => {
  const s = new net.Socket({ fd, readable: true, writable: false });
  s.on('data', (data) => output(i ? STDERR : STDOUT, data));
  return s;
});

const session = new inspector.Session();
session.connect();
const host = new vm.Script('globalThis[Symbol.for("cove.post")]()', { filename: 'cove' });
let running = null, count = 0;

// Scripts of the inspector can't import: static imports of a cell, and import(), become calls of this. Packages are those of the directory.
globalThis.__import = (name) => {
  if (module.isBuiltin(name) || /^[a-z]+:/.test(name)) return import(name);
  try {
    return import(url.pathToFileURL(module.createRequire(`${process.cwd()}/`).resolve(name)));
  } catch {
    return import(/^[./]/.test(name) ? url.pathToFileURL(path.resolve(name)) : name);
  }
};
const importsOf = (code) => code
  .replace(/^[ \t]*import\s+(?:(\w+)\s*,\s*)?\{([^}]*)\}\s*from\s*(['"][^'"]+['"]);?/gm, (_, first, names, from) =>
    `var {${first ? `default: ${first}, ` : ''}${names.replace(/\s+as\s+/g, ': ')}} = await __import(${from});`)
  .replace(/^[ \t]*import\s+\*\s+as\s+(\w+)\s+from\s*(['"][^'"]+['"]);?/gm, 'var $1 = await __import($2);')
  .replace(/^[ \t]*import\s+(\w+)\s+from\s*(['"][^'"]+['"]);?/gm, 'var {default: $1} = await __import($2);')
  .replace(/^[ \t]*import\s+(['"][^'"]+['"]);?/gm, 'await __import($1);')
  .replace(/(?<![.\w$])import\s*\(/g, '__import(');

function plain(code) {
  try {
    return module.stripTypeScriptTypes ? module.stripTypeScriptTypes(code, { mode: 'transform' }) : code;
  } catch {
    return code; // what is wrong with it is said when it runs
  }
}

function evaluate(expression, done) {
  globalThis[Symbol.for('cove.post')] = () => session.post('Runtime.evaluate',
    { expression, replMode: true, awaitPromise: true, userGesture: false }, done);
  host.runInThisContext({ breakOnSigint: true, displayErrors: false });
}

function keep(remote, done) {
  const argument = remote.objectId ? { objectId: remote.objectId }
    : remote.unserializableValue ? { unserializableValue: remote.unserializableValue } : { value: remote.value };
  session.post('Runtime.evaluate', { expression: 'globalThis' }, (_, global) =>
    session.post('Runtime.callFunctionOn', { functionDeclaration: 'function (v) { globalThis[Symbol.for("cove.value")] = v; }',
      objectId: global.result.objectId, arguments: [argument] }, () => done(globalThis[Symbol.for('cove.value')])));
}

function tell(v) {
  if (v === undefined) return;
  const data = { 'text/plain': typeof v === 'string' ? `'${v}'` : util.inspect(v, { depth: 4 }) };
  const display = v !== null && typeof v === 'object' && typeof v[Symbol.for('Jupyter.display')] === 'function' ? v[Symbol.for('Jupyter.display')]() : null;
  for (const [kind, one] of Object.entries(display ?? {}))
    data[kind] = typeof one === 'string' && !kind.endsWith('json') ? one : JSON.stringify(one);
  let size = 0;
  const kept = Object.entries(data).filter(([kind, s]) => {
    if (size + Buffer.byteLength(s) <= RESULT_MAX) return (size += Buffer.byteLength(s)), true;
    output(STDERR, Buffer.from(`${kind}: ${s.length} bytes are too many for a result\n`));
    return false;
  });
  frame(RESULT, Buffer.from([1]), number(kept.length), ...kept.flatMap(([kind, s]) => [text(kind), text(s)]));
}

function fail(e) {
  const isError = util.types.isNativeError(e);
  const name = isError ? e.name : 'Error';
  const trace = isError ? String(e.stack).replace(/\n +at (Session\.post|globalThis\.<computed>)[^]*$/, '') : util.inspect(e);
  frame(ERROR, text(name), text(isError ? e.message : trace), text(trace));
}

let undo = () => {};

// What was written to the descriptors comes before the end.
function finish(cell, last) {
  if (running !== cell) return;
  setImmediate(() => setImmediate(() => {
    if (running !== cell) return;
    running = null;
    undo();
    last();
    frame(END, cell);
    next();
  }));
}

function interrupted(cell) {
  finish(cell, () => frame(ERROR, text('KeyboardInterrupt'), text('the cell was interrupted'), text('')));
}

process.on('SIGINT', () => { if (running) interrupted(running); });
process.on('uncaughtException', (e) => { output(STDERR, Buffer.from(`${util.inspect(e)}\n`)); });

function begin(payload) {
  const cell = payload.subarray(0, 8);
  let at = 8;
  const take = () => { const n = payload.readUInt32LE(at); at += 4 + n; return payload.toString('utf8', at - n, at); };
  const code = take(), before = [];
  for (let n = payload.readUInt32LE(at), i = (at += 4, 0); i < n; i++) {
    const name = take();
    before.push([name, process.env[name]]);
    process.env[name] = take();
  }
  undo = () => { for (const [name, old] of before) if (old === undefined) delete process.env[name]; else process.env[name] = old; };
  running = cell;
  frame(COUNT, number(++count));
  const done = (problem, answer) => {
    if (running !== cell) return;
    if (problem) return /terminated/.test(problem.message) ? interrupted(cell) : finish(cell, () => fail(problem));
    if (answer.exceptionDetails) {
      const remote = answer.exceptionDetails.exception ?? { value: answer.exceptionDetails.text };
      return keep(remote, (e) => finish(cell, () => fail(e)));
    }
    keep(answer.result, (v) => Promise.resolve(v).then((end) => finish(cell, () => tell(end)), (e) => finish(cell, () => fail(e))));
  };
  try {
    evaluate(plain(importsOf(code)), done);
  } catch (e) {
    if (e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') interrupted(cell);
    else finish(cell, () => fail(e));
  }
}

let input = Buffer.alloc(0);
function next() {
  while (!running && input.length >= 5 && input.length >= 5 + input.readUInt32LE(0)) {
    const size = input.readUInt32LE(0), payload = Buffer.from(input.subarray(5, 5 + size));
    input = input.subarray(5 + size);
    begin(payload);
  }
}

globalThis.require = module.createRequire(`${process.cwd()}/`);
const requests = new net.Socket({ fd: 3, readable: true, writable: false });
requests.on('data', (data) => { input = Buffer.concat([input, data]); next(); });
requests.on('end', () => process.exit(0));
frame(READY);
