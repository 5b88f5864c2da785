/** Signs users in with the accounts of other providers. */
import type { Feature } from '../../server/feature/feature.js';
import { OPTIONS } from './options.js';

export const signIn: Feature<unknown, typeof OPTIONS> = {
  name: 'sign-in',
  options: OPTIONS,
  topic: 'Accounts and tokens',
  open: async ({ config, access }) => {
    const { AUTH_PROVIDERS: all, AUTH_DISABLE_DEFAULT: replacePasswords } = config;
    if (all.length === 0) return null;
    const { signInRoutes } = await import('./sign-in-routes.js');
    const providers = all.map(({ name, label, icon }) => ({ name, driver: 'openid', label, icon }));
    return { routes: signInRoutes(access, all), logins: { providers, replacePasswords } };
  },
};
