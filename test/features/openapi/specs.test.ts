/** The API as its tools see it: OpenAPI, the text of the GraphQL schema. */
import { Validator } from '@seriousme/openapi-schema-validator';
import { buildSchema, type GraphQLInputObjectType, isRequiredInputField } from 'graphql';
import t from 'tap';
import { createLibrary, get, request, startDatabase, startTestService, withSql } from '../../support/service.js';

t.setTimeout(120_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'specs');
await withSql(databaseUrl, async (sql) => {
  await sql`create table settings (id serial primary key, title text)`;
  await sql`insert into service_collections (collection, singleton) values ('settings', true)`;
  await sql`create table "odd name/✓" (id uuid primary key default gen_random_uuid(), "a b" int[], kind text)`;
  await sql`create table "odd name!?" (id serial primary key)`;
  await sql`create type mood as enum ('sad', 'ok')`;
  await sql`alter table "odd name/✓" add column mood mood not null default 'ok'`;
});
const service = await startTestService({ databaseUrl });

interface Operation {
  readonly operationId: string;
  readonly parameters: readonly { readonly $ref?: string; readonly in?: string; readonly name?: string }[];
  readonly requestBody?: { readonly content: Content };
  readonly responses: Readonly<Record<string, { readonly content?: Content }>>;
}

type Content = Readonly<Record<string, { readonly schema: object }>>;

interface Api {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, { readonly properties: object }>> };
}

t.test('OpenAPI: valid by the schema of version 3.1, and every path answers', async (t) => {
  const answer = await get(service, '/server/specs/oas');
  t.match(answer, { status: 200, headers: { 'content-type': 'application/json; charset=utf-8' } });
  const api = answer.json as Api;
  const result = await new Validator().validate(answer.json as Record<string, unknown>);
  t.strictSame(result, { valid: true }, 'valid');
  t.equal(api.openapi, '3.1.0');
  t.match(api.components.schemas['Items_articles'], {
    properties: { title: { type: 'string' }, rating: { type: ['string', 'null'] } },
  });
  t.ok(api.paths['/items/settings']?.['patch'] && !api.paths['/items/settings/{key}'], 'a singleton has one path');
  const ids = Object.values(api.paths).flatMap((path) => Object.values(path).map((each) => each.operationId));
  t.equal(new Set(ids).size, ids.length, 'operations have different ids');
  t.ok(ids.length > 60, `${ids.length} operations`);
  for (const [path, operations] of Object.entries(api.paths)) {
    for (const method of Object.keys(operations)) {
      const body = method === 'get' ? undefined : '{}';
      const headers = { 'content-type': 'application/json', ...(body ? { 'content-length': '2' } : {}) };
      const filled = path
        .replace('{scope}', 'items')
        .replace(/\{\w+\}/g, 'none')
        .replace(/\/traffic$/, '/traffic?for=1s');
      const { status, json } = await request(service, method.toUpperCase(), filled, {
        headers,
        ...(body ? { body } : {}),
      });
      const code = (json as { errors?: { extensions: { code: string } }[] })?.errors?.[0]?.extensions.code;
      t.ok(status < 500 && code !== 'ROUTE_NOT_FOUND', `${method} ${path}: ${status} ${code ?? ''}`);
    }
  }
});

