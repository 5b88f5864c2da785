/**
 * Random reads of several users with rules, with answers from memory, beside random writes. An answer must not be older than promised
 * (docs/caching.md), must not go back in time, and shows nothing that its rules hide. At rest it is that of a fresh read.
 */
import { Agent } from 'node:http';
import postgres from 'postgres';
import type { Service } from '../../src/app/start.js';
import { laterPosition } from '../../src/server/execute/consistency.js';
import { Journal, type Moment, type Row, TABLES, type Table } from './cache-journal.js';
import { LINK_COLLECTIONS, LINK_SCHEMA } from './cache-nested.js';
import { type Condition, filterOf, holds, type Shape, ShapeMaker } from './cache-shapes.js';
import { makeCaller } from './callers.js';
import { ADMIN_TOKEN, type Answer, request, type Sql, waitFor } from './service.js';
import { passTime } from './time.js';

export const SECRET = 'S3CRET';

const SCHEMA = `
create sequence stamps;
create function stamped() returns trigger language plpgsql as $$
begin new.stamp := nextval('stamps'); return new; end $$;
create table teams (id serial primary key, stamp int, level int not null, owner uuid, name text);
create table people (id serial primary key, stamp int, level int not null, owner uuid, name text, secret text default '${SECRET}',
  team int references teams on delete set null);
create table notes (id serial primary key, stamp int, level int not null, owner uuid, name text,
  person int references people on delete cascade on update cascade);
create table bulk (id serial primary key, stamp int, level int not null, owner uuid, name text);
create table flash (id serial primary key, stamp int, level int not null, owner uuid, name text);
create table loose (ref int, level int, name text);
create view seniors as select p.id, p.level, t.name from people p join teams t on t.id = p.team where p.level > 2;
create trigger stamped before insert or update on teams for each row execute function stamped();
create trigger stamped before insert or update on people for each row execute function stamped();
create trigger stamped before insert or update on notes for each row execute function stamped();
create trigger stamped before insert or update on bulk for each row execute function stamped();
create trigger stamped before insert or update on flash for each row execute function stamped();
insert into teams (level, name) select n % 6, 'team ' || n from generate_series(1, 15) n;
insert into people (level, name, team) select n % 6, 'a person ' || n, 1 + n % 15 from generate_series(1, 60) n;
insert into notes (level, name, person) select n % 6, 'a note ' || n, 1 + n % 60 from generate_series(1, 150) n;
insert into bulk (level, name) select n % 6, 'a row ' || n from generate_series(1, 1500) n;
insert into flash (level, name) select n % 6, 'a flash ' || n from generate_series(1, 20) n;
insert into loose select n, n % 6, 'loose ' || n from generate_series(1, 30) n;
insert into service_collections (collection, hidden, singleton, accountability) values
  ('teams', false, false, null), ('people', false, false, null), ('notes', false, false, null), ('bulk', false, false, null),
  ('flash', false, false, null), ('loose', false, false, null), ('seniors', false, false, null);
insert into service_fields (collection, field, special, interface) values
  ('teams', 'people', 'o2m', 'list-o2m'), ('people', 'notes', 'o2m', 'list-o2m'),
  ('people', 'team', 'm2o', 'select-dropdown-m2o'), ('notes', 'person', 'm2o', 'select-dropdown-m2o');
insert into service_relations (many_collection, many_field, one_collection, one_field, one_deselect_action) values
  ('people', 'team', 'teams', 'people', 'nullify'), ('notes', 'person', 'people', 'notes', 'nullify');
`;

/** Rules in force from when they were sent until their successors were acknowledged. */
interface Rules {
  readonly read: Readonly<Partial<Record<Table, readonly Condition[]>>>;
  readonly from: number;
  until: number;
}

export interface User {
  readonly name: string;
  readonly token: string;
  readonly id: string;
  readonly policy: string;
  readonly seesSecrets: boolean;
  readonly rules: Rules[];
  /** Whether the account is being changed. */
  isUnsettled: boolean;
}

export interface OracleSettings {
  readonly seed: number;
  readonly users: number;
  readonly shapes: number;
  /** Milliseconds: READ_CACHE_MAX_LAG. */
  readonly maxLag: number;
  /** Whether acknowledged commits must survive the server: then none is asynchronous. */
  readonly isDurable?: boolean;
}

type Bypass = 'memory' | 'strong' | 'no-cache';

