/** "What can this user do": the permissions of a user, a role or the public, as the service reports them. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import { go, href, route } from '../state';
import { Empty, ErrorBox } from '../ui';
import { type Directory, type TabProps, treeOf } from './people';

const ACTIONS = ['create', 'read', 'update', 'delete', 'share', 'execute'] as const;

interface Allowed {
  readonly access: 'none' | 'partial' | 'full';
  readonly fields?: readonly string[];
  readonly presets?: Readonly<Record<string, unknown>>;
}

type Rights = Readonly<Record<string, Readonly<Record<string, Allowed>>>>;

const WORDS = { none: 'no', partial: 'by rule', full: 'all' } as const;
const CLASSES = { none: 'none', partial: 'some', full: 'all' } as const;

interface Option {
  readonly id: string;
  readonly email: string | null;
  readonly status: string;
}

export function RightsTab({ directory }: TabProps): JSX.Element {
  const as = route.value.parameters.get('as') ?? 'public';
  const [rights, setRights] = useState<{ readonly as: string; readonly rights: Rights } | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const request = new AbortController();
    setError(null);
    call<Rights>('GET', '/permissions/me', {
      own: true,
      headers: { 'Lateral-View-As': as },
      signal: request.signal,
    }).then(
      ({ data }) => setRights({ as, rights: data }),
      (failure: unknown) => !request.signal.aborted && setError(messageOf(failure)),
    );
    return () => request.abort();
  }, [as]);
  const shown = rights?.as === as ? rights.rights : null;
  return (
    <div class="people-body">
      <Chooser as={as} directory={directory} />
      {error && <ErrorBox text={error} />}
      {error && <p class="quiet">Only active users have permissions.</p>}
      {!error && !shown && <p class="quiet">Loading…</p>}
      {shown && <RightsTable rights={shown} />}
    </div>
  );
}

/** Choose the public, a role, or a user by a part of the email. */
function Chooser({ as, directory }: { readonly as: string; readonly directory: Directory }): JSX.Element {
  const [typed, setTyped] = useState('');
  const [users, setUsers] = useState<readonly Option[]>([]);
  const [, user] = as.split('user:');
  useEffect(() => {
    const request = new AbortController();
    const wanted = [
      ...(typed === '' ? [] : [{ email: { _icontains: typed } }]),
      ...(user === undefined || typed !== '' ? [] : [{ id: { _eq: user } }]),
    ];
    const query = {
      fields: ['id', 'email', 'status'],
      sort: ['email'],
      limit: 20,
      ...(wanted.length > 0 ? { filter: { _and: wanted } } : {}),
    };
    const ask = (): void =>
      void call<Option[]>('SEARCH', '/users', { body: { query }, signal: request.signal }).then(
        ({ data }) => setUsers(data),
        () => {},
      );
    const wait = setTimeout(ask, typed === '' ? 0 : 150);
    return () => {
      clearTimeout(wait);
      request.abort();
    };
  }, [typed, user]);
  const choose = (next: string): void => go(href('people', ['rights'], { as: next }));
  return (
    <div class="people-tools">
      <label class="row">
        What can
        <select aria-label="User, role or public" value={as} onChange={(event) => choose(event.currentTarget.value)}>
          <option value="public">the public</option>
          <optgroup label="Roles">
            {treeOf(directory.roles).map(({ role, depth }) => (
              <option key={role.id} value={`role:${role.id}`}>
                {'\u2003'.repeat(depth)}
                {role.name}
              </option>
            ))}
          </optgroup>
          <optgroup label="Users">
            {user !== undefined && !users.some(({ id }) => id === user) && <option value={as}>this user</option>}
            {users.map(({ id, email, status }) => (
              <option key={id} value={`user:${id}`}>
                {email ?? id}
                {status === 'active' ? '' : ` (${status})`}
              </option>
            ))}
          </optgroup>
        </select>
        do?
      </label>
      <input
        type="search"
        aria-label="Find a user"
        placeholder="Find a user by email"
        value={typed}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onKeyDown={(event) => {
          const [first] = users;
          if (event.key === 'Enter' && first) choose(`user:${first.id}`);
        }}
      />
    </div>
  );
}

function RightsTable({ rights }: { readonly rights: Rights }): JSX.Element {
  const names = Object.keys(rights).sort();
  if (names.length === 0)
    return (
      <Empty title="No rights" icon="key">
        No assigned policy grants a permission. Assign one in <a href={href('people', ['policies'])}>Policies</a>.
      </Empty>
    );
  const actions = ACTIONS.filter((action) =>
    names.some((name) => (rights[name]?.[action]?.access ?? 'none') !== 'none'),
  );
  return (
    <div class="people-scroll">
      <table class="people-table rights" aria-label="Permissions">
        <thead>
          <tr>
            <th scope="col">Collection</th>
            {actions.map((action) => (
              <th scope="col" key={action}>
                {action}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {names.map((name) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {actions.map((action) => (
                <Cell key={action} action={action} allowed={rights[name]?.[action] ?? { access: 'none' }} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <p class="quiet small">
        “by rule” means that a rule selects the rows. The page Access shows the rules, and Why? evaluates them for one
        item.
      </p>
    </div>
  );
}

function Cell({ action, allowed }: { readonly action: string; readonly allowed: Allowed }): JSX.Element {
  const { access, fields, presets } = allowed;
  const hasFields = access !== 'none' && action !== 'delete' && action !== 'share' && action !== 'execute';
  const names = !hasFields
    ? ''
    : fields === undefined
      ? 'no fields'
      : fields.includes('*')
        ? 'all fields'
        : fields.join(', ');
  return (
    <td>
      <span class={`extent ${CLASSES[access]}`}>
        {action === 'execute' && access === 'full' ? 'yes' : WORDS[access]}
      </span>
      {names !== '' && <small>{names}</small>}
      {presets && <small>presets: {Object.keys(presets).join(', ')}</small>}
    </td>
  );
}
