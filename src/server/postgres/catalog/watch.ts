/**
 * Keeps the model current. A notification, a reconnection (notifications may have been lost) or a
 * changed fingerprint of the catalog leads to a reload; bursts are gathered; the former model stays until the new one is
 * whole, and also when loading fails.
 */

import { parseOwnJson } from '../../../base/narrow.js';
import type { Observer } from '../../../base/observe.js';
import { runInSlices } from '../../../base/time-slices.js';
import type { CatalogDocument } from '../../../compiler/model/catalog-document.js';
import type { SchemaNames } from '../../../compiler/model/collection-names.js';
import { buildModel, modelSteps } from '../../../compiler/model/introspect.js';
import type { Model } from '../../../compiler/model/model.js';

/** The parts of the database that the mirror needs; the driver stays behind it. */
export interface CatalogSource {
  readonly schemas: SchemaNames;
  /** To be called before the database is read. Fails if it cannot be served. */
  check(): Promise<void>;
  load(): Promise<CatalogVersion>;
  /** To be called when the model is the one that was loaded last. */
  settled(): Promise<void>;
  /** Calls back on each notification and whenever listening begins (again). Returns how to stop. */
  listen(changed: () => void): Promise<() => Promise<void>>;
  /** A value that changes whenever tables or columns do, or null if the database notifies by itself. */
  fingerprint(): Promise<string | null>;
}

/** The model as it is now, and how to bring it in step where it is not. */
export interface Mirror {
  readonly model: Model;
  /** How often the catalog was read by this thread. */
  readonly loads: number;
  onChange(listener: (model: Model) => void): void;
  /** Takes a schema that a transaction of this instance read before it committed. */
  adopt(catalog: CatalogVersion): Promise<void>;
  /** After a failed statement, on a certainty or a mere suspicion that the schema has changed. */
  refresh(certain: boolean): Promise<void>;
}

/** Calls back with what a model was built from, the first one included. */
export type OnCatalog = (catalog: CatalogVersion, version: number) => void;

/** The schema, and a digest of it that changes whenever it does. */
export interface CatalogVersion {
  readonly document: CatalogDocument;
  /** The same as JSON. */
  readonly text: string;
  readonly digest: string;
}

/** Gathers the notifications of one transaction and of those that follow at once. */
const GATHER = 20;

/** After a load that failed. */
const RETRY = 1_000;

export class WatchingMirror implements Mirror {
  loads = 1;
  readonly #listeners: ((model: Model) => void)[] = [];
  #loading: Promise<void> | null = null;
  #again = false;
  #gathering: NodeJS.Timeout | null = null;
  #polling: NodeJS.Timeout | null = null;
  #retrying: NodeJS.Timeout | null = null;
  #fingerprint: string | null = null;
  /** Milliseconds; 0 for never. */
  #pollInterval = 0;
  #digest = '';
  #documentVersion = 0;
  #stopListening: (() => Promise<void>) | null = null;
  #closed = false;
  #loadedAt = performance.now();

  private constructor(
    private readonly source: CatalogSource,
    private readonly observe: Observer,
    private readonly onCatalog: OnCatalog,
    public model: Model,
  ) {}

  static async start(
    source: CatalogSource,
    observe: Observer,
    pollInterval: number,
    onCatalog: OnCatalog = () => {},
  ): Promise<WatchingMirror> {
    // Listening begins before the first load: a change between the two would go unnoticed.
    let mirror: WatchingMirror | null = null;
    let missed = false;
    const stopListening = await source.listen(() => {
      if (mirror) mirror.#gather();
      else missed = true;
    });
    await source.check();
    const fingerprint = await source.fingerprint();
    const first = await source.load();
    const model = announce(buildModel(first.document, 1, source.schemas), observe);
    mirror = new WatchingMirror(source, observe, onCatalog, model);
    mirror.#pollInterval = pollInterval;
    onCatalog(first, model.version);
    mirror.#digest = first.digest;
    mirror.#documentVersion = first.document.version;
    mirror.#watch(fingerprint);
    mirror.#stopListening = stopListening;
    if (missed) mirror.#gather();
    return mirror;
  }

  onChange(listener: (model: Model) => void): void {
    this.#listeners.push(listener);
  }

