/**
 * Hooks of writes, and those of the collections of the core. These collections need more than their columns can express: a hook checks the rows that a write changes in them, and adds what follows from these, in the write's
 * transaction. REST, GraphQL and nested payloads all pass here. A write that concerns no hook pays nothing.
 */

import { forbidden, invalidPayload } from '../../../base/errors.js';
import type { Collection, Model } from '../../../compiler/model/model.js';
import { servedCollection } from '../../../compiler/plan/read.js';
import { checkKey } from '../../../compiler/plan/write/key.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import type { Parsed } from '../../../compiler/request/ast.js';
import { parseCountOfKeys } from '../../../compiler/request/rest.js';
import type { Key } from '../../../compiler/request/write.js';
import { arrayLiteral } from '../../../compiler/sql/literal.js';
import { checkAccess, checkRegistration, concernsAccess, watchAdministrators } from '../../accounts/administrators.js';
import { compileInSession, countInSession, querySystem } from '../reads/session-reads.js';
import { bringsRows, type Change, type HookedWrite, valuesOf, type WriteHook } from './write-hook.js';

/** The hooks that a write concerns, each with its changes. */
export class WriteHooks {
  readonly #concerned: readonly { readonly hook: WriteHook; readonly changes: readonly Change[] }[];

  private constructor(
    changes: readonly Change[],
    private readonly model: Model,
    private readonly planned: PlannedWrite | null,
    hooks: readonly WriteHook[],
  ) {
    this.#concerned = hooks.flatMap((hook) => {
      const own = changes.filter((change) => hook.concerns(change, model));
      return own.length === 0 ? [] : [{ hook, changes: own }];
    });
  }

  static ofPlan(planned: PlannedWrite, hooks: readonly WriteHook[]): WriteHooks {
    return new WriteHooks(changesOf(planned), planned.model, planned, hooks);
  }

  static ofDelete(collection: Collection, model: Model, hooks: readonly WriteHook[]): WriteHooks {
    return new WriteHooks([{ collection, action: 'delete', columns: [], rows: [] }], model, null, hooks);
  }

  /** Whether a hook is called inside of the transaction. */
  get needTransaction(): boolean {
    return this.#concerned.some(({ hook }) => hook.open);
  }

  validate(): void {
    for (const { hook, changes } of this.#concerned) hook.validate?.(changes);
  }

  /** `write` sends the statement. */
  async around<Result>(
    context: Omit<HookedWrite, 'model' | 'changes' | 'planned'>,
    write: () => Promise<Result>,
  ): Promise<Result> {
    const [model, planned] = [this.model, this.planned];
    const opened = this.#concerned.flatMap(
      ({ hook, changes }) => hook.open?.({ ...context, model, planned, changes }) ?? [],
    );
    for (const { beforeWrite } of opened) await beforeWrite?.();
    const result = await write();
    for (const { afterWrite, afterCommit } of opened.reverse()) {
      await afterWrite?.();
      if (afterCommit) context.session.afterwards(afterCommit);
    }
    return result;
  }
}

const ACTIONS = { insert: 'create', update: 'update', upsert: 'upsert' } as const;

function changesOf({ plan, input }: PlannedWrite): Change[] {
  return [
    ...plan.nodes.map(({ collection, verb, columns }, position) => {
      return { collection, action: ACTIONS[verb], columns, rows: input.nodes[position] ?? [] };
    }),
    ...plan.unlinks.map(({ collection, action }): Change => {
      return { collection, action: action === 'delete' ? 'delete' : 'unlink', columns: [], rows: [] };
    }),
  ];
}

/** Each collection that is named takes a statement of its own. */
const MAX_COLLECTIONS = 20;

/**
 * Comments name an item by its collection and key, which no foreign key can express. The writer must be able to read that item:
 * otherwise the answer would reveal whether it exists, and readers of the item would find the comment.
 */
const comments: WriteHook = {
  concerns: (change) => change.collection.name === 'service_comments' && bringsRows(change),
  open: (write) => ({ beforeWrite: () => checkNamedItems(write) }),
};

