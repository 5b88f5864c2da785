/** Capacity in the Explorer in a real browser: a recording, budgets, advice about indexes, and reports of real replays. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import t from 'tap';
import { openPage, skip } from '../../support/browser.js';
import { runCommand } from '../../support/command.js';
import { findings, logIn, setPassword, watchForScripts } from '../../support/explorer.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

t.setTimeout(300_000);
const MARKUP = '<img src=x onerror=alert(1)>';
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'explorer_capacity');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql`create table events (id serial primary key, kind text, note text)`;
await sql`insert into events (kind, note) select 'kind ' || n % 5000, md5(n::text) from generate_series(1, 20000) n`;
await sql`analyze events`;
const service = await startTestService({ databaseUrl });
await setPassword(service);
const folder = await mkdtemp(join(tmpdir(), 'lateral-capacity-'));
t.teardown(() => rm(folder, { recursive: true, force: true }));
const file = join(folder, 'traffic.lateral');

t.test('task 25: index advice: traffic is recorded, and the adviser names the missing indexes', { skip }, async (t) => {
  const { page, complaints } = await openPage(service);
  await logIn(service, page, '#/capacity');
  const record = page.getByRole('button', { name: 'Record', exact: true });
  await page.getByLabel('Seconds').fill('0');
  t.ok(await record.isDisabled(), 'a recording has a length');
  await page.getByLabel('Seconds').fill('1');
  t.strictSame(await findings(page), [], 'no serious finding before the recording');
  await record.click();
  const shown = page.getByRole('region', { name: 'Recording', exact: true });
  await shown.getByText(/in 1\.0 s/).waitFor();
  t.equal(await shown.getByText('stopped early').count(), 0, 'a recording is complete after its time');
  await page.getByLabel('Seconds').fill('300');
  await record.click();
  await page.getByText(/of 300 s/).waitFor();
  const contains = '/items/events?fields=id&limit=-1&filter[note][_contains]=c4ca4';
  for (let count = 0; count < 5; count++) {
    await request(service, 'GET', '/items/events?fields=id&limit=-1&filter[kind][_eq]=kind%207');
    await request(service, 'GET', contains);
    await request(service, 'GET', '/items/tags/1');
  }
  await page.getByText(/of 300 s, (1[5-9]|[2-9]\d) requests/).waitFor();
  await page.getByRole('button', { name: 'Stop and keep' }).click();
  await shown.getByText('stopped early').waitFor();
  const shapes = page.getByRole('region', { name: 'Shapes of the recording' });
  await shapes
    .getByRole('row', { name: /GET \/items\/events\?fields&limit&filter 5/ })
    .first()
    .waitFor();
  t.strictSame(await findings(page), [], 'no serious finding with a recording');
  const downloading = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download' }).click();
  await (await downloading).saveAs(file);
  const lines = gunzipSync(await readFile(file))
    .toString()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as { format?: string; path?: string });
  t.match(lines[0], { format: 'lateral-traffic' });
  t.equal(lines.filter(({ path }) => path === '/items/tags/1').length, 5);
  const command = `lateral replay traffic-`;
  t.match(await page.locator('.capacity-command').first().innerText(), command, 'the command of the replay');

  await page.getByRole('tab', { name: 'Index advice' }).click();
  await page.getByRole('button', { name: /^Plan \d+ shapes/ }).click();
  const btree = 'create index concurrently "events_kind_index" on "public"."events" ("kind");';
  await page.getByText(btree).waitFor();
  const trigram = page.getByText(/gin_trgm_ops/);
  await trigram.waitFor();
  const statements = (await trigram.innerText()).split('\n');
  t.match(
    statements,
    ['create extension if not exists pg_trgm;', /using gin .*"note"/],
    'a trigram index for _contains',
  );
  t.strictSame(await findings(page), [], 'no serious finding in the advice');
  for (const statement of [btree, ...statements]) await sql.unsafe(statement);
  const indexes = await sql`select indexdef from pg_indexes where tablename = 'events' and indexdef ~ 'gin|kind'`;
  t.equal(indexes.length, 2, 'PostgreSQL accepts the statements');
  await page.getByRole('button', { name: /^Plan \d+ shapes/ }).click();
  await page.getByText(/No index is missing/).waitFor();

  await sql`drop index events_note_trigram_index`;
  const query = { fields: ['id'], filter: { note: { _contains: 'c4ca4' } }, limit: -1 };
  await page.goto(`${service.url}/explorer#/plan/events?q=${encodeURIComponent(JSON.stringify(query))}`);
  await page
    .getByRole('region', { name: 'Hints' })
    .getByText(/gin_trgm_ops/)
    .waitFor();
  t.pass('Plan gives the same advice');
  const all = JSON.stringify({ fields: ['id'], limit: -1 });
  await page.goto(`${service.url}/explorer#/plan/authors?q=${encodeURIComponent(all)}`);
  await page.getByText(/^(PostgreSQL scans authors without an index|Indexes serve the query)/).waitFor();
  const hasScan = (await page.locator('.plan-node strong').allInnerTexts()).includes('Seq Scan');
  t.equal(
    await page.getByText('Indexes serve the query').count(),
    hasScan ? 0 : 1,
    'no claim that the plan contradicts',
  );
  t.strictSame(complaints, []);
});

t.test('a budget is set, seen as exceeded, and removed', { skip }, async (t) => {
  const { page, complaints } = await openPage(service, { colorScheme: 'dark' });
  for (const path of ['/items/tags?fields=name', '/items/tags?fields=id', '/items/tags?fields=id&sort=-name'])
    await request(service, 'GET', path);
  await logIn(service, page, '#/capacity/budgets');
  await page.getByText('No budget is exceeded').waitFor();
  const table = page.getByRole('region', { name: 'Statements and their budgets' });
  const names = await table.locator('tbody td:first-child').allInnerTexts();
  t.equal(new Set(names).size, names.length, 'different statements have different names');
  t.ok(
    names.some((name) => name.startsWith('select tags order by name')),
    names.join('; '),
  );
  await table.getByRole('button', { name: /^Set the budget of select tags order by name/ }).click();
  const form = page.getByRole('dialog', { name: 'Budget of a statement' });
  t.equal(await form.getByLabel('p99 in milliseconds').inputValue(), '20', 'a usual budget');
  // On a busy machine, statements may take longer than usual.
  await form.getByLabel('p99 in milliseconds').fill('5000');
  t.strictSame(await findings(page), [], 'no serious finding in the form');
  await form.getByRole('button', { name: 'Save' }).click();
  await table.getByRole('row', { name: /select tags order by name.* 5,000 kept/ }).waitFor();
  const stored = () => sql`select shape, p99 from service_shape_budgets`;
  t.match(await stored(), [{ p99: 5000 }]);
  const change = async (text: string): Promise<void> => {
    await table.getByRole('button', { name: /^Change the budget of select tags order by name/ }).click();
    await form.getByLabel('p99 in milliseconds').fill(text);
    await form.getByRole('button', { name: 'Save' }).click();
    await form.waitFor({ state: 'detached' });
  };
  await change('-1').catch(() => {});
  t.match(await stored(), [{ p99: 5000 }], 'a refused budget changes nothing');
  await form.getByLabel('p99 in milliseconds').fill('0.001');
  await form.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Exceeded: 1').waitFor();
  await table.getByText('exceeded', { exact: true }).waitFor();
  t.match(await stored(), [{ p99: 0.001 }]);
  t.strictSame(await findings(page), [], 'no serious finding with budgets');
  await change('');
  await page.getByText('No budget is exceeded').waitFor();
  t.equal((await stored()).length, 0);
  await page.goto(`${service.url}/explorer#/pulse`);
  const pulse = page.getByRole('region', { name: 'Slowest statements' });
  await pulse.getByText(/select tags order by name/).waitFor();
  const shown = await pulse
    .locator('tbody tr')
    .evaluateAll((rows) =>
      rows.map((row) => `${row.cells[0]?.textContent} ${row.cells[row.cells.length - 1]?.textContent}`),
    );
  t.equal(new Set(shown).size, shown.length, 'Pulse has no equal statements');
  t.strictSame(complaints, []);
});

t.test('reports of real replays are shown, and files with markup execute nothing', { skip }, async (t) => {
  const html = join(folder, 'replay.html');
  const to = [file, '--url', service.url, '--token', ADMIN_TOKEN];
  const replayed = await runCommand(['replay', ...to, '--rate', '20/s', '--slo', 'p99=5s', '--json', '--html', html]);
  const json = join(folder, 'replay.json');
  await writeFile(json, replayed.output.slice(replayed.output.indexOf('{')));
  const report = JSON.parse(await readFile(json, 'utf8')) as Record<string, unknown>;
  const hostile = join(folder, 'hostile.json');
  await writeFile(hostile, JSON.stringify({ ...report, targets: [MARKUP], shapes: [] }));
  const page2 = join(folder, 'hostile.html');
  const script = '<script>alert(2)</script><img src=x onerror=alert(3)>';
  await writeFile(
    page2,
    (await readFile(html, 'utf8')).replace('<h1>Replay</h1>', `<h1>${script}</h1><p>${script}</p><p>${script}ok</p>`),
  );
  const capacity = {
    rate: 120,
    at_least: false,
    exhausted: 'connections',
    reason: MARKUP,
    recommended: [],
    steps: [{ rate: 60, ok: true }],
  };
  const found = join(folder, 'capacity.json');
  await writeFile(found, JSON.stringify(capacity));
  const { page, complaints } = await openPage(service);
  watchForScripts(page, complaints);
  const clean = async (what: string): Promise<void> => {
    t.strictSame(await findings(page), [], `no serious finding: ${what}`);
    t.equal(await page.locator('img[src="x"], main script').count(), 0, 'texts stay texts');
  };
  await logIn(service, page, '#/capacity');
  const input = (name: string) => page.locator(`input[type=file][aria-label="${name}"]`);
  await input('Open a recording').setInputFiles(file);
  await page.getByRole('region', { name: 'Shapes of the recording' }).waitFor();
  await clean('a recording');
  await input('Open a recording').setInputFiles(hostile);
  await page.getByRole('alert').getByText('not a recording of lateral record').waitFor();
  await page.getByRole('tab', { name: 'Budgets' }).click();
  await page.getByRole('region', { name: 'Statements and their budgets' }).waitFor();
  await clean('budgets');
  await page.getByRole('tab', { name: 'Index advice' }).click();
  await page.getByRole('button', { name: /^Plan \d+ shapes/ }).waitFor();
  await clean('advice');
  await page.getByRole('tab', { name: 'Reports' }).click();
  const figures = page.getByRole('region', { name: 'Figures of the report' });
  for (const path of [html, json, hostile, page2, found]) {
    await input('Open a report').setInputFiles(path);
    await page.getByRole('heading', { name: path === found ? /^Capacity: 120/ : /^Replay of/ }).waitFor();
    t.ok((await figures.getByRole('row').count()) > 1, 'with figures');
  }
  await page.getByText(MARKUP).first().waitFor();
  await clean('a report');
  await input('Open a report').setInputFiles(file);
  await page.getByRole('alert').waitFor();
  t.strictSame(complaints, []);
});
