/** The features of one thread: each is opened after those that it needs. */
import type { Observer } from '../base/observe.js';
import { NO_OTHER_LOGINS, type OtherLogins } from '../server/api/accounts/auth.js';
import type { ApiRoute } from '../server/api/action.js';
import type { GraphqlPage } from '../server/api/graphql/endpoint.js';
import type { LiveReads } from '../server/api/items/live-reads.js';
import type { ExportItems } from '../server/api/items/stream-items.js';
import type { Metric } from '../server/api/server/metric.js';
import type { ResourceRoutes } from '../server/api/system-collections.js';
import type { Changes } from '../server/changes/changes.js';
import type { Config } from '../server/config/config.js';
import type { WriteHook } from '../server/execute/hooks/write-hook.js';
import type { PlanFacts } from '../server/execute/reads/reads.js';
import type { Dialect } from '../server/feature/dialect.js';
import type {
  ChangesContext,
  Feature,
  FeatureContext,
  FeaturePart,
  HooksContext,
  OpenHooks,
} from '../server/feature/feature.js';
import type { DiagnosisContext, Finding } from '../server/feature/finding.js';
import { NO_RECORDER, type RequestRecorder } from '../server/http/request-recorder.js';
import type { SocketProtocol } from '../server/http/websocket.js';
import type { Checks } from '../server/postgres/health.js';

/** The context without what differs between features. */
export type CommonContext = Omit<FeatureContext, 'broadcast' | 'ask' | 'use'>;

/** The way to the parts of a feature in all threads. */
interface AllThreads {
  broadcast(feature: string, payload: string): Promise<void>;
  ask(feature: string, question: unknown): Promise<readonly unknown[]>;
}

export class OpenFeatures {
  readonly #parts = new Map<string, FeaturePart>();
  #stopped: Promise<void> | null = null;

  private constructor(
    private readonly context: CommonContext,
    private readonly threads: AllThreads,
  ) {}

  static async open(features: readonly Feature[], context: CommonContext, threads: AllThreads): Promise<OpenFeatures> {
    const opened = new OpenFeatures(context, threads);
    try {
      for (const feature of inOrder(features)) await opened.#open(feature);
    } catch (error) {
      await opened.stop();
      await opened.all('close');
      throw error;
    }
    return opened;
  }

  async #open(feature: Feature): Promise<void> {
    const part = await feature.open?.({
      ...this.context,
      broadcast: (payload) => this.threads.broadcast(feature.name, payload),
      ask: (question) => this.threads.ask(feature.name, question),
      use: <Exports>({ name }: Feature<Exports>) => (this.#parts.get(name)?.exports as Exports | undefined) ?? null,
    });
    if (part) this.#parts.set(feature.name, part);
  }

  get #all(): readonly FeaturePart[] {
    return [...this.#parts.values()];
  }

  /** Returns what the first feature that has such a value provides, for example the live reads. */
  #first<Value>(of: (part: FeaturePart) => Value | undefined): Value | null {
    for (const part of this.#all) {
      const value = of(part);
      if (value !== undefined) return value;
    }
    return null;
  }

  get routes(): readonly ApiRoute[] {
    return this.#all.flatMap(({ routes = [] }) => routes);
  }

  sockets(): readonly SocketProtocol[] {
    return this.#all.flatMap((part) => part.sockets?.() ?? []);
  }

  get graphqlPage(): GraphqlPage | null {
    return this.#first(({ graphqlPage }) => graphqlPage);
  }

  get logins(): OtherLogins {
    return this.#first(({ logins }) => logins) ?? NO_OTHER_LOGINS;
  }

  get accountPages(): readonly string[] {
    return this.#all.flatMap(({ accountPages = [] }) => accountPages);
  }

  get info(): Readonly<Record<string, unknown>> {
    return Object.assign({}, ...this.#all.map(({ info }) => info));
  }

  get resources(): ReadonlyMap<string, ResourceRoutes> {
    return new Map(this.#all.flatMap(({ resources = {} }) => Object.entries(resources)));
  }

  metrics(): readonly Metric[] {
    return this.#all.flatMap((part) => part.metrics?.() ?? []);
  }

  async check(): Promise<Checks> {
    return Object.assign({}, ...(await Promise.all(this.#all.map((part) => part.check?.()))));
  }

  get recorder(): RequestRecorder {
    return this.#first(({ recorder }) => recorder) ?? NO_RECORDER;
  }

  get live(): LiveReads | null {
    return this.#first(({ live }) => live);
  }

  get exportItems(): ExportItems | null {
    return this.#first(({ exportItems }) => exportItems);
  }

  notify(moment: 'onAccessChange' | 'onSessionsEnded' | 'onReload'): void {
    for (const part of this.#all) part[moment]?.();
  }

  answer(feature: string, question: unknown): unknown {
    return this.#parts.get(feature)?.onQuestion?.(question);
  }

  apply(feature: string, payload: string): void {
    this.#parts.get(feature)?.onBroadcast?.(payload);
  }

  /** Resolves when all parts are done. */
  async all(moment: 'start' | 'stop' | 'close' | 'end'): Promise<void> {
    await Promise.all(this.#all.map((part) => part[moment]?.()));
  }

  /** A second call waits for the same end. */
  stop(): Promise<void> {
    this.#stopped ??= this.all('stop');
    return this.#stopped;
  }
}

/** Each feature after those that it needs. */
export function inOrder(features: readonly Feature[]): readonly Feature[] {
  const ordered = new Set<Feature>();
  const add = (feature: Feature): void => {
    for (const needed of feature.needs ?? []) add(needed);
    ordered.add(feature);
  };
  for (const feature of features) add(feature);
  return [...ordered];
}

/** The other API that clients may use, or null if there is none. */
export function dialectOf(features: readonly Feature[], config: Config): Promise<Dialect | null> {
  return firstOf(features, (feature) => feature.dialect?.(config));
}

/** The write hooks of all features. */
export async function hooksOf(features: readonly Feature[], config: Config): Promise<readonly WriteHook[]> {
  const lists = await Promise.all(inOrder(features).map((feature) => feature.hooks?.(config)));
  return lists.flatMap((list) => list ?? []);
}

/** The stream of changes, or null if there is none. */
export function openChanges(features: readonly Feature[], context: ChangesContext): Promise<Changes | null> {
  return firstOf(features, (feature) => feature.openChanges?.(context));
}

/** The functions by which features add facts to explanations of reads. */
export async function planFactsOf(features: readonly Feature[]): Promise<readonly PlanFacts[]> {
  const found = await Promise.all(features.map((feature) => feature.explain?.()));
  return found.filter((facts) => facts !== undefined);
}

/** The hooks of users, or null if there are none. */
export function openHooks(features: readonly Feature[], context: HooksContext): Promise<OpenHooks | null> {
  return firstOf(features, (feature) => feature.openHooks?.(context));
}

async function firstOf<Value>(
  features: readonly Feature[],
  of: (feature: Feature) => Promise<Value | null> | undefined,
): Promise<Value | null> {
  for (const feature of features) {
    const value = await of(feature);
    if (value) return value;
  }
  return null;
}

/** Prepares a process or worker thread that only serves. */
export async function prepareProcess(features: readonly Feature[], config: Config, observe: Observer): Promise<void> {
  for (const feature of features) await feature.prepareProcess?.({ config, observe });
}

/** The findings of all features, for `lateral doctor`. */
export async function diagnose(features: readonly Feature[], context: DiagnosisContext): Promise<readonly Finding[]> {
  const lists = await Promise.all(features.map((feature) => feature.diagnose?.(context)));
  return lists.flatMap((list) => list ?? []);
}
