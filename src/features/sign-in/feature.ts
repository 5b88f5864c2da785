/** Signs users in with the accounts of other providers. */
import type { Feature } from '../../server/feature/feature.js';

export const signIn: Feature = {
  name: 'sign-in',
  open: async ({ config, access }) => {
    if (config.AUTH_PROVIDERS.length === 0) return null;
    const { signInRoutes } = await import('./sign-in-routes.js');
    return { routes: signInRoutes(access) };
  },
};
