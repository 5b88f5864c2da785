/** The GraphQL IDE: a document with variables, its response, and the types of the caller's schema. */
import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { ApiError, call, messageOf } from '../../api';
import { highlighted, JSON_TEXT } from '../../highlight';
import { go, href, route, whenForgotten } from '../../state';
import { Button, ErrorBox } from '../../ui';
import { Editor } from './editor';
import './graphql.css';
import { TypeBrowser } from './type-browser';
import { Types } from './types';

const ENDPOINTS = ['/graphql', '/graphql/system'] as const;

/** Whether the user has cleared the document: otherwise an address without one shows the example. */
const emptied = signal(false);
/** Kept while the user visits other pages. */
const variables = signal('');
const answer = signal<{ readonly text: string; readonly isError: boolean; readonly milliseconds: number } | null>(null);
whenForgotten(() => {
  emptied.value = false;
  variables.value = '';
  answer.value = null;
});

export function GraphqlIde({ first }: { readonly first: string }): JSX.Element {
  const given = route.value.parameters;
  const endpoint = ENDPOINTS.find((each) => each === given.get('endpoint')) ?? ENDPOINTS[0];
  const example = endpoint === ENDPOINTS[0] ? first : '{\n  users {\n    email\n  }\n}\n';
  const text = given.get('document') ?? (emptied.value ? '' : example);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [chosen, setChosen] = useState('');
  const types = useMemo(() => new Types(endpoint), [endpoint]);
  useEffect(() => {
    answer.value = null;
  }, [endpoint]);
  const place = (change: Record<string, string>): void =>
    go(href('docs', [], { view: 'graphql', endpoint, document: text, ...change }), true);
  const operations = [...text.matchAll(/\b(?:query|mutation)\s+(\w+)\s*[({@]/g)].map(([, name]) => String(name));
  const operationName = operations.includes(chosen) ? chosen : operations[0];
  const run = async (): Promise<void> => {
    setProblem(null);
    setBusy(true);
    const begun = performance.now();
    const show = (value: unknown, isError: boolean): void => {
      answer.value = { text: JSON.stringify(value, null, 2), isError, milliseconds: performance.now() - begun };
    };
    try {
      const given: unknown = variables.value.trim() === '' ? {} : JSON.parse(variables.value);
      const named = operations.length > 1 ? { operationName } : {};
      const { text: body } = await call('POST', endpoint, { body: { query: text, variables: given, ...named } });
      const parsed = JSON.parse(body) as { errors?: unknown };
      show(parsed, parsed.errors !== undefined);
    } catch (error) {
      if (error instanceof ApiError && error.status > 0) show({ errors: error.failures }, true);
      else setProblem(error instanceof SyntaxError ? `Variables must be JSON: ${error.message}` : messageOf(error));
    }
    setBusy(false);
  };
  return (
    <div class="graphql">
      <section class="graphql-main">
        <header class="toolbar">
          <h1>GraphQL</h1>
          <select
            aria-label="Endpoint"
            value={endpoint}
            onChange={(event) => go(href('docs', [], { view: 'graphql', endpoint: event.currentTarget.value }))}
          >
            {ENDPOINTS.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
          {operations.length > 1 && (
            <select
              aria-label="Operation"
              value={operationName ?? ''}
              onChange={(event) => setChosen(event.currentTarget.value)}
            >
              {operations.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          )}
          <span class="grow" />
          <span class="quiet graphql-keys">Ctrl Space completes, Ctrl Enter runs</span>
          <Button
            label={busy ? 'Running…' : 'Run'}
            icon="play"
            kind="primary"
            disabled={busy}
            onClick={() => void run()}
          />
        </header>
        <div class="graphql-panes">
          <div class="graphql-question">
            <Editor
              value={text}
              types={types}
              onInput={(changed) => {
                emptied.value = changed === '';
                place({ document: changed });
              }}
              onRun={() => void run()}
            />
            <label for="graphql-variables">
              Variables <small>JSON</small>
            </label>
            <textarea
              id="graphql-variables"
              class="mono"
              rows={4}
              spellcheck={false}
              value={variables.value}
              placeholder='{ "key": 1 }'
              onInput={(event) => (variables.value = event.currentTarget.value)}
            />
            {problem && <ErrorBox text={problem} />}
          </div>
          <section class="graphql-answer" aria-label="Answer">
            {answer.value ? (
              <>
                <p class={answer.value.isError ? 'bad' : 'good'}>
                  {answer.value.isError ? 'With errors' : 'Done'}, {Math.round(answer.value.milliseconds)} ms
                </p>
                <pre class="output" tabIndex={0} role="region" aria-label="Body of the response">
                  {highlighted(
                    answer.value.text.length > MOST_TEXT
                      ? `${answer.value.text.slice(0, MOST_TEXT)}…`
                      : answer.value.text,
                    JSON_TEXT,
                  )}
                </pre>
              </>
            ) : (
              <p class="quiet">The response appears here.</p>
            )}
          </section>
        </div>
      </section>
      <TypeBrowser types={types} />
    </div>
  );
}

const MOST_TEXT = 200_000;
