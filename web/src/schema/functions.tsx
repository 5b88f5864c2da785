/** The functions that the caller may call: their signatures, read from the OpenAPI document, and a form to call one. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, messageOf } from '../api';
import { mayAdminister } from '../state';
import { Button, Dialog, Empty, ErrorBox } from '../ui';
import { TextField } from './form';
import { type DatabaseFunction, OfferedFunctions } from './offered';

interface Schema {
  readonly type?: string | readonly string[];
  readonly format?: string;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly $ref?: string;
}

interface Content {
  readonly content?: { readonly 'application/json'?: { readonly schema?: Schema } };
}

interface Operation {
  readonly description?: string;
  readonly requestBody?: Content;
  readonly responses?: { readonly 200?: Content };
}

interface Callable {
  readonly name: string;
  readonly note: string | null;
  /** Whether a GET may call it: then it writes nothing. */
  readonly reads: boolean;
  readonly inputs: readonly Input[];
  readonly returns: string;
}

interface Input {
  readonly name: string;
  readonly type: string;
  readonly required: boolean;
}

interface Specification {
  readonly paths: Readonly<Record<string, { readonly get?: Operation; readonly post?: Operation }>>;
}

interface Listed {
  /** The names in service_functions. */
  readonly names: ReadonlySet<string>;
  readonly callable: readonly Callable[];
  /** Names that the service cannot call: mostly the database has no such function. */
  readonly missing: readonly string[];
  /** The other functions of the database, for administrators. */
  readonly offered: readonly DatabaseFunction[];
}

/** A row of service_functions. */
interface Exposed {
  readonly name: string;
  readonly schema: string | null;
  readonly function: string | null;
}

/** The row that makes a function callable. Another one may have its name already. */
function exposed({ name, schema }: Pick<DatabaseFunction, 'name' | 'schema'>, names: ReadonlySet<string>): Exposed {
  const isTaken = names.has(name);
  return { name: isTaken ? `${schema ?? 'public'}_${name}` : name, schema, function: isTaken ? name : null };
}

async function loadFunctions(): Promise<Listed> {
  const [{ text }, { data: rows }, { data: inDatabase }] = await Promise.all([
    call('GET', '/server/specs/oas'),
    mayAdminister.value ? call<Exposed[]>('GET', '/functions?fields=name,schema,function&limit=-1') : { data: [] },
    mayAdminister.value ? call<DatabaseFunction[]>('GET', '/schema/functions') : { data: [] },
  ]);
  const { paths } = JSON.parse(text) as Specification;
  const callable = Object.entries(paths).flatMap(([path, { get, post }]) =>
    path.startsWith('/rpc/') && post ? [describe(decodeURIComponent(path.slice('/rpc/'.length)), post, !!get)] : [],
  );
  const known = new Set(callable.map(({ name }) => name));
  const taken = new Set(rows.map((row) => JSON.stringify([row.schema, row.function ?? row.name])));
  return {
    names: new Set(rows.map(({ name }) => name)),
    callable,
    missing: rows.map(({ name }) => name).filter((name) => !known.has(name)),
    offered: inDatabase.filter(({ schema, name }) => !taken.has(JSON.stringify([schema, name]))),
  };
}

function describe(name: string, { description, requestBody, responses }: Operation, reads: boolean): Callable {
  const body = schemaOf(requestBody);
  const [first = body] = body.anyOf ?? [];
  const data = schemaOf(responses?.[200]).properties?.['data'] ?? {};
  const [returned = data] = data.anyOf ?? [];
  const inputs = Object.entries(first.properties ?? {}).map(([argument, schema]) => ({
    name: argument,
    type: typeOf(schema),
    required: first.required?.includes(argument) ?? false,
  }));
  return { name, note: description ?? null, reads, inputs, returns: typeOf(returned) };
}

function schemaOf(part: Content | undefined): Schema {
  return part?.content?.['application/json']?.schema ?? {};
}

function typeOf({ type, format, items, $ref, anyOf }: Schema): string {
  // Items of the collection articles are the schema Items_articles.
  if ($ref)
    return (
      $ref
        .split('/')
        .at(-1)
        ?.replace(/^Items_/, '') ?? ''
    );
  if (items) return `${typeOf(items)}[]`;
  if (anyOf?.[0]) return typeOf(anyOf[0]);
  const [plain = 'any'] = [type].flat().filter((each) => each !== 'null');
  return format ?? plain;
}

export function Functions(): JSX.Element {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button label="Functions" icon="code" onClick={() => setOpen(true)} />
      {open && <FunctionsDialog onClose={() => setOpen(false)} />}
    </>
  );
}

