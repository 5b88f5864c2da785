/** Items as files: import with its progress and the refused rows, and export of the shown items. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, type Failure, messageOf, upload } from '../api';
import { Button, countOf, Dialog, ErrorBox } from '../ui';

export const EXPORT_FORMATS = ['csv', 'json', 'ndjson', 'xml', 'yaml'] as const;

const IMPORT_TYPES: Readonly<Record<string, string>> = {
  csv: 'text/csv',
  json: 'application/json',
  ndjson: 'application/x-ndjson',
  jsonl: 'application/x-ndjson',
};

interface ImportProps {
  readonly collection: string;
  readonly onClose: () => void;
  readonly onDone: () => void;
}

type Progress =
  | { readonly kind: 'sending'; readonly part: number }
  | { readonly kind: 'done'; readonly rows: number }
  | { readonly kind: 'failed'; readonly failures: readonly Failure[]; readonly message: string };

export function ImportDialog({ collection, onClose, onDone }: ImportProps): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const [file, setFile] = useState<File | null>(null);
  const [progress, setProgress] = useState<Progress | null>(null);
  const extension = file?.name.split('.').at(-1)?.toLowerCase() ?? '';
  const type = IMPORT_TYPES[extension];
  const sending = useRef<AbortController | null>(null);
  /** Closing the dialog cancels the import, and no row is stored. */
  useEffect(() => () => sending.current?.abort(), []);
  const send = async (): Promise<void> => {
    if (!file || !type) return;
    const request = new AbortController();
    sending.current = request;
    setProgress({ kind: 'sending', part: 0 });
    try {
      const path = `/utils/import/${encodeURIComponent(collection)}`;
      const data = await upload(path, file, type, (part) => setProgress({ kind: 'sending', part }), request.signal);
      setProgress({ kind: 'done', rows: Number((data as { imported?: number } | undefined)?.imported ?? 0) });
      onDone();
    } catch (error) {
      if (request.signal.aborted) return;
      const failures = error instanceof ApiError ? error.failures : [];
      setProgress({ kind: 'failed', failures, message: messageOf(error) });
    }
  };
  const isSending = progress?.kind === 'sending';
  return (
    <Dialog
      title={`Import into ${collection}`}
      onClose={onClose}
      footer={
        progress?.kind === 'done' ? (
          <Button label="Close" kind="primary" onClick={onClose} />
        ) : (
          <>
            <Button label="Cancel" onClick={onClose} />
            <Button label="Import" kind="primary" disabled={!type || isSending} onClick={() => void send()} />
          </>
        )
      }
    >
      <div class="form">
        <div class="field">
          <label for="import-file">
            File <small>csv, json or ndjson</small>
          </label>
          <input
            id="import-file"
            type="file"
            ref={input}
            accept=".csv,.json,.ndjson,.jsonl"
            onChange={(event) => {
              setFile(event.currentTarget.files?.[0] ?? null);
              setProgress(null);
            }}
          />
        </div>
        {file && !type && <ErrorBox text="The file must end in .csv, .json or .ndjson." />}
        {!progress && (
          <p class="quiet">
            The names of columns are the names of fields. All rows are imported, or none if one of them is refused.
          </p>
        )}
        {progress?.kind === 'sending' && (
          <label class="progress">
            {progress.part < 1 ? `Sending… ${Math.round(progress.part * 100)} %` : 'Storing the rows…'}
            <progress max={1} {...(progress.part < 1 ? { value: progress.part } : {})} />
          </label>
        )}
        {progress?.kind === 'done' && <p role="status">Imported {countOf(progress.rows, 'row')}.</p>}
        {progress?.kind === 'failed' && (
          <>
            <ErrorBox text="Nothing was imported." />
            <ul class="import-errors">
              {(progress.failures.length > 0 ? progress.failures.map((each) => each.message) : [progress.message])
                .slice(0, 50)
                .map((text) => (
                  <li key={text}>{text}</li>
                ))}
            </ul>
          </>
        )}
      </div>
    </Dialog>
  );
}
