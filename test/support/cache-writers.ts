/** Random writes beside the reads of the oracle of the cache, by the API and by plain SQL, each noted in its journal. */
import type { TransactionSql } from 'postgres';
import type { Row, Table, Write, Written } from './cache-journal.js';
import { LinkWriter } from './cache-nested.js';
import { type CacheOracle, ruleOf, type User } from './cache-oracle.js';
import { type Answer, request } from './service.js';
import { passTime } from './time.js';

const JSON_HEADERS = { 'content-type': 'application/json' };
const READERS = 8;
/** Rows of a large update. */
const MANY = 1_200;

function isRow(value: unknown): value is Row {
  return typeof value === 'object' && value !== null && 'stamp' in value && typeof value.stamp === 'number';
}

function rowsIn({ json }: Answer): Row[] {
  const data: unknown = typeof json === 'object' && json !== null && 'data' in json ? json.data : null;
  return (Array.isArray(data) ? data : [data]).filter(isRow);
}

/** What PostgreSQL refuses is rolled back. After other failures nobody knows. */
function isRefusal(error: unknown): boolean {
  const code = typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : '';
  return /^(?:40|23|42|55)...$/.test(code);
}

type Work = (tx: TransactionSql, write: Write) => Promise<Written[]>;

export class CacheWriter {
  writes = 0;
  refused = 0;
  #schemas = 0;

  constructor(private readonly oracle: CacheOracle) {}

  /** A write for about so many reads, until told to end. */
  async run(isOver: () => boolean, perWrite: number): Promise<void> {
    let next = this.oracle.reads;
    while (!isOver()) {
      next += this.oracle.draw(perWrite * 2);
      while (this.oracle.reads < next && !isOver()) await passTime(1, 'writes come now and then');
      await this.one();
    }
  }

  /** Something rarer than a write: rights, users, the schema, or connections that break. */
  async disturb(): Promise<void> {
    const { sql } = this.oracle;
    const kinds = [
      () => this.changeRules(),
      () => this.changeRules(),
      () => this.suspend(),
      () => this.#changeSchema(),
      () => sql`select pg_terminate_backend(pid) from pg_stat_replication`,
      () => sql`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'lateral%' and backend_type = 'client backend'`,
    ];
    await this.oracle.pick(kinds)();
  }

