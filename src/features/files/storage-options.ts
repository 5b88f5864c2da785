/** STORAGE_LOCATIONS: where the bytes of files are, each location with its STORAGE_<NAME>_* options. */
import { type Environment, named } from '../../server/config/option-kinds.js';

export interface LocalLocation {
  readonly driver: 'local';
  readonly name: string;
  /** The folder. */
  readonly root: string;
}

export interface S3Location {
  readonly driver: 's3';
  readonly name: string;
  /** The URL of the bucket, with a slash at its end. Names of objects follow it. */
  readonly url: string;
  /** The prefix of the names of its objects: '', or folders that end with a slash. */
  readonly root: string;
  readonly region: string;
  readonly key: string;
  readonly secret: string;
}

export type StorageLocation = LocalLocation | S3Location;

const SETTINGS: Readonly<Record<StorageLocation['driver'], ReadonlySet<string>>> = {
  local: new Set(['DRIVER', 'ROOT']),
  s3: new Set(['DRIVER', 'ROOT', 'KEY', 'SECRET', 'BUCKET', 'REGION', 'ENDPOINT', 'FORCE_PATH_STYLE']),
};

export const storageLocations = (about: string) => named('STORAGE_', about, readLocations);

/** Throws with the name of the option that is wrong. Without names there is one location, a folder. */
export function readLocations(names: readonly string[], environment: Environment): readonly StorageLocation[] {
  const given = names.length === 0 ? ['local'] : names;
  return given.map((name) => readLocation(name, given, environment));
}

function readLocation(name: string, names: readonly string[], environment: Environment): StorageLocation {
  if (!/^[a-z][a-z0-9_]*$/i.test(name))
    throw new Error(`STORAGE_LOCATIONS: "${name}" must be letters, digits and underscores`);
  const prefix = prefixOf(name);
  const read = (option: string): string | null => environment[prefix + option] || null;
  const required = (option: string): string => {
    const value = read(option);
    if (value === null) throw new Error(`${prefix}${option} must be set, because STORAGE_LOCATIONS names "${name}"`);
    return value;
  };
  const driver = read('DRIVER') ?? (name === 'local' ? 'local' : required('DRIVER'));
  if (driver !== 'local' && driver !== 's3') throw new Error(`${prefix}DRIVER must be local or s3, not "${driver}"`);
  // STORAGE_A_B_ROOT is an option of "a_b" where there is one, and not of "a".
  const isOthers = (option: string): boolean =>
    names.some((other) => prefixOf(other).length > prefix.length && option.startsWith(prefixOf(other)));
  const unknownName = Object.keys(environment).find(
    (each) => each.startsWith(prefix) && !isOthers(each) && !SETTINGS[driver].has(each.slice(prefix.length)),
  );
  if (unknownName !== undefined) throw new Error(`${unknownName}: the driver ${driver} has no such option`);
  if (driver === 'local') return { driver, name, root: read('ROOT') ?? './uploads' };
  const region = read('REGION') ?? 'us-east-1';
  return {
    driver,
    name,
    region,
    key: required('KEY'),
    secret: required('SECRET'),
    url: bucketUrl(
      required('BUCKET'),
      read('ENDPOINT') ?? `https://s3.${region}.amazonaws.com`,
      read('FORCE_PATH_STYLE') === 'true',
      `${prefix}ENDPOINT`,
    ),
    root: foldersOf(read('ROOT') ?? ''),
  };
}

function prefixOf(name: string): string {
  return `STORAGE_${name.toUpperCase()}_`;
}

function bucketUrl(bucket: string, endpoint: string, inPath: boolean, option: string): string {
  const full = /^https?:\/\//i.test(endpoint) ? endpoint : `https://${endpoint}`;
  if (!URL.canParse(full)) throw new Error(`${option} must be a URL such as https://s3.example.com`);
  const { protocol, host, pathname } = new URL(full);
  const path = foldersOf(pathname) + (inPath ? foldersOf(bucket) : '');
  return `${protocol}//${inPath ? '' : `${bucket}.`}${host}/${path}`;
}

function foldersOf(path: string): string {
  const folders = path.split('/').filter((each) => each !== '' && each !== '.');
  return folders.map((each) => `${encodeURIComponent(each)}/`).join('');
}
