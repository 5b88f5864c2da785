/** Reads inside the transaction of a write, as its writer may read, or as the service itself. */

import { forbidden } from '../../../base/errors.js';
import { rowsOfAnswer } from '../../../base/exact-json.js';
import type { Parsed } from '../../../compiler/request/ast.js';
import type { ParseLimits } from '../../../compiler/request/parse-context.js';
import { parseRead } from '../../../compiler/request/rest.js';
import type { SelectionPurpose } from '../../../compiler/statements/read.js';
import type { Identity } from '../../access/identity.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { billWriter } from '../caller-budget.js';
import { seenBy, type WrittenBy } from '../writer.js';
import type { CompiledRead } from './compiled-read.js';
import type { Reads } from './reads.js';

/** The transaction of a write, and what the service needs to read in it. */
export interface TransactionContext extends WrittenBy {
  readonly session: Session;
  readonly database: Database;
  readonly reads: Reads;
  readonly parseLimits: ParseLimits;
}

interface SessionReadOptions {
  /** The permissions that apply, by default the writer's. */
  readonly caller?: Identity;
  /** The write that the items are selected for; they are locked. */
  readonly selectedFor?: SelectionPurpose | null;
}

/** Throws if the caller may not read what the query names. */
export function compileInSession(
  { reads, writer, client }: Pick<TransactionContext, 'reads' | 'writer' | 'client'>,
  query: Parsed,
  { caller = writer.caller, selectedFor = null }: SessionReadOptions = {},
): CompiledRead {
  return reads.compile(query, caller, { selectedFor, billed: billWriter(writer), client });
}

/** The body of the answer, or null if there is no such item. */
export function readInSession(
  context: TransactionContext,
  query: Parsed,
  options: SessionReadOptions = {},
): Promise<Buffer | null> {
  const { reads, session, writer, client } = context;
  const compiled = compileInSession(context, query, options);
  const { caller = writer.caller } = options;
  return reads.cellIn(session, { query, compiled, caller, inDatabase: seenBy(writer), origin: client });
}

/** An item as the writer sees it. Throws if the writer may not read it. */
export async function readItem(
  context: TransactionContext,
  collection: string,
  key: string,
  url = '',
): Promise<Buffer> {
  const body = await readInSession(context, parseRead(collection, key, url, context.parseLimits));
  if (body === null) throw forbidden();
  return body;
}

/** The answer to a query that aggregates `count(*)`. */
export async function countInSession(
  context: TransactionContext,
  query: Parsed,
  options: SessionReadOptions = {},
): Promise<number> {
  return countOf(await readInSession(context, query, options));
}

/** The count in the body of such an answer. */
export function countOf(body: Buffer | null): number {
  const [row] = rowsOfAnswer(String(body));
  return Number(row?.['count']);
}

/** The rows of a statement on the service's own tables. */
export function querySystem(
  { session, database }: Pick<TransactionContext, 'session' | 'database'>,
  text: string,
  parameters: readonly (string | null)[],
): Promise<Record<string, unknown>[]> {
  return session.asService(() => session.query(database.qualified(text), parameters));
}
