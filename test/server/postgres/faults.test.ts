/**
 * 500 nested writes while the service is killed and its backends are terminated in the middle of them: afterwards each
 * payload is there wholly or not at all, what was answered is there, and nobody was told anything but that it failed.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  ways,
  withSql,
} from '../../support/service.js';

t.setTimeout(110_000);
const SEED = Number(process.env['FAULTS_SEED'] ?? 4);
const WRITES = 500;
const CLIENTS = 12;
const KILLS = 6;
const TERMINATIONS = 40;
/** Old articles with two old comments each, for the payloads that change one. */
const FIRST_OLD = 10_000;

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'faults');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
// The pauses make every moment of a write long enough to be hit: inside the statement, behind it, and in the commit.
await withSql(databaseUrl, (connection) =>
  connection
    .unsafe(`
      create function pause() returns trigger language plpgsql as $$
        begin perform pg_sleep(random() * 0.008); return null; end $$;
      create trigger pause_inside after insert or update on comments for each statement execute function pause();
      create constraint trigger pause_at_commit after insert or update on tags deferrable initially deferred
        for each row execute function pause();
      insert into articles (id, title) select ${FIRST_OLD} + n, 'old' from generate_series(0, ${WRITES - 1}) n;
      insert into comments (id, body, article)
        select ${FIRST_OLD} + 2 * n + c, 'old', ${FIRST_OLD} + n from generate_series(0, ${WRITES - 1}) n, generate_series(0, 1) c;
      select setval('articles_id_seq', 100000), setval('comments_id_seq', 100000);
      analyze;`)
    .simple(),
);

interface Write {
  readonly method: 'POST' | 'PATCH';
  readonly path: string;
  readonly payload: unknown;
  readonly before: Counts;
  readonly after: Counts;
}

/** Rows that carry the marker of a payload, and what it leaves of the old ones. */
interface Counts {
  readonly authors: number;
  readonly articles: number;
  readonly comments: number;
  readonly tags: number;
  readonly links: number;
  /** Old comments that still belong to their article. */
  readonly kept: number;
}

type Outcome = { readonly status: number; readonly text: string } | { readonly error: Error };

t.test(`${WRITES} writes, ${KILLS} kills, ${TERMINATIONS} terminations (FAULTS_SEED=${SEED})`, async (t) => {
  const random = createRandom(SEED);
  const writes = Array.from({ length: WRITES }, (_, number) => makeWrite(number, random));
  const outcomes: Outcome[] = [];
  let service = await launch();
  let restarted: Promise<void> = Promise.resolve();
  let deaths = 0;
  let next = 0;
  let terminated = 0;

  const restart = async (): Promise<void> => {
    await service.ended;
    service = await launch();
    watch(service);
  };
  const watch = (watched: Launched): void => {
    void watched.ended.then((how) => {
      if (how === 'SIGKILL') return;
      deaths++;
      restarted = restart();
    });
  };
  watch(service);
  const client = async (): Promise<void> => {
    for (;;) {
      await restarted;
      const number = next++;
      const write = writes[number];
      if (!write) return;
      outcomes[number] = await attempt(service, write);
    }
  };
  const kills = Array.from({ length: KILLS }, () => Math.floor(random() * (WRITES - 50)) + 20).sort((a, b) => a - b);
  const killer = async (): Promise<void> => {
    for (const moment of kills) {
      while (next < moment) await sleep(2);
      await sleep(random() * 30);
      await restarted;
      service.child.kill('SIGKILL');
      restarted = restart();
      await restarted;
    }
  };
  const terminator = async (): Promise<void> => {
    for (let n = 1; n <= TERMINATIONS; n++) {
      while (next < (WRITES * n) / (TERMINATIONS + 1)) await sleep(2);
      await sleep(random() * 10);
      while (next < WRITES && (await terminateWriter()) === 0) await sleep(1);
      terminated++;
    }
  };
  await Promise.all([killer(), terminator(), ...Array.from({ length: CLIENTS }, client)]);
  await restarted;

  const counted = new Map((await countAll()).map(({ marker, ...counts }) => [marker, counts]));
  const tally = { answered: 0, unavailable: 0, disconnected: 0, silently: 0 };
  for (const [number, write] of writes.entries()) {
    const outcome = outcomes[number];
    const counts = counted.get(marker(number));
    const whole = isSame(counts, write.after);
    const absent = isSame(counts, write.before);
    const what = `payload ${number}: ${JSON.stringify(outcome)} left ${JSON.stringify(counts)}`;
    if (!whole && !absent) t.fail(`in pieces: ${what}`);
    if (!outcome) t.fail(`no outcome: ${what}`);
    else if ('error' in outcome) {
      tally.disconnected++;
      if (!/^(ECONNRESET|ECONNREFUSED|EPIPE)$/.test(codeOf(outcome.error))) t.fail(`${outcome.error.message}: ${what}`);
    } else if (outcome.status === 200) {
      tally.answered++;
      if (!whole) t.fail(`answered and lost: ${what}`);
    } else {
      tally.unavailable++;
      if (outcome.status !== 503) t.fail(`a wrong answer: ${what}`);
    }
    if (whole && (!outcome || 'error' in outcome || outcome.status !== 200)) tally.silently++;
  }
  t.equal(deaths, 0, 'the service never ends of itself');
  t.comment(`${JSON.stringify(tally)}, ${terminated} backends terminated`);
  t.ok(tally.answered > WRITES / 2, 'most writes were answered');
  t.ok(tally.unavailable >= TERMINATIONS / 2, 'terminations were felt');
  t.ok(tally.disconnected >= 1, 'kills were felt');
  t.equal(terminated, TERMINATIONS);

  const later = await Promise.all(
    Array.from({ length: 40 }, (_, n) =>
      attempt(
        service,
        makeWrite(WRITES + n, () => 0),
      ),
    ),
  );
  t.ok(
    later.every((outcome) => 'status' in outcome && outcome.status === 200),
    'all is well afterwards',
  );
  const [left] = await sql`
    select count(*)::int as count from pg_stat_activity
    where application_name like 'lateral%' and state like 'idle in transaction%'`;
  t.equal(left?.['count'], 0, 'no transaction is left open');
});

