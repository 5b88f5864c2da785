/**
 * Hooks of writes, and those of the service's own collections (versions.ts has the one of content versions). These collections need more
 * than their columns can express: a hook checks the rows that a write changes in them, and adds what follows from these, in the write's
 * transaction. REST, GraphQL and nested payloads all pass here. A write that concerns no hook pays nothing.
 */

import { forbidden, invalidPayload, unprocessable } from '../../../base/errors.js';
import type { Collection, Model } from '../../../compiler/model/model.js';
import { servedCollection } from '../../../compiler/plan/read.js';
import { checkKey } from '../../../compiler/plan/write/key.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import type { Parsed } from '../../../compiler/request/ast.js';
import { parseCountOfKeys, parseSearch } from '../../../compiler/request/rest.js';
import type { Key } from '../../../compiler/request/write.js';
import { arrayLiteral } from '../../../compiler/sql/literal.js';
import { versions } from '../../../features/versions/version-hook.js';
import {
  checkWebhook,
  parseWebhook,
  parseWebhooks,
  READ_WEBHOOKS,
  WEBHOOKS,
  type WebhookRow,
  wantedTables,
} from '../../../features/webhooks/webhook-hook.js';
import { planTriggers, TRIGGER_LOCK } from '../../../features/webhooks/webhook-triggers.js';
import { checkAccess, checkRegistration, concernsAccess, watchAdministrators } from '../../accounts/administrators.js';
import { compileInSession, countInSession, querySystem, readItem } from '../reads/session-reads.js';
import {
  bringsRows,
  type Change,
  type ChangedRow,
  CREATOR,
  type HookedWrite,
  type HookLimits,
  refuseUpserts,
  valuesOf,
  type WriteHook,
} from './write-hook.js';

/** The hooks that a write concerns, each with its changes. */
export class WriteHooks {
  readonly #concerned: readonly { readonly hook: WriteHook; readonly changes: readonly Change[] }[];

