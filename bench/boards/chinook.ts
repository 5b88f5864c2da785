/**
 * hasura/graphql-bench: three GraphQL queries on Chinook, sent by autocannon as its configuration says: a constant rate, a fixed number of
 * requests, and as many as possible. The script of the database is that of a checkout. Each server gets the query in its own language.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { propertiesOf } from '../../src/base/narrow.js';
import { stopProcess } from '../environment.js';
import { UsageError } from '../options.js';
import { isSameData } from '../peers/answers.js';
import { findFreePort, startProgram } from '../peers/peer.js';
import {
  askOnce,
  type BoardOptions,
  type BoardRow,
  type Contestant,
  makeBoardDatabase,
  measureInTurns,
  type RunBoard,
  type Score,
  startOurs,
} from './board.js';

const SCRIPT = join('containers', 'chinook_pg_serial_pk_proper_naming.sql');

/** The lists that the board tracks in Hasura. PostGraphile leaves out tables with this comment. */
const METADATA = `
  insert into service_relations (many_collection, many_field, one_collection, one_field)
  values ('tracks', 'album_id', 'albums', 'tracks');
  do $$
  declare own text;
  begin
    for own in select format('%I', tablename) from pg_tables where tablename like 'service\\_%' loop
      execute format('comment on table %s is %L', own, '@omit');
    end loop;
  end $$;
`;

/** The numbers of the published configuration. */
const CONNECTIONS = 10;
const RATE = 500;
const REQUESTS = 10_000;

interface Query {
  readonly title: string;
  /** Arguments of autocannon. */
  strategy(seconds: number): readonly string[];
  readonly ours: string;
  readonly postgraphile: string;
}

const inDuration = (seconds: number): readonly string[] => ['-d', String(seconds)];

const QUERIES: readonly Query[] = [
  {
    title: `SearchAlbumsWithArtist, ${RATE} requests per second`,
    strategy: (seconds) => [...inDuration(seconds), '-R', String(RATE)],
    ours: '{ albums(filter: { title: { _contains: "Rock" } }) { id title artist_id { name id } } }',
    postgraphile:
      '{ allAlbums(filter: { title: { like: "%Rock%" } }) { nodes { id title artistByArtistId { name id } } } }',
  },
  {
    title: `AlbumByPK, ${REQUESTS} requests`,
    strategy: () => ['-a', String(REQUESTS)],
    ours: '{ albums_by_id(id: 1) { id title } }',
    postgraphile: '{ albumById(id: 1) { id title } }',
  },
  {
    title: 'SearchAlbumsWithArtist, as many as possible',
    strategy: inDuration,
    ours: '{ albums(filter: { title: { _contains: "Rock" } }) { id title artist_id { name id } } }',
    postgraphile:
      '{ allAlbums(filter: { title: { like: "%Rock%" } }) { nodes { id title artistByArtistId { name id } } } }',
  },
  {
    title: 'AlbumsArtistTracksGenreAll, as many as possible',
    strategy: inDuration,
    ours: '{ albums(limit: -1) { id title artist_id { id name } tracks(limit: -1) { id name genre_id { name } } } }',
    postgraphile:
      '{ allAlbums { nodes { id title artistByArtistId { id name } tracksByAlbumId { nodes { id name genreByGenreId { name } } } } } }',
  },
];

type Language = Exclude<keyof Query, 'title' | 'strategy'>;

export const runChinook: RunBoard = async (options, report) => {
  const { graphqlBench: folder, tools } = options.boards;
  if (folder === undefined) return null;
  const script = join(folder, SCRIPT);
  if (!existsSync(script)) throw new UsageError(`--graphql-bench: there is no ${SCRIPT} in ${folder}`);
  if (tools === undefined || !existsSync(join(tools, 'node_modules', 'autocannon')))
    throw new UsageError('--tools must be a folder where npm installed autocannon: see bench/boards.md');
  const databaseUrl = await makeBoardDatabase(options.serverUrl, 'board_chinook', script, METADATA);
  const started = new Map<Contestant, Language>([[await startOurs(databaseUrl, options), 'ours']]);
  try {
    const peer = await startPostGraphile(tools, databaseUrl, options);
    if (peer) started.set(peer, 'postgraphile');
    else report('PostGraphile: not installed in the folder of --tools, its column stays empty');
    const rows: BoardRow[] = [];
    for (const query of QUERIES) {
      rows.push(await runQuery(query, started, { ...options, tools }));
      report(`${query.title}: measured`);
    }
    return { board: 'graphql-bench', source: 'hasura/graphql-bench', tool: 'autocannon', rows };
  } finally {
    for (const contestant of started.keys()) await contestant.stop();
  }
};