  async #changeSchema(): Promise<void> {
    const { sql } = this.oracle;
    const number = ++this.#schemas;
    const table = this.oracle.pick(['people', 'flash', 'teams'] as const);
    await sql`alter table ${sql(table)} add column ${sql(`extra_${number}`)} int default 7`;
    await passTime(this.oracle.draw(200), 'some reads see the column');
    await sql`alter table ${sql(table)} drop column ${sql(`extra_${number}`)}`;
    await sql`create table ${sql(`made_${number}`)} (id int primary key)`;
    if (this.oracle.draw(2) === 0) await sql`drop table ${sql(`made_${number}`)}`;
  }

  async one(): Promise<void> {
    const { draw } = this.oracle;
    this.writes++;
    const kind = draw(30);
    if (kind >= 20) return this.#sql((tx, write) => this.#links(tx, write));
    if (kind < 6) return this.#patch();
    if (kind < 8) return this.#create();
    if (kind < 9) return this.#patchSeveral();
    if (kind < 10) return this.#remove();
    await this.#sql(this.#work(kind));
  }

  #work(kind: number): Work {
    if (kind < 14) return (tx, write) => this.#update(tx, write, this.oracle.draw(2) === 0);
    if (kind === 14) return (tx, write) => this.#several(tx, write);
    if (kind === 15) return (tx, write) => this.#cascade(tx, write);
    if (kind === 16) return (tx, write) => this.#renumber(tx, write);
    if (kind === 17) return (tx, write) => this.#truncate(tx, write);
    if (kind === 18) return (tx, write) => this.#many(tx, write);
    return (tx, write) => this.#savepoint(tx, write);
  }

  #links(tx: TransactionSql, write: Write): Promise<Written[]> {
    const { draw, journal } = this.oracle;
    const touch = (table: Table, keys: readonly number[]): void => write.touch(table, keys);
    return new LinkWriter(draw, (table) => journal.keys(table), touch).write(tx);
  }

  #keyOf(table: Table): number {
    // Of many rows few are read.
    const keys = this.oracle.journal.keys(table);
    return this.oracle.pick(this.oracle.draw(3) === 0 ? keys : keys.slice(0, 12));
  }

  #values(): Record<string, unknown> {
    const { draw, users } = this.oracle;
    const owner = this.oracle.pick(users).id || null;
    const level = draw(6);
    const values = [{ level }, { name: `named ${draw(1_000_000)}` }, { level, name: 'both' }, { owner }];
    return this.oracle.pick<Record<string, unknown>>(values);
  }

  async #send(write: Write, user: User, method: string, path: string, body: unknown): Promise<void> {
    const { token } = user;
    const service = this.oracle.pick(this.oracle.services);
    try {
      const answer = await request(service, method, path, { token, headers: JSON_HEADERS, body: JSON.stringify(body) });
      const [, table = ''] = /^\/items\/(\w+)/.exec(path) ?? [];
      const position = answer.headers['lateral-position'];
      if (typeof position === 'string') this.oracle.wrote(user.name, position);
      if (answer.status === 200) {
        const rows = rowsIn(answer);
        // Rows that the caller may not read after the write are not known.
        if (rows.length > 0) write.done([{ table: table as Table, rows }]);
      } else if (answer.status === 204 && method === 'DELETE') {
        write.done([{ table: table as Table, deleted: [Number(path.split('/').at(-1))] }]);
      } else if (answer.status >= 400 && answer.status < 500) {
        this.refused++;
        write.undone();
      }
    } catch {
      // The outcome is not known.
    }
  }

  async #patch(): Promise<void> {
    const { journal, users } = this.oracle;
    const table = this.oracle.pick(['teams', 'people', 'people', 'notes', 'bulk', 'flash'] as const);
    const user = this.oracle.pickHot(users);
    const id = this.#keyOf(table);
    const write = journal.begin(user.name);
    write.touch(table, [id]);
    await this.#send(write, user, 'PATCH', `/items/${table}/${id}?fields=id,stamp,level,owner`, this.#values());
  }

  async #patchSeveral(): Promise<void> {
    const table = this.oracle.pick(['people', 'notes', 'flash'] as const);
    const keys = [...new Set([this.#keyOf(table), this.#keyOf(table), this.#keyOf(table)])];
    const write = this.oracle.journal.begin('admin');
    write.touch(table, keys);
    const [admin] = this.oracle.users;
    if (admin)
      await this.#send(write, admin, 'PATCH', `/items/${table}?fields=id,stamp,level,owner`, {
        keys,
        data: this.#values(),
      });
  }

  async #create(): Promise<void> {
    const { draw, users } = this.oracle;
    const table = this.oracle.pick(['notes', 'flash', 'bulk'] as const);
    const user = this.oracle.pickHot(users);
    const write = this.oracle.journal.begin(user.name);
    write.widen(table);
    const item = { level: draw(6), name: 'created', ...(table === 'notes' ? { person: this.#keyOf('people') } : {}) };
    await this.#send(write, user, 'POST', `/items/${table}?fields=id,stamp,level,owner`, item);
  }

  async #remove(): Promise<void> {
    const table = this.oracle.pick(['notes', 'flash', 'bulk'] as const);
    const keys = this.oracle.journal.keys(table);
    const id = this.oracle.pick(keys.slice(-5));
    const write = this.oracle.journal.begin('admin');
    write.touch(table, [id]);
    const [admin] = this.oracle.users;
    if (admin) await this.#send(write, admin, 'DELETE', `/items/${table}/${id}`, undefined);
  }

  async #sql(work: Work): Promise<void> {
    const write = this.oracle.journal.begin('');
    try {
      write.done(await this.oracle.sql.begin((tx) => work(tx, write)));
    } catch (error) {
      this.refused++;
      if (isRefusal(error)) write.undone();
    }
  }

  async #update(tx: TransactionSql, write: Write, isAsynchronous: boolean): Promise<Written[]> {
    const table = this.oracle.pick(['teams', 'people', 'notes', 'bulk', 'flash'] as const);
    const id = this.#keyOf(table);
    write.touch(table, [id]);
    if (isAsynchronous && !this.oracle.settings.isDurable) await tx`set local synchronous_commit = off`;
    const rows = await tx<Row[]>`update ${tx(table)} set ${tx(this.#values())} where id = ${id}
      returning id, stamp, level, owner::text`;
    return [{ table, rows }];
  }

  /** Several statements, some of which change the same row again. */
  async #several(tx: TransactionSql, write: Write): Promise<Written[]> {
    const written: Written[] = [];
    const id = this.#keyOf('people');
    write.touch('people', [id]);
    for (let turn = 0; turn < 3; turn++) {
      await passTime(this.oracle.draw(5), 'a transaction takes its time');
      const rows = await tx<Row[]>`update people set level = ${this.oracle.draw(6)} where id = ${id}
        returning id, stamp, level, owner::text`;
      written.splice(0, Number.POSITIVE_INFINITY, { table: 'people', rows });
    }
    const team = this.#keyOf('teams');
    write.touch('teams', [team]);
    const teams = await tx<Row[]>`update teams set level = ${this.oracle.draw(6)} where id = ${team}
      returning id, stamp, level, owner::text`;
    await tx`update loose set level = level + 1 where ref % 3 = 0`;
    return [...written, { table: 'teams', rows: teams }];
  }

  /** A person, with all notes, and another one instead. */
  async #cascade(tx: TransactionSql, write: Write): Promise<Written[]> {
    const keys = this.oracle.journal.keys('people');
    const id = this.oracle.pick(keys.slice(8));
    write.widen('people');
    write.touch('people', [id]);
    await tx`select from people where id = ${id} for update`;
    const notes = (await tx<{ id: number }[]>`select id from notes where person = ${id} for update`).map(
      (row) => row.id,
    );
    write.touch('notes', notes);
    await tx`delete from people where id = ${id}`;
    const rows = await tx<Row[]>`insert into people (level, name, team) values (${this.oracle.draw(6)}, 'a new one', 1)
      returning id, stamp, level, owner::text`;
    return [
      { table: 'people', deleted: [id], rows },
      { table: 'notes', deleted: notes },
    ];
  }

  /** Gives a person another key, which cascades. */
  async #renumber(tx: TransactionSql, write: Write): Promise<Written[]> {
    const keys = this.oracle.journal.keys('people');
    const id = this.oracle.pick(keys.slice(8));
    write.widen('people');
    write.touch('people', [id]);
    await tx`select from people where id = ${id} for update`;
    const children = await tx<{ id: number }[]>`select id from notes where person = ${id} for update`;
    write.touch(
      'notes',
      children.map((row) => row.id),
    );
    const rows = await tx<Row[]>`update people set id = nextval('people_id_seq') where id = ${id}
      returning id, stamp, level, owner::text`;
    const notes = await tx<
      Row[]
    >`select id, stamp, level, owner::text from notes where id = any(${children.map((row) => row.id)})`;
    return [
      { table: 'people', deleted: rows.length > 0 ? [id] : [], rows },
      { table: 'notes', rows: notes },
    ];
  }

  async #truncate(tx: TransactionSql, write: Write): Promise<Written[]> {
    write.widen('flash');
    await tx`lock table flash in access exclusive mode`;
    const former = await tx<{ id: number }[]>`select id from flash`;
    await tx`truncate flash`;
    const rows = await tx<Row[]>`insert into flash (level, name) select n % 6, 'again' from generate_series(1, 15) n
      returning id, stamp, level, owner::text`;
    return [{ table: 'flash', deleted: former.map((row) => row.id), rows }];
  }

  async #many(tx: TransactionSql, write: Write): Promise<Written[]> {
    write.widen('bulk');
    const rows = await tx<Row[]>`update bulk set level = (level + 1) % 6
      where id in (select id from bulk order by id limit ${MANY}) returning id, stamp, level, owner::text`;
    return [{ table: 'bulk', rows }];
  }

  /** A part of it is undone. */
  async #savepoint(tx: TransactionSql, write: Write): Promise<Written[]> {
    const id = this.#keyOf('notes');
    write.touch('notes', [id]);
    const rows = await tx.savepoint(
      (inner) => inner<Row[]>`
      update notes set level = ${this.oracle.draw(6)} where id = ${id} returning id, stamp, level, owner::text`,
    );
    await tx
      .savepoint(async (inner) => {
        await inner`update notes set level = 99 where id = ${id}`;
        throw new Error('undone');
      })
      .catch(() => {});
    return [{ table: 'notes', rows }];
  }

  /** Another rule for a user, by the API: it holds when it is acknowledged. */
  async changeRules(): Promise<void> {
    const { users, service } = this.oracle;
    const user = this.oracle.pick(users.slice(1));
    const former = user.rules.at(-1);
    if (!former || user.isUnsettled) return;
    const table = this.oracle.pick(['teams', 'people', 'notes'] as const);
    const read = { ...former.read, [table]: this.oracle.randomRules(user.id)[table] ?? [] };
    const [found] = await this.oracle.sql<{ id: number }[]>`
      select id from service_permissions where policy = ${user.policy} and collection = ${table} and action = 'read'`;
    if (!found) return;
    user.rules.push({ read, from: performance.now(), until: Number.POSITIVE_INFINITY });
    const { status } = await request(service, 'PATCH', `/permissions/${found.id}`, {
      headers: JSON_HEADERS,
      body: JSON.stringify({ permissions: ruleOf(read[table] ?? [], user.id) }),
    }).catch(() => ({ status: 0 }));
    // After a failure both may hold.
    if (status === 200) former.until = performance.now();
    else user.isUnsettled = true;
  }

  /** Suspends a user for a while. */
  async suspend(): Promise<void> {
    const { users, service } = this.oracle;
    const user = this.oracle.pick(users.slice(1));
    if (user.isUnsettled) return;
    user.isUnsettled = true;
    const set = async (status: string): Promise<boolean> => {
      const body = JSON.stringify({ status });
      const path = `/users/${user.id}`;
      return (await request(service, 'PATCH', path, { headers: JSON_HEADERS, body })).status === 200;
    };
    try {
      if (!(await set('suspended'))) return;
      const { token } = user;
      const { status } = await request(service, 'GET', '/items/people?limit=1&fields=id,stamp', { token });
      if (status === 200) this.oracle.violate(`${user.name} is suspended and reads`);
      if (await set('active')) user.isUnsettled = false;
    } catch {
      // The service is being restarted.
    }
  }
}

/** Reads beside writes until told to end, with a write for about so many reads. */
export async function load(oracle: CacheOracle, isOver: () => boolean, perWrite: number): Promise<void> {
  const writer = new CacheWriter(oracle);
  const writers = perWrite < 50 ? 4 : 1;
  await Promise.all([
    ...Array.from({ length: READERS }, () => oracle.reader(isOver)),
    ...Array.from({ length: writers }, () => writer.run(isOver, perWrite * writers)),
  ]);
}

/** So many reads beside writes. Returns the part that was answered from memory. */
export async function readBeside(oracle: CacheOracle, reads: number, perWrite: number): Promise<number> {
  const { reads: before, hits } = oracle;
  await load(oracle, () => oracle.reads - before >= reads, perWrite);
  return (oracle.hits - hits) / (oracle.reads - before);
}

/** Figures of the run, as a comment of its test. */
export function summaryOf({ reads, hits, compared, comparedHits, failures, journal }: CacheOracle): string {
  const share = ((100 * hits) / reads).toFixed(1);
  return `${reads} reads, ${share} % from memory; ${journal.stamps} rows written; ${compared} compared at rest, ${comparedHits} of them from memory; other answers: ${JSON.stringify([...failures])}`;
}
