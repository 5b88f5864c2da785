/** `lateral adopt`: an installation of Directus becomes one of ours, as a whole or not at all, and again without a change. */

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { TOTP } from 'otpauth';
import t from 'tap';
import { PROGRAM } from '../../../src/app/start.js';
import { adopt as command } from '../../../src/features/adopt/command.js';
import { compareAnswers, type TestCaller } from '../../../src/features/adopt/compare.js';
import type { Question } from '../../../src/features/adopt/questions.js';
import { runCommand } from '../../support/command.js';
import {
  createDatabase,
  get,
  type Outcome,
  request,
  runProgram,
  type Sql,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { adoptedRows } from './adopt/rows.js';

/** Headers often hold credentials. */
const CONCEALED = '**********';
const PASSWORD = 'pass-editor@example.org';
const ADMIN = 'old-admin-static-token';
const EDITOR = 'old-editor-static-token';
const BOSS = '00000000-0000-4000-8000-0000000000a1';
const EDITOR_KEY = '00000000-0000-4000-8000-0000000000a2';

const server = await startDatabase();

t.test('an installation is adopted', async (t) => {
  const url = await createDatabase(server, 'old', ['directus.sql', 'directus-data.sql']);
  const adopt = (...words: string[]) => run(['--database-url', url, ...words]);

  await t.test('a dry run shows what would be done and changes nothing', async (t) => {
    const before = await describe(url);
    const { code, output, complaints } = await adopt('--dry-run');
    t.equal(code, 0, complaints);
    t.match(output, /^Directus 12 in schema "public"/);
    t.match(output, /users +4 new, 0 changed/);
    t.match(output, /articles\.user_created/);
    t.match(output, /webhooks +1 new/);
    t.match(output, /flow "Mails" \(active\): it does more than to send one request/);
    t.match(output, /flow "Nightly" \(inactive\): its trigger is "schedule"/);
    t.match(output, /flow "Chat" \(active\): the body of its request is a template/);
    t.match(output, /1 row of directus_fields: their columns no longer exist/);
    t.match(output, /policy "Editing", read "tags": its rule does not fit/);
    t.match(output, /comments +2 new/);
    t.notMatch(output, /directus_(folders|presets|comments|notifications|translations|dashboards|panels):/);
    t.match(output, /files +2 new/);
    t.match(output, /2 rows of directus_files: the stored bytes are not copied; give STORAGE_LOCATIONS/);
    t.match(output, /1 row of directus_files: stored under a name that is not the key/);
    t.match(output, /Nothing was changed/);
    t.strictSame(await describe(url), before);
  });

  await t.test('a failure in the middle leaves nothing', async (t) => {
    const before = await describe(url);
    await withSql(url, (sql) => sql.unsafe(REFUSING));
    const { code, complaints } = await adopt();
    t.equal(code, 1);
    t.match(complaints, /nothing was adopted: not today/);
    await withSql(url, (sql) => sql.unsafe('drop trigger refuse on articles_blocks; drop function refuse()'));
    t.strictSame(await describe(url), before);
  });

  await t.test('the first run writes all, the second changes nothing', async (t) => {
    const first = await adopt('--activity');
    t.equal(first.code, 0, first.complaints);
    t.match(first.output, /Adopted\./);
    const before = await describe(url);
    const second = await adopt('--activity');
    t.equal(second.code, 0, second.complaints);
    t.match(second.output, /Nothing to change: everything is adopted\./);
    t.strictSame(await describe(url), before, 'not even the version of the schema');
  });

  await t.test('the data of applications arrive row by row', async (t) => {
    for (const { table, expected, found } of await withSql(url, adoptedRows)) {
      t.ok(expected.length > 0, table);
      t.strictSame(found, expected, table);
    }
  });

  const service = await startTestService({ databaseUrl: url });
  await t.test('files are rows of the service, and users have them as pictures', async (t) => {
    const fields = 'avatar.title,avatar.tags,avatar.filename_disk,avatar.uploaded_by.email';
    t.match((await get(service, `/users/me?fields=${fields}`, { token: ADMIN })).json, {
      data: {
        avatar: {
          title: 'A picture',
          tags: ['a', 'b'],
          filename_disk: '00000000-0000-4000-8000-0000000000d1.jpg',
          uploaded_by: { email: 'admin@example.org' },
        },
      },
    });
    t.match((await get(service, '/files?filter[title]=Odd', { token: ADMIN })).json, {
      data: [{ filename_disk: '00000000-0000-4000-8000-0000000000d2.png', storage: 'local' }],
    });
  });

  await t.test('a flow that posts changes is a webhook with triggers', async (t) => {
    t.match((await get(service, '/webhooks', { token: ADMIN })).json, {
      data: [
        {
          name: 'Search index',
          status: 'active',
          url: 'https://search.example.com/hook',
          collections: ['articles'],
          events: ['create', 'update'],
          headers: CONCEALED,
        },
      ],
    });
    const [webhook] = await withSql(url, (sql) => sql`select headers from service_webhooks`);
    t.strictSame(webhook?.['headers'], { 'X-Key': 'k' });
    const hasTriggers = (): Promise<boolean> =>
      withSql(url, async (sql) => {
        const found = await sql`select from pg_trigger where tgname like 'service\\_webhook\\_%'`;
        return found.length === 4;
      });
    await waitFor(hasTriggers, 10_000);
  });

  const login = (body: object) =>
    request(service, 'POST', '/auth/login', { body: JSON.stringify(body), headers: JSON_BODY, token: null });

  await t.test('passwords, static tokens and second factors are those of before', async (t) => {
    t.equal(service.administrator, null, 'there is an administrator already');
    t.equal((await login({ email: 'editor@example.org', password: PASSWORD })).status, 200);
    t.equal((await login({ email: 'editor@example.org', password: 'wrong' })).status, 401);
    t.match((await login({ email: 'careful@example.org', password: PASSWORD })).json, {
      errors: [{ extensions: { code: 'INVALID_OTP' } }],
    });
    const otp = new TOTP({ secret: 'JBSWY3DPEHPK3PXP' }).generate();
    t.equal((await login({ email: 'careful@example.org', password: PASSWORD, otp })).status, 200);
    const me = await get(service, '/users/me?fields=id,email,nickname,home.name,written.title,role.name,status', {
      token: ADMIN,
    });
    t.match(me.json, {
      data: {
        id: BOSS,
        email: 'admin@example.org',
        nickname: 'Boss',
        home: { name: 'Germany' },
        written: [{ title: 'One' }, { title: 'Two' }],
        role: { name: 'Administrator' },
      },
    });
    t.match((await get(service, '/users?filter[email]=external@example.org', { token: ADMIN })).json, {
      data: [{ status: 'suspended' }],
    });
  });

  await t.test('relations of every kind are there', async (t) => {
    const fields =
      'title,author.name,author.account.nickname,tags.tags_id.name,blocks.collection,blocks.item:block_text.text,blocks.item:service_users.nickname,translations.title,translations.languages_code.name,user_created.nickname';
    t.match((await get(service, `/items/articles/1?fields=${fields}`, { token: ADMIN })).json, {
      data: {
        author: { name: 'Ada', account: { nickname: 'Ed' } },
        tags: [{ tags_id: { name: 'tech' } }, { tags_id: { name: 'news' } }],
        blocks: [
          { collection: 'block_text', item: { text: 'Intro' } },
          { collection: 'service_users', item: { nickname: 'Ed' } },
        ],
        translations: [{ title: 'Eins', languages_code: { name: 'Deutsch' } }],
        user_created: { nickname: 'Boss' },
      },
    });
    t.match((await get(service, '/items/categories/1?fields=children.name,parent', { token: ADMIN })).json, {
      data: { children: [{ name: 'Kid' }], parent: null },
    });
  });

  await t.test('the metadata of collections and fields arrive', async (t) => {
    t.match((await get(service, '/fields/articles/title', { token: ADMIN })).json, {
      data: {
        meta: {
          interface: 'input',
          options: { trim: true },
          note: 'The title',
          width: 'half',
          group: 'details',
          validation_message: 'A title is needed',
          translations: [{ translation: 'Titel' }],
        },
      },
    });
    t.match((await get(service, '/collections/articles', { token: ADMIN })).json, {
      data: { meta: { group: 'content', icon: 'article' } },
    });
    t.match((await get(service, '/settings', { token: ADMIN })).json, {
      data: { project_name: 'Old project', project_color: '#123456', auth_login_attempts: null },
    });
    t.equal((await get(service, '/items/directus_users', { token: ADMIN })).status, 403, 'their tables are not served');
    t.match((await get(service, '/revisions?fields=item,activity.user,activity.action', { token: ADMIN })).json, {
      data: [{ item: '1', activity: { user: BOSS, action: 'create' } }],
    });
  });

  await t.test('policies, roles and permissions apply as they did', async (t) => {
    const listed = await get(service, '/items/articles?fields=title,author.name&sort=id', { token: EDITOR });
    t.strictSame(listed.json, {
      data: [
        { title: 'One', author: { name: 'Ada' } },
        { title: 'Three', author: { name: 'Ada' } },
      ],
    });
    const make = (payload: object) =>
      request(service, 'POST', '/items/articles', { token: EDITOR, headers: JSON_BODY, body: JSON.stringify(payload) });
    t.match((await make({ title: 'New' })).json, {
      data: { title: 'New', status: 'draft', user_created: '00000000-0000-4000-8000-0000000000a2' },
    });
    t.equal((await make({ title: null })).status, 400, 'the validation holds');
    t.equal((await make({ title: 'New', views: 3 })).status, 403, 'the field is not granted');
    t.match((await get(service, '/items/countries', { token: null })).json, { data: [{ code: 'DE' }] });
    t.equal((await get(service, '/items/articles', { token: null })).status, 403);
    t.match((await get(service, '/policies/abf8a154-5b1c-4a46-ac9c-7300570f4f17', { token: ADMIN })).json, {
      data: { name: 'Public' },
    });
  });

  await t.test('views, comments, notifications, texts, folders and dashboards are there', async (t) => {
    const presets = '/presets?fields=bookmark,collection,filter,layout_query&sort=bookmark';
    t.strictSame((await get(service, presets, { token: EDITOR })).json, {
      data: [
        {
          bookmark: 'Mine',
          collection: 'articles',
          filter: { status: { _eq: 'draft' } },
          layout_query: { tabular: { sort: ['title'] } },
        },
        { bookmark: 'People', collection: 'service_users', filter: null, layout_query: null },
      ],
    });
    t.strictSame(
      (await get(service, '/comments?fields=comment,item,date_created,user_created', { token: EDITOR })).json,
      {
        data: [{ comment: 'Well said', item: '1', date_created: '2024-05-06T07:08:09.000Z', user_created: EDITOR_KEY }],
      },
    );
    t.strictSame((await get(service, '/notifications?fields=subject,sender', { token: EDITOR })).json, {
      data: [{ subject: 'Read this', sender: BOSS }],
    });
    t.strictSame((await get(service, '/translations?fields=value&sort=value', { token: EDITOR })).json, {
      data: [{ value: 'Save' }, { value: 'Sichern' }],
    });
    t.strictSame((await get(service, '/dashboards?fields=name,panels.options', { token: ADMIN })).json, {
      data: [{ name: 'Figures', panels: [{ options: { field: 'views' } }] }],
    });
    t.strictSame((await get(service, '/folders?fields=name,parent.name&sort=name', { token: ADMIN })).json, {
      data: [
        { name: 'Above', parent: null },
        { name: 'Below', parent: { name: 'Above' } },
        { name: 'In itself', parent: null },
      ],
    });
    t.strictSame((await get(service, '/folders?fields=name&sort=name', { token: EDITOR })).json, {
      data: [{ name: 'Above' }, { name: 'In itself' }],
    });
    t.strictSame((await get(service, '/items/albums?fields=folder.name', { token: ADMIN })).json, {
      data: [{ folder: { name: 'Above' } }],
    });
  });

  await t.test('foreign keys lead to our users, and new ones may be referred to', async (t) => {
    const body = JSON.stringify({ email: 'new@example.org', password: 'a long enough one' });
    const made = await request(service, 'POST', '/users', { token: ADMIN, headers: JSON_BODY, body });
    const { id } = (made.json as { data: { id: string } }).data;
    const changed = await request(service, 'PATCH', '/items/authors/2', {
      token: ADMIN,
      headers: JSON_BODY,
      body: JSON.stringify({ account: id }),
    });
    t.equal(changed.status, 200, changed.text);
  });

  await t.test('later changes arrive, and revoked rights disappear', async (t) => {
    const share = JSON.stringify({ share: '00000000-0000-4000-8000-000000000041' });
    const enterShare = async (): Promise<number> =>
      (await request(service, 'POST', '/shares/auth', { body: share, headers: JSON_BODY })).status;
    t.equal(await enterShare(), 200);
    await withSql(url, (sql) => sql.unsafe(SINCE));
    const { output, code, complaints } = await adopt('--activity');
    t.equal(code, 0, complaints);
    t.match(output, /permissions +1 new, 1 changed, 1 removed/);
    t.match(output, /presets +1 new, 1 changed, 1 removed/);
    t.match(output, /comments +0 new, 1 changed/);
    t.match(output, /access taken away +0 new, 0 changed, 3 removed/);
    t.match(output, /versions +0 new, 2 changed/);
    t.equal(await enterShare(), 401);
    const drafts = await withSql(
      url,
      (sql) => sql`select key, item from service_versions where right(id::text, 2) in ('32', '34', '39') order by id`,
    );
    t.same(
      drafts.map(({ key, item }) => `${key} ${item}`),
      ['draft 3', 'renamed 2', 'draft 77'],
      'one was promoted there, one renamed, and one promoted here stays so',
    );
    t.match(output, /1 users were deleted there and are suspended here/);
    t.match(output, /activity +1 new.*\n +revisions +1 new/);
    const later = '/revisions?filter[item]=2&filter[collection]=articles&fields=delta,activity.action,activity.item';
    t.match((await get(service, later, { token: ADMIN })).json, {
      data: [{ delta: { title: 'later' }, activity: { action: 'update', item: '2' } }],
    });
    t.match((await get(service, '/items/articles?fields=title', { token: EDITOR })).json, {
      errors: [{ extensions: { code: 'FORBIDDEN' } }],
    });
  });
  await service.stop();
});

t.test('--verify asks two servers the same and tells where they differ', async (t) => {
  const url = await createDatabase(server, 'asked', ['directus.sql']);
  // A few collections are enough.
  await withSql(url, (sql) => sql.unsafe(`drop table articles_tags, ${FEWER}`));
  t.equal((await run(['--database-url', url, '--keep-references'])).code, 0);
  // Of a server that answers like Directus there is one: this one. Behind a proxy it can answer otherwise.
  const service = await startTestService({ databaseUrl: url });
  const verify = (target: string) => runCommand(['adopt', '--database-url', url, '--verify', target, '--token', ADMIN]);
  const other = await startProxy(service.url, (path, text) =>
    path.startsWith('/items/tags?') ? text.replaceAll('"tech"', '"tec"') : text,
  );
  const same = await verify(service.url);
  t.equal(same.code, 0, same.complaints + same.output);
  t.match(same.output, /^\d{2,4} questions, asked by an administrator, the public, the role "Editor"\./);
  t.match(same.output, /Not asked, since no user has a static token: Member\./);
  t.match(same.output, /No unexplained difference\.$/m);
  await withSql(url, (sql) => sql.unsafe('drop table articles, authors'));
  const different = await verify(other);
  t.equal(different.code, 1, different.complaints);
  t.match(different.output, /differ: not explained: list\n/);
  t.match(
    different.output,
    /an administrator: \/items\/tags\?sort=id&limit=3\n {4}data\[1\]\.name: "tec" there, "tech" here/,
  );
  t.match((await run(['--verify', 'nonsense'])).complaints, /--verify must look like/);
  t.match((await run(['--verify', service.url])).complaints, /--verify needs --token/);
  const words = ['--database-url', url, '--verify', service.url, '--token', EDITOR];
  t.match((await run(words)).complaints, /--token must be that of an administrator/);
  await service.stop();
});

t.test('answers are compared by what they say', async (t) => {
  const question: Question = { kind: 'nested', path: '/items/a', collections: ['a', 'b'], relation: 'kids' };
  const none = new Set<string>();
  const asker: TestCaller = {
    name: 'x',
    token: null,
    ignored: none,
    limited: new Set(['b']),
    related: none,
    uneven: none,
  };
  const compare = (theirs: object, ours: object, more: Partial<Question & TestCaller> = {}) =>
    compareAnswers(
      { ...question, ...more },
      { ...asker, ...more },
      { status: 200, body: theirs },
      { status: 200, body: ours },
    );
  const ofItem = (left: unknown, right: unknown) => compare({ data: { a: left } }, { data: { a: right } });
  t.equal(ofItem('1.50', 1.5), null, 'numbers may be texts');
  t.equal(ofItem('2024-01-01T00:00:00Z', '2024-01-01T00:00:00.000Z'), null);
  t.equal(ofItem('directus_users', 'service_users'), null);
  t.match(ofItem(1, 2), { explanation: null, detail: 'data.a: 1 there, 2 here' });
  t.match(ofItem([1], [1, 2]), { explanation: null, detail: 'data.a: 1 entries there, 2 here' });
  t.match(ofItem([1, 2], [2, 1]), { explanation: /another order/ });
  t.match(ofItem([{ id: 16 }, { id: 1 }], [{ id: '1' }, { id: '16' }]), { explanation: /another order/ });
  t.match(ofItem([1, 2], [{}, {}]), { explanation: /its key there/ });
  t.match(compare({ data: [] }, { data: [1] }, { kind: 'filter' }), { explanation: /may read/ });
  t.match(compare({ data: [] }, { data: [1] }, { ignored: new Set(['b']) }), { explanation: /licence/ });
  const other: [object, object] = [{ data: [{ count: 8 }] }, { data: [{ count: 1 }] }];
  t.match(compare(...other, { kind: 'aggregate' }), { explanation: null });
  t.match(compare(...other, { kind: 'aggregate', related: new Set(['a']) }), { explanation: /once for each/ });
  t.match(compare(...other, { kind: 'list', related: new Set(['a']), uneven: new Set(['a']) }), { explanation: null });
  t.match(compare(...other, { uneven: new Set(['b']) }), { explanation: /some rows only/ });
  const ofSystem = { path: '/items/a?fields=item%3Aservice_files.*' };
  t.match(compare(...other, ofSystem), { explanation: /keep-references/ });
  const refused = (code: string) => ({ errors: [{ extensions: { code } }] });
  t.match(compare(refused('A'), refused('B')), { explanation: /both refuse/ });
  t.match(compare(refused('A'), { data: 1 }), { explanation: null });
  t.match(compare(refused('INTERNAL_SERVER_ERROR'), { data: 1 }), { explanation: 'the other server failed' });
});

t.test('version 10 has no policies: roles become policies of the same key', async (t) => {
  const url = await createDatabase(server, 'ten', ['directus.sql']);
  await withSql(url, (sql) => sql.unsafe(AS_VERSION_10));
  const { code, output, complaints } = await run([
    '--database-url',
    url,
    '--system-schema',
    'mine',
    '--keep-references',
  ]);
  t.equal(code, 0, complaints);
  t.match(output, /^Directus 10/);
  t.match(output, /policies +4 new/);
  t.match(output, /comments +1 new/);
  await withSql(url, async (sql) => {
    t.strictSame(await namesOf(sql, 'select name from mine.service_policies order by name'), [
      'Administrator',
      'Editor',
      'Member',
      'Public',
    ]);
    t.strictSame(
      await namesOf(
        sql,
        "select policy.name from mine.service_permissions rule join mine.service_policies policy on policy.id = rule.policy where collection = 'countries'",
      ),
      ['Public'],
    );
    t.strictSame(
      await namesOf(sql, 'select user_created || item || comment as name from mine.service_comments'),
      [`${EDITOR_KEY}1Said in version 10`],
      'comments were rows of the activity',
    );
    const target =
      "select confrelid::regclass::text as name from pg_constraint where conname = 'articles_user_created_foreign'";
    t.strictSame(await namesOf(sql, target), ['directus_users'], 'with --keep-references');
  });
  const service = await startTestService({ databaseUrl: url, SYSTEM_SCHEMA: 'mine' });
  t.match((await get(service, '/items/articles?fields=title&sort=id', { token: EDITOR })).json, {
    data: [{ title: 'One' }, { title: 'Three' }],
  });
  t.match((await get(service, '/items/authors?fields=account.email&limit=1', { token: ADMIN })).json, {
    data: [{ account: { email: 'Editor@example.org' } }],
  });
  await service.stop();
});

t.test('a database that cannot be adopted is reported in one line, and nothing is written', async (t) => {
  const url = await createDatabase(server, 'empty');
  t.match(
    (await run(['--database-url', url])).complaints,
    /no schema that is served \("public"\) has the tables of Directus/,
  );
  t.match((await runProgram(['adopt', '--help'])).output, /Usage: lateral adopt/);
  t.match((await run(['now'])).complaints, /unexpected argument "now"/);
  const other = await createDatabase(server, 'twice', ['directus.sql']);
  await withSql(
    other,
    (sql) => sql`insert into directus_users (id, email) values (gen_random_uuid(), 'EDITOR@example.org')`,
  );
  const before = await describe(other);
  const { code, complaints } = await run(['--database-url', other]);
  t.equal(code, 1);
  t.match(complaints, /differ in case only.*EDITOR@example\.org, Editor@example\.org/);
  t.strictSame(await describe(other), before);
  await withSql(other, (sql) => sql`delete from directus_users where email = 'EDITOR@example.org'`);
  await (await startTestService({ databaseUrl: other, ADMIN_EMAIL: 'admin@example.org' })).stop();
  t.match(
    (await run(['--database-url', other])).complaints,
    /nothing was adopted: users of this service have the address/,
  );
});

const FEWER = 'articles_blocks, articles_translations, categories, languages, block_text';

const JSON_BODY = { 'content-type': 'application/json' };

/** Refuses what comes last in the transaction. */
const REFUSING = `
  create function refuse() returns trigger language plpgsql as $$ begin raise exception 'not today'; end $$;
  create trigger refuse before update on articles_blocks for each row execute function refuse()`;

const SINCE = `
  delete from directus_permissions where collection = 'articles' and action = 'read';
  update directus_permissions set fields = 'id,email' where collection = 'directus_users';
  insert into directus_permissions (policy, collection, action, fields) values ('00000000-0000-4000-8000-00000000000b', 'languages', 'read', '*');
  delete from directus_access where id = '00000000-0000-4000-8000-0000000000c4';
  insert into directus_access values ('00000000-0000-4000-8000-0000000000c5', '00000000-0000-4000-8000-000000000003', null, '00000000-0000-4000-8000-00000000000c', 1);
  delete from directus_users where email = 'careful@example.org';
  insert into directus_users (id) values (gen_random_uuid()), (gen_random_uuid());
  delete from directus_shares where name = 'For reviewers';
  insert into directus_activity (id, action, collection, item) values (7, 'update', 'articles', '2');
  insert into directus_revisions (activity, collection, item, delta) values (7, 'articles', '2', '{"title":"later"}');
  delete from directus_presets where bookmark = 'Mine';
  update directus_presets set search = 'x' where bookmark = 'People';
  insert into directus_presets (id, bookmark) values (10, 'Everybody');
  update directus_comments set comment = 'Very well said' where item = '1';
  insert into directus_versions (id, key, collection, delta) values ('00000000-0000-4000-8000-000000000039', 'draft', 'articles', '{}');
  insert into service_versions (id, key, collection, item) values ('00000000-0000-4000-8000-000000000039', 'draft', 'articles', '77');
  update directus_versions set item = '3' where id = '00000000-0000-4000-8000-000000000032';
  update directus_versions set key = 'renamed' where id = '00000000-0000-4000-8000-000000000034'`;

const AS_VERSION_10 = `
  alter table directus_roles add ip_access text, add enforce_tfa boolean not null default false, add admin_access boolean not null default false, add app_access boolean not null default true;
  update directus_roles set admin_access = true where name = 'Administrator';
  alter table directus_permissions add role uuid, alter policy drop not null;
  update directus_permissions set role = case policy when '00000000-0000-4000-8000-00000000000b' then '00000000-0000-4000-8000-000000000003'::uuid end;
  delete from directus_permissions where role is null and collection <> 'countries';
  alter table directus_permissions drop policy;
  alter table directus_roles drop parent;
  drop table directus_access, directus_policies;
  alter table directus_collections drop status, drop autosave_revision_interval;
  alter table directus_fields drop searchable;
  alter table directus_activity add comment text;
  insert into directus_activity (action, collection, item, comment, "user") values
    ('comment', 'articles', '1', 'Said in version 10', '00000000-0000-4000-8000-0000000000a2'), ('comment', 'articles', '2', null, null)`;

/** A server in front of another one that may change what it answers; answers its address. */
async function startProxy(target: string, change: (path: string, text: string) => string): Promise<string> {
  const proxy = createServer(async (incoming, outgoing) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const { authorization, 'content-type': type } = incoming.headers;
    const answer = await fetch(`${target}${incoming.url}`, {
      method: incoming.method ?? 'GET',
      headers: { ...(authorization ? { authorization } : {}), ...(type ? { 'content-type': type } : {}) },
      ...(chunks.length > 0 ? { body: Buffer.concat(chunks) } : {}),
    });
    outgoing.writeHead(answer.status).end(change(incoming.url ?? '', await answer.text()));
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => proxy.close());
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
}

/** The command in this process: what it writes, and how it would end. */
async function run(words: readonly string[]): Promise<Outcome> {
  const lines: string[] = [];
  const { log } = console;
  console.log = (line: string) => void lines.push(line);
  try {
    await command(words, PROGRAM);
    return { code: 0, output: lines.join('\n'), complaints: '' };
  } catch (error) {
    return { code: 1, output: lines.join('\n'), complaints: String(error) };
  } finally {
    console.log = log;
  }
}

/** Every table with its rows, and every foreign key. */
async function describe(url: string): Promise<unknown> {
  return withSql(url, async (sql) => {
    const tables = await namesOf(
      sql,
      "select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname not in ('pg_catalog', 'information_schema') order by 1",
    );
    const rows: unknown[] = [];
    for (const table of tables)
      rows.push([
        table,
        await namesOf(sql, `select md5(string_agg(row::text, ',' order by row::text)) as name from ${table} row`),
      ]);
    return [
      rows,
      await namesOf(
        sql,
        "select conrelid::regclass || pg_get_constraintdef(oid) as name from pg_constraint where contype = 'f' order by 1",
      ),
    ];
  });
}

async function namesOf(sql: Sql, text: string): Promise<unknown[]> {
  return (await sql.unsafe(text)).map((row) => row['name']);
}
