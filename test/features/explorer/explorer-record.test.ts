/** The page of one item: inputs by type, lists, revisions, comments, versions, readers and requests. SQL checks each result. */
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { findings, logIn, setPassword, watchForScripts } from '../../support/explorer.js';
import { connectSql, createLibrary, request, startDatabase, startTestService, waitFor } from '../../support/service.js';

t.setTimeout(300_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_record');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const MARKUP = '<img src=x onerror=alert(1)>';
await sql.unsafe(`
  create type mood as enum ('calm', 'busy');
  create table events (
    id serial primary key, title varchar(40) not null, status varchar(20) default 'draft' check (status in ('draft', 'it''s on')),
    feeling mood, seats smallint, price numeric(7, 2), open boolean not null default false, day date, at timestamptz, wall timestamp,
    starts time, setup jsonb, labels text[], hours int4range, host uuid references service_users, poster uuid references service_files);
  create table guests (id serial primary key, event integer references events on delete cascade, name text not null, age integer);
  insert into events (title, at, wall) values ('Opening', '2024-05-31 10:00:00.123456Z', '2024-05-31 10:00:00'), ('${MARKUP}', null, null);
  insert into guests (event, name) values (1, 'Ann');
`);
const service = await startTestService({ databaseUrl });
await setPassword(service);
const headers = { 'content-type': 'application/json' };
const ask = (method: string, path: string, body: unknown) =>
  request(service, method, path, { headers, body: JSON.stringify(body) });
await ask('POST', '/schema/suggestions', {});

t.test('task 18: JSON; task 19: date: each field has an input of its kind', { skip }, async (t) => {
  const { page, complaints } = await openPage(service, { timezoneId: 'America/New_York' });
  await logIn(service, page, '#/data/events?sort=-id');
  await page.getByRole('grid', { name: 'events' }).getByRole('link', { name: 'Open row 2' }).click();
  await page.waitForURL(/data\/events\/1\?sort=-id/);
  await page.getByRole('heading', { name: 'Opening' }).waitFor();
  const field = (name: string) => page.locator(`#record-${name}`);
  t.strictSame(
    await field('status').locator('option').allTextContents(),
    ['null', 'draft', "it's on"],
    'the values of the check',
  );
  t.strictSame(await field('feeling').locator('option').allTextContents(), ['null', 'calm', 'busy'], 'of the enum');
  await field('status').selectOption("it's on");
  await field('feeling').selectOption('busy');
  await field('open').selectOption('true');

  const wrong = async (name: string, text: string, message: RegExp): Promise<void> => {
    await field(name).fill(text);
    await page.locator(`#error-record-${name}`).getByText(message).waitFor();
    t.ok(await page.getByRole('button', { name: 'Save' }).isDisabled(), `${name}: not saved while ${text} is there`);
  };
  await wrong('seats', '40000', /from -32768 to 32767/);
  await field('seats').fill('120');
  await wrong('price', '1234567', /before the point/);
  await field('price').fill('99.50');
  await wrong('day', 'Action!', /must be a date/);
  await wrong('day', '2024-02-30', /must be a date/);
  await field('day').fill('2024-02-29');
  await wrong('setup', '{"a": 1,\n "b" 2}', /Line 2, column 6/);
  await page.getByRole('button', { name: 'Go to the error' }).click();
  t.equal(
    await page.evaluate(`document.querySelector('#record-setup').selectionStart`),
    14,
    'the cursor is at the error',
  );
  await field('setup').fill('{"a": 1, "b": [2]}');
  await wrong('title', 'x'.repeat(41), /at most 40/);
  await field('title').fill('Grand opening');

  t.equal(await field('at').inputValue(), '2024-05-31 10:00:00.123456', 'in UTC, with microseconds');
  await page.getByLabel('Time zone of at').selectOption('local');
  t.equal(await field('at').inputValue(), '2024-05-31 06:00:00.123456', 'in the zone of the browser');
  await field('at').fill('2024-06-01 09:30:00');
  await field('wall').fill('2024-06-01 09:30');
  await page.getByRole('button', { name: 'Choose a date' }).first().click();
  await page.locator('.input-picker input[type=date]').fill('2024-03-15');
  t.equal(await field('day').inputValue(), '2024-03-15', 'the picker of the browser');
  await field('starts').fill('18:30');

  for (const [at, label] of ['red', 'green, not blue'].entries()) {
    await field('labels')
      .getByRole('button', { name: /^Add an element/ })
      .click();
    await page.getByLabel(`labels, element ${at + 1}`).fill(label);
  }
  await field('hours').fill('20');
  await page.getByLabel('Upper bound of hours', { exact: true }).fill('10');
  await page.getByText('The lower bound must not be above').waitFor();
  await field('hours').fill('9');
  await page.getByLabel('Upper bound of hours is').selectOption('included');

  await field('host').click();
  await page.getByLabel('Search in service_users').fill('admin');
  await page.getByRole('option', { name: /admin@example.com/ }).click();
  const picture = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  );
  await page
    .getByLabel('Upload a file for poster')
    .setInputFiles({ name: `${MARKUP}.png`, mimeType: 'image/png', buffer: picture });
  await page.locator('.input-file .thumbnail').waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText(/\d+ changes saved, in one statement/).waitFor();
  t.match(
    await sql`select title, status, feeling, seats, price, open, day::text, at at time zone 'UTC' = '2024-06-01 13:30' as at, wall::text,
      starts::text, setup, labels, hours::text, (select email from service_users where id = host) as host,
      (select type from service_files where id = poster) as poster from events where id = 1`,
    [
      {
        title: 'Grand opening',
        status: "it's on",
        feeling: 'busy',
        seats: 120,
        price: '99.50',
        open: true,
        day: '2024-03-15',
        at: true,
        wall: '2024-06-01 09:30:00',
        starts: '18:30:00',
        setup: { a: 1, b: [2] },
        labels: ['red', 'green, not blue'],
        hours: '[9,11)',
        host: 'admin@example.com',
        poster: 'image/png',
      },
    ],
  );
  await page.getByRole('button', { name: 'Set day to null' }).click();
  await page.keyboard.press('Control+s');
  await page.getByText('One change saved').waitFor();
  t.match(await sql`select day from events where id = 1`, [{ day: null }]);
  await page.getByRole('link', { name: 'Back to events' }).click();
  await page.waitForURL(/data\/events\?sort=-id/);
  t.strictSame(complaints, []);
});