/** Administrators read everything, and may comment on items that do not exist yet. */
async function checkNamedItems(write: HookedWrite): Promise<void> {
  const { caller } = write.writer;
  if (caller.administrator) return;
  if (caller.user === null) throw forbidden();
  const named = namedItems(write.changes);
  if (named.size > MAX_COLLECTIONS)
    throw invalidPayload(`One request can name items of at most ${MAX_COLLECTIONS} collections`);
  for (const [name, items] of named) {
    const queryOf = (keys: readonly Key[]): Parsed => parseCountOfKeys(name, keys, write.parseLimits);
    // Permission to read the collection comes first: an error about a key would reveal that the collection exists.
    compileInSession(write, queryOf([...items]));
    const collection = servedCollection(write.model, name);
    // Two texts of one key are one item.
    const keys = [...new Set([...items].map((key) => checkKey(collection, key)))];
    if ((await countInSession(write, queryOf(keys))) !== keys.length) throw forbidden();
  }
}

/** Keys by collection. An update names an item with both fields or with none. */
function namedItems(changes: readonly Change[]): ReadonlyMap<string, ReadonlySet<string>> {
  const named = new Map<string, Set<string>>();
  for (const { action, columns, rows } of changes) {
    const indexes = (name: string): number[] =>
      columns.flatMap(({ field }, index) => (field.name === name ? index : []));
    const [collections, items] = [indexes('collection'), indexes('item')];
    for (const row of rows) {
      const isSet = [...collections, ...items].some((index) => `c${index}` in row || `v${index}` in row);
      if (action === 'update' && !isSet) continue;
      const valueIn = (of: readonly number[]): unknown =>
        of.map((index) => row[`c${index}`]).find((value) => value != null);
      const [name, key] = [valueIn(collections), valueIn(items)];
      if (typeof name !== 'string' || typeof key !== 'string') throw forbidden();
      named.set(name, (named.get(name) ?? new Set()).add(key));
    }
  }
  return named;
}

/** Users, roles, policies, permissions and settings: at least one administrator must remain, and cached permissions are invalidated. */
const access: WriteHook = {
  concerns: ({ collection, action }, model) => concernsAccess(collection.name, action === 'delete', model),
  open: ({ planned, database, session, writer, accessChanged }) => {
    let compare = async (): Promise<void> => {};
    return {
      beforeWrite: async () => {
        if (planned) checkAccess(planned);
        compare = await watchAdministrators(database, session, writer.caller);
      },
      afterWrite: async () => {
        await compare();
        if (planned) await checkRegistration(planned, database, session);
      },
      afterCommit: accessChanged,
    };
  },
};

/** Callers of a role whose database role does not exist would get an error with each request. */
const databaseRoles: WriteHook = {
  concerns: (change) =>
    change.collection.name === 'service_roles' && change.columns.some(({ field }) => field.name === DATABASE_ROLE),
  open: (write) => ({ beforeWrite: () => checkDatabaseRoles(write) }),
};

const DATABASE_ROLE = 'database_role';

async function checkDatabaseRoles(write: HookedWrite): Promise<void> {
  const named = write.changes.flatMap((change) =>
    change.rows.map((row) => valuesOf(change, row).get(DATABASE_ROLE)).filter((value) => typeof value === 'string'),
  );
  if (named.length === 0) return;
  const refused = await querySystem(
    write,
    `select wanted.name, role.oid is not null as exists, current_user::text as login
     from pg_catalog.unnest($1::text[]) as wanted (name)
     left join pg_catalog.pg_roles role on role.rolname = wanted.name
     where role.oid is null or not pg_catalog.pg_has_role(role.oid, 'member') limit 1`,
    [arrayLiteral(named)],
  );
  for (const { name, exists, login } of refused)
    throw invalidPayload(
      exists
        ? `"${DATABASE_ROLE}": the service cannot become "${name}": grant "${name}" to "${login}"`
        : `"${DATABASE_ROLE}": the database has no role "${name}"`,
    );
}

/** They come before those of the features, in the order in which `beforeWrite` is called; `afterWrite` is called in the opposite order. */
export const CORE_HOOKS: readonly WriteHook[] = [access, databaseRoles, comments];
