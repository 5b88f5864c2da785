/** One file: preview, title and description, new content, where it is used, addresses of transformed pictures. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, fetchContent, messageOf, saveAs, sendForm } from '../api';
import { Confirm, Select, TextInput } from '../forms';
import type { Model } from '../model';
import { href, model as modelSignal, toast } from '../state';
import { Button, copyText, countOf, Dialog, ErrorBox, Icon } from '../ui';
import {
  assetPath,
  assetUrl,
  type FileRights,
  type FileRow,
  type Folder,
  fileName,
  findUses,
  folderOptions,
  isPicture,
  isText,
  isTransformed,
  loadFile,
  sizeText,
  type Transformation,
  type Use,
} from './files';
import { Picture } from './picture';
import { formOf } from './uploads';

interface FileProps {
  readonly id: string;
  readonly collection: string;
  readonly folders: readonly Folder[];
  readonly rights: FileRights;
  readonly onClose: () => void;
  readonly onChanged: () => void;
}

export function FileDialog({ id, ...props }: FileProps): JSX.Element {
  const [file, setFile] = useState<FileRow | null>(null);
  const [error, setError] = useState<string | null>(null);
  const load = (): Promise<void> =>
    loadFile(id).then(
      (found) => {
        setFile(found);
        setError(null);
      },
      (failure: unknown) => setError(messageOf(failure)),
    );
  useEffect(() => void load(), [id]);
  if (!file)
    return (
      <Dialog title="File" kind="side" onClose={props.onClose}>
        {error ? <ErrorBox text={error} onRetry={() => void load()} /> : <p class="quiet">Loading…</p>}
      </Dialog>
    );
  const changed = async (): Promise<void> => {
    await load();
    props.onChanged();
  };
  return <FileForm {...props} file={file} onChanged={changed} />;
}

interface FormProps extends Omit<FileProps, 'id' | 'onChanged'> {
  readonly file: FileRow;
  readonly onChanged: () => Promise<void>;
}

function FileForm({ file, collection, folders, rights, onClose, onChanged }: FormProps): JSX.Element {
  const [title, setTitle] = useState(file.title ?? '');
  const [description, setDescription] = useState(file.description ?? '');
  const [folder, setFolder] = useState(file.folder ?? '');
  const [error, setError] = useState<string | null>(null);
  const [deleting, setDeleting] = useState(false);
  const [uses, setUses] = useState<readonly Use[] | null>(null);
  useEffect(() => {
    findUses(file.id, modelSignal.value as Model, collection).then(setUses, () => setUses([]));
  }, [file.id]);
  const isChanged =
    title !== (file.title ?? '') || description !== (file.description ?? '') || folder !== (file.folder ?? '');
  const save = async (): Promise<void> => {
    const orNull = (text: string): string | null => (text === '' ? null : text);
    try {
      const body = { title: orNull(title), description: orNull(description), folder: orNull(folder) };
      await call('PATCH', `/files/${file.id}?fields=id`, { body });
      toast(`${fileName(file)} was saved`);
      await onChanged();
      onClose();
    } catch (failure) {
      setError(messageOf(failure));
    }
  };
  return (
    <Dialog
      title={fileName(file)}
      kind="side"
      isForm
      onClose={onClose}
      footer={
        <>
          {rights.delete && <Button label="Delete file" kind="danger" onClick={() => setDeleting(true)} />}
          <span class="grow" />
          <Button label="Close" onClick={onClose} />
          {rights.update && <Button label="Save" kind="primary" disabled={!isChanged} onClick={() => void save()} />}
        </>
      }
    >
      <div class="form file-details">
        {error && <ErrorBox text={error} />}
        <Preview file={file} />
        <Facts file={file} mayReplace={rights.update} onChanged={onChanged} />
        {rights.update && (
          <>
            <TextInput id="file-title" label="Title" value={title} onInput={setTitle} />
            <div class="field">
              <label for="file-description">Description</label>
              <textarea
                id="file-description"
                rows={2}
                value={description}
                onInput={(event) => setDescription(event.currentTarget.value)}
              />
            </div>
            <Select
              id="file-folder"
              label="Folder"
              value={folder}
              options={folderOptions(folders)}
              onChange={setFolder}
            />
          </>
        )}
        <Uses uses={uses} id={file.id} />
        <Transformations file={file} />
      </div>
      {deleting && (
        <Confirm
          title={`Delete ${fileName(file)}?`}
          submit="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await call('DELETE', `/files/${file.id}`);
            await onChanged().catch(() => {});
            onClose();
            return `${fileName(file)} was deleted`;
          }}
        >
          <p>The file and its content cannot be restored.</p>
          {uses && uses.length > 0 && (
            <p class="bad">
              It is used by {uses.map(({ collection: name, field, count }) => `${name}.${field} (${count})`).join(', ')}
              .
            </p>
          )}
        </Confirm>
      )}
    </Dialog>
  );
}

const MOST_TEXT_BYTES = 20_000;

/** Only formats that cannot run scripts are shown. */
function Preview({ file }: { readonly file: FileRow }): JSX.Element {
  const [text, setText] = useState<string | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const version = file.modified_on ?? '';
  useEffect(() => {
    setFailure(null);
    if (!isText(file) || Number(file.filesize ?? 0) === 0) return;
    const request = new AbortController();
    fetchContent(assetPath(file.id), request.signal, { Range: `bytes=0-${MOST_TEXT_BYTES - 1}` })
      .then((blob) => blob.text())
      .then(setText, (error: unknown) => !request.signal.aborted && setFailure(messageOf(error)));
    return () => request.abort();
  }, [file.id, version]);
  if (isPicture(file) || isTransformed(file))
    return (
      <figure class="file-preview">
        <Picture
          paths={[
            ...(isTransformed(file) ? [assetPath(file.id, { key: 'system-large-contain' })] : []),
            ...(isPicture(file) ? [assetPath(file.id)] : []),
          ]}
          label={fileName(file)}
          version={version}
          side={800}
          onError={setFailure}
        />
        {failure && <figcaption class="bad">{failure}</figcaption>}
      </figure>
    );
  if (text !== null)
    return <textarea class="mono file-text" aria-label="Beginning of the text" rows={10} readOnly value={text} />;
  return (
    <figure class="file-preview">
      <div class="picture">
        <Icon name="file" />
      </div>
      <figcaption class="quiet">
        {failure ??
          (file.type === 'image/svg+xml'
            ? 'SVG pictures can contain scripts, so they are not shown here.'
            : 'Files of this type have no preview.')}
      </figcaption>
    </figure>
  );
}

