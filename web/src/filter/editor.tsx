/** Edits a filter: rules in groups, of which all or any must hold. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Field, fieldAt, type Model } from '../model';
import { Button } from '../ui';
import {
  exampleOf,
  type Group,
  isChosen,
  OPERATORS,
  operatorsFor,
  parseValue,
  type Rule,
  takesValue,
  toJson,
  valueFor,
  valueText,
} from './filter';

export interface FilterEditorProps {
  readonly model: Model;
  readonly collection: string;
  readonly group: Group;
  readonly onChange: (group: Group) => void;
  readonly depth?: number;
}

/** Incomplete rules stay in the editor; only complete rules apply. */
export function FilterDraft({
  atOnce = false,
  ...props
}: FilterEditorProps & { readonly atOnce?: boolean }): JSX.Element {
  const [draft, setDraft] = useState(props.group);
  const given = JSON.stringify(toJson(props.group));
  const sent = useRef(given);
  // The latest callback, so that other changes in the meantime stay.
  const onChange = useRef(props.onChange);
  onChange.current = props.onChange;
  useEffect(() => {
    // Another part of the page has changed the filter.
    if (given !== sent.current) setDraft(props.group);
    sent.current = given;
  }, [given]);
  useEffect(() => {
    const made = JSON.stringify(toJson(draft));
    if (made === given || atOnce) return;
    const wait = setTimeout(() => {
      sent.current = made;
      onChange.current(draft);
    }, 200);
    return () => clearTimeout(wait);
  }, [draft]);
  const change = (next: Group): void => {
    setDraft(next);
    if (!atOnce) return;
    sent.current = JSON.stringify(toJson(next));
    props.onChange(next);
  };
  return <FilterEditor {...props} group={draft} onChange={change} />;
}

function FilterEditor({ model, collection, group, onChange, depth = 0 }: FilterEditorProps): JSX.Element {
  const replace = (at: number, entry: Rule | Group | null): void =>
    onChange({
      ...group,
      entries: entry ? group.entries.with(at, entry) : group.entries.filter((_, index) => index !== at),
    });
  const add = (entry: Rule | Group): void => onChange({ ...group, entries: [...group.entries, entry] });
  const first = [...(model.get(collection)?.fields.values() ?? [])].find((field) => field.column && !field.isKey);
  const operator = operatorsFor(first ?? null)[0] ?? '_eq';
  const value = valueFor(first ?? null, null, operator, '');
  const fresh: Rule = { kind: 'rule', path: first?.name ?? '', operator, value };
  return (
    <div class={`filter-group${depth > 0 ? ' nested' : ''}`} role="group" aria-label="Filter">
      {group.entries.length === 0 && depth === 0 && <p class="quiet filter-none">No rules: every item matches.</p>}
      {group.entries.length > 1 && (
        <label class="filter-join">
          <select
            aria-label="How the rules of this group are joined"
            value={group.join}
            onChange={(event) => onChange({ ...group, join: event.currentTarget.value as Group['join'] })}
          >
            <option value="_and">All of these hold</option>
            <option value="_or">Any of these holds</option>
          </select>
        </label>
      )}
      {group.entries.map((entry, at) => (
        <div class="filter-entry" key={at}>
          {entry.kind === 'group' ? (
            <FilterEditor
              model={model}
              collection={collection}
              group={entry}
              onChange={(changed) => replace(at, changed)}
              depth={depth + 1}
            />
          ) : (
            <RuleEditor model={model} collection={collection} rule={entry} onChange={(rule) => replace(at, rule)} />
          )}
          <Button label="Remove" icon="close" kind="quiet" compact onClick={() => replace(at, null)} />
        </div>
      ))}
      <div class="adders">
        <Button label="Add rule" icon="plus" kind="quiet" onClick={() => add(fresh)} />
        {depth < 3 && (
          <Button
            label="Add group"
            icon="plus"
            kind="quiet"
            onClick={() => add({ kind: 'group', join: group.join === '_and' ? '_or' : '_and', entries: [fresh] })}
          />
        )}
      </div>
    </div>
  );
}

interface RuleProps extends Pick<FilterEditorProps, 'model' | 'collection'> {
  readonly rule: Rule;
  readonly onChange: (rule: Rule) => void;
}

