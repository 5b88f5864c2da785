/** A service that recorded traffic is sent to: whether it can be reached, whether the token suffices, and which callers it knows. */

import { StartError, UsageError } from '../../base/errors.js';
import { messageOf, propertiesOf } from '../../base/narrow.js';
import { VIEW_AS_HEADER } from '../../server/access/view-as.js';
import type { OwnOptions } from './own-options.js';
import type { RecordedRequest } from './traffic-file.js';

export interface Target {
  readonly url: URL;
  readonly token: string;
}

export function parseTarget(option: string, text: string, token: string): Target {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
    throw new UsageError(`${option} must be a URL such as http://127.0.0.1:8055, not "${text}"`);
  if (url.username !== '' || url.password !== '')
    throw new UsageError(`${option} must be a URL without a name and a password, such as ${url.origin}`);
  if (/[\r\n]/.test(token)) throw new UsageError('--token must be one line');
  return { url, token };
}

/** The service of `--url`, with the token of `--token` or ADMIN_TOKEN. */
export function readTarget(options: OwnOptions): Target {
  return parseTarget(
    '--url',
    options.required('url'),
    options.value('token') ?? (process.env['ADMIN_TOKEN'] || options.required('token')),
  );
}

/** The recording that a command reads. */
export function readFileOperand(command: string, { operands }: OwnOptions): string {
  const [file, ...others] = operands;
  if (file === undefined || others.length > 0)
    throw new UsageError(`lateral ${command} takes one recording: see lateral ${command} --help`);
  return file;
}

const TIMEOUT_MS = 15_000;
const TOO_MANY = 429;

/** A request of the command itself. Throws if there is no response. */
export async function ask(target: Target, path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { ...authorization(target), ...init.headers };
  const url = new URL(basePath(target) + path, target.url);
  const response = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS), ...init, headers }).catch((error) => {
    const { cause } = propertiesOf(error);
    throw new StartError(`${url.origin} does not answer: ${messageOf(cause ?? error)}`);
  });
  if (response.status !== TOO_MANY) return response;
  throw new StartError(
    `${url.origin} limits requests (429): if it is Lateral's limit, set RATE_LIMITER_ENABLED=false there during the run`,
  );
}

export function authorization({ token }: Target): Record<string, string> {
  return { Authorization: `Bearer ${token}` };
}

/** The service may be below a path of a proxy. */
export function basePath({ url }: Target): string {
  return url.pathname.replace(/\/+$/, '');
}

/** Throws unless the service answers and the token is an administrator's. */
export async function checkTarget(target: Target): Promise<void> {
  const response = await ask(target, '/server/shapes?limit=1');
  await response.arrayBuffer();
  if (response.status === 200) return;
  if (response.status === 401 || response.status === 403)
    throw new StartError(`${target.url.origin} refuses the token (${response.status}): it must be an administrator's`);
  throw new StartError(`${target.url.origin} answers with status ${response.status}: is Lateral running there?`);
}

/** The value of the header `Lateral-View-As`, or null for a caller that the target does not have. */
export type Callers = ReadonlyMap<string, string | null>;

export function callerKey({ user, role }: Pick<RecordedRequest, 'user' | 'role'>): string {
  return `${user} ${role}`;
}

/** Callers that are looked up at the same time. */
const PARALLEL = 10;

/** Finds the callers of a recording. A user whom the target does not have is viewed as the role. */
export async function findCallers(target: Target, requests: readonly RecordedRequest[]): Promise<Callers> {
  const wanted = [...new Map(requests.map((request) => [callerKey(request), request])).values()];
  const found = new Map<string, string | null>();
  const next = async (): Promise<void> => {
    for (let request = wanted.pop(); request; request = wanted.pop())
      found.set(callerKey(request), await findCaller(target, request));
  };
  await Promise.all(Array.from({ length: PARALLEL }, next));
  return found;
}

async function findCaller(target: Target, { user, role }: RecordedRequest): Promise<string | null> {
  if (user === null && role === null) return 'public';
  const views = [...(user === null ? [] : [`user:${user}`]), ...(role === null ? [] : [`role:${role}`])];
  for (const view of views) {
    const response = await ask(target, '/server/info', { headers: { [VIEW_AS_HEADER]: view } });
    await response.arrayBuffer();
    if (response.status === 200) return view;
    if (response.status !== 400)
      throw new StartError(`${target.url.origin} refuses to view as ${view} (${response.status})`);
  }
  return null;
}
