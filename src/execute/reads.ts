/**
 * Runs reads. A shape is planned, compiled and checked with PostgreSQL's grammar once; from then on a request of that shape
 * only binds its values. Statements belong to the model they were compiled for.
 */
import { LRUCache } from 'lru-cache';
import { compileRead } from '../compile/read.js';
import { fromDatabase, isStaleModel } from '../errors.js';
import type { Model } from '../mirror/model.js';
import type { Mirror } from '../mirror/watch.js';
import type { Observer } from '../observe.js';
import type { ReadPlan } from '../plan/plan.js';
import { type PlanLimits, planRead } from '../plan/read.js';
import type { Parsed } from '../request/ast.js';
import { bind, type Caller } from '../sql/parameter.js';
import type { Statement } from '../sql/statement.js';
import { verify } from '../sql/verify.js';
import type { Database } from './database.js';

export interface Compiled {
  readonly statement: Statement;
  readonly result: ReadPlan['result'];
  readonly stream: boolean;
}

export class Reads {
  readonly #database: Database;
  readonly #mirror: Mirror;
  readonly #limits: PlanLimits;
  readonly #observe: Observer;
  readonly #shapes: LRUCache<string, Compiled>;

  constructor(database: Database, mirror: Mirror, limits: PlanLimits, shapes: number, observe: Observer) {
    this.#database = database;
    this.#mirror = mirror;
    this.#limits = limits;
    this.#observe = observe;
    this.#shapes = new LRUCache({ max: shapes });
    mirror.onChange(() => this.#shapes.clear());
  }

  compile(parsed: Parsed): Compiled {
    const known = this.#shapes.get(parsed.shape);
    if (known) return known;
    const start = performance.now();
    const { model } = this.#mirror;
    const plan = planRead(parsed.request, model, this.#limits);
    const statement = compileRead(plan);
    verify(statement.text, 'SelectStmt', (schema, name) => isOurs(model, schema, name));
    const compiled = { statement, result: plan.result, stream: plan.stream };
    this.#shapes.set(parsed.shape, compiled);
    this.#observe({
      kind: 'shape-compiled',
      shape: parsed.shape,
      text: statement.text,
      milliseconds: performance.now() - start,
    });
    return compiled;
  }

  /** The body of the response; null when there is no such item. */
  async run(parsed: Parsed, compiled: Compiled, caller: Caller): Promise<Buffer | null> {
    const use = compiled.result === 'item' ? 'key' : 'query';
    try {
      return await this.#send(parsed, compiled, caller);
    } catch (error) {
      if (!isStaleModel(error)) throw fromDatabase(error, use);
    }
    // The structure changed under us before word of it arrived: read it again, then ask once more.
    await this.#mirror.reload();
    const current = this.compile(parsed);
    try {
      return await this.#send(parsed, current, caller);
    } catch (error) {
      throw fromDatabase(error, use);
    }
  }

  #send(parsed: Parsed, compiled: Compiled, caller: Caller): Promise<Buffer | null> {
    const { text, parameters } = compiled.statement;
    return this.#database.cell(text, bind(parameters, parsed.values, caller));
  }
}

function isOurs(model: Model, schema: string, name: string): boolean {
  const collection = model.collections.get(name);
  return collection !== undefined && collection.schema === schema;
}
