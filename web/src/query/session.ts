/** The query of the pages Query and Plan: the address contains it, so a link does too. */
import { signal } from '@preact/signals';
import { call, itemsPath } from '../api';
import type { Model } from '../model';
import type { Explanation } from '../plan/plan';
import { href, route, whenForgotten } from '../state';
import { firstQuery, fromQueryJson, objectOf, type Query, toQueryJson } from './query';

export interface Past {
  readonly query: Query;
  readonly milliseconds: number;
  readonly rows: number;
}

/** In the memory of the page, because queries contain values. */
export const past = signal<readonly Past[]>([]);
const last = signal<Query | null>(null);
whenForgotten(() => {
  past.value = [];
  last.value = null;
});

export function addPast(entry: Past): void {
  const address = addressOf(entry.query);
  past.value = [entry, ...past.value.filter((each) => addressOf(each.query) !== address)].slice(0, 30);
}

export function currentQuery(model: Model): Query | null {
  const { rest, parameters } = route.value;
  const [name] = rest;
  if (name !== undefined && model.has(name)) {
    const json = parameters.get('q');
    const query = json === null ? firstQuery(name, model) : fromQueryJson(name, objectOf(json), model);
    last.value = query;
    return query;
  }
  if (last.value && model.has(last.value.collection)) return last.value;
  const first = [...model.values()].find((each) => !each.system);
  return first ? firstQuery(first.name, model) : null;
}

export function addressOf(query: Query, page = 'query'): string {
  return href(page, [query.collection], { q: JSON.stringify(toQueryJson(query)) });
}

/** The statement, its values and its plan, for administrators. `analyze` runs it. */
export async function explain(query: Query, analyze: boolean, signal?: AbortSignal): Promise<Explanation> {
  const { data } = await call<Explanation>('SEARCH', itemsPath(query.collection), {
    body: { query: toQueryJson(query) },
    headers: { Prefer: analyze ? 'explain=analyze' : 'explain' },
    ...(signal ? { signal } : {}),
  });
  return data;
}