interface FactsProps {
  readonly file: FileRow;
  readonly mayReplace: boolean;
  readonly onChanged: () => Promise<void>;
}

function Facts({ file, mayReplace, onChanged }: FactsProps): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const [part, setPart] = useState<number | null>(null);
  const sending = useRef<AbortController | null>(null);
  useEffect(() => () => sending.current?.abort(), []);
  const save = async (): Promise<void> => {
    const request = new AbortController();
    saveAs(await fetchContent(assetPath(file.id), request.signal), file.filename_download);
  };
  const replace = async (content: File): Promise<void> => {
    const request = new AbortController();
    sending.current = request;
    setPart(0);
    try {
      const form = formOf(content, {});
      await sendForm('PATCH', `/files/${file.id}?fields=id`, form, { onProgress: setPart, signal: request.signal });
      toast('The content was replaced');
      await onChanged();
    } catch (failure) {
      if (!request.signal.aborted) toast(messageOf(failure), 'bad');
    }
    setPart(null);
  };
  return (
    <>
      <dl class="file-facts">
        <dt>Name</dt>
        <dd>{file.filename_download}</dd>
        <dt>Type</dt>
        <dd>{file.type ?? 'unknown'}</dd>
        <dt>Size</dt>
        <dd>
          {sizeText(file.filesize)}
          {file.width !== null && file.height !== null && `, ${file.width} × ${file.height} pixels`}
        </dd>
        <dt>Id</dt>
        <dd class="mono">{file.id}</dd>
      </dl>
      {part !== null && (
        <label class="progress">
          Replacing the content…
          <progress max={1} value={part} />
        </label>
      )}
      <div class="row">
        {mayReplace && (
          <>
            <input
              ref={input}
              type="file"
              hidden
              aria-label="New content"
              onChange={(event) => {
                const [content] = event.currentTarget.files ?? [];
                if (content) void replace(content);
                event.currentTarget.value = '';
              }}
            />
            <Button
              label="Replace content"
              icon="upload"
              disabled={part !== null}
              onClick={() => input.current?.click()}
            />
          </>
        )}
        <Button
          label="Download"
          icon="save"
          onClick={() => void save().catch((failure: unknown) => toast(messageOf(failure), 'bad'))}
        />
        <Button label="Copy address" icon="link" onClick={() => void copyText(assetUrl(assetPath(file.id)))} />
      </div>
    </>
  );
}

