/** A form that asks whether a user may do something with an item, and shows the answer rule by rule. */
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { messageOf } from '../api';
import type { Model } from '../model';
import { ErrorBox, Icon } from '../ui';
import { ACTIONS, type Access, type Action, findUser } from './policies';
import { explainAccess, type Verdict } from './why';

const ASKED: readonly Action[] = ACTIONS.filter((action) => action !== 'create');

export function Why({ access, model }: { readonly access: Access; readonly model: Model }): JSX.Element {
  const all = [...model.values()].filter((each) => each.keys.length > 0);
  const collections = [...all.filter(({ system }) => !system), ...all.filter(({ system }) => system)];
  const [user, setUser] = useState('');
  const [action, setAction] = useState<Action>('read');
  const [collection, setCollection] = useState(collections[0]?.name ?? '');
  const [key, setKey] = useState<Readonly<Record<string, string>>>({});
  const keys = model.get(collection)?.keys ?? [];
  const turn = useRef(0);
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [error, setError] = useState<string | null>(null);
  const ask = async (event: Event): Promise<void> => {
    event.preventDefault();
    setVerdict(null);
    setError(null);
    const asked = ++turn.current;
    const values = Object.fromEntries(keys.map((name) => [name, (key[name] ?? '').trim()]));
    try {
      const who = user.trim() === '' ? null : await findUser(user.trim(), access);
      const answer = await explainAccess({ user: who, action, collection, key: values }, access);
      if (asked === turn.current) setVerdict(answer);
    } catch (failure) {
      if (asked === turn.current) setError(messageOf(failure));
    }
  };
  return (
    <div class="why">
      <form onSubmit={ask}>
        <label>
          May
          <input
            list="why-users"
            placeholder="the public"
            value={user}
            onInput={(event) => setUser(event.currentTarget.value)}
          />
          <datalist id="why-users">
            {access.users.map(({ id, email }) => (
              <option key={id} value={email ?? id} />
            ))}
          </datalist>
        </label>
        <label>
          do this
          <select value={action} onChange={(event) => setAction(event.currentTarget.value as Action)}>
            {ASKED.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          in
          <select
            value={collection}
            onChange={(event) => {
              setCollection(event.currentTarget.value);
              setKey({});
            }}
          >
            {collections.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        {keys.map((name, at) => (
          <label key={name}>
            {at === 0 ? `with the item of ${name}` : `and ${name}`}
            <input
              required
              value={key[name] ?? ''}
              onInput={(event) => setKey({ ...key, [name]: event.currentTarget.value })}
            />
          </label>
        ))}
        <button type="submit" class="button primary">
          Ask
        </button>
      </form>
      {error && <ErrorBox text={error} />}
      {!verdict && !error && (
        <p class="quiet">The answer names the rule that allows it, or says which part of which rule does not hold.</p>
      )}
      {verdict && (
        <section aria-label="Answer" class="verdict">
          <h2 class={verdict.allowed ? 'good' : 'bad'}>
            <Icon name={verdict.allowed ? 'check' : 'close'} /> {verdict.allowed ? 'Yes' : 'No'}
          </h2>
          <p>{verdict.summary}</p>
          {verdict.rules.map((rule) => (
            <div class="verdict-rule" key={rule.permission.id}>
              <h3>
                {rule.policy}: {rule.permission.action} {rule.permission.collection}
                <small> fields: {rule.permission.fields?.join(', ') ?? 'none'}</small>
              </h3>
              <ul>
                {rule.parts.map((part) => (
                  <li key={part.text} class={part.holds === true ? 'good' : 'bad'}>
                    <Icon name={part.holds === true ? 'check' : 'close'} />
                    <span>{part.text}</span>
                    <small>
                      {part.holds === true
                        ? 'holds'
                        : part.holds === false
                          ? 'does not hold'
                          : `not evaluated: ${part.note}`}
                    </small>
                    {part.values.length > 0 && <code class="part-values">{part.values.join(', ')}</code>}
                  </li>
                ))}
              </ul>
            </div>
          ))}
        </section>
      )}
    </div>
  );
}
