/**
 * The results as documents: each command writes its own below bench/results, and the report is built from them. They do not identify the
 * owner of the machine.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { arch, availableParallelism, cpus, platform, totalmem } from 'node:os';
import { packagePath, packageRoot, packageVersion } from '../src/base/package-files.js';
import type { Beside } from './beside.js';
import type { BulkResult } from './bulk.js';
import type { Growth } from './growth.js';
import type { Live } from './live.js';
import type { CaseResult, Measuring } from './measure.js';
import type { Noise } from './noise.js';
import type { Open } from './open.js';
import type { PeerId } from './peers/peer.js';
import type { ServersResult } from './servers.js';
import type { Soak } from './soak.js';
import type { Start } from './start.js';
import type { ValueClass } from './value-classes.js';

export interface Origin {
  readonly version: string;
  /** The revision of the source, with a mark if it was changed since. */
  readonly revision: string;
  readonly machine: {
    readonly platform: string;
    readonly architecture: string;
    readonly processor: string;
    readonly cores: number;
    readonly memory: number;
    readonly node: string;
    readonly postgresql: string;
  };
  readonly tools: Readonly<Record<'wrk' | 'pgbench', string | null>>;
  /** Options of the service that differ from their defaults. */
  readonly settings: Readonly<Record<string, string>>;
}

export type Settings = Pick<Measuring, 'seconds' | 'warmUp' | 'rounds' | 'connections' | 'poolSize'>;

export interface CasesDocument extends Origin {
  readonly measuring: Settings;
  /** The versions of the available peers. */
  readonly peers: Readonly<Partial<Record<PeerId, string>>>;
  readonly cases: readonly CaseResult[];
  readonly growth: Growth | null;
  /** The first and the last measurement. */
  readonly noise: Noise | null;
  readonly open: Open | null;
  readonly start: Start | null;
  readonly classes: readonly ValueClass[];
  readonly bulk: readonly BulkResult[];
}

export interface Documents {
  readonly cases: CasesDocument;
  readonly beside: (Origin & Beside) | null;
  readonly soak: (Origin & Soak) | null;
  readonly live: (Origin & Live) | null;
  readonly servers: (Origin & ServersResult) | null;
}

export function describeOrigin(postgresql: string, settings: Origin['settings']): Origin {
  return {
    version: packageVersion,
    revision: readRevision(),
    machine: {
      platform: platform(),
      architecture: arch(),
      processor: cpus()[0]?.model ?? 'unknown',
      cores: availableParallelism(),
      memory: totalmem(),
      node: process.version,
      postgresql,
    },
    tools: {
      wrk: readVersion('wrk', ['-v'], /wrk \S*?(\d+\.\d+\.\d+)/),
      pgbench: readVersion('pgbench', ['--version'], /(\d+(?:\.\d+)+)/),
    },
    settings,
  };
}

export type DocumentName = keyof Documents | 'some' | 'boards' | 'record';

export async function saveDocument(name: DocumentName, document: object): Promise<string> {
  await mkdir(packagePath('bench', 'results'), { recursive: true });
  const path = `bench/results/${name}.json`;
  await writeFile(packagePath(path), `${JSON.stringify(document, null, 2)}\n`);
  return path;
}

/** Returns null if the cases were never measured: then there is nothing to report. */
export async function loadDocuments(): Promise<Documents | null> {
  const found = await loadDocument<CasesDocument>('cases');
  if (found === null) return null;
  // A document of an older bench lacks the parts that it did not measure.
  const cases = { ...NOT_MEASURED, ...found };
  return {
    cases,
    beside: await loadDocument('beside'),
    soak: await loadDocument('soak'),
    live: await loadLive(),
    servers: await loadDocument('servers'),
  };
}

export function loadLive(): Promise<Documents['live']> {
  return loadDocument('live');
}

const NOT_MEASURED = { noise: null, open: null, start: null, classes: [], bulk: [] };

async function loadDocument<T>(name: keyof Documents): Promise<T | null> {
  const path = packagePath('bench', 'results', `${name}.json`);
  if (!existsSync(path)) return null;
  return JSON.parse(await readFile(path, 'utf8')) as T;
}

function readRevision(): string {
  const git = (...args: string[]): string =>
    execFileSync('git', args, { cwd: packageRoot, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    const changed = git(
      'status',
      '--porcelain',
      '--untracked-files=no',
      '--',
      'src',
      'compiler',
      'sql',
      'package-lock.json',
    );
    return `${git('rev-parse', '--short', 'HEAD')}${changed === '' ? '' : ' with changes'}`;
  } catch {
    return 'unknown';
  }
}

/** Some programs print their version and fail. */
function readVersion(tool: string, args: readonly string[], pattern: RegExp): string | null {
  try {
    return pattern.exec(execFileSync(tool, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }))?.[1] ?? '';
  } catch (error) {
    if (!(error instanceof Error) || ('code' in error && error.code === 'ENOENT')) return null;
    return pattern.exec(String((error as { stdout?: unknown }).stdout ?? ''))?.[1] ?? '';
  }
}
