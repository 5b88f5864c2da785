/** The query as a form: fields through relations, and filter, order and limit of each level. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { FilterDraft, PathSelect } from '../filter/editor';
import { countRules } from '../filter/filter';
import { type Collection, fieldAt, isMoment, isNumber, type Model, typeLabel } from '../model';
import { Button, Icon } from '../ui';
import { AGGREGATES, EMPTY, type Level, type Node, type Query } from './query';

interface BuilderProps {
  readonly model: Model;
  readonly query: Query;
  readonly onChange: (query: Query) => void;
}

export function Builder({ model, query, onChange }: BuilderProps): JSX.Element {
  const collection = model.get(query.collection) as Collection;
  const setLevel = (level: Level): void => onChange({ ...query, level });
  const isGrouped = query.aggregates.length > 0 || query.groupBy.length > 0;
  return (
    <div class="builder">
      <Section title="Filter" count={countRules(query.level.filter)}>
        <FilterDraft
          model={model}
          collection={collection.name}
          group={query.level.filter}
          onChange={(filter) => setLevel({ ...query.level, filter })}
        />
      </Section>
      <Section title="Order and limit">
        <LevelOptions model={model} collection={collection} level={query.level} onChange={setLevel} />
      </Section>
      <Section title="Groups and aggregates" count={query.aggregates.length + query.groupBy.length} closed>
        <Groups model={model} query={query} onChange={onChange} />
      </Section>
      <Section title="Fields" note={isGrouped ? 'replaced by the groups above' : ''}>
        <FieldTree model={model} collection={collection} level={query.level} onChange={setLevel} depth={0} />
      </Section>
    </div>
  );
}

function Section(props: {
  readonly title: string;
  readonly note?: string;
  readonly count?: number;
  readonly closed?: boolean;
  readonly children: JSX.Element;
}): JSX.Element {
  return (
    <details open={!props.closed || (props.count ?? 0) > 0}>
      <summary>
        {props.title} {props.count ? <span class="badge">{props.count}</span> : null}
        {props.note && <small>{props.note}</small>}
      </summary>
      {props.children}
    </details>
  );
}

interface TreeProps {
  readonly model: Model;
  readonly collection: Collection;
  readonly level: Level;
  readonly onChange: (level: Level) => void;
  readonly depth: number;
}

function FieldTree({ model, collection, level, onChange, depth }: TreeProps): JSX.Element {
  const chosen = new Map(level.fields.map((node) => [node.name, node]));
  const set = (name: string, node: Node | null): void => {
    const others = level.fields.filter((each) => each.name !== name);
    const at = level.fields.findIndex((each) => each.name === name);
    const fields = node === null ? others : at < 0 ? [...level.fields, node] : level.fields.with(at, node);
    onChange({ ...level, fields });
  };
  return (
    <ul class="tree">
      {[...collection.fields.values()].map((field) => {
        const node = chosen.get(field.name);
        const { relation } = field;
        const target = relation && relation.kind !== 'any' ? model.get(relation.to) : undefined;
        const call = relation?.kind === 'many' ? 'count' : isMoment(field) && field.type !== 'time' ? 'year' : null;
        return (
          <li key={field.name}>
            {target && target.keys.length > 0 ? (
              <Branch
                model={model}
                name={field.name}
                type={typeLabel(field)}
                target={target}
                node={node ?? null}
                isMany={relation?.kind === 'many'}
                onChange={(next) => set(field.name, next)}
                depth={depth}
              />
            ) : (
              <label>
                <input
                  type="checkbox"
                  checked={node !== undefined}
                  onChange={() => set(field.name, node ? null : { name: field.name, level: null })}
                />
                <span>{field.name}</span>
                <small>{typeLabel(field)}</small>
              </label>
            )}
            {call && chosen.has(`${call}(${field.name})`) && (
              <label>
                <input type="checkbox" checked onChange={() => set(`${call}(${field.name})`, null)} />
                <span>
                  {call}({field.name})
                </span>
              </label>
            )}
          </li>
        );
      })}
    </ul>
  );
}

interface BranchProps {
  readonly model: Model;
  readonly name: string;
  readonly target: Collection;
  readonly node: Node | null;
  readonly type: string;
  readonly isMany: boolean;
  readonly onChange: (node: Node | null) => void;
  readonly depth: number;
}

function Branch({ model, name, type, target, node, isMany, onChange, depth }: BranchProps): JSX.Element {
  const [open, setOpen] = useState(node?.level !== null && node !== null);
  const level = node?.level ?? EMPTY;
  const count = level.fields.length;
  return (
    <>
      <button type="button" class="branch" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name={open ? 'down' : 'right'} />
        <span>{name}</span>
        {count > 0 && <span class="badge">{count}</span>}
        <small>{type}</small>
      </button>
      {open && depth < 5 && (
        <div class="branch-body">
          <FieldTree
            model={model}
            collection={target}
            level={level}
            onChange={(next) => onChange(next.fields.length === 0 ? null : { name, level: next })}
            depth={depth + 1}
          />
          {isMany && count > 0 && (
            <LevelOptions
              model={model}
              collection={target}
              level={level}
              onChange={(next) => onChange({ name, level: next })}
            />
          )}
        </div>
      )}
    </>
  );
}

function LevelOptions({ model, collection, level, onChange }: Omit<TreeProps, 'depth'>): JSX.Element {
  const first = sortedFirst(collection, level);
  const setSort = (at: number, entry: string | null): void =>
    onChange({
      ...level,
      sort: entry === null ? level.sort.filter((_, index) => index !== at) : level.sort.with(at, entry),
    });
  return (
    <div class="level-options">
      {level.sort.map((entry, at) => {
        const isDown = entry.startsWith('-');
        const path = entry.replace(/^-/, '');
        return (
          <div class="row nowrap" key={at}>
            <PathSelect
              model={model}
              collection={collection.name}
              path={path}
              onChange={(next) => setSort(at, `${isDown ? '-' : ''}${next}`)}
            />
            <select
              aria-label="Direction"
              value={isDown ? 'down' : 'up'}
              onChange={(event) => setSort(at, `${event.currentTarget.value === 'down' ? '-' : ''}${path}`)}
            >
              <option value="up">ascending</option>
              <option value="down">descending</option>
            </select>
            <Button label="Remove" icon="close" kind="quiet" compact onClick={() => setSort(at, null)} />
          </div>
        );
      })}
      <div class="adders">
        <Button
          label="Sort by"
          icon="plus"
          kind="quiet"
          onClick={() => onChange({ ...level, sort: [...level.sort, `-${first}`] })}
        />
        <label class="limit">
          Limit
          <input
            type="number"
            min={-1}
            value={level.limit ?? ''}
            placeholder="100"
            onInput={(event) => {
              const text = event.currentTarget.value;
              onChange({ ...level, limit: text === '' ? null : Number(text) });
            }}
          />
        </label>
      </div>
    </div>
  );
}

/** Suggests a selected number or date as the sort field, otherwise the first column. */
function sortedFirst(collection: Collection, level: Level): string {
  const read = level.fields.flatMap(({ name }) => collection.fields.get(name) ?? []);
  const taken = level.sort.map((each) => each.replace(/^-/, ''));
  const ranked = read.find(
    (field) => !field.isKey && !taken.includes(field.name) && (isNumber(field) || isMoment(field)),
  );
  return (ranked ?? [...collection.fields.values()].find((field) => field.column))?.name ?? '';
}

