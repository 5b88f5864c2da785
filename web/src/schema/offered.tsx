/** The functions of the database that are not callable yet, for administrators: by name, with their arguments. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button, countOf } from '../ui';
import { TextField } from './form';

/** One overload, as `GET /schema/functions` lists it. */
export interface DatabaseFunction {
  readonly name: string;
  /** The first schema that is served is null. */
  readonly schema: string | null;
  readonly arguments: string;
  readonly returns: string;
  readonly writes: boolean;
  readonly note: string | null;
}

interface OfferedProps {
  readonly functions: readonly DatabaseFunction[];
  /** Whether another change is being made. */
  readonly busy: boolean;
  readonly onExpose: (chosen: Pick<DatabaseFunction, 'name' | 'schema'>) => void;
}

const MOST = 50;

export function OfferedFunctions({ functions, busy, onExpose }: OfferedProps): JSX.Element {
  const [typed, setTyped] = useState('');
  const wanted = typed.trim().toLowerCase();
  const found = overloadsOf(functions).filter(([name]) => name.toLowerCase().includes(wanted));
  return (
    <section class="form offered" aria-label="Functions of the database">
      <h3>Functions of the database</h3>
      {functions.length === 0 && <p class="quiet">The database has no other functions that can be called.</p>}
      {functions.length > 0 && (
        <>
          <TextField
            label="Find a function"
            value={typed}
            onInput={setTyped}
            note="Only administrators can call it, until a role gets the permission to execute it"
          />
          {found.length === 0 && <p class="quiet">No other function has this name.</p>}
        </>
      )}
      <ul class="functions">
        {found.slice(0, MOST).map(([name, overloads]) => (
          <li key={name}>
            <div class="function-head">
              <code>
                {overloads.map((each) => (
                  <div key={each.arguments}>
                    {name}({each.arguments}) → {each.returns}
                  </div>
                ))}
              </code>
              <Button
                label={`Make ${name} callable`}
                disabled={busy}
                onClick={() => overloads[0] && onExpose(overloads[0])}
              />
            </div>
            <small class="quiet">
              {overloads.some(({ writes }) => writes) ? 'may write' : 'reads'}
              {overloads[0]?.note ? `: ${overloads[0].note}` : ''}
            </small>
          </li>
        ))}
      </ul>
      {found.length > MOST && (
        <p class="quiet">And {countOf(found.length - MOST, 'function')} more: search for them.</p>
      )}
    </section>
  );
}

/** A name makes all overloads callable. */
function overloadsOf(functions: readonly DatabaseFunction[]): [name: string, overloads: DatabaseFunction[]][] {
  const byName = new Map<string, DatabaseFunction[]>();
  for (const each of functions) {
    const name = each.schema === null ? each.name : `${each.schema}.${each.name}`;
    byName.set(name, [...(byName.get(name) ?? []), each]);
  }
  return [...byName];
}
