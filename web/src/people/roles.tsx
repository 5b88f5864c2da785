/** Roles as a tree: create, rename, move below another role, assign policies, delete. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call } from '../api';
import { Checks, Confirm, SaveDialog, Select, TextInput } from '../forms';
import { href } from '../state';
import { Button, Empty, Menu } from '../ui';
import {
  type Directory,
  policyChanges,
  type RoleRow,
  roleOptions,
  type TabProps,
  treeOf,
  withDescendants,
} from './people';

type Open =
  | { readonly kind: 'form'; readonly role: RoleRow | null; readonly parent: string }
  | { readonly kind: 'delete'; readonly role: RoleRow }
  | null;

export function RolesTab({ directory, onChanged }: TabProps): JSX.Element {
  const [open, setOpen] = useState<Open>(null);
  const [counts, setCounts] = useState<ReadonlyMap<string, number>>(new Map());
  useEffect(() => {
    call<{ role: string | null; count: unknown }[]>('GET', '/users?aggregate[count]=*&groupBy=role&limit=-1').then(
      ({ data }) => setCounts(new Map(data.map(({ role, count }) => [role ?? '', Number(count)]))),
      () => {},
    );
  }, [directory]);
  const tree = treeOf(directory.roles);
  return (
    <div class="people-body">
      <div class="people-tools">
        <p class="quiet">A role has its own policies and those of the roles above it.</p>
        <span class="grow" />
        <Button
          label="New role"
          icon="plus"
          kind="primary"
          onClick={() => setOpen({ kind: 'form', role: null, parent: '' })}
        />
      </div>
      {tree.length === 0 && (
        <Empty title="There are no roles yet" icon="user">
          Create a role, assign policies to it, and give it to users.
        </Empty>
      )}
      <ul class="role-tree" aria-label="Roles">
        {tree.map(({ role, depth }) => (
          <li key={role.id} class={`depth-${Math.min(depth, 6)}`}>
            <button
              type="button"
              class="role"
              onClick={() => setOpen({ kind: 'form', role, parent: role.parent ?? '' })}
            >
              <strong>{role.name}</strong>
              <small>{policyNames(role, directory)}</small>
            </button>
            <a class="small" href={href('people', ['users'], { role: role.id })}>
              {usersOf(counts.get(role.id) ?? 0)}
            </a>
            <Menu
              label={`Actions of ${role.name}`}
              icon="more"
              kind="quiet"
              compact
              entries={[
                {
                  label: 'Edit',
                  icon: 'edit',
                  onClick: () => setOpen({ kind: 'form', role, parent: role.parent ?? '' }),
                },
                {
                  label: 'New role below',
                  icon: 'plus',
                  onClick: () => setOpen({ kind: 'form', role: null, parent: role.id }),
                },
                {
                  label: 'What can this role do?',
                  icon: 'key',
                  onClick: () => (location.hash = href('people', ['rights'], { as: `role:${role.id}` })),
                },
                { label: 'Delete', icon: 'trash', danger: true, onClick: () => setOpen({ kind: 'delete', role }) },
              ]}
            />
          </li>
        ))}
      </ul>
      {open?.kind === 'form' && (
        <RoleForm {...open} directory={directory} onClose={() => setOpen(null)} onChanged={onChanged} />
      )}
      {open?.kind === 'delete' && (
        <DeleteRole
          role={open.role}
          directory={directory}
          users={counts.get(open.role.id) ?? 0}
          onClose={() => setOpen(null)}
          onChanged={onChanged}
        />
      )}
    </div>
  );
}

function usersOf(count: number): string {
  return count === 0 ? 'no users' : count === 1 ? '1 user' : `${count} users`;
}

function policyNames({ policies }: RoleRow, directory: Directory): string {
  const names = policies.map(({ policy }) => directory.policies.find(({ id }) => id === policy)?.name ?? policy);
  return names.length === 0 ? 'no policies of its own' : names.join(', ');
}

interface RoleFormProps extends TabProps {
  /** The role, or null if it is new. */
  readonly role: RoleRow | null;
  readonly parent: string;
  readonly onClose: () => void;
}

function RoleForm({ role, parent: given, directory, onClose, onChanged }: RoleFormProps): JSX.Element {
  const [name, setName] = useState(role?.name ?? '');
  const [description, setDescription] = useState(role?.description ?? '');
  const [parent, setParent] = useState(given);
  const [policies, setPolicies] = useState<readonly string[]>(role?.policies.map(({ policy }) => policy) ?? []);
  const save = async (): Promise<string> => {
    const changes = policyChanges(role?.policies ?? [], policies);
    const body = {
      name: name.trim(),
      description: description === '' ? null : description,
      parent: parent === '' ? null : parent,
      ...(changes ? { policies: changes } : {}),
    };
    await (role ? call('PATCH', `/roles/${role.id}?fields=id`, { body }) : call('POST', '/roles?fields=id', { body }));
    await onChanged();
    return `The role ${name.trim()} was ${role ? 'saved' : 'created'}`;
  };
  return (
    <SaveDialog
      title={role ? `Role ${role.name}` : 'New role'}
      submit={role ? 'Save' : 'Create'}
      disabled={name.trim() === ''}
      onClose={onClose}
      onSave={save}
    >
      <TextInput id="role-name" label="Name" value={name} onInput={setName} />
      <TextInput id="role-description" label="Description" value={description} onInput={setDescription} />
      <Select
        id="role-parent"
        label="Below"
        value={parent}
        options={roleOptions(directory, role ? withDescendants(role.id, directory.roles) : new Set())}
        onChange={setParent}
        note="The role also has the policies of the chosen role."
      />
      <Checks
        label="Policies"
        options={directory.policies.map(({ id, name: label }) => ({ value: id, label }))}
        chosen={policies}
        onChange={setPolicies}
        empty="There are no policies yet."
      />
    </SaveDialog>
  );
}

interface DeleteProps extends TabProps {
  readonly role: RoleRow;
  readonly users: number;
  readonly onClose: () => void;
}

function DeleteRole({ role, users, directory, onClose, onChanged }: DeleteProps): JSX.Element {
  const below = directory.roles.filter(({ parent }) => parent === role.id);
  return (
    <Confirm
      title={`Delete the role ${role.name}?`}
      submit="Delete"
      onClose={onClose}
      onConfirm={async () => {
        await call('DELETE', `/roles/${role.id}`);
        await onChanged();
        return `The role ${role.name} was deleted`;
      }}
    >
      <p>
        {users === 0
          ? 'No user has this role.'
          : `${usersOf(users)} will have no role, and the permissions of the public.`}
      </p>
      {below.length > 0 && <p>Roles below it move to the top: {below.map(({ name }) => name).join(', ')}.</p>}
    </Confirm>
  );
}