t.test('task 28: revision restored, with the differences of each', { skip }, async (t) => {
  await ask('PATCH', '/items/articles/2', { title: 'Changed once', views: 251 });
  await ask('PATCH', '/items/articles/2', { title: MARKUP });
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/articles/2?tab=revisions');
  const entries = page.getByRole('listitem');
  await entries.nth(1).waitFor();
  await entries.first().locator('ins', { hasText: MARKUP }).waitFor();
  await entries.first().locator('del', { hasText: 'Changed once' }).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  await entries.nth(1).getByRole('button', { name: 'Restore' }).click();
  const dialog = page.getByRole('dialog', { name: 'Restore this revision?' });
  t.equal(await dialog.getByRole('checkbox').count(), 1, 'only what differs now');
  t.strictSame(await findings(page), [], 'no serious finding in the dialog');
  await dialog.getByRole('button', { name: 'Restore' }).click();
  await page.getByText('Revision restored').waitFor();
  t.match(await sql`select title, views from articles where id = 2`, [{ title: 'Changed once', views: 251 }]);
  await page.getByRole('heading', { name: 'Changed once' }).waitFor();
  t.strictSame(complaints, []);
});

t.test('task 27: version promoted, after it was edited and compared', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/articles/3?tab=versions');
  await page.getByRole('button', { name: 'Turn on versions for articles' }).click();
  await page.getByRole('button', { name: 'New version' }).click();
  await page.getByLabel('Name', { exact: true }).fill('Second edition');
  await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
  await page.waitForURL(/version=draft/);
  const field = (name: string) => page.locator(`#record-${name}`);
  await field('title').fill('A better title');
  await field('views').fill('77');
  await page.getByRole('button', { name: 'Save to Second edition' }).click();
  await page.getByText('Saved to Second edition').waitFor();
  t.match(await sql`select title, views from articles where id = 3`, [{ title: 'hello lower', views: 0 }], 'unchanged');
  await page.getByLabel('Version', { exact: true }).selectOption('Published item');
  await page.getByRole('heading', { name: 'hello lower' }).waitFor();
  t.equal(await field('title').inputValue(), 'hello lower');
  await page.getByLabel('Version', { exact: true }).selectOption('Second edition');
  await page.getByRole('heading', { name: 'A better title' }).waitFor();
  await page.getByRole('link', { name: 'Versions' }).click();
  const version = page.getByRole('region', { name: 'Version Second edition' });
  await version.locator('ins', { hasText: 'A better title' }).waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  await version.getByLabel('Promote views').uncheck();
  await version.getByRole('button', { name: 'Promote' }).click();
  await page.getByText('Version promoted').waitFor();
  t.match(await sql`select title, views from articles where id = 3`, [{ title: 'A better title', views: 0 }]);
  await version.getByRole('button', { name: 'Delete' }).click();
  const question = page.getByRole('dialog', { name: 'Delete the version Second edition?' });
  t.strictSame(await findings(page), [], 'no serious finding in the question');
  t.equal((await sql`select from service_versions`).length, 1, 'it asks first');
  await question.getByRole('button', { name: 'Delete' }).click();
  await page.getByText('No versions yet.').waitFor();
  t.equal((await sql`select from service_versions`).length, 0);
  t.strictSame(complaints, []);
});

