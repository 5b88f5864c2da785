/**
 * MCP's own conformance tests and its official client against /mcp, in exact versions from npm. They are downloaded into a temporary
 * folder, so it is no part of `npm test`; without a registry nothing is tested, and it says so.
 */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, request as openRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { makeCaller } from '../support/callers.js';
import { findRegistry, installPackages } from '../support/registry.js';
import { ADMIN_TOKEN, connectSql, createLibrary, startDatabase, startTestService } from '../support/service.js';

t.setTimeout(900_000);
const run = promisify(execFile);

const CONFORMANCE = '@modelcontextprotocol/conformance@0.1.16';
const CLIENT = '@modelcontextprotocol/sdk@1.32.2';

/** The conformance tests need Node 22. Packages of npm have the program of Node itself. */
const NEWER_NODE = `node-${process.platform}-${process.arch}`;
const isNewer = Number(process.versions.node.split('.')[0]) >= 22;

/**
 * Scenarios that ask for the tools, prompts and resources of MCP's own example, such as a tool "test_simple_text", or for capabilities that
 * this server does not offer: logging, completion, prompts, resources and streams. All others must succeed.
 */
const NOT_OFFERED = [
  'logging-set-level',
  'completion-complete',
  'tools-call-simple-text',
  'tools-call-image',
  'tools-call-audio',
  'tools-call-embedded-resource',
  'tools-call-mixed-content',
  'tools-call-with-logging',
  'tools-call-error',
  'tools-call-with-progress',
  'tools-call-sampling',
  'tools-call-elicitation',
  'json-schema-2020-12',
  'elicitation-sep1034-defaults',
  'elicitation-sep1330-enums',
  'resources-list',
  'resources-read-text',
  'resources-read-binary',
  'resources-templates-read',
  'resources-subscribe',
  'resources-unsubscribe',
  'prompts-list',
  'prompts-get-simple',
  'prompts-get-with-args',
  'prompts-get-embedded-resource',
  'prompts-get-with-image',
];

/** The scenarios that check something here. One more, `server-sse-polling`, has nothing to check without streams. */
const OFFERED = ['server-initialize', 'ping', 'tools-list', 'server-sse-multiple-streams', 'dns-rebinding-protection'];

