/**
 * Other servers that answer the same requests from the same database, each in its own language. They are not part of this project: a
 * missing one leaves its column empty.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import type { Case } from '../case.js';
import { stopProcess } from '../environment.js';
import type { Address, Question } from '../statement.js';

export const PEERS = { postgraphile: 'PostGraphile', postgrest: 'PostgREST', directus: 'Directus' } as const;

export type PeerId = keyof typeof PEERS;

export interface Peer extends Address {
  readonly id: PeerId;
  readonly version: string;
  /** Returns null if it has no equivalent request. */
  questionOf(each: Case): Question | null;
  stop(): Promise<void>;
}

export interface PeerOptions {
  readonly databaseUrl: string;
  readonly poolSize: number;
  readonly signal: AbortSignal;
  /** A folder with node_modules/postgraphile in it. */
  readonly postgraphile: string | undefined;
  /** The program, or the URL of a running one. */
  readonly postgrest: string | undefined;
  readonly postgrestUrl: string | undefined;
  readonly directusUrl: string | undefined;
  readonly directusToken: string | undefined;
}

/** Resolves to null if it is not installed. */
export type StartPeer = (options: PeerOptions) => Promise<Peer | null>;

export function findFreePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

const START_TIME = 60_000;
const PAUSE = 200;
const LONGEST_COMPLAINT = 2_000;

/** Starts a program and waits until it answers. Its output is shown only if it does not. */
export async function startProgram(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  { isReady, signal }: { isReady(): Promise<boolean>; readonly signal: AbortSignal },
): Promise<ChildProcess> {
  // In a separate session, like the service.
  const options = { env: { ...process.env, ...env }, detached: true };
  const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  let failure: Error | undefined;
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-LONGEST_COMPLAINT);
    });
  }
  child.once('error', (error) => {
    failure = error;
  });
  const end = Date.now() + START_TIME;
  while (failure === undefined && child.exitCode === null && Date.now() < end && !signal.aborted) {
    if (await isReady().catch(() => false)) return child;
    await wait(PAUSE);
  }
  if (failure === undefined) await stopProcess(child);
  signal.throwIfAborted();
  throw failure ?? new Error(`${program} does not start: ${said}`);
}
