/** The extensions of a service: which hooks a collection has, and how each of them is run. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { type ErrorCode, LateralError, ServiceError, StartError, serviceUnavailable } from '../../base/errors.js';
import { isRecord, messageOf } from '../../base/narrow.js';
import { didYouMean } from '../../base/nearest-name.js';
import type { Observer } from '../../base/observe.js';
import { within } from '../../base/time-limit.js';
import type { Collection, Model, Relation } from '../../compiler/model/model.js';
import type { Identity } from '../../server/access/identity.js';
import type { As, LateralApi } from '../../server/execute/hooks/api.js';
import type {
  AfterCommitContext,
  AfterWriteContext,
  BeforeReadContext,
  BeforeWriteContext,
  CallerApi,
  Extension,
  Hook,
  HookCaller,
} from '../../server/execute/hooks/definition.js';
import type { ExtensionLogEvent } from './log-events.js';

/** The contexts of hooks. */
interface HookContexts {
  readonly beforeWrite: BeforeWriteContext;
  readonly afterWrite: AfterWriteContext;
  readonly afterCommit: AfterCommitContext;
  readonly beforeRead: BeforeReadContext;
}

type HookKind = keyof HookContexts;

const WRITE_HOOKS = ['beforeWrite', 'afterWrite', 'afterCommit'] as const;

type HookFunction<Context> = (context: Context) => unknown;

/** A function of an extension: a hook, or the handler of a route. */
export interface ExtensionCall<Context, Result = unknown> {
  readonly extension: string;
  /** The name of the hook, or the route. */
  readonly kind: string;
  readonly collection: string | null;
  readonly call: (context: Context) => Result | Promise<Result>;
}

/** One hook of one extension for one collection. */
export interface BoundHook<Context> extends ExtensionCall<Context> {
  readonly collection: string;
}

interface HookTable<Context> {
  readonly all: HookFunction<Context> | null;
  readonly byCollection: ReadonlyMap<string, HookFunction<Context>>;
}

type HookTables = { readonly [Kind in HookKind]: HookTable<HookContexts[Kind]> };

interface LoadedExtension {
  readonly extension: Extension;
  readonly tables: HookTables;
}

/** The functions of the application that extensions call. */
interface ExtensionServices {
  readonly api: LateralApi;
  readonly callerOf: (as: As) => Promise<Identity>;
  /** The API with a caller for `as: 'caller'`. */
  readonly apiFor: (caller: Identity) => CallerApi;
}

interface RunningHook {
  isOver: boolean;
}

/**
 * The hooks that have led to the one that runs, by calls in their transaction or by requests of their own. If many of them still wait, a
 * hook triggers itself. Hooks that have ended do not count: one that runs after a commit may lead to the next without end.
 */
const leadingHooks = new AsyncLocalStorage<readonly RunningHook[]>();
const MAX_WAITING_HOOKS = 20;

const PROPERTIES: readonly string[] = [
  ...['name', 'collections', 'beforeWrite', 'afterWrite', 'afterCommit', 'beforeRead', 'routes', 'start', 'stop'],
];

type Bound = { readonly [Kind in HookKind]: Map<string, readonly BoundHook<HookContexts[Kind]>[]> };

export class Extensions {
  #loaded: readonly LoadedExtension[];
  #bound: Bound = emptyBound();
  /** By model and kind of hook: the collections from which relations lead to one with such a hook. */
  #reaching = new WeakMap<Model, Map<string, ReadonlyMap<string, ReadonlySet<string>>>>();
  #services: ExtensionServices | null = null;
  /** Changes when other definitions are loaded. */
  generation = 0;
  /** Work after commits that is still running. */
  readonly #running = new Set<Promise<void>>();

  constructor(
    extensions: readonly Extension[],
    private readonly timeoutMs: number,
    private readonly observe: Observer<ExtensionLogEvent>,
  ) {
    this.#loaded = load(extensions);
  }

  get all(): readonly Extension[] {
    return this.#loaded.map(({ extension }) => extension);
  }

  /** Other definitions, after a file has changed. */
  replace(extensions: readonly Extension[]): void {
    this.#loaded = load(extensions);
    this.generation++;
    this.#bound = emptyBound();
    this.#reaching = new WeakMap();
  }

  /** To be called before the first request. */
  connect(services: ExtensionServices): void {
    this.#services = services;
  }

