/**
 * Operators and functions that fit better than PostgreSQL's own, made by a role that may create in `public`. None of them runs: each
 * would end its statement, and with it the request.
 */
import t from 'tap';
import { runCommand } from '../../support/command.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

t.setTimeout(110_000);

const server = await startDatabase({ own: true });
const databaseUrl = await createLibrary(server, 'hijacked');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

const TYPES = `'varchar', 'name', '"char"', 'oid', 'int4', 'text', 'jsonb', 'int2[]', 'text[]', 'uuid', 'mood', 'short_name'`;
const OPERATORS = ['=', '<>', '<', '>', '||', '->', '->>', '~~', '~~*', '@>', '<@', '-'];
const FUNCTIONS =
  `lower upper count max min sum avg array_agg string_agg json_agg to_json to_jsonb json_build_object json_build_array unnest
  current_setting nextval isfinite substr concat_ws string_to_array num_nonnulls cardinality textin pg_notify starts_with`.split(
    /\s+/,
  );

await sql.unsafe(`
  create extension intarray;
  create extension citext;
  create type mood as enum ('glad', 'sad');
  create domain short_name as varchar check (pg_catalog.length(value) < 40);
  create table people (nick citext primary key, name varchar(40), short short_name, feels mood, marks int4[], small int2[], born date);
  create table pets (id serial primary key, name varchar not null, owner citext references people);
  create table links (owner citext references people, pet integer references pets, note varchar, primary key (owner, pet));
  create role tenant;
  grant create on schema public to tenant`);

async function lay(): Promise<void> {
  await sql.unsafe(`
    set role tenant;
    do $traps$
    declare one text; other text; symbol text; named text;
    begin
      foreach one in array array[${TYPES}] loop
        foreach other in array array[${TYPES}] loop
          execute format('create function public.trap(%s, %s) returns boolean language plpgsql as $$ begin raise ''trapped''; end $$', one, other);
          foreach symbol in array array['${OPERATORS.join("','")}'] loop
            execute format('create operator public.%s (function = public.trap, leftarg = %s, rightarg = %s)', symbol, one, other);
          end loop;
        end loop;
        foreach named in array array['${FUNCTIONS.join("','")}'] loop
          execute format('create function public.%I(%s) returns text language plpgsql as $$ begin raise ''trapped''; end $$', named, one);
          execute format('create function public.%I(%s, %2$s) returns text language plpgsql as $$ begin raise ''trapped''; end $$', named, one);
        end loop;
      end loop;
    end
    $traps$;
    reset role`);
}

await lay();
const service = await startTestService({ databaseUrl });

async function send(method: string, path: string, body?: unknown): Promise<Answer> {
  if (body === undefined) return request(service, method, path);
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
  return request(service, method, path, { headers, body: text });
}

const filter = (condition: unknown): string => encodeURIComponent(JSON.stringify(condition));

