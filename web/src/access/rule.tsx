/** The rule of a policy for one action on one collection: its rows, fields and values. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import { FilterDraft } from '../filter/editor';
import { fromJson, toJson } from '../filter/filter';
import type { Model } from '../model';
import { toast } from '../state';
import { Button, countOf, Dialog, ErrorBox } from '../ui';
import { type Action, NO_PUBLIC, type Permission, type Policy } from './policies';
import { fromPresets, type Preset, PresetsEditor, toPresets } from './presets';

interface RuleProps {
  readonly policy: Policy;
  readonly model: Model;
  readonly collection: string;
  readonly action: Action;
  /** The permission, or null if nothing is allowed yet. */
  readonly permission: Permission | null;
  /** The number of further rules of the policy for this action. */
  readonly others: number;
  readonly onClose: () => void;
  readonly onSaved: () => Promise<void>;
}

export function RuleForm({
  policy,
  model,
  collection,
  action,
  permission,
  others,
  onClose,
  onSaved,
}: RuleProps): JSX.Element {
  const [rule, setRule] = useState(fromJson(permission?.permissions ?? null));
  const [validation, setValidation] = useState(fromJson(permission?.validation ?? null));
  const [fields, setFields] = useState<readonly string[]>(permission?.fields ?? ['*']);
  const [presets, setPresets] = useState<readonly Preset[]>(fromPresets(permission?.presets ?? null));
  const [error, setError] = useState<string | null>(null);
  const isWritten = action === 'create' || action === 'update';
  const target = model.get(collection);
  const all = [...(target?.fields.keys() ?? [])];
  const act = async (work: () => Promise<unknown>, done: string): Promise<void> => {
    try {
      await work();
      toast(done);
      await onSaved();
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  const save = (): Promise<void> => {
    const work = async (): Promise<unknown> => {
      const written =
        isWritten && target ? { validation: toJson(validation), presets: toPresets(presets, target) } : {};
      const made = { collection, action, permissions: toJson(rule), fields: [...fields], ...written };
      if (permission) return call('PATCH', `/permissions/${permission.id}`, { body: made });
      if (policy === NO_PUBLIC)
        return call('POST', '/access', { body: { role: null, policy: { name: policy.name, permissions: [made] } } });
      return call('POST', '/permissions', { body: { ...made, policy: policy.id } });
    };
    return act(work, `${policy.name}: ${action} ${collection} was saved`);
  };
  const revoke = (): Promise<void> =>
    act(
      () => call('DELETE', `/permissions/${permission?.id}`),
      `${policy.name}: ${action} ${collection} was withdrawn`,
    );
  return (
    <Dialog
      title={`${policy.name}: ${action} ${collection}`}
      kind="side"
      onClose={onClose}
      footer={
        <>
          {permission && <Button label="Withdraw" kind="danger" onClick={() => void revoke()} />}
          <span class="grow" />
          <Button label="Cancel" onClick={onClose} />
          <Button label={permission ? 'Save' : 'Allow'} kind="primary" onClick={() => void save()} />
        </>
      }
    >
      <div class="form">
        {error && <ErrorBox text={error} />}
        <section class="rule-part">
          <h3>Rows</h3>
          <p class="quiet">
            {action === 'create'
              ? 'Row rules do not apply to new items. Check their values below.'
              : toJson(rule) === null
                ? 'All rows. Add a rule to allow only some of them.'
                : 'Rows for which the rules hold.'}
          </p>
          {action !== 'create' && (
            <FilterDraft model={model} collection={collection} group={rule} onChange={setRule} atOnce />
          )}
        </section>
        {isWritten && (
          <section class="rule-part">
            <h3>Values</h3>
            <p class="quiet">
              {toJson(validation) === null
                ? 'All values. Add a rule to check written values.'
                : 'Written values must satisfy the rules.'}
            </p>
            <FilterDraft model={model} collection={collection} group={validation} onChange={setValidation} atOnce />
          </section>
        )}
        {action !== 'delete' && <FieldsPart all={all} fields={fields} onChange={setFields} />}
        {isWritten && target && (
          <section class="rule-part">
            <h3>Presets</h3>
            <p class="quiet">Values of fields that a request leaves out.</p>
            <PresetsEditor collection={target} presets={presets} onChange={setPresets} />
          </section>
        )}
        {others > 0 && (
          <p class="quiet">The policy has {countOf(others, 'more rule')} for this action. Permissions add up.</p>
        )}
      </div>
    </Dialog>
  );
}

interface FieldsProps {
  readonly all: readonly string[];
  readonly fields: readonly string[];
  readonly onChange: (fields: readonly string[]) => void;
}

function FieldsPart({ all, fields, onChange }: FieldsProps): JSX.Element {
  const isEvery = fields.includes('*');
  const toggle = (name: string): void =>
    onChange(fields.includes(name) ? fields.filter((each) => each !== name) : [...fields, name]);
  return (
    <section class="rule-part">
      <h3>Fields</h3>
      <label class="row">
        <input type="checkbox" checked={isEvery} onChange={() => onChange(isEvery ? all : ['*'])} /> all fields, also
        those that are added later
      </label>
      {!isEvery && (
        <div class="rule-fields">
          {all.map((name) => (
            <label class="row" key={name}>
              <input type="checkbox" checked={fields.includes(name)} onChange={() => toggle(name)} />
              {name}
            </label>
          ))}
        </div>
      )}
    </section>
  );
}
