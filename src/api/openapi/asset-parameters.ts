/** What the content of a file may be asked for with: a download, or a transformed image. */
import { BOOLEAN, INTEGER, oneOf, type Schema, STRING } from './json-schema.js';
import { queryParameter } from './parameters.js';

export const ASSET_PARAMETERS: readonly Schema[] = [
  queryParameter('download', BOOLEAN, 'Whether the content is to be saved.'),
  queryParameter('key', STRING, 'A preset of the settings, or `system-small-cover` and the like.'),
  queryParameter('width', INTEGER, 'The width of the image in pixels.'),
  queryParameter('height', INTEGER, 'The height of the image in pixels.'),
  queryParameter('fit', oneOf('cover', 'contain', 'inside', 'outside', 'fill'), 'How the image fits both.'),
  queryParameter('format', oneOf('auto', 'jpg', 'jpeg', 'png', 'webp', 'tiff', 'avif'), 'The format of the image.'),
  queryParameter('quality', INTEGER, 'From 1 to 100.'),
  queryParameter('withoutEnlargement', BOOLEAN, 'Whether a smaller image stays as it is.'),
  queryParameter('focal_point_x', INTEGER, 'The centre of a crop.'),
  queryParameter('focal_point_y', INTEGER, 'The centre of a crop.'),
  queryParameter('transforms', STRING, 'A JSON list of `[method, ...arguments]` of sharp.'),
];
