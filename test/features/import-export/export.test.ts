/** Exports: each format is read back with a reader of its own and compared with what the list shows. */
import t from 'tap';
import { parse as parseYaml } from 'yaml';
import {
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'exported');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table awkward (id integer primary key, value text, "a,b" text, "1st <tag>" integer, "__proto__" text, document jsonb);
      insert into awkward values
        (1, 'plain', 'x', 1, 'p', '{"a": [1, {"b": null}], "c": "d"}'), (2, 'say "hi", you', E'two\\nlines', 2, '', '[]'),
        (3, E'carriage\\r\\nreturn', ' spaces ', 3, null, '"text"'), (4, 'ünï ✓ 漢字 😀', E'tab\\t', null, null, 'null'),
        (5, '', null, null, null, null), (6, '<b>&amp;"''</b> ]]>', '- no: list', null, '# no comment', '{}'),
        (7, E'\\u0001\\u0008\\ufffe control', '=1+1', null, 'true', '{"x y": 1, "<": "&"}'), (8, 'null', '007', 8, '~', '1.5');
      create table "we""ird'näme;x" (id integer primary key);
      insert into "we""ird'näme;x" values (1);`)
    .simple(),
);
const service = await startTestService({ databaseUrl });

type Item = Record<string, unknown>;

const QUERIES: Readonly<Record<string, string>> = {
  'awkward values': '/items/awkward?fields=*&sort=id',
  'nested items and lists': '/items/articles?fields=id,title,author.name,author.born,comments.body,tags,meta&sort=-id',
  'nested without a target': '/items/comments?fields=id,article.author.name,author.*',
  'many to any': '/items/articles_blocks?fields=id,collection,item:block_text.text,item:block_image.*',
  functions: '/items/articles?fields=id,year(published_at),count(comments),json(meta,k)&sort=id',
  'one item': '/items/articles/1?fields=id,title,author.name',
  'a page': '/items/articles?fields=id&limit=3&offset=2&filter[views][_gt]=0&search=o',
  aggregates: '/items/articles?aggregate[count]=*&aggregate[sum]=views,rating&groupBy=status,year(published_at)',
  'one aggregate': '/items/articles?aggregate[max]=title',
  'groups alone': '/items/articles?groupBy=author.name',
  nothing: '/items/articles?fields=id,author.name&filter[id][_eq]=0',
};

for (const [name, path] of Object.entries(QUERIES)) {
  t.test(name, async (t) => {
    const { data } = (await get(service, path)).json as { data: Item | Item[] };
    const items = Array.isArray(data) ? data : [data];
    const file = async (format: string): Promise<string> => {
      const answer = await get(service, `${path}${path.includes('?') ? '&' : '?'}export=${format}`);
      t.equal(answer.status, 200, `${format}: ${answer.text.slice(0, 200)}`);
      return answer.text;
    };
    t.strictSame(JSON.parse(await file('json')), items, 'json');
    const lines = (await file('ndjson')).split('\n');
    t.equal(lines.pop(), '', 'every line of ndjson ends');
    t.strictSame(
      lines.map((line) => JSON.parse(line)),
      items,
      'ndjson',
    );
    t.strictSame(parseYaml(await file('yaml')) ?? [], items, 'yaml');
    const csv = await file('csv');
    t.strictSame(readCsv(csv).slice(1), flatten(items, readCsv(csv)[0] ?? []), 'csv');
    t.equal(await file('csv_utf8'), `\uFEFF${csv}`, 'csv_utf8 is csv behind a mark');
    t.strictSame(readXml(await file('xml')), asXml(items), 'xml');
  });
}

t.test('columns of csv come from what was asked, not from the first item', async (t) => {
  const header = async (path: string): Promise<string[] | undefined> => readCsv((await get(service, path)).text)[0];
  const fields = 'id,author.name,author.articles,comments.id,count(tags)';
  const expected = ['id', 'author.name', 'author.articles', 'comments', 'tags_count'];
  t.strictSame(await header(`/items/articles?export=csv&fields=${fields}`), expected);
  t.strictSame(
    await header(`/items/articles?export=csv&fields=${fields}&filter[id][_eq]=6`),
    expected,
    'without an author',
  );
  t.strictSame(
    await header(`/items/articles?export=csv&fields=${fields}&filter[id][_eq]=0`),
    expected,
    'without items',
  );
  t.strictSame(await header('/items/articles?export=csv&aggregate[count]=*&aggregate[avg]=views&groupBy=status'), [
    'status',
    'count',
    'avg.views',
  ]);
});

t.test('empty files', async (t) => {
  const empty = async (format: string): Promise<string> =>
    (await get(service, `/items/articles?export=${format}&fields=id,title&filter[id][_eq]=0`)).text;
  t.equal(await empty('json'), '[]');
  t.equal(await empty('ndjson'), '');
  t.equal(await empty('csv'), 'id,title\n');
  t.strictSame(parseYaml(await empty('yaml')), [], 'an empty list, not an empty document');
  t.strictSame(readXml(await empty('xml')), { name: 'data', children: [], text: '' });
});

t.test('headers', async (t) => {
  const types = {
    json: /^application\/json/,
    ndjson: /^application\/x-ndjson/,
    csv: /^text\/csv; charset=utf-8/,
    xml: /^(text|application)\/xml/,
    yaml: /yaml/,
  };
  for (const [format, type] of Object.entries(types)) {
    const { headers } = await get(service, `/items/articles?export=${format}`);
    t.match(headers['content-type'], type);
    t.match(headers['content-disposition'], new RegExp(`^attachment; filename="articles[^"]*\\.${format}"`));
  }
  const hostile = await get(service, `/items/${encodeURIComponent(`we"ird'näme;x`)}?export=csv`);
  t.equal(hostile.status, 200);
  const disposition = String(hostile.headers['content-disposition']);
  const [, plain = '', encoded = ''] =
    /^attachment; filename="([^"]*)"; filename\*=UTF-8''(.*)$/.exec(disposition) ?? [];
  t.match(plain, /^[\w.-]+\.csv$/);
  t.match(encoded, /^[\w!#$&+.^`|~%-]+$/, 'only what RFC 5987 lets stand as it is');
  t.match(decodeURIComponent(encoded), /^we"ird'näme;x.*\.csv$/);
});

t.test('requests that cannot be exported', async (t) => {
  const wrong = { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } };
  for (const format of ['pdf', 'CSV', 'constructor', '__proto__', 'csv,json', '%00']) {
    const answer = await get(service, `/items/articles?export=${format}`);
    t.match(answer, wrong, format);
    t.notOk(answer.headers['content-disposition'], 'an error is no download');
  }
  t.match(await get(service, '/items/articles?export[]=csv&export[]=json'), wrong);
  t.match(await get(service, '/items/articles?export=csv&meta=*'), wrong);
  t.match(await get(service, '/items/articles?export=csv&filter[published_at][_gt]=x'), wrong, 'a bad value');
  t.match(await get(service, '/items/articles?export=csv&fields=nothing'), { status: 403 });
  t.match(await get(service, '/items/articles/4040?export=csv'), { status: 403 }, 'a missing item is no empty file');
  t.match(await get(service, '/items/articles?export=csv', { token: null }), { status: 403 });
  const head = await request(service, 'HEAD', '/items/articles?export=csv');
  t.match(head, { status: 200, text: '', headers: { 'content-disposition': /articles/ } });
  t.not(head.headers['content-length'], '0', 'HEAD does not claim an empty file');
});

