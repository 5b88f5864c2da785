/** Creates a relation of any kind with its columns and tables, or changes one: the effect of deletions, and the list on the other side. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call } from '../api';
import type { Collection, Field, Model } from '../model';
import { ChangeForm, Check, Choice, TextField } from './form';
import { planRelation, type RelationDraft, type RelationKind, suggestedNames } from './relation-plan';
import { NewTables } from './review';
import { ReviewedForm } from './reviewed-form';

const KINDS: readonly (readonly [RelationKind, string])[] = [
  ['m2o', 'many-to-one: an item here refers to one there'],
  ['o2o', 'one-to-one: each item refers to at most one'],
  ['o2m', 'one-to-many: items there refer to one here'],
  ['m2m', 'many-to-many: through a junction table'],
  ['m2a', 'many-to-any: to items of several collections'],
];

const ON_DELETE: readonly (readonly [string, string])[] = [
  ['SET NULL', 'empty the field'],
  ['CASCADE', 'delete this item too'],
  ['NO ACTION', 'refuse to delete it'],
  ['RESTRICT', 'refuse to delete it, at once'],
  ['SET DEFAULT', 'set the default'],
];

interface CreateProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly onClose: () => void;
}

/** System collections that items refer to. */
const SYSTEM_TARGETS = /_(users|files|folders|roles)$/;

function targetsOf(model: Model, kind: RelationKind): readonly string[] {
  const all = [...model.values()].filter(({ key, isView }) => key !== null && !isView);
  const own = all.filter(({ system }) => !system);
  // The column of a one-to-many relation belongs to the other table.
  const system = kind === 'o2m' ? [] : all.filter((each) => each.system && SYSTEM_TARGETS.test(each.name));
  return [...own, ...system].map(({ name }) => name);
}

export function CreateRelation({ collection, model, onClose }: CreateProps): JSX.Element {
  const [typed, setTyped] = useState<Partial<RelationDraft>>({});
  const { kind = 'm2o' } = typed;
  const targets = targetsOf(model, kind);
  const to = typed.to !== undefined && targets.includes(typed.to) ? typed.to : (targets[0] ?? '');
  const draft: RelationDraft = {
    among: [],
    sorted: false,
    onDelete: 'SET NULL',
    ...suggestedNames({ ...typed, kind, to }, collection, model),
    ...typed,
    kind,
    to,
  };
  const set = (change: Partial<RelationDraft>): void => setTyped({ ...typed, ...change });
  const body = planRelation(draft, collection, model);
  const isIncomplete =
    draft.field.trim() === '' || (kind === 'm2a' ? draft.among.length === 0 : to === '' || isBackMissing(draft));
  return (
    <ReviewedForm
      title={`New relation of ${collection.name}`}
      path="/schema/changes"
      body={body}
      isIncomplete={isIncomplete}
      createLabel="Create relation"
      done={`${draft.field} was added`}
      onClose={onClose}
      summary={<NewTables body={body} />}
    >
      <RelationInputs draft={draft} set={set} targets={targets} collection={collection} />
    </ReviewedForm>
  );
}

/** The reference of a one-to-many relation is a column, so it needs a name. */
function isBackMissing({ kind, back }: RelationDraft): boolean {
  return kind === 'o2m' && back.trim() === '';
}

interface InputsProps {
  readonly draft: RelationDraft;
  readonly set: (change: Partial<RelationDraft>) => void;
  readonly targets: readonly string[];
  readonly collection: Collection;
}

