/** The options of files and images. */
import type { ConfigWith } from '../../server/config/config.js';
import { divided, duration, integer, origins, size, text } from '../../server/config/option-kinds.js';
import { storageLocations } from './storage-options.js';

export const OPTIONS = {
  STORAGE_LOCATIONS: storageLocations(
    'Where uploaded files are stored, by name, the first for new files; each location has its own options STORAGE_<NAME>_* (see docs/files.md); if not set, local: the folder ./uploads',
  ),
  FILES_MAX_UPLOAD_SIZE: size('100mb', 'Largest file to upload or to import from a URL'),
  IMPORT_MAX_FILE_SIZE: size('50mb', 'Largest file to import over HTTP'),
  FILES_MIME_TYPE_ALLOW_LIST: text('*/*', 'Types of files that may be uploaded, comma separated, such as image/*'),
  FILES_IMPORT_ALLOW_LIST: origins(
    'Origins from which POST /files/import may fetch files, comma separated, such as https://images.example.com; * for every public address; if not set, it is off',
  ),
  FILES_IMPORT_TIMEOUT: duration('60s', 'How long the download of an imported file may take'),
  ASSETS_CACHE_TTL: duration(
    '0',
    'How long caches may keep a file of GET /assets without asking again; 0: they ask each time, and get a 304',
  ),
  ASSETS_TRANSFORM_MAX_CONCURRENT: divided(
    integer(
      '4',
      1,
      1_000,
      'Images that are transformed at the same time, each in a process of its own; divided among the threads, at least one per thread; 25 times as many may wait',
    ),
  ),
  ASSETS_TRANSFORM_TIMEOUT: duration(
    '7500ms',
    'How long the transformation of an image may take, and how long it may wait for its turn',
  ),
  ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION: integer(
    '6000',
    1,
    100_000,
    'Largest width and height in pixels of an image that is transformed, and of the result',
  ),
  ASSETS_TRANSFORM_MAX_OPERATIONS: integer('5', 0, 100, 'Entries that "transforms" of an image may have'),
};

export type FilesConfig = ConfigWith<typeof OPTIONS>;
