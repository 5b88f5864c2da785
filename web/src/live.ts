/** Live results: a read as server-sent events, with `fetch`, because `EventSource` can send neither a token nor a body. */
import { ApiError, messageOf, stream } from './api';

export interface Subscriber {
  /** The body of the result: first the current one, then each new one. */
  readonly onAnswer: (text: string) => void;
  /** The error that ended the stream. */
  readonly onFailed: (message: string) => void;
}

const RETRY_MS = 1_000;
/** The service sends something every 20 s. */
const SILENCE_MS = 30_000;

/** Returns a function that ends it. */
export function subscribe(path: string, body: unknown, { onAnswer, onFailed }: Subscriber): () => void {
  const ended = new AbortController();
  let position = '';
  const read = async (): Promise<void> => {
    const attempt = new AbortController();
    const end = (): void => attempt.abort();
    ended.signal.addEventListener('abort', end);
    let silence = setTimeout(end, SILENCE_MS);
    try {
      const chunks = await stream(path, body, position, attempt.signal);
      for await (const { event, id, data } of eventsOf(chunks)) {
        clearTimeout(silence);
        silence = setTimeout(end, SILENCE_MS);
        if (ended.signal.aborted) return;
        if (id !== '') position = id;
        if (event === 'failed') throw new ApiError(403, [failureIn(data)]);
        if (data !== '') onAnswer(data);
      }
    } finally {
      clearTimeout(silence);
      ended.signal.removeEventListener('abort', end);
    }
  };
  const keep = async (): Promise<void> => {
    while (!ended.signal.aborted) {
      try {
        await read();
      } catch (error) {
        // A refusal is final. Other causes, such as a lost connection or a restart of the service, pass after a while.
        if (error instanceof ApiError && error.status >= 400 && !ended.signal.aborted)
          return onFailed(messageOf(error));
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  };
  void keep();
  return () => ended.abort();
}

interface ServerEvent {
  readonly event: string;
  readonly id: string;
  readonly data: string;
}

/** Includes comments, as empty events: they show that the connection is alive. */
async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const values = (name: string): string =>
        block
          .split('\n')
          .flatMap((line) => (line.startsWith(`${name}:`) ? [line.slice(name.length + 1).replace(/^ /, '')] : []))
          .join('\n');
      yield { event: values('event'), id: values('id'), data: values('data') };
    }
  }
}

function failureIn(data: string): ApiError['failures'][number] {
  const { errors = [] } = JSON.parse(data) as { readonly errors?: ApiError['failures'] };
  return errors[0] ?? { message: 'The service ended the live query.', extensions: { code: '' } };
}