function marker(number: number): string {
  return `marker-${number}`;
}

function makeWrite(number: number, random: () => number): Write {
  const mark = marker(number);
  const kind = random();
  const before = { authors: 0, articles: 0, comments: 0, tags: 0, links: 0, kept: 2 };
  if (kind < 0.5) {
    const article = {
      title: mark,
      comments: [{ body: mark }, { body: mark, author: { name: mark } }],
      tags: [{ tags_id: { name: mark } }, { sort: 5, tags_id: { name: mark } }],
    };
    const payload = { name: mark, email: `${mark}@example.com`, articles: [article, { ...article, slug: mark }] };
    const after = { authors: 3, articles: 2, comments: 4, tags: 4, links: 4, kept: 2 };
    return { method: 'POST', path: '/items/authors?fields=id,articles.comments.body', payload, before, after };
  }
  const comment = FIRST_OLD + 2 * number;
  const tags = [{ tags_id: { name: mark } }];
  const created = [{ body: mark }, { body: mark }];
  const changed = { id: comment, body: mark };
  const basic = kind < 0.75;
  return {
    method: 'PATCH',
    path: `/items/articles/${FIRST_OLD + number}?fields=id,tags.tags_id.name`,
    payload: {
      title: mark,
      author: { name: mark, email: `${mark}@example.com` },
      comments: basic ? [...created, changed] : { create: created, update: [changed], delete: [comment + 1] },
      tags: basic ? tags : { create: tags },
    },
    before,
    after: { authors: 1, articles: 1, comments: 3, tags: 1, links: 1, kept: 1 },
  };
}

async function attempt(service: Launched, { method, path, payload }: Write): Promise<Outcome> {
  const body = JSON.stringify(payload);
  try {
    const { status, text } = await request(service, method, path, {
      headers: { 'content-type': 'application/json' },
      body,
    });
    return { status, text: status === 200 ? '' : text };
  } catch (error) {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }
}

/** One backend that is in the middle of a write, from its first lock to its commit. */
async function terminateWriter(): Promise<number> {
  const found = await sql`
    select pg_terminate_backend(pid) from (
      select distinct l.pid from pg_locks l join pg_stat_activity a on a.pid = l.pid
      where l.mode = 'RowExclusiveLock' and l.relation in ('comments'::regclass, 'authors'::regclass)
        and a.application_name like 'lateral%'
      order by l.pid limit 1) w`;
  return found.length;
}

async function countAll(): Promise<readonly (Counts & { readonly marker: string })[]> {
  return sql<(Counts & { marker: string })[]>`
    select
      m.marker,
      (select count(*)::int from authors where name = m.marker) as authors,
      (select count(*)::int from articles where title = m.marker) as articles,
      (select count(*)::int from comments join articles a on a.id = article where comments.body = m.marker and a.title = m.marker) as comments,
      (select count(*)::int from tags where name = m.marker) as tags,
      (select count(*)::int from articles_tags l join articles a on a.id = l.articles_id join tags t on t.id = l.tags_id
        where a.title = m.marker and t.name = m.marker) as links,
      (select count(*)::int from comments where article = ${FIRST_OLD} + m.n and id >= ${FIRST_OLD}
        and id in (${FIRST_OLD} + 2 * m.n, ${FIRST_OLD} + 2 * m.n + 1)) as kept
    from (select n, 'marker-' || n as marker from generate_series(0, ${WRITES - 1}) n) m`;
}

function isSame(one: Counts | undefined, other: Counts): boolean {
  return one !== undefined && Object.entries(other).every(([name, count]) => one[name as keyof Counts] === count);
}

function codeOf(error: Error): string {
  return 'code' in error ? String(error.code) : '';
}

/** Numbers from 0 to 1 that follow from the seed alone (mulberry32). */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

interface Launched {
  readonly url: string;
  readonly child: ChildProcess;
  /** The exit code, or the signal that ended it. */
  readonly ended: Promise<number | string>;
}

async function launch(): Promise<Launched> {
  const environment = { PATH: process.env['PATH'] ?? '', ...ways(), PORT: '0', LOG_LEVEL: 'error', ADMIN_TOKEN };
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: { ...environment, DATABASE_URL: databaseUrl },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit').then(([code, signal]) => (code ?? signal) as number | string);
  t.teardown(() => {
    child.kill('SIGKILL');
    return ended;
  });
  let output = '';
  const url = await new Promise<string>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`not ready: ${output}`)), 60_000);
    child.stdout.on('data', (chunk) => {
      output += String(chunk);
      const ready = /ready at (\S+)/.exec(output)?.[1];
      if (!ready) return;
      clearTimeout(timer);
      resolve(ready);
    });
  });
  return { url, child, ended };
}
