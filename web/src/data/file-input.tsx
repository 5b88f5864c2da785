/** A reference to a file: a thumbnail, a choice among the stored files, and an upload. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { base, call, itemsPath, messageOf } from '../api';
import type { Collection, Model } from '../model';
import { toast } from '../state';
import { Button, Dialog, ErrorBox, Icon } from '../ui';
import type { Row } from './edits';
import type { InputProps } from './input-parts';
import { identifyingFields, titleOf } from './item';

export function isFiles(collection: Collection): boolean {
  return collection.system && collection.fields.has('filename_download');
}

/** The browser loads it with the session cookie. */
export function Thumbnail({ file, size = 64 }: { readonly file: Row; readonly size?: number }): JSX.Element {
  const [failed, setFailed] = useState(false);
  const isPicture = String(file['type'] ?? '').startsWith('image/');
  if (!isPicture || failed)
    return (
      <span class="thumbnail">
        <Icon name="file" />
      </span>
    );
  const query = `width=${2 * size}&height=${2 * size}&fit=cover`;
  const source = `${base}/assets/${encodeURIComponent(String(file['id']))}?${query}`;
  return <img class="thumbnail" src={source} alt="" loading="lazy" onError={() => setFailed(true)} />;
}

export function FileInput(props: InputProps & { readonly collection: Collection }): JSX.Element {
  const { id, field, model, value, disabled, onChange, label, collection } = props;
  const [choosing, setChoosing] = useState(false);
  const [busy, setBusy] = useState(false);
  const upload = useRef<HTMLInputElement>(null);
  const file = typeof value === 'object' && value !== null ? (value as Row) : null;
  const send = async (chosen: File | undefined): Promise<void> => {
    if (!chosen) return;
    setBusy(true);
    try {
      const form = new FormData();
      form.append('file', chosen);
      const path = `${itemsPath(collection.name)}?fields=${identifyingFields(collection).join(',')}`;
      onChange({ value: (await call<Row>('POST', path, { form })).data });
    } catch (error) {
      toast(`Not uploaded: ${messageOf(error)}`, 'bad');
    }
    setBusy(false);
  };
  return (
    <div class="input-file">
      {file && <Thumbnail file={file} />}
      <div class="input-file-main">
        <span>
          {file ? titleOf(file, model, collection.name) : <span class="quiet">{busy ? 'Uploading…' : 'No file'}</span>}
        </span>
        <span class="row">
          <button
            type="button"
            id={id}
            class="button"
            disabled={disabled}
            aria-label={label ?? `Choose a file for ${field.name}`}
            onClick={() => setChoosing(true)}
          >
            Choose
          </button>
          <Button label="Upload" icon="upload" disabled={disabled || busy} onClick={() => upload.current?.click()} />
          {file && (
            <Button
              label="Remove"
              kind="quiet"
              disabled={disabled ?? false}
              onClick={() => onChange({ value: null })}
            />
          )}
          <input
            type="file"
            ref={upload}
            hidden
            aria-label={`Upload a file for ${field.name}`}
            onChange={(event) => {
              void send(event.currentTarget.files?.[0]);
              event.currentTarget.value = '';
            }}
          />
        </span>
      </div>
      {choosing && (
        <FileDialog
          collection={collection}
          model={model}
          onClose={() => setChoosing(false)}
          onPick={(picked) => {
            setChoosing(false);
            onChange({ value: picked });
          }}
        />
      )}
    </div>
  );
}

interface DialogProps {
  readonly collection: Collection;
  readonly model: Model;
  readonly onClose: () => void;
  readonly onPick: (file: Row) => void;
}

const MOST = 60;

function FileDialog({ collection, model, onClose, onPick }: DialogProps): JSX.Element {
  const [typed, setTyped] = useState('');
  const [files, setFiles] = useState<readonly Row[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const request = new AbortController();
    const wait = setTimeout(
      () => {
        const sort = collection.fields.has('created_on') ? { sort: ['-created_on'] } : {};
        const search = typed === '' ? {} : { search: typed };
        const query = { fields: identifyingFields(collection), limit: MOST, ...sort, ...search };
        call<Row[]>('SEARCH', itemsPath(collection.name), { body: { query }, signal: request.signal }).then(
          ({ data }) => {
            setFiles(data);
            setError(null);
          },
          (failure: unknown) => {
            if (!request.signal.aborted) setError(messageOf(failure));
          },
        );
      },
      typed === '' ? 0 : 200,
    );
    return () => {
      clearTimeout(wait);
      request.abort();
    };
  }, [typed]);
  return (
    <Dialog title="Choose a file" onClose={onClose}>
      <div class="form">
        <input
          type="search"
          aria-label="Search files"
          placeholder="Search files"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
        {error && <ErrorBox text={error} />}
        <div class="file-choices">
          {files?.map((file) => (
            <button key={String(file['id'])} type="button" onClick={() => onPick(file)}>
              <Thumbnail file={file} size={96} />
              <span>{titleOf(file, model, collection.name)}</span>
            </button>
          ))}
        </div>
        {files?.length === 0 && <p class="quiet">{typed === '' ? 'There are no files yet.' : 'No file matches.'}</p>}
        {files?.length === MOST && <p class="quiet">Only the newest {MOST} files are shown. Search to find others.</p>}
      </div>
    </Dialog>
  );
}
