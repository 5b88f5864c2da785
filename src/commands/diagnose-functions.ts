/** Functions that are declared to be callable, and fields that are computed by one: what keeps them from it, and what limits them. */
import type { MetadataRow } from '../mirror/catalog-document.js';
import { namesArgument } from '../mirror/functions.js';
import type { Model, Overload, ServedFunction } from '../mirror/model.js';
import { quoteIdentifier } from '../sql/fragment.js';
import { count, type Detail, type Finding, finding, literalText } from './findings.js';

interface Callable {
  readonly model: Model;
  readonly declared: readonly MetadataRow[];
  readonly facts: { readonly role: string; readonly functions: readonly FunctionRights[] };
}

/** Of a function that may be called. */
export interface FunctionRights {
  readonly schema: string;
  readonly name: string;
  /** As `alter function` takes them. */
  readonly arguments: string;
  readonly execute: boolean;
  /** Whether it is volatile although its body contains no write. */
  readonly idle: boolean;
}

const SECTION = 'Functions';

/** Nothing is said where nothing is declared. */
export function diagnoseFunctions({ model, declared, facts }: Callable): Finding[] {
  const { functions, refusedFunctions } = model;
  const served = [...functions.values()];
  const findings: Finding[] = [];
  if (served.length > 0)
    findings.push(finding(SECTION, 'ok', `${served.length} callable: ${served.map(shown).join(', ')}`));
  const missing = [...refusedFunctions].map(([name, reason]) => ({ name, message: `it ${reason}` }));
  if (missing.length > 0)
    findings.push(
      finding(
        SECTION,
        'problem',
        `${count(missing.length, 'row', 'rows')} of service_functions cannot be called`,
        missing,
      ),
    );
  const denied = facts.functions.filter(({ execute }) => !execute).map((each) => grantLine(each, facts.role));
  if (denied.length > 0)
    findings.push(
      finding(
        SECTION,
        'problem',
        `${facts.role} may not execute ${count(denied.length, 'function', 'functions')}`,
        denied,
      ),
    );
  const several = served.flatMap((each) => ambiguous(each, model));
  if (several.length > 0)
    findings.push(
      finding(
        SECTION,
        'problem',
        `${count(several.length, 'function has', 'functions have')} overloads that differ only in the types of their arguments, so calls are ambiguous; choose one, for example`,
        several,
      ),
    );
  const strays = declared.flatMap((row) => stray(row, functions.get(String(row['name']))));
  if (strays.length > 0)
    findings.push(finding(SECTION, 'note', 'arguments in service_functions that the function does not have', strays));
  const idle = facts.functions.filter((each) => each.idle).map(stableLine);
  if (idle.length > 0)
    findings.push(
      finding(
        SECTION,
        'note',
        'volatile (the default), so GET and GraphQL queries cannot call them; if they only read, declare them stable',
        idle,
      ),
    );
  return [...findings, ...computedFields(model)];
}

function shown({ name, overloads }: ServedFunction): string {
  return overloads.every(({ volatile }) => volatile) ? `${name} (POST)` : name;
}

function signature({ schema, name, arguments: list }: FunctionRights): string {
  return `${quoteIdentifier(schema)}.${quoteIdentifier(name)}(${list})`;
}

function grantLine(each: FunctionRights, role: string): Detail {
  return {
    name: `${each.schema}.${each.name}`,
    message: 'execute is not granted',
    fix: `grant execute on function ${signature(each)} to ${quoteIdentifier(role)};`,
  };
}

function stableLine(each: FunctionRights): Detail {
  return {
    name: `${each.schema}.${each.name}`,
    message: 'its body contains no write',
    fix: `alter function ${signature(each)} stable;`,
  };
}

/** Of forms with the same names of arguments the first is the example. */
function ambiguous({ name, overloads }: ServedFunction, { system }: Model): Detail[] {
  const named = (overload: Overload): string => JSON.stringify(overload.arguments.map((each) => each.name).sort());
  const twin = overloads.find(
    (one, position) => overloads.findIndex((other) => named(other) === named(one)) < position,
  );
  const first = twin && overloads.find((other) => named(other) === named(twin));
  if (!first) return [];
  const types = JSON.stringify(first.arguments.map((each) => `${each.name} ${each.field.column?.data_type ?? ''}`));
  const fix = `update ${quoteIdentifier(system)}.service_functions set arguments = ${literalText(types)} where name = ${literalText(name)};`;
  return [{ name, message: `takes ${first.arguments.map((each) => each.name).join(', ')} in several types`, fix }];
}

function stray(row: MetadataRow, served: ServedFunction | undefined): Detail[] {
  const known = served?.overloads.flatMap((overload) => overload.arguments) ?? [];
  const declaredArguments = Array.isArray(row['arguments']) ? row['arguments'].map(String) : [];
  if (!served) return [];
  return declaredArguments
    .filter((entry) => !known.some(({ name }) => namesArgument(entry, name)))
    .map((entry) => ({ name: served.name, message: `has no argument "${entry}"` }));
}

function computedFields({ collections }: Model): Finding[] {
  const fields = [...collections.values()].flatMap((collection) => [...collection.fields.values()]);
  const broken = fields
    .filter((field) => field.special.includes('computed') && field.column === null)
    .map(({ collection, name }) => ({
      name: `${collection}.${name}`,
      message:
        'there is no stable or immutable function that takes a row of its table, or the function returns table rows',
    }));
  if (broken.length === 0) return [];
  return [
    finding(
      'Fields',
      'problem',
      `${count(broken.length, 'computed field has', 'computed fields have')} no value`,
      broken,
    ),
  ];
}
