/** The requests that read and change an item, to copy. */
import type { JSX } from 'preact';
import { base, itemsPath } from '../../api';
import type { Collection, Model } from '../../model';
import { Button, copyText, Dialog } from '../../ui';
import type { Edits } from '../edits';
import { recordFields } from '../source';
import type { Version } from './versions';

interface RequestProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly itemKey: string;
  readonly edits: Edits | null;
  readonly version: Version | null;
  readonly onClose: () => void;
}

interface Shown {
  readonly title: string;
  readonly rest: string;
  readonly curl: string;
}

export function RequestDialog(props: RequestProps): JSX.Element {
  const requests = requestsOf(props);
  return (
    <Dialog title="As request" onClose={props.onClose}>
      <div class="requests">
        {requests.map(({ title, rest, curl }) => (
          <section key={title} aria-label={title}>
            <h3>{title}</h3>
            <Copied label="REST" text={rest} />
            <Copied label="curl" text={curl} />
          </section>
        ))}
        <p class="quiet">
          <code>$TOKEN</code> is a token of yours. Changes appear here before you save them.
        </p>
      </div>
    </Dialog>
  );
}

function Copied({ label, text }: { readonly label: string; readonly text: string }): JSX.Element {
  return (
    <div class="request">
      <pre role="region" tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <Button label={`Copy ${label}`} icon="copy" onClick={() => void copyText(text, `${label} copied`)} />
    </div>
  );
}

function requestsOf({ collection, model, itemKey, edits, version }: RequestProps): Shown[] {
  const path = collection.singleton ? itemsPath(collection.name) : itemsPath(collection.name, itemKey);
  const query = [
    ...(version ? [`version=${encodeURIComponent(version.key)}`] : []),
    `fields=${fieldsText(recordFields(collection, model))}`,
  ].join('&');
  const reading = { title: 'Read the item', ...written('GET', `${path}?${query}`, null) };
  if (!edits || edits.count === 0) return [reading];
  const payload = edits.payload();
  const [first = {}] = payload;
  const changes = Object.fromEntries(Object.entries(first).filter(([name]) => !collection.keys.includes(name)));
  const writing = version
    ? written('POST', `/versions/${version.id}/save`, changes)
    : payload.length === 1
      ? written('PATCH', path, changes)
      : written('PATCH', itemsPath(collection.name), payload);
  return [reading, { title: 'Save the pending changes', ...writing }];
}

/** All fields as `*`, and those of related items by name. */
function fieldsText(fields: readonly string[]): string {
  return ['*', ...fields.filter((name) => name.includes('.'))].map(encodeURIComponent).join(',').replaceAll('%2A', '*');
}

function written(method: string, path: string, body: unknown): { readonly rest: string; readonly curl: string } {
  const text = body === null ? '' : JSON.stringify(body, null, 2);
  const url = `${location.origin}${base}${path}`;
  const parts = [
    `curl -g${method === 'GET' ? '' : ` -X ${method}`} -H "Authorization: Bearer $TOKEN"`,
    ...(body === null ? [] : [`-H 'Content-Type: application/json'`, `-d ${quoted(text)}`]),
    quoted(url),
  ];
  return { rest: `${method} ${base}${path}${text === '' ? '' : `\n\n${text}`}`, curl: parts.join(' \\\n') };
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
