/** Requests that a recording has without their values, because they name a secret in an odd spelling. */
import t from 'tap';
import { buildModel } from '../../../src/compiler/model/introspect.js';
import { type Omission, SecretNames } from '../../../src/features/traffic/secrets.js';
import { catalogSourceOf } from '../../../src/server/postgres/catalog/catalog.js';
import { locateSystemTables } from '../../../src/server/postgres/catalog/migrate.js';
import { Database } from '../../../src/server/postgres/pools/database.js';
import { createLibrary, startDatabase, withSql } from '../../support/service.js';

const server = await startDatabase();
const url = await createLibrary(server, 'secret_names');

/** The secrets of the database as it is now. */
async function loadNames(): Promise<SecretNames> {
  const database = await Database.open({
    url,
    schema: 'public',
    otherSchemas: [],
    connections: 1,
    sessions: 1,
    streams: 1,
    imports: 1,
    waitTimeout: 10_000,
    statementTimeout: 10_000,
    connectTimeout: 10_000,
  });
  await locateSystemTables(database, null);
  const names = new SecretNames(buildModel((await catalogSourceOf(database).load()).document, 1, database));
  await database.close();
  return names;
}

interface Sent {
  readonly method?: string;
  readonly route?: string;
  /** With its query string. */
  readonly url: string;
  readonly body?: unknown;
}

function omission(names: SecretNames, { method = 'GET', route, url, body }: Sent): Omission | null {
  const [path = '', queryString = ''] = url.split(/\?(.*)/s, 2);
  const hasKey = path.split('/').length > 3;
  const text = body === undefined ? '' : JSON.stringify(body);
  const template = route ?? (hasKey ? '/items/:collection/:key' : '/items/:collection');
  return names.omissionOf({ method, route: template, path, queryString, body: text });
}

t.test('odd spellings of a concealed field', async (t) => {
  await withSql(url, async (sql) => {
    await sql`create table pers (id int primary key, iban text, "social no" text, title text)`;
    await sql`
      insert into service_fields (collection, field, special)
      values ('pers', 'iban', 'conceal'), ('pers', 'social no', 'conceal')
    `;
  });
  const names = await loadNames();
  const graphql = (query: string): Sent => ({ method: 'POST', route: '/graphql', url: '/graphql', body: { query } });
  const operation = (path: string): Sent => ({
    method: 'POST',
    route: '/transactions',
    url: '/transactions',
    body: { operations: [{ method: 'PATCH', path, body: { title: 'x' } }] },
  });
  const secret: readonly Sent[] = [
    { url: '/items/pers?x=1?filter[iban][_eq]=V' },
    { url: '/items/pers?fields=id?filter[iban][_eq]=V' },
    { url: '/items/pers?filter[%2569ban][_eq]=V' },
    { url: '/items/pers?filter[%252569ban][_eq]=V' },
    { url: '/items/pers?filter[title][_eq]=x%2526filter%255B%2569ban%255D=V' },
    { url: "/items/pers?where=iban='V'" },
    { url: "/items/pers?where=%2569ban='V'" },
    { url: '/items/pers?where=\\u0069ban:V' },
    { url: "/items/pers?filter=iban='V'" },
    { url: '/items/pers?filter=iban%20eq%20V' },
    { url: '/items/pers?or=(iban.eq.V,id.eq.1)' },
    { url: "/items/pers?where=social+no='V'" },
    { url: '/items/pers?fields=id&sort=iban:V' },
    { url: "/items/pers?search=iban%20='V'" },
    { url: '/items/pers?filter[title][_eq]="iban":"V"' },
    { url: '/items/pers?q=userPassword%20V' },
    { url: '/items/pers/iban:V' },
    { url: '/items/pers/iban%3AV' },
    { url: '/items/pers/%2569ban:V' },
    { url: "/items/pers/iban='V'" },
    { url: '/items/pers;iban=V' },
    { url: '/items/pers(iban:V)' },
    { method: 'SEARCH', url: '/items/pers', body: { query: { filter: "iban='V'" } } },
    { method: 'SEARCH', url: '/items/pers', body: { query: { filter: { '%69ban': { _eq: 'V' } } } } },
    { method: 'POST', url: '/items/pers', body: { title: 'the IBAN: V' } },
    graphql("{ pers(where: iban = 'V') { id } }"),
    graphql('{ pers(search: "iban=V") { id } } # x'),
    graphql('{ pers { id } } # iban=V'),
    operation('/items/pers/iban:V'),
    operation('/items/pers/1?x=1?filter[iban][_eq]=V'),
    operation("/items/pers?filter=%69ban='V'"),
  ];
  for (const sent of secret) t.equal(omission(names, sent), 'secret', JSON.stringify(sent));
  const plain: readonly Sent[] = [
    { url: '/items/pers?fields=id,iban,social no&sort=-iban,title' },
    { url: '/items/pers?fields[]=iban&aggregate[max]=iban&groupBy[]=iban&alias[x]=iban' },
    { url: '/items/pers?fields=json(iban,$.a),iban&limit=5' },
    { url: '/items/pers?deep[others][_fields]=iban&deep={"others":{"_sort":["iban"]}}' },
    { url: '/items/pers?search=100%25%20sure&filter[title][_eq]=50%25' },
    { url: '/items/pers?filter[title][_contains]=the+iban+of' },
    { url: '/items/pers/1?fields=iban' },
    { method: 'SEARCH', url: '/items/pers', body: { query: { fields: ['id', 'iban'], sort: ['iban'] } } },
    { method: 'POST', url: '/items/pers', body: { title: 'an iban, or another number' } },
    graphql('{ pers(sort: ["-iban"], limit: 5) { id iban } }'),
    operation('/items/pers/1?fields=iban'),
    { route: '/rpc/:function', url: '/rpc/reset_password?x=1' },
  ];
  for (const sent of plain) t.equal(omission(names, sent), null, JSON.stringify(sent));
});

t.test('odd spellings of a concealed key', async (t) => {
  await withSql(url, async (sql) => {
    await sql`create table vaults (code text primary key, title text)`;
    await sql`insert into service_fields (collection, field, special) values ('vaults', 'code', 'conceal')`;
  });
  const names = await loadNames();
  const secret: readonly Sent[] = [
    { url: '/items/vaults?keys=V' },
    { url: '/items/vaults?keys[]=V' },
    { url: '/items/vaults?%6Beys=V' },
    { url: '/items/vaults?primary_key=V' },
    { url: '/items/vaults?filter=V' },
    { url: '/items/vaults?fields=title&V' },
    { route: '/rpc/:function', url: '/rpc/open?keys=V' },
  ];
  for (const sent of secret) t.equal(omission(names, sent), 'secret', JSON.stringify(sent));
  const plain: readonly Sent[] = [
    { url: '/items/vaults?fields=title&limit=5&sort=title&filter[title][_eq]=x&meta=*' },
    { url: '/items/vaults?filter={"title":{"_eq":"x"}}' },
    { url: '/items/pers?keys=V' },
  ];
  for (const sent of plain) t.equal(omission(names, sent), null, JSON.stringify(sent));
});
