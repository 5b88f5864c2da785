/**
 * References that share a column, as in databases of several tenants: what two parts of a payload say of the column must agree. Values are
 * compared when the payload is planned, and what only the database knows by the statement.
 */
import t from 'tap';
import { runCommand } from '../../support/command.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { StatementRecorder } from '../../support/statement-recorder.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'shared_columns');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table tenants (id serial primary key, name text);
  create table authors (tenant integer references tenants, id serial, name text, primary key (tenant, id));
  create table books (
    tenant integer references tenants, id serial, title text, author integer, editor integer, primary key (tenant, id),
    foreign key (tenant, author) references authors (tenant, id),
    foreign key (tenant, editor) references authors (tenant, id)
  );
  create table reviews (
    id serial primary key, tenant integer not null, book integer, author integer, stars integer,
    foreign key (tenant, book) references books (tenant, id),
    foreign key (tenant, author) references authors (tenant, id)
  );
  create table notes (
    id serial primary key, tenant integer, book integer, author integer,
    foreign key (tenant, book) references books (tenant, id),
    foreign key (tenant, author) references authors (tenant, id)
  );
  create table places (room text default 'hall', no serial, name text, primary key (room, no));
  create table shelves (room text default 'hall', no serial, name text, primary key (room, no));
  create table boxes (
    id serial primary key, room text, place integer, shelf integer, other integer,
    foreign key (room, place) references places (room, no), foreign key (room, shelf) references shelves (room, no),
    foreign key (room, other) references places (room, no)
  );
  create table slots (
    room text, no serial, place integer, shelf integer, label text, primary key (room, no),
    foreign key (room, place) references places (room, no), foreign key (room, shelf) references shelves (room, no)
  );
  create table lefts (x text default 'x', no serial, partner integer, primary key (x, no));
  create table rights (x text default 'x', no serial, partner integer, primary key (x, no), foreign key (x, partner) references lefts (x, no));
  alter table lefts add foreign key (x, partner) references rights (x, no);
  create table pairs (
    id serial primary key, left_x text, left_no integer, right_x text, right_no integer,
    foreign key (left_x, left_no) references lefts (x, no), foreign key (right_x, right_no) references rights (x, no)
  );
  insert into tenants (name) values ('one'), ('two');
  insert into authors (tenant, name) values (1, 'Ada'), (2, 'Ben');
  insert into books (tenant, title, author) values (1, 'first', 1), (2, 'second', 2);
  insert into reviews (tenant, book, author) values (1, 1, 1);
  insert into notes (tenant, book, author) values (1, 1, 1), (1, 1, 1);
  insert into slots (room, label) values ('hall', 'old')`);
const suggested = await runCommand(['relations', 'suggest', '--apply'], { DATABASE_URL: databaseUrl });
await sql`update service_relations set one_deselect_action = 'nullify' where many_collection = 'notes'`;
const recorder = await StatementRecorder.open(databaseUrl);
const service = await startTestService({ databaseUrl: recorder.url, WORKERS: '1', ...KNOWS_CALLERS });

function send(method: string, path: string, content: unknown): Promise<Answer> {
  const body = JSON.stringify(content);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
  return request(service, method, path, { headers, body });
}

const dataOf = ({ json, status, text }: Answer): unknown => {
  t.equal(status, 200, text.slice(0, 300));
  return (json as { data: unknown }).data;
};

t.test('new items of one tenant, in each other', async (t) => {
  t.equal(suggested.code, 0, suggested.complaints);
  const book = {
    tenant: 1,
    title: 'new',
    authors_by_tenant_author: { tenant: '1', name: 'Cid' },
    authors_by_tenant_editor: { tenant: 1, name: 'Dot' },
  };
  const shown = 'tenant,authors_by_tenant_author.name,authors_by_tenant_editor.name';
  const wanted = {
    tenant: 1,
    authors_by_tenant_author: { name: 'Cid' },
    authors_by_tenant_editor: { name: 'Dot' },
  };
  t.strictSame(dataOf(await send('POST', `/items/books?fields=${shown}`, book)), wanted);
  const { tenant: _, ...without } = book;
  t.strictSame(dataOf(await send('POST', `/items/books?fields=${shown}`, without)), wanted, 'from them alone');
  t.strictSame(
    dataOf(await send('POST', `/items/books?fields=${shown}`, { ...without, authors_by_tenant_author: '1~1' })),
    { ...wanted, authors_by_tenant_author: { name: 'Ada' } },
    'beside one that exists',
  );
  t.strictSame(
    dataOf(
      await send('POST', '/items/reviews?fields=tenant,books.title,books.authors_by_tenant_author.name,authors.name', {
        books: { ...book, authors_by_tenant_editor: '1~1' },
        authors: { tenant: 1, name: 'Eve' },
        stars: 5,
      }),
    ),
    {
      tenant: 1,
      books: { title: 'new', authors_by_tenant_author: { name: 'Cid' } },
      authors: { name: 'Eve' },
    },
  );
  t.strictSame(
    dataOf(
      await send('POST', '/items/tenants?fields=authors.name,books.title,books.authors_by_tenant_author.name', {
        name: 'new',
        books: [{ title: 'of new', authors_by_tenant_author: { tenant: 1, name: 'Fay' } }],
      }).then((answer) => {
        t.match(answer, { status: 400, text: /contradicts/ }, 'a tenant whose number is not known yet');
        return send('POST', '/items/tenants?fields=id,authors.name,books.title', {
          id: 9,
          name: 'new',
          books: [{ title: 'of new', authors_by_tenant_author: { tenant: 9, name: 'Fay' } }],
        });
      }),
    ),
    { id: 9, authors: [{ name: 'Fay' }], books: [{ title: 'of new' }] },
  );
});

t.test('items that exist, and new ones that they are to refer to', async (t) => {
  const shown = 'fields=tenant,authors_by_tenant_editor.name';
  t.strictSame(
    dataOf(await send('PATCH', `/items/books/1~1?${shown}`, { authors_by_tenant_editor: { tenant: 1, name: 'Gil' } })),
    { tenant: 1, authors_by_tenant_editor: { name: 'Gil' } },
  );
  t.strictSame(
    dataOf(
      await send('POST', '/items/authors?fields=name,books_by_tenant_author.title', {
        tenant: 2,
        name: 'Hal',
        books_by_tenant_author: ['2~2'],
      }),
    ),
    { name: 'Hal', books_by_tenant_author: [{ title: 'second' }] },
  );
  t.strictSame(
    dataOf(
      await send('PATCH', '/items/reviews/1?fields=tenant,books.title,authors.name', {
        books: { tenant: 1, title: 'other' },
        authors: { tenant: 1, name: 'Ida' },
      }),
    ),
    { tenant: 1, books: { title: 'other' }, authors: { name: 'Ida' } },
  );
});

t.test('a payload that contradicts itself is refused and changes nothing', async (t) => {
  const rows = () => sql`
    select (select count(*) from authors) as authors, (select count(*) from books) as books, (select count(*) from places) as places,
      (select count(*) from shelves) as shelves, (select count(*) from boxes) as boxes, (select md5(string_agg(s::text, '')) from slots s) as slots`;
  const before = [...(await rows())];
  const author = (tenant: number) => ({ tenant, name: 'X' });
  const refused: [method: string, path: string, body: unknown, text: RegExp][] = [
    ['POST', 'books', { tenant: 1, authors_by_tenant_author: author(2) }, /"tenant" of "books"/],
    [
      'POST',
      'books',
      { authors_by_tenant_author: author(1), authors_by_tenant_editor: author(2) },
      /"authors_by_tenant_editor" contradicts another part of the payload about "tenant" of "books"/,
    ],
    ['POST', 'books', { authors_by_tenant_author: '1~1', authors_by_tenant_editor: '2~2' }, /contradicts/],
    ['PATCH', 'books/1~1', { authors_by_tenant_author: author(2) }, /part of the key of "books"/],
    ['POST', 'authors', { tenant: 2, books_by_tenant_author: ['1~1'] }, /part of the key of "books"/],
    ['POST', 'boxes', { places_by_room_place: { name: 'a' }, shelves: { room: 'loft', name: 'b' } }, /contradicts/],
    ['POST', 'boxes', { room: 'loft', places_by_room_place: { name: 'a' } }, /contradicts.*"room" of "boxes"/],
    ['PATCH', 'slots/hall~1', { shelves: { room: 'loft', name: 'b' } }, /part of the key of "slots"/],
    ['PATCH', 'slots/hall~1', { shelves: { room: 'loft', name: 'b' }, places: { name: 'a' } }, /part of the key/],
  ];
  for (const [method, path, body, text] of refused) {
    const answer = await send(method, `/items/${path}`, body);
    t.match({ ...answer, text: answer.text.replaceAll('\\', '') }, { status: 400, text }, JSON.stringify(body));
  }
  t.strictSame([...(await rows())], before);
});

t.test('values that only the database knows are compared there, in one statement', async (t) => {
  const body = {
    places_by_room_place: { name: 'a' },
    shelves: { name: 'b' },
    places_by_room_other: { room: 'hall', name: 'c' },
  };
  const shown = 'fields=room,places_by_room_place.name,shelves.name,places_by_room_other.name';
  const wanted = {
    room: 'hall',
    places_by_room_place: { name: 'a' },
    shelves: { name: 'b' },
    places_by_room_other: { name: 'c' },
  };
  const sent = await recorder.during(async () => {
    t.strictSame(dataOf(await send('POST', `/items/boxes?${shown}`, body)), wanted);
  });
  t.equal(sent.length, 2, 'the write and what is read back');
  const two = [body, { ...body, room: 'hall', places_by_room_other: { name: 'c' } }];
  t.strictSame(dataOf(await send('POST', `/items/boxes?${shown}`, two)), [wanted, wanted], 'two places in one row');
  t.strictSame(
    dataOf(
      await send('POST', '/items/slots?fields=room,shelves.name', { places: { name: 'a' }, shelves: body.shelves }),
    ),
    { room: 'hall', shelves: { name: 'b' } },
    'in a column of the key',
  );
  t.strictSame(
    dataOf(await send('PATCH', '/items/slots/hall~1?fields=room,shelves.name', { shelves: { name: 'new' } })),
    { room: 'hall', shelves: { name: 'new' } },
    'beside a key that stays',
  );
  await sql`insert into slots (room, no) values ('loft', 70)`;
  t.match(await send('PATCH', '/items/slots/loft~70', { shelves: { name: 'new' } }), {
    status: 400,
    text: /part of the key of/,
  });
});

t.test('a reference that is cleared leaves what it shares to the others', async (t) => {
  const shown = 'fields=tenant,books.title,authors.name';
  const book = { title: 'first' };
  t.strictSame(dataOf(await send('PATCH', `/items/notes/1?${shown}`, { authors: null })), {
    tenant: 1,
    books: book,
    authors: null,
  });
  t.strictSame(
    dataOf(await send('POST', `/items/reviews?${shown}`, { books: '1~1', authors: null })),
    { tenant: 1, books: book, authors: null },
    'also where it is written beside them',
  );
  t.strictSame(dataOf(await send('PATCH', '/items/authors/1~1?fields=notes', { notes: [] })), { notes: [] });
  t.strictSame(
    [...(await sql`select tenant, book, author from notes order by id`)],
    [
      { tenant: 1, book: 1, author: null },
      { tenant: 1, book: 1, author: null },
    ],
    'and where a list lets it go',
  );
});

t.test('new keys that wait for each other are refused by name', async (t) => {
  const body = { lefts: { rights: {} }, rights: { lefts: {} } };
  const named = /is a part of the key that comes from another new item of .* depend on each other/;
  t.match(await send('POST', '/items/pairs', body), { status: 400, text: named });
  t.match(await send('POST', '/items/lefts', { rights: { lefts: {} } }), { status: 400, text: named });
  t.equal((await sql`select from lefts`).length + (await sql`select from rights`).length, 0);
  const told = { lefts: { x: 'a', rights: { x: 'a' } }, rights: { x: 'b', lefts: { x: 'b' } } };
  t.match(await send('POST', '/items/pairs', told), { status: 200 }, 'unless the payload says them');
  t.strictSame(
    [...(await sql`select x, partner is null as bare from rights order by x`)],
    [
      { x: 'a', bare: true },
      { x: 'b', bare: false },
    ],
  );
});
