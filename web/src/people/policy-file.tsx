/** Policies as a file: download them, and upload a file, whose difference is shown before it is applied. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, fetchContent, messageOf, saveAs, sendForm } from '../api';
import { SaveDialog } from '../forms';
import { toast } from '../state';
import { Button, Dialog, ErrorBox } from '../ui';

type Change =
  | { readonly kind: 'N'; readonly rhs: unknown }
  | { readonly kind: 'D'; readonly lhs: unknown }
  | { readonly kind: 'E'; readonly path: readonly string[]; readonly lhs: unknown; readonly rhs: unknown };

interface PolicyChange {
  readonly name: string;
  readonly diff: readonly Change[];
}

interface Comparison {
  readonly hash: string;
  readonly diff: Readonly<Record<string, readonly unknown[]>> & { readonly policies?: readonly PolicyChange[] };
}

export function PolicyFile({ onChanged }: { readonly onChanged: () => Promise<void> }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const [file, setFile] = useState<File | null>(null);
  const save = async (): Promise<void> => {
    const request = new AbortController();
    saveAs(await fetchContent('/schema/snapshot?policies=only&export=yaml', request.signal), 'policies.yaml');
  };
  return (
    <>
      <Button
        label="Download policies"
        icon="save"
        onClick={() => void save().catch((failure: unknown) => toast(messageOf(failure), 'bad'))}
      />
      <input
        ref={input}
        type="file"
        hidden
        accept=".yaml,.yml,.json"
        aria-label="File with policies"
        onChange={(event) => {
          setFile(event.currentTarget.files?.[0] ?? null);
          event.currentTarget.value = '';
        }}
      />
      <Button label="Upload policies" icon="upload" onClick={() => input.current?.click()} />
      {file && <Difference file={file} onClose={() => setFile(null)} onChanged={onChanged} />}
    </>
  );
}

interface DifferenceProps {
  readonly file: File;
  readonly onClose: () => void;
  readonly onChanged: () => Promise<void>;
}

type Compared = { readonly found: Comparison | null } | { readonly error: string };

/** The comparison is null if nothing differs. */
async function compare(file: File, mode: string, signal: AbortSignal): Promise<Comparison | null> {
  const form = new FormData();
  form.append('file', file, file.name);
  const found = await sendForm('POST', `/schema/diff?mode=${mode}`, form, { onProgress: () => {}, signal });
  return (found ?? null) as Comparison | null;
}

function Difference({ file, onClose, onChanged }: DifferenceProps): JSX.Element {
  const [deletes, setDeletes] = useState(false);
  const [compared, setCompared] = useState<Compared | null>(null);
  useEffect(() => {
    const request = new AbortController();
    setCompared(null);
    compare(file, deletes ? 'mirror' : 'merge', request.signal).then(
      (found) => setCompared({ found }),
      (failure: unknown) => !request.signal.aborted && setCompared({ error: messageOf(failure) }),
    );
    return () => request.abort();
  }, [file, deletes]);
  const found = compared && 'found' in compared ? compared.found : null;
  const isSchema = Object.entries(found?.diff ?? {}).some(([part, list]) => part !== 'policies' && list.length > 0);
  const changes = found?.diff.policies ?? [];
  if (compared && 'error' in compared)
    return (
      <Dialog title={`Apply ${file.name}`} onClose={onClose}>
        <ErrorBox text={compared.error} />
      </Dialog>
    );
  return (
    <SaveDialog
      title={`Apply ${file.name}`}
      submit="Apply"
      danger={changes.some(({ diff }) => diff.some(({ kind }) => kind === 'D'))}
      disabled={changes.length === 0 || isSchema}
      onClose={onClose}
      onSave={async () => {
        await call('POST', '/schema/apply', { body: found });
        await onChanged();
        return 'The policies were applied';
      }}
    >
      <label class="row">
        <input type="checkbox" checked={deletes} onChange={() => setDeletes(!deletes)} />
        Delete policies that the file does not contain
      </label>
      {!compared && <p class="quiet">Comparing…</p>}
      {isSchema && (
        <ErrorBox text="The file also changes collections, fields or relations. Apply it with lateral schema apply." />
      )}
      {compared && !isSchema && changes.length === 0 && <p role="status">Nothing differs.</p>}
      <ul class="policy-changes" aria-label="Differences">
        {changes.map(({ name, diff }) => (
          <li key={name}>
            <h3>
              {MARKS[diff[0]?.kind ?? 'E']} {name}
            </h3>
            <ul>
              {diff.flatMap(linesOf).map(({ mark, text }) => (
                <li key={mark + text} class={mark === '+' ? 'good' : mark === '−' ? 'bad' : ''}>
                  <span class="mono">{mark}</span> <code>{text}</code>
                </li>
              ))}
            </ul>
          </li>
        ))}
      </ul>
    </SaveDialog>
  );
}

const MARKS = { N: 'New policy:', D: 'Delete policy:', E: 'Change policy:' } as const;

interface Line {
  readonly mark: '+' | '−' | '~';
  readonly text: string;
}

function linesOf(change: Change): Line[] {
  if (change.kind === 'N') return entryLines(change.rhs, '+');
  if (change.kind === 'D') return entryLines(change.lhs, '−');
  const { path, lhs, rhs } = change;
  const name = path.join('.');
  if (!Array.isArray(lhs) || !Array.isArray(rhs))
    return [{ mark: '~', text: `${name}: ${JSON.stringify(lhs)} → ${JSON.stringify(rhs)}` }];
  const [before, after] = [lhs, rhs].map((list) => list.map((each) => describe(name, each)));
  const missing = (from: readonly string[] = [], others: readonly string[] = []): string[] =>
    from.filter((each) => !others.includes(each));
  return [
    ...missing(before, after).map((text) => ({ mark: '−' as const, text })),
    ...missing(after, before).map((text) => ({ mark: '+' as const, text })),
  ];
}

/** The permissions, the holders and the set flags of a whole policy. */
function entryLines(entry: unknown, mark: '+' | '−'): Line[] {
  return Object.entries((entry ?? {}) as Readonly<Record<string, unknown>>).flatMap(([name, value]) => {
    if (Array.isArray(value)) return value.map((each) => ({ mark, text: describe(name, each) }));
    return value === true ? [{ mark, text: name }] : [];
  });
}

function describe(list: string, entry: unknown): string {
  if (typeof entry !== 'object' || entry === null) return `${list}: ${String(entry)}`;
  const { action, collection, fields, ...rules } = entry as Readonly<Record<string, unknown>>;
  const set = Object.entries(rules).filter(([, value]) => value !== null);
  const names = Array.isArray(fields) ? ` (${fields.join(', ')})` : '';
  return [`${action} ${collection}${names}`, ...set.map(([name, value]) => `${name}: ${JSON.stringify(value)}`)].join(
    '; ',
  );
}
