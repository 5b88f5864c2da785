/** All topics, by the statements that read them and the tables that these depend on. */

import { unprocessable } from '../../base/errors.js';
import type { CompiledRead } from '../../engine/reads/compiled-read.js';
import type { PreparedRead } from '../../engine/reads/reads.js';
import type { LoggedTable } from '../../postgres/changes/pgoutput.js';
import type { Source } from '../../postgres/changes/publication.js';
import { bind } from '../../sql/parameter.js';
import type { TableChanges } from '../changes/change-source.js';
import { dependenciesOf, tableKey, wantedColumns } from '../dependencies.js';
import { LiveShape, type Subscriber, Topic } from './topic.js';

export class Topics {
  readonly #shapes = new Map<CompiledRead, LiveShape>();
  readonly #byTable = new Map<string, Set<LiveShape>>();
  /** What is read of the rows of a table, until other shapes are there. */
  #wanted = new WeakMap<LoggedTable, readonly boolean[] | null>();
  /** Null until it is known what is below each view. */
  #sources: ReadonlyMap<string, readonly Source[]> | null = null;

  get shapes(): number {
    return this.#shapes.size;
  }

  get size(): number {
    let topics = 0;
    for (const shape of this.#shapes.values()) topics += shape.topics.size;
    return topics;
  }

  *all(): Iterable<Topic> {
    for (const shape of this.#shapes.values()) yield* shape.topics.values();
  }

  /** Tables or views may have been added. */
  forgetSources(): void {
    this.#sources = null;
  }

  /** Every subscriber has to join anew. */
  reset(sources: ReadonlyMap<string, readonly Source[]>): void {
    this.#sources = sources;
    this.#shapes.clear();
    this.#byTable.clear();
    this.#wanted = new WeakMap();
  }

  /** The topic of the read, which the subscriber has left its former one for. */
  join(subscriber: Subscriber, prepared: PreparedRead): Topic {
    const { compiled, query, caller } = prepared;
    const shape = this.#shapes.get(compiled) ?? this.#add(compiled);
    const key = JSON.stringify(bind(compiled.statement.parameters, query.values, caller));
    const topic = shape.topics.get(key) ?? new Topic(shape, key, prepared);
    if (subscriber.topic !== topic) this.leave(subscriber);
    if (topic.subscribers.size === 0) shape.add(topic);
    this.#keep(shape);
    subscriber.topic = topic;
    topic.subscribers.add(subscriber);
    return topic;
  }

  leave(subscriber: Subscriber): void {
    const { topic } = subscriber;
    subscriber.topic = null;
    if (topic === null) return;
    topic.subscribers.delete(subscriber);
    if (topic.subscribers.size > 0) return;
    topic.shape.remove(topic);
    if (topic.shape.topics.size === 0) this.#remove(topic.shape);
  }

  #add(compiled: CompiledRead): LiveShape {
    const dependencies = dependenciesOf(compiled, this.#sources ?? new Map());
    if (this.#sources !== null && dependencies.unseen !== null)
      throw unprocessable(`A live query cannot read what changes unseen: ${dependencies.unseen}`);
    return new LiveShape(compiled, dependencies);
  }

  #keep(shape: LiveShape): void {
    if (this.#shapes.get(shape.compiled) === shape) return;
    this.#shapes.set(shape.compiled, shape);
    this.#wanted = new WeakMap();
    for (const table of shape.dependencies.tables)
      this.#byTable.set(table, (this.#byTable.get(table) ?? new Set()).add(shape));
  }

  #remove(shape: LiveShape): void {
    if (this.#shapes.get(shape.compiled) !== shape) return;
    this.#shapes.delete(shape.compiled);
    this.#wanted = new WeakMap();
    for (const table of shape.dependencies.tables) {
      const shapes = this.#byTable.get(table);
      shapes?.delete(shape);
      if (shapes?.size === 0) this.#byTable.delete(table);
    }
  }

  /** Those whose answer may be another after the change. */
  *touchedBy(change: TableChanges): Iterable<Topic> {
    for (const shape of this.#byTable.get(tableKey(change.table)) ?? []) yield* shape.touchedBy(change);
  }

  /** Which columns of a table decide that, by position; null where nobody reads the table. */
  wanted(table: LoggedTable): readonly boolean[] | null {
    const cached = this.#wanted.get(table);
    if (cached !== undefined) return cached;
    const shapes = this.#byTable.get(tableKey(table));
    const probes = [...(shapes ?? [])].flatMap(({ dependencies: { probe } }) => probe ?? []);
    const wanted = shapes ? wantedColumns(table, probes) : null;
    this.#wanted.set(table, wanted);
    return wanted;
  }
}
