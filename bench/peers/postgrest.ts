/** PostgREST: started from the given path, or used at the URL of a running one. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type BenchRequest, type Case, requestsOf } from '../case.js';
import { FLAT, spread, VARIANTS } from '../cases.js';
import { stopProcess } from '../environment.js';
import type { Question } from '../statement.js';
import { findFreePort, type Peer, type PeerOptions, type StartPeer, startProgram } from './peer.js';

// Articles and authors are also related through the comments, so the request names the relation.
const AUTHOR = 'author:authors!articles_author_foreign(id,name)';
const NESTED = [
  'id,title,status,views,published_at',
  AUTHOR,
  'comments!comments_article_foreign(id,body,created,author:authors!comments_author_foreign(id,name))',
  'tags:articles_tags(tags_id:tags(id,name))',
].join(',');

export const startPostgrest: StartPeer = async (options) => {
  const { postgrest: program, postgrestUrl, signal } = options;
  if (postgrestUrl !== undefined) {
    const url = new URL(postgrestUrl).href.replace(/\/$/, '');
    const response = await fetch(`${url}/articles?limit=1`, { signal });
    if (!response.ok) throw new Error(`PostgREST at ${url} answers with status ${response.status}`);
    const version = /postgrest\/(\S+)/i.exec(response.headers.get('server') ?? '')?.[1] ?? '';
    return describePeer(url, version, () => Promise.resolve());
  }
  if (program === undefined) return null;
  const { stdout } = await promisify(execFile)(program, ['--version']);
  const port = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const isReady = async (): Promise<boolean> => (await fetch(`${url}/articles?limit=1`)).ok;
  const child = await startProgram(program, [], environmentOf(options, port), { isReady, signal });
  return describePeer(url, /\d[\w.]*/.exec(stdout)?.[0] ?? '', () => stopProcess(child));
};

function environmentOf({ databaseUrl, poolSize }: PeerOptions, port: number): Record<string, string> {
  return {
    PGRST_DB_URI: databaseUrl,
    PGRST_DB_SCHEMAS: 'public',
    PGRST_DB_ANON_ROLE: decodeURIComponent(new URL(databaseUrl).username),
    PGRST_DB_POOL: String(poolSize),
    PGRST_DB_AGGREGATES_ENABLED: 'true',
    PGRST_SERVER_HOST: '127.0.0.1',
    PGRST_SERVER_PORT: String(port),
    PGRST_LOG_LEVEL: 'error',
  };
}

function describePeer(url: string, version: string, stop: Peer['stop']): Peer {
  return { id: 'postgrest', version, url, headers: { Prefer: 'return=representation' }, questionOf, stop };
}

const QUESTIONS: Readonly<Record<string, (key: number) => string>> = {
  key: byKey,
  'key-128': byKey,
  'many-to-one': (key) => page(`id,title,${AUTHOR}`, key),
  nested: (key) => page(NESTED, key),
  search: (key) => page(NESTED, key),
  filter: (key) =>
    `/articles?select=${FLAT}&status=eq.published&views=gte.${key % 4_000}&order=rating.desc,title&limit=25`,
  aggregate: (key) => `/articles?select=status,count:id.count(),views.avg()&views=gte.${key % 4_000}`,
  flat: (key) => page(FLAT, Math.floor(key * 0.9), 5_000),
};

export function questionOf(each: Case): Question | null {
  if (each.id === 'create' || each.id === 'create-many') {
    const requests = requestsOf(each).map(({ body }): BenchRequest => ({ path: '/articles', body: body ?? '' }));
    return { method: 'POST', requests };
  }
  if (/^flat-create(-8)?$/.test(each.id)) {
    const requests = requestsOf(each).map(({ body }): BenchRequest => ({ path: '/bench_notes', body: body ?? '' }));
    return { method: 'POST', requests };
  }
  if (/^flat-update(-8)?$/.test(each.id)) {
    const requests = requestsOf(each).map(
      ({ path, body }): BenchRequest => ({
        path: `/bench_notes?id=eq.${path.split('/').at(-1)}`,
        body: body ?? '',
      }),
    );
    return { method: 'PATCH', requests };
  }
  const pathOf = QUESTIONS[each.id];
  if (pathOf === undefined) return null;
  return { requests: Array.from({ length: VARIANTS }, (_, index) => ({ path: pathOf(spread(index)) })) };
}

function byKey(key: number): string {
  return `/articles?select=${FLAT}&id=eq.${key}`;
}

function page(select: string, key: number, limit = 25): string {
  return `/articles?select=${select}&id=gte.${key}&order=id&limit=${limit}`;
}
