/**
 * Directus accepts our REST and GraphQL, so it gets the same requests as the service. The user of the bench starts it. Its database runs
 * only during the bench, so it may answer only after the bench has begun to ask.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { Case } from '../case.js';
import type { StartPeer } from './peer.js';

const ASKED = new Set([
  'key',
  'key-128',
  'many-to-one',
  'nested',
  'filter',
  'many-to-any',
  'aggregate',
  'flat',
  'search',
  'graphql',
  'flat-create',
  'flat-create-8',
  'flat-create-recorded',
  'flat-create-recorded-8',
  'flat-update',
  'flat-update-8',
  'flat-update-recorded',
  'flat-update-recorded-8',
  'create',
  'nested-create',
  'create-many',
]);

export const connectDirectus: StartPeer = async ({ directusUrl, directusToken, signal }) => {
  if (directusUrl === undefined) return null;
  const url = new URL(directusUrl).href.replace(/\/$/, '');
  const headers: Record<string, string> =
    directusToken === undefined ? {} : { Authorization: `Bearer ${directusToken}` };
  const version = await readVersion(url, headers, signal);
  return {
    id: 'directus',
    version,
    url,
    headers,
    questionOf: (each: Case) => (ASKED.has(each.id) ? each : null),
    stop: () => Promise.resolve(),
  };
};

const START_TIME = 120_000;
const ANSWER_TIME = 10_000;
const PAUSE = 500;

/** No response, or a status from 500 on, means that it is starting; any other status will not change. */
async function readVersion(url: string, headers: Record<string, string>, signal: AbortSignal): Promise<string> {
  const end = Date.now() + START_TIME;
  for (;;) {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_TIME)]);
    const response = await fetch(`${url}/server/info`, { headers, signal: limit }).catch(() => null);
    signal.throwIfAborted();
    if (response?.ok) {
      const { data } = (await response.json()) as { data?: { version?: string } };
      return data?.version ?? '';
    }
    await response?.body?.cancel();
    const isStarting = response === null || response.status >= 500;
    if (!isStarting || Date.now() > end) {
      throw new Error(
        `Directus at ${url} ${response === null ? 'does not answer' : `answers with status ${response.status}`}`,
      );
    }
    await wait(PAUSE, undefined, { signal });
  }
}
