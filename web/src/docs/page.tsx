/** Docs: the caller's REST API, each operation with a form to try it, and the GraphQL IDE. */
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, base, call, messageOf } from '../api';
import { type Model, titleField } from '../model';
import { go, href, model, route } from '../state';
import { Button, countOf, ErrorBox, FormDialog } from '../ui';
import './docs.css';
import { GraphqlIde } from './graphql/ide';
import { loadOperations, type Member, type Operation } from './openapi';

export function DocsPage(): JSX.Element {
  const isGraphql = route.value.parameters.get('view') === 'graphql';
  return (
    <>
      <nav class="tabs docs-switch" aria-label="Kind of API">
        <a href={href('docs')} aria-current={isGraphql ? undefined : 'page'}>
          REST
        </a>
        <a href={href('docs', [], { view: 'graphql' })} aria-current={isGraphql ? 'page' : undefined}>
          GraphQL
        </a>
      </nav>
      {isGraphql ? <GraphqlIde first={exampleOf(model.value as Model)} /> : <Reference />}
    </>
  );
}

/** An example request with a result: some items of a collection with their titles. */
function exampleOf(model: Model): string {
  const isPlain = (name: string): boolean => /^[A-Za-z]\w*$/.test(name);
  const collection = [...model.values()].find((each) => !each.system && !each.singleton && isPlain(each.name));
  if (!collection) return '{\n  __typename\n}\n';
  const fields = [...new Set([...collection.keys, titleField(collection)])].filter(
    (name) => name !== null && isPlain(name) && !collection.fields.get(name)?.relation,
  );
  return `{\n  ${collection.name}(limit: 5) {\n    ${fields.join('\n    ') || '__typename'}\n  }\n}\n`;
}

const MOST_SHOWN = 200;