const BYPASS: Readonly<Record<Bypass, Readonly<Record<string, string>>>> = {
  memory: {},
  strong: { prefer: 'consistency=strong' },
  'no-cache': { 'cache-control': 'no-cache' },
};

const JSON_HEADERS = { 'content-type': 'application/json' };

export class CacheOracle {
  readonly journal = new Journal();
  readonly users: User[] = [];
  readonly shapes: Shape[] = [];
  sql: Sql;
  /** The position after the last acknowledged write of each user. */
  readonly #positions = new Map<string, string>();
  readonly violations: string[] = [];
  violated = 0;
  reads = 0;
  hits = 0;
  compared = 0;
  comparedHits = 0;
  failures = new Map<string, number>();
  #state: number;

  constructor(
    url: string,
    readonly services: Service[],
    readonly settings: OracleSettings,
  ) {
    this.sql = connect(url);
    this.#state = settings.seed;
  }

  /** The instance that makes changes of rights. */
  get service(): Service {
    const [first] = this.services;
    if (!first) throw new Error('no service');
    return first;
  }

  /** Another server has become the primary. */
  async follow(url: string): Promise<void> {
    const former = this.sql;
    this.sql = connect(url);
    await former.end({ timeout: 0 });
  }

  /** A write of the user was acknowledged with this position. */
  wrote(name: string, position: string): void {
    this.#positions.set(name, laterPosition(this.#positions.get(name) ?? '', position));
  }

  /** A whole number below the given one. */
  readonly draw = (below: number): number => {
    this.#state = (Math.imul(this.#state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((this.#state / 2 ** 32) * below);
  };

  pick<Entry>(entries: readonly Entry[]): Entry {
    return entries[this.draw(entries.length)] as Entry;
  }

  /** Few are picked often, and all now and then. */
  pickHot<Entry>(entries: readonly Entry[]): Entry {
    const hot = Math.max(1, Math.ceil(entries.length / 10));
    return entries[this.draw(this.draw(20) === 0 ? entries.length : hot)] as Entry;
  }

  violate(message: string): void {
    this.violated++;
    if (this.violations.length < 30) this.violations.push(message);
  }

  async open(): Promise<void> {
    await this.sql.unsafe(SCHEMA + LINK_SCHEMA).simple();
    await this.reconcile();
    this.users.push({
      name: 'admin',
      token: ADMIN_TOKEN,
      id: '',
      policy: '',
      seesSecrets: true,
      isUnsettled: false,
      rules: [{ read: {}, from: 0, until: Number.POSITIVE_INFINITY }],
    });
    for (let number = 1; number < this.settings.users; number++) this.users.push(await this.#makeUser(number));
    await this.#giveRows();
    const maker = new ShapeMaker(this.draw, (table) => this.journal.keys(table));
    for (let number = 0; number < this.settings.shapes; number++) this.shapes.push(maker.make(number));
    const last = this.users.at(-1)?.token ?? ADMIN_TOKEN;
    let answer: Answer | null = null;
    const isReady = async (): Promise<boolean> => {
      answer = await request(this.service, 'GET', '/items/people?limit=1&fields=id,notes.id', { token: last });
      return answer.status === 200;
    };
    await waitFor(isReady, 5_000).catch(() => {
      throw new Error(`users cannot read: ${answer?.text}`);
    });
  }

  /** Some rows belong to users. */
  async #giveRows(): Promise<void> {
    for (const table of TABLES)
      for (const { id } of this.users.slice(1))
        await this
          .sql`update ${this.sql(table)} set owner = ${id} where id % ${this.users.length * 2} = ${this.draw(10)}`;
    await this.reconcile();
  }

  randomRules(id: string): Rules['read'] {
    const rules: Partial<Record<Table, readonly Condition[]>> = {};
    for (const table of TABLES)
      if (this.draw(2) === 0)
        rules[table] =
          this.draw(4) === 0
            ? [{ column: 'owner', operator: '_eq', value: id }]
            : [{ column: 'level', operator: this.pick(['_lte', '_gte'] as const), value: 1 + this.draw(4) }];
    return rules;
  }

