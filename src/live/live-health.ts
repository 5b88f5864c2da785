/** The part of /server/health about live queries: the source of changes, the lag, and the WAL that PostgreSQL keeps. */
import { asError } from '../base/narrow.js';
import { type Check, type Checks, HEALTH_TIMEOUT_MS } from '../postgres/health.js';
import { within } from '../postgres/wire/time-limit.js';
import type { LiveMode, LogFigures } from './changes/change-source.js';
import type { ChangeStream } from './changes/change-stream.js';

/** Milliseconds behind the log from which on live answers are too late. */
const MAX_LAG_MS = 10_000;
/** The part of the allowed WAL beyond which something keeps the slot from being replaced. */
const MANY = 1 / 4;

export async function checkLive(mode: LiveMode, stream: ChangeStream, subscriptions: number): Promise<Checks> {
  const found = { componentType: 'component', observedValue: subscriptions, observedUnit: 'subscriptions' };
  if (mode === 'off') return { 'live:stream': [{ status: 'ok', ...found, output: 'off: LIVE is off' }] };
  const { state, failure, figures } = stream;
  if (state !== 'closed' && state !== 'open') {
    const reason = failure ? `: ${failure.message}` : '';
    const output = `live queries are polled every second until the source of changes works again${reason}`;
    return { 'live:stream': [{ status: 'degraded', ...found, output }] };
  }
  const described = await within(stream.describe(), HEALTH_TIMEOUT_MS).catch(asError);
  if (described instanceof Error)
    return { 'live:stream': [{ status: 'degraded', ...found, output: described.message }] };
  const ofStream: Checks = { 'live:stream': [{ status: 'ok', ...found, output: described }] };
  if (state === 'closed' || figures === null) return ofStream;
  return { ...ofStream, 'live:lag': [checkLag(figures)], 'live:wal': [checkWal(figures)] };
}

function checkLag({ lagMs }: LogFigures): Check {
  const found = { componentType: 'component', observedValue: lagMs / 1_000, observedUnit: 's behind' };
  if (lagMs <= MAX_LAG_MS) return { status: 'ok', ...found };
  const output = 'live answers lack recent changes: a large transaction arrives, or PostgreSQL reads its log slowly';
  return { status: 'degraded', ...found, output };
}

function checkWal({ walKept, walLimit, failure }: LogFigures): Check {
  const found = { componentType: 'datastore', observedValue: walKept, observedUnit: 'bytes of WAL kept' };
  if (walKept <= walLimit * MANY && failure === null) return { status: 'ok', ...found };
  const reason = failure?.message ?? 'it waits for an open transaction, or for a large one to arrive';
  const output = `the slot could not be replaced yet: ${reason}; it is given up beyond ${walLimit} bytes (LIVE_MAX_WAL)`;
  return { status: 'degraded', ...found, output };
}
