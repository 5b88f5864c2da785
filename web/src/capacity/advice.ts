/**
 * Advice about indexes for recorded reads. `Prefer: explain` answers the plan of a read and the candidates of the service's adviser, which
 * `lateral advise` tries. A candidate is shown if the plan reads a whole table with many rows.
 */
import { call } from '../api';
import type { Model } from '../model';
import { type Explanation, hintsFor, readPlan } from '../plan/plan';
import type { RecordedShape } from './recording';

export interface Advice {
  readonly statement: string;
  readonly text: string;
  /** The requests that gain, and their part of the recorded time. */
  readonly titles: readonly string[];
  readonly share: number;
}

export interface Advised {
  readonly advice: readonly Advice[];
  readonly planned: number;
  /** Why requests were not planned. */
  readonly failures: readonly string[];
}

/** The shapes with the largest total time are planned. */
export const MOST_PLANNED = 50;

export async function adviseOn(
  shapes: readonly RecordedShape[],
  model: Model,
  onProgress: (done: number) => void,
): Promise<Advised> {
  const total = shapes.reduce((sum, shape) => sum + shape.total, 0) || 1;
  const found = new Map<string, Advice>();
  const failures: string[] = [];
  let planned = 0;
  for (const shape of shapes.filter(({ example }) => example !== null).slice(0, MOST_PLANNED)) {
    try {
      const explanation = await explainShape(shape);
      planned++;
      for (const { sql, text } of hintsFor(readPlan(explanation.plan[0].Plan), model, explanation.indexes)) {
        if (sql === null || !sql.includes('create index')) continue;
        const known = found.get(sql);
        found.set(sql, {
          statement: sql,
          text,
          titles: [...(known?.titles ?? []), shape.title],
          share: (known?.share ?? 0) + shape.total / total,
        });
      }
    } catch (failure) {
      failures.push(`${shape.title}: ${failure instanceof Error ? failure.message : String(failure)}`);
    }
    onProgress(planned + failures.length);
  }
  return { advice: [...found.values()].sort((one, other) => other.share - one.share), planned, failures };
}

/** With the permissions of the recorded caller. */
async function explainShape({ example }: RecordedShape): Promise<Explanation> {
  if (!example?.path) throw new Error('The recording has no request with values for this shape.');
  const as = example.user !== null ? `user:${example.user}` : example.role !== null ? `role:${example.role}` : 'public';
  const { data } = await call<Explanation>(example.method, example.path, {
    own: true,
    headers: { Prefer: 'explain', 'Lateral-View-As': as },
    ...(example.body === undefined ? {} : { body: JSON.parse(example.body) as unknown }),
  });
  return data;
}
