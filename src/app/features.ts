/** The features of the product. Each line stands for a folder that can be deleted. */
import { adopt } from '../features/adopt/feature.js';
import { catalog } from '../features/catalog/feature.js';
import { changeStream } from '../features/change-stream/feature.js';
import { databaseObjects } from '../features/database-objects/feature.js';
import { directus } from '../features/directus/feature.js';
import { doctor } from '../features/doctor/feature.js';
import { embedded } from '../features/embedded/feature.js';
import { explorer } from '../features/explorer/feature.js';
import { exportFormats } from '../features/export-formats/feature.js';
import { extensions } from '../features/extensions/feature.js';
import { files } from '../features/files/feature.js';
import { importExport } from '../features/import-export/feature.js';
import { indexCandidates } from '../features/index-candidates/feature.js';
import { live } from '../features/live/feature.js';
import { mcp } from '../features/mcp/feature.js';
import { openapi } from '../features/openapi/feature.js';
import { plans } from '../features/plans/feature.js';
import { program } from '../features/program/feature.js';
import { registration } from '../features/registration/feature.js';
import { shapes } from '../features/shapes/feature.js';
import { shares } from '../features/shares/feature.js';
import { signIn } from '../features/sign-in/feature.js';
import { snapshots } from '../features/snapshots/feature.js';
import { sockets } from '../features/sockets/feature.js';
import { traffic } from '../features/traffic/feature.js';
import { transactions } from '../features/transactions/feature.js';
import { versions } from '../features/versions/feature.js';
import { webhooks } from '../features/webhooks/feature.js';
import type { Feature } from '../server/feature/feature.js';

export const features = [
  adopt,
  catalog,
  changeStream,
  databaseObjects,
  directus,
  doctor,
  embedded,
  explorer,
  exportFormats,
  extensions,
  files,
  importExport,
  indexCandidates,
  live,
  mcp,
  openapi,
  plans,
  program,
  registration,
  shapes,
  shares,
  signIn,
  snapshots,
  sockets,
  traffic,
  transactions,
  versions,
  webhooks,
] as const satisfies readonly Feature[];