/** RFC 4180. */
function readCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = '';
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    const character = text[at] as string;
    if (quoted) {
      if (character !== '"') cell += character;
      else if (text[at + 1] === '"') cell += text[++at];
      else quoted = false;
    } else if (character === '"' && cell === '') quoted = true;
    else if (character === ',' || character === '\n') {
      row.push(cell);
      cell = '';
      if (character === '\n') {
        rows.push(row);
        row = [];
      }
    } else cell += character;
  }
  return rows;
}

/** The items as rows of texts below the given header, in which a dot leads into a nested item. */
function flatten(items: readonly Item[], header: readonly string[]): string[][] {
  return items.map((item) => header.map((name) => csvText(name in item ? item[name] : valueAt(item, name.split('.')))));
}

function valueAt(value: unknown, path: readonly string[]): unknown {
  const [first, ...rest] = path;
  if (first === undefined) return value;
  if (value === null || typeof value !== 'object') return null;
  const whole = path.join('.');
  if (whole in value) return (value as Item)[whole];
  return valueAt((value as Item)[first], rest);
}

function csvText(value: unknown): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

interface Element {
  readonly name: string;
  readonly children: Element[];
  text: string;
}

/** A reader that takes well-formed elements, texts and character references, and throws at everything else. */
function readXml(text: string): Element {
  const root: Element = { name: '', children: [], text: '' };
  const open: Element[] = [root];
  const pattern = /<\?xml [^>]*\?>|<(\/?)([A-Za-z_][\w.-]*)((?:\s+[\w]+="[^"<]*")*)\s*(\/?)>|([^<]+)/gy;
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    end = match.index + match[0].length;
    const [, closing, tag, attributes = '', empty, characters] = match;
    const current = open.at(-1) as Element;
    if (characters !== undefined) current.text += unescapeXml(characters);
    else if (tag === undefined) continue;
    else if (closing) {
      const name = open.pop();
      if (!name || !isTag(name, tag)) throw new Error(`</${tag}> closes nothing`);
    } else {
      const named = /\sname="([^"]*)"/.exec(attributes)?.[1];
      const element = { name: named === undefined ? tag : unescapeXml(named), children: [], text: '' };
      tags.set(element, tag);
      current.children.push(element);
      if (!empty) open.push(element);
    }
  }
  if (end !== text.length || open.length !== 1)
    throw new Error(`not well-formed at ${end}: ${text.slice(end, end + 80)}`);
  const strip = (element: Element): Element => ({
    name: element.name,
    children: element.children.map(strip),
    text: element.children.length > 0 ? '' : element.text,
  });
  return { ...strip(root.children[0] as Element), text: '' };
}