  private constructor(
    changes: readonly Change[],
    private readonly model: Model,
    private readonly planned: PlannedWrite | null,
    extension: WriteHook | null,
  ) {
    this.#concerned = (extension ? [extension, ...SYSTEM_HOOKS] : SYSTEM_HOOKS).flatMap((hook) => {
      const own = changes.filter((change) => hook.concerns(change, model));
      return own.length === 0 ? [] : [{ hook, changes: own }];
    });
  }

  /** `extension` calls the hooks of extensions, or is null if there are none. */
  static ofPlan(planned: PlannedWrite, extension: WriteHook | null): WriteHooks {
    return new WriteHooks(changesOf(planned), planned.model, planned, extension);
  }

  static ofDelete(collection: Collection, model: Model, extension: WriteHook | null): WriteHooks {
    return new WriteHooks([{ collection, action: 'delete', columns: [], rows: [] }], model, null, extension);
  }

  /** Whether a hook is called inside of the transaction. */
  get needTransaction(): boolean {
    return this.#concerned.some(({ hook }) => hook.open);
  }

  validate(limits: HookLimits): void {
    for (const { hook, changes } of this.#concerned) hook.validate?.(changes, limits);
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

const SHARES = 'service_shares';
const SHARE_FIELDS: ReadonlySet<string> = new Set([
  ...['id', 'name', 'role', 'password', 'date_start', 'date_end', 'max_uses'],
]);
const NEW_SHARE_FIELDS: ReadonlySet<string> = new Set([...SHARE_FIELDS, 'collection', 'item']);

/** The creator of a share must be allowed to share the item, and the share has the creator's rights. Other users may not change it. */
const shares: WriteHook = {
  concerns: ({ collection, action }) => collection.name === SHARES && action !== 'delete',
  open: (write) => ({
    beforeWrite: async () => {
      for (const change of write.changes) await checkShares(write, change);
    },
  }),
};

async function checkShares(write: HookedWrite, change: Change): Promise<void> {
  const { caller } = write.writer;
  // A share that leaves its role would be open to the public's.
  if (change.action === 'unlink' && !caller.administrator) throw forbidden();
  refuseUpserts(change);
  if (change.action === 'update' && !caller.administrator) await checkCreator(write, change);
  const allowed = change.action === 'update' ? SHARE_FIELDS : NEW_SHARE_FIELDS;
  for (const row of change.rows) {
    const values = valuesOf(change, row);
    const stray = [...values.keys()].find((name) => !allowed.has(name));
    if (stray !== undefined) throw invalidPayload(`"${stray}" of a share cannot be written`);
    if (change.action === 'create') await checkNewShare(write, change, row);
  }
}

/** A share has the rights of its creator, so only the creator decides who may use it. A user who may delete it can end it. */
async function checkCreator(write: HookedWrite, { rows }: Change): Promise<void> {
  const others = await querySystem(
    write,
    `select from service_shares
     where id = any($1::text[]::uuid[]) and user_created::text is distinct from $2::text limit 1`,
    [arrayLiteral(rows.map((row) => String(row['k']))), write.writer.caller.user],
  );
  if (others.length > 0) throw forbidden();
}

async function checkNewShare(write: HookedWrite, change: Change, row: ChangedRow): Promise<void> {
  const creator = row[`c${change.columns.findIndex(({ field }) => field.name === CREATOR)}`];
  if (creator !== undefined && creator !== write.writer.caller.user)
    throw invalidPayload(`"${CREATOR}" must be the caller: leave it out`);
  const values = valuesOf(change, row);
  const [name, item] = [String(values.get('collection')), String(values.get('item'))];
  await readItem(write, name, item);
  const count = { keys: [item], query: { aggregate: { count: '*' } } };
  const query = parseSearch(name, count, '', write.parseLimits);
  if ((await countInSession(write, query, { selectedFor: 'any share' })) !== 1) throw forbidden();
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

/** The bytes of a file that names an unknown storage location could not be found. */
const files: WriteHook = {
  concerns: ({ collection }) => collection.name === 'service_files',
  validate: (changes, { storages }) => {
    for (const change of changes)
      for (const row of change.rows) {
        const storage = valuesOf(change, row).get('storage');
        if (typeof storage === 'string' && !storages.includes(storage))
          throw invalidPayload(`"storage" must be one of ${storages.join(', ')}, not ${JSON.stringify(storage)}`);
      }
  },
};

/** Milliseconds that a table which is in use is waited for. */
const LOCK_TIMEOUT_MS = 2_000;

/**
 * A webhook that is written must be usable, and its tables get their triggers in the same transaction, so that no change after the
 * answer is missed. Unused triggers are dropped later, because readers of the table block that. Webhooks send items whatever the
 * permissions of their creator, so only administrators write them.
 */
const webhooks: WriteHook = {
  concerns: ({ collection }) => collection.name === WEBHOOKS,
  open: (write) => {
    let before: ReadonlyMap<string, string> = new Map();
    return {
      beforeWrite: async () => {
        if (!write.writer.caller.administrator) throw forbidden();
        await querySystem(write, TRIGGER_LOCK, [write.database.system]);
        before = new Map((await readRows(write)).map((row) => [row.id, JSON.stringify(row)]));
      },
      afterWrite: async () => {
        const rows = await readRows(write);
        for (const row of rows.filter((each) => before.get(each.id) !== JSON.stringify(each)))
          checkWebhook(parseWebhook(row), write.model, write.limits.webhooks, write);
        await installTriggers(write, rows);
      },
    };
  },
};

async function readRows(write: HookedWrite): Promise<WebhookRow[]> {
  const { session, database } = write;
  return session.asService(() => session.query<WebhookRow>(database.qualified(READ_WEBHOOKS)));
}

async function installTriggers(write: HookedWrite, rows: readonly WebhookRow[]): Promise<void> {
  const { session, database, model, limits } = write;
  const wanted = wantedTables(parseWebhooks(rows).webhooks, model, write);
  await session.asService(async () => {
    const query = <Row>(text: string, parameters: (string | null)[]): Promise<Row[]> => session.query(text, parameters);
    const { maxBacklog: maxChanges, maxPayload: maxBytes } = limits.webhooks;
    const { missing } = await planTriggers(query, database.system, wanted, { maxChanges, maxBytes, isRenewed: false });
    const refused = missing.find(({ mayInstall }) => !mayInstall);
    if (refused)
      throw unprocessable(
        `The role of the service may not create triggers on "${refused.schema}.${refused.name}": grant it the privilege TRIGGER`,
      );
    await session.query(`set local lock_timeout = ${LOCK_TIMEOUT_MS}`);
    for (const { statements } of missing) for (const statement of statements) await session.query(statement);
  });
}

/** In the order in which `beforeWrite` is called; `afterWrite` is called in the opposite order. */
const SYSTEM_HOOKS: readonly WriteHook[] = [access, databaseRoles, comments, shares, versions, files, webhooks];
