/** The options of extensions. */
import type { ConfigWith } from '../../server/config/config.js';
import { boolean, duration, names } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  EXTENSIONS: names(
    'Modules with hooks and routes, comma separated: files (./hooks/slugs.js), packages, or folders whose modules are all loaded (see docs/extending.md)',
  ),
  EXTENSIONS_AUTO_RELOAD: boolean('false', 'Load extensions again when their files change, for development'),
  EXTENSION_TIMEOUT: duration('5s', 'How long a hook or a route of an extension may take before its request fails'),
};

export type ExtensionConfig = ConfigWith<typeof OPTIONS>;
