/** Shares items with people who have no account. */
import type { Feature } from '../../server/feature/feature.js';

export const shares: Feature = {
  name: 'shares',
};