function RelationInputs({ draft, set, targets, collection: { name } }: InputsProps): JSX.Element {
  const { kind } = draft;
  const hasJunction = kind === 'm2m' || kind === 'm2a';
  const holdsColumn = kind === 'm2o' || kind === 'o2o';
  return (
    <>
      <Choice label="Kind" value={kind} onInput={(next) => set({ kind: next as RelationKind })} among={KINDS} />
      {kind === 'm2a' ? (
        <fieldset class="field targets">
          <legend>Related collections</legend>
          <div>
            {targets.map((each) => (
              <Check
                key={each}
                label={each}
                checked={draft.among.includes(each)}
                onChange={(checked) =>
                  set({ among: checked ? [...draft.among, each] : draft.among.filter((other) => other !== each) })
                }
              />
            ))}
          </div>
          {draft.among.length === 0 && <small class="quiet">Choose at least one.</small>}
        </fieldset>
      ) : (
        <Choice
          label="Related collection"
          value={draft.to}
          onInput={(to) => set({ to })}
          among={targets.map((each) => [each, each])}
        />
      )}
      <TextField
        label="Name"
        value={draft.field}
        onInput={(field) => set({ field })}
        note={
          holdsColumn ? `A new column of ${name} with the key of an item` : `A field of ${name} that lists the items`
        }
      />
      {kind === 'o2m' && (
        <TextField
          label={`Column of ${draft.to}`}
          value={draft.back}
          onInput={(back) => set({ back })}
          note={`A new column with the key of an item of ${name}`}
        />
      )}
      {hasJunction && (
        <TextField
          label="Junction table"
          value={draft.junction}
          onInput={(junction) => set({ junction })}
          note="A new table. Its rows are deleted with the items that they connect"
        />
      )}
      {kind === 'o2o' ? (
        <TextField
          label="Field on the other side"
          value={draft.back}
          onInput={(back) => set({ back })}
          note={`Optional: a field of ${draft.to} with the item of ${name}`}
        />
      ) : (
        (kind === 'm2o' || kind === 'm2m') && <BackList back={draft.back} setBack={(back) => set({ back })} />
      )}
      {hasJunction ? (
        <Check
          label="items have an order (in a column named sort)"
          checked={draft.sorted}
          onChange={(sorted) => set({ sorted })}
        />
      ) : (
        <OnDelete onDelete={draft.onDelete} setOnDelete={(onDelete) => set({ onDelete })} />
      )}
    </>
  );
}

interface RelationObject {
  readonly schema: { readonly on_delete: string } | null;
  readonly meta: { readonly one_field: string | null };
}

interface ChangeProps {
  readonly field: Field;
  readonly onClose: () => void;
}

export function ChangeRelation({ field, onClose }: ChangeProps): JSX.Element | null {
  const path = `/relations/${encodeURIComponent(field.collection)}/${encodeURIComponent(field.name)}`;
  const [before, setBefore] = useState<RelationObject | null>(null);
  const [onDelete, setOnDelete] = useState('');
  const [back, setBack] = useState('');
  useEffect(() => {
    call<RelationObject>('GET', path).then(({ data }) => {
      setBefore(data);
      setOnDelete(data.schema?.on_delete ?? '');
      setBack(data.meta.one_field ?? '');
    }, onClose);
  }, []);
  if (!before) return null;
  const save = async (): Promise<void> => {
    const list = back === '' ? null : back;
    await call('PATCH', path, {
      body: {
        ...(before.schema && before.schema.on_delete !== onDelete ? { schema: { on_delete: onDelete } } : {}),
        ...(before.meta.one_field === list ? {} : { meta: { one_field: list } }),
      },
    });
  };
  return (
    <ChangeForm title={`Relation ${field.name}`} onClose={onClose} onSave={save} done={`${field.name} was changed`}>
      {before.schema && <OnDelete onDelete={onDelete} setOnDelete={setOnDelete} />}
      <BackList back={back} setBack={setBack} />
    </ChangeForm>
  );
}

function OnDelete(props: { readonly onDelete: string; readonly setOnDelete: (action: string) => void }): JSX.Element {
  return (
    <Choice
      label="When the other item is deleted"
      value={props.onDelete}
      onInput={props.setOnDelete}
      among={ON_DELETE}
    />
  );
}

function BackList(props: { readonly back: string; readonly setBack: (name: string) => void }): JSX.Element {
  return (
    <TextField
      label="List on the other side"
      value={props.back}
      onInput={props.setBack}
      note="Optional: a field of the related collection that lists the items referring to it"
    />
  );
}