async function runQuery(
  query: Query,
  languages: ReadonlyMap<Contestant, Language>,
  options: BoardOptions & { readonly tools: string },
): Promise<BoardRow> {
  const bodyOf = (language: Language): string => JSON.stringify({ query: query[language] });
  const answers: unknown[] = [];
  for (const [contestant, language] of languages)
    answers.push(await askOnce(contestant, '/graphql', bodyOf(language), options.signal));
  const isSame = answers.every((answer) => isSameData(answers[0], answer));
  if (!isSame) throw new Error(`${query.title}: the answers differ: ${JSON.stringify(answers).slice(0, 500)}`);
  const shoot = (contestant: Contestant, strategy: readonly string[]): Promise<Score> => {
    const language = languages.get(contestant);
    if (!language) throw new Error(`${contestant.name} has no language`);
    return runAutocannon(contestant, bodyOf(language), strategy, options);
  };
  if (options.warmUp > 0) for (const each of languages.keys()) await shoot(each, inDuration(options.warmUp));
  const scores = await measureInTurns([...languages.keys()], options, (contestant) =>
    shoot(contestant, query.strategy(options.seconds)),
  );
  return { title: query.title, scores };
}

async function runAutocannon(
  { url, headers }: Contestant,
  body: string,
  strategy: readonly string[],
  { tools, signal }: { readonly tools: string; readonly signal: AbortSignal },
): Promise<Score> {
  const given = Object.entries({ ...headers, 'Content-Type': 'application/json' });
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [
      join(tools, 'node_modules', 'autocannon', 'autocannon.js'),
      ...['--json', '--no-progress', '-m', 'POST', '-c', String(CONNECTIONS)],
      ...given.flatMap(([name, value]) => ['-H', `${name}=${value}`]),
      ...['-b', body, ...strategy, `${url}/graphql`],
    ],
    { signal, maxBuffer: 16 * 1_048_576 },
  );
  const result = propertiesOf(JSON.parse(stdout));
  const [requests, latency] = [propertiesOf(result['requests']), propertiesOf(result['latency'])];
  return {
    requestsPerSecond: Number(requests['total']) / Number(result['duration']),
    p50: Number(latency['p50']),
    p99: Number(latency['p99']),
    errors: Number(result['errors']) + Number(result['non2xx']),
  };
}

/** PostGraphile 4, which runs on Node 20, with the plugin that gives it filters; null if npm has not installed them. */
async function startPostGraphile(
  tools: string,
  databaseUrl: string,
  { poolSize, signal }: BoardOptions,
): Promise<Contestant | null> {
  const modules = join(tools, 'node_modules');
  const [program, plugin] = [join(modules, 'postgraphile', 'cli.js'), 'postgraphile-plugin-connection-filter'];
  if (!existsSync(program) || !existsSync(join(modules, plugin))) return null;
  const port = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const words = [
    ...['-c', databaseUrl, '-n', '127.0.0.1', '-p', String(port), '--max-pool-size', String(poolSize)],
    ...['--append-plugins', join(modules, plugin), '--disable-graphiql', '--disable-query-log'],
  ];
  const isReady = async (): Promise<boolean> => {
    const body = JSON.stringify({ query: '{ __typename }' });
    const headers = { 'Content-Type': 'application/json' };
    return (await fetch(`${url}/graphql`, { method: 'POST', body, headers })).ok;
  };
  const env = { NODE_ENV: 'production', GRAPHILE_ENV: 'production' };
  const child = await startProgram(process.execPath, [program, ...words], env, { isReady, signal });
  return { name: 'PostGraphile', url, headers: {}, stop: () => stopProcess(child) };
}
