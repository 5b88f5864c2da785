/**
 * Makes the deliveries of a webhook from changes: PostgreSQL evaluates its filter and its fields over the recorded rows. The rows stay in the database.
 * Deliveries are made in pieces with a limited number of bytes, so that memory does not depend on the size of rows.
 */

import { elementAt, parseOwnJson } from '../../base/narrow.js';
import type { Collection } from '../../compiler/model/model.js';
import type { ParseLimits } from '../../compiler/request/parse-context.js';
import { withImage } from '../../compiler/request/rest.js';
import { withCatalog } from '../../compiler/sql/catalog-names.js';
import { joinKey } from '../../compiler/sql/key-text.js';
import { arrayLiteral } from '../../compiler/sql/literal.js';
import { bind } from '../../compiler/sql/parameter.js';
import { batchText } from '../../compiler/statements/read.js';
import { CLI_IDENTITY } from '../../server/access/identity.js';
import { factOf } from '../../server/execute/reads/compiled-read.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { type Omission, payloadOf, payloadWithoutItem } from './payload.js';
import { columnsRead, imageQuery, type Webhook, type WebhookEvent } from './webhook-hook.js';

/** A change of a collection that webhooks follow. */
export interface Change {
  readonly id: string;
  readonly collection: Collection;
  readonly event: WebhookEvent;
  readonly item: string | null;
  readonly has_image: boolean;
  readonly has_previous: boolean;
  /** Columns that no webhook needed, and columns whose values were too large, as JSON. */
  readonly omitted: string | null;
  readonly too_large: string | null;
  readonly changed_at: string;
}

export interface NewDelivery {
  readonly webhook: string;
  readonly sequence: string;
  readonly collection: string;
  readonly item: string | null;
  readonly event: string;
  readonly payload: string;
  readonly bytes: number;
}

/** Bytes of items that one statement returns. The first may have as many as a payload. */
const MAX_BYTES = 4_194_304;

const TOO_LARGE: unique symbol = Symbol('too large');

/** An item, or null if it does not match the filter. */
type Shown = string | typeof TOO_LARGE | null;

/** A change that the webhook wants. */
interface Matching {
  readonly change: Change;
  readonly item: Shown;
  /** Why the item cannot be sent, or null. */
  readonly reason: Omission | null;
}

interface Evaluated {
  readonly deliveries: readonly NewDelivery[];
  /** How many of the changes they cover. */
  readonly done: number;
}

export class Evaluation {
  constructor(
    private readonly reads: Reads,
    private readonly limits: { readonly parse: ParseLimits; readonly maxPayload: number },
  ) {}

  /** The deliveries of changes of one collection, in pieces. */
  async *deliveries(
    session: Session,
    webhook: Webhook,
    changes: readonly Change[],
  ): AsyncGenerator<readonly NewDelivery[]> {
    for (let rest = changes; rest.length > 0; ) {
      const { deliveries, done } = await this.#some(session, webhook, rest);
      yield deliveries;
      rest = rest.slice(done);
    }
  }

