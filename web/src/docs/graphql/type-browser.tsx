/** The types of the schema, beginning with the root fields. Each type name is a link. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { messageOf } from '../../api';
import { Button, countOf, ErrorBox } from '../../ui';
import {
  type InputValue,
  type NamedType,
  namedOf,
  type OutputField,
  type TypeReference,
  type Types,
  writtenType,
} from './types';

const MOST_SHOWN = 200;

export function TypeBrowser({ types }: { readonly types: Types }): JSX.Element {
  const [path, setPath] = useState<readonly string[]>([]);
  const [roots, setRoots] = useState<readonly string[]>([]);
  const [type, setType] = useState<NamedType | null>(null);
  const [typed, setTyped] = useState('');
  const [error, setError] = useState<string | null>(null);
  const fail = (failure: unknown): void => setError(messageOf(failure));
  useEffect(() => {
    setPath([]);
    setError(null);
    types.roots().then(({ query, mutation }) => {
      setRoots([query, mutation].filter((name) => name !== null));
      setPath(query === null ? [] : [query]);
    }, fail);
  }, [types]);
  const name = path.at(-1);
  useEffect(() => {
    setTyped('');
    setType(null);
    if (name !== undefined) types.type(name).then(setType, fail);
  }, [name, types]);
  const open = (next: string): void => setPath([...path, next]);
  const wanted = typed.trim().toLowerCase();
  const members: readonly (InputValue | OutputField)[] = (type?.fields ?? type?.inputFields ?? []).filter((each) =>
    each.name.toLowerCase().includes(wanted),
  );
  return (
    <aside class="details graphql-types" aria-label="Types">
      <header>
        {path.length > 1 && (
          <Button label="Back" icon="up" kind="quiet" compact onClick={() => setPath(path.slice(0, -1))} />
        )}
        {roots.map((root) => (
          <Button key={root} label={root} pressed={name === root} onClick={() => setPath([root])} />
        ))}
      </header>
      <input
        type="search"
        aria-label="Search fields"
        placeholder="Search fields"
        value={typed}
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
      {error && <ErrorBox text={error} />}
      {!type && !error && <p class="quiet">Loading…</p>}
      {name !== undefined && !roots.includes(name) && <h2>{name}</h2>}
      {type?.description && <p class="quiet">{type.description}</p>}
      <ul>
        {members.slice(0, MOST_SHOWN).map((member) => (
          <li key={member.name}>
            <code>{member.name}</code> <TypeLink type={member.type} onOpen={open} />
            {member.description && <p class="quiet">{member.description}</p>}
            {'args' in member && member.args.length > 0 && (
              <details>
                <summary>{countOf(member.args.length, 'argument')}</summary>
                <ul>
                  {member.args.map((argument) => (
                    <li key={argument.name}>
                      <code>{argument.name}</code> <TypeLink type={argument.type} onOpen={open} />
                      {argument.description && <p class="quiet">{argument.description}</p>}
                    </li>
                  ))}
                </ul>
              </details>
            )}
          </li>
        ))}
        {type?.enumValues?.map((each) => (
          <li key={each.name}>
            <code>{each.name}</code>
          </li>
        ))}
        {type?.possibleTypes?.map((each) => (
          <li key={each.name}>
            <TypeLink type={{ kind: 'OBJECT', name: each.name }} onOpen={open} />
          </li>
        ))}
      </ul>
      {members.length > MOST_SHOWN && <p class="quiet">{members.length - MOST_SHOWN} more: search for them.</p>}
    </aside>
  );
}

function TypeLink(props: { readonly type: TypeReference; readonly onOpen: (name: string) => void }): JSX.Element {
  return (
    <button type="button" class="type-link" onClick={() => props.onOpen(namedOf(props.type))}>
      {writtenType(props.type)}
    </button>
  );
}
