/** The fields of an item in a form, and its lists below. All changes belong to one payload. */
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { Collection, Field, Model } from '../../model';
import { href } from '../../state';
import { Button, Icon } from '../../ui';
import type { Edits, ItemPath, Row } from '../edits';
import { isFiles } from '../file-input';
import { FieldRow, isRequired, payloadValue } from '../form';
import { fieldsNamedBy, keyOf, targetOf } from '../item';
import { NestedGrid } from '../nested';
import { titleFirst } from '../source';
import type { Entered } from '../values';
import { addressOfRecord } from './address';

interface FieldsProps {
  readonly collection: Collection;
  readonly model: Model;
  /** Empty for a new item. */
  readonly row: Row;
  readonly path: ItemPath;
  readonly edits: Edits | null;
  readonly isNew?: boolean;
  /** Messages about entered texts that are not values of their fields. */
  readonly wrong: Readonly<Record<string, string>>;
  readonly onWrong: (wrong: Readonly<Record<string, string>>) => void;
  /** Grows when saved values have changed. */
  readonly reloads: number;
  /** The key of the version that is shown, or an empty text. */
  readonly version?: string;
}

export function RecordFields(props: FieldsProps): JSX.Element {
  const { collection, model, row, path, edits, isNew = false, reloads, version = '' } = props;
  const all = useMemo(() => titleFirst(collection), [collection]);
  const held = new Set(all.flatMap(({ columns }) => columns));
  const single = all.filter((field) => isShown(field, held, isNew));
  const lists = all.filter(({ relation, hidden }) => relation?.kind === 'many' && !hidden && model.has(relation.to));
  // A new object when the item was saved, so that the lists load again.
  const parent = useMemo(() => ({ ...row }), [row, reloads]);
  return (
    <>
      <div class="record-fields">
        {single.map((field) => (
          <RecordField key={field.name} {...props} field={field} isNew={isNew} />
        ))}
      </div>
      {version === '' &&
        lists.map((field) => (
          <div class="record-list" key={field.name}>
            <NestedGrid
              model={model}
              collection={collection}
              field={field}
              row={parent}
              value={undefined}
              parent={path}
              edits={edits}
              isNew={isNew}
              depth={1}
            />
          </div>
        ))}
      {version !== '' && lists.length > 0 && (
        <p class="quiet">
          Lists are not shown for a version. To change {lists.map(({ name }) => name).join(', ')}, choose the published
          item above.
        </p>
      )}
    </>
  );
}

function isShown(field: Field, held: ReadonlySet<string>, isNew: boolean): boolean {
  if (field.relation?.kind === 'many') return false;
  if (field.relation?.kind === 'one' && field.relation.by !== null) return !isNew;
  if (held.has(field.name) && !field.isKey) return false;
  if (isNew && (field.readonly || field.column?.has_auto_increment)) return false;
  return field.column !== null || field.relation !== null;
}

function RecordField(props: FieldsProps & { readonly field: Field; readonly isNew: boolean }): JSX.Element {
  const { collection, model, row, path, edits, isNew, wrong, onWrong, field } = props;
  const edit = edits?.find(path, field.name);
  const value = edit ? edit.shown : row[field.name];
  const isFixed =
    edits === null ||
    field.readonly ||
    (field.isKey && !isNew) ||
    (field.relation?.kind === 'one' && field.relation.by !== null);
  const id = `record-${field.name}`;
  const by = field.relation?.kind === 'any' ? (field.relation.by ?? '') : '';
  const to = targetOf(field, { [by]: (edits?.find(path, by) ?? { shown: row[by] }).shown });
  const change = (entered: Entered): void => {
    const { [field.name]: _, ...others } = wrong;
    onWrong('error' in entered ? { ...others, [field.name]: entered.error } : others);
    if (!('value' in entered) || !edits) return;
    const isEmpty = entered.value === null || entered.value === '';
    const saved = payloadValue(row[field.name], model, to);
    const isSame = textOf(payloadValue(entered.value, model, to)) === textOf(saved);
    if (!isNew) edits.note(path, field.name, saved);
    if (isNew ? !isEmpty : !isSame) edits.type(path, field.name, payloadValue(entered.value, model, to), entered.value);
    else if (edit) edits.reset(path, field.name);
    // An item of the former collection is not one of the new collection.
    for (const { name } of fieldsNamedBy(collection, field.name))
      if (isNew || isSame) edits.reset(path, name);
      else edits.set(path, name, null);
  };
  // The input of a file has a button to remove it.
  const target = to === null ? undefined : model.get(to);
  const isFile = target !== undefined && isFiles(target);
  const mayClear = !isFixed && !isNew && !isFile && field.column?.is_nullable === true && (value ?? null) !== null;
  return (
    <FieldRow
      id={id}
      field={field}
      model={model}
      value={value}
      to={to}
      required={!isFixed && isRequired(field, collection)}
      error={wrong[field.name] ?? edits?.errorAt(path, field.name)}
      disabled={isFixed}
      isEdited={edit !== undefined}
      onChange={change}
    >
      <RelatedLink field={field} value={value} model={model} to={to} />
      {mayClear && (
        <Button
          label={`Set ${field.name} to null`}
          icon="close"
          kind="quiet"
          compact
          onClick={() => change({ value: null })}
        />
      )}
      {edit && !isNew && (
        <Button
          label={`Undo the change of ${field.name}`}
          icon="undo"
          kind="quiet"
          compact
          onClick={() => {
            change({ value: row[field.name] ?? null });
          }}
        />
      )}
    </FieldRow>
  );
}

function textOf(value: unknown): string {
  return JSON.stringify(value ?? null);
}

interface LinkProps {
  readonly field: Field;
  readonly value: unknown;
  readonly model: Model;
  readonly to: string | null;
}

/** Opens the related item. */
function RelatedLink({ field, value, model, to: target }: LinkProps): JSX.Element | null {
  const to = target === null ? undefined : model.get(target);
  const key = to && value !== null && value !== undefined ? keyOf(value, model, to.name) : undefined;
  if (!to?.hasItems || to.keys.length === 0 || key === undefined) return null;
  const address = to.name === field.collection ? addressOfRecord(to.name, key) : href('data', [to.name, String(key)]);
  return (
    <a class="button quiet compact" href={address} aria-label={`Open the item of ${field.name}`} title="Open it">
      <Icon name="open" />
    </a>
  );
}
