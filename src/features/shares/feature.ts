/** Shares items with people who have no account. */
import type { Feature } from '../../server/feature/feature.js';

export const shares: Feature = {
  name: 'shares',
  tables: {
    resources: [{ name: 'shares', kind: 'write', sdk: true }],
    appPermissions: [
      {
        collection: 'service_shares',
        action: 'read',
        permissions: { user_created: { _eq: '$CURRENT_USER' } },
        validation: null,
        presets: null,
        fields: '*',
      },
    ],
  },
  hooks: async () => [(await import('./share-writes.js')).shareWrites],
  open: async ({ core: { database, reads }, items, access }) => {
    const { sharesRoutes } = await import('./shares.js');
    return { routes: sharesRoutes({ ...access, database, reads, limits: items.limits }) };
  },
};
