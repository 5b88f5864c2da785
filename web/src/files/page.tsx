/** Files: folders, a grid of pictures and documents, uploads by drop or button, and the details of one file. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { messageOf } from '../api';
import type { Model } from '../model';
import { go, href, model as modelSignal, route, viewAs } from '../state';
import { Button, countOf, Empty, ErrorBox, Icon } from '../ui';
import { FileDialog } from './file';
import './files.css';
import {
  assetPath,
  FILES_PER_PAGE,
  type FileQuery,
  type FileRights,
  type FileRow,
  type Folder,
  type FoundFiles,
  fileName,
  filesCollection,
  isPicture,
  isTransformed,
  loadFiles,
  loadFolders,
  loadRights,
  sizeText,
} from './files';
import { Folders } from './folders';
import { Picture } from './picture';
import { UploadList, useUploads } from './uploads';

const KINDS = [
  ['', 'every type'],
  ['image/', 'pictures'],
  ['video/', 'videos'],
  ['audio/', 'audio'],
  ['text/', 'texts'],
  ['application/', 'documents'],
] as const;

const SORTS = [
  ['-created_on', 'newest first'],
  ['created_on', 'oldest first'],
  ['title', 'by title'],
  ['-filesize', 'largest first'],
] as const;

const NOTHING: FileRights = { create: false, update: false, delete: false, folders: false };

export function FilesPage(): JSX.Element {
  const collection = filesCollection(modelSignal.value as Model);
  if (collection === undefined)
    return (
      <Empty title="You may not read files" icon="file">
        A policy must allow to read service_files.
      </Empty>
    );
  return <Browser collection={collection} />;
}

interface Files {
  readonly found: FoundFiles | null;
  readonly error: string | null;
}

/** The files are read again if `turn` changes. */
function useFiles(query: FileQuery, turn: number): Files {
  const [found, setFound] = useState<FoundFiles | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const request = new AbortController();
    const ask = (): void =>
      void loadFiles({ ...query, search: query.search.trim() }, request.signal).then(
        (result) => {
          setFound(result);
          setError(null);
        },
        (failure: unknown) => !request.signal.aborted && setError(messageOf(failure)),
      );
    const wait = setTimeout(ask, query.search === '' ? 0 : 150);
    return () => {
      clearTimeout(wait);
      request.abort();
    };
  }, [query.folder, query.search, query.kind, query.sort, query.page, turn]);
  return { found, error };
}

function Browser({ collection }: { readonly collection: string }): JSX.Element {
  const { rest, parameters } = route.value;
  const [folder = 'all'] = rest;
  const query = {
    folder,
    search: parameters.get('search') ?? '',
    kind: parameters.get('kind') ?? '',
    sort: parameters.get('sort') ?? '-created_on',
    page: Math.max(1, Number(parameters.get('page')) || 1),
  };
  const [folders, setFolders] = useState<readonly Folder[]>([]);
  const [rights, setRights] = useState(NOTHING);
  const [turn, setTurn] = useState(0);
  const reload = (): void => setTurn((count) => count + 1);
  const uploads = useUploads(reload);
  const readFolders = async (): Promise<void> => setFolders(await loadFolders());
  useEffect(() => {
    void readFolders();
    // View as only reads.
    if (viewAs.value === null) loadRights(collection).then(setRights, () => {});
  }, []);
  const { found, error } = useFiles(query, turn);
  const address = (next: Record<string, string>): string =>
    href('files', folder === 'all' ? [] : [folder], { ...Object.fromEntries(parameters), ...next });
  const send = (files: Iterable<File>, into: string | null): void => {
    if (rights.create) uploads.add(files, into);
  };
  const here = folder === 'all' || folder === 'none' ? null : folder;
  const chosen = parameters.get('file');
  return (
    <div class="files">
      <Folders
        folders={folders}
        chosen={folder}
        mayChange={rights.folders}
        onChanged={async () => {
          await readFolders();
          reload();
        }}
        onDropped={send}
      />
      <DropZone disabled={!rights.create} onFiles={(files) => send(files, here)}>
        <FileTools
          query={query}
          count={found?.count ?? null}
          mayCreate={rights.create}
          onShow={(next) => go(address({ page: '', ...next }), true)}
          onFiles={(files) => send(files, here)}
        />
        <UploadList uploads={uploads} />
        {error && <ErrorBox text={error} onRetry={reload} />}
        {found && <FileGrid found={found} query={query} mayCreate={rights.create} addressOf={address} />}
      </DropZone>
      {chosen !== null && (
        <FileDialog
          key={chosen}
          id={chosen}
          collection={collection}
          folders={folders}
          rights={rights}
          onClose={() => go(address({ file: '' }))}
          onChanged={reload}
        />
      )}
    </div>
  );
}

interface DropProps {
  readonly disabled: boolean;
  readonly onFiles: (files: Iterable<File>) => void;
  readonly children: ComponentChildren;
}

