/** Requests to the service that served this page: the public API, with the session cookie or a token that stays in memory. */

/** The URL of the API: the page may be served below a path. */
export const base = location.pathname.replace(/\/explorer\/?$/, '');

export interface Failure {
  readonly message: string;
  readonly extensions: Readonly<Record<string, unknown>> & { readonly code: string };
}

export class ApiError extends Error {
  readonly status: number;
  readonly failures: readonly Failure[];

  constructor(status: number, failures: readonly Failure[]) {
    super(failures[0]?.message ?? `The service answered ${status}.`);
    this.status = status;
    this.failures = failures;
  }

  get code(): string {
    return this.failures[0]?.extensions.code ?? '';
  }
}

export interface Answer<Data> {
  readonly data: Data;
  readonly meta: Readonly<Record<string, unknown>>;
  readonly status: number;
  readonly text: string;
  /** Milliseconds from sending to the last byte. */
  readonly milliseconds: number;
  readonly timing: readonly Stage[];
  /** The number of reads in its statement. */
  readonly batch: number;
}

export interface Stage {
  readonly name: string;
  readonly milliseconds: number;
}

export interface CallOptions {
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** Uses the permissions of the logged-in user, also in View as. */
  readonly own?: boolean;
  /** Uses the permissions of another caller for this request (`public`, `role:<id>` or `user:<id>`). */
  readonly as?: string;
  /** A form with files, instead of `body`. */
  readonly form?: FormData;
}

let token: string | null = null;
let onLoggedOut: () => void = () => {};
let isExpected = false;
let viewing: string | null = null;

/** `public`, `role:<id>` or `user:<id>`: whose permissions apply in View as; null for the administrator's own. */
export function setView(as: string | null): void {
  viewing = as;
}

/** The token, or null to use the session cookie. It is stored only here. */
export function takeToken(given: string | null): void {
  token = given;
}

/** Whether a user is logged in: a refusal may then mean that the session cookie has expired. */
export function expectSession(expected: boolean): void {
  isExpected = expected;
}

export function whenLoggedOut(listener: () => void): void {
  onLoggedOut = listener;
}

function authorization(isOwn = false): Record<string, string> {
  return {
    ...(token === null ? {} : { Authorization: `Bearer ${token}` }),
    ...(viewing === null || isOwn ? {} : { 'Lateral-View-As': viewing }),
  };
}

export async function call<Data>(
  method: string,
  path: string,
  { body, headers = {}, signal, own = false, as: caller, form }: CallOptions = {},
): Promise<Answer<Data>> {
  const isOwn = own || caller !== undefined || path.startsWith('/auth/');
  const as = caller ?? (isOwn ? null : viewing);
  const send = (): Promise<Response> =>
    fetch(base + path, {
      method,
      headers: {
        ...authorization(isOwn),
        ...(caller === undefined ? {} : { 'Lateral-View-As': caller }),
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      ...(form ? { body: form } : body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    });
  const begun = performance.now();
  let response = await reach(send);
  if (response.status === 401 && token === null && !path.startsWith('/auth/') && (await renewed()))
    response = await reach(send);
  const text = await response.text();
  const milliseconds = performance.now() - begun;
  const parsed = parse(text);
  const failures = Array.isArray(parsed['errors']) ? (parsed['errors'] as Failure[]) : [];
  if (!response.ok || (failures.length > 0 && parsed['data'] === undefined)) {
    if (response.status === 401 && !CHECKS_PASSWORD.test(path)) onLoggedOut();
    else if (response.status === 403 && isExpected) void checkSession();
    throw new ApiError(response.status, failures);
  }
  // If a proxy drops the header, the administrator's response would pass for another caller's.
  if (as !== null && response.headers.get('lateral-view-as') !== as)
    throw new ApiError(response.status, [
      {
        message: 'The response has no Lateral-View-As header. A proxy may have removed it.',
        extensions: { code: 'VIEW_LOST' },
      },
    ]);
  const timing = response.headers.get('server-timing') ?? '';
  return {
    data: parsed['data'] as Data,
    meta: (parsed['meta'] ?? {}) as Answer<Data>['meta'],
    status: response.status,
    text,
    milliseconds,
    timing: stagesOf(timing),
    batch: Number(/\bbatch;desc="(\d+)"/.exec(timing)?.[1] ?? 1),
  };
}

async function reach<Result>(send: () => Promise<Result>): Promise<Result> {
  try {
    return await send();
  } catch (error) {
    if (error instanceof DOMException) throw error;
    const message = 'The service cannot be reached. Is it running?';
    throw new ApiError(0, [{ message, extensions: { code: 'UNREACHABLE' } }]);
  }
}

let isChecking = false;

/** Browsers drop an expired cookie. Requests then have no user, and the service refuses them. */
async function checkSession(): Promise<void> {
  if (isChecking) return;
  isChecking = true;
  try {
    const { status } = await fetch(`${base}/users/me?fields=id`, { headers: authorization(true) });
    if (isExpected && (status === 401 || status === 403)) onLoggedOut();
  } catch {
    // The service cannot be reached. The next request reports that.
  }
  isChecking = false;
}

/** A 401 of these means a wrong password or code, not that the session has ended. */
const CHECKS_PASSWORD = /^\/(?:auth|users\/me\/tfa)\//;

let renewing: Promise<boolean> | null = null;

/** Runs once for all requests that find the session expired at the same time: a second use of its token would end it. */
function renewed(): Promise<boolean> {
  renewing ??= fetch(`${base}/auth/refresh`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: '{"mode":"session"}',
  }).then(
    ({ ok }) => ok,
    () => false,
  );
  return renewing.finally(() => {
    renewing = null;
  });
}

function parse(text: string): Record<string, unknown> {
  if (text === '') return {};
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function stagesOf(header: string): Stage[] {
  return [...header.matchAll(/([\w-]+);dur=([\d.]+)/g)].map(([, name = '', duration = '0']) => ({
    name,
    milliseconds: Number(duration),
  }));
}

let systemPrefix = 'service_';

/** The prefix of the service's own collections, which DIRECTUS_COMPATIBILITY changes. */
export function setSystemPrefix(collections: readonly string[]): string {
  const isFamily = collections.includes('directus_users') && !collections.includes('service_users');
  systemPrefix = isFamily ? 'directus_' : 'service_';
  return systemPrefix;
}

/** The collection of the service with this name, such as `panels`. */
export function systemCollection(name: string): string {
  return systemPrefix + name;
}

export function itemsPath(collection: string, key?: string): string {
  const path = collection.startsWith(systemPrefix)
    ? `/${collection.slice(systemPrefix.length)}`
    : `/items/${encodeURIComponent(collection)}`;
  return key === undefined ? path : `${path}/${encodeURIComponent(key)}`;
}

/** The message of an error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Sends a file and reports its progress, which fetch cannot do. */
export function upload(path: string, file: Blob, type: string, how: Transmission): Promise<unknown> {
  return transmit('POST', path, { body: file, type }, how);
}

export interface Transmission {
  /** From 0 to 1. */
  readonly onProgress: (part: number) => void;
  readonly signal: AbortSignal;
}

/** Sends a form with files, and reports its progress. */
export function sendForm(method: string, path: string, form: FormData, how: Transmission): Promise<unknown> {
  // The browser names the type, with the boundary of the parts.
  return transmit(method, path, { body: form, type: null }, how);
}

async function transmit(
  method: string,
  path: string,
  { body, type }: { readonly body: Blob | FormData; readonly type: string | null },
  { onProgress, signal }: Transmission,
): Promise<unknown> {
  // The file is sent once, so an expired session is renewed first.
  await call('GET', '/users/me?fields=id', { own: true, signal });
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, base + path);
    if (type !== null) request.setRequestHeader('Content-Type', type);
    for (const [name, value] of Object.entries(authorization())) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded, total }) => onProgress(total === 0 ? 1 : loaded / total);
    request.onerror = () =>
      reject(
        new ApiError(0, [
          { message: 'The connection was lost during the upload.', extensions: { code: 'UNREACHABLE' } },
        ]),
      );
    const cancel = (): void => request.abort();
    request.onabort = () => reject(new DOMException('The upload was cancelled.', 'AbortError'));
    request.onloadend = () => signal.removeEventListener('abort', cancel);
    signal.addEventListener('abort', cancel);
    request.onload = () => {
      const parsed = parse(request.responseText);
      if (request.status < 300) resolve(parsed['data']);
      else reject(new ApiError(request.status, (parsed['errors'] ?? []) as Failure[]));
    };
    request.send(body);
  });
}