  /**
   * Where a load is under way, or the schema is known in a later version, there is nothing to take: what is there is
   * read again.
   */
  async adopt(catalog: CatalogVersion): Promise<void> {
    if (this.#loading || catalog.document.version <= this.#documentVersion) return this.reload();
    this.#loading = this.#load(catalog);
    return this.#loading;
  }

  /** Resolves when a model is in place that was read after the call. */
  async reload(): Promise<void> {
    if (this.#loading) {
      this.#again = true;
      return this.#loading;
    }
    this.#loading = this.#load();
    return this.#loading;
  }

  /**
   * On a mere suspicion only while a notification is being handled already, or at most once a second, since the request
   * may be the cause itself.
   */
  async refresh(certain: boolean): Promise<void> {
    const isExpected = this.#gathering !== null || this.#loading !== null;
    if (certain || isExpected || performance.now() - this.#loadedAt > 1_000) await this.reload();
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#gathering) clearTimeout(this.#gathering);
    if (this.#polling) clearInterval(this.#polling);
    if (this.#retrying) clearTimeout(this.#retrying);
    await this.#stopListening?.();
    await this.#loading;
  }

  /** `known`: a schema that was read already. */
  async #load(known: CatalogVersion | null = null): Promise<void> {
    let next = known;
    do {
      this.#again = false;
      this.#loadedAt = performance.now();
      try {
        const catalog = next ?? (await this.#read());
        next = null;
        // The same schema keeps the model, and with it everything that was compiled for it.
        if (catalog.digest !== this.#digest) await this.#take(catalog);
        await this.source.settled();
      } catch (error) {
        if (this.#closed) return;
        this.observe({ kind: 'model-failed', error });
        this.#retry();
      }
    } while (this.#again && !this.#closed);
    this.#loading = null;
  }

  async #read(): Promise<CatalogVersion> {
    this.loads++;
    await this.source.check();
    // Before the catalog: a change between the two is found by the next check.
    this.#watch(await this.source.fingerprint());
    return this.source.load();
  }

  /** Without a fingerprint the database notifies by itself. That may change when it is replaced. */
  #watch(fingerprint: string | null): void {
    this.#fingerprint = fingerprint;
    if (fingerprint !== null && this.#pollInterval > 0)
      this.#polling ??= setInterval(() => void this.#poll(), this.#pollInterval).unref();
    else if (this.#polling) {
      clearInterval(this.#polling);
      this.#polling = null;
    }
  }

  #retry(): void {
    this.#retrying ??= setTimeout(() => {
      this.#retrying = null;
      this.#gather();
    }, RETRY).unref();
  }

  async #take(catalog: CatalogVersion): Promise<void> {
    const { document, digest } = catalog;
    const model = await runInSlices(modelSteps(document, this.model.version + 1, this.source.schemas));
    this.#digest = digest;
    this.#documentVersion = document.version;
    this.model = announce(model, this.observe);
    for (const listener of this.#listeners) listener(model);
    this.onCatalog(catalog, model.version);
  }

  #gather(): void {
    if (this.#closed || this.#gathering) return;
    this.#gathering = setTimeout(() => {
      this.#gathering = null;
      void this.reload();
    }, GATHER);
  }

  async #poll(): Promise<void> {
    try {
      const fingerprint = await this.source.fingerprint();
      if (fingerprint !== this.#fingerprint) await this.reload();
    } catch (error) {
      if (!this.#closed) this.observe({ kind: 'watch-lost', error });
    }
  }
}

function announce(model: Model, observe: Observer): Model {
  const collections = [...model.collections.values()].filter((collection) => !collection.system).length;
  observe({ kind: 'model-loaded', collections, refused: model.refused });
  return model;
}

/** The mirror that is followed. Both resolve after the followers have taken what came of it. */
type Leader = Pick<Mirror, 'adopt' | 'refresh'>;

/**
 * The model of a thread that does not watch the database itself: another one does, and sends the schema. This thread passes
 * on what it learns, and waits until all have it.
 */
export class FollowingMirror implements Mirror {
  readonly loads = 0;
  readonly #listeners: ((model: Model) => void)[] = [];
  #model: Model;

  /** The schema as JSON, and the version of its model. */
  constructor(
    text: string,
    version: number,
    private readonly schemas: SchemaNames,
    private readonly leader: Leader,
  ) {
    this.#model = buildModel(parseOwnJson<CatalogDocument>(text), version, schemas);
  }

  get model(): Model {
    return this.#model;
  }

  onChange(listener: (model: Model) => void): void {
    this.#listeners.push(listener);
  }

  /** Builds the model with pauses: this thread answers requests. */
  async take(text: string, version: number): Promise<void> {
    this.#model = await runInSlices(modelSteps(parseOwnJson<CatalogDocument>(text), version, this.schemas));
    for (const listener of this.#listeners) listener(this.#model);
  }

  adopt(catalog: CatalogVersion): Promise<void> {
    return this.leader.adopt(catalog);
  }

  refresh(certain: boolean): Promise<void> {
    return this.leader.refresh(certain);
  }
}
