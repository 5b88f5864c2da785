/** The API as its tools see it: OpenAPI, the text of the GraphQL schema. */
import { Validator } from '@seriousme/openapi-schema-validator';
import { buildSchema } from 'graphql';
import t from 'tap';
import { createLibrary, get, request, startDatabase, startTestService, withSql } from './support.js';

t.setTimeout(120_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'specs');
await withSql(databaseUrl, async (sql) => {
  await sql`create table settings (id serial primary key, title text)`;
  await sql`insert into service_collections (collection, singleton) values ('settings', true)`;
  await sql`create table "odd name/✓" (id uuid primary key default gen_random_uuid(), "a b" int[], kind text)`;
  await sql`create type mood as enum ('sad', 'ok')`;
  await sql`alter table "odd name/✓" add column mood mood not null default 'ok'`;
});
const service = await startTestService({ databaseUrl });

interface Api {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, { readonly operationId: string }>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, { readonly properties: object }>> };
}

t.test('OpenAPI: valid by the schema of version 3.1, and every path answers', async (t) => {
  const answer = await get(service, '/server/specs/oas');
  t.match(answer, { status: 200, headers: { 'content-type': 'application/json; charset=utf-8' } });
  const api = answer.json as Api;
  const result = await new Validator().validate(answer.json as Record<string, unknown>);
  t.strictSame(result, { valid: true }, 'valid');
  t.equal(api.openapi, '3.1.0');
  t.match(api.components.schemas['Items.articles'], {
    properties: { title: { type: 'string' }, rating: { type: ['string', 'null'] } },
  });
  t.ok(api.paths['/items/settings']?.patch && !api.paths['/items/settings/{key}'], 'a singleton has one path');
  const ids = Object.values(api.paths).flatMap((path) => Object.values(path).map((each) => each.operationId));
  t.equal(new Set(ids).size, ids.length, 'operations have different ids');
  t.ok(ids.length > 60, `${ids.length} operations`);
  for (const [path, operations] of Object.entries(api.paths)) {
    for (const method of Object.keys(operations)) {
      const body = method === 'get' ? undefined : '{}';
      const headers = { 'content-type': 'application/json', ...(body ? { 'content-length': '2' } : {}) };
      const filled = path.replace('{scope}', 'items').replace(/\{\w+\}/g, 'none');
      const { status, json } = await request(service, method.toUpperCase(), filled, {
        headers,
        ...(body ? { body } : {}),
      });
      const code = (json as { errors?: { extensions: { code: string } }[] })?.errors?.[0]?.extensions.code;
      t.ok(status < 500 && code !== 'ROUTE_NOT_FOUND', `${method} ${path}: ${status} ${code ?? ''}`);
    }
  }
});

t.test('who may see nothing finds no collections in it', async (t) => {
  const api = (await get(service, '/server/specs/oas', { token: null })).json as Api;
  t.strictSame(Object.keys(api.components.schemas), ['Error']);
  t.notOk(Object.keys(api.paths).some((path) => path.startsWith('/items/')));
  t.ok(api.paths['/auth/login']);
});

t.test('the schema of GraphQL as text', async (t) => {
  for (const [path, root] of [
    ['/server/specs/graphql', 'articles'],
    ['/server/specs/graphql/items', 'articles'],
    ['/server/specs/graphql/system', 'users'],
  ] as const) {
    const answer = await get(service, path);
    t.match(answer.headers['content-disposition'], /attachment; filename="(items|system)\.graphql"/);
    const schema = buildSchema(answer.text);
    t.ok(schema.getQueryType()?.getFields()[root], path);
    t.ok(schema.getType('service_roles') || root === 'articles', 'types of both scopes are shared');
  }
  t.equal((await get(service, '/server/specs/graphql/nope')).status, 404);
  const closed = await startTestService({ databaseUrl, GRAPHQL_INTROSPECTION: 'false' });
  t.equal((await get(closed, '/server/specs/graphql')).status, 403);
});
