/** Mutations: each root field is one write, all of them one transaction in the order of the document. */
import { onlyUser } from '../../access/identity.js';
import { ServiceError } from '../../base/errors.js';
import { elementAt } from '../../base/narrow.js';
import type { Reads } from '../../engine/reads/reads.js';
import type { RequestClient } from '../../engine/stages.js';
import type { Writer } from '../../engine/writer.js';
import type { Writes } from '../../engine/writes/writes.js';
import type { Call } from '../../graphql/calls.js';
import { FieldFailure, type ResponseError, responseError } from '../../graphql/failure.js';
import type { MutationStep, ParsedMutationDocument } from '../../graphql/parsed-document.js';
import { BatchMemory } from '../../postgres/wire/response-memory.js';
import type { Called } from './actions.js';

/**
 * The body of the answer. If a step fails, all steps are rolled back and the error names the step. The results of all steps count
 * together against the limits of a response, and too large ones are refused before the commit.
 */
export async function runMutation(
  { steps }: ParsedMutationDocument,
  { writes, reads }: { readonly writes: Writes; readonly reads: Reads },
  writer: Writer,
  client: RequestClient,
): Promise<Buffer> {
  const memory = new BatchMemory(reads.responseMemory);
  let current: MutationStep | undefined;
  try {
    const prepared: MutationStep[] = [];
    for (const step of steps) {
      current = step;
      prepared.push(await prepare(step, writes, writer));
    }
    const results = await writes.inOneTransaction({ writer, client }, async (joined) => {
      // It may be tried again.
      memory.clear();
      const bodies: Buffer[] = [];
      for (const step of prepared) {
        current = step;
        const result = await runStep(step, joined, writer, client);
        const refused = memory.receive(result.length);
        if (refused) throw refused;
        bodies.push(result);
      }
      current = undefined;
      return bodies;
    });
    return bodyOf(steps, results);
  } catch (error) {
    throw current ? new FieldFailure(error, current.position) : error;
  } finally {
    memory.clear();
  }
}

/** Steps that routes carry out, one after the other: one that fails is null and adds an error. */
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
      errors.push(responseError(error, step.position));
    }
    entries.push(`${JSON.stringify(step.name)}:${text}`);
  }
  const failures = errors.length > 0 ? `,"errors":${JSON.stringify(errors)}` : '';
  return { body: `{"data":{${entries.join(',')}}${failures}}`, called };
}

/** Passwords are hashed before the transaction begins. */
async function prepare(step: MutationStep, writes: Writes, writer: Writer): Promise<MutationStep> {
  if (step.kind === 'write') return { ...step, request: await writes.prepare(step.request, writer) };
  if (step.kind !== 'update-me') return step;
  const { data, readBack, ...root } = step;
  const { user: key } = onlyUser(writer.caller);
  const request = { kind: 'update-item', collection: 'service_users', key, data, readBack } as const;
  return { ...root, kind: 'write', request: await writes.prepare(request, writer), text: null };
}

const NULL = Buffer.from('null');
const TRUE = Buffer.from('true');
const OPENING = '{"data":'.length;

/** The answer of REST, without its envelope. Callers who may write but not read get `true`. */
async function runStep(step: MutationStep, writes: Writes, writer: Writer, client: RequestClient): Promise<Buffer> {
  if (step.kind === 'json') return Buffer.from(step.text);
  if (step.kind === 'function') {
    const body = await writes.call({ query: step.query, writer, client, idempotencyKey: null });
    return body ? body.subarray(OPENING, body.length - 1) : NULL;
  }
  if (step.kind !== 'write') throw new Error(`a transaction cannot ${step.kind}`);
  const { request, text } = step;
  const body = await writes.run(request, writer, client);
  if (text !== null) return Buffer.from(text);
  if (request.kind === 'delete' || !request.readBack) return TRUE;
  return body ? body.subarray(OPENING, body.length - 1) : NULL;
}

function bodyOf(steps: readonly MutationStep[], results: readonly Buffer[]): Buffer {
  const pieces: Buffer[] = [Buffer.from('{"data":{')];
  steps.forEach(({ name }, position) => {
    pieces.push(Buffer.from(`${position === 0 ? '' : ','}${JSON.stringify(name)}:`), elementAt(results, position));
  });
  pieces.push(Buffer.from('}}'));
  return Buffer.concat(pieces);
}
