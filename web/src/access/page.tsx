/** Access: policies as a grid of collections and actions, the rules behind each cell, and the explanation of a decision (`Why?`). */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import type { Model } from '../model';
import { Check } from '../schema/form';
import { go, href, model as modelSignal, route, toast } from '../state';
import { Button, Empty, ErrorBox, FormDialog } from '../ui';
import './access.css';
import {
  ACTIONS,
  type Access,
  type Action,
  APP_ACCESS,
  type Extent,
  extentOf,
  holders,
  isPublic,
  listed,
  loadAccess,
  type Permission,
  type Policy,
} from './policies';
import { RuleForm } from './rule';
import { Why } from './why-form';

export function AccessPage(): JSX.Element {
  const model = modelSignal.value as Model;
  const [access, setAccess] = useState<Access | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [way, setWay] = useState<'policies' | 'why'>('policies');
  const [creating, setCreating] = useState(false);
  const load = async (): Promise<void> => {
    try {
      setAccess(await loadAccess());
      setError(null);
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  useEffect(() => void load(), []);
  if (error) return <ErrorBox text={error} onRetry={() => void load()} />;
  if (!access) return <p class="boot">Loading…</p>;
  const policies = listed(access);
  const [chosen] = route.value.rest;
  const choose = (id: string): void => go(href('access', id === '' ? [] : [id]));
  const policy = policies.find((each) => each.id === chosen) ?? policies[0];
  return (
    <div class="access">
      <header class="toolbar access-bar">
        <h1>Access</h1>
        <div class="tabs" role="tablist">
          {(['policies', 'why'] as const).map((each) => (
            <button key={each} type="button" role="tab" aria-selected={way === each} onClick={() => setWay(each)}>
              {each === 'policies' ? 'Policies' : 'Why?'}
            </button>
          ))}
        </div>
        <span class="grow" />
        {way === 'policies' && (
          <Button label="New policy" icon="plus" kind="primary" onClick={() => setCreating(true)} />
        )}
      </header>
      {way === 'why' ? (
        <Why access={access} model={model} />
      ) : (
        <div class="access-body">
          <nav aria-label="Policies" class="access-list">
            {policies.map((each) => (
              <button
                key={each.id}
                type="button"
                aria-current={each.id === policy?.id ? 'true' : undefined}
                onClick={() => choose(each.id)}
              >
                <strong>{each.name}</strong>
                <small>{each.admin_access ? `everything, for ${holders(each, access)}` : holders(each, access)}</small>
              </button>
            ))}
          </nav>
          {policy && <PolicyGrid policy={policy} access={access} model={model} onChanged={load} />}
        </div>
      )}
      {creating && (
        <CreatePolicy
          access={access}
          onClose={() => setCreating(false)}
          onMade={async (id) => {
            setCreating(false);
            await load();
            choose(id);
          }}
        />
      )}
    </div>
  );
}

const MOST_SHOWN = 200;

const EXTENTS: Readonly<Record<Extent, string>> = { none: 'no', some: 'by rule', all: 'all' };

interface GridProps {
  readonly policy: Policy;
  readonly access: Access;
  readonly model: Model;
  readonly onChanged: () => Promise<void>;
}

function PolicyGrid({ policy, access, model, onChanged }: GridProps): JSX.Element {
  const [open, setOpen] = useState<{ readonly collection: string; readonly action: Action } | null>(null);
  const [typed, setTyped] = useState('');
  const [withSystem, setWithSystem] = useState(false);
  if (policy.admin_access)
    return (
      <Empty title="This policy allows everything" icon="key">
        Rules do not restrict administrators.
      </Empty>
    );
  const granted = (collection: string, action: Action): Permission[] =>
    policy.permissions.filter((each) => each.collection === collection && each.action === action);
  const shown = [...model.values()].filter(
    ({ name, system }) =>
      name.toLowerCase().includes(typed.trim().toLowerCase()) &&
      (!system || withSystem || ACTIONS.some((action) => granted(name, action).length > 0)),
  );
  return (
    <div class="access-grid">
      <p>
        {policy.users.length === 0 ? (
          <>
            Nobody has this policy yet. <a href={href('people', ['policies'], { assign: policy.id })}>Assign it</a> to a
            role, a user or the public.
          </>
        ) : (
          <>
            This policy applies to <strong>{holders(policy, access)}</strong>.
          </>
        )}{' '}
        Choose a cell to grant an action, or to change its rule.
        {isPublic(policy) && <span class="quiet"> “View as” above shows every page as the public sees it.</span>}
      </p>
      <div class="row">
        <input
          type="search"
          aria-label="Search collections"
          placeholder="Search collections"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
        <label class="row">
          <input type="checkbox" checked={withSystem} onChange={() => setWithSystem(!withSystem)} />
          system collections
        </label>
      </div>
      <table aria-label={`Permissions of ${policy.name}`}>
        <thead>
          <tr>
            <th scope="col">Collection</th>
            {ACTIONS.map((action) => (
              <th key={action} scope="col">
                {action}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.slice(0, MOST_SHOWN).map(({ name }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {ACTIONS.map((action) => {
                const extent = extentOf(granted(name, action));
                return (
                  <td key={action}>
                    <button
                      type="button"
                      class={`extent ${extent}`}
                      aria-label={`${action} ${name}: ${EXTENTS[extent]}`}
                      onClick={() => setOpen({ collection: name, action })}
                    >
                      {EXTENTS[extent]}
                    </button>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length > MOST_SHOWN && <p class="quiet">{shown.length - MOST_SHOWN} more: search for them.</p>}
      {open && (
        <RuleForm
          policy={policy}
          model={model}
          collection={open.collection}
          action={open.action}
          permission={granted(open.collection, open.action)[0] ?? null}
          others={Math.max(0, granted(open.collection, open.action).length - 1)}
          onClose={() => setOpen(null)}
          onSaved={async () => {
            setOpen(null);
            await onChanged();
          }}
        />
      )}
    </div>
  );
}

/** The holder is a role, `public`, or empty: then the policy belongs to nobody until it is assigned. */
async function createPolicy(policy: { name: string; app_access: boolean }, holder: string): Promise<string> {
  if (holder === '') {
    const { data } = await call<{ id: string }>('POST', '/policies?fields=id', { body: policy });
    return data.id;
  }
  const role = holder === 'public' ? null : holder;
  const { data } = await call<{ policy: string }>('POST', '/access?fields=policy', { body: { role, policy } });
  return data.policy;
}

interface CreateProps {
  readonly access: Access;
  readonly onClose: () => void;
  readonly onMade: (id: string) => Promise<void>;
}

function CreatePolicy({ access, onClose, onMade }: CreateProps): JSX.Element {
  const [name, setName] = useState('');
  const [holder, setHolder] = useState('');
  const [hasApp, setHasApp] = useState(false);
  const save = async (): Promise<void> => {
    try {
      const id = await createPolicy({ name: name.trim(), app_access: hasApp }, holder);
      toast(`${name.trim()} was created`);
      await onMade(id);
    } catch (error) {
      toast(messageOf(error), 'bad');
    }
  };
  return (
    <FormDialog
      title="New policy"
      submit="Create"
      disabled={name.trim() === ''}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      <div class="field">
        <label for="policy-name">Name</label>
        <input id="policy-name" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </div>
      <div class="field">
        <label for="policy-holder">For</label>
        <select id="policy-holder" value={holder} onChange={(event) => setHolder(event.currentTarget.value)}>
          <option value="">nobody yet</option>
          <option value="public">the public: requests without a login</option>
          {access.roles.map(({ id, name: role }) => (
            <option key={id} value={id}>
              role {role}
            </option>
          ))}
        </select>
      </div>
      <Check label={APP_ACCESS} checked={hasApp} onChange={setHasApp} />
    </FormDialog>
  );
}