function RuleEditor({ model, collection, rule, onChange }: RuleProps): JSX.Element {
  const field = fieldAt(model, collection, withoutQuantifiers(rule.path));
  const operators = operatorsFor(field);
  const choose = (path: string): void => {
    const next = fieldAt(model, collection, withoutQuantifiers(path));
    const suited = operatorsFor(next);
    const operator = suited.includes(rule.operator) ? rule.operator : (suited[0] ?? '_eq');
    onChange({ ...rule, path, operator, value: valueFor(next, field, operator, rule.value) });
  };
  return (
    <div class="filter-rule">
      <PathSelect model={model} collection={collection} path={rule.path} onChange={choose} />
      <select
        aria-label="Operator"
        value={rule.operator}
        onChange={(event) => {
          const operator = event.currentTarget.value;
          const value = takesValue(operator)
            ? parseValue(operator, valueText(rule.value === true ? '' : rule.value))
            : true;
          onChange({ ...rule, operator, value });
        }}
      >
        {[...new Set([rule.operator, ...operators])].map((each) => (
          <option key={each} value={each}>
            {OPERATORS[each] ?? each}
          </option>
        ))}
      </select>
      {takesValue(rule.operator) && <ValueInput field={field} rule={rule} onChange={onChange} />}
    </div>
  );
}

function ValueInput({
  field,
  rule,
  onChange,
}: {
  readonly field: Field | null;
  readonly rule: Rule;
  readonly onChange: (rule: Rule) => void;
}): JSX.Element {
  const { operator, value } = rule;
  if (field?.type === 'boolean')
    return (
      <select
        aria-label="Value"
        value={String(value)}
        onChange={(event) => onChange({ ...rule, value: event.currentTarget.value === 'true' })}
      >
        <option value="true">true</option>
        <option value="false">false</option>
      </select>
    );
  if (field && isChosen(field) && (operator === '_eq' || operator === '_neq')) {
    const isListed = field.choices.some((choice) => String(choice.value) === valueText(value));
    return (
      <select
        aria-label="Value"
        value={valueText(value)}
        onChange={(event) => onChange({ ...rule, value: event.currentTarget.value })}
      >
        {/* A rule of a policy may also have a variable such as $CURRENT_USER.title. */}
        {!isListed && <option value={valueText(value)}>{value === '' ? 'Choose…' : valueText(value)}</option>}
        {field.choices.map((choice) => (
          <option key={String(choice.value)} value={String(choice.value)}>
            {choice.text}
          </option>
        ))}
      </select>
    );
  }
  return (
    <input
      aria-label="Value"
      placeholder={exampleOf(field, operator)}
      value={valueText(value)}
      onInput={(event) => onChange({ ...rule, value: parseValue(operator, event.currentTarget.value) })}
    />
  );
}

function withoutQuantifiers(path: string): string {
  return path.replace(/\._(?:some|none)(?=\.|$)/g, '');
}

/** The fields of the collection, and of directly related collections. */
export function PathSelect({
  model,
  collection,
  path,
  onChange,
}: Pick<FilterEditorProps, 'model' | 'collection'> & {
  readonly path: string;
  readonly onChange: (path: string) => void;
}): JSX.Element {
  const own = [...(model.get(collection)?.fields.values() ?? [])];
  const groups = own.flatMap((field) => {
    const { relation } = field;
    if (!relation || relation.kind === 'any') return [];
    const inner = [...(model.get(relation.to)?.fields.values() ?? [])].filter((each) => each.column);
    return [{ label: field.name, paths: inner.map((each) => `${field.name}.${each.name}`) }];
  });
  const plain = own.map((field) => field.name);
  const known = plain.includes(path) || groups.some((group) => group.paths.includes(path));
  return (
    <select aria-label="Field" value={path} onChange={(event) => onChange(event.currentTarget.value)}>
      {!known && <option value={path}>{path}</option>}
      {plain.map((name) => (
        <option key={name} value={name}>
          {name}
        </option>
      ))}
      {groups.map((group) => (
        <optgroup key={group.label} label={`${group.label} …`}>
          {group.paths.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </optgroup>
      ))}
    </select>
  );
}
