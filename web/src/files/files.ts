/** Files and folders as the API stores them, and the requests that read them. */
import { base, call, itemsPath } from '../api';
import type { Model } from '../model';

export interface Folder {
  readonly id: string;
  readonly name: string;
  readonly parent: string | null;
}

export interface FileRow {
  readonly id: string;
  readonly title: string | null;
  readonly description: string | null;
  readonly filename_download: string;
  readonly type: string | null;
  readonly folder: string | null;
  readonly filesize: string | null;
  readonly width: number | null;
  readonly height: number | null;
  readonly modified_on: string | null;
  readonly uploaded_on: string | null;
}

const FIELDS = 'id,title,description,filename_download,type,folder,filesize,width,height,modified_on,uploaded_on'.split(
  ',',
);

export const FILES_PER_PAGE = 48;

/** The name of the collection of files, which DIRECTUS_COMPATIBILITY changes. Undefined if the caller may not read it. */
export function filesCollection(model: Model): string | undefined {
  return ['service_files', 'directus_files'].find((name) => model.has(name));
}

export interface FileQuery {
  /** `all`, `none` for files without a folder, or the id of a folder. */
  readonly folder: string;
  readonly search: string;
  readonly kind: string;
  readonly sort: string;
  readonly page: number;
}

export interface FoundFiles {
  readonly files: readonly FileRow[];
  readonly count: number;
}

export async function loadFiles(
  { folder, search, kind, sort, page }: FileQuery,
  signal: AbortSignal,
): Promise<FoundFiles> {
  const named = ['title', 'filename_download', 'description'].map((field) => ({ [field]: { _icontains: search } }));
  const conditions = [
    ...(folder === 'all' ? [] : [{ folder: folder === 'none' ? { _null: true } : { _eq: folder } }]),
    ...(search === '' ? [] : [{ _or: named }]),
    ...(kind === '' ? [] : [{ type: { _starts_with: kind } }]),
  ];
  const query = {
    fields: FIELDS,
    sort: [sort, 'id'],
    limit: FILES_PER_PAGE,
    page,
    meta: ['filter_count'],
    ...(conditions.length > 0 ? { filter: { _and: conditions } } : {}),
  };
  const { data, meta } = await call<FileRow[]>('SEARCH', '/files', { body: { query }, signal });
  return { files: data, count: Number(meta['filter_count'] ?? data.length) };
}

export async function loadFile(id: string): Promise<FileRow> {
  const { data } = await call<FileRow>('GET', `/files/${encodeURIComponent(id)}?fields=${FIELDS.join(',')}`);
  return data;
}

/** Empty if the caller may not read folders. */
export async function loadFolders(): Promise<readonly Folder[]> {
  try {
    const { data } = await call<Folder[]>('GET', '/folders?fields=id,name,parent&sort=name,id&limit=-1');
    return data;
  } catch {
    return [];
  }
}

export interface FileRights {
  readonly create: boolean;
  readonly update: boolean;
  readonly delete: boolean;
  readonly folders: boolean;
}

type Rights = Readonly<Record<string, Readonly<Record<string, { readonly access: string }>>>>;

/** The permissions that the service reports for the caller. It checks each request again. */
export async function loadRights(collection: string): Promise<FileRights> {
  const { data } = await call<Rights>('GET', '/permissions/me');
  const may = (name: string, action: string): boolean => (data[name]?.[action]?.access ?? 'none') !== 'none';
  return {
    create: may(collection, 'create'),
    update: may(collection, 'update'),
    delete: may(collection, 'delete'),
    folders: may(collection.replace(/_files$/, '_folders'), 'create'),
  };
}

export interface FolderBranch {
  readonly folder: Folder;
  readonly depth: number;
}

