/** The statements that took the most time, and budgets for them. */
import type { Feature } from '../../server/feature/feature.js';

export const shapes: Feature = {
  name: 'shapes',
  tables: { migrations: ['029_shape_budgets.sql'] },
  open: async (context) => (await import('./part.js')).openShapes(context),
  openOnce: async ({ database, broadcast }) => {
    const { listen } = await import('../../server/postgres/catalog/catalog.js');
    const { loadBudgets } = await import('./shape-budgets.js');
    const apply = async (): Promise<void> => broadcast(await loadBudgets(database));
    // A budget that could not be read is read after the next change.
    return listen(database, 'service_budgets', () => void apply().catch(() => {}), { stale: () => {} });
  },
};