/** A live read: passes the result on whenever it changes (`live.ts`). Throws the error of the service. */
export async function stream(
  path: string,
  body: unknown,
  position: string,
  signal: AbortSignal,
): Promise<ReadableStream<Uint8Array>> {
  const send = (): Promise<Response> =>
    fetch(base + path, {
      method: 'SEARCH',
      headers: {
        ...authorization(),
        'Content-Type': 'application/json',
        Accept: 'text/event-stream',
        ...(position === '' ? {} : { 'Last-Event-ID': position }),
      },
      body: JSON.stringify(body),
      signal,
    });
  return streamed(send);
}

/** The body of a GET while it arrives, such as a recording of the traffic. */
export async function streamGet(path: string, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
  return streamed(() => fetch(base + path, { headers: authorization(), signal }));
}

async function streamed(send: () => Promise<Response>): Promise<ReadableStream<Uint8Array>> {
  let response = await reach(send);
  if (response.status === 401 && token === null && (await renewed())) response = await reach(send);
  if (response.status === 401) onLoggedOut();
  if (!response.ok || !response.body)
    throw new ApiError(response.status, (parse(await response.text())['errors'] ?? []) as Failure[]);
  return response.body;
}

/** The bytes of a response, with the login and View as of this page. */
export async function fetchContent(
  path: string,
  signal: AbortSignal,
  headers: Readonly<Record<string, string>> = {},
): Promise<Blob> {
  const send = (): Promise<Response> => fetch(base + path, { headers: { ...authorization(), ...headers }, signal });
  let response = await reach(send);
  if (response.status === 401 && token === null && (await renewed())) response = await reach(send);
  if (!response.ok) throw new ApiError(response.status, (parse(await response.text())['errors'] ?? []) as Failure[]);
  return response.blob();
}

/** Saves a file as a download of the browser, and reports the number of received bytes. */
export async function download(
  { path, body, name }: { readonly path: string; readonly body: unknown; readonly name: string },
  onProgress: (bytes: number) => void = () => {},
  signal?: AbortSignal,
): Promise<void> {
  const send = (): Promise<Response> =>
    fetch(base + path, {
      method: 'POST',
      headers: { ...authorization(), 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
      ...(signal ? { signal } : {}),
    });
  let response = await reach(send);
  if (response.status === 401 && token === null && (await renewed())) response = await reach(send);
  if (!response.ok || !response.body)
    throw new ApiError(response.status, (parse(await response.text())['errors'] ?? []) as Failure[]);
  const pieces: BlobPart[] = [];
  const reader = response.body.getReader();
  for (let bytes = 0; ; ) {
    const { done, value } = await reach(() => reader.read());
    if (done) break;
    pieces.push(value);
    bytes += value.length;
    onProgress(bytes);
  }
  const type = response.headers.get('content-type') ?? '';
  saveAs(new Blob(pieces, { type }), name);
}

export function saveAs(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
