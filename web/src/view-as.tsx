/** "View as": an administrator sees every page with the permissions of the public, a role or a user, and can change nothing. */
import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { call, messageOf } from './api';
import { me, stopViewing, toast, viewAs, viewWith } from './state';
import { Button } from './ui';

interface Choice {
  readonly value: string;
  readonly label: string;
}

const MOST = 200;
const choices = signal<{ readonly roles: readonly Choice[]; readonly users: readonly Choice[] }>({
  roles: [],
  users: [],
});

async function loadChoices(): Promise<void> {
  const [roles, users] = await Promise.all([
    call<{ id: string; name: string }[]>('GET', `/roles?fields=id,name&sort=name&limit=${MOST}`, { own: true }),
    call<{ id: string; email: string | null }[]>(
      'GET',
      `/users?fields=id,email&filter[status][_eq]=active&sort=email&limit=${MOST}`,
      { own: true },
    ),
  ]);
  choices.value = {
    roles: roles.data.map(({ id, name }) => ({ value: `role:${id}`, label: name })),
    users: users.data.map(({ id, email }) => ({ value: `user:${id}`, label: email ?? id })),
  };
}

/** In the header, for administrators. */
export function ViewAsSelect(): JSX.Element | null {
  const isAdministrator = me.value?.administrator === true;
  const load = (): void => {
    loadChoices().catch((error: unknown) => toast(`Roles and users could not be read: ${messageOf(error)}`, 'bad'));
  };
  useEffect(() => {
    if (isAdministrator) load();
  }, [isAdministrator]);
  if (!isAdministrator) return null;
  const { roles, users } = choices.value;
  const choose = (value: string): void => {
    const label = value === 'public' ? 'the public' : [...roles, ...users].find((each) => each.value === value)?.label;
    if (label === undefined) void stopViewing();
    else void viewWith({ value, label: value.startsWith('role:') ? `the role ${label}` : label });
  };
  return (
    <select
      class="view-as"
      aria-label="View as"
      value={viewAs.value?.value ?? ''}
      // Those that were made in the meantime are among them.
      onFocus={load}
      onChange={(event) => choose(event.currentTarget.value)}
    >
      <option value="">View as yourself</option>
      <option value="public">The public</option>
      <Choices label="Roles" choices={roles} />
      <Choices label="Users" choices={users} />
    </select>
  );
}

function Choices({ label, choices }: { readonly label: string; readonly choices: readonly Choice[] }): JSX.Element {
  return (
    <optgroup label={choices.length === MOST ? `${label} (the first ${MOST})` : label}>
      {choices.map((each) => (
        <option key={each.value} value={each.value}>
          {each.label}
        </option>
      ))}
    </optgroup>
  );
}

export function ViewAsBanner(): JSX.Element | null {
  const view = viewAs.value;
  if (!view) return null;
  return (
    <div class="viewing" role="status">
      <span>
        You see what <strong>{view.label}</strong> may see. Nothing can be changed.
      </span>
      <Button label="View as yourself" onClick={() => void stopViewing()} />
    </div>
  );
}
