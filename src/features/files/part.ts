/** Files in one serving thread. */
import type { FeatureContext, FeaturePart } from '../../server/feature/feature.js';
import { assetsRoutes } from './assets.js';
import { filesRoutes } from './file-routes.js';
import type { FilesServices } from './file-rows.js';
import { Images } from './images.js';
import type { FileLogEvent } from './log-events.js';
import type { OPTIONS } from './options.js';
import { Storages } from './storage.js';

export function openFiles({
  config,
  core,
  items,
}: FeatureContext<typeof OPTIONS, FileLogEvent>): FeaturePart<FilesServices> {
  const { mirror, policies } = core;
  const images = new Images(config);
  const services = { ...items, config, mirror, policies, storages: new Storages(config.STORAGE_LOCATIONS), images };
  return {
    exports: services,
    routes: assetsRoutes(services),
    resources: { files: () => filesRoutes(services) },
    // Images of running requests are finished.
    close: () => images.stop(),
  };
}
