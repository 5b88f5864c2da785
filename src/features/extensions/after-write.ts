/** Calls `afterWrite` in the transaction of a write, once for each row, and `afterCommit` behind it. */
import { elementAt, parseOwnJson } from '../../base/narrow.js';
import type { Collection } from '../../compiler/model/model.js';
import type { PlannedWrite, WriteNode } from '../../compiler/plan/write/write.js';
import type { Key } from '../../compiler/request/write.js';
import { NUMBER } from '../../compiler/sql/codec.js';
import { joinKey } from '../../compiler/sql/key-text.js';
import type { Item, ItemKey } from '../../server/execute/hooks/api.js';
import type { HookAction } from '../../server/execute/hooks/definition.js';
import type { HookCalls } from '../../server/execute/hooks/joined-writes.js';
import {
  type Change,
  type ChangedRow,
  type HookedWrite,
  valuesOf,
  type WriteHook,
} from '../../server/execute/hooks/write-hook.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { shownKeyOf } from './before-write.js';
import { type Extensions, hookCaller } from './extensions.js';
import { callsOf } from './transaction-items.js';

interface WriteEvent {
  readonly collection: Collection;
  readonly action: HookAction;
  readonly payload: Readonly<Item>;
  readonly keys: readonly ItemKey[];
}

function isHooked(extensions: Extensions, collection: Collection): boolean {
  return (
    extensions.hooks('afterWrite', collection).length > 0 || extensions.hooks('afterCommit', collection).length > 0
  );
}

/** The plan with the order to keep the keys of new rows that hooks are called for. */
export function keepingKeys(planned: PlannedWrite, extensions: Extensions): PlannedWrite {
  const { plan } = planned;
  const keptKeys = plan.nodes.flatMap((node, position) =>
    makesKeys(node) && isHooked(extensions, node.collection) ? [position] : [],
  );
  if (keptKeys.length === 0) return planned;
  return { ...planned, plan: { ...plan, keptKeys }, shape: `${planned.shape} keys ${keptKeys.join()}` };
}

function makesKeys({ verb, conflict }: WriteNode): boolean {
  return verb === 'insert' || conflict !== null;
}

/** The hooks of extensions after a write as one hook of the service. */
export function afterWriteHook(extensions: Extensions): Required<Pick<WriteHook, 'concerns' | 'open'>> {
  return {
    concerns: ({ collection }) => isHooked(extensions, collection),
    open: (hooked) => {
      const { calls } = hooked;
      return calls === null ? {} : { afterWrite: () => afterWrite({ ...hooked, ...calls }, extensions) };
    },
  };
}

/** A write with the hooks that it calls. */
type CallingWrite = HookedWrite & HookCalls;

type AttemptedBy = Pick<CallingWrite, 'writer' | 'client' | 'attempt'>;

async function afterWrite(write: CallingWrite, extensions: Extensions): Promise<void> {
  const events = await eventsOf(write);
  await callAll(events, write, extensions);
  const committed = events.filter(({ collection }) => extensions.hooks('afterCommit', collection).length > 0);
  if (committed.length === 0) return;
  const { session, writer, client, attempt } = write;
  const by = { writer, client, attempt };
  session.afterwards(async () => extensions.afterwards(() => announce(committed, by, extensions)));
}

async function callAll(events: readonly WriteEvent[], write: CallingWrite, extensions: Extensions): Promise<void> {
  const settings = new KeySettings(write);
  const open = async (): Promise<Session> => {
    await settings.keep();
    return write.session;
  };
  for (const event of events)
    for (const hook of extensions.hooks('afterWrite', event.collection)) {
      const tx = callsOf(hook, write, extensions, open);
      await extensions.run(hook, { ...contextOf(event, write), tx }, (isFailed) => tx.close(isFailed));
    }
  await settings.restore();
}

/** The read-back finds the keys of new items in settings of the transaction. Writes of hooks leave others there. */
class KeySettings {
  #kept: Promise<string[]> | null = null;
  readonly #names: readonly string[];

  constructor(private readonly write: HookedWrite) {
    const { plan } = write.planned ?? {};
    const parts = plan?.makesKeys ? plan.collection.key.length : 0;
    const more = parts > 1 ? Array.from({ length: parts }, partSetting) : [];
    this.#names = parts === 0 ? [] : ['lateral.keys', ...more];
  }

