/** Signs users in with the accounts of other providers. */
import type { Feature } from '../../server/feature/feature.js';

export const signIn: Feature = {
  name: 'sign-in',
};
