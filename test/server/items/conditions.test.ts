/** Conditions that cannot be understood are refused, wherever they stand: none is dropped. Sorts take aliases. */
import t from 'tap';
import { type Answer, createLibrary, get, request, startDatabase, startTestService } from '../../support/service.js';

const server = await startDatabase();
const service = await startTestService({ databaseUrl: await createLibrary(server, 'conditions') });

function search(query: object): Promise<Answer> {
  return request(service, 'SEARCH', '/items/articles', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query }),
  });
}

function ids(answer: Answer): unknown {
  return answer.status === 200 ? (answer.json as { data: { id: unknown }[] }).data.map(({ id }) => id) : answer.json;
}

t.test('an invalid condition is 400', async (t) => {
  const filters: Record<string, unknown> = {
    '_json: null': { meta: { _json: null } },
    '_json: empty text': { meta: { _json: '' } },
    '_json: list': { meta: { _json: [] } },
    '_json: text': { meta: { _json: '"k"' } },
    '_json._or: [null]': { meta: { _json: { _or: [null] } } },
    '_json._or: null': { meta: { _json: { _or: null } } },
    '_json._or: object': { meta: { _json: { _or: { k: { _eq: 1 } } } } },
    '_json._and: text': { meta: { _json: { _and: 'k' } } },
    '_json._and: [[]]': { meta: { _json: { _and: [[]] } } },
    '_or: [null]': { _or: [null] },
    '_or: null': { _or: null },
    '_or: object': { _or: { title: { _eq: 'Zebra' } } },
    '_and: object below a relation': { author: { _and: { name: { _eq: 'x' } } } },
    '_and: object without keys': { _and: {} },
    '_in: object': { id: { _in: { a: 1, b: 2 } } },
    '_in: null': { id: { _in: null } },
    '_between: object': { id: { _between: { from: 1, to: 2 } } },
    '_in: digits as keys': { id: { _in: { 0: 6, 1: 7 } } },
    '_between: digits as keys': { id: { _between: { 1: 1, 5: 2 } } },
    '_or: digits as keys': { _or: { 0: { id: 6 }, 1: { id: 7 } } },
    '_json._or: digits as keys': { meta: { _json: { _or: { 0: { k: { _eq: 1 } } } } } },
    '_null: null': { title: { _null: null } },
    '_nnull: null': { id: { _nnull: null } },
    '_nnull: empty text': { id: { _nnull: '' } },
    '_nnull: the text null': { id: { _nnull: 'null' } },
    '_empty: null': { title: { _empty: null } },
    '_nempty: empty text': { title: { _nempty: '' } },
    '_null: two': { id: { _null: 2 } },
    '_json: _nnull: null': { meta: { _json: { k: { _nnull: null } } } },
    '_some: null': { comments: { _some: null } },
    '_none: null': { comments: { _none: null } },
    '_none: list': { comments: { _none: [] } },
    '_some: text': { comments: { _some: 'x' } },
  };
  for (const [name, filter] of Object.entries(filters)) {
    const answer = await search({ filter, fields: ['id'] });
    t.match(answer, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } }, name);
  }
  const said = async (filter: unknown): Promise<string> => (await search({ filter })).text;
  t.match(await said({ id: { _in: null } }), /_in.* of .*id.* needs a list of values, not null: use .*_null/);
  t.match(await said({ id: { _between: null } }), /_between.* needs a list of values, not null/);
  t.match(await said({ id: { _in: [1, null] } }), /id.* compares with null: use .*_null/);
  t.match(await said({ id: { _gt: null } }), /id.* compares with null: use .*_null/);
  t.match(await said({ id: { _in: [1, 'null'] } }), /Invalid value for field .*id.* must be a whole number/);
  const having = (condition: unknown): Promise<Answer> =>
    search({ aggregate: { count: '*' }, groupBy: ['status'], having: condition });
  t.match(await having({ _or: [null] }), { status: 400 }, 'having: [null]');
  t.match(await having({ _and: { count: { _gt: 100 } } }), { status: 400 }, 'having: an object for a list');
});

t.test('a URL beyond the limit of lists is read as one', async (t) => {
  const many = Array.from({ length: 600 }, (_, n) => `filter[id][_in][${n}]=${n + 6}`).join('&');
  t.strictSame(ids(await get(service, `/items/articles?fields=id&${many}`)), [6, 7, 8, 9, 10]);
  const branches = Array.from({ length: 600 }, (_, n) => `filter[_or][${n}][id]=${n + 6}`).join('&');
  t.strictSame(ids(await get(service, `/items/articles?fields=id&${branches}`)), [6, 7, 8, 9, 10]);
  const filter = encodeURIComponent('{"id":{"_in":{"0":6}}}');
  t.match(await get(service, `/items/articles?filter=${filter}`), { status: 400 }, 'JSON has lists of its own');
  const deep = encodeURIComponent('{"comments":{"_filter":{"id":{"_in":{"0":6}}}}}');
  t.match(await get(service, `/items/articles?fields=comments.id&deep=${deep}`), { status: 400 }, 'in deep too');
});

