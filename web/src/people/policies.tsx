/** Policies: create, rename, assign, duplicate, delete. Their permissions are on the page Access. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { APP_ACCESS, type Permission } from '../access/policies';
import { call } from '../api';
import { Checks, Confirm, SaveDialog, TextInput } from '../forms';
import { go, href, route } from '../state';
import { Button, countOf, Empty, Menu } from '../ui';
import { type Directory, holdersOf, type PolicyRow, type TabProps } from './people';
import { PolicyFile } from './policy-file';

type Open =
  | { readonly kind: 'form'; readonly policy: PolicyRow | null }
  | { readonly kind: 'assign' | 'duplicate' | 'delete'; readonly policy: PolicyRow }
  | null;

export function PoliciesTab({ directory, onChanged }: TabProps): JSX.Element {
  const [open, setOpen] = useState<Open>(() => {
    // The page Access leads to the assignment of one policy.
    const assigned = directory.policies.find(({ id }) => id === route.value.parameters.get('assign'));
    return assigned ? { kind: 'assign', policy: assigned } : null;
  });
  const [typed, setTyped] = useState('');
  const close = (): void => {
    setOpen(null);
    go(href('people', ['policies']), true);
  };
  const wanted = typed.trim().toLowerCase();
  const shown = directory.policies.filter(({ name }) => name.toLowerCase().includes(wanted));
  return (
    <div class="people-body">
      <div class="people-tools">
        <input
          type="search"
          aria-label="Search policies"
          placeholder="Name"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
        <span class="grow" />
        <PolicyFile onChanged={onChanged} />
        <Button label="New policy" icon="plus" kind="primary" onClick={() => setOpen({ kind: 'form', policy: null })} />
      </div>
      {shown.length === 0 && <Empty title="No policy matches" icon="key" />}
      {shown.length > 0 && <PolicyTable policies={shown} directory={directory} onOpen={setOpen} />}
      {open?.kind === 'form' && <PolicyForm policy={open.policy} onClose={close} onChanged={onChanged} />}
      {open?.kind === 'duplicate' && <DuplicatePolicy policy={open.policy} onClose={close} onChanged={onChanged} />}
      {open?.kind === 'assign' && (
        <AssignPolicy policy={open.policy} directory={directory} onClose={close} onChanged={onChanged} />
      )}
      {open?.kind === 'delete' && (
        <Confirm
          title={`Delete the policy ${open.policy.name}?`}
          submit="Delete"
          onClose={close}
          onConfirm={async () => {
            await call('DELETE', `/policies/${open.policy.id}`);
            await onChanged();
            return `The policy ${open.policy.name} was deleted`;
          }}
        >
          <p>
            {countOf(open.policy.permissions.length, 'permission')} will be deleted. Held by:{' '}
            {holdersOf(open.policy.id, directory).join(', ') || 'nobody'}.
          </p>
        </Confirm>
      )}
    </div>
  );
}

interface TableProps {
  readonly policies: readonly PolicyRow[];
  readonly directory: Directory;
  readonly onOpen: (open: Open) => void;
}

function PolicyTable({ policies, directory, onOpen }: TableProps): JSX.Element {
  return (
    <div class="people-scroll">
      <table class="people-table" aria-label="Policies">
        <thead>
          <tr>
            <th scope="col">Policy</th>
            <th scope="col">Allows</th>
            <th scope="col">Held by</th>
            <th scope="col">
              <span class="hidden-text">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {policies.map((policy) => {
            const held = holdersOf(policy.id, directory);
            return (
              <tr key={policy.id}>
                <th scope="row">
                  <a href={href('access', [policy.id])}>{policy.name}</a>
                  {policy.description && <small>{policy.description}</small>}
                </th>
                <td>{allowance(policy)}</td>
                <td>{held.length === 0 ? <span class="quiet">nobody</span> : held.join(', ')}</td>
                <td>
                  <Menu
                    label={`Actions of ${policy.name}`}
                    icon="more"
                    kind="quiet"
                    compact
                    entries={[
                      { label: 'Edit', icon: 'edit', onClick: () => onOpen({ kind: 'form', policy }) },
                      { label: 'Assign', icon: 'user', onClick: () => onOpen({ kind: 'assign', policy }) },
                      {
                        label: 'Permissions',
                        icon: 'key',
                        onClick: () => (location.hash = href('access', [policy.id])),
                      },
                      { label: 'Duplicate', icon: 'copy', onClick: () => onOpen({ kind: 'duplicate', policy }) },
                      {
                        label: 'Delete',
                        icon: 'trash',
                        danger: true,
                        onClick: () => onOpen({ kind: 'delete', policy }),
                      },
                    ]}
                  />
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function allowance({ admin_access, app_access, enforce_tfa, permissions }: PolicyRow): string {
  const parts = [
    admin_access ? 'everything' : countOf(permissions.length, 'permission'),
    ...(app_access && !admin_access ? ['app access'] : []),
    ...(enforce_tfa ? ['requires a second factor'] : []),
  ];
  return parts.join(', ');
}

interface PolicyFormProps {
  /** The policy, or null if it is new. */
  readonly policy: PolicyRow | null;
  readonly onClose: () => void;
  readonly onChanged: () => Promise<void>;
}

