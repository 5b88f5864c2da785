/**
 * Objects that fields and relations cannot describe, in PostgreSQL's own words: checks, indexes of all kinds, views, sequences, types, and
 * what is unusual about a column. An entry is the kind and name of an object and the part of its statement behind them. The grammar vets
 * each statement as one of its kind, so that an entry defines nothing else.
 */
import { invalidPayload } from '../../base/errors.js';
import { isRecord, messageOf, propertiesOf } from '../../base/narrow.js';
import { requireObject } from '../../compiler/request/write.js';
import { quoteIdentifier, quoteLiteral } from '../../compiler/sql/fragment.js';
import { parseStatements } from '../../compiler/sql/grammar.js';
import { tablesIn, verifyDefinition } from '../../compiler/sql/verify.js';
import type { ObjectStep } from '../../server/schema/change/ddl-statement.js';

export interface ObjectEntry {
  /** The kind, then the name with its table, and its schema unless that is the first: `index orders.orders_total`. */
  readonly name: string;
  readonly definition: string;
  readonly comment: string | null;
}

/** How the statements of a kind begin, and what the grammar calls them. Objects of a table have its name in theirs. */
interface Kind {
  readonly node: string;
  readonly ofTable: boolean;
  readonly create: (object: Located, definition: string) => string;
  readonly drop: (object: Located, definition: string) => string;
}

/** An object's own name, quoted, and its qualified name or that of its table. */
interface Located {
  readonly own: string;
  readonly qualified: string;
}

function dropping(what: string): Kind['drop'] {
  return ({ qualified }) => `drop ${what} ${qualified}`;
}

function typed(words: string, node: string, what = 'type'): Kind {
  return {
    node,
    ofTable: false,
    create: ({ qualified }, definition) => `create ${what} ${qualified} as ${words}${definition}`,
    drop: dropping(what),
  };
}

function altering(add: Kind['create'], drop: Kind['drop']): Kind {
  const alter =
    (part: Kind['create']): Kind['create'] =>
    (object, definition) =>
      `alter table ${object.qualified} ${part(object, definition)}`;
  return { node: 'AlterTableStmt', ofTable: true, create: alter(add), drop: alter(drop) };
}

const OWNER = / OWNED BY (.+)$/;

const KINDS: Readonly<Record<string, Kind>> = {
  extension: {
    node: 'CreateExtensionStmt',
    ofTable: false,
    create: ({ own }, definition) => `create extension if not exists ${own} ${definition}`,
    drop: ({ own }) => `drop extension ${own}`,
  },
  enum: typed('enum ', 'CreateEnumStmt'),
  domain: typed('', 'CreateDomainStmt', 'domain'),
  type: typed('', 'CompositeTypeStmt'),
  sequence: {
    node: 'CreateSeqStmt',
    ofTable: false,
    create: ({ qualified }, definition) => `create sequence ${qualified} ${definition.replace(OWNER, '')}`,
    drop: dropping('sequence if exists'),
  },
  default: altering(
    ({ own }, definition) => `alter column ${own} set default ${definition}`,
    ({ own }) => `alter column ${own} drop default`,
  ),
  generated: altering(
    ({ own }, definition) => `alter column ${own} set expression as (${definition})`,
    ({ own }) => `alter column ${own} drop expression`,
  ),
  identity: altering(
    ({ own }, definition) => `alter column ${own} add generated ${definition}`,
    ({ own }) => `alter column ${own} drop identity`,
  ),
  collation: altering(
    ({ own }, definition) => `alter column ${own} ${definition}`,
    ({ own }, definition) =>
      `alter column ${own} ${definition.replace(/ COLLATE .*$/, ' COLLATE pg_catalog."default"')}`,
  ),
  constraint: altering(
    ({ own }, definition) => `add constraint ${own} ${definition}`,
    ({ own }) => `drop constraint ${own}`,
  ),
  index: {
    node: 'IndexStmt',
    ofTable: true,
    create: ({ own, qualified }, definition) => {
      const [, unique = '', rest = ''] = /^(UNIQUE )?([\s\S]*)$/.exec(definition) ?? [];
      return `create ${unique}index ${own} on ${qualified} ${rest}`;
    },
    drop: ({ own, qualified }) => `drop index ${qualified.replace(/\."(?:[^"]|"")*"$/, '')}.${own}`,
  },
  view: {
    node: 'ViewStmt',
    ofTable: false,
    create: ({ qualified }, definition) => `create view ${qualified} ${definition}`,
    drop: dropping('view'),
  },
  'materialized view': {
    node: 'CreateTableAsStmt',
    ofTable: false,
    create: ({ qualified }, definition) => `create materialized view ${qualified} ${definition}`,
    drop: dropping('materialized view'),
  },
};