  async #makeUser(number: number): Promise<User> {
    const name = `reader-${number}`;
    const seesSecrets = number % 3 === 0;
    const id = crypto.randomUUID();
    const read = this.randomRules(id);
    const columns = ['id', 'stamp', 'level', 'owner', 'name', 'team', 'notes', 'person', 'people', 'labels', 'blocks'];
    const permissions = TABLES.flatMap((collection) => [
      {
        collection,
        action: 'read' as const,
        fields: seesSecrets ? ['*'] : columns,
        permissions: ruleOf(read[collection] ?? [], id),
      },
      { collection, action: 'update' as const },
      { collection, action: 'create' as const },
      { collection, action: 'delete' as const },
    ]);
    const others = ['loose', 'seniors', ...LINK_COLLECTIONS].map((collection) => ({
      collection,
      action: 'read' as const,
    }));
    const made = await makeCaller(this.sql, name, [{ permissions: [...permissions, ...others] }], { user: id });
    const rules = [{ read, from: 0, until: Number.POSITIVE_INFINITY }];
    return { name, token: made.token, id, policy: made.policies[0] ?? '', seesSecrets, rules, isUnsettled: false };
  }

  /** Reads one after the other over one connection until told to end. */
  async reader(isOver: () => boolean): Promise<void> {
    const connections = this.services.map((_, instance) => new Connection(instance));
    while (!isOver()) {
      const bypass = this.draw(40) === 0 ? this.pick(['strong', 'no-cache'] as const) : 'memory';
      const connection = this.pick(connections);
      const answer = await this.read(this.pickHot(this.shapes), this.pickHot(this.users), connection, bypass);
      if (answer?.status !== 200) await passTime(20, 'the service is being restarted');
    }
    for (const connection of connections) connection.close();
  }

  /** Returns the answer if there was one. */
  async read(shape: Shape, user: User, connection: Connection, bypass: Bypass = 'memory'): Promise<Answer | null> {
    const sentAt = performance.now();
    const answer = await this.#send(shape, user, connection, BYPASS[bypass]).catch((error: unknown) => {
      this.#count(String(error));
      connection.forget();
      return null;
    });
    if (answer === null) return null;
    const bound = bypass === 'memory' ? sentAt - this.settings.maxLag : sentAt;
    const moment: Moment = { caller: user.name, bound, sentAt, answeredAt: performance.now() };
    this.reads++;
    const isHit = answer.headers['cache-status'] === 'lateral; hit';
    if (isHit) this.hits++;
    if (isHit && bypass !== 'memory') this.violate(`${bypass} was answered from memory: ${shape.path}`);
    const about = (): string =>
      `${isHit ? 'hit' : 'miss'} ${bypass} ${shape.name} of ${user.name}: ${shape.method} ${shape.path} ${shape.body ?? ''}`;
    if (answer.status !== 200) this.#count(String(answer.status));
    if (answer.status >= 500 && answer.status !== 503) this.violate(`${answer.status} ${answer.text} to ${about()}`);
    for (const fault of this.#faultsOf(shape, user, answer, moment)) this.violate(`${fault} in ${about()}`);
    for (const fault of connection.setBack(shape, user, answer)) this.violate(`${fault} in ${about()}`);
    return answer;
  }

  #send(
    { method, path, body }: Shape,
    { token, name }: User,
    { agent, instance }: Connection,
    headers: Readonly<Record<string, string>>,
  ): Promise<Answer> {
    // One instance knows the writes of its callers by itself.
    const position = this.services.length > 1 ? this.#positions.get(name) : undefined;
    const sent = {
      ...(body === undefined ? {} : JSON_HEADERS),
      ...(position === undefined ? {} : { 'lateral-position': position }),
      ...headers,
    };
    return request(this.services[instance] ?? this.service, method, path, {
      token,
      agent,
      headers: sent,
      ...(body === undefined ? {} : { body }),
    });
  }

  #count(failure: string): void {
    this.failures.set(failure, (this.failures.get(failure) ?? 0) + 1);
  }

  *#faultsOf(shape: Shape, user: User, { status, text, json }: Answer, moment: Moment): Iterable<string> {
    if (!user.seesSecrets && text.includes(SECRET)) yield 'a foreign field';
    // An item that may not be seen is refused.
    if (status !== 200 && (status !== 403 || shape.key === undefined || user.isUnsettled)) return;
    const rules = user.rules.filter(({ from, until }) => from <= moment.answeredAt && until >= moment.sentAt);
    const shown = new Set<number>();
    for (const { table, row } of shape.rows(json)) {
      const { stamp, isDeleted } = this.journal.required(table, row.id, moment);
      if (isDeleted) yield `${table} ${row.id} was deleted`;
      else if (row.stamp < stamp) yield `${table} ${row.id} has stamp ${row.stamp}, not ${stamp}`;
      if (!rules.some(({ read }) => holds(read[table] ?? [], row)))
        yield `${table} ${row.id} with level ${row.level} is foreign`;
      if (table === shape.table) shown.add(row.id);
    }
    const [rule] = rules;
    if (rule && rules.length === 1 && shape.table) yield* this.#missingIn(shape, rule, shown, json, moment);
  }

  /** Rows that the answer must have. */
  *#missingIn(shape: Shape, rule: Rules, shown: ReadonlySet<number>, json: unknown, moment: Moment): Iterable<string> {
    const { table, complete, key } = shape;
    if (table === null || (complete === null && key === undefined)) return;
    const conditions = [...(rule.read[table] ?? []), ...(complete ?? [])];
    const figures = shape.figures(json);
    let least = 0;
    for (const row of this.journal.certain(table, moment)) {
      if (!holds(conditions, row) || (key !== undefined && row.id !== key)) continue;
      least++;
      if (figures === null && !shown.has(row.id)) yield `${table} ${row.id} with stamp ${row.stamp} is missing`;
      if (figures && (figures.max ?? 0) < row.stamp) yield `the latest stamp is ${figures.max}, not ${row.stamp}`;
    }
    if (figures && figures.count < least) yield `the count is ${figures.count}, not ${least}`;
    if (figures && figures.count > least && this.journal.isQuiet(table, moment))
      yield `the count is ${figures.count}, not ${least}, though nobody writes`;
  }

  /** Takes the state of the database at rest. */
  async reconcile(): Promise<void> {
    for (const table of TABLES) {
      const rows = await this.sql<Row[]>`select id, stamp, level, owner::text from ${this.sql(table)}`;
      for (const fault of this.journal.settle(table, rows)) this.violate(`the journal is wrong: ${fault}`);
    }
  }

  /** At rest every answer is that of a fresh read. `combinations`: how many reads of users to compare. */
  async compare(combinations: number): Promise<void> {
    await passTime(this.settings.maxLag + 50, 'answers may be so old');
    await this.reconcile();
    const connection = new Connection();
    for (let number = 0; number < combinations; number++) {
      const shape = this.pickHot(this.shapes);
      const user = this.pickHot(this.users);
      const plain = await this.read(shape, user, connection);
      const strong = await this.read(shape, user, connection, 'strong');
      if (!plain || !strong) continue;
      this.compared++;
      const isHit = plain.headers['cache-status'] === 'lateral; hit';
      if (isHit) this.comparedHits++;
      if (plain.status !== strong.status || plain.text !== strong.text)
        this.violate(
          `${isHit ? 'hit' : 'miss'} at rest: ${shape.path} ${shape.body ?? ''} of ${user.name}: ${plain.status} ${plain.text.slice(0, 200)}, not ${strong.status} ${strong.text.slice(0, 200)}`,
        );
    }
    connection.close();
  }
}

