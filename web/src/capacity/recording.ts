/** Recordings of the traffic: made with `GET /server/traffic`, or opened from a file of `lateral record`. */
import { streamGet } from '../api';

export interface RecordedRequest {
  readonly t: number;
  readonly method: string;
  readonly path?: string;
  readonly route?: string;
  readonly body?: string;
  readonly shape?: string;
  readonly omitted?: string;
  readonly write?: boolean;
  readonly user: string | null;
  readonly role: string | null;
  readonly status: number;
  readonly ms: number;
}

export interface Recording {
  readonly started: string;
  readonly milliseconds: number;
  readonly sample: number;
  readonly redacted: boolean;
  readonly dropped: number;
  readonly isComplete: boolean;
  readonly requests: readonly RecordedRequest[];
  /** Statements by the digest of their shape. */
  readonly statements: ReadonlyMap<string, string>;
}

/** A recording with its text, which can be downloaded. */
export interface Opened {
  readonly name: string;
  readonly recording: Recording;
  /** The file as the service sent it, or null if the user opened one. */
  readonly text: string | null;
}

/** Reads the lines of a recording. Throws if the text is not a recording. */
export function readRecording(text: string): Recording {
  const [first = '', ...lines] = text.split('\n').filter((line) => line.trim() !== '');
  const header = parse(first);
  if (header['format'] !== 'lateral-traffic') throw new Error('This file is not a recording of lateral record.');
  if (header['version'] !== 1)
    throw new Error(
      `The recording has version ${String(header['version'])} of the format, and this page reads version 1.`,
    );
  const requests: RecordedRequest[] = [];
  const statements = new Map<string, string>();
  let end: Readonly<Record<string, unknown>> | null = null;
  for (const line of lines) {
    const value = parse(line);
    if (value['end'] === true) end = value;
    else if (typeof value['text'] === 'string') statements.set(String(value['shape']), value['text']);
    else if (isRequest(value)) requests.push(value);
    else throw new Error('A line of the recording is not a request.');
  }
  const last = requests.reduce((latest, { t }) => Math.max(latest, t), 0);
  return {
    started: String(header['started']),
    milliseconds: end ? Number(end['milliseconds']) : last,
    sample: Number(header['sample']),
    redacted: header['redacted'] === true,
    dropped: end ? Number(end['dropped']) : 0,
    isComplete: end !== null,
    requests,
    statements,
  };
}

function parse(line: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value === 'object' && value !== null) return value as Readonly<Record<string, unknown>>;
  } catch {
    // Reported below.
  }
  throw new Error('This file is not a recording of lateral record.');
}

function isRequest(value: unknown): value is RecordedRequest {
  const { t, method, status, ms } = value as Readonly<Record<string, unknown>>;
  return [t, status, ms].every((each) => typeof each === 'number') && typeof method === 'string';
}

const GZIP = [0x1f, 0x8b];

/** Opens a file of `lateral record`, compressed or not. */
export async function openRecording(file: Blob): Promise<Recording> {
  const start = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const isCompressed = GZIP.every((byte, at) => start[at] === byte);
  const content = isCompressed ? file.stream().pipeThrough(new DecompressionStream('gzip')) : file.stream();
  return readRecording(await new Response(content).text());
}

export interface RecordOptions {
  readonly seconds: number;
  readonly sample: number;
  readonly signal: AbortSignal;
  /** Called with the number of requests so far. */
  readonly onProgress: (requests: number) => void;
}

/** Records the traffic of the service. After an abort, the result has what was received. */
export async function record({ seconds, sample, signal, onProgress }: RecordOptions): Promise<string> {
  const body = await streamGet(`/server/traffic?for=${seconds}s&sample=${sample}`, signal);
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const pieces: string[] = [];
  let requests = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const piece = decoder.decode(value, { stream: true });
      pieces.push(piece);
      requests += piece.split('"method":').length - 1;
      onProgress(requests);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  const text = pieces.join('');
  return text.slice(0, text.lastIndexOf('\n') + 1);
}

/** The recording as a file that `lateral replay` reads. */
export async function compressed(text: string): Promise<Blob> {
  const content = new Blob([text]).stream().pipeThrough(new CompressionStream('gzip'));
  return new Response(content).blob();
}

export interface RecordedShape {
  /** The digest of its statement; '' for requests without one. */
  readonly digest: string;
  readonly title: string;
  readonly count: number;
  readonly total: number;
  readonly p50: number;
  readonly p99: number;
  readonly failed: number;
  /** The slowest request that can be sent again as a read. */
  readonly example: RecordedRequest | null;
}

/** The shapes with the largest total time first. */
export function shapesOf({ requests }: Recording): RecordedShape[] {
  const groups = new Map<string, RecordedRequest[]>();
  for (const request of requests) {
    const id = request.shape ?? titleOf(request);
    const group = groups.get(id);
    if (group) group.push(request);
    else groups.set(id, [request]);
  }
  const shapes = [...groups.values()].map((group): RecordedShape => {
    const times = group.map(({ ms }) => ms).sort((one, other) => one - other);
    const at = (share: number): number => times[Math.min(times.length - 1, Math.ceil(times.length * share) - 1)] ?? 0;
    const [first] = group as [RecordedRequest];
    return {
      digest: first.shape ?? '',
      title: titleOf(first),
      count: group.length,
      total: times.reduce((sum, ms) => sum + ms, 0),
      p50: at(0.5),
      p99: at(0.99),
      failed: group.filter(({ status }) => status >= 400).length,
      example: group
        .filter(isRead)
        .reduce<RecordedRequest | null>((slowest, each) => (slowest && slowest.ms >= each.ms ? slowest : each), null),
    };
  });
  return shapes.sort((one, other) => other.total - one.total);
}

/** Method, path and the names of the parameters. */
function titleOf({ method, path, route }: RecordedRequest): string {
  const [plain = '', query = ''] = (path ?? route ?? '').split(/\?(.*)/s);
  const names = [...new URLSearchParams(query).keys()].map((name) => name.replace(/\[.*/s, ''));
  return `${method} ${plain}${names.length > 0 ? `?${[...new Set(names)].join('&')}` : ''}`;
}

function isRead({ method, path, write, omitted, status }: RecordedRequest): boolean {
  return (
    (method === 'GET' || method === 'SEARCH') &&
    path?.startsWith('/items/') === true &&
    !write &&
    omitted === undefined &&
    status < 400
  );
}