  async #some(session: Session, webhook: Webhook, changes: readonly Change[]): Promise<Evaluated> {
    const omissions = changes.map((change) => this.#omissionOf(webhook, change));
    const shown = await this.#show(
      session,
      webhook,
      changes.map((change, index) => {
        const omission = omissions[index];
        return change.has_image && (!omission || omission.needsFilter) ? { ...change, reference: change.id } : change;
      }),
    );
    const matching = changes.slice(0, shown.length).flatMap((change, index): Matching[] => {
      const omission = omissions[index] ?? null;
      const item = shown[index] ?? null;
      const isTested = change.has_image && (!omission || omission.needsFilter);
      return isTested && item === null ? [] : [{ change, item, reason: omission?.reason ?? null }];
    });
    const previous = await this.#show(
      session,
      { ...webhook, filter: null },
      matching.map(({ change, item, reason }) => {
        const isShown = change.has_previous && reason === null && item !== TOO_LARGE;
        return isShown ? { ...change, reference: `-${change.id}` } : change;
      }),
    );
    const next = matching[previous.length]?.change;
    return {
      deliveries: matching
        .slice(0, previous.length)
        .map((each, index) => this.#deliveryOf(webhook, each, previous[index] ?? null)),
      done: next ? changes.indexOf(next) : shown.length,
    };
  }

  #deliveryOf(webhook: Webhook, { change, item, reason }: Matching, previous: Shown): NewDelivery {
    if (reason !== null) return deliveryWithoutItem(webhook, change, reason);
    if (item === TOO_LARGE || previous === TOO_LARGE) return deliveryWithoutItem(webhook, change, 'too_large');
    const payload = payloadOf(envelopeOf(change), item, previous);
    const bytes = Buffer.byteLength(payload);
    if (bytes > this.limits.maxPayload && item !== null) return deliveryWithoutItem(webhook, change, 'too_large');
    return { ...addressOf(webhook, change), payload, bytes };
  }

  /** Why the item cannot be sent, if columns were not recorded, and whether the filter can be tested all the same. */
  #omissionOf(
    webhook: Webhook,
    { collection, omitted, too_large }: Change,
  ): { readonly reason: Omission; readonly needsFilter: boolean } | null {
    if (omitted === null && too_large === null) return null;
    const missing = parseOwnJson<string[]>(omitted ?? '[]');
    const large = parseOwnJson<string[]>(too_large ?? '[]');
    const services = { reads: this.reads, parseLimits: this.limits.parse };
    const { shown, compared } = columnsRead(webhook, collection, services);
    if ([...missing, ...large].some((column) => compared.has(column)))
      return { reason: 'not_recorded', needsFilter: false };
    const needsFilter = webhook.filter !== null;
    if (large.some((column) => shown.has(column))) return { reason: 'too_large', needsFilter };
    return missing.some((column) => shown.has(column)) ? { reason: 'not_recorded', needsFilter } : null;
  }

  /** The recorded rows as the webhook shows the items, as many as fit: at least the first. Changes without a reference show nothing. */
  async #show(
    session: Session,
    webhook: Webhook,
    changes: readonly (Change & { readonly reference?: string })[],
  ): Promise<Shown[]> {
    const shown: Shown[] = changes.map(() => null);
    const positions = changes.flatMap(({ reference }, position) => (reference === undefined ? [] : [position]));
    const [first] = positions;
    if (first === undefined) return shown;
    const query = imageQuery(webhook, elementAt(changes, first).collection.name, this.limits.parse);
    const compiled = this.reads.compile(query, CLI_IDENTITY);
    const { parameters, text } = compiled.statement;
    const bound = positions.map((position) =>
      bind(parameters, withImage(query, elementAt(changes, position).reference ?? '').values, CLI_IDENTITY),
    );
    const { maxPayload } = this.limits;
    const batch = batchTextOf(compiled);
    // Such a database is asked for one row after the other.
    const isBatch = batch !== '';
    const sets = isBatch
      ? parameters.map((_, slot) => arrayLiteral(bound.map((values) => values[slot] ?? null)))
      : elementAt(bound, 0);
    const rows = await session.query<ShownRow>(limited(isBatch ? batch : text, isBatch, parameters.length), [
      ...sets,
      String(maxPayload),
      String(MAX_BYTES),
    ]);
    let end = isBatch ? shown.length : (positions[1] ?? shown.length);
    for (const { number, cell, is_large } of rows) {
      const position = elementAt(positions, Number(number) - 1);
      if (is_large) shown[position] = TOO_LARGE;
      else if (cell !== null) shown[position] = itemIn(cell);
      else {
        end = position;
        break;
      }
    }
    return shown.slice(0, end);
  }
}

const batchTextOf = factOf(batchText);

interface ShownRow {
  readonly number: string;
  /** The answer, or null if the rows before it have enough bytes, or if it is too large. */
  readonly cell: string | null;
  readonly is_large: boolean;
}

/** The statement with two more parameters: the bytes of the largest item, and those of all that are returned. */
function limited(text: string, isBatch: boolean, parameters: number): string {
  const [largest, most] = [`$${parameters + 1}::bigint`, `$${parameters + 2}::bigint`];
  return [
    withCatalog(`select h.number::text, h.bytes > ${largest} as is_large,
      case when h.bytes <= ${largest} and (h.held <= ${most} or h.held = h.bytes) then h.cell end as cell
    from (select m.number, m.cell, m.bytes,
        sum(case when m.bytes <= ${largest} then m.bytes else 0 end) over (order by m.number rows unbounded preceding) as held
      from (select ${isBatch ? 's.number' : '1 as number'}, s.cell, octet_length(s.cell) as bytes from (`),
    text,
    withCatalog(`) s (${isBatch ? 'number, cell' : 'cell'}) offset 0) m) h order by h.number`),
  ].join('');
}

export function deliveryWithoutItem(webhook: Webhook, change: Change, reason: Omission): NewDelivery {
  const payload = payloadWithoutItem(envelopeOf(change), reason);
  return { ...addressOf(webhook, change), payload, bytes: Buffer.byteLength(payload) };
}

function addressOf({ id: webhook }: Webhook, change: Change): Omit<NewDelivery, 'payload' | 'bytes'> {
  return { webhook, sequence: change.id, collection: change.collection.name, item: keyOf(change), event: change.event };
}

function envelopeOf(change: Change): Parameters<typeof payloadOf>[0] {
  const { collection, event, changed_at: timestamp } = change;
  return { collection: collection.name, event, timestamp, key: keyOf(change) };
}

/** The key as in the path of the item, or null if there is none. */
function keyOf({ item, collection }: Change): string | null {
  if (item === null || collection.key.length < 2) return item;
  return joinKey(parseOwnJson<string[]>(item));
}

const OPENING = '{"data":[';

/** The only item of an answer, or null if there is none. */
function itemIn(body: string): string | null {
  const item = body.slice(OPENING.length, -2);
  return item === '' ? null : item;
}
