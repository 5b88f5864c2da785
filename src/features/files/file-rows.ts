/** Rows of files and settings that the service reads for itself, and the fields that it writes for uploads. */

import { forbidden } from '../../base/errors.js';
import { parseOwnJson } from '../../base/narrow.js';
import type { Collection, Model } from '../../compiler/model/model.js';
import type { Access, Grant } from '../../compiler/plan/access.js';
import type { Parsed } from '../../compiler/request/ast.js';
import { parseOwn, parseRead } from '../../compiler/request/rest.js';
import { UUID_PATTERN } from '../../compiler/sql/codec.js';
import { CLI_IDENTITY, type Identity } from '../../server/access/identity.js';
import type { Policies } from '../../server/access/policies.js';
import type { ItemsServices } from '../../server/api/items/item-writes.js';
import { read } from '../../server/execute/pipeline.js';
import type { RequestClient } from '../../server/execute/stages.js';
import type { Exchange } from '../../server/http/exchange.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import type { Images } from './images.js';
import type { FilesConfig } from './options.js';
import type { Storages } from './storage.js';

export interface FilesServices extends ItemsServices {
  readonly config: FilesConfig;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly storages: Storages;
  readonly images: Images;
}

export const FILES = 'service_files';

export interface FileRow {
  readonly id: string;
  readonly storage: string;
  readonly filename_disk: string | null;
  readonly filename_download: string;
  readonly type: string | null;
  readonly charset: string | null;
  /** A bigint. */
  readonly filesize: string | null;
  readonly modified_on: string;
  /** The size in pixels, or null if the image was not measured. */
  readonly width: number | null;
  readonly height: number | null;
  readonly focal_point_x: number | null;
  readonly focal_point_y: number | null;
}

const FIELDS = [
  ...['id', 'storage', 'filename_disk', 'filename_download', 'type', 'charset', 'filesize', 'modified_on'],
  ...['width', 'height', 'focal_point_x', 'focal_point_y'],
].join();

export interface FileSettings {
  readonly storage_default_folder: string | null;
  readonly storage_asset_transform: 'all' | 'presets' | 'none';
  readonly storage_asset_presets: unknown;
}

/**
 * The row of a file that the caller may read; the permissions on its other fields do not apply to its bytes. So there are two reads, one
 * with the permissions of the caller and one with those of the service, sent at the same time.
 */
export async function readFileRow(
  key: string,
  caller: Identity,
  exchange: Exchange,
  services: FilesServices,
): Promise<FileRow> {
  if (!UUID_PATTERN.test(key)) throw forbidden();
  const { limits } = services;
  const whole = parseOwn(FILES, key, `fields=${FIELDS}`, limits);
  const seen = parseOwn(FILES, key, '', limits);
  const [row, visible] = await Promise.all([
    readAs<FileRow>(CLI_IDENTITY, whole, exchange, services),
    caller.administrator ? true : readAs<unknown>(caller, seen, exchange, services),
  ]);
  if (row === null || visible === null) throw forbidden();
  return row;
}

/** The storage location of a file, or null if there is no such file. Whether the caller may change it is for the write to decide. */
export async function readStorage(key: string, exchange: Exchange, services: FilesServices): Promise<string | null> {
  const parsed = parseOwn(FILES, key, 'fields=storage', services.limits);
  const row = await readAs<Pick<FileRow, 'storage'>>(CLI_IDENTITY, parsed, exchange, services);
  return row?.storage ?? null;
}

export async function readFileSettings(client: RequestClient, services: FilesServices): Promise<FileSettings> {
  const fields = 'fields=storage_default_folder,storage_asset_transform,storage_asset_presets';
  const parsed = parseRead('service_settings', null, fields, services.limits);
  const settings = await readAs<FileSettings>(CLI_IDENTITY, parsed, client, services);
  return settings ?? { storage_default_folder: null, storage_asset_transform: 'all', storage_asset_presets: null };
}

async function readAs<Row>(
  caller: Identity,
  parsed: Parsed,
  client: RequestClient,
  { reads }: FilesServices,
): Promise<Row | null> {
  const body = await read(
    {
      client,
      identify: () => caller,
      parse: () => parsed,
      // The memory of the body is only borrowed.
      execute: (prepared) => reads.run(prepared, client).then((bytes) => bytes && String(bytes)),
    },
    reads,
  );
  return body === null ? null : parseOwnJson<{ data: Row }>(body).data;
}

/** Fields that the service itself writes into the row of an upload need no permission; those of the caller do. */
export function permitFields(access: Access | null, names: readonly string[]): { readonly access?: Access } {
  if (!access) return {};
  const withNames = (fields: ReadonlySet<string> | null): ReadonlySet<string> | null =>
    fields && new Set([...fields, ...names]);
  const extend = (grant: Grant): Grant => ({
    ...grant,
    fields: withNames(grant.fields),
    rules: grant.rules.map((rule) => ({ ...rule, fields: withNames(rule.fields) })),
  });
  return {
    access: {
      key: `${access.key} ${names.join()}`,
      view: (model: Model) => access.view(model),
      grant: (action, collection: Collection, model: Model) => {
        const grant = access.grant(action, collection, model);
        return grant && collection.name === FILES ? extend(grant) : grant;
      },
      privileges: (collection, model) => access.privileges(collection, model),
    },
  };
}
