/** Hooks and routes that users write. */
import type { Feature } from '../../server/feature/feature.js';

export const extensions: Feature = {
  name: 'extensions',
};
