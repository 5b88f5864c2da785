/**
 * Runs schema changes: any number of operations in one transaction, together with the metadata, the schema version and
 * the notification. Changes run one after the other, across all instances. A change that waits too long for a table lock
 * rolls back and retries, so that reads do not queue behind a change that waits for a long read.
 */
import { serviceUnavailable } from '../../../base/errors.js';
import { Limiter, OWN_TURN } from '../../../base/limiter.js';
import { runInSlices } from '../../../base/time-slices.js';
import { modelSteps } from '../../../compiler/model/introspect.js';
import { type Model, type TableLocations, tableLocationsOf } from '../../../compiler/model/model.js';
import { type Author, NO_AUTHOR } from '../../../compiler/plan/write/write.js';
import { bind, type Caller } from '../../../compiler/sql/parameter.js';
import { verifyChange } from '../../../compiler/sql/verify.js';
import { loadSchema } from '../../postgres/catalog/catalog.js';
import { ANNOUNCE_SCHEMA, LIMIT_LOCK_WAIT, LOCK_SCHEMA } from '../../postgres/catalog/schema-lock.js';
import type { CatalogVersion as LoadedSchema, Mirror } from '../../postgres/catalog/watch.js';
import { pause } from '../../postgres/pools/conflicts.js';
import type { Database } from '../../postgres/pools/database.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { readSql } from '../../postgres/read-sql.js';
import { schemaActivity, touchedBy } from './activity.js';
import { asSchemaChangeError, isBlocked } from './change-errors.js';
import { compileStep } from './compile-ddl.js';
import type { DdlStatement, QualifiedName } from './ddl-statement.js';
import type { Operation } from './parse.js';
import { planSchemaOperation } from './plan-change.js';

interface SchemaChangeLimits {
  /** Milliseconds that one attempt waits for a table lock. */
  readonly lockTimeout: number;
  /** Milliseconds after which no further attempt is made. */
  readonly patience: number;
}

export class SchemaChanges {
  /** Within an instance changes wait here, so that they take one connection and not all of them. */
  readonly #turns: Limiter;

  constructor(
    private readonly database: Database,
    private readonly mirror: Mirror,
    private readonly limits: SchemaChangeLimits,
  ) {
    this.#turns = new Limiter(1, { waitTimeout: limits.patience, refusal: busy });
  }

  /** As the latest load found it. */
  get model(): Model {
    return this.mirror.model;
  }

  /** The model of a schema that was read in a transaction, built outside it. */
  modelOf({ document }: LoadedSchema): Promise<Model> {
    return runInSlices(modelSteps(document, 0, this.database, false));
  }

  /**
   * One transaction. `work` may run several times, each time on a new draft. The model of this instance is reloaded before
   * the promise resolves. The activity names the author.
   */
  async change<Result>(work: (draft: Draft) => Promise<Result>, author: Author = NO_AUTHOR): Promise<Result> {
    const recorded = async (draft: Draft): Promise<Result> => {
      const result = await work(draft);
      await draft.record(author);
      return result;
    };
    const { result, schema } = await this.#turns.run(OWN_TURN, () => this.#attempt(recorded));
    if (schema) await this.mirror.adopt(schema);
    return result;
  }

  /** Changes by this author. */
  by(author: Author): SchemaChanger {
    return this.#with((work) => this.change(work, author));
  }

  #with(change: SchemaChanger['change']): SchemaChanger {
    return {
      model: this.model,
      modelOf: (schema) => this.modelOf(schema),
      read: (work) => this.read(work),
      change,
    };
  }

  /**
   * Executes the changes of `act` and rolls them back. Returns the statements, in their order. PostgreSQL has checked them against the
   * rows, and took the same locks as for the change.
   */
  async dryRun(act: (changes: SchemaChanger) => Promise<unknown>): Promise<readonly ExecutedStatement[]> {
    const statements: ExecutedStatement[] = [];
    const tried = this.#with(async (work) => {
      const { result, executed } = await this.#turns.run(OWN_TURN, () => this.#attemptDry(work));
      statements.push(...executed);
      return result;
    });
    await act(tried);
    return statements;
  }

  async #attemptDry<Result>(work: (draft: Draft) => Promise<Result>): Promise<DryResult<Result>> {
    const rollback = new Error('a dry run ends with a rollback');
    let outcome: DryResult<Result> | null = null;
    const run = async (draft: Draft): Promise<never> => {
      outcome = { result: await work(draft), executed: draft.executed };
      throw rollback;
    };
    return this.#attempt(run).then(
      () => Promise.reject(rollback),
      (error: unknown) => (error === rollback && outcome ? outcome : Promise.reject(error)),
    );
  }

  /** Read-only, in one snapshot of the database. */
  async read<Result>(work: (draft: Draft) => Promise<Result>): Promise<Result> {
    // Behind a pooler each transaction begins with settings: what it is has to be said before them.
    const begin = 'begin isolation level repeatable read, read only';
    return this.database.transaction((session) => work(new Draft(session, this.database)), begin);
  }

  async #attempt<Result>(work: (draft: Draft) => Promise<Result>): Promise<Changed<Result>> {
    const deadline = performance.now() + this.limits.patience;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.database.transaction((session) => this.#run(session, work));
      } catch (error) {
        if (!isBlocked(error)) throw asSchemaChangeError(error);
        if (performance.now() > deadline) throw busy();
        await pause(attempt);
      }
    }
  }

  async #run<Result>(session: Session, work: (draft: Draft) => Promise<Result>): Promise<Changed<Result>> {
    const { schema } = this.database;
    // Before the limit on waiting: another instance that changes the schema is waited for.
    await session.query(LOCK_SCHEMA, [schema], { prepare: true });
    await session.query(LIMIT_LOCK_WAIT, [String(this.limits.lockTimeout)], { prepare: true });
    const draft = new Draft(session, this.database);
    const result = await work(draft);
    return { result, schema: draft.changed ? await draft.schema() : null };
  }
}

