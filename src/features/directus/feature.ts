/** The names and types of Directus, for clients that were written for it. */
import type { Feature } from '../../server/feature/feature.js';

export const directus: Feature = {
  name: 'directus',
  commands: {
    types: {
      topic: 'Data and schema',
      about: 'prints the collections as a TypeScript schema for @directus/sdk',
      load: async () => (await import('./types-command.js')).COMMANDS.types,
    },
  },
  dialect: async ({ DIRECTUS_COMPATIBILITY: isCompatible }) => {
    if (!isCompatible) return null;
    const directus = await import('./compatibility.js');
    return {
      synonyms: directus.directusSynonyms(),
      names: directus.directusNames,
      version: directus.DIRECTUS_VERSION,
      sdlType: directus.DIRECTUS_SDL_TYPE,
      schemaRoutes: directus.withDirectusSchema,
    };
  },
};