export type ObjectKind = keyof typeof KINDS;

export interface ObjectName {
  readonly kind: string;
  /** The schema, or null for the first one. */
  readonly schema: string | null;
  /** The table of the object; null for what is in no table. */
  readonly table: string | null;
  readonly own: string;
}

const PART = /"((?:[^"]|"")+)"|([^".\s]+)/gy;

/** The parts of a name, or null for a text that names no object. */
export function readObjectName(name: string): ObjectName | null {
  const [, kind = '', path = ''] = /^(materialized view|[a-z]+) (.+)$/.exec(name) ?? [];
  const form = KINDS[kind];
  if (!form || !Object.hasOwn(KINDS, kind)) return null;
  const parts = splitName(path);
  const schema = parts && parts.length > (form.ofTable ? 2 : 1) ? parts.shift() : null;
  const table = parts && form.ofTable ? parts.shift() : null;
  const [own, ...others] = parts ?? [];
  if (own === undefined || table === undefined || others.length > 0) return null;
  return { kind, schema: schema ?? null, table, own };
}

/** `app."Odd name".id` as its names. */
export function splitName(path: string): string[] | null {
  const names: string[] = [];
  PART.lastIndex = 0;
  for (let end = 0; ; ) {
    const [all, quoted, plain] = PART.exec(path) ?? [];
    if (all === undefined) return null;
    names.push(quoted?.replaceAll('""', '"') ?? plain ?? '');
    end += all.length;
    if (end === path.length) return names;
    if (path[end] !== '.') return null;
    PART.lastIndex = ++end;
  }
}

function located({ schema, table, own }: ObjectName, first: string): Located {
  const name = table ?? own;
  return { own: quoteIdentifier(own), qualified: `${quoteIdentifier(schema ?? first)}.${quoteIdentifier(name)}` };
}

/** The parts of an entry's name. Entries have been read, so they have a name. */
export function nameOfObject(entry: Pick<ObjectEntry, 'name'>): ObjectName {
  const name = readObjectName(entry.name);
  if (!name) throw new Error(`"${entry.name}" is no object`);
  return name;
}

export function kindOfObject({ name }: Pick<ObjectEntry, 'name'>): string {
  return name.startsWith('materialized view ') ? 'materialized view' : (name.split(' ', 1)[0] ?? '');
}

function formOf(name: ObjectName): Kind {
  const form = KINDS[name.kind];
  if (!form) throw new Error(`"${name.kind}" is no kind of object`);
  return form;
}

function step(name: string, node: string, text: string): ObjectStep {
  return { kind: 'define-object', name, node, text };
}

/** `first` is the first served schema. */
export function createObject(entry: ObjectEntry, first: string): ObjectStep {
  const name = nameOfObject(entry);
  const form = formOf(name);
  return step(entry.name, form.node, form.create(located(name, first), entry.definition));
}

export function dropObject({ name: text, definition }: ObjectEntry, first: string): ObjectStep {
  const name = nameOfObject({ name: text });
  const form = formOf(name);
  const node = form.node === 'AlterTableStmt' ? form.node : 'DropStmt';
  return step(text, node, form.drop(located(name, first), definition));
}

