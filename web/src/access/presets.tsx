/** The presets of a permission: values for fields that a payload leaves out. */
import type { JSX } from 'preact';
import { editText, readEntered } from '../data/values';
import type { Collection } from '../model';
import { Button } from '../ui';

export interface Preset {
  readonly field: string;
  readonly text: string;
}

export function fromPresets(presets: Readonly<Record<string, unknown>> | null): Preset[] {
  return Object.entries(presets ?? {}).map(([field, value]) => ({
    field,
    text: value === null ? 'null' : editText(value),
  }));
}

/** Returns null if there are none. A text that does not fit its field is an error. */
export function toPresets(
  presets: readonly Preset[],
  collection: Collection,
): Readonly<Record<string, unknown>> | null {
  const entries = presets.flatMap(({ field, text }): [string, unknown][] =>
    field === '' ? [] : [[field, readPreset(field, text, collection)]],
  );
  return entries.length === 0 ? null : Object.fromEntries(entries);
}

function readPreset(name: string, text: string, { fields }: Collection): unknown {
  const field = fields.get(name);
  if (text === 'null') return null;
  // A variable fits every type; related items are written as JSON.
  if (text.startsWith('$') || !field) return text;
  if (/^[[{]/.test(text) && field.relation) return parsed(name, text);
  const entered = readEntered(text, field);
  if ('error' in entered) throw new Error(`The preset of ${name} ${entered.error}.`);
  return entered.value;
}

function parsed(name: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`The preset of ${name} must be JSON.`);
  }
}

interface PresetsProps {
  readonly collection: Collection;
  readonly presets: readonly Preset[];
  readonly onChange: (presets: readonly Preset[]) => void;
}

export function PresetsEditor({ collection, presets, onChange }: PresetsProps): JSX.Element {
  const names = [...collection.fields.values()].filter((field) => !field.readonly).map(({ name }) => name);
  const replace = (at: number, changed: Preset | null): void =>
    onChange(presets.flatMap((each, index) => (index === at ? (changed ? [changed] : []) : [each])));
  return (
    <div class="presets" role="group" aria-label="Presets">
      {presets.map((preset, at) => (
        <div class="preset" key={at}>
          <select
            aria-label="Field of the preset"
            value={preset.field}
            onChange={(event) => replace(at, { ...preset, field: event.currentTarget.value })}
          >
            {[...new Set([preset.field, ...names])].map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
          <input
            aria-label={`Preset of ${preset.field}`}
            placeholder="value or $CURRENT_USER"
            spellcheck={false}
            value={preset.text}
            onInput={(event) => replace(at, { ...preset, text: event.currentTarget.value })}
          />
          <Button label="Remove" icon="close" kind="quiet" compact onClick={() => replace(at, null)} />
        </div>
      ))}
      <div class="adders">
        <Button
          label="Add preset"
          icon="plus"
          kind="quiet"
          onClick={() => {
            const free = names.find((name) => !presets.some(({ field }) => field === name) && !isKey(name, collection));
            onChange([...presets, { field: free ?? names[0] ?? '', text: '' }]);
          }}
        />
      </div>
    </div>
  );
}

function isKey(name: string, { keys }: Collection): boolean {
  return keys.includes(name);
}