t.test('_null and its kin take true and false; a URL may leave the value out', async (t) => {
  const found = async (query: string): Promise<unknown> =>
    ids(await get(service, `/items/articles?fields=id&limit=1&sort=id&${query}`));
  for (const yes of ['', '=', '=true', '=1']) t.strictSame(await found(`filter[author][_null]${yes}`), [6], yes);
  for (const no of ['=false', '=0']) t.strictSame(await found(`filter[author][_nnull]${no}`), [6], no);
  t.match(await get(service, '/items/articles?filter[author][_null]=null'), { status: 400 });
  for (const yes of [true, 1])
    t.strictSame(ids(await search({ filter: { author: { _null: yes } }, fields: ['id'] })), [6]);
  for (const no of [false, 0])
    t.strictSame(ids(await search({ filter: { author: { _nnull: no } }, fields: ['id'] })), [6]);
  const query = '{ articles(filter: { author: { id: { _null: null } } }) { id } }';
  const headers = { 'content-type': 'application/json' };
  const answer = await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query }) });
  t.match(answer.text, /_null.* must be true or false/);
});

t.test('having needs what it speaks of', async (t) => {
  const refused = { status: 400, json: { errors: [{ message: /"having" needs "aggregate" or "groupBy"/ }] } };
  t.match(await get(service, '/items/articles?having[count][_gt]=100'), refused);
  t.match(await get(service, '/items/articles/1?having[count][_gt]=100'), refused);
  t.match(await search({ having: { count: { _gt: 100 } } }), refused);
  const deep = 'deep[comments][_having][count][_gt]=100';
  t.match(await get(service, `/items/articles?fields=comments.id&${deep}`), refused, 'in deep');
  t.match(await get(service, `/items/articles?fields=id&${deep}`), refused, 'in deep, of what is not shown');
  t.match(await search({ groupBy: ['status'], having: { count: { _gt: 100 } } }), { status: 200, json: { data: [] } });
});

t.test('a list in a URL may begin with a variable', async (t) => {
  const filter = 'filter[published_at][_in]=$NOW(-1 day),2023-01-15T10:00:00Z';
  t.strictSame(ids(await get(service, encodeURI(`/items/articles?fields=id&${filter}`))), [1, 7]);
});

t.test('names in deep that lead nowhere are refused', async (t) => {
  const one = (query: string): Promise<Answer> => get(service, `/items/articles/1?fields=comments.id&${query}`);
  t.match(await one('deep[comments][_filter][id][_eq]=2'), { json: { data: { comments: [{ id: 2 }] } } });
  t.match(await one('deep[comments][_filtr][id][_eq]=2'), { status: 400 }, 'a parameter that does not exist');
  t.match(await one('deep[_filter][id][_eq]=2'), { status: 400 }, 'a parameter without a relation');
  t.match(await one('deep[coments][_filter][id][_eq]=2'), { status: 403 }, 'a relation that does not exist');
  t.match(await one('deep[title][_filter][id][_eq]=2'), { status: 400 }, 'a field that is no relation');
  t.match(await one('deep[comments][_filter][id][_eq]=2&deep[tags][_limit]=1'), { status: 200 }, 'one not shown');
  const hidden = (query: string): Promise<Answer> => get(service, `/items/articles?fields=id,author&${query}`);
  t.match(await hidden('deep[comments][_filter][nothing][_eq]=2'), { status: 403 }, 'a field of one not shown');
  t.match(await hidden('deep[author][_filter][nothing][_eq]=2'), { status: 403 }, 'of one shown as its key');
  t.match(await hidden('deep[comments][_sort]=nothing'), { status: 403 }, 'its sort');
  t.match(await hidden('deep[comments][_filter][id][_contains]=2'), { status: 400 }, 'an operator');
  t.match(await hidden('deep[comments][author][_filter][nothing][_eq]=2'), { status: 403 }, 'further down');
  t.match(await hidden('alias[c]=comments&deep[c][_filter][nothing][_eq]=2'), { status: 403 }, 'of an alias');
  t.match(await hidden('deep[comments][_filter][author][name][_eq]=x&deep[author][_filter][id]=1'), { status: 200 });
});

t.test('parameters in deep have an underscore, and who forgets it is told', async (t) => {
  const levels: Record<string, unknown> = {
    limit: 1,
    sort: ['-id'],
    fields: 'id',
    filter: { id: { _eq: 2 } },
    alias: { text: 'body' },
  };
  for (const [name, value] of Object.entries(levels)) {
    const answer = await search({ fields: ['comments.id'], deep: { comments: { [name]: value } } });
    t.match(answer, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } }, name);
    t.match(answer.text, `write the parameter as \\"_${name}\\"`);
  }
  const url = await get(service, '/items/articles?fields=comments.id&deep[comments][limit]=1');
  t.match(url.text, '_limit');
});

