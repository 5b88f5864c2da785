/** Creates or changes a field: type, default, constraints and note. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../api';
import type { Collection, Field } from '../model';
import { ChangeForm, Check, Choice, TextField } from './form';

const TYPES: readonly (readonly [string, string])[] = [
  ['string', 'string: short text'],
  ['text', 'text: of any length'],
  ['integer', 'integer'],
  ['bigInteger', 'bigInteger: large whole numbers'],
  ['decimal', 'decimal: exact, such as prices'],
  ['float', 'float: approximate'],
  ['boolean', 'boolean'],
  ['date', 'date'],
  ['time', 'time'],
  ['dateTime', 'dateTime: without a time zone'],
  ['timestamp', 'timestamp: with a time zone'],
  ['uuid', 'uuid'],
  ['json', 'json'],
];

interface FormProps {
  readonly collection: Collection;
  /** Absent for a new field. */
  readonly field?: Field;
  readonly onClose: () => void;
}

export function FieldForm({ collection, field, onClose }: FormProps): JSX.Element {
  const column = field?.column;
  const before = {
    name: field?.name ?? '',
    type: field?.type ?? 'string',
    initial: textOf(column?.default_value),
    length: textOf(column?.max_length),
    note: field?.note ?? '',
    required: column ? !column.is_nullable : false,
    unique: column?.is_unique ?? false,
    indexed: column?.is_indexed ?? false,
  };
  const [now, setNow] = useState(before);
  const set = (change: Partial<typeof before>): void => setNow({ ...now, ...change });
  const save = async (): Promise<void> => {
    const changed = (name: keyof typeof before): boolean => now[name] !== before[name];
    const schema = {
      ...(changed('required') ? { is_nullable: !now.required } : {}),
      ...(changed('unique') ? { is_unique: now.unique } : {}),
      ...(changed('indexed') ? { is_indexed: now.indexed } : {}),
      ...(changed('initial') ? { default_value: now.initial === '' ? null : now.initial } : {}),
      ...(changed('length') && now.type === 'string' && now.length !== '' ? { max_length: now.length } : {}),
    };
    const body = {
      ...(field ? {} : { field: now.name }),
      ...(!field || changed('type') ? { type: now.type } : {}),
      ...(changed('note') ? { meta: { note: now.note === '' ? null : now.note } } : {}),
      schema,
    };
    const path = `/fields/${encodeURIComponent(collection.name)}`;
    if (field) await call('PATCH', `${path}/${encodeURIComponent(field.name)}`, { body });
    else await call('POST', path, { body });
  };
  const types = TYPES.some(([type]) => type === before.type) ? TYPES : [[before.type, before.type] as const, ...TYPES];
  return (
    <ChangeForm
      title={field ? `Change ${field.name}` : `New field of ${collection.name}`}
      onClose={onClose}
      onSave={save}
      saveLabel={field ? 'Save' : 'Add field'}
      disabled={now.name.trim() === ''}
      done={field ? `${field.name} was changed` : `${now.name} was added`}
    >
      {!field && <TextField label="Name" value={now.name} onInput={(name) => set({ name })} />}
      <Choice
        label="Type"
        value={now.type}
        onInput={(type) => set({ type })}
        among={types}
        {...(field && now.type !== before.type
          ? { note: 'PostgreSQL converts the values. If one of them does not fit, nothing changes' }
          : {})}
      />
      {now.type === 'string' && (
        <TextField label="Maximum length" value={now.length} onInput={(length) => set({ length })} />
      )}
      <TextField
        label="Default"
        value={now.initial}
        onInput={(initial) => set({ initial })}
        note="A value, or an expression such as now()"
      />
      <TextField label="Note" value={now.note} onInput={(note) => set({ note })} note="Shown wherever the field is" />
      <div class="row">
        <Check label="required" checked={now.required} onChange={(required) => set({ required })} />
        <Check label="unique" checked={now.unique} onChange={(unique) => set({ unique })} />
        <Check label="indexed" checked={now.indexed} onChange={(indexed) => set({ indexed })} />
      </div>
    </ChangeForm>
  );
}

function textOf(value: unknown): string {
  return value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value);
}
