/** A fragment becomes a statement: its text with numbered parameters, and what each of them is bound to. */
import type { Fragment } from './fragment.js';
import type { Parameter } from './parameter.js';

export interface Statement {
  readonly text: string;
  readonly parameters: readonly Parameter[];
}

export function statement(fragment: Fragment): Statement {
  const parameters: Parameter[] = [];
  const numbers = new Map<string, number>();
  let text = '';
  for (const part of fragment.parts) {
    if (part.kind === 'text') {
      text += part.text;
      continue;
    }
    // The same parameter in two places is one parameter: fewer values travel, and the planner sees that they are equal.
    const key = JSON.stringify(part.parameter);
    let number = numbers.get(key);
    if (number === undefined) {
      parameters.push(part.parameter);
      number = parameters.length;
      numbers.set(key, number);
    }
    text += `$${number}`;
  }
  return Object.freeze({ text: text.trim(), parameters: Object.freeze(parameters) });
}
