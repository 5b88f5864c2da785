/** Several writes in one transaction. */
import type { Feature } from '../../server/feature/feature.js';

export const transactions: Feature = {
  name: 'transactions',
  open: async ({ items }) => {
    const { transactionsRoutes } = await import('./transaction-routes.js');
    return { routes: transactionsRoutes(items) };
  },
};
