/** Mutations: each root field is one write, all of them one transaction in the order of the document. */

import { assertNever } from '../../../base/assert-never.js';
import { ServiceError } from '../../../base/errors.js';
import type { Call } from '../../../compiler/graphql/calls.js';
import { FieldFailure, type ResponseError, responseError } from '../../../compiler/graphql/failure.js';
import type { MutationStep, ParsedMutationDocument } from '../../../compiler/graphql/parsed-document.js';
import { onlyUser } from '../../access/identity.js';
import type { RequestClient } from '../../execute/stages.js';
import { turnOf, type Writer } from '../../execute/writer.js';
import type { TransactionStep } from '../../execute/writes/transaction.js';
import type { Writes } from '../../execute/writes/writes.js';
import { CallerSlice } from '../../node/turns.js';
import type { Called } from './actions.js';

/**
 * The body of the answer. If a step fails, all steps are rolled back and the error names the step. The results of all steps count
 * together against the limits of a response, and too large ones are refused before the commit.
 */
export async function runMutation(
  { steps }: ParsedMutationDocument,
  writes: Writes,
  writer: Writer,
  client: RequestClient,
): Promise<Buffer> {
  let current: MutationStep | undefined;
  try {
    const run: { readonly step: MutationStep; readonly transacted: TransactionStep }[] = [];
    const slice = new CallerSlice(turnOf({ writer, client }).caller);
    for (const step of steps) {
      if (current) await slice.pause();
      current = step;
      const transacted = await transactionStep(step, writes, writer);
      if (transacted) run.push({ step, transacted });
    }
    const at = (index: number | null): void => {
      current = index === null ? undefined : run[index]?.step;
    };
    const bodyOf = (bodies: readonly (Buffer | null)[]): Buffer =>
      answerOf(steps, new Map(run.map(({ step }, index) => [step, bodies[index] ?? null])));
    const transaction = run.map(({ transacted }) => transacted);
    return await writes.transact(transaction, { writer, client }, { at, idempotencyKey: null, bodyOf });
  } catch (error) {
    throw current ? new FieldFailure(error, current.position) : error;
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

/** The step as a part of the transaction, or null if its answer is known. Passwords are hashed before the transaction begins. */
async function transactionStep(step: MutationStep, writes: Writes, writer: Writer): Promise<TransactionStep | null> {
  switch (step.kind) {
    case 'json':
      return null;
    case 'function':
      return { kind: 'call', query: step.query };
    case 'write': {
      const request = await writes.prepare(step.request, writer);
      return { kind: 'write', needs: [], request: () => request };
    }
    case 'update-me': {
      const { data, readBack } = step;
      const { user: key } = onlyUser(writer.caller);
      const update = { kind: 'update-item', collection: 'service_users', key, data, readBack } as const;
      const request = await writes.prepare(update, writer);
      return { kind: 'write', needs: [], request: () => request };
    }
    case 'call':
      throw new Error('a transaction cannot call a route');
    default:
      return assertNever(step);
  }
}

const NULL = Buffer.from('null');
const TRUE = Buffer.from('true');
const OPENING = '{"data":'.length;

/** The answer of REST, without its envelope. Callers who may write but not read get `true`. */
function resultOf(step: MutationStep, body: Buffer | null): Buffer {
  if (step.kind === 'json') return Buffer.from(step.text);
  if (step.kind === 'write' && step.text !== null) return Buffer.from(step.text);
  if (step.kind === 'write' && (step.request.kind === 'delete' || !step.request.readBack)) return TRUE;
  if (step.kind === 'update-me' && !step.readBack) return TRUE;
  return body ? body.subarray(OPENING, body.length - 1) : NULL;
}

function answerOf(steps: readonly MutationStep[], bodies: ReadonlyMap<MutationStep, Buffer | null>): Buffer {
  const pieces: Buffer[] = [Buffer.from('{"data":{')];
  steps.forEach((step, position) => {
    const name = `${position === 0 ? '' : ','}${JSON.stringify(step.name)}:`;
    pieces.push(Buffer.from(name), resultOf(step, bodies.get(step) ?? null));
  });
  pieces.push(Buffer.from('}}'));
  return Buffer.concat(pieces);
}
