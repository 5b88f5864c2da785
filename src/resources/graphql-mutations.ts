/** Mutations: each root field is one write, all of them one transaction in the order of the document. */

import { onlyUser } from '../access/identity.js';
import { assertNever } from '../assert-never.js';
import type { WriteContext, Writer } from '../engine/write-context.js';
import type { Writes } from '../engine/writes.js';
import { ServiceError } from '../errors.js';
import type { Call } from '../graphql/calls.js';
import { FieldFailure, type ResponseError, responseError } from '../graphql/failure.js';
import type { MutationStep, ParsedMutationDocument, ReadBack } from '../graphql/parsed-document.js';
import { BatchMemory, type ResponseMemory } from '../postgres/response-memory.js';
import { shapeOf } from '../request/rest.js';
import type { Key } from '../request/write.js';
import type { Called } from './graphql-services.js';

/**
 * The body of the answer. If a step fails nothing has happened, so the whole operation has failed, and says which step. What the
 * steps show has one size and one memory together: what is more is refused before anything is committed.
 */
export async function runMutation(
  { steps }: ParsedMutationDocument,
  writes: Writes,
  writer: Writer,
  room: ResponseMemory,
): Promise<Buffer> {
  const held = new BatchMemory(room);
  let current: MutationStep | undefined;
  try {
    const prepared: MutationStep[] = [];
    for (const step of steps) {
      current = step;
      prepared.push(await prepare(step, writes, writer));
    }
    const results = await writes.together(writer.caller, async (joined) => {
      // It may be tried again.
      held.clear();
      const done: Buffer[] = [];
      for (const step of prepared) {
        current = step;
        const result = await carryOut(step, joined, writer);
        const refused = held.receive(result.length);
        if (refused) throw refused;
        done.push(result);
      }
      current = undefined;
      return done;
    });
    return bodyOf(steps, results);
  } catch (error) {
    throw current ? new FieldFailure(error, current.place) : error;
  } finally {
    held.clear();
  }
}

/** Steps that routes carry out, one after the other: what fails is null and has its error. */
export async function runCalls(
  { steps }: ParsedMutationDocument,
  call: (call: Call) => Promise<Called>,
): Promise<{ readonly body: string; readonly called: readonly Called[] }> {
  const entries: string[] = [];
  const errors: ResponseError[] = [];
  const called: Called[] = [];
  for (const step of steps) {
    let text = step.kind === 'json' ? step.text : 'null';
    try {
      if (step.kind === 'call') {
        const result = await call(step.call);
        called.push(result);
        text = result.text;
      }
    } catch (error) {
      if (!(error instanceof ServiceError) || error.status >= 500) throw error;
      errors.push(responseError(error, step.place));
    }
    entries.push(`${JSON.stringify(step.name)}:${text}`);
  }
  const shown = errors.length > 0 ? `,"errors":${JSON.stringify(errors)}` : '';
  return { body: `{"data":{${entries.join(',')}}${shown}}`, called };
}

/** What takes time is done before the transaction begins. */
async function prepare(step: MutationStep, writes: Writes, writer: Writer): Promise<MutationStep> {
  switch (step.kind) {
    case 'create':
    case 'batch':
      return { ...step, items: await writes.prepare(step.collection, step.items, writer) };
    case 'update-me':
    case 'update':
    case 'singleton': {
      const collection = step.kind === 'update-me' ? 'service_users' : step.collection;
      const [data = step.data] = await writes.prepare(collection, [step.data], writer);
      return { ...step, data };
    }
    default:
      return step;
  }
}

async function carryOut(step: MutationStep, writes: Writes, writer: Writer): Promise<Buffer> {
  switch (step.kind) {
    case 'json':
      return Buffer.from(step.text);
    case 'call':
      throw new Error('routes are called outside of transactions');
    case 'update-me': {
      const { user } = onlyUser(writer.caller);
      return resultOf(
        await writes.updateOne('service_users', user, step.data, shownBy(step.shown, writer)),
        step.shown,
      );
    }
    case 'create': {
      const { items, many } = step;
      return resultOf(await writes.create(step.collection, { items, many }, shownBy(step.shown, writer)), step.shown);
    }
    case 'update': {
      const { keys, data, shown } = step;
      const body = step.many
        ? await writes.updateMany(
            step.collection,
            { kind: 'same', selected: { kind: 'keys', keys }, data },
            shownBy(shown, writer),
          )
        : await writes.updateOne(step.collection, keys[0] as string, data, shownBy(shown, writer));
      return resultOf(body, shown);
    }
    case 'batch': {
      const { items, shown } = step;
      const body = await writes.updateMany(step.collection, { kind: 'each', items }, shownBy(shown, writer));
      return resultOf(body, shown);
    }
    case 'singleton':
      return resultOf(
        await writes.updateSingleton(step.collection, step.data, shownBy(step.shown, writer)),
        step.shown,
      );
    case 'delete':
      await writes.delete(step.collection, { kind: 'keys', keys: step.keys }, writer);
      return Buffer.from(step.text);
    default:
      return assertNever(step);
  }
}

function shownBy(shown: ReadBack | null, writer: Writer): WriteContext {
  return {
    ...writer,
    read: (_, keys, one) => {
      if (!shown) return null;
      const values = [keys && one ? (keys[0] as Key) : keys, ...shown.values.slice(1)];
      return { request: shown.request, values, shape: shapeOf(shown.request), format: null };
    },
  };
}

const NULL = Buffer.from('null');
const TRUE = Buffer.from('true');
const OPENING = '{"data":'.length;

/** What REST would send, without its envelope. Who may not read learns that it was done. */
function resultOf(body: Buffer | null, shown: ReadBack | null): Buffer {
  if (!shown) return TRUE;
  return body ? body.subarray(OPENING, body.length - 1) : NULL;
}

function bodyOf(steps: readonly MutationStep[], results: readonly Buffer[]): Buffer {
  const pieces: Buffer[] = [Buffer.from('{"data":{')];
  steps.forEach(({ name }, position) => {
    pieces.push(Buffer.from(`${position === 0 ? '' : ','}${JSON.stringify(name)}:`), results[position] as Buffer);
  });
  pieces.push(Buffer.from('}}'));
  return Buffer.concat(pieces);
}