/** A new policy belongs to nobody until it is assigned. */
export function PolicyForm({ policy, onClose, onChanged }: PolicyFormProps): JSX.Element {
  const [name, setName] = useState(policy?.name ?? '');
  const [description, setDescription] = useState(policy?.description ?? '');
  const [flags, setFlags] = useState({
    admin_access: policy?.admin_access ?? false,
    app_access: policy?.app_access ?? false,
    enforce_tfa: policy?.enforce_tfa ?? false,
  });
  const [addresses, setAddresses] = useState(policy?.ip_access?.join(', ') ?? '');
  const save = async (): Promise<string> => {
    const list = addresses.split(',').flatMap((each) => (each.trim() === '' ? [] : [each.trim()]));
    const body = {
      name: name.trim(),
      description: description === '' ? null : description,
      ...flags,
      ip_access: list.length === 0 ? null : list,
    };
    await (policy
      ? call('PATCH', `/policies/${policy.id}?fields=id`, { body })
      : call('POST', '/policies?fields=id', { body }));
    await onChanged();
    return policy ? `The policy ${body.name} was saved` : `The policy ${body.name} was created. Assign it to use it.`;
  };
  return (
    <SaveDialog
      title={policy ? `Policy ${policy.name}` : 'New policy'}
      submit={policy ? 'Save' : 'Create'}
      disabled={name.trim() === ''}
      onClose={onClose}
      onSave={save}
    >
      <TextInput id="policy-name" label="Name" value={name} onInput={setName} />
      <TextInput id="policy-description" label="Description" value={description} onInput={setDescription} />
      <fieldset class="checks">
        <legend>Access</legend>
        {FLAGS.map(([flag, label]) => (
          <label class="row" key={flag}>
            <input
              type="checkbox"
              checked={flags[flag]}
              onChange={() => setFlags({ ...flags, [flag]: !flags[flag] })}
            />
            <span>{label}</span>
          </label>
        ))}
      </fieldset>
      <TextInput
        id="policy-addresses"
        label="Only from these addresses"
        value={addresses}
        onInput={setAddresses}
        note="Addresses and networks, separated by commas. Empty for all."
      />
    </SaveDialog>
  );
}

const FLAGS = [
  ['admin_access', 'Administrator: everything is allowed'],
  ['app_access', APP_ACCESS],
  ['enforce_tfa', 'Requires a second factor'],
] as const;

interface OnePolicyProps {
  readonly policy: PolicyRow;
  readonly onClose: () => void;
  readonly onChanged: () => Promise<void>;
}

function DuplicatePolicy({ policy, onClose, onChanged }: OnePolicyProps): JSX.Element {
  const [name, setName] = useState(`Copy of ${policy.name}`);
  const save = async (): Promise<string> => {
    const fields =
      'permissions.collection,permissions.action,permissions.permissions,permissions.validation,permissions.presets,permissions.fields';
    const { data } = await call<{ permissions: Omit<Permission, 'id' | 'policy'>[] }>(
      'GET',
      `/policies/${policy.id}?fields=${fields}&deep[permissions][_limit]=-1`,
    );
    const { description, admin_access, app_access, enforce_tfa, ip_access } = policy;
    const body = { name: name.trim(), description, admin_access, app_access, enforce_tfa, ip_access };
    await call('POST', '/policies?fields=id', { body: { ...body, permissions: data.permissions } });
    await onChanged();
    return `The policy ${name.trim()} was created. Assign it to use it.`;
  };
  return (
    <SaveDialog
      title={`Duplicate ${policy.name}`}
      submit="Duplicate"
      disabled={name.trim() === ''}
      onClose={onClose}
      onSave={save}
    >
      <TextInput id="duplicate-name" label="Name" value={name} onInput={setName} />
      <p class="quiet">The copy has the same permissions and belongs to nobody until you assign it.</p>
    </SaveDialog>
  );
}

/** To the public and to roles. Users get a policy in their own dialog, because they are many. */
function AssignPolicy({ policy, directory, onClose, onChanged }: OnePolicyProps & TabProps): JSX.Element {
  const current = directory.assignments.filter((each) => each.policy === policy.id);
  const before = current.filter(({ user }) => user === null).map(({ role }) => role ?? 'public');
  const [chosen, setChosen] = useState<readonly string[]>(before);
  const users = current.flatMap(({ user }) => (user === null ? [] : [directory.emails.get(user) ?? user]));
  const save = async (): Promise<string> => {
    const removed = current.filter(({ user, role }) => user === null && !chosen.includes(role ?? 'public'));
    const made = chosen
      .filter((each) => !before.includes(each))
      .map((each) => ({ policy: policy.id, role: each === 'public' ? null : each }));
    if (made.length > 0) await call('POST', '/access?fields=id', { body: made });
    if (removed.length > 0) await call('DELETE', '/access', { body: removed.map(({ id }) => id) });
    await onChanged();
    return `The policy ${policy.name} was assigned`;
  };
  return (
    <SaveDialog title={`Assign ${policy.name}`} submit="Save" onClose={onClose} onSave={save}>
      <Checks
        label="Held by"
        options={[
          { value: 'public', label: 'The public: requests without a login, and users without a role' },
          ...directory.roles.map(({ id, name }) => ({ value: id, label: `Role ${name}` })),
        ]}
        chosen={chosen}
        onChange={setChosen}
        empty=""
      />
      {policy.admin_access && chosen.includes('public') && (
        <p class="bad">Everybody who can reach the service would be an administrator.</p>
      )}
      <p class="quiet">
        {users.length > 0 ? `Also held by ${users.join(', ')}. ` : ''}Assign it to single users on the tab Users.
      </p>
    </SaveDialog>
  );
}