function DropZone({ disabled, onFiles, children }: DropProps): JSX.Element {
  const [over, setOver] = useState(false);
  return (
    <section
      class={`files-main${over ? ' over' : ''}`}
      aria-label="Files"
      onDragOver={(event) => {
        // Otherwise the browser would leave the page and open the file.
        event.preventDefault();
        if (!disabled && event.dataTransfer?.types.includes('Files')) setOver(true);
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
      }}
      onDrop={(event) => {
        setOver(false);
        event.preventDefault();
        if (!disabled && event.dataTransfer) onFiles(event.dataTransfer.files);
      }}
    >
      {children}
    </section>
  );
}

interface ToolsProps {
  readonly query: { readonly search: string; readonly kind: string; readonly sort: string };
  readonly count: number | null;
  readonly mayCreate: boolean;
  readonly onShow: (next: Record<string, string>) => void;
  readonly onFiles: (files: Iterable<File>) => void;
}

function FileTools({ query, count, mayCreate, onShow, onFiles }: ToolsProps): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  return (
    <header class="toolbar files-tools">
      <h1>Files</h1>
      <input
        type="search"
        aria-label="Search files"
        placeholder="Title or name"
        value={query.search}
        onInput={(event) => onShow({ search: event.currentTarget.value })}
      />
      <select aria-label="Type" value={query.kind} onChange={(event) => onShow({ kind: event.currentTarget.value })}>
        {KINDS.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      <select aria-label="Order" value={query.sort} onChange={(event) => onShow({ sort: event.currentTarget.value })}>
        {SORTS.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      <span class="quiet" role="status">
        {count !== null && countOf(count, 'file')}
      </span>
      <span class="grow" />
      {mayCreate && (
        <>
          <input
            ref={input}
            type="file"
            multiple
            hidden
            aria-label="Files to upload"
            onChange={(event) => {
              onFiles(event.currentTarget.files ?? []);
              event.currentTarget.value = '';
            }}
          />
          <Button label="Upload" icon="upload" kind="primary" onClick={() => input.current?.click()} />
        </>
      )}
    </header>
  );
}

interface GridProps {
  readonly found: FoundFiles;
  readonly query: { readonly page: number; readonly search: string; readonly kind: string };
  readonly mayCreate: boolean;
  readonly addressOf: (next: Record<string, string>) => string;
}

function FileGrid({ found: { files, count }, query, mayCreate, addressOf }: GridProps): JSX.Element {
  const { page, search, kind } = query;
  if (files.length === 0)
    return (
      <Empty title={search !== '' || kind !== '' ? 'No file matches' : 'There are no files here'} icon="file">
        {mayCreate && 'Drop files here, or press Upload.'}
      </Empty>
    );
  return (
    <>
      <ul class="file-grid" aria-label="Found files">
        {files.map((file) => (
          <li key={file.id}>
            <a href={addressOf({ file: file.id })}>
              <Thumbnail file={file} />
              <strong title={fileName(file)}>{fileName(file)}</strong>
              <small>{describe(file)}</small>
            </a>
          </li>
        ))}
      </ul>
      {count > FILES_PER_PAGE && (
        <div class="row files-pages">
          <Button label="Previous" disabled={page <= 1} onClick={() => go(addressOf({ page: String(page - 1) }))} />
          <span class="quiet">
            Page {page} of {Math.ceil(count / FILES_PER_PAGE)}
          </span>
          <Button
            label="Next"
            disabled={page * FILES_PER_PAGE >= count}
            onClick={() => go(addressOf({ page: String(page + 1) }))}
          />
        </div>
      )}
    </>
  );
}

function describe({ type, filesize, width, height }: FileRow): string {
  const size = width !== null && height !== null ? `, ${width} × ${height}` : '';
  const [, subtype = 'unknown type'] = /^(?:image|video|audio)\/([\w-]+)/.exec(type ?? '') ?? [null, type ?? undefined];
  return `${subtype}, ${sizeText(filesize)}${size}`;
}

/** Larger originals are not loaded to draw a small picture. */
const MOST_ORIGINAL_BYTES = 8_000_000;

function Thumbnail({ file }: { readonly file: FileRow }): JSX.Element {
  const paths = [
    ...(isTransformed(file) ? [assetPath(file.id, { key: 'system-medium-contain' })] : []),
    ...(isPicture(file) && Number(file.filesize ?? 0) <= MOST_ORIGINAL_BYTES ? [assetPath(file.id)] : []),
  ];
  if (paths.length === 0)
    return (
      <div class="picture">
        <Icon name="file" />
        <small aria-hidden="true">{extension(file)}</small>
      </div>
    );
  return <Picture paths={paths} label="" version={file.modified_on ?? ''} side={300} />;
}

function extension({ filename_download }: FileRow): string {
  const [, found = ''] = /\.([a-z0-9]{1,8})$/i.exec(filename_download) ?? [];
  return found.toLowerCase();
}
