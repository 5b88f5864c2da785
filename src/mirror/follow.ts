/**
 * The model of a thread that does not watch the database itself: another one does, and sends the schema along. What this
 * thread learns by itself it passes on, and waits until all have it.
 */
import { parseOwnJson } from '../base/narrow.js';
import { runInSlices } from '../base/time-slices.js';
import type { CatalogDocument } from './catalog-document.js';
import type { SchemaNames } from './collection-names.js';
import { buildModel, modelSteps } from './introspect.js';
import type { Model } from './model.js';
import type { CatalogVersion, Mirror } from './watch.js';

/** The mirror that is followed. Both resolve after the followers have taken what came of it. */
export type Leader = Pick<Mirror, 'adopt' | 'refresh'>;

export class FollowingMirror implements Mirror {
  readonly loads = 0;
  readonly #schemas: SchemaNames;
  readonly #leader: Leader;
  readonly #listeners: ((model: Model) => void)[] = [];
  #model: Model;

  /** The schema as JSON, and the version of its model. */
  constructor(text: string, version: number, schemas: SchemaNames, leader: Leader) {
    this.#schemas = schemas;
    this.#leader = leader;
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
    this.#model = await runInSlices(modelSteps(parseOwnJson<CatalogDocument>(text), version, this.#schemas));
    for (const listener of this.#listeners) listener(this.#model);
  }

  adopt(catalog: CatalogVersion): Promise<void> {
    return this.#leader.adopt(catalog);
  }

  refresh(certain: boolean): Promise<void> {
    return this.#leader.refresh(certain);
  }
}