function Reference(): JSX.Element {
  const [operations, setOperations] = useState<readonly Operation[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [typed, setTyped] = useState('');
  useEffect(() => {
    loadOperations().then(setOperations, (failure: unknown) => setError(messageOf(failure)));
  }, []);
  if (error) return <ErrorBox text={error} />;
  if (!operations) return <p class="boot">Loading…</p>;
  const groups = [...new Set(operations.map(({ group }) => group))];
  const wanted = typed.trim().toLowerCase();
  const shown = groups.filter((group) => group.toLowerCase().includes(wanted));
  const [chosen = groups[0]] = route.value.rest;
  return (
    <div class="docs">
      <aside class="sidebar" aria-label="Resources">
        <div class="side-search">
          <input
            type="search"
            aria-label="Search resources"
            placeholder="Search resources"
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </div>
        <nav class="docs-groups" aria-label="Resources">
          {shown.slice(0, MOST_SHOWN).map((group) => (
            <a key={group} href={href('docs', [group])} aria-current={group === chosen ? 'page' : undefined}>
              {group}
            </a>
          ))}
          {shown.length > MOST_SHOWN && <p class="quiet">{shown.length - MOST_SHOWN} more: search for them.</p>}
        </nav>
        <div class="docs-links">
          <a href={`${base}/server/specs/oas`} target="_blank" rel="noreferrer">
            OpenAPI document
          </a>
        </div>
      </aside>
      <section class="docs-main">
        <h1>{chosen}</h1>
        {operations
          .filter(({ group }) => group === chosen)
          .map((operation) => (
            <OperationView key={`${operation.method} ${operation.path}`} operation={operation} />
          ))}
        {!groups.includes(chosen ?? '') && (
          <p>
            There is no such resource. <Button label="Show all" onClick={() => go(href('docs'))} />
          </p>
        )}
      </section>
    </div>
  );
}

function OperationView({ operation }: { readonly operation: Operation }): JSX.Element {
  const { method, path, summary, parameters, takesBody, body, answer } = operation;
  const [open, setOpen] = useState(false);
  return (
    <article class="operation" aria-label={`${method} ${path}`}>
      <header>
        <span class={`method ${method.toLowerCase()}`}>{method}</span>
        <code>{path}</code>
        <span class="grow" />
        <Button label="Try it" icon="play" onClick={() => setOpen(true)} />
      </header>
      {summary !== '' && <p>{summary}</p>}
      {parameters.length > 0 && (
        <details>
          <summary>{countOf(parameters.length, 'parameter')}</summary>
          <dl>
            {parameters.map((each) => (
              <div key={each.name}>
                <dt>
                  <code>{each.name}</code> <small>{each.required ? `${each.in}, required` : each.in}</small>
                </dt>
                <dd>{each.description}</dd>
              </div>
            ))}
          </dl>
        </details>
      )}
      <Members title="Body" members={body} />
      {takesBody && body.length === 0 && <p class="quiet">Takes a JSON body.</p>}
      <Members title="Response" members={answer} />
      {open && <TryIt operation={operation} onClose={() => setOpen(false)} />}
    </article>
  );
}

function Members(props: { readonly title: string; readonly members: readonly Member[] }): JSX.Element | null {
  if (props.members.length === 0) return null;
  return (
    <details>
      <summary>
        {props.title}: {countOf(props.members.length, 'field')}
      </summary>
      <dl>
        {props.members.map(({ name, type, description, required }) => (
          <div key={name}>
            <dt>
              <code>{name}</code> <small>{required ? `${type}, required` : type}</small>
            </dt>
            {description !== '' && <dd>{description}</dd>}
          </div>
        ))}
      </dl>
    </details>
  );
}

interface Outcome {
  readonly status: number;
  readonly text: string;
}

function TryIt({ operation, onClose }: { readonly operation: Operation; readonly onClose: () => void }): JSX.Element {
  const { method, path, takesBody } = operation;
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => String(name));
  const [values, setValues] = useState<Readonly<Record<string, string>>>({});
  const [query, setQuery] = useState(
    method === 'GET' && path.startsWith('/items/') && names.length === 0 ? 'limit=5' : '',
  );
  const [body, setBody] = useState(takesBody ? '{}' : '');
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const isReady = names.every((name) => (values[name] ?? '') !== '');
  const send = async (): Promise<void> => {
    setProblem(null);
    const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(values[name] ?? ''));
    try {
      const parsed: unknown = takesBody && body.trim() !== '' ? JSON.parse(body) : undefined;
      const { status, text } = await call(method, `${filled}${query === '' ? '' : `?${query}`}`, { body: parsed });
      setOutcome({ status, text });
    } catch (error) {
      if (error instanceof ApiError)
        setOutcome({ status: error.status, text: JSON.stringify({ errors: error.failures }) });
      else setProblem(messageOf(error));
    }
  };
  return (
    <FormDialog
      title={`${method} ${path}`}
      kind="side"
      cancel="Close"
      submit="Send"
      icon="play"
      disabled={!isReady}
      onClose={onClose}
      onSubmit={() => void send()}
    >
      {method !== 'GET' && <p class="quiet">This request changes data. It is sent with your login.</p>}
      {names.map((name) => (
        <div class="field" key={name}>
          <label for={`try-${name}`}>{name}</label>
          <input
            id={`try-${name}`}
            value={values[name] ?? ''}
            onInput={(event) => setValues({ ...values, [name]: event.currentTarget.value })}
          />
        </div>
      ))}
      <div class="field">
        <label for="try-query">
          Query string <small>fields=title&limit=5</small>
        </label>
        <input
          id="try-query"
          value={query}
          spellcheck={false}
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
      </div>
      {takesBody && (
        <div class="field">
          <label for="try-body">
            Body <small>JSON</small>
          </label>
          <textarea
            id="try-body"
            class="mono"
            rows={8}
            value={body}
            onInput={(event) => setBody(event.currentTarget.value)}
          />
        </div>
      )}
      {problem && <ErrorBox text={problem} />}
      {outcome && (
        <section aria-label="Answer">
          <h3 class={outcome.status < 400 ? 'good' : 'bad'}>{outcome.status}</h3>
          <pre class="output try-answer" tabIndex={0} role="region" aria-label="Body of the response">
            {readable(outcome.text)}
          </pre>
        </section>
      )}
    </FormDialog>
  );
}

const MOST_TEXT = 100_000;

function readable(text: string): string {
  if (text.length > MOST_TEXT) return `${text.slice(0, MOST_TEXT)}…`;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
