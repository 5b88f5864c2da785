/** The activity of schema changes: who created, changed or deleted which collection, field and relation. */
import t from 'tap';
import { inForce, makeCaller } from '../../support/callers.js';
import { connectSql, createLibrary, get, request, startDatabase, startTestService } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'schema_activity');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl, DIRECTUS_COMPATIBILITY: 'true' });
const builder = await makeCaller(sql, 'builder', [{ admin_access: true }]);
const { token, user } = builder;
await inForce(service, builder, '/items/articles/1');

function send(method: string, path: string, body?: unknown) {
  const headers = {
    'content-type': 'application/json',
    'user-agent': 'builder 1.0',
    origin: 'https://app.example.com',
  };
  return request(service, method, path, {
    token,
    headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
}

let seen = 0;

/** The entries since the last call, as readers of the activity see them. */
async function newEntries(): Promise<Record<string, unknown>[]> {
  const { json } = await get(
    service,
    `/activity?filter[id][_gt]=${seen}&sort=id&limit=-1&fields=id,action,collection,item,user,ip,user_agent,origin,revisions.data,revisions.delta`,
  );
  const entries = (json as { data: { id: number }[] }).data;
  seen = entries.at(-1)?.id ?? seen;
  return entries;
}

async function idOf(path: string): Promise<string> {
  return String(((await get(service, path)).json as { data: { meta: { id: number } } }).data.meta.id);
}

const named = (entries: Record<string, unknown>[]) =>
  entries.map(({ action, collection, item }) => [action, collection, item].join(' '));

t.test(
  'the activity has the collections, fields and relations that a request creates, changes and deletes',
  async (t) => {
    await newEntries();
    const fields = [
      {
        field: 'id',
        type: 'integer',
        schema: { is_primary_key: true, has_auto_increment: true },
        meta: { hidden: true },
      },
      { field: 'price', type: 'decimal', meta: { note: 'in euros' } },
    ];
    t.equal(
      (await send('POST', '/collections', { collection: 'offers', meta: { icon: 'sell' }, schema: {}, fields })).status,
      200,
    );
    const id = await idOf('/fields/offers/id');
    const price = await idOf('/fields/offers/price');
    const created = await newEntries();
    t.strictSame(named(created), [
      'create directus_collections offers',
      `create directus_fields ${id}`,
      `create directus_fields ${price}`,
    ]);
    const by = { user, ip: /./, user_agent: 'builder 1.0', origin: 'https://app.example.com' };
    t.match(created[2], { ...by, revisions: [{ data: { collection: 'offers', field: 'price', type: 'decimal' } }] });

    await send('PATCH', '/collections/offers', { meta: { icon: 'euro' } });
    await send('PATCH', '/fields/offers/price', { schema: { is_nullable: false }, meta: { note: 'net' } });
    await send('PATCH', '/fields/offers/price', { meta: { note: 'net' } });
    const changed = await newEntries();
    t.strictSame(
      named(changed),
      ['update directus_collections offers', `update directus_fields ${price}`],
      'no change is no entry',
    );
    t.strictSame(
      changed.map(({ revisions }) => (revisions as { delta: unknown }[])[0]?.delta),
      [{ meta: { icon: 'euro' } }, { schema: { is_nullable: false }, meta: { note: 'net' } }],
    );

    await send('POST', '/fields/offers', { field: 'article', type: 'integer' });
    await send('POST', '/relations', {
      collection: 'offers',
      field: 'article',
      related_collection: 'articles',
      meta: { one_field: 'offers' },
      schema: {},
    });
    const relation = await idOf('/relations/offers/article');
    t.strictSame(
      named(await newEntries()),
      ['create directus_fields offers.article', `create directus_relations ${relation}`],
      'a field without metadata has its name',
    );
    await send('DELETE', '/relations/offers/article');
    await send('DELETE', '/fields/offers/price');
    const deleted = await newEntries();
    t.strictSame(named(deleted), [`delete directus_relations ${relation}`, `delete directus_fields ${price}`]);
    t.match(
      deleted[1],
      { ...by, revisions: [{ data: { collection: 'offers', field: 'price' } }] },
      'of which nothing else has the name',
    );
    await send('DELETE', '/collections/offers');
    t.strictSame(named(await newEntries()), [
      'delete directus_collections offers',
      `delete directus_fields ${id}`,
      'delete directus_fields offers.article',
    ]);
  },
);

t.test('a refused change, a change that is tried, and reads leave no entry', async (t) => {
  await newEntries();
  t.equal((await send('POST', '/fields/articles', { field: 'title', type: 'string' })).status, 400);
  t.equal((await send('POST', '/fields/articles?dry_run=true', { field: 'tried', type: 'string' })).status, 200);
  t.equal(
    (
      await send('PATCH', '/fields/articles', [
        { field: 'title', meta: { note: 'x' } },
        { field: 'nowhere', meta: {} },
      ])
    ).status,
    403,
  );
  t.equal(
    (await send('POST', '/schema/changes?dry_run=true', { collections: [{ collection: 'tried', schema: {} }] })).status,
    200,
  );
  t.strictSame(await newEntries(), []);
});

t.test('an applied snapshot is recorded as the single changes', async (t) => {
  const { data } = (await get(service, '/schema/snapshot')).json as {
    data: { fields: { collection: string; field: string; meta: object | null }[] };
  };
  await newEntries();
  const fields = data.fields.map((each) =>
    each.collection === 'articles' && each.field === 'title'
      ? { ...each, meta: { ...each.meta, note: 'from a snapshot' } }
      : each,
  );
  const difference = ((await send('POST', '/schema/diff', { ...data, fields })).json as { data: unknown }).data;
  t.equal((await send('POST', '/schema/apply', difference)).status, 204);
  const [entry, ...others] = await newEntries();
  t.match(entry, { action: 'update', collection: 'directus_fields', item: await idOf('/fields/articles/title'), user });
  t.strictSame(others, []);
});

t.test('the accountability of the tables of the schema selects what is recorded', async (t) => {
  await sql`update service_collections set accountability = 'activity' where collection = 'service_fields'`;
  await send('GET', '/server/info');
  await newEntries();
  await send('POST', '/fields/articles', { field: 'rank', type: 'integer', meta: {} });
  const [entry] = await newEntries();
  t.match(entry, { action: 'create', collection: 'directus_fields', revisions: [] });
});
