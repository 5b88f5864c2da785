/** Which reads have results that may be kept in memory. */
import type { Value } from '../../compiler/sql/parameter.js';
import { plansOf } from '../../compiler/statements/read.js';
import { usedCollections } from '../../compiler/statements/used-tables.js';
import { readScope } from '../../server/execute/caller-scope.js';
import type { CompiledRead } from '../../server/execute/reads/compiled-read.js';

/** Whether a value depends on the time of the request. */
export function isTime(value: Value): boolean {
  if (Array.isArray(value)) return value.some(isTime);
  return typeof value === 'object' && value !== null && 'variable' in value && value.variable.startsWith('$NOW');
}

/** Whether no value of the statement itself, such as one of a rule, depends on the time of the request. */
export function isTimeless({ statement }: CompiledRead): boolean {
  return statement.parameters.every((parameter) => {
    if (parameter.kind === 'caller') return !isTime(parameter);
    const slot = 'slot' in parameter ? parameter.slot : 0;
    return typeof slot === 'number' || !isTime(slot.constant);
  });
}

/** Why the results must not be kept, apart from changes that are not reported; null if they may. */
export function uncacheable(compiled: CompiledRead): string | null {
  const { statement, plan, model } = compiled;
  if (plansOf(plan).some(({ stream }) => stream)) return 'it is streamed';
  if (statement.text.includes('service_estimate')) return 'it has an estimate of the planner';
  if (readScope(compiled) !== 'plain')
    return 'a view, a function, a computed field or row-level security may depend on more than its tables';
  const used = usedCollections(statement.text, model);
  const excluded = used.find(({ system, meta }) => !system && meta?.['cache'] === 'off');
  if (excluded) return `the collection "${excluded.name}" has "cache": "off"`;
  const divided = used.find(({ kind, distributed }) => kind === 'partitioned' || distributed);
  if (divided) return `the rows of "${divided.name}" are in several tables, and some of their changes are not reported`;
  // An insert into a hypertable may create a table whose changes are not reported yet.
  return model.extensions.has('timescaledb') ? 'TimescaleDB moves rows to tables that are not served' : null;
}