function Uses({ uses, id }: { readonly uses: readonly Use[] | null; readonly id: string }): JSX.Element {
  return (
    <section aria-label="Where it is used">
      <h3>Where it is used</h3>
      {uses === null && <p class="quiet">Loading…</p>}
      {uses?.length === 0 && <p class="quiet">No item refers to it.</p>}
      <ul class="file-uses">
        {uses?.map(({ collection, field, count }) => (
          <li key={`${collection}.${field}`}>
            <a href={href('data', [collection], { filter: JSON.stringify({ [field]: { _eq: id } }) })}>
              {collection}.{field}
            </a>{' '}
            <small>{countOf(count, 'item')}</small>
          </li>
        ))}
      </ul>
    </section>
  );
}

const FITS = ['', 'cover', 'contain', 'inside', 'outside', 'fill'];
const FORMATS = ['', 'auto', 'jpg', 'png', 'webp', 'avif', 'tiff'];

function Transformations({ file }: { readonly file: FileRow }): JSX.Element | null {
  const [made, setMade] = useState<Transformation>({ width: '300', height: '', fit: '', format: '', quality: '' });
  const [shown, setShown] = useState<string | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  if (!isTransformed(file)) return null;
  const path = assetPath(file.id, made);
  const set = (part: Partial<Transformation>): void => {
    setMade({ ...made, ...part });
    setFailure(null);
  };
  const number = (name: 'width' | 'height' | 'quality', label: string): JSX.Element => (
    <label>
      {label}
      <input
        inputMode="numeric"
        value={made[name]}
        onInput={(event) => set({ [name]: event.currentTarget.value.replace(/\D/g, '') })}
      />
    </label>
  );
  const choice = (name: 'fit' | 'format', label: string, among: readonly string[]): JSX.Element => (
    <label>
      {label}
      <select value={made[name]} onChange={(event) => set({ [name]: event.currentTarget.value })}>
        {among.map((each) => (
          <option key={each} value={each}>
            {each === '' ? 'default' : each}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <section aria-label="Transformed picture" class="file-transform">
      <h3>Transformed picture</h3>
      <div class="file-parameters">
        {number('width', 'Width')}
        {number('height', 'Height')}
        {choice('fit', 'Fit', FITS)}
        {choice('format', 'Format', FORMATS)}
        {number('quality', 'Quality')}
      </div>
      <label class="field">
        <span>Address</span>
        <input class="mono" readOnly value={assetUrl(path)} onFocus={(event) => event.currentTarget.select()} />
      </label>
      <div class="row">
        <Button label="Copy transformed address" icon="copy" onClick={() => void copyText(assetUrl(path))} />
        <Button label="Show" icon="play" onClick={() => setShown(path)} />
      </div>
      {failure && <ErrorBox text={failure} />}
      {shown !== null && (
        <Picture
          paths={[shown]}
          label={`Transformed ${fileName(file)}`}
          version={file.modified_on ?? ''}
          side={1_600}
          onError={setFailure}
        />
      )}
    </section>
  );
}