function connect(url: string): Sql {
  return postgres(url, { max: 8, onnotice: () => {} });
}

export function ruleOf(conditions: readonly Condition[], id: string): object | null {
  if (conditions.length === 0) return null;
  return filterOf(conditions.map((each) => (each.value === id ? { ...each, value: '$CURRENT_USER' } : each)));
}

/** A connection, and the stamps that each read has shown over it. */
export class Connection {
  agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #seen = new Map<string, Map<string, number>>();

  /** To this instance of the oracle. */
  constructor(readonly instance = 0) {}

  /** Rows that were seen in later versions before. */
  *setBack(shape: Shape, { name }: User, { status, json }: Answer): Iterable<string> {
    if (status !== 200) return;
    const id = `${shape.name} ${name}`;
    const before = this.#seen.get(id);
    const now = new Map<string, number>();
    for (const { table, row } of shape.rows(json)) {
      const key = `${table} ${row.id}`;
      const former = before?.get(key) ?? 0;
      if (former > row.stamp) yield `${key} went back from stamp ${former} to ${row.stamp}`;
      now.set(key, Math.max(former, row.stamp));
    }
    const max = shape.figures(json)?.max;
    if (max) now.set('max', max);
    if (this.#seen.size > 2_000) this.#seen.clear();
    this.#seen.set(id, now);
  }

  /** After a failure: another server may answer. */
  forget(): void {
    this.agent.destroy();
    this.agent = new Agent({ keepAlive: true, maxSockets: 1 });
  }

  close(): void {
    this.agent.destroy();
  }
}
