/** Misspelt fields, operators and parameters: the error names the nearest one that the caller may know, and nothing else. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  createLibrary,
  get,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'misspelt');
const service = await startTestService({ databaseUrl });
const strict = await startTestService({ databaseUrl, STRICT_PARAMETERS: 'true' });
const reader = await withSql(databaseUrl, (sql) =>
  makeCaller(sql, 'reader', [
    { permissions: [{ collection: 'articles', action: 'read', fields: ['id', 'title', 'author'] }] },
  ]),
);

function refusal({ status, json }: Answer): { status: number; message: string } {
  const [error] = (json as { errors?: { message: string }[] }).errors ?? [];
  return { status, message: error?.message ?? '' };
}

const ask = async (query: string, options?: RequestOptions): Promise<{ status: number; message: string }> =>
  refusal(await get(service, `/items/articles?${query}`, options));

t.test('fields', async (t) => {
  for (const query of ['fields=titel', 'sort=titel', 'filter[titel][_eq]=x', 'fields=id,Title', 'groupBy=titel']) {
    for (const token of [undefined, reader.token]) {
      const { status, message } = await ask(query, token === undefined ? {} : { token });
      t.equal(status, 403, query);
      t.match(message, /Did you mean "title"\?$/, `${query}: ${message}`);
    }
  }
  t.match(await ask('fields=author.nmae'), { status: 403, message: /Did you mean "name"\?$/ });
  t.notMatch((await ask('fields=zzzzzz')).message, /Did you mean/);
});

t.test('fields that the caller may not see are not suggested', async (t) => {
  const { token } = reader;
  t.match((await ask('fields=statsu')).message, /Did you mean "status"\?$/, 'to an administrator');
  t.notMatch((await ask('fields=statsu', { token })).message, /Did you mean/);
  const [forbidden, missing] = [await ask('fields=status', { token }), await ask('fields=statux', { token })];
  t.strictSame(
    { ...forbidden, message: forbidden.message.replaceAll('status', 'NAME') },
    { ...missing, message: missing.message.replaceAll('statux', 'NAME') },
    'one that exists looks like one that does not',
  );
  t.notMatch(
    (await ask('fields=author.nmae', { token })).message,
    /Did you mean/,
    'of a collection that is not granted',
  );
});

t.test('operators', async (t) => {
  const { token } = reader;
  for (const options of [{}, { token }]) {
    t.strictSame(await ask('filter[title][eq]=x', options), {
      status: 403,
      message: 'Unknown operator "eq" in filter.title. Did you mean "_eq"?',
    });
    t.strictSame(await ask('filter[title][_eqq]=x', options), {
      status: 400,
      message: 'Invalid query. Unknown operator "_eqq" in filter.title. Did you mean "_eq"?',
    });
    t.strictSame(await ask(`filter=${encodeURIComponent('{"title":{"\\"_eq\\"":"x"}}')}`, options), {
      status: 400,
      message:
        'Invalid query. Unknown operator "_eq" in filter.title. Write it without double quotes: they stand for a field.',
    });
    t.strictSame(await ask('filter[title][_zzzzzz]=x', options), {
      status: 400,
      message: 'Invalid query. Unknown operator "_zzzzzz" in filter.title.',
    });
  }
});

t.test('parameters', async (t) => {
  const unknown = { status: 400, message: 'Invalid query. Unknown parameter "feilds". Did you mean "fields"?' };
  const headers = { prefer: 'handling=strict' };
  t.equal((await ask('feilds=id&title=eq.X')).status, 200, 'are ignored');
  t.equal((await ask('feilds=id', { headers: { prefer: 'handling=lenient' } })).status, 200);
  for (const prefer of ['handling=strict', 'wait=0, handling=strict', 'Handling="strict"'])
    t.strictSame(await ask('feilds=id', { headers: { prefer } }), unknown, prefer);
  t.equal((await ask('feilds=id')).status, 200, 'also after a strict request for the same URL');
  t.strictSame(await ask('filter[id][_eq]=1&feilds=id', { headers }), unknown);
  t.match(await ask('title=eq.X', { headers }), { status: 400, message: 'Invalid query. Unknown parameter "title".' });
  const known = 'fields=id&limit=1&sort=id&page=1&meta=*&backlink=false&search=a&filter[id][_gt]=0&alias[a]=title';
  t.equal((await ask(known, { headers })).status, 200);
  for (const method of ['SEARCH', 'POST', 'PATCH'] as const) {
    const body = method === 'SEARCH' ? '{}' : '[]';
    const type = { 'content-type': 'application/json' };
    const path = '/items/articles?feilds=id';
    t.strictSame(
      refusal(await request(service, method, path, { headers: { ...headers, ...type }, body })),
      unknown,
      method,
    );
    t.strictSame(
      refusal(await request(strict, method, path, { headers: type, body })),
      unknown,
      `${method} by the option`,
    );
  }
  t.strictSame(refusal(await get(strict, '/items/articles?feilds=id')), unknown, 'by the option');
  const query = { feilds: ['id'] };
  const onConflict = 'Invalid query. Unknown parameter "on_conflct". Did you mean "on_conflict"?';
  for (const [method, path, body, message] of [
    ['SEARCH', '/items/articles', { query }, unknown.message],
    ['SEARCH', '/items/articles', { keys: [1], query }, unknown.message],
    ['POST', '/utils/export/articles', { format: 'json', query }, unknown.message],
    ['POST', '/utils/export/articles?feilds=id', { format: 'json' }, 'Invalid query. Unknown parameter "feilds".'],
    ['POST', '/utils/import/articles?on_conflct=id', [], onConflict],
  ] as const) {
    const type = { 'content-type': 'application/json' };
    const label = `${method} ${path} ${JSON.stringify(body)}`;
    const sent = { headers: { ...headers, ...type }, body: JSON.stringify(body) };
    t.strictSame(refusal(await request(service, method, path, sent)), { status: 400, message }, label);
    const plain = { headers: type, body: JSON.stringify(body) };
    t.strictSame(refusal(await request(strict, method, path, plain)), { status: 400, message }, `${label}, option`);
    t.equal((await request(service, method, path, plain)).status, 200, `${label}: ignored`);
  }
  t.strictSame(refusal(await get(strict, '/items/articles/1?feilds=id')), unknown, 'by the option, of an item');
  t.equal((await get(strict, `/items/articles?${known}`)).status, 200);
});