export function Groups({ model, query, onChange }: BuilderProps): JSX.Element {
  const collection = model.get(query.collection) as Collection;
  const columns = [...collection.fields.values()].filter((field) => field.column).map((field) => field.name);
  const [first = ''] = columns;
  /** `count` counts items; every other function needs a column. */
  const suited = (name: string, field: string): string => {
    if (name === 'count' || field !== '*') return field;
    return [...collection.fields.values()].find((each) => each.column && !each.isKey && isNumber(each))?.name ?? first;
  };
  return (
    <div class="level-options">
      {query.groupBy.map((field, at) => (
        <div class="row nowrap" key={at}>
          <span>by</span>
          <GroupSelect
            model={model}
            collection={query.collection}
            group={field}
            onChange={(next) => onChange({ ...query, groupBy: query.groupBy.with(at, next) })}
          />
          <Button
            label="Remove"
            icon="close"
            kind="quiet"
            compact
            onClick={() => onChange({ ...query, groupBy: query.groupBy.filter((_, index) => index !== at) })}
          />
        </div>
      ))}
      {query.aggregates.map((aggregate, at) => (
        <div class="row nowrap" key={at}>
          <select
            aria-label="Aggregate"
            value={aggregate.name}
            onChange={(event) => {
              const name = event.currentTarget.value;
              const field = suited(name, aggregate.field);
              onChange({ ...query, aggregates: query.aggregates.with(at, { name, field }) });
            }}
          >
            {AGGREGATES.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
          <select
            aria-label="Aggregated field"
            value={aggregate.field}
            onChange={(event) =>
              onChange({
                ...query,
                aggregates: query.aggregates.with(at, { ...aggregate, field: event.currentTarget.value }),
              })
            }
          >
            {(aggregate.name === 'count' ? ['*', ...columns] : columns).map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
          <Button
            label="Remove"
            icon="close"
            kind="quiet"
            compact
            onClick={() => onChange({ ...query, aggregates: query.aggregates.filter((_, index) => index !== at) })}
          />
        </div>
      ))}
      <div class="adders">
        <Button
          label="Group by"
          icon="plus"
          kind="quiet"
          onClick={() => onChange({ ...query, groupBy: [...query.groupBy, first] })}
        />
        <Button
          label="Aggregate"
          icon="plus"
          kind="quiet"
          onClick={() => onChange({ ...query, aggregates: [...query.aggregates, { name: 'count', field: '*' }] })}
        />
      </div>
    </div>
  );
}

const MOMENT_PARTS = ['year', 'month', 'week', 'day', 'weekday', 'hour', 'minute', 'second'];

interface GroupSelectProps {
  readonly model: Model;
  readonly collection: string;
  readonly group: string;
  readonly onChange: (group: string) => void;
}

/** A field, and of dates and times the part by which they are grouped: `year(published_at)`. */
function GroupSelect({ model, collection, group, onChange }: GroupSelectProps): JSX.Element {
  const [, part = '', path = group] = /^(\w+)\((.+)\)$/.exec(group) ?? [];
  const field = fieldAt(model, collection, path);
  return (
    <>
      <PathSelect model={model} collection={collection} path={path} onChange={onChange} />
      {field && isMoment(field) && (
        <select
          aria-label="Part of the date"
          value={part}
          onChange={(event) => {
            const chosen = event.currentTarget.value;
            onChange(chosen === '' ? path : `${chosen}(${path})`);
          }}
        >
          <option value="">the value</option>
          {MOMENT_PARTS.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      )}
    </>
  );
}
