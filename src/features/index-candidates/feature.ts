/** Proposes indexes that could serve a read: `Prefer: explain` shows them. */
import type { Feature } from '../../server/feature/feature.js';

export const indexCandidates: Feature = {
  name: 'index-candidates',
  explain: async () => {
    const { proposedIndexes } = await import('./index-candidates.js');
    return (plan) => ({ indexes: proposedIndexes(plan) });
  },
};
