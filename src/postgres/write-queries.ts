/** The messages of statements that are sent together, with the names under which the connection keeps them. */

import type { PreparedStatements } from './prepared-statements.js';
import { FLUSH, SYNC, writeClosings, writeStatement, writeText } from './protocol.js';
import type { WireQuery } from './wire-query.js';

/** Adds to `introduced` the texts that the server has not seen. */
export function writeQueries(
  queries: readonly WireQuery[],
  prepared: PreparedStatements,
  introduced: string[],
): Buffer {
  if (queries[0]?.plain) return writeText(queries[0].text);
  const messages: Buffer[] = [];
  for (const { text, parameters, prepare, decoder, portal } of queries) {
    let name = prepare ? prepared.nameOf(text) : '';
    const isNew = name === undefined || name === '';
    if (isNew) introduced.push(text);
    if (name === undefined) name = prepared.remember(text);
    const described = decoder?.describe !== undefined;
    const maxRows = portal?.maxRows ?? 0;
    messages.push(writeStatement({ name, text: isNew ? text : null, parameters, described, maxRows }));
  }
  messages.push(queries[0]?.portal ? FLUSH : SYNC);
  // In front of all others: behind a statement that fails nothing is heard.
  if (prepared.forgotten.size > 0) {
    messages.unshift(writeClosings(prepared.forgotten));
    prepared.haveClosed();
  }
  return Buffer.concat(messages);
}
