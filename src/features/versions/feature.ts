/** Drafts of items, which are compared and promoted. */
import type { Feature } from '../../server/feature/feature.js';

export const versions: Feature = {
  name: 'versions',
  tables: {
    migrations: ['018_versions.sql', '022_drafts.sql'],
    resources: [{ name: 'versions', kind: 'write', sdk: true }],
  },
  hooks: async () => [(await import('./version-hook.js')).versions],
  open: async ({ core, identities, items }) => {
    const { versionsRoutes } = await import('./version-routes.js');
    return { routes: versionsRoutes({ ...core, identities, limits: { parse: items.limits } }) };
  },
};