  get services(): ExtensionServices {
    if (!this.#services) throw serviceUnavailable('lateral', 'It is starting');
    return this.#services;
  }

  /** Whether some extension has such a hook. */
  has(kind: HookKind): boolean {
    return this.#loaded.some(({ tables }) => tables[kind].all !== null || tables[kind].byCollection.size > 0);
  }

  /** Whether an extension is called before or after writes of the collection. */
  hasWriteHooks(collection: Collection): boolean {
    return WRITE_HOOKS.some((kind) => this.hooks(kind, collection).length > 0);
  }

  /** The hooks of a collection, in the order of the extensions. */
  hooks<Kind extends HookKind>(
    kind: Kind,
    { name, system }: Pick<Collection, 'name' | 'system'>,
  ): readonly BoundHook<HookContexts[Kind]>[] {
    const bound = this.#bound[kind];
    const known = bound.get(name);
    if (known) return known;
    const hooks = this.#loaded.flatMap(({ extension, tables }) => {
      const { all, byCollection } = tables[kind];
      const isMeant = extension.collections ? extension.collections.includes(name) : !system;
      const call = byCollection.get(name) ?? (isMeant ? all : null);
      return call ? [{ extension: extension.name, kind, collection: name, call }] : [];
    });
    bound.set(name, hooks);
    return hooks;
  }

  /** The collections with such a hook that relations lead to from this one, and itself if it has one. */
  reached(kind: HookKind, name: string, model: Model): ReadonlySet<string> {
    return this.#found(kind, model, false).get(name) ?? NONE;
  }

  /** The collections with such a hook that relations connect with this one, in either direction. */
  related(kind: HookKind, name: string, model: Model): ReadonlySet<string> {
    return this.#found(kind, model, true).get(name) ?? NONE;
  }

  #found(kind: HookKind, model: Model, isEither: boolean): ReadonlyMap<string, ReadonlySet<string>> {
    const ofModel = this.#reaching.get(model) ?? new Map<string, ReadonlyMap<string, ReadonlySet<string>>>();
    this.#reaching.set(model, ofModel);
    const name = `${kind} ${isEither}`;
    const found = ofModel.get(name) ?? this.#search(kind, model, isEither);
    ofModel.set(name, found);
    return found;
  }

  #search(kind: HookKind, model: Model, isEither: boolean): ReadonlyMap<string, ReadonlySet<string>> {
    const hooked = [...model.collections.values()].filter((collection) => this.hooks(kind, collection).length > 0);
    const reached = new Map<string, Set<string>>();
    if (hooked.length === 0) return reached;
    const before = referrersOf(model, isEither);
    for (const { name } of hooked) {
      const waiting = [name];
      const met = new Set(waiting);
      for (const each of waiting) {
        reached.set(each, (reached.get(each) ?? new Set()).add(name));
        for (const from of before.get(each) ?? [])
          if (!met.has(from)) {
            met.add(from);
            waiting.push(from);
          }
      }
    }
    return reached;
  }

  /**
   * Runs a hook. An error with a status from 400 to 499 refuses the request. Any other error, and a hook that takes too long, is a 503 whose
   * reason is in the log alone. `settle` ends what the hook has begun, before its outcome counts.
   */
  async run<Context, Result>(
    hook: ExtensionCall<Context, Result>,
    context: Context,
    settle: (isFailed: boolean) => Promise<void> = async () => {},
  ): Promise<Result> {
    const waiting = (leadingHooks.getStore() ?? []).filter(({ isOver }) => !isOver);
    if (waiting.length >= MAX_WAITING_HOOKS)
      throw this.failure(new Error(`it triggers itself: ${waiting.length} hooks already wait for it`), hook);
    const late = { message: `it did not end within ${this.timeoutMs} ms (EXTENSION_TIMEOUT)` };
    const own: RunningHook = { isOver: false };
    let isLate = true;
    const running = leadingHooks.run([...waiting, own], () =>
      Promise.resolve(context)
        .then(hook.call)
        .finally(() => {
          isLate = false;
        }),
    );
    const outcome = await within(running, this.timeoutMs, late).then(
      (result) => ({ result }),
      (error: unknown) => ({ error }),
    );
    // The request of a late hook goes on: it may wait for a connection, and begin hooks that are late as well, without end.
    own.isOver = !isLate || hook.kind === 'afterCommit';
    await settle('error' in outcome);
    if ('error' in outcome) throw this.failure(outcome.error, hook);
    return outcome.result;
  }

  failure(error: unknown, place: Omit<ExtensionCall<never>, 'call'>): ServiceError {
    const { extension, kind: hook, collection } = place;
    let reason = error;
    try {
      const refusal = refusalOf(error);
      if (refusal) return refusal;
    } catch (unreadable) {
      // A getter of what was thrown has thrown itself.
      reason = unreadable;
    }
    this.observe({ kind: 'extension-failed', extension, hook, collection, error: reason });
    return serviceUnavailable('extension', 'An extension failed');
  }

  /** Runs hooks after a commit. Nobody waits for them, and their errors are logged. */
  afterwards(work: () => Promise<void>): void {
    const running = work()
      .catch(() => {})
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** Resolves when no work after commits is running. */
  async idle(): Promise<void> {
    await Promise.all(this.#running);
  }

  /** A misspelt collection would leave a hook without effect: the log names it. */
  #reportUnknown({ collections }: Model): void {
    for (const { extension, tables } of this.#loaded) {
      const named = Object.values(tables).flatMap(({ byCollection }) => [...byCollection.keys()]);
      for (const collection of new Set([...(extension.collections ?? []), ...named]))
        if (!collections.has(collection)) {
          const hint = didYouMean(collection, collections.keys());
          this.observe({ kind: 'extension-unmatched', extension: extension.name, collection, hint });
        }
    }
  }

  async start(model: Model): Promise<void> {
    const { api } = this.services;
    this.#reportUnknown(model);
    for (const { extension } of this.#loaded) {
      const starting = (async () => extension.start?.(api))();
      await within(starting, START_TIMEOUT_MS).catch((error: unknown) => {
        throw new StartError(`the extension "${extension.name}" did not start: ${messageOf(error)}`);
      });
    }
  }

  async stop(): Promise<void> {
    await this.idle();
    for (const { extension } of this.#loaded) {
      const stopping = (async () => extension.stop?.())();
      await within(stopping, this.timeoutMs).catch((error: unknown) => {
        this.observe({ kind: 'extension-failed', extension: extension.name, hook: 'stop', collection: null, error });
      });
    }
  }
}

