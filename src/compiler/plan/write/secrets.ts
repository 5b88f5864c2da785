/** Secrets of a planned write, such as passwords: they are hashed before the statement is sent. */
import { elementAt } from '../../../base/narrow.js';
import { Secret } from './column-value.js';
import type { Payload } from './payload-row.js';
import type { PlannedWrite, WriteNode } from './write.js';

export interface NewSecret {
  readonly secret: Secret;
  readonly collection: string;
}

/** The secrets that are not hashed yet. */
export function newSecrets({ plan, input }: PlannedWrite): readonly NewSecret[] {
  const added: NewSecret[] = [];
  plan.nodes.forEach((node, position) => {
    for (const name of secretNames(node))
      for (const row of input.nodes[position] ?? []) {
        const secret = row[name];
        if (secret instanceof Secret && secret.hash === null) added.push({ secret, collection: node.collection.name });
      }
  });
  return added;
}

/** The rows of a plan with hashes in place of secrets. */
export function hashedNodes({ plan, input }: PlannedWrite): PlannedWrite['input']['nodes'] {
  return input.nodes.map((rows, position) => {
    const names = secretNames(elementAt(plan.nodes, position));
    return names.length === 0 ? rows : rows.map((row) => hashedRow(row, names));
  });
}

function hashedRow(row: Payload, names: readonly string[]): Payload {
  const hashed: Record<string, unknown> = { ...row };
  for (const name of names) {
    const value = row[name];
    if (!(value instanceof Secret)) continue;
    if (value.hash === null) throw new Error('a secret is hashed before it is written');
    hashed[name] = value.hash;
  }
  return hashed;
}

function secretNames({ columns }: WriteNode): string[] {
  return columns.flatMap(({ field }, index) => (field.special.includes('hash') ? [`c${index}`] : []));
}
