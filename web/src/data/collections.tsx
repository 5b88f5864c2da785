/** The list of collections, with a search and the number of items of each. */
import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, itemsPath } from '../api';
import type { Collection, Model } from '../model';
import { href } from '../state';
import { pendingOf } from './edits';
import { shortCount } from './values';

/** The number of items, or null if they could not be counted. */
const counts = signal<ReadonlyMap<string, number | null>>(new Map());
const asked = new Set<string>();
const waiting: string[] = [];
let running = 0;
/** The model that the counts belong to: callers with another model count other items. */
let counted: Model | null = null;
const MOST_AT_ONCE = 4;

export function forgetCounts(collection?: string): void {
  if (collection === undefined) asked.clear();
  else asked.delete(collection);
  // The list asks again when it is drawn.
  counts.value = new Map(counts.value);
}

function ask(collection: Collection): void {
  // Counting a view would run it.
  if (asked.has(collection.name) || collection.singleton || collection.isView) return;
  asked.add(collection.name);
  waiting.push(collection.name);
  next();
}

function countFor(model: Model): void {
  if (counted === model) return;
  counted = model;
  asked.clear();
  waiting.length = 0;
  counts.value = new Map();
}

function next(): void {
  if (running >= MOST_AT_ONCE) return;
  const name = waiting.shift();
  if (name === undefined) return;
  running++;
  const model = counted;
  call<unknown>('SEARCH', itemsPath(name), { body: { query: { limit: 0, meta: ['estimated_count'] } } })
    .then(
      ({ meta: { estimated_count: count } }) => (typeof count === 'number' ? count : null),
      () => null,
    )
    .then((count) => {
      if (model === counted) counts.value = new Map([...counts.value, [name, count]]);
      running--;
      next();
    });
}

const ROW = 30;

export function CollectionList({ model, current }: { readonly model: Model; readonly current: string }): JSX.Element {
  const [typed, setTyped] = useState('');
  const [system, setSystem] = useState(false);
  const [scroll, setScroll] = useState({ top: 0, height: 800 });
  const box = useRef<HTMLDivElement>(null);
  const wanted = typed.trim().toLowerCase();
  const all = [...model.values()].filter((each) => each.system === system && each.hasItems);
  const found = all.filter(({ name }) => name.toLowerCase().includes(wanted));
  const first = Math.max(0, Math.floor(scroll.top / ROW) - 5);
  const last = Math.min(found.length, Math.ceil((scroll.top + scroll.height) / ROW) + 5);
  const shown = found.slice(first, last);
  useEffect(() => {
    countFor(model);
    for (const collection of shown) ask(collection);
  });
  useEffect(() => {
    if (model.get(current)?.system) setSystem(true);
    const element = box.current;
    if (!element) return;
    const measure = (): void => setScroll({ top: element.scrollTop, height: element.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const hasSystem = [...model.values()].some((each) => each.system);
  return (
    <aside class="sidebar" aria-label="Collections">
      <div class="side-search">
        <input
          type="search"
          aria-label="Search collections"
          placeholder={`Search ${all.length} collections`}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </div>
      <div
        class="side-list"
        ref={box}
        onScroll={({ currentTarget }) =>
          setScroll({ top: currentTarget.scrollTop, height: currentTarget.clientHeight })
        }
      >
        <nav aria-label="Collections" style={{ height: `${found.length * ROW}px` }}>
          {shown.map(({ name, note, singleton, isView }, offset) => (
            <a
              key={name}
              href={href('data', [name])}
              aria-current={name === current ? 'page' : undefined}
              title={note ?? name}
              style={{ top: `${(first + offset) * ROW}px` }}
            >
              <span>{name}</span>
              {pendingOf(name) > 0 && <span class="unsaved" title="Has unsaved changes" />}
              <small>{isView ? 'view' : singleton ? 'one' : countText(name)}</small>
            </a>
          ))}
        </nav>
        {found.length === 0 && (
          <p class="quiet side-none">
            {all.length === 0 ? 'You may not see any collection.' : 'No collection has this name.'}
          </p>
        )}
      </div>
      {hasSystem && (
        <label class="side-foot">
          <input type="checkbox" checked={system} onChange={() => setSystem(!system)} /> Collections of the service
        </label>
      )}
    </aside>
  );
}

function countText(name: string): string {
  const count = counts.value.get(name);
  return count === undefined || count === null ? '' : shortCount(count);
}
