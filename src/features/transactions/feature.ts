/** Several writes in one transaction. */
import type { Feature } from '../../server/feature/feature.js';

export const transactions: Feature = {
  name: 'transactions',
};