t.test('reads', async (t) => {
  await send('POST', '/items/people', {
    nick: 'Ann',
    name: 'Ann',
    short: 'a',
    feels: 'glad',
    marks: [1],
    small: [2],
    born: '2000-01-01',
  });
  await send('POST', '/items/pets', [{ name: 'Rex', owner: 'Ann' }]);
  const paths = [
    '/items/articles?fields=*,author.*,comments.*,tags.tags_id.*,blocks.item.*&meta=*',
    '/items/articles?search=a&sort=-title,id&limit=2',
    `/items/articles?filter=${filter({ _and: [{ title: { _icontains: 'a' } }, { status: { _in: ['published', 'draft'] } }] })}`,
    `/items/articles?filter=${filter({ comments: { body: { _nnull: true } }, author: { name: { _nstarts_with: 'x' } } })}`,
    `/items/articles?filter=${filter({ 'year(published_at)': { _between: [1900, 2100] }, views: { _nbetween: [5, 6] } })}`,
    '/items/articles?aggregate[count]=*&aggregate[max]=title&aggregate[sum]=views&groupBy=status',
    '/items/articles/1',
    `/items/people?filter=${filter({ name: { _eq: 'Ann' }, short: { _neq: 'b' }, feels: { _eq: 'glad' }, nick: { _starts_with: 'a' } })}`,
    `/items/people?filter=${filter({ marks: { _contains_all: [1] }, small: { _eq: [2] } })}`,
    '/items/people?aggregate[max]=nick&aggregate[min]=name',
    '/items/people/ann',
    '/items/pets?fields=*,owner.*',
    '/collections',
    '/fields',
    '/relations',
    '/users/me?fields=*,role.*',
    '/permissions',
    '/activity?limit=2',
    '/server/info',
    '/server/specs/oas',
    '/schema/snapshot',
    '/schema/suggestions',
    '/utils/random/string',
  ];
  for (const path of paths) {
    const { status, text } = await send('GET', path);
    t.equal(status, 200, `${path} ${text.slice(0, 300)}`);
  }
  t.match((await send('GET', '/items/people/ann')).json, { data: { nick: 'Ann' } }, 'citext stays blind to case');
  const found = await send('GET', `/items/pets?filter=${filter({ owner: { _in: ['ANN'] } })}&fields=owner.name`);
  t.strictSame(found.json, { data: [{ owner: { name: 'Ann' } }] });
  const graphql = {
    query: '{ people(filter: { nick: { _eq: "ANN" } }) { name } articles_aggregated { count { id } } }',
  };
  t.match((await send('POST', '/graphql', graphql)).json, { data: { people: [{ name: 'Ann' }] } });
});

t.test('writes', async (t) => {
  const writes: [method: string, path: string, body?: unknown][] = [
    [
      'POST',
      '/items/articles',
      { title: 'New', author: { name: 'New' }, comments: [{ body: 'x' }], tags: [{ tags_id: { name: 'n' } }] },
    ],
    ['PATCH', '/items/articles/1', { title: 'Other', comments: [{ body: 'y' }] }],
    ['PATCH', '/items/articles', { query: { filter: { status: { _eq: 'published' } } }, data: { views: 7 } }],
    ['POST', '/items/people?on_conflict=nick', [{ nick: 'ANN', name: 'Anne' }]],
    ['PATCH', '/items/people/ann', { name: 'Anna', marks: [1, 2] }],
    ['POST', '/items/links', [{ owner: 'ann', pet: 1, note: 'x' }]],
    ['PATCH', '/items/links/ann~1', { note: 'y' }],
    ['DELETE', '/items/links', ['ann~1']],
    ['DELETE', '/items/pets', { query: { filter: { name: { _eq: 'Rex' } } } }],
    ['DELETE', '/items/people/ANN'],
    ['POST', '/users', { email: 'someone@example.com', password: 'a long enough password' }],
    ['POST', '/auth/login', { email: 'someone@example.com', password: 'a long enough password' }],
    ['POST', '/collections', { collection: 'made', schema: {}, fields: [{ field: 'name', type: 'string' }] }],
    ['POST', '/fields/made', { field: 'other', type: 'integer', schema: { default_value: 3 } }],
    ['PATCH', '/fields/made/other', { field: 'other', type: 'string' }],
    ['DELETE', '/fields/made/other'],
    ['DELETE', '/collections/made'],
  ];
  for (const [method, path, body] of writes) {
    const { status, text } = await send(method, path, body);
    t.ok(status === 200 || status === 204, `${method} ${path} ${status} ${text.slice(0, 300)}`);
  }
  const known = await send('GET', '/users?filter[email][_icontains]=SOMEONE&fields=email');
  t.strictSame(known.json, { data: [{ email: 'someone@example.com' }] });
});

t.test('lateral doctor', async (t) => {
  const { output, code, complaints } = await runCommand(['doctor'], { DATABASE_URL: databaseUrl });
  t.equal(complaints, '');
  t.match(output, /^Relations\n/m);
  t.ok(code === 0 || code === 1, `${code}`);
});
