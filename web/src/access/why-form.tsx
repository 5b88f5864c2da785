/** Asks why somebody may do something with an item, and shows the answer rule by rule. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { messageOf } from '../api';
import type { Model } from '../model';
import { ErrorBox, Icon } from '../ui';
import { ACTIONS, type Access, type Action } from './policies';
import { explainAccess, type Verdict } from './why';

const ASKED: readonly Action[] = ACTIONS.filter((action) => action !== 'create');

export function Why({ access, model }: { readonly access: Access; readonly model: Model }): JSX.Element {
  const collections = [...model.values()].filter((each) => !each.system && each.key !== null);
  const [user, setUser] = useState('');
  const [action, setAction] = useState<Action>('read');
  const [collection, setCollection] = useState(collections[0]?.name ?? '');
  const [key, setKey] = useState('');
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [error, setError] = useState<string | null>(null);
  const ask = async (event: Event): Promise<void> => {
    event.preventDefault();
    setVerdict(null);
    setError(null);
    const keyField = model.get(collection)?.key ?? 'id';
    const who = access.users.find((each) => each.id === user) ?? null;
    try {
      setVerdict(await explainAccess({ user: who, action, collection, keyField, key: key.trim() }, access));
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  return (
    <div class="why">
      <form onSubmit={ask}>
        <label>
          May
          <select value={user} onChange={(event) => setUser(event.currentTarget.value)}>
            <option value="">the public</option>
            {access.users.map(({ id, email }) => (
              <option key={id} value={id}>
                {email ?? id}
              </option>
            ))}
          </select>
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
          <select value={collection} onChange={(event) => setCollection(event.currentTarget.value)}>
            {collections.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          with the item
          <input required placeholder="key" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
        </label>
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
                          : `not asked: ${part.note}`}
                    </small>
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
