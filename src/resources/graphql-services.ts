/** Root fields that REST routes carry out: the route gets a request of its own, in the name of the same client. */
import { writeJson } from '../digits.js';
import { type Call, show } from '../graphql/calls.js';
import type { Exchange } from '../http/exchange.js';
import { DEFERRED, type Outcome, type Reply } from '../http/reply.js';
import type { Router } from '../http/router.js';

export interface Called {
  /** As JSON. */
  readonly text: string;
  /** What the route sends beside its body, such as cookies. */
  readonly headers: NonNullable<Reply['headers']>;
  readonly secret: boolean;
}

export async function callService(call: Call, exchange: Exchange, router: Router): Promise<Called> {
  const reply = await handle(call, exchange, router);
  if (typeof reply.body === 'function') throw new Error('a streamed answer has no place in another one');
  const result = reply.body === '' ? call.otherwise : resultOf(reply);
  return {
    text: JSON.stringify(show(result, call.shown)),
    headers: reply.headers ?? {},
    secret: reply.secret ?? false,
  };
}

/** An answer that comes later is told to the inner request: its body is only lent. */
function handle(call: Call, exchange: Exchange, router: Router): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const settle = (outcome: Outcome): void => {
      if (outcome === DEFERRED) return;
      if (outcome instanceof Promise) outcome.then(settle, reject);
      else resolve(typeof outcome.body === 'function' ? outcome : { ...outcome, body: String(outcome.body) });
    };
    const inner = requestFor(call, exchange, settle, reject);
    settle(router.find(inner).handle(inner));
  });
}

function resultOf({ type, body }: Reply): unknown {
  const text = String(body);
  if (!/json/.test(type)) return text;
  const value: unknown = JSON.parse(text === '' ? 'null' : text);
  const wrapped = value !== null && typeof value === 'object' && !Array.isArray(value) && 'data' in value;
  return wrapped ? value.data : value;
}

/** Everything of the request but what it asks for. */
function requestFor(
  { method, path, queryString, body }: Call,
  exchange: Exchange,
  settle: (outcome: Outcome) => void,
  refuse: (error: unknown) => void,
): Exchange {
  const own: Record<string | symbol, unknown> = {
    method,
    path,
    queryString,
    parameters: [],
    traffic: null,
    staged: () => {},
    settle,
    refuse,
    // Read as the route would read it: most take plain numbers.
    json: async (parse: (text: string) => unknown = JSON.parse) =>
      body === undefined ? undefined : parse(writeJson(body)),
  };
  return new Proxy(exchange, {
    get: (target, name) => {
      if (Object.hasOwn(own, name)) return own[name];
      // Methods and accessors reach what only the exchange itself may touch.
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
    set: (target, name, value) => {
      if (Object.hasOwn(own, name)) own[name] = value;
      else Reflect.set(target, name, value, target);
      return true;
    },
  });
}
