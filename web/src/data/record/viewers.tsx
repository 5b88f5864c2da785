/** The callers that may read an item: the public, each role, and any user, each with the fields that they get. For administrators. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, call, itemsPath, messageOf } from '../../api';
import type { Collection } from '../../model';
import { ErrorBox } from '../../ui';
import type { Row } from '../edits';
import { filterByKey } from '../item';

interface Caller {
  /** As `Lateral-View-As` takes it. */
  readonly as: string;
  readonly name: string;
  readonly kind: string;
}

type Verdict =
  | { readonly kind: 'read'; readonly fields: readonly string[] }
  | { readonly kind: 'none' }
  | { readonly kind: 'failed'; readonly message: string };

interface ViewersProps {
  readonly collection: Collection;
  readonly keyValues: Row;
}

const AT_ONCE = 4;
const MOST_ROLES = 100;

export function Viewers({ collection, keyValues }: ViewersProps): JSX.Element {
  const [callers, setCallers] = useState<readonly Caller[] | null>(null);
  const [verdicts, setVerdicts] = useState<ReadonlyMap<string, Verdict>>(new Map());
  const [error, setError] = useState<string | null>(null);
  const [user, setUser] = useState('');
  useEffect(() => {
    const left = new AbortController();
    const run = async (): Promise<void> => {
      const query = { fields: ['id', 'name'], sort: ['name'], limit: MOST_ROLES };
      const { data } = await call<{ id: string; name: string }[]>('SEARCH', '/roles', { body: { query }, own: true });
      const list = [
        { as: 'public', name: 'Public', kind: 'without a login' },
        ...data.map(({ id, name }) => ({ as: `role:${id}`, name, kind: 'role' })),
      ];
      setCallers(list);
      const waiting = [...list];
      const work = async (): Promise<void> => {
        for (let next = waiting.shift(); next && !left.signal.aborted; next = waiting.shift()) await check(next);
      };
      await Promise.all(Array.from({ length: AT_ONCE }, work));
    };
    run().catch((failure: unknown) => setError(messageOf(failure)));
    return () => left.abort();
  }, [collection, JSON.stringify(keyValues)]);
  const check = async ({ as }: Caller): Promise<void> => {
    const verdict = await verdictOf(collection, keyValues, as);
    setVerdicts((known) => new Map([...known, [as, verdict]]));
  };
  const ask = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      const query = { fields: ['id', 'email'], filter: { email: { _eq: user.trim() } }, limit: 1 };
      const { data } = await call<{ id: string; email: string }[]>('SEARCH', '/users', { body: { query }, own: true });
      const [found] = data;
      if (!found) throw new Error(`There is no user ${user.trim()}`);
      const caller = { as: `user:${found.id}`, name: found.email, kind: 'user' };
      setError(null);
      setCallers((known) => [...(known ?? []).filter(({ as }) => as !== caller.as), caller]);
      await check(caller);
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  if (!callers) return error ? <ErrorBox text={error} /> : <p class="boot">Loading…</p>;
  const all = [...collection.fields.values()].filter(({ column }) => column).length;
  return (
    <div class="viewers">
      <form class="row" onSubmit={(event) => void ask(event)}>
        <label for="viewer-email">Check a user</label>
        <input
          id="viewer-email"
          type="email"
          placeholder="name@example.com"
          value={user}
          onInput={(event) => setUser(event.currentTarget.value)}
        />
        <button type="submit" class="button" disabled={user.trim() === ''}>
          Check
        </button>
      </form>
      {error && <ErrorBox text={error} />}
      <div class="difference" role="region" aria-label="Callers" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">Caller</th>
              <th scope="col">May read it</th>
              <th scope="col">Fields</th>
            </tr>
          </thead>
          <tbody>
            {callers.map((caller) => (
              <ViewerRow key={caller.as} caller={caller} verdict={verdicts.get(caller.as)} all={all} />
            ))}
          </tbody>
        </table>
      </div>
      <p class="quiet">
        A user may have more policies than the role. Choose “Why?” in <a href="#/access">Access</a> to see the rules.
      </p>
    </div>
  );
}

function ViewerRow(props: {
  readonly caller: Caller;
  readonly verdict: Verdict | undefined;
  readonly all: number;
}): JSX.Element {
  const { caller, verdict, all } = props;
  return (
    <tr>
      <th scope="row">
        {caller.name} <small>{caller.kind}</small>
      </th>
      <td>
        {!verdict && <span class="quiet">…</span>}
        {verdict?.kind === 'read' && <span class="good">yes</span>}
        {verdict?.kind === 'none' && <span class="quiet">no</span>}
        {verdict?.kind === 'failed' && <span class="bad">{verdict.message}</span>}
      </td>
      <td>{verdict?.kind === 'read' && (verdict.fields.length >= all ? 'all fields' : verdict.fields.join(', '))}</td>
    </tr>
  );
}

async function verdictOf(collection: Collection, keyValues: Row, as: string): Promise<Verdict> {
  const query = { fields: ['*'], filter: filterByKey(keyValues), limit: 1 };
  try {
    const { data } = await call<Row[]>('SEARCH', itemsPath(collection.name), { body: { query }, as });
    const columns = Object.keys(data[0] ?? {}).filter((name) => collection.fields.get(name)?.column);
    return data[0] ? { kind: 'read', fields: columns } : { kind: 'none' };
  } catch (error) {
    if (error instanceof ApiError && error.status === 403) return { kind: 'none' };
    return { kind: 'failed', message: messageOf(error) };
  }
}