export function renameObject(from: ObjectEntry, own: string, first: string): ObjectStep {
  const name = nameOfObject(from);
  const { qualified } = located(name, first);
  const before = quoteIdentifier(name.own);
  const schema = quoteIdentifier(name.schema ?? first);
  const what = name.kind === 'index' ? `index ${schema}.${before}` : `table ${qualified} rename constraint ${before}`;
  return step(
    from.name,
    'RenameStmt',
    `alter ${what}${name.kind === 'index' ? ' rename' : ''} to ${quoteIdentifier(own)}`,
  );
}

export function commentObject({ name: text, comment }: ObjectEntry, first: string): ObjectStep {
  const name = nameOfObject({ name: text });
  const { own, qualified } = located(name, first);
  const what = name.kind === 'enum' ? 'type' : name.kind;
  const schema = quoteIdentifier(name.schema ?? first);
  const target =
    name.kind === 'constraint' ? `${own} on ${qualified}` : name.kind === 'index' ? `${schema}.${own}` : qualified;
  return step(
    text,
    'CommentStmt',
    `comment on ${what} ${target} is ${comment === null ? 'null' : quoteLiteral(comment)}`,
  );
}

/** The options of a sequence, without its start over. */
export function alterSequence({ name: text, definition }: ObjectEntry, first: string): ObjectStep {
  const { qualified } = located(nameOfObject({ name: text }), first);
  return step(text, 'AlterSeqStmt', `alter sequence ${qualified} ${definition.replace(OWNER, '')}`);
}

export function ownSequence({ name: text, definition }: ObjectEntry, first: string): ObjectStep {
  const [, owner = ''] = OWNER.exec(definition) ?? [];
  const names = splitName(owner) ?? [];
  const { qualified } = located(nameOfObject({ name: text }), first);
  const column = (names.length === 2 ? [first, ...names] : names).map(quoteIdentifier).join('.');
  return step(text, 'AlterSeqStmt', `alter sequence ${qualified} owned by ${column || 'none'}`);
}

export function readObject(value: unknown, position = 0): ObjectEntry {
  const path = `objects[${position}]`;
  const { name, definition, comment = null, ...rest } = requireObject(value, `"${path}"`);
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined)
    throw invalidPayload(`"${path}" has an unknown property "${unknown}": it takes name, definition, comment`);
  if (typeof name !== 'string' || !readObjectName(name))
    throw invalidPayload(`"${path}.name" must be a kind and a name, such as "index orders.orders_total"`);
  if (typeof definition !== 'string') throw invalidPayload(`"${path}.definition" must be a string`);
  if (comment !== null && typeof comment !== 'string') throw invalidPayload(`"${path}.comment" must be a string`);
  const entry = { name, definition, comment };
  const complaint = complaintAboutObject(entry);
  if (complaint !== null) throw invalidPayload(`"${name}" of "${path}" cannot be applied: ${complaint}`);
  return entry;
}

