/** The options of signing in with other providers. */
import { UsageError } from '../../base/errors.js';
import { boolean, type Environment } from '../../server/config/option-kinds.js';
import { authProviders } from './provider-options.js';

const withoutPasswords = boolean('false', 'Refuse logins with a password: only the providers sign users in');

export const OPTIONS = {
  AUTH_PROVIDERS: authProviders(
    'OpenID Connect providers to sign in with, by name; each has its own options AUTH_<NAME>_* (see docs/sign-in.md)',
  ),
  AUTH_DISABLE_DEFAULT: {
    ...withoutPasswords,
    parse: (text: string, { AUTH_PROVIDERS: providers = '' }: Environment = {}): boolean => {
      const isDisabled = withoutPasswords.parse(text);
      if (isDisabled && providers.trim() === '')
        throw new UsageError('AUTH_DISABLE_DEFAULT: with no AUTH_PROVIDERS nobody could sign in');
      return isDisabled;
    },
  },
};