  /** Before the first call of a hook. */
  async keep(): Promise<void> {
    if (this.#names.length === 0) return;
    this.#kept ??= this.#read();
    await this.#kept;
  }

  async restore(): Promise<void> {
    if (this.#kept === null) return;
    const write = this.#names.map((name, index) => `pg_catalog.set_config('${name}', $${index + 1}, true)`);
    await this.write.session.cell(`select ${write.join()}`, await this.#kept);
  }

  async #read(): Promise<string[]> {
    const read = this.#names.map((name) => `pg_catalog.current_setting('${name}', true)`);
    const cell = await this.write.session.cell(`select pg_catalog.json_build_array(${read.join()})::text`, []);
    return parseOwnJson<(string | null)[]>(String(cell)).map((value) => value ?? '');
  }
}

function partSetting(_: unknown, part: number): string {
  return `lateral.key${part}`;
}

/** After the commit. A hook that fails is logged, and the others are called. */
async function announce(events: readonly WriteEvent[], by: AttemptedBy, extensions: Extensions): Promise<void> {
  for (const event of events)
    for (const hook of extensions.hooks('afterCommit', event.collection))
      await extensions.run(hook, { ...contextOf(event, by), api: extensions.services.api }).catch(() => {});
}

function contextOf({ collection, action, payload, keys }: WriteEvent, { writer, client, attempt }: AttemptedBy) {
  const caller = hookCaller(writer.caller);
  return { collection: collection.name, action, payload, keys, caller, requestId: client.id ?? '', attempt };
}

async function eventsOf(write: HookedWrite): Promise<WriteEvent[]> {
  const { changes, planned, deleted } = write;
  if (!planned)
    return changes.map(({ collection, action }) => {
      return {
        collection,
        action,
        payload: {},
        keys: [...(deleted?.values() ?? [])].map((key) => shownKeyOf(collection, key)),
      };
    });
  const keptKeys = await readKeptKeys(write, planned.plan.keptKeys ?? []);
  return changes.flatMap((change) => rowEvents(change, planned, keptKeys));
}

function rowEvents(
  change: Change,
  { plan }: PlannedWrite,
  kept: ReadonlyMap<number, readonly (Key | null)[]>,
): WriteEvent[] {
  const { collection, action, rows } = change;
  if (action === 'delete' || action === 'unlink') return [{ collection, action, payload: {}, keys: [] }];
  const position = plan.nodes.findIndex((node) => node.columns === change.columns && node.collection === collection);
  const keys = kept.get(position);
  return rows.flatMap((row, number): WriteEvent[] => {
    const key = keys ? (keys[number] ?? null) : keyOf(collection, row);
    // A row that was left as it is, because it exists.
    if (key === null) return [];
    return [{ collection, action, payload: payloadOf(change, row), keys: [shownKeyOf(collection, key)] }];
  });
}

/** The values that the row was given; of an operator, whose result the statement knows, the operator. */
function payloadOf(change: Change, row: ChangedRow): Item {
  const values = valuesOf(change, row);
  const payload: Item = {};
  change.columns.forEach(({ field: { name, special, column }, operators: [operator], choosesOperator }, index) => {
    if (!values.has(name) || special.includes('hash') || special.includes('conceal')) return;
    const value = shownNumber(values.get(name), column?.base_type ?? '');
    const applied = choosesOperator ? row[`o${index}`] : operator;
    payload[name] = applied === undefined ? value : { [`_${applied}`]: value };
  });
  return payload;
}

/** PostgreSQL gets numbers as texts. Longer ones stay texts, as in answers. */
function shownNumber(value: unknown, type: string): unknown {
  return typeof value === 'string' && /^(int[24]|float[48])$/.test(type) && NUMBER.test(value) ? Number(value) : value;
}

function keyOf({ key }: Collection, row: ChangedRow): Key | null {
  if (key.length === 1) return row['k'] === undefined ? null : String(row['k']);
  return joinKey(key.map((_, part) => row[`k_${part}`]));
}

/** The keys that the statement has left, by the position of their list. */
async function readKeptKeys(
  { session }: HookedWrite,
  positions: readonly number[],
): Promise<ReadonlyMap<number, readonly (Key | null)[]>> {
  if (positions.length === 0) return new Map();
  const lists = positions.map(
    (position) => `pg_catalog.to_json(pg_catalog.current_setting('lateral.made${position}')::text[])`,
  );
  const cell = await session.cell(`select pg_catalog.json_build_array(${lists.join()})::text`, []);
  const keys = parseOwnJson<readonly (readonly (Key | null)[])[]>(String(cell));
  return new Map(positions.map((position, index) => [position, elementAt(keys, index)]));
}
