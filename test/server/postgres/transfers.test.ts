/**
 * Clients move amounts between accounts by POST /transactions, half of them with the entity tag of the account that they read, while the primary is lost and its standby is promoted: the sum stays
 * the same, each acknowledged transfer is done once, and none overwrites another. TRANSFER_CLIENTS=100 TRANSFERS=1000 is the full size, which takes half an hour on two cores.
 */
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import { pidOf, promote, startPrimary, startStandby } from '../../support/cluster.js';
import { ADMIN_TOKEN, createDatabase, request, type Sql, waitFor, ways, withSql } from '../../support/service.js';
import { passTime } from '../../support/time.js';

const CLIENTS = Number(process.env['TRANSFER_CLIENTS'] ?? 20);
const TRANSFERS = Number(process.env['TRANSFERS'] ?? 20);
const ACCOUNTS = 20;
const OPENING = 1_000;

t.setTimeout(60_000 + CLIENTS * TRANSFERS * 60);

interface Transfer {
  readonly name: string;
  readonly from: number;
  readonly to: number;
  readonly amount: number;
}

class Transfers {
  readonly acknowledged = new Map<string, Transfer>();
  readonly statuses: Record<string, number> = {};
  unknown = 0;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(private readonly services: readonly Service[]) {}

  async run(client: number): Promise<void> {
    const service = this.services[client % this.services.length] as Service;
    for (let number = 0; number < TRANSFERS; number++) {
      const from = Math.floor(Math.random() * ACCOUNTS);
      const to = (from + 1 + Math.floor(Math.random() * (ACCOUNTS - 1))) % ACCOUNTS;
      const transfer = { name: `${client}-${number}`, from, to, amount: 1 + Math.floor(Math.random() * 9) };
      await this.#send(service, transfer, client % 2 === 0);
      this.acknowledged.set(transfer.name, transfer);
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Repeats it with its key until it is acknowledged: a transfer of unknown outcome must not be done twice. */
  async #send(service: Service, transfer: Transfer, isMatched: boolean): Promise<void> {
    const { name, from, to, amount } = transfer;
    const change = (account: number, value: unknown) => ({
      method: 'PATCH',
      path: `/items/accounts/${account}?fields=amount`,
      body: { amount: value },
    });
    const withdrawal = async (): Promise<object> =>
      isMatched ? this.#matched(service, change, transfer) : change(from, { _decrement: amount });
    const record = {
      method: 'POST',
      path: '/items/transfers?fields=name',
      body: { name, source: from, target: to, amount },
    };
    const bodyOf = async (): Promise<string> => {
      const changes = [await withdrawal(), change(to, { _increment: amount })];
      // Accounts in one order: transfers in opposite directions wait for each other, and do not end in deadlocks.
      return JSON.stringify({ operations: [...(from < to ? changes : changes.reverse()), record] });
    };
    const headers = { 'content-type': 'application/json', 'idempotency-key': name };
    let body = await bodyOf();
    for (;;) {
      const answer = await request(service, 'POST', '/transactions', { headers, body, agent: this.#agent });
      this.statuses[answer.status] = (this.statuses[answer.status] ?? 0) + 1;
      if (answer.status === 200) return;
      if (answer.status === 412) {
        // Nothing was done: the key is free for another body.
        body = await bodyOf();
        continue;
      }
      if (answer.status !== 503) throw new Error(`${answer.status} ${answer.text}`);
      if (answer.text.includes('"outcome":"unknown"')) this.unknown++;
      await sleep(50);
    }
  }

  /** Computes the new amount from the one that it reads, and names the tag of that. */
  async #matched(
    service: Service,
    change: (account: number, value: unknown) => object,
    { from, amount }: Transfer,
  ): Promise<object> {
    for (;;) {
      const answer = await request(service, 'GET', `/items/accounts/${from}?fields=amount`, { agent: this.#agent });
      const { data } = answer.json as { data?: { amount: number } };
      if (data) return { ...change(from, data.amount - amount), if_match: answer.headers.etag };
      if (answer.status !== 503) throw new Error(`${answer.status} ${answer.text}`);
      await sleep(50);
    }
  }
}

async function start(url: string): Promise<Service> {
  const given = { PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN, SECRET: 'shared-by-both-instances', ...ways() };
  const config = readConfig({ ...given, DATABASE_URL: url, SHUTDOWN_TIMEOUT: '1s', DATABASE_WAIT_TIMEOUT: '30s' });
  const service = await startService(
    config,
    () => {},
    () => {},
  );
  t.teardown(() => service.stop());
  return service;
}

/** Accounts whose amount is not what the transfers make of it. */
async function wrongAccounts(sql: Sql): Promise<readonly unknown[]> {
  const rows = await sql`
    select id, amount, expected from (
      select id, amount, ${OPENING}::int
        + (select coalesce(sum(amount), 0) from transfers where target = accounts.id)
        - (select coalesce(sum(amount), 0) from transfers where source = accounts.id) as expected
      from accounts) as compared
    where amount <> expected`;
  return [...rows];
}

t.test(`${CLIENTS} clients with ${TRANSFERS} transfers each, over a failover`, async (t) => {
  const primary = await startPrimary();
  const url = await createDatabase(primary, 'transfers');
  await withSql(url, async (sql) => {
    await sql`create table accounts (id int primary key, amount int not null)`;
    await sql`create table transfers (id serial primary key, name text, source int, target int, amount int)`;
    await sql`insert into accounts select id, ${OPENING} from generate_series(0, ${ACCOUNTS - 1}) as id`;
  });
  const standby = await startStandby(primary, { name: 'second' });
  await withSql(primary.url, async (sql) => {
    await sql`alter system set synchronous_standby_names = 'second'`;
    await sql`select pg_reload_conf()`;
  });
  const standbyUrl = new URL(url);
  standbyUrl.host = new URL(standby.url).host;
  const hosts = url.replace(new URL(url).host, `${standbyUrl.host},${new URL(url).host}`);
  const transfers = new Transfers([await start(hosts), await start(hosts)]);
  t.teardown(() => transfers.close());
  const total = CLIENTS * TRANSFERS;
  const begun = performance.now();
  const all = Promise.all(Array.from({ length: CLIENTS }, (_, client) => transfers.run(client)));
  all.catch(() => {});
  await waitFor(async () => transfers.acknowledged.size > total / 3, total * 20 + 10_000);
  process.kill(await pidOf(primary), 'SIGQUIT');
  const lostAt = transfers.acknowledged.size;
  await passTime(300, 'the primary is gone for a while');
  await promote(standby);
  await all;
  const seconds = (performance.now() - begun) / 1_000;
  t.comment(
    `${total} transfers in ${Math.round(seconds)} s, ${Math.round(total / seconds)}/s, the primary was lost after ${lostAt}, ${transfers.unknown} of unknown outcome, ${JSON.stringify(transfers.statuses)}`,
  );
  t.ok(lostAt < total, 'the primary was lost in the midst of them');
  t.equal(transfers.acknowledged.size, total);
  await withSql(standbyUrl.href, async (sql) => {
    const [sum] = await sql`select sum(amount)::int as amount from accounts`;
    t.equal(sum?.['amount'], ACCOUNTS * OPENING, 'the sum is constant');
    t.strictSame(await wrongAccounts(sql), [], 'no change was overwritten');
    const rows = await sql<{ name: string; source: number; target: number; amount: number }[]>`
      select name, source, target, amount from transfers`;
    t.equal(rows.length, total, 'each transfer was done once');
    const wrong = rows.filter(({ name, source, target, amount }) => {
      const sent = transfers.acknowledged.get(name);
      return sent?.from !== source || sent.to !== target || sent.amount !== amount;
    });
    t.strictSame(wrong, []);
    t.equal(new Set(rows.map(({ name }) => name)).size, total);
  });
});