t.test('comments: write, change, delete', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/data/articles/4?tab=comments');
  await page.getByLabel('New comment').fill(MARKUP);
  await page.getByRole('button', { name: 'Comment', exact: true }).click();
  const comment = page.getByRole('article');
  await comment.getByText(MARKUP).waitFor();
  await comment.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Change the comment').fill('Add a picture');
  await page.getByRole('button', { name: 'Save comment' }).click();
  await comment.getByText('Add a picture').waitFor();
  t.match(await sql`select comment from service_comments where collection = 'articles' and item = '4'`, [
    { comment: 'Add a picture' },
  ]);
  t.strictSame(await findings(page), [], 'no serious finding');
  await comment.getByRole('button', { name: 'Delete' }).click();
  const question = page.getByRole('dialog', { name: 'Delete the comment?' });
  await question.getByRole('button', { name: 'Cancel' }).click();
  t.equal((await sql`select from service_comments`).length, 1, 'nothing is deleted before the answer');
  await comment.getByRole('button', { name: 'Delete' }).click();
  await question.getByRole('button', { name: 'Delete comment' }).click();
  await page.getByText('No comments yet.').waitFor();
  t.equal((await sql`select from service_comments`).length, 0);
  t.strictSame(complaints, []);
});

t.test('the page of a key that cannot be read has no tabs', { skip }, async (t) => {
  const { page } = await openPage(service);
  await logIn(service, page, '#/data/articles/none');
  await page
    .getByRole('alert')
    .getByText(/must be a whole number/)
    .waitFor();
  t.equal(await page.getByRole('navigation', { name: 'Parts of the item' }).count(), 0);
});

