/**
 * PostGraphile 5, from a folder where npm installed it: this project's, or the given one. It requires Node 22: `npm install
 * postgraphile@5 node@22` installs one in the same folder, which the bench then uses.
 */
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { packagePath } from '../../src/base/package-files.js';
import { type BenchRequest, type Case, requestsOf } from '../case.js';
import { spread, VARIANTS } from '../cases.js';
import { stopProcess } from '../environment.js';
import type { Question } from '../statement.js';
import { findFreePort, type PeerOptions, type StartPeer, startProgram } from './peer.js';

export const startPostGraphile: StartPeer = async (options) => {
  const folder = options.postgraphile === undefined ? packagePath() : resolve(options.postgraphile);
  const modules = join(folder, 'node_modules');
  const manifest = join(modules, 'postgraphile', 'package.json');
  if (!existsSync(manifest)) {
    if (options.postgraphile === undefined) return null;
    throw new Error(`--postgraphile: there is no node_modules/postgraphile in ${folder}`);
  }
  const { version } = JSON.parse(await readFile(manifest, 'utf8')) as { version: string };
  if (Number.parseInt(version, 10) !== 5) throw new Error(`--postgraphile: version 5 is needed, not ${version}`);
  const own = join(modules, '.bin', 'node');
  const node = existsSync(own) ? own : process.execPath;
  const temporary = await mkdtemp(join(tmpdir(), 'bench-postgraphile-'));
  const port = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const config = join(temporary, 'graphile.config.mjs');
  const remove = (): Promise<void> => rm(temporary, { recursive: true, force: true });
  try {
    await writeFile(config, writeConfig(modules, options, port));
    const program = join(modules, 'postgraphile', 'dist', 'cli-run.js');
    let cursor = '';
    const isReady = async (): Promise<boolean> => {
      cursor = await readCursor(url);
      return true;
    };
    const env = { NODE_ENV: 'production', GRAPHILE_ENV: 'production' };
    const child = await startProgram(node, [program, '-C', config], env, {
      isReady,
      signal: options.signal,
    });
    return {
      id: 'postgraphile',
      version,
      url,
      headers: {},
      questionOf: (each) => questionOf(each, cursor),
      stop: async () => {
        await stopProcess(child);
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
};

/** As many connections as the service has. */
function writeConfig(modules: string, { databaseUrl, poolSize }: PeerOptions, port: number): string {
  const service = { connectionString: databaseUrl, schemas: ['public'], poolConfig: { max: poolSize } };
  return `
import { createRequire } from 'node:module';
const require = createRequire(${JSON.stringify(join(modules, 'config.js'))});
const { PostGraphileAmberPreset } = require('postgraphile/presets/amber');
const { makePgService } = require('postgraphile/adaptors/pg');
export default {
  extends: [PostGraphileAmberPreset],
  pgServices: [makePgService(${JSON.stringify(service)})],
  grafserv: { host: '127.0.0.1', port: ${port}, graphiql: false, watch: false },
};
`;
}

/** Without a plugin, only cursors can begin a page at a key. The cursor of the first row shows their format. */
async function readCursor(url: string): Promise<string> {
  const response = await fetch(`${url}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ query: '{ allArticles(first: 1, orderBy: [PRIMARY_KEY_ASC]) { edges { cursor } } }' }),
    signal: AbortSignal.timeout(10_000),
  });
  const { data } = (await response.json()) as { data?: { allArticles?: { edges: { cursor: string }[] } } };
  const cursor = data?.allArticles?.edges[0]?.cursor;
  if (cursor === undefined) throw new Error('PostGraphile answers without a cursor');
  return cursor;
}

/** A cursor is a digest of the order and the values of the row: the page after it begins with the key. */
export function cursorBefore(first: string, key: number): string {
  const [digest] = JSON.parse(Buffer.from(first, 'base64').toString()) as [string, number];
  return Buffer.from(JSON.stringify([digest, key - 1])).toString('base64');
}

const FLAT = 'rowId title status views publishedAt author';
const AUTHOR = 'authorByAuthor { rowId name }';
const NESTED = `rowId title status views publishedAt ${AUTHOR}
  commentsByArticle { nodes { rowId body created ${AUTHOR} } }
  articlesTagsByArticlesId { nodes { tagByTagsId { rowId name } } }`;

const BY_KEY = `query ($key: Int!) { articleByRowId(rowId: $key) { ${FLAT} } }`;

const CREATE = `mutation ($input: CreateArticleInput!) { createArticle(input: $input) {
  article { rowId title slug body status views rating publishedAt meta author } } }`;

const NOTE = 'benchNote { rowId name views }';
const CREATE_NOTE = `mutation ($note: BenchNoteInput!) { createBenchNote(input: { benchNote: $note }) { ${NOTE} } }`;
const UPDATE_NOTE = `mutation ($key: Int!, $note: BenchNotePatch!) {
  updateBenchNoteByRowId(input: { rowId: $key, benchNotePatch: $note }) { ${NOTE} } }`;

const DOCUMENTS: Readonly<Record<string, string>> = {
  key: BY_KEY,
  'key-128': BY_KEY,
  'many-to-one': page(`rowId title ${AUTHOR}`),
  nested: page(NESTED),
  search: page(NESTED),
  graphql: page(NESTED),
  flat: page(FLAT, 5_000),
};

export function questionOf(each: Case, cursor: string): Question | null {
  if (each.id === 'create') {
    const articles = requestsOf(each).map(({ body }) => JSON.parse(body ?? '') as Record<string, unknown>);
    const requests = articles.map(({ published_at: publishedAt, ...article }) =>
      ask(CREATE, { input: { article: { ...article, publishedAt } } }),
    );
    return { method: 'POST', requests };
  }
  if (/^flat-(create|update)(-8)?$/.test(each.id)) return { method: 'POST', requests: requestsOf(each).map(writeNote) };
  const query = DOCUMENTS[each.id];
  if (query === undefined) return null;
  const requests = Array.from({ length: VARIANTS }, (_, index) => {
    const key = each.id === 'flat' ? Math.floor(spread(index) * 0.9) : spread(index);
    return ask(query, query === BY_KEY ? { key } : { after: cursorBefore(cursor, key) });
  });
  return { method: 'POST', requests };
}

function writeNote({ path, body }: BenchRequest): BenchRequest {
  const [, key] = /\/(\d+)$/.exec(path) ?? [];
  const note: unknown = JSON.parse(body ?? '');
  return key === undefined ? ask(CREATE_NOTE, { note }) : ask(UPDATE_NOTE, { key: Number(key), note });
}

function page(fields: string, first = 25): string {
  return `query ($after: Cursor) {
    allArticles(first: ${first}, after: $after, orderBy: [PRIMARY_KEY_ASC]) { nodes { ${fields} } } }`;
}

function ask(query: string, variables: object): BenchRequest {
  return { path: '/graphql', body: JSON.stringify({ query, variables }) };
}