function FunctionsDialog({ onClose }: { readonly onClose: () => void }): JSX.Element {
  const [functions, setFunctions] = useState<Listed | null>(null);
  const [chosen, setChosen] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const list = useRef<HTMLUListElement>(null);
  const load = (): Promise<void> =>
    loadFunctions().then(setFunctions, (failure: unknown) => setError(messageOf(failure)));
  useEffect(() => void load(), []);
  const change = async (method: string, path: string, body?: unknown): Promise<void> => {
    setError(null);
    setBusy(true);
    try {
      await call(method, path, body === undefined ? {} : { body });
      await load();
    } catch (failure) {
      setError(messageOf(failure));
    }
    setBusy(false);
  };
  const expose = async (row: Exposed): Promise<void> => {
    await change('POST', '/functions', row);
    // The function moved from the pressed button to the list above, which may be scrolled away.
    const buttons = [...(list.current?.querySelectorAll<HTMLElement>('button') ?? [])];
    buttons.find(({ ariaLabel }) => ariaLabel === `Call ${row.name}`)?.focus();
  };
  return (
    <Dialog title="Functions" kind="side" isForm onClose={onClose}>
      {error && <ErrorBox text={error} />}
      {!functions && !error && <p class="quiet">Loading…</p>}
      {functions?.callable.length === 0 && functions.missing.length === 0 && (
        <Empty title="No functions yet" icon="code">
          {mayAdminister.value
            ? 'Make a function of the database callable.'
            : 'An administrator can make functions of the database callable.'}
        </Empty>
      )}
      <ul class="functions" ref={list}>
        {functions?.callable.map((each) => (
          <li key={each.name}>
            <div class="function-head">
              <code>{signatureOf(each)}</code>
              <Button
                label={chosen === each.name ? `Close ${each.name}` : `Call ${each.name}`}
                onClick={() => setChosen(chosen === each.name ? null : each.name)}
              />
            </div>
            <small class="quiet">
              {each.reads ? 'reads' : 'may write'}
              {each.note ? `: ${each.note}` : ''}
            </small>
            {chosen === each.name && <CallForm called={each} />}
          </li>
        ))}
        {functions?.missing.map((each) => (
          <MissingFunction
            key={each}
            name={each}
            busy={busy}
            onRemove={() => void change('DELETE', `/functions/${encodeURIComponent(each)}`)}
          />
        ))}
      </ul>
      {mayAdminister.value && functions && (
        <OfferedFunctions
          functions={functions.offered}
          busy={busy}
          onExpose={(chosen) => void expose(exposed(chosen, functions.names))}
        />
      )}
    </Dialog>
  );
}

interface MissingProps {
  readonly name: string;
  readonly busy: boolean;
  readonly onRemove: () => void;
}

function MissingFunction({ name, busy, onRemove }: MissingProps): JSX.Element {
  return (
    <li>
      <div class="function-head">
        <code>{name}</code>
        <Button label={`Remove ${name}`} disabled={busy} onClick={onRemove} />
      </div>
      <small class="bad">The database has no function of this name that can be called.</small>
    </li>
  );
}

function signatureOf({ name, inputs, returns }: Callable): string {
  const list = inputs.map((input) => `${input.name}${input.required ? '' : '?'}: ${input.type}`);
  return `${name}(${list.join(', ')}) → ${returns}`;
}

/** The result of a call, or the error of the function. */
interface Outcome {
  readonly text: string;
  readonly isError: boolean;
}

function CallForm({ called }: { readonly called: Callable }): JSX.Element {
  const [values, setValues] = useState<Readonly<Record<string, string>>>({});
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [busy, setBusy] = useState(false);
  const send = async (): Promise<void> => {
    setBusy(true);
    setOutcome(null);
    try {
      const body = Object.fromEntries(
        called.inputs.flatMap(({ name, type }) => {
          const text = values[name] ?? '';
          return text === '' ? [] : [[name, typedValue(text, type)]];
        }),
      );
      const answer = await call<unknown>('POST', `/rpc/${encodeURIComponent(called.name)}`, { body });
      const text = answer.text === '' ? 'No result' : JSON.stringify(answer.data, null, 2);
      setOutcome({ text, isError: false });
    } catch (failure) {
      setOutcome({ text: messageOf(failure), isError: true });
    }
    setBusy(false);
  };
  const isIncomplete = called.inputs.some(({ name, required }) => required && (values[name] ?? '') === '');
  return (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        if (!busy && !isIncomplete) void send();
      }}
    >
      {called.inputs.map(({ name, type, required }) => (
        <TextField
          key={name}
          label={name}
          value={values[name] ?? ''}
          onInput={(text) => setValues({ ...values, [name]: text })}
          note={required ? type : `${type}, optional: the default if empty`}
        />
      ))}
      <div class="row">
        <Button label="Run" icon="play" kind="primary" disabled={busy || isIncomplete} onClick={() => void send()} />
      </div>
      {outcome?.isError && <ErrorBox text={outcome.text} />}
      {outcome && !outcome.isError && (
        <section class="statements" aria-label="Result">
          <pre tabindex={0}>{outcome.text}</pre>
        </section>
      )}
      <button type="submit" hidden />
    </form>
  );
}

const TEXTS = new Set(['string', 'date', 'time', 'date-time', 'uuid', 'email', 'int64', 'decimal']);

/** Texts as they are typed. Other types are JSON; the service reports a value that is none. */
function typedValue(text: string, type: string): unknown {
  if (TEXTS.has(type)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