const tags = new WeakMap<Element, string>();

function isTag(element: Element, tag: string): boolean {
  return tags.get(element) === tag;
}

function unescapeXml(text: string): string {
  const names: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a document must not hold.
  if (/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/.test(text)) throw new Error('a character XML cannot hold');
  return text.replace(/&(?:#(\d+)|#x([\da-f]+)|(\w+));|&/gi, (whole, decimal, hexadecimal, name) => {
    if (decimal !== undefined) return String.fromCodePoint(Number(decimal));
    if (hexadecimal !== undefined) return String.fromCodePoint(Number.parseInt(hexadecimal, 16));
    const found = names[name];
    if (found === undefined) throw new Error(`${whole} is no reference`);
    return found;
  });
}

/** What the file has to say of the items: an element per key, `item` for entries of lists, nothing for null. */
function asXml(items: readonly Item[]): Element {
  const element = (name: string, value: unknown): Element => {
    if (value === null || value === undefined) return { name, children: [], text: '' };
    if (typeof value !== 'object') return { name, children: [], text: xmlText(String(value)) };
    const entries = Array.isArray(value)
      ? value.map((each): [string, unknown] => ['item', each])
      : Object.entries(value);
    return { name, children: entries.map(([key, each]) => element(key, each)), text: '' };
  };
  return element('data', items);
}

function xmlText(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a document must not hold.
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '\ufffd');
}

t.test('documents that are nested too deeply for a format', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql
      .unsafe(`
        create table deep (id integer primary key, document json);
        insert into deep select n, case when n in (1, 2000) then (repeat('[', 9000) || repeat(']', 9000))::json end
          from generate_series(1, 2000) n`)
      .simple(),
  );
  await waitFor(async () => (await get(service, '/items/deep?limit=1')).status === 200, 5_000);
  for (const format of ['json', 'ndjson']) {
    t.equal((await get(service, `/items/deep?limit=2&export=${format}`)).status, 200, format);
  }
  for (const format of ['csv', 'xml', 'yaml']) {
    const { status, text } = await get(service, `/items/deep?limit=2&sort=id&export=${format}`);
    // How deep is too deep for CSV depends on the stack, which threads have more of.
    if (format === 'csv' && status === 200) {
      t.ok(text.includes(`${'['.repeat(9000)}${']'.repeat(9000)}`), 'csv is whole');
      continue;
    }
    t.equal(status, 400, format);
    t.match(text.slice(0, 500), /nested too deeply/, format);
    await t.rejects(
      get(service, `/items/deep?offset=1&sort=id&limit=-1&export=${format}`),
      `${format}: the transfer breaks off`,
    );
  }
  t.equal((await get(service, '/items/deep?limit=2')).status, 200, 'the service is there');
});