const NONE: ReadonlySet<string> = new Set();

const START_TIMEOUT_MS = 30_000;

function emptyBound(): Bound {
  return { beforeWrite: new Map(), afterWrite: new Map(), afterCommit: new Map(), beforeRead: new Map() };
}

/** The error if it refuses the request, as the client gets it; null for all others. */
function refusalOf(error: unknown): ServiceError | null {
  if (error instanceof ServiceError) return error;
  if (!isRecord(error)) return null;
  const { status, code, message } = error;
  if (typeof status !== 'number' || !Number.isInteger(status) || status < 400 || status > 499) return null;
  const extensions = error instanceof LateralError ? error.extensions : {};
  // The code of an extension is its own.
  const name = (typeof code === 'string' && /^[A-Z0-9_]{1,100}$/.test(code) ? code : 'REFUSED') as ErrorCode;
  const text = typeof message === 'string' && message !== '' ? message : 'The request was refused.';
  return new ServiceError(name, text, extensions, status);
}

/** The caller as hooks see it. */
export function hookCaller({ user, role, roles, administrator }: Identity): HookCaller {
  return { user, role, roles: [...roles], administrator };
}

function load(extensions: readonly Extension[]): LoadedExtension[] {
  const names = new Set<string>();
  return extensions.map((extension) => {
    check(extension);
    if (names.has(extension.name)) throw new StartError(`two extensions have the name "${extension.name}"`);
    names.add(extension.name);
    const { beforeWrite, afterWrite, afterCommit, beforeRead } = extension;
    const tables: HookTables = {
      beforeWrite: tableOf(extension, beforeWrite),
      afterWrite: tableOf(extension, afterWrite),
      afterCommit: tableOf(extension, afterCommit),
      beforeRead: tableOf(extension, beforeRead),
    };
    return { extension, tables };
  });
}

/** A module of JavaScript has no types: its extension is checked here. */
function check(extension: unknown): void {
  if (!isRecord(extension)) throw new StartError('an extension must be an object: the default export of its module');
  const { name, collections } = extension;
  if (typeof name !== 'string' || !/^[a-z0-9][a-z0-9-]{0,62}$/.test(name))
    throw new StartError(
      `the name of an extension must have lower-case letters, digits and hyphens: ${JSON.stringify(name)}`,
    );
  const unknown = Object.keys(extension).find((each) => !PROPERTIES.includes(each));
  if (unknown !== undefined)
    throw new StartError(
      `the extension "${name}" has an unknown property "${unknown}".${didYouMean(unknown, PROPERTIES)}`,
    );
  if (
    collections !== undefined &&
    !(Array.isArray(collections) && collections.every((each) => typeof each === 'string'))
  )
    throw new StartError(`"collections" of the extension "${name}" must be a list of names`);
  for (const property of ['routes', 'start', 'stop'])
    if (extension[property] !== undefined && typeof extension[property] !== 'function')
      throw new StartError(`"${property}" of the extension "${name}" must be a function`);
}

function tableOf<Context>(extension: Extension, hook: Hook<Context> | undefined): HookTable<Context> {
  if (hook === undefined) return { all: null, byCollection: new Map() };
  if (typeof hook === 'function') return { all: hook, byCollection: new Map() };
  const entries = isRecord(hook) ? Object.entries(hook) : [];
  if (entries.length === 0 || entries.some(([, each]) => typeof each !== 'function'))
    throw new StartError(
      `a hook of the extension "${extension.name}" must be a function, or an object with a function for each collection`,
    );
  return { all: null, byCollection: new Map(entries) };
}

/** By collection, the collections with a relation to it, or from it. */
function referrersOf(model: Model, isEither: boolean): ReadonlyMap<string, ReadonlySet<string>> {
  const referrers = new Map<string, Set<string>>();
  const add = (to: string, from: string): void => void referrers.set(to, (referrers.get(to) ?? new Set()).add(from));
  for (const { name, fields } of model.collections.values())
    for (const { relation } of fields.values())
      for (const target of relation ? targetsOf(relation) : []) {
        add(target, name);
        if (isEither) add(name, target);
      }
  return referrers;
}

export function targetsOf(relation: Relation): readonly string[] {
  switch (relation.kind) {
    case 'many-to-one':
      return [relation.oneCollection];
    case 'many-to-any':
      return relation.allowedCollections;
    default:
      return [relation.manyCollection];
  }
}
