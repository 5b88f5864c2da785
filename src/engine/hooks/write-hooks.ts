/**
 * Hooks of writes. The service's own collections need more than their columns can express: a hook checks the rows that a write changes
 * in them, and adds what follows from these, in the write's transaction. REST, GraphQL and nested payloads all pass here. A write
 * that concerns no hook pays nothing.
 */
import type { Collection, Model } from '../../mirror/model.js';
import type { PlannedWrite } from '../../plan/write/write.js';
import { SYSTEM_HOOKS } from './system-hooks.js';
import type { Change, HookedWrite, HookLimits, WriteHook } from './write-hook.js';

/** The hooks that a write concerns, each with its changes. */
export class WriteHooks {
  readonly #concerned: readonly { readonly hook: WriteHook; readonly changes: readonly Change[] }[];

  private constructor(
    changes: readonly Change[],
    private readonly model: Model,
    private readonly planned: PlannedWrite | null,
  ) {
    this.#concerned = SYSTEM_HOOKS.flatMap((hook) => {
      const own = changes.filter((change) => hook.concerns(change, model));
      return own.length === 0 ? [] : [{ hook, changes: own }];
    });
  }

  static ofPlan(planned: PlannedWrite): WriteHooks {
    return new WriteHooks(changesOf(planned), planned.model, planned);
  }

  static ofDelete(collection: Collection, model: Model): WriteHooks {
    return new WriteHooks([{ collection, action: 'delete', columns: [], rows: [] }], model, null);
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