t.test('OpenAPI: every operation says what it takes and answers', async (t) => {
  const api = (await get(service, '/server/specs/oas')).json as Api;
  const names = Object.keys(api.components.schemas);
  t.strictSame(
    names.filter((name) => !/^[A-Za-z0-9_]+$/.test(name)),
    [],
    'names that every generator can write',
  );
  t.ok(names.includes('Items_odd_name__') && names.includes('Items_odd_name___2'), 'names that become the same differ');
  const isTyped = (content: Content): boolean =>
    Object.values(content).every(({ schema }) => Object.keys(schema).length > 0);
  for (const [path, operations] of Object.entries(api.paths)) {
    for (const [method, { requestBody, responses }] of Object.entries(operations)) {
      const name = `${method} ${path}`;
      const bare =
        /^post \/(utils\/cache\/clear|users\/{key}\/(tfa\/disable|password-token)|webhooks\/{key}\/(test|pause|resume|rotate))$/.test(
          name,
        );
      if (method === 'post' || method === 'patch') t.ok(bare || (requestBody && isTyped(requestBody.content)), name);
      const answers = Object.entries(responses).filter(([status]) => status !== 'default');
      t.ok(answers.length > 0 && answers.every(([, { content }]) => !content || isTyped(content)), `answers: ${name}`);
      if (method === 'get' && !responses[302]) t.ok(responses[200]?.content, `${name} shows something`);
    }
  }
  const list = api.paths['/items/articles']?.['get']?.parameters.map(({ $ref = '' }) => $ref.split('/').at(-1));
  for (const each of ['fields', 'alias', 'having', 'cursor', 'backlink', 'export', 'groupBy'])
    t.ok(list?.includes(each), each);
  t.match(api.paths['/items/articles/{key}']?.['get']?.parameters[0], { name: 'key', schema: { type: 'integer' } });
  t.match(api.paths['/users']?.['get']?.responses[200]?.content?.['application/json'], {
    schema: { properties: { data: { items: { $ref: '#/components/schemas/service_users' } } } },
  });
});

t.test('OpenAPI: a new item needs the fields that it needs in GraphQL', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql
      .unsafe(`
        create table films (
          id serial primary key, title text not null, length int, status text not null default 'new', maker text not null
        );
        insert into service_fields (collection, field, special) values ('films', 'maker', 'user-created');
        create table filled (id uuid primary key default gen_random_uuid(), lexemes tsvector not null);
        create function fill() returns trigger language plpgsql as $$ begin new.lexemes := ''; return new; end $$;
        create trigger fill before insert on filled for each row execute function fill();
        create table keyed (code text primary key)`)
      .simple(),
  );
  const fresh = await startTestService({ databaseUrl });
  const api = (await get(fresh, '/server/specs/oas')).json as Api;
  const graphql = buildSchema((await get(fresh, '/server/specs/graphql/items')).text);
  const bodyOf = (method: string, path: string): unknown =>
    api.paths[path]?.[method]?.requestBody?.content['application/json']?.schema;
  for (const [collection, required] of Object.entries({ films: ['title'], filled: [], keyed: ['code'] })) {
    const item = { $ref: `#/components/schemas/Items_${collection}` };
    const made = required.length > 0 ? { allOf: [item, { required }] } : item;
    t.strictSame(bodyOf('post', `/items/${collection}`), { anyOf: [made, { type: 'array', items: made }] }, collection);
    const changed = bodyOf('patch', `/items/${collection}/{key}`);
    t.strictSame(
      collection === 'films' ? (changed as { anyOf: unknown[] }).anyOf[0] : changed,
      item,
      'a change needs none',
    );
    const input = graphql.getType(`create_${collection}_input`) as GraphQLInputObjectType;
    const needed = Object.values(input.getFields()).filter(isRequiredInputField);
    t.strictSame(
      needed.map(({ name }) => name),
      required,
      'as in GraphQL',
    );
  }
  const operator = (name: string): object => ({ $ref: `#/components/schemas/${name}Operator` });
  t.match(bodyOf('patch', '/items/films/{key}'), {
    anyOf: [
      {},
      {
        properties: {
          id: undefined,
          length: {
            anyOf: [{ type: ['integer', 'null'] }, operator('Increment'), operator('Decrement'), operator('Set')],
          },
          title: { anyOf: [{ type: 'string' }, operator('Append'), operator('Set')] },
        },
      },
    ],
  });
  t.strictSame(await new Validator().validate(api as unknown as Record<string, unknown>), { valid: true });
});

t.test('a caller who may see nothing finds no collections in it', async (t) => {
  const api = (await get(service, '/server/specs/oas', { token: null })).json as Api;
  t.notOk(Object.keys(api.components.schemas).some((name) => /^(Items|service)_/.test(name)));
  t.notOk(api.paths['/users']);
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