t.test('the callers who may see it, and the item as requests', { skip }, async (t) => {
  const readable = { status: { _eq: 'published' } };
  const permission = { collection: 'articles', action: 'read', fields: ['id', 'title'], permissions: readable };
  const made = await ask('POST', '/policies', { name: 'Readers', permissions: [permission] });
  await ask('POST', '/access', { policy: (made.json as { data: { id: string } }).data.id });
  const { page, complaints } = await openPage(service);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await logIn(service, page, '#/data/articles/1?tab=access');
  const row = (name: string) => page.getByRole('row', { name: new RegExp(`^${name}`) });
  await row('Public').getByText('id, title').waitFor();
  await row('Administrator').getByText('all fields').waitFor();
  await page.getByLabel('Check a user').fill('admin@example.com');
  await page.getByRole('button', { name: 'Check' }).click();
  await row('admin@example.com').getByText('all fields').waitFor();
  t.strictSame(await findings(page), [], 'no serious finding');
  await page.goto(`${service.url}/explorer#/data/articles/9?tab=access`);
  await row('Public').getByText('no', { exact: true }).waitFor();

  await page.getByRole('link', { name: 'Fields' }).click();
  await page.locator('#record-title').fill(`It's`);
  await page.getByRole('button', { name: 'As request' }).click();
  await page.getByRole('button', { name: 'Copy curl' }).last().click();
  const copied = String(await page.evaluate('navigator.clipboard.readText()'));
  t.match(copied, /^curl -g -X PATCH[\s\S]*"title": "It'\\''s"[\s\S]*\/items\/articles\/9'$/);
  t.strictSame(await findings(page), [], 'no serious finding in the dialog');
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
  await page.getByRole('button', { name: 'Undo the change of title' }).click();
  await waitFor(async () => (await page.locator('#record-title').inputValue()) === 'Gamma', 5_000);
  t.equal(await page.getByText('not saved').count(), 0);
  t.strictSame(complaints, []);
});

t.test('a new item with nested items is one request', { skip }, async (t) => {
  const { page, complaints } = await openPage(service, { viewport: { width: 360, height: 800 }, colorScheme: 'dark' });
  await logIn(service, page, '#/data/events');
  const writes: string[] = [];
  page.on('request', (sent) => {
    if (['PATCH', 'POST'].includes(sent.method())) writes.push(`${sent.method()} ${sent.postData()}`);
  });
  await page.getByRole('button', { name: 'New', exact: true }).click();
  const form = page.getByRole('form', { name: 'New item in events' });
  await form.locator('#record-seats').fill('7');
  await page.getByRole('button', { name: 'Create' }).click();
  await form.getByText('is required').waitFor();
  await form.locator('#record-title').fill('With guests');
  for (const name of ['Bo', 'Cy']) {
    await form
      .getByRole('region', { name: /^guests of/ })
      .getByRole('button', { name: 'Add' })
      .click();
    const guest = page.getByRole('dialog', { name: 'New item in guests' });
    await guest.getByRole('textbox', { name: /^name/ }).fill(name);
    await guest.getByRole('button', { name: 'Add' }).click();
    await form.getByText(name, { exact: true }).waitFor();
  }
  t.strictSame(await findings(page), [], 'no serious finding');
  t.equal(await page.evaluate('document.documentElement.scrollWidth - innerWidth'), 0, 'as wide as the phone');
  writes.length = 0;
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByText('Item created').waitFor();
  t.equal(writes.length, 1, 'one request');
  t.match(
    await sql`select g.name, e.seats from events e join guests g on g.event = e.id where e.title = 'With guests' order by 1`,
    [
      { name: 'Bo', seats: 7 },
      { name: 'Cy', seats: 7 },
    ],
  );
  t.strictSame(complaints, []);
});

t.test('hostile values are text on every part of the page', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  watchForScripts(page, complaints);
  await ask('PATCH', '/items/events/2', { setup: { [MARKUP]: MARKUP }, labels: [MARKUP] });
  await ask('POST', '/comments', { collection: 'events', item: '2', comment: MARKUP });
  await logIn(service, page, '#/data/events/2');
  for (const tab of ['fields', 'revisions', 'comments', 'versions', 'access']) {
    await page.goto(`${service.url}/explorer#/data/events/2?tab=${tab}`);
    await page.getByRole('heading', { name: MARKUP }).waitFor();
    for (const colorScheme of ['light', 'dark'] as const) {
      for (const width of [360, 1400]) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 800 });
        t.strictSame(await findings(page), [], `${tab}, ${colorScheme}, ${width}: no serious finding`);
        t.equal(await page.evaluate('document.documentElement.scrollWidth - innerWidth'), 0, `${tab} fits ${width}`);
      }
    }
    t.equal(await page.locator('img[src="x"], main script').count(), 0, tab);
  }
  t.strictSame(complaints, []);
});
