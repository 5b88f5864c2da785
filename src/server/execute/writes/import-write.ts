/** Writes the rows of an import, batch by batch, in one transaction. */
import type { Collection, Model } from '../../../compiler/model/model.js';
import type { Access } from '../../../compiler/plan/access.js';
import { planImported } from '../../../compiler/plan/write/conflict.js';
import { Guard } from '../../../compiler/plan/write/guard.js';
import type { PlannedWrite } from '../../../compiler/plan/write/write.js';
import type { OnConflict } from '../../../compiler/request/on-conflict.js';
import type { Input } from '../../../compiler/request/parse-context.js';
import type { Session } from '../../postgres/pools/sessions.js';
import { writeSettings } from '../caller-scope.js';
import { noteCommit } from '../consistency.js';
import { retry } from '../retry.js';
import { turnOf, type WrittenBy } from '../writer.js';
import type { WriteCall } from './compiled-write.js';
import { writeCounted } from './planned-write.js';
import { conditioned, payloadHooks, restrict, type WriteContext } from './write-context.js';
import { asImportError, rowsOf } from './write-errors.js';

/** The transaction of an import, and how rows are written in it. */
export interface ImportTransaction {
  readonly session: Session;
  readonly model: Model;
  readonly collection: Collection;
  readonly access: Access | null;
  readonly plan: (rows: readonly Input[]) => Promise<PlannedWrite>;
  /** Whether hooks of extensions change the rows before they are planned: nothing else may use the session then. */
  readonly isHooked: boolean;
  /** `rows` is the number of rows. Answers how many of them a trigger left out. */
  readonly write: (planned: PlannedWrite, rows: number) => Promise<number>;
}

export interface ImportInto {
  readonly name: string;
  readonly onConflict: OnConflict | null;
  readonly mayRepeat: () => boolean;
}

/** Whatever `work` throws undoes all rows. */
export async function importInto<Result>(
  context: WriteContext,
  { name, onConflict, mayRepeat }: ImportInto,
  given: WrittenBy,
  work: (transaction: ImportTransaction) => Promise<Result>,
): Promise<Result> {
  const { services } = context;
  const by = { ...given, writer: await conditioned(context, given.writer, null, given.client) };
  const attempt = (model: Model, number: number): Promise<Result> => {
    const { collection, context: limited } = restrict(context, name, by.writer, model);
    const target = { collection, context: { ...limited, maxRows: null } };
    const { access } = target.context;
    const guard = access && new Guard(access, model);
    if (guard && !guard.covers('update', collection, [])) guard.grant('create', collection);
    by.client.staged('restrict');
    const isHooked = services.userHooks?.mayChange(collection, model) ?? false;
    const call: WriteCall = { ...by, readBack: null, idempotencyKey: null, tags: null, attempt: number };
    return services.database.imports.use((session) => {
      const plan = async (rows: readonly Input[]): Promise<PlannedWrite> => {
        const hooks = isHooked ? payloadHooks(context, async () => session, call, target) : null;
        const changed = hooks ? await hooks.rows(collection, rows, onConflict?.resolution === 'merge') : rows;
        return planImported(collection, changed, onConflict, target.context);
      };
      const write = async (planned: PlannedWrite, rows: number): Promise<number> => {
        const skipped = await writeCounted({ context, session, call }, planned);
        // Nested items of the same collection cannot be distinguished from those of the file.
        return rowsOf(planned) === rows ? skipped : 0;
      };
      return session.transaction(async () => {
        await session.become(writeSettings(services.callers, by, () => [collection]));
        return work({ session, model, collection, access, plan, write, isHooked });
      });
    }, turnOf(by));
  };
  const written = retry(services.mirror, attempt, { asError: asImportError, mayRepeat });
  return noteCommit(services.consistency, written, by);
}
