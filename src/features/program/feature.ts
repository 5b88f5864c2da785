/** The service inside of a Node program. */
import type { Feature } from '../../server/feature/feature.js';
import { extensions } from '../extensions/feature.js';

export const program: Feature = {
  name: 'program',
  needs: [extensions],
};
