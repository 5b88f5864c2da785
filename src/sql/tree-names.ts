/**
 * What a statement names, found in the JSON of its tree without reading the rest of it: most of the time that a check takes is
 * spent on nodes that nobody asks about. In a string of JSON a quote stands behind a backslash, so `"relname":` is always a key. A tree
 * with anything that is not understood here is read as a whole.
 */

export interface Names {
  readonly tables: { readonly schema: string | undefined; readonly name: string }[];
  /** Names of common table expressions: a bare name may only mean one of these. */
  readonly local: Set<string>;
  /** Statements at any depth, and `intoClause`, which makes a read create a table. */
  readonly kinds: Set<string>;
  /** Queries in constants, which the planner is asked about. */
  readonly queries: string[];
}

export function noNames(): Names {
  return { tables: [], local: new Set(), kinds: new Set(), queries: [] };
}

const ONE_SELECT = /^\{"version":\d+,"stmts":\[\{"stmt":\{"SelectStmt":\{/;
const KEY = /"(stmt|catalogname|lockedRels|intoClause|relname|schemaname|CommonTableExpr|[A-Z]\w*Stmt)":/g;

/** Null where the tree has to be read: it is not one select, it names a database, locks rows or asks for an estimate. */
export function scanTree(tree: string): Names | null {
  if (!ONE_SELECT.test(tree) || tree.includes('service_estimate')) return null;
  const names = noNames();
  let statements = 0;
  let schema: string | undefined;
  for (const { 1: key = '', index } of tree.matchAll(KEY)) {
    const value = index + key.length + '"":'.length;
    switch (key) {
      case 'stmt':
        if (++statements > 1) return null;
        break;
      case 'catalogname':
      case 'lockedRels':
        return null;
      case 'schemaname': {
        const name = stringAt(tree, value);
        // Else it would have to be found out whose schema it is.
        if (name === null || !tree.startsWith(',"relname":', value + name.length + '""'.length)) return null;
        schema = name;
        break;
      }
      case 'relname': {
        const name = stringAt(tree, value);
        if (name === null) return null;
        names.tables.push({ schema, name });
        schema = undefined;
        break;
      }
      case 'CommonTableExpr': {
        const name = tree.startsWith(NAME, value) ? stringAt(tree, value + NAME.length) : null;
        if (name === null) return null;
        names.local.add(name);
        break;
      }
      default:
        names.kinds.add(key);
    }
  }
  return names;
}

const NAME = '{"ctename":';

/** Null for anything but a string without escapes. */
function stringAt(tree: string, start: number): string | null {
  if (tree[start] !== '"') return null;
  const text = tree.slice(start + 1, tree.indexOf('"', start + 1));
  return text.includes('\\') ? null : text;
}
