/** The definitions in a migration, read with PostgreSQL's grammar: columns of tables, and rows of the metadata of fields. */
import { parseStatements } from './grammar.js';

/** Pairs of table and field. */
export function definedFields(text: string): (readonly [table: string, field: string])[] {
  const statements = parseStatements<{ stmt?: Statements }>(text);
  return statements.flatMap(({ stmt = {} }) => [...created(stmt), ...added(stmt), ...described(stmt)]);
}

/** The columns of a table that the statements define, by name with their types. */
export function definedColumns(text: string, table: string): ReadonlyMap<string, string> {
  const statements = parseStatements(text) as { stmt?: Statements }[];
  const nodes = statements.flatMap(({ stmt = {} }) => {
    const { CreateStmt: made, AlterTableStmt: changed } = stmt;
    if (made?.relation.relname === table) return (made.tableElts ?? []).map(({ ColumnDef }) => ColumnDef);
    if (changed?.relation.relname === table) return changed.cmds.map(({ AlterTableCmd: { def } }) => def?.ColumnDef);
    return [];
  });
  return new Map(
    nodes.flatMap((node) => (node?.typeName ? [[node.colname, typeOfColumn(node.typeName)] as const] : [])),
  );
}

/** `serial` is no type but a way to make a column. */
function typeOfColumn({ names, arrayBounds }: TypeNode): string {
  const name = names.at(-1)?.String.sval ?? 'text';
  return `${/^(big)?serial$/.test(name) ? 'bigint' : name}${arrayBounds ? '[]' : ''}`;
}

interface TypeNode {
  readonly names: readonly { readonly String: { readonly sval: string } }[];
  readonly arrayBounds?: unknown;
}

interface Statements {
  readonly CreateStmt?: { readonly relation: Table; readonly tableElts?: readonly { ColumnDef?: ColumnNode }[] };
  readonly AlterTableStmt?: {
    readonly relation: Table;
    readonly cmds: readonly { AlterTableCmd: { subtype: string; def?: { ColumnDef?: ColumnNode } } }[];
  };
  readonly InsertStmt?: {
    readonly relation: Table;
    readonly cols?: readonly { ResTarget: { name: string } }[];
    readonly selectStmt?: { SelectStmt?: { valuesLists?: readonly { List: { items: readonly Constant[] } }[] } };
  };
}

interface Table {
  readonly relname: string;
}

interface ColumnNode {
  readonly colname: string;
  readonly typeName?: TypeNode;
}

interface Constant {
  readonly A_Const?: { readonly sval?: { readonly sval: string } };
}

function created({ CreateStmt: node }: Statements): [string, string][] {
  return (node?.tableElts ?? []).flatMap(({ ColumnDef: column }): [string, string][] =>
    column && node ? [[node.relation.relname, column.colname]] : [],
  );
}

function added({ AlterTableStmt: node }: Statements): [string, string][] {
  return (node?.cmds ?? []).flatMap(({ AlterTableCmd: { subtype, def } }): [string, string][] =>
    node && subtype === 'AT_AddColumn' && def?.ColumnDef ? [[node.relation.relname, def.ColumnDef.colname]] : [],
  );
}

function described({ InsertStmt: node }: Statements): [string, string][] {
  if (node?.relation.relname !== 'service_fields') return [];
  const names = (node.cols ?? []).map(({ ResTarget: { name } }) => name);
  const rows = node.selectStmt?.SelectStmt?.valuesLists ?? [];
  return rows.map(({ List: { items } }) => {
    const text = (name: string): string => items[names.indexOf(name)]?.A_Const?.sval?.sval ?? '';
    return [text('collection'), text('field')];
  });
}