t.test('sort takes aliases', async (t) => {
  const sorted = async (query: string): Promise<unknown> => ids(await get(service, `/items/articles?${query}`));
  const direct = await sorted('fields=id&sort=-title');
  t.strictSame(await sorted('fields=id,t&alias[t]=title&sort=-t'), direct, 'a field');
  t.strictSame(await sorted('fields=id&alias[t]=title&sort=-t'), direct, 'one that is not shown');
  t.strictSame(
    await sorted('fields=id,y&alias[y]=year(published_at)&sort=y,-id'),
    await sorted('fields=id&sort=year(published_at),-id'),
    'a function',
  );
  t.strictSame(
    await sorted('fields=id,who.name&alias[who]=author&sort=who.name'),
    await sorted('fields=id&sort=author.name'),
    'a relation',
  );
  t.strictSame(await sorted('fields=id,title&alias[title]=slug&sort=title'), await sorted('fields=id&sort=slug'));
  t.match(await get(service, '/items/articles?alias[y]=year(published_at)&sort=y.x'), { status: 400 });
  t.match(await get(service, '/items/articles?alias[y]=nothing&sort=y'), { status: 403 });
  const nested = 'fields=comments.id,comments.text&deep[comments][_alias][text]=body&deep[comments][_sort]=-text';
  t.match(await get(service, `/items/articles/1?${nested}`), {
    json: { data: { comments: [{ text: 'Spam' }, { text: 'Nice!' }, { text: 'I disagree' }] } },
  });
  const searched = await search({ fields: ['id'], alias: { t: 'title' }, sort: ['-t'] });
  t.strictSame(ids(searched), direct, 'SEARCH');
});

t.test('a write by a query whose conditions hold of every item is 400 and changes nothing', async (t) => {
  const send = (method: string, collection: string, value: object): Promise<Answer> => {
    const body = JSON.stringify(value);
    // Without its length a body of DELETE would not be taken for one.
    const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
    return request(service, method, `/items/${collection}`, { headers, body });
  };
  const refused = { status: 400, json: { errors: [{ message: /needs a filter, a search or a limit/ }] } };
  const queries: Record<string, object> = {
    'no filter': { filter: {} },
    'sort alone': { sort: ['id'] },
    '_or: []': { filter: { _or: [] } },
    '_and: []': { filter: { _and: [] } },
    '_and: [{}]': { filter: { _and: [{}] } },
    '_or with an empty branch': { filter: { _or: [{}, { id: { _eq: 1 } }] } },
    'empty lists inside each other': { filter: { _and: [{ _or: [] }, { _and: [{ _or: [{}] }] }] } },
    'a field without operators': { filter: { id: {} } },
    'a field with an empty _or': { filter: { id: { _or: [] } } },
    'a relation to one': { filter: { author: {} } },
    'a field of a relation to one': { filter: { author: { name: {} } } },
    'a relation to several': { filter: { comments: {} } },
    _json: { filter: { meta: { _json: {} } } },
    '_json with an empty branch': { filter: { meta: { _json: { _or: [{}, { k: { _eq: 1 } }] } } } },
    'a filter as text': { filter: '{"_or":[]}' },
    'a search of spaces': { search: '  ' },
    'an empty search': { search: '' },
    'an empty limit': { limit: '' },
    'a limit of null': { limit: null },
    'nothing but null': { limit: null, filter: null, sort: null, search: null },
    'a relation behind a relation to several': { filter: { comments: { article: {} } } },
    'a relation to several behind one to one': { filter: { author: { articles: { comments: {} } } } },
    'a field of a relation to several': { filter: { comments: { body: {} } } },
    '_some of nothing': { filter: { comments: { _some: { body: {} } } } },
    '_none of nothing': { filter: { comments: { _none: { body: {} } } } },
    'an empty condition beside another': { filter: { id: { _gt: 1 }, title: {} } },
    'an empty condition beside a search': { filter: { title: {} }, search: 'e' },
    'an empty function': { filter: { 'year(published_at)': {} } },
    'rows that point here': { filter: { '$FOLLOW(comments,article)': {} } },
    '_json beside another condition': { filter: { id: { _gt: 1 }, meta: { _json: { _or: [{}, { k: { _eq: 1 } }] } } } },
  };
  const rows = async (): Promise<unknown> => (await get(service, '/items/articles?fields=id,title&limit=-1')).json;
  const before = await rows();
  for (const [name, query] of Object.entries(queries)) {
    t.match(await send('PATCH', 'articles', { query, data: { title: 'changed' } }), refused, `PATCH: ${name}`);
    t.match(await send('DELETE', 'articles', { query }), refused, `DELETE: ${name}`);
  }
  t.strictSame(await rows(), before);

  const emptied = { filter: { _or: [] } };
  t.match(await search({ ...emptied, fields: ['id'] }), { status: 200 }, 'a read is not restricted by it');
  const all = await send('PATCH', 'articles', { query: { ...emptied, limit: -1 }, data: { title: 'all' } });
  t.equal((all.json as { data: unknown[] }).data.length, (before as { data: unknown[] }).data.length, 'limit: -1');
  t.match(
    await send('PATCH', 'articles', { query: emptied, data: { title: 'x' } }),
    refused,
    'after the same with a limit',
  );
  t.match(await send('DELETE', 'comments', { query: { filter: { id: { _eq: 2 } } } }), { status: 204 });
});
