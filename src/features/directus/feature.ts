/** The names and types of Directus, for clients that were written for it. */
import type { Feature } from '../../server/feature/feature.js';
import { OPTIONS } from './options.js';

export const directus: Feature<unknown, typeof OPTIONS> = {
  name: 'directus',
  options: OPTIONS,
  topic: 'Start',
  commands: {
    types: {
      topic: 'Data and schema',
      about: 'prints the collections as a TypeScript schema for @directus/sdk',
      load: async () => (await import('./types-command.js')).COMMANDS.types,
    },
  },
  dialect: async ({ DIRECTUS_COMPATIBILITY: isCompatible, CACHE_STATUS_HEADER: cacheHeader }) => {
    if (!isCompatible) return null;
    const directus = await import('./compatibility.js');
    return {
      synonyms: directus.directusSynonyms(),
      names: { ...directus.directusNames, cacheHeader },
      version: directus.DIRECTUS_VERSION,
      pongType: 'text/html; charset=utf-8',
      sdlType: directus.DIRECTUS_SDL_TYPE,
      schemaRoutes: directus.withDirectusSchema,
    };
  },
};