/** The reason why the entry is not one object of its kind, or null. */
export function complaintAboutObject(entry: ObjectEntry): string | null {
  try {
    const { node, text } = createObject(entry, 'public');
    verifyDefinition(text, node);
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

/** Whether both define the same. PostgreSQL writes some expressions differently once it has read its own text. */
export function isSameObject(left: ObjectEntry, right: ObjectEntry): boolean {
  if (left.definition === right.definition) return true;
  const kind = kindOfObject(left);
  if (kind === 'sequence' || kind === 'extension') return false;
  return kind === kindOfObject(right) && treeOf(left) === treeOf({ ...right, name: left.name });
}

function treeOf(entry: ObjectEntry): string {
  const [statement] = parseStatements(createObject(entry, 'public').text);
  return JSON.stringify(normalized(statement));
}

/** Without places, and with casts of array constructors at their elements: `array['a']::text[]` is `array['a'::text]`. */
function normalized(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(normalized);
  if (!isRecord(node)) return node;
  const cast = propertiesOf(node['TypeCast']);
  const elements = propertiesOf(propertiesOf(cast['arg'])['A_ArrayExpr'])['elements'];
  const { arrayBounds, ...type } = propertiesOf(cast['typeName']);
  if (Array.isArray(elements) && Array.isArray(arrayBounds))
    return { A_ArrayExpr: { elements: elements.map((arg) => normalized({ TypeCast: { arg, typeName: type } })) } };
  return Object.fromEntries(
    Object.entries(node).flatMap(([key, value]) =>
      /^(location|stmt_len|stmt_location|(rexpr_)?list_(start|end))$/.test(key) ? [] : [[key, normalized(value)]],
    ),
  );
}

/** In the order in which they can be created: a view after those that it reads. */
export function inOrder(entries: readonly ObjectEntry[], first: string): ObjectEntry[] {
  const views = new Map<string, ObjectEntry>();
  const kinds = Object.keys(KINDS);
  const rest: (readonly [number, ObjectEntry])[] = [];
  for (const entry of entries) {
    const { kind, schema, own } = nameOfObject(entry);
    if (/view$/.test(kind)) views.set(JSON.stringify([schema ?? first, own]), entry);
    else rest.push([entry.definition.startsWith('FOREIGN KEY') ? kinds.length : kinds.indexOf(kind), entry]);
  }
  const isOfView = (entry: ObjectEntry): boolean => {
    const { schema, table } = nameOfObject(entry);
    return views.has(JSON.stringify([schema ?? first, table]));
  };
  const sorted = rest.sort(([left], [right]) => left - right).map(([, entry]) => entry);
  const visited = new Set<string>();
  const ordered: ObjectEntry[] = [];
  const visit = (key: string): void => {
    const entry = views.get(key);
    if (!entry || visited.has(key)) return;
    visited.add(key);
    for (const { schema, name } of tablesIn(createObject(entry, first).text))
      visit(JSON.stringify([schema ?? first, name]));
    ordered.push(entry);
  };
  for (const key of views.keys()) visit(key);
  return [...sorted.filter((each) => !isOfView(each)), ...ordered, ...sorted.filter(isOfView)];
}

/** The columns of a constraint or an index that has no expressions, and its kind. */
export interface Coverage {
  readonly kind: 'primary' | 'unique' | 'index' | 'foreign';
  readonly columns: readonly string[];
}

const CONSTRAINTS: Readonly<Record<string, Coverage['kind']>> = {
  CONSTR_PRIMARY: 'primary',
  CONSTR_UNIQUE: 'unique',
  CONSTR_FOREIGN: 'foreign',
};

export function coverageOf(entry: ObjectEntry): Coverage | null {
  const kind = kindOfObject(entry);
  if (kind !== 'constraint' && kind !== 'index') return null;
  const [statement] = parseStatements<{ stmt?: unknown }>(createObject(entry, 'public').text);
  const tree = propertiesOf(statement?.stmt);
  if (kind === 'index') return indexCoverage(propertiesOf(tree['IndexStmt']));
  const { cmds } = propertiesOf(tree['AlterTableStmt']);
  const [command] = Array.isArray(cmds) ? cmds : [];
  const constraint = propertiesOf(
    propertiesOf(propertiesOf(propertiesOf(command)['AlterTableCmd'])['def'])['Constraint'],
  );
  const covered = CONSTRAINTS[String(constraint['contype'])];
  const nodes = constraint[covered === 'foreign' ? 'fk_attrs' : 'keys'];
  if (!covered || !Array.isArray(nodes)) return null;
  return { kind: covered, columns: nodes.map((each) => String(propertiesOf(propertiesOf(each)['String'])['sval'])) };
}

function indexCoverage({ indexParams, whereClause, unique }: Readonly<Record<string, unknown>>): Coverage | null {
  if (whereClause !== undefined || !Array.isArray(indexParams)) return null;
  const columns = indexParams.map((each) => propertiesOf(propertiesOf(each)['IndexElem'])['name']);
  if (!columns.every((name) => typeof name === 'string')) return null;
  return { kind: unique === true ? 'unique' : 'index', columns };
}
