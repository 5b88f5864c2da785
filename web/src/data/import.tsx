/** Import of a file: its columns are mapped to fields, the first rows are shown, and refused rows can be corrected and sent again. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, type Failure, messageOf, upload } from '../api';
import type { Collection } from '../model';
import { Button, countOf, Dialog, ErrorBox } from '../ui';
import {
  type ImportFile,
  type ImportRow,
  MOST_CHECKED,
  mappedBody,
  mistakesIn,
  readImport,
  SMALL_BYTES,
  suggestedField,
} from './import-file';

interface ImportProps {
  readonly collection: Collection;
  readonly onClose: () => void;
  readonly onDone: () => void;
}

type Progress =
  | { readonly kind: 'sending'; readonly part: number }
  | { readonly kind: 'done'; readonly rows: number }
  | { readonly kind: 'failed'; readonly failures: readonly Failure[]; readonly message: string };

const MOST_SHOWN = 5;
const MOST_ERRORS = 50;

interface FooterProps {
  readonly progress: Progress | null;
  readonly isReady: boolean;
  readonly onClose: () => void;
  readonly onSend: () => void;
}

function Footer({ progress, isReady, onClose, onSend }: FooterProps): JSX.Element {
  if (progress?.kind === 'done') return <Button label="Close" kind="primary" onClick={onClose} />;
  return (
    <>
      <Button label="Cancel" onClick={onClose} />
      <Button
        label={progress?.kind === 'failed' ? 'Try again' : 'Import'}
        kind="primary"
        disabled={!isReady}
        onClick={onSend}
      />
    </>
  );
}

export function ImportDialog({ collection, onClose, onDone }: ImportProps): JSX.Element {
  const [file, setFile] = useState<ImportFile | null>(null);
  const [mapping, setMapping] = useState<readonly (string | null)[]>([]);
  const [rows, setRows] = useState<readonly ImportRow[]>([]);
  const [error, setError] = useState<string | null>(null);
  const [progress, setProgress] = useState<Progress | null>(null);
  const sending = useRef<AbortController | null>(null);
  /** Closing the dialog cancels the import, and no row is stored. */
  useEffect(() => () => sending.current?.abort(), []);
  const open = async (chosen: File | undefined): Promise<void> => {
    setProgress(null);
    setError(null);
    setFile(null);
    if (!chosen) return;
    try {
      const read = await readImport(chosen);
      setFile(read);
      setRows(read.rows);
      setMapping(read.columns.map((name) => suggestedField(name, collection)));
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  const send = async (): Promise<void> => {
    if (!file) return;
    const request = new AbortController();
    sending.current = request;
    setProgress({ kind: 'sending', part: 0 });
    try {
      const path = `/utils/import/${encodeURIComponent(collection.name)}`;
      const body = file.isWhole ? mappedBody(file, mapping, rows) : file.source;
      const onPart = (part: number): void => setProgress({ kind: 'sending', part });
      const data = await upload(path, body, file.type, { onProgress: onPart, signal: request.signal });
      setProgress({ kind: 'done', rows: Number((data as { imported?: number } | undefined)?.imported ?? 0) });
      onDone();
    } catch (failure) {
      if (request.signal.aborted) return;
      const failures = failure instanceof ApiError ? failure.failures : [];
      setProgress({ kind: 'failed', failures, message: messageOf(failure) });
    }
  };
  const isSending = progress?.kind === 'sending';
  const kept = rows.filter(({ isLeftOut }) => !isLeftOut);
  const mapped = mapping.some((name) => name !== null);
  const isReady = file !== null && !isSending && (!file.isWhole || (mapped && kept.length > 0));
  return (
    <Dialog
      title={`Import into ${collection.name}`}
      onClose={onClose}
      isForm
      footer={<Footer progress={progress} isReady={isReady} onClose={onClose} onSend={() => void send()} />}
    >
      <div class="form">
        <div class="field">
          <label for="import-file">
            File <small>csv, json or ndjson</small>
          </label>
          <input
            id="import-file"
            type="file"
            accept=".csv,.json,.ndjson,.jsonl"
            disabled={isSending}
            onChange={(event) => void open(event.currentTarget.files?.[0])}
          />
        </div>
        {error && <ErrorBox text={error} />}
        {!file && !error && <p class="quiet">All rows are imported, or none if one of them is refused.</p>}
        {file && !file.isWhole && (
          <p class="quiet">
            The file is larger than {SMALL_BYTES / 1e6} MB, so it is sent as it is: the names of its columns must be
            names of fields.
          </p>
        )}
        {file?.isWhole && progress?.kind !== 'done' && (
          <Mapping file={file} rows={rows} mapping={mapping} collection={collection} onChange={setMapping} />
        )}
        {progress?.kind === 'sending' && (
          <label class="progress">
            {progress.part < 1 ? `Sending… ${Math.round(progress.part * 100)} %` : 'Storing the rows…'}
            <progress max={1} {...(progress.part < 1 ? { value: progress.part } : {})} />
          </label>
        )}
        {progress?.kind === 'done' && <p role="status">Imported {countOf(progress.rows, 'row')}.</p>}
        {progress?.kind === 'failed' && (
          <Refused file={file} rows={rows} mapping={mapping} progress={progress} onChange={setRows} />
        )}
      </div>
    </Dialog>
  );
}

interface MappingProps {
  readonly file: ImportFile;
  readonly rows: readonly ImportRow[];
  readonly mapping: readonly (string | null)[];
  readonly collection: Collection;
  readonly onChange: (mapping: readonly (string | null)[]) => void;
}

function Mapping({ file, rows, mapping, collection, onChange }: MappingProps): JSX.Element {
  const fields = [...collection.fields.values()].filter(({ column, relation }) => column || relation?.kind === 'many');
  const taken = mapping.filter((name, at) => name !== null && mapping.indexOf(name) !== at);
  const mistakes = mistakesIn(rows, mapping, collection);
  const [first] = mistakes;
  const classOf = (row: ImportRow, column: number): string => {
    if (mapping[column] === null) return 'quiet';
    return mistakes.some(({ row: number, at }) => number === row.number && at === column) ? 'bad' : '';
  };
  return (
    <>
      <p>
        {countOf(rows.length, 'row')}. Choose the field of each column.
        {first && (
          <span class="bad">
            {' '}
            {countOf(mistakes.length, 'value')}
            {rows.length > MOST_CHECKED && ` of the first ${MOST_CHECKED.toLocaleString('en')} rows`} will be refused:{' '}
            {mistakes.length > 1 && 'first '}“{clipped(first.cell)}” in row {first.row}.
          </span>
        )}
      </p>
      {taken.length > 0 && <ErrorBox text={`Several columns are mapped to ${taken[0]}.`} />}
      <div class="import-table" role="region" aria-label="First rows" tabIndex={0}>
        <table>
          <thead>
            <tr>
              {file.columns.map((name, at) => (
                <th key={at} scope="col">
                  <span>{name}</span>
                  <select
                    aria-label={`Field of the column ${name}`}
                    value={mapping[at] ?? ''}
                    onChange={(event) => onChange(mapping.with(at, event.currentTarget.value || null))}
                  >
                    <option value="">leave out</option>
                    {fields.map((field) => (
                      <option key={field.name}>{field.name}</option>
                    ))}
                  </select>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, MOST_SHOWN).map((row) => (
              <tr key={row.number}>
                {row.cells.map((cell, at) => (
                  <td key={at} class={classOf(row, at)}>
                    {clipped(cell)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > MOST_SHOWN && <p class="quiet">These are the first {MOST_SHOWN} rows.</p>}
    </>
  );
}

function clipped(cell: string): string {
  return cell.length > 60 ? `${cell.slice(0, 60)}…` : cell;
}

interface RefusedProps {
  readonly file: ImportFile | null;
  readonly rows: readonly ImportRow[];
  readonly mapping: readonly (string | null)[];
  readonly progress: Extract<Progress, { kind: 'failed' }>;
  readonly onChange: (rows: readonly ImportRow[]) => void;
}

/** The refused rows, to correct or leave out. The service numbers the rows that were sent. */
function Refused({ file, rows, mapping, progress, onChange }: RefusedProps): JSX.Element {
  const [sent] = useState(() => rows.filter(({ isLeftOut }) => !isLeftOut).map(({ number }) => number));
  const refused = progress.failures.slice(0, MOST_ERRORS).flatMap(({ message, extensions }) => {
    const [position] = Array.isArray(extensions['rows']) ? extensions['rows'] : [];
    const row = rows.find(({ number }) => number === sent[Number(position) - 1]);
    return row ? [{ row, message: message.replace(/^Row \d+: /, ''), field: extensions['field'] }] : [];
  });
  const change = (changed: ImportRow): void =>
    onChange(rows.map((row) => (row.number === changed.number ? changed : row)));
  if (!file?.isWhole || refused.length === 0)
    return (
      <>
        <ErrorBox text="Nothing was imported." />
        <ul class="import-errors">
          {(progress.failures.length > 0 ? progress.failures.map((each) => each.message) : [progress.message])
            .slice(0, MOST_ERRORS)
            .map((text) => (
              <li key={text}>{text}</li>
            ))}
        </ul>
      </>
    );
  return (
    <>
      <ErrorBox
        text={`Nothing was imported: ${countOf(progress.failures.length, 'row')} refused. Correct or leave them out, then try again.`}
      />
      <div class="import-refused">
        {refused.map(({ row, message, field }) => (
          <section key={row.number} aria-label={`Row ${row.number}`}>
            <header>
              <strong>Row {row.number}</strong>
              <span class="bad">{message}</span>
              <span class="grow" />
              <label>
                <input
                  type="checkbox"
                  checked={row.isLeftOut}
                  onChange={() => change({ ...row, isLeftOut: !row.isLeftOut })}
                />
                Leave out
              </label>
            </header>
            {!row.isLeftOut && (
              <div class="import-cells">
                {mapping.map((name, at) =>
                  name === null ? null : (
                    <label key={name}>
                      <span>{name}</span>
                      <input
                        aria-label={`${name} of row ${row.number}`}
                        aria-invalid={field === name}
                        value={row.cells[at] ?? ''}
                        onInput={(event) => change({ ...row, cells: row.cells.with(at, event.currentTarget.value) })}
                      />
                    </label>
                  ),
                )}
              </div>
            )}
          </section>
        ))}
      </div>
    </>
  );
}