/** Folders below their parents. A folder whose parent is not readable is at the top. */
export function folderTree(folders: readonly Folder[]): FolderBranch[] {
  const known = new Set(folders.map(({ id }) => id));
  const placed = new Set<string>();
  const below = (parent: string | null, depth: number): FolderBranch[] =>
    folders
      .filter((each) => (parent === null ? each.parent === null || !known.has(each.parent) : each.parent === parent))
      .flatMap((folder) => {
        if (placed.has(folder.id)) return [];
        placed.add(folder.id);
        return [{ folder, depth }, ...below(folder.id, depth + 1)];
      });
  const tree = below(null, 0);
  return [...tree, ...folders.filter(({ id }) => !placed.has(id)).map((folder) => ({ folder, depth: 0 }))];
}

/** The folders as options of a select. A folder cannot be moved into itself or into a folder below it. */
export function folderOptions(
  folders: readonly Folder[],
  moved: string | null = null,
): { readonly value: string; readonly label: string }[] {
  const shut = new Set(moved === null ? [] : [moved]);
  const options = folderTree(folders).flatMap(({ folder, depth }) => {
    if (folder.parent !== null && shut.has(folder.parent)) shut.add(folder.id);
    return shut.has(folder.id) ? [] : [{ value: folder.id, label: `${'\u2003'.repeat(depth)}${folder.name}` }];
  });
  return [{ value: '', label: 'none' }, ...options];
}

export interface Use {
  readonly collection: string;
  readonly field: string;
  readonly count: number;
}

/** The fields of all collections that refer to the file, with the number of items. */
export async function findUses(id: string, model: Model, files: string): Promise<Use[]> {
  const fields = [...model.values()].flatMap((collection) =>
    [...collection.fields.values()].filter(
      ({ relation, column }) => column !== null && relation?.kind === 'one' && relation.to === files,
    ),
  );
  const uses = fields.map(async ({ collection, name }): Promise<Use> => {
    const query = { aggregate: { count: '*' }, filter: { [name]: { _eq: id } } };
    const { data } = await call<{ count: unknown }[]>('SEARCH', itemsPath(collection), { body: { query } });
    return { collection, field: name, count: Number(data[0]?.count ?? 0) };
  });
  const found = await Promise.allSettled(uses);
  return found.flatMap((each) => (each.status === 'fulfilled' && each.value.count > 0 ? [each.value] : []));
}

/** Formats that browsers decode without running scripts. SVG is not among them. */
const PICTURES = /^image\/(?:png|jpeg|gif|webp|avif|bmp)$/;
/** Formats of which the service makes other sizes. */
const TRANSFORMED = /^image\/(?:png|jpeg|webp|tiff|avif)$/;

export function isPicture({ type }: FileRow): boolean {
  return PICTURES.test(type ?? '');
}

export function isTransformed({ type }: FileRow): boolean {
  return TRANSFORMED.test(type ?? '');
}

export function isText({ type }: FileRow): boolean {
  return /^text\/|^application\/(?:json|xml|sql|yaml)$/.test(type ?? '');
}

export function fileName({ title, filename_download }: FileRow): string {
  return title === null || title === '' ? filename_download : title;
}

export function sizeText(bytes: number | string | null): string {
  const size = Number(bytes ?? 0);
  if (size < 1_000) return `${size} B`;
  if (size < 1_000_000) return `${(size / 1_000).toFixed(size < 10_000 ? 1 : 0)} kB`;
  return `${(size / 1_000_000).toFixed(size < 10_000_000 ? 1 : 0)} MB`;
}

/** Parameters of /assets. */
export interface Transformation {
  readonly width: string;
  readonly height: string;
  readonly fit: string;
  readonly format: string;
  readonly quality: string;
}

/** The path of the content, transformed if any of the parameters is set. */
export function assetPath(id: string, transformation: Partial<Transformation> | { readonly key: string } = {}): string {
  const set = Object.entries(transformation).filter(([, value]) => value !== '');
  const query = new URLSearchParams(set).toString();
  return `/assets/${encodeURIComponent(id)}${query === '' ? '' : `?${query}`}`;
}

export function assetUrl(path: string): string {
  return `${location.origin}${base}${path}`;
}
