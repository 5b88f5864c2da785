/**
 * Tables of Citus. It plans for the values of a statement, and asks one worker if they determine which: a write to such tables is about one
 * value of the column by which they are distributed.
 */
import { ErrorWithLogDetail, invalidPayload, invalidQuery, type ServiceError } from '../../base/errors.js';
import { parseOwnJson, propertiesOf } from '../../base/narrow.js';
import { isPlanOutdated } from '../../base/sqlstate.js';
import type { Collection, Model } from '../../compiler/model/model.js';
import { displayWrittenKey } from '../../compiler/plan/write/key.js';
import { isDistributed, onlyOneValue } from '../../compiler/plan/write/shard.js';
import type { PlannedWrite } from '../../compiler/plan/write/write.js';
import type { Key } from '../../compiler/request/write.js';
import { splitKey } from '../../compiler/sql/key-text.js';
import type { Session } from '../postgres/pools/sessions.js';

/** Adds the keys that the statement has stored: only with known values the read-back asks one worker. */
export async function withKeysLeft(planned: PlannedWrite, session: Session): Promise<PlannedWrite> {
  if (planned.keys || !isDistributed(planned)) return planned;
  return { ...planned, keys: await writtenKeys(planned.plan.collection, session) };
}

/** The keys that the last statement of the transaction made which creates items of the collection. */
export async function writtenKeys(collection: Collection, session: Session): Promise<string[]> {
  const keys = parseWrittenKeys(await session.cell(WRITTEN_KEYS.text, []));
  return keys.map((each) => displayWrittenKey(collection, each));
}

/** Answers the keys that the statement in front of it has stored. */
export const WRITTEN_KEYS = {
  text: "select pg_catalog.to_json(pg_catalog.current_setting('lateral.keys')::text[])::text",
  parameters: [],
  prepare: true,
};

export function parseWrittenKeys(cell: Buffer | null | undefined): readonly Key[] {
  return cell ? parseOwnJson<Key[]>(String(cell)) : [];
}

/** Plans the deletion of items. */
export async function planForShard(collection: Collection, keys: readonly Key[], session: Session): Promise<void> {
  const { shardColumn, key } = collection;
  const part = key.findIndex(({ name }) => name === shardColumn);
  const values = part < 0 ? [] : keys.map((each) => splitKey(String(each), key.length)?.[part] ?? null);
  if (new Set(values).size > 1) throw onlyOneValue(collection);
  await session.setPlanMode('force_custom_plan');
}

/** Citus can mostly read from one worker what it cannot read from several. Returns null for other errors. */
export function refusedRead(error: unknown, collections: readonly string[], model: Model): ServiceError | null {
  if (!isRefused(error, model)) return null;
  const named = collections.flatMap((name) => {
    const { shardColumn = null, fields } = model.collections.get(name) ?? {};
    return shardColumn !== null && fields?.has(shardColumn) ? [`"${shardColumn}" of "${name}"`] : [];
  });
  const columns = named.length > 0 ? named.join(', ') : 'the column by which the tables are distributed';
  const reason = `The database is distributed, and does this for one value of its distribution column only: filter on ${columns}`;
  return new ErrorWithLogDetail(invalidQuery(reason), String(propertiesOf(error)['message']));
}

export function refusedWrite(error: unknown, { model, plan }: PlannedWrite): ServiceError | null {
  if (!isRefused(error, model)) return null;
  const advice = 'write its parts one by one, and lists as "create", "update" and "delete"';
  const reason = `The database is distributed, and cannot write this to "${plan.collection.name}" in one statement: ${advice}`;
  return new ErrorWithLogDetail(invalidPayload(reason), String(propertiesOf(error)['message']));
}

function isRefused(error: unknown, { extensions }: Model): boolean {
  return extensions.has('citus') && propertiesOf(error)['code'] === '0A000' && !isPlanOutdated(error);
}
