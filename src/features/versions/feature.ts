/** Drafts of items, which are compared and promoted. */
import type { Feature } from '../../server/feature/feature.js';

export const versions: Feature = {
  name: 'versions',
};
