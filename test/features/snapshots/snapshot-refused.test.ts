/** What is no snapshot, what asks for too much, and what fails on the way: a clear answer, and nothing has changed. */
import t from 'tap';
import { get, request, startDatabase } from '../../support/service.js';
import {
  demoScript,
  differenceOf,
  type Editable,
  type Entry,
  openService,
  post,
  type Snapshot,
  snapshotOf,
  stateOf,
} from './snapshot/support.js';

/** Parsed by a thread. */
const LONG_YAML = Array.from({ length: 10_000 }, (_, number) => `a${number}: some text`).join('\n');

const server = await startDatabase();
const demo = await openService(server, 'demo', demoScript);

t.test('a snapshot that fails on the way leaves nothing behind', async (t) => {
  const before = await stateOf(server, 'demo');
  const wanted = await snapshotOf(demo);
  wanted.collections.push({ collection: 'brand_new', schema: { comment: 'x' }, meta: {} });
  wanted.fields.push({
    collection: 'brand_new',
    field: 'id',
    type: 'integer',
    schema: { data_type: 'integer', is_primary_key: true, has_auto_increment: true },
  });
  const status = wanted.fields.find(
    (each) => each['collection'] === 'articles' && each['field'] === 'status',
  ) as Editable;
  const cases: [string, () => void, RegExp][] = [
    [
      'values that are not unique',
      () => Object.assign(status.schema, { is_unique: true }),
      /has to be unique.*\(add unique: articles\.status\)/,
    ],
    [
      'values of another type',
      () => Object.assign(status.schema, { is_unique: false, data_type: 'date', default_value: null }),
      /converted.*\(change type: articles\.status\)/,
    ],
    [
      'a type that does not exist',
      () => Object.assign(status.schema, { data_type: 'no_such_type' }),
      /does not have the type [^(]*no_such_type[^(]*articles\.status/,
    ],
    [
      'a default of another type',
      () => Object.assign(status.schema, { data_type: 'integer[]', default_value: 'x' }),
      /default/,
    ],
  ];
  for (const [name, edit, complaint] of cases) {
    edit();
    const difference = await post(demo, '/schema/diff', wanted);
    t.equal(difference.status, 200, name);
    const answer = await post(demo, '/schema/apply', differenceOf(difference));
    t.match(answer, { status: 400, text: complaint }, name);
  }
  t.strictSame(await stateOf(server, 'demo'), before);
});

t.test('a document other than a snapshot is refused and changes nothing', async (t) => {
  const before = await stateOf(server, 'demo');
  const original = JSON.stringify(await snapshotOf(demo));
  const key = {
    collection: 'fresh',
    field: 'id',
    type: 'integer',
    schema: { data_type: 'integer', is_primary_key: true },
  };
  const fresh = (table: Entry, ...fields: Entry[]): Partial<Snapshot> => ({
    collections: [{ schema: {}, ...table }],
    fields,
  });
  const column = (schema: Entry, rest: Entry = {}): Partial<Snapshot> =>
    fresh({ collection: 'fresh' }, key, {
      collection: 'fresh',
      field: 'x',
      type: 'text',
      schema: { data_type: 'text', ...schema },
      ...rest,
    });
  const relating = (relation: Entry): Partial<Snapshot> => ({
    relations: [{ collection: 'tags', field: 'name', ...relation }],
  });
  const additions: Record<string, Partial<Snapshot>> = {
    'a name with quotes': fresh(
      { collection: 'a"; drop table articles; --' },
      { ...key, collection: 'a"; drop table articles; --' },
    ),
    'a name with a comment': fresh({ collection: 'a--b' }, { ...key, collection: 'a--b' }),
    'a name that is too long': fresh({ collection: 'é'.repeat(32) }, { ...key, collection: 'é'.repeat(32) }),
    'a name with a NUL': fresh({ collection: 'a\0b' }, { ...key, collection: 'a\0b' }),
    'a name of the compilers': fresh({ collection: '%r' }, { ...key, collection: '%r' }),
    'a name that is invisible': fresh({ collection: 'a\u200b' }, { ...key, collection: 'a\u200b' }),
    'a table of the service': fresh({ collection: 'service_schema' }, { ...key, collection: 'service_schema' }),
    'a table of PostgreSQL': fresh({ collection: 'pg_evil' }, { ...key, collection: 'pg_evil' }),
    'a table of the service that is there': fresh({ collection: 'service_users' }),
    'a field of the service': {
      fields: [{ collection: 'service_users', field: 'email', type: 'text', schema: { data_type: 'text' } }],
    },
    'a relation of the service': {
      relations: [{ collection: 'service_users', field: 'role', related_collection: 'tags', meta: {} }],
    },
    'an index over one field': fresh({ collection: 'fresh', schema: { indexes: [{ fields: ['id'] }] } }, key),
    'an index over nothing': fresh({ collection: 'fresh', schema: { indexes: [{ fields: ['id', 'nothing'] }] } }, key),
    'an enum of nothing': column({ data_type: 'mood', enum_values: [] }),
    'an enum with a long value': column({ data_type: 'mood', enum_values: ['x'.repeat(64)] }),
    'an enum with a wrong name': column({ data_type: '"m""; drop table articles"', enum_values: ['x'] }),
    'an enum elsewhere': column({ data_type: 'pg_catalog.mood', enum_values: ['x'] }),
    'a table without a key': fresh({ collection: 'fresh' }),
    'a key that its fields do not make': fresh({ collection: 'fresh', schema: { primary_key: ['id', 'two'] } }, key),
    'a folder without metadata': { collections: [{ collection: 'empty' }] },
    'a group that does not exist': { collections: [{ collection: 'lost', meta: { group: 'nowhere' } }] },
    'a field without a table': { fields: [{ ...key, collection: 'nowhere' }] },
    'a field twice': fresh({ collection: 'fresh' }, key, key),
    'a field with quotes': column({}, { field: 'x"y' }),
    'an unknown type of the service': column({}, { type: 'blob' }),
    'an alias with a column': column({}, { type: 'alias' }),
    'an alias without metadata': column({}, { type: 'alias', schema: null }),
    'a type with a statement': column({ data_type: 'text; drop table articles' }),
    'a type of the catalogs': column({ data_type: 'regclass' }),
    'a type with a second column': column({ data_type: 'text, evil text' }),
    'a type with a constraint': column({ data_type: 'text check (pg_sleep(1) is null)' }),
    'a type with a call': column({ data_type: 'numeric(pg_sleep(1))' }),
    'a type of a set': column({ data_type: 'setof text' }),
    'a default that waits': column({ default_expression: 'pg_sleep(10)' }),
    'a default that reads': column({ default_expression: '(select email from service_users)' }),
    'a default that ends the statement': column({ default_expression: "''); drop table articles; --" }),
    'a default with a comment': column({ default_expression: "'' --" }),
    'a counter that may be null': column({ data_type: 'integer', has_auto_increment: true, is_nullable: true }),
    'two defaults': column({ default_expression: 'now()', default_value: 'x' }),
    'a generation that waits': column({ generation_expression: 'pg_sleep(10)' }),
    'a generation from elsewhere': column({ generation_expression: 'nowhere || id' }),
    'a flag that is none': column({ is_nullable: 'yes' }),
    'a property of a column that does not exist': column({ is_nulable: true }),
    'a comment that is no text': column({ comment: { text: 'x' } }),
    'metadata that does not exist': column({}, { meta: { wdith: 'full' } }),
    'metadata of another kind': column({}, { meta: { width: 'huge' } }),
    'a relation without a column': relating({ field: 'nothing', meta: {} }),
    'a relation to nowhere': relating({ related_collection: 'nowhere', meta: {} }),
    'a relation of nothing': relating({ related_collection: 'authors' }),
    'a relation with an unknown action': relating({ related_collection: 'authors', schema: { on_delete: 'EXPLODE' } }),
    'a relation that holds a foreign key to anything': relating({ meta: {}, schema: {} }),
    'a relation twice': {
      relations: [{ collection: 'comments', field: 'author', related_collection: 'authors', meta: {} }],
    },
  };
  const { hash } = differenceOf(await post(demo, '/schema/diff', { ...JSON.parse(original), relations: [] }));
  for (const [name, addition] of Object.entries(additions)) {
    const whole = JSON.parse(original) as Snapshot;
    for (const section of ['collections', 'fields', 'relations'] as const)
      whole[section].push(...(addition[section] ?? []));
    const answer = await post(demo, '/schema/diff', whole);
    t.match(
      answer,
      { status: 400, json: { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] } },
      `${name}: ${answer.text.slice(0, 150)}`,
    );
    const difference = Object.fromEntries(
      Object.entries(addition).map(([section, entries]) => [
        section,
        (entries as Entry[]).map((rhs) => ({
          collection: rhs['collection'],
          field: rhs['field'],
          diff: [{ kind: 'N', rhs }],
        })),
      ]),
    );
    const applied = await post(demo, '/schema/apply', { hash, diff: difference });
    t.match(applied, { status: 400 }, `${name}, applied: ${applied.text.slice(0, 150)}`);
  }
  t.strictSame(await stateOf(server, 'demo'), before);
});

t.test('bodies that are no documents are refused', async (t) => {
  const before = await stateOf(server, 'demo');
  const original = await snapshotOf(demo);
  const bomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${'bcdefghi'
    .split('')
    .map((name, position) => `${name}: &${name} [${Array(9).fill(`*${'abcdefgh'[position]}`).join(',')}]`)
    .join('\n')}\n`;
  const bodies: [string, string, number][] = [
    ['', 'application/json', 400],
    ['{', 'application/json', 400],
    ['[]', 'application/json', 400],
    ['null', 'application/json', 400],
    ['"x"', 'application/yaml', 400],
    ['{}', 'application/json', 400],
    [JSON.stringify({ ...original, version: 3 }), 'application/json', 400],
    [JSON.stringify({ ...original, vendor: 'mysql' }), 'application/json', 400],
    [JSON.stringify({ ...original, extra: 1 }), 'application/json', 400],
    [JSON.stringify({ ...original, fields: {} }), 'application/json', 400],
    [JSON.stringify({ ...original, collections: [null] }), 'application/json', 400],
    [JSON.stringify(original).replace('"version"', '"__proto__":{"x":1},"version"'), 'application/json', 400],
    [`{"version":${'['.repeat(50_000)}${']'.repeat(50_000)}}`, 'application/json', 400],
    ['version: 1\n  - broken', 'application/yaml', 400],
    [bomb, 'application/yaml', 400],
    ['!!js/function "function () {}"', 'application/yaml', 400],
    [`version: 1\nlateral: ${'['.repeat(20_000)}${']'.repeat(20_000)}`, 'application/yaml', 400],
    [`version: 1\nlateral:\n  ${'- '.repeat(20_000)}x`, 'application/yaml', 400],
    ['version: .inf', 'application/yaml', 400],
    ['version: 1\n---\nversion: 1', 'application/yaml', 400],
    ['version: 1\nvendor: postgres\nversion: 1', 'application/yaml', 400],
    [`${LONG_YAML}\n] broken`, 'application/yaml', 400],
    [`${LONG_YAML}\nlist: [${'['.repeat(20_000)}${']'.repeat(20_000)}]`, 'application/yaml', 400],
    [`${LONG_YAML}\n${bomb}`, 'application/yaml', 400],
    [`text: &text ${'x'.repeat(100_000)}\nlist: [${Array(90).fill('*text').join(', ')}]`, 'application/yaml', 400],
    [JSON.stringify(original), 'text/plain', 415],
    [JSON.stringify(original), '', 415],
    ['--x\r\n\r\n', 'multipart/form-data', 400],
  ];
  for (const [body, type, status] of bodies) {
    for (const path of ['/schema/diff', '/schema/apply']) {
      const answer = await request(demo, 'POST', path, { headers: { 'content-type': type }, body });
      t.equal(answer.status, status, `${path} ${type} ${body.slice(0, 40)}: ${answer.text.slice(0, 100)}`);
    }
  }
  const invalid = await request(demo, 'POST', '/schema/diff', {
    headers: { 'content-type': 'application/yaml' },
    body: Buffer.from([0x61, 0xff]),
  });
  t.equal(invalid.status, 400);
  const long = await request(demo, 'POST', '/schema/diff', {
    headers: { 'content-type': 'application/yaml' },
    body: `${LONG_YAML}\n] broken`,
  });
  t.match(
    long.text,
    '"Invalid payload. The document is not valid YAML at line 10001."',
    'a long document is read as a short one is',
  );
  const entry = (change: unknown, field = 'name'): unknown => ({
    fields: [{ collection: 'tags', field, diff: [change] }],
  });
  const { hash } = differenceOf(await post(demo, '/schema/diff', { ...original, relations: [] }));
  const differences: unknown[] = [
    { collections: 1 },
    { others: [] },
    { collections: [{ diff: [] }] },
    entry({ kind: 'A', index: 0 }),
    entry({ kind: 'E', path: ['type'], rhs: 'blob' }),
    entry({ kind: 'E', path: ['field'], rhs: 'renamed' }),
    entry({ kind: 'E', path: ['__proto__', 'x'], rhs: 1 }),
    entry({ kind: 'E', path: ['schema', '__proto__'], rhs: {} }),
    entry({ kind: 'E', path: ['schema', 'data_type', 'x'], rhs: 1 }),
    entry({ kind: 'E', path: ['schema', 'data_type'], rhs: 'text; drop table tags' }),
    entry({ kind: 'E', path: [], rhs: 1 }),
    entry({ kind: 'E', path: 'schema', rhs: null }),
    entry({ kind: 'N', rhs: {} }),
    entry(
      { kind: 'N', rhs: { collection: 'tags', field: 'other', type: 'text', schema: { data_type: 'text' } } },
      'another',
    ),
    entry({ kind: 'D' }, 'nothing'),
    entry({ kind: 'D' }, 'id'),
  ];
  for (const diff of differences) {
    const answer = await post(demo, '/schema/apply', { hash, diff });
    t.equal(answer.status, 400, `${JSON.stringify(diff)}: ${answer.text.slice(0, 150)}`);
  }
  t.match(await post(demo, '/schema/apply', { diff: {} }), { status: 400, text: /hash/ });
  t.match(await post(demo, '/schema/apply', { hash, diff: {} }), { status: 204 }, 'no change is none');
  t.match(await get(demo, '/schema/snapshot?export=xml'), { status: 400 });
  t.match(await post(demo, '/schema/diff?mode=both', original), { status: 400 });
  t.match(await post(demo, '/schema/diff?force', { ...original, version: 9, vendor: 'mysql' }), { status: 204 });
  t.strictSame(await stateOf(server, 'demo'), before);

  for (const [method, path] of [
    ['GET', '/schema/snapshot'],
    ['POST', '/schema/diff'],
    ['POST', '/schema/apply'],
  ] as const) {
    const body = method === 'GET' ? {} : { body: '{}', headers: { 'content-type': 'application/json' } };
    t.match(await request(demo, method, path, { ...body, token: null }), { status: 403 });
  }
});
