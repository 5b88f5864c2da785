/** The list of users, and the dialog that invites one. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import { SaveDialog, Select, TextInput } from '../forms';
import { go, href, route } from '../state';
import { Button, countOf, Empty, ErrorBox } from '../ui';
import {
  type Directory,
  loadUsers,
  makePasswordLink,
  type NewPerson,
  nameOf,
  type PasswordLink,
  type Person,
  roleName,
  roleOptions,
  STATUSES,
  type TabProps,
  USERS_PER_PAGE,
  type UserQuery,
} from './people';
import { LinkDialog, UserDialog } from './user';

interface FoundUsers {
  readonly users: readonly Person[];
  readonly count: number;
}

/** The users are read again if `turn` changes. */
function useUsers(
  { search, status, role, page }: UserQuery,
  turn: number,
): { readonly found: FoundUsers | null; readonly error: string | null } {
  const [found, setFound] = useState<FoundUsers | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const request = new AbortController();
    const ask = (): void => {
      loadUsers({ search: search.trim(), status, role, page }, request.signal).then(
        (result) => {
          setFound(result);
          setError(null);
        },
        (failure: unknown) => !request.signal.aborted && setError(messageOf(failure)),
      );
    };
    const wait = setTimeout(ask, search === '' ? 0 : 150);
    return () => {
      clearTimeout(wait);
      request.abort();
    };
  }, [search, status, role, page, turn]);
  return { found, error };
}

export function UsersTab({ directory, onChanged }: TabProps): JSX.Element {
  const { parameters, rest } = route.value;
  const search = parameters.get('search') ?? '';
  const status = parameters.get('status') ?? '';
  const role = parameters.get('role') ?? '';
  const page = Math.max(1, Number(parameters.get('page')) || 1);
  const [turn, setTurn] = useState(0);
  const [inviting, setInviting] = useState(false);
  const [link, setLink] = useState<{ readonly person: NewPerson; readonly link: PasswordLink } | null>(null);
  const { found, error } = useUsers({ search, status, role, page }, turn);
  const changed = async (): Promise<void> => {
    setTurn((count) => count + 1);
    await onChanged();
  };
  const show = (next: Record<string, string>): void =>
    go(href('people', ['users'], { search, status, role, ...next }), true);
  const [, chosen] = rest;
  return (
    <div class="people-body">
      <div class="people-tools">
        <input
          type="search"
          aria-label="Search users"
          placeholder="Name or email"
          value={search}
          onInput={(event) => show({ search: event.currentTarget.value })}
        />
        <select aria-label="Status" value={status} onChange={(event) => show({ status: event.currentTarget.value })}>
          <option value="">every status</option>
          {STATUSES.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
        <select aria-label="Role" value={role} onChange={(event) => show({ role: event.currentTarget.value })}>
          <option value="">every role</option>
          {directory.roles.map(({ id, name }) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
        <span class="quiet" role="status">
          {found && countOf(found.count, 'user')}
        </span>
        <span class="grow" />
        <Button label="Invite user" icon="plus" kind="primary" onClick={() => setInviting(true)} />
      </div>
      {error && <ErrorBox text={error} onRetry={() => setTurn(turn + 1)} />}
      {found && found.users.length === 0 && <Empty title="No user matches" icon="user" />}
      {found && found.users.length > 0 && <UserTable users={found.users} directory={directory} />}
      {found && found.count > USERS_PER_PAGE && (
        <div class="row people-pages">
          <Button label="Previous" disabled={page <= 1} onClick={() => show({ page: String(page - 1) })} />
          <span class="quiet">
            Page {page} of {Math.ceil(found.count / USERS_PER_PAGE)}
          </span>
          <Button
            label="Next"
            disabled={page * USERS_PER_PAGE >= found.count}
            onClick={() => show({ page: String(page + 1) })}
          />
        </div>
      )}
      {inviting && (
        <InviteDialog
          directory={directory}
          onClose={() => setInviting(false)}
          onMade={async (person, made) => {
            setLink({ person, link: made });
            await changed();
          }}
        />
      )}
      {link && <LinkDialog person={link.person} link={link.link} onClose={() => setLink(null)} />}
      {chosen !== undefined && (
        <UserDialog
          key={chosen}
          id={chosen}
          directory={directory}
          onClose={() => go(href('people', ['users'], { search, status, role }))}
          onChanged={changed}
        />
      )}
    </div>
  );
}

function UserTable(props: { readonly users: readonly Person[]; readonly directory: Directory }): JSX.Element {
  const { users, directory } = props;
  return (
    <div class="people-scroll">
      <table class="people-table users" aria-label="Users">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Status</th>
            <th scope="col">Email</th>
            <th scope="col">Role</th>
            <th scope="col">Login</th>
            <th scope="col">Last access</th>
          </tr>
        </thead>
        <tbody>
          {users.map((person) => (
            <tr key={person.id}>
              <th scope="row">
                <a href={href('people', ['users', person.id], Object.fromEntries(route.value.parameters))}>
                  {nameOf(person)}
                </a>
              </th>
              <td>
                <span class={`tag ${person.status === 'active' ? 'plain' : 'warm'}`}>{person.status}</span>
              </td>
              <td>{person.email ?? <span class="quiet">none</span>}</td>
              <td>{person.role === null ? <span class="quiet">none</span> : roleName(person.role, directory)}</td>
              <td>
                {person.tfa_secret !== null && <span class="tag plain">second factor</span>}{' '}
                {person.token !== null && <span class="tag plain">token</span>}
              </td>
              <td class="quiet">{person.last_access?.slice(0, 16).replace('T', ' ') ?? 'never'}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface InviteProps {
  readonly directory: Directory;
  readonly onClose: () => void;
  readonly onMade: (person: NewPerson, link: PasswordLink) => Promise<void>;
}

function InviteDialog({ directory, onClose, onMade }: InviteProps): JSX.Element {
  const [email, setEmail] = useState('');
  const [first, setFirst] = useState('');
  const [last, setLast] = useState('');
  const [role, setRole] = useState('');
  // If the link fails, a second attempt must not create the user again.
  const made = useRef<NewPerson | null>(null);
  const save = async (): Promise<string> => {
    const names = { ...(first === '' ? {} : { first_name: first }), ...(last === '' ? {} : { last_name: last }) };
    const body = { email: email.trim(), role: role === '' ? null : role, status: 'invited', ...names };
    made.current ??= (await call<NewPerson>('POST', '/users?fields=id,email,role', { body })).data;
    await onMade(made.current, await makePasswordLink(made.current.id));
    return `${email.trim()} was invited`;
  };
  return (
    <SaveDialog
      title="Invite a user"
      submit="Invite"
      disabled={!/^[^\s@]+@[^\s@]+$/.test(email.trim())}
      onClose={onClose}
      onSave={save}
    >
      <TextInput id="invite-email" label="Email" type="email" value={email} onInput={setEmail} />
      <div class="people-two">
        <TextInput id="invite-first" label="First name" value={first} onInput={setFirst} />
        <TextInput id="invite-last" label="Last name" value={last} onInput={setLast} />
      </div>
      <Select
        id="invite-role"
        label="Role"
        value={role}
        options={roleOptions(directory)}
        onChange={setRole}
        note="Without a role, the user has the permissions of the public."
      />
      <p class="quiet">The user chooses a password with a link, which you get next.</p>
    </SaveDialog>
  );
}
