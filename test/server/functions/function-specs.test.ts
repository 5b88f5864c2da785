/** Functions in the descriptions of the API: OpenAPI, and the types for TypeScript. */
import { Validator } from '@seriousme/openapi-schema-validator';
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import { createLibrary, get, loadSchemas, startDatabase, startTestService, withSql } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'specs_of_functions');
await loadSchemas(databaseUrl, ['functions.sql']);
const service = await startTestService({ databaseUrl });

interface Api {
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}

t.test('OpenAPI says what functions take and answer', async (t) => {
  const api = (await get(service, '/server/specs/oas')).json as Api;
  t.strictSame(await new Validator().validate(api as unknown as Record<string, unknown>), { valid: true });
  t.match(api.paths['/rpc/add'], {
    get: {
      parameters: [
        { name: 'a', required: true, schema: { type: ['integer', 'null'] } },
        { name: 'b', required: false },
      ],
    },
    post: {
      requestBody: {
        content: { 'application/json': { schema: { anyOf: [{ properties: { a: {}, b: {} }, required: ['a'] }] } } },
      },
      responses: {
        200: {
          content: {
            'application/json': { schema: { properties: { data: { anyOf: [{ type: ['integer', 'null'] }] } } } },
          },
        },
      },
    },
  });
  t.match(api.paths['/rpc/articles_of'], {
    post: {
      responses: {
        200: {
          content: {
            'application/json': {
              schema: { properties: { data: { anyOf: [{ items: { $ref: '#/components/schemas/Items_articles' } }] } } },
            },
          },
        },
      },
    },
  });
  t.notOk(api.paths['/rpc/count_up']?.['get'], 'what may write is called by POST');
  t.ok(api.paths['/rpc/count_up']?.['post']);
  for (const name of ['secret', 'unnamed', 'version', 'missing']) t.notOk(api.paths[`/rpc/${name}`], name);
  t.ok(api.paths['/functions/{key}']?.['patch']);
});

t.test('a caller finds what they may call', async (t) => {
  const { token } = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'adder', [{ permissions: [{ collection: 'add', action: 'execute' }] }]),
  );
  const api = (await get(service, '/server/specs/oas', { token })).json as Api;
  t.strictSame(
    Object.keys(api.paths).filter((path) => path.startsWith('/rpc/')),
    ['/rpc/add'],
  );
});

t.test('the types for TypeScript have them', async (t) => {
  const { output, code } = await runCommand(['types'], { DATABASE_URL: databaseUrl });
  t.equal(code, 0);
  t.match(output, 'export interface Functions {');
  t.match(output, '  add: { arguments: { a: number | null; b?: number | null }; returns: number | null };');
  t.match(output, '  articles_of: { arguments: { writer: number | null }; returns: Articles[] };');
  t.match(output, '  numbers: { arguments: { up_to: number | null }; returns: (number | null)[] };');
  t.match(output, /spread: \{ arguments: .*; returns: \{ low: number \| null; high: number \| null \} \| null \};/);
  t.match(output, /area: \{ arguments: \{ side: .*\} \| \{ arguments: \{ width: /);
});