/** The changes that a request makes, or tries in a dry run. */
export interface SchemaChanger extends Pick<SchemaChanges, 'model' | 'modelOf' | 'read'> {
  change<Result>(work: (draft: Draft) => Promise<Result>): Promise<Result>;
}

interface ExecutedStatement {
  readonly sql: string;
  /** The values of `$1`, `$2`, ... */
  readonly parameters: readonly unknown[];
}

interface DryResult<Result> {
  readonly result: Result;
  readonly executed: readonly ExecutedStatement[];
}

function busy(): Error {
  return serviceUnavailable('database', 'The tables are locked by long-running requests', {
    option: 'SCHEMA_CHANGE_TIMEOUT',
  });
}

interface Changed<Result> {
  readonly result: Result;
  /** Null when nothing was changed. */
  readonly schema: LoadedSchema | null;
}

const RECORD = readSql('server', 'schema-activity.sql');
const ENTRIES_PER_STATEMENT = 1_000;

const NO_CALLER: Caller = { user: null, role: null, roles: [], policies: [] };

/** The schema inside an open transaction. */
export class Draft {
  /** Whether a step was executed. */
  changed = false;
  readonly executed: ExecutedStatement[] = [];
  #schema: LoadedSchema | null = null;
  #model: Model | null = null;
  /** The model before the first operation. */
  #before: Model | null = null;
  /** The collections that the operations may have changed. */
  readonly #touched = new Set<string>();
  /** As they were before the first operation. */
  #tables: TableLocations | null = null;
  /** Schema and name of tables that this transaction creates, by collection. */
  readonly #made = new Map<string, QualifiedName>();

  /** For `SchemaChanges` alone. */
  constructor(
    private readonly session: Session,
    private readonly database: Database,
  ) {}

  /** The schema as it is after the operations so far. */
  async model(): Promise<Model> {
    this.#model ??= await runInSlices(modelSteps((await this.schema()).document, 0, this.database, false));
    this.#tables ??= tableLocationsOf(this.#model);
    return this.#model;
  }

  /** The schema after the operations so far, as read from the catalog. */
  async schema(): Promise<LoadedSchema> {
    this.#schema ??= await loadSchema(this.session, this.database);
    return this.#schema;
  }

  /** Plans the operation on the schema that the previous operations have left, and executes it. */
  async apply(operation: Operation): Promise<void> {
    await this.execute(planSchemaOperation(operation, await this.model()));
  }

  /** The first cell of an internal statement, for what the model does not hold. */
  cell(text: string, parameters: readonly string[]): Promise<Buffer | null> {
    return this.session.cell(text, parameters);
  }

  /** Like `cell`, for a statement of the service: its functions and operators are qualified here. */
  ownCell(text: string, parameters: readonly string[]): Promise<Buffer | null> {
    return this.session.cell(this.database.qualified(text), parameters);
  }

  /** Steps that were planned on the model as it is. */
  async execute(steps: readonly DdlStatement[]): Promise<void> {
    if (steps.length === 0) return;
    this.#before ??= await this.model();
    for (const name of steps.flatMap(touchedBy)) this.#touched.add(name);
    const locations = this.#withMade(this.#tables ?? tableLocationsOf(await this.model()));
    for (const step of steps)
      if (step.kind === 'create-table' && step.qualifiedName) this.#made.set(step.table, step.qualifiedName);
    this.#schema = null;
    this.#model = null;
    const statements = steps.flatMap((step) => {
      const compiled = compileStep(step, locations);
      // The grammar has vetted objects as what they are.
      if (step.kind !== 'define-object')
        for (const { text } of compiled) verifyChange(text, [...locations.schemas, locations.system]);
      return compiled;
    });
    // Awaited one by one: the driver would send queued statements of a lost connection on a new one, outside the transaction.
    for (const { text, parameters } of statements) {
      const values = bind(parameters, [], NO_CALLER);
      await this.session.query(text, values);
      this.executed.push({ sql: text, parameters: values });
    }
    // One notification per transaction; PostgreSQL sends it with the commit.
    if (!this.changed)
      await this.session.query(this.database.qualified(ANNOUNCE_SCHEMA), [locations.schema], { prepare: true });
    this.changed = true;
  }

  /** Writes the changes so far to the activity. */
  async record(author: Author): Promise<void> {
    if (!this.#before || this.#touched.size === 0) return;
    const entries = await runInSlices(schemaActivity(this.#before, await this.model(), this.#touched));
    for (let start = 0; start < entries.length; start += ENTRIES_PER_STATEMENT) {
      const list = JSON.stringify(entries.slice(start, start + ENTRIES_PER_STATEMENT));
      await this.session.query(this.database.qualified(RECORD), [list, JSON.stringify(author)], { prepare: true });
    }
  }

  #withMade(locations: TableLocations): TableLocations {
    const tableOf: TableLocations['tableOf'] = (collection) => {
      const created = this.#made.get(collection);
      return created ? [created.schema, created.name] : locations.tableOf(collection);
    };
    return { ...locations, tableOf };
  }
}
