/** Directus speaks our REST and our GraphQL: it gets the very requests of the service. It has to run already. */
import type { Case } from '../cases.js';
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
  'create',
  'nested-create',
  'create-many',
]);

export const connectDirectus: StartPeer = async ({ directusUrl, directusToken, signal }) => {
  if (directusUrl === undefined) return null;
  const url = new URL(directusUrl).href.replace(/\/$/, '');
  const headers: Record<string, string> =
    directusToken === undefined ? {} : { Authorization: `Bearer ${directusToken}` };
  const response = await fetch(`${url}/server/info`, { headers, signal });
  if (!response.ok) throw new Error(`Directus at ${url} answers with status ${response.status}`);
  const { data } = (await response.json()) as { data?: { version?: string } };
  return {
    id: 'directus',
    version: data?.version ?? '',
    url,
    headers,
    questionOf: (each: Case) => (ASKED.has(each.id) ? each : null),
    stop: () => Promise.resolve(),
  };
};