/** The conformance tests send no token, so this adds one. */
async function startProxy(target: string, token: string): Promise<string> {
  const proxy = createServer((incoming, outgoing) => {
    const headers = { ...incoming.headers, authorization: `Bearer ${token}` };
    const sent = openRequest(`${target}${incoming.url}`, { method: incoming.method ?? 'GET', headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    sent.on('error', () => outgoing.destroy());
    incoming.pipe(sent);
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  t.teardown(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
}

const missing = await findRegistry(CLIENT);
t.test('agents', { skip: missing }, async (t) => {
  const packages = [CONFORMANCE, CLIENT, ...(isNewer ? [] : [`${NEWER_NODE}@22`])];
  const folder = await installPackages(packages);
  const server = await startDatabase();
  const databaseUrl = await createLibrary(server, 'agents');
  const sql = connectSql(databaseUrl);
  t.teardown(() => sql.end());
  await sql.unsafe(`
    create function double_of(n int) returns int language sql immutable as 'select n * 2';
    insert into service_functions (name) values ('double_of')`);
  const reader = await makeCaller(sql, 'agent-reader', [
    { permissions: [{ collection: 'tags', action: 'read', fields: ['*'], permissions: {} }] },
  ]);
  const service = await startTestService({ databaseUrl, WORKERS: '1', MCP: 'write' });

  await t.test('the conformance tests of MCP succeed', async (t) => {
    const url = await startProxy(service.url, ADMIN_TOKEN);
    const node = isNewer ? process.execPath : join(folder, 'node_modules', NEWER_NODE, 'bin', 'node');
    const program = join(folder, 'node_modules', '@modelcontextprotocol', 'conformance', 'dist', 'index.js');
    const baseline = join(folder, 'not-offered.yaml');
    await writeFile(baseline, JSON.stringify({ server: NOT_OFFERED }));
    const words = [program, 'server', '--url', `${url}/mcp`, '--suite', 'all', '--expected-failures', baseline];
    const options = { cwd: folder, timeout: 300_000, maxBuffer: 2 ** 26 };
    const { failure, text } = await run(node, words, options).then(
      ({ stdout }) => ({ failure: '', text: stdout }),
      ({ stdout, stderr }: { stdout: string; stderr: string }) => ({ failure: stdout + stderr, text: stdout }),
    );
    t.equal(failure.slice(-3_000), '', 'every scenario succeeds, apart from those of NOT_OFFERED');
    for (const scenario of OFFERED) t.match(text, new RegExp(`✓ ${scenario}: [1-9]\\d* passed, 0 failed`), scenario);
  });

  await t.test('the official client lists and calls every tool', async (t) => {
    await writeFile(join(folder, 'client.mjs'), PROGRAM);
    const calls = JSON.stringify(CALLS);
    const { stdout } = await run(process.execPath, ['client.mjs', service.url, ADMIN_TOKEN, calls], { cwd: folder });
    const { listed, results } = JSON.parse(stdout) as Told;
    t.strictSame([...new Set(CALLS.map(([name]) => name))].sort(), [...listed].sort(), 'every tool is called');
    for (const [position, [name, , wanted]] of CALLS.entries()) t.match(results[position], wanted, name);
    t.strictSame([...(await sql`select name from tags where id in (9001, 9002)`)], []);
    t.strictSame(
      [
        ...(await sql`select distinct user_agent from service_activity where action like 'mcp.%' and user_agent like '%trial%'`),
      ],
      [{ user_agent: 'mcp: trial 1.2.3' }],
    );
  });

  await t.test('the official client of a reader sees the tools, and is refused writes', async (t) => {
    const calls = JSON.stringify([
      ['read', { collection: 'tags', limit: 1 }],
      ['create', { collection: 'tags', items: [{ name: 'x' }] }],
      ['read', { collection: 'authors' }],
    ]);
    const { stdout } = await run(process.execPath, ['client.mjs', service.url, reader.token, calls], { cwd: folder });
    const { results } = JSON.parse(stdout) as Told;
    t.strictSame(
      results.map(({ isError }) => isError),
      [false, true, true],
    );
  });
});

interface Told {
  readonly listed: readonly string[];
  readonly results: readonly { readonly isError: boolean; readonly answer: unknown }[];
}

/** A tool, its arguments, and what the result must match. */
const CALLS: readonly [string, object, object][] = [
  ['describe', {}, { isError: false, answer: { collections: [{ collection: /./ }] } }],
  ['describe', { collection: 'articles' }, { isError: false, answer: { fields: [{ field: /./ }] } }],
  [
    'read',
    { collection: 'articles', fields: ['title', 'author.name'], limit: 1 },
    { answer: { data: [{ title: /./ }] } },
  ],
  ['aggregate', { collection: 'articles', aggregate: { count: '*' } }, { isError: false, answer: { data: [{}] } }],
  ['search', { collection: 'articles', text: 'hello' }, { isError: false, answer: { data: [{}] } }],
  ['explain', { collection: 'tags' }, { isError: false, answer: { sql: /select/ } }],
  ['why', { collection: 'tags', action: 'update' }, { isError: false, answer: { allowed: true } }],
  ['call', { function: 'double_of', arguments: { n: 21 } }, { isError: false, answer: { data: 42 } }],
  [
    'create',
    { collection: 'tags', items: [{ id: 9001, name: 'a' }] },
    { answer: { created: 1, data: [{ id: 9001 }] } },
  ],
  [
    'create',
    { collection: 'tags', items: [{ id: 9002, name: 'b' }], dry_run: true },
    { answer: { would_be_created: 1 } },
  ],
  [
    'update',
    { collection: 'tags', keys: [9001], data: { name: 'c' } },
    { answer: { updated: 1, data: [{ name: 'c' }] } },
  ],
  ['delete', { collection: 'tags', filter: { id: { _eq: 9001 } } }, { answer: { deleted: 1, data: [{ name: 'c' }] } }],
  ['read', { collection: 'nothing' }, { isError: true }],
];

const PROGRAM = `
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
const [, , url, token, calls] = process.argv;
const headers = { authorization: 'Bearer ' + token };
const client = new Client({ name: 'trial', version: '1.2.3' });
await client.connect(new StreamableHTTPClientTransport(new URL(url + '/mcp'), { requestInit: { headers } }));
const { tools } = await client.listTools();
const results = [];
for (const [name, input] of JSON.parse(calls)) {
  const { isError = false, content } = await client.callTool({ name, arguments: input });
  results.push({ isError, answer: isError ? content[0].text : JSON.parse(content[0].text) });
}
await client.ping();
await client.close();
console.log(JSON.stringify({ listed: tools.map(({ name }) => name), results }));
`;
