/** Registration, invitations, and accounts with a second factor. */
import type { Feature } from '../../server/feature/feature.js';

export const registration: Feature = {
  name: 'registration',
};
