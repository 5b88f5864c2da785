/** Hooks and routes that users write. */
import type { Feature } from '../../server/feature/feature.js';

export const extensions: Feature = {
  name: 'extensions',
  prepareProcess: async (config, observe) => (await import('./load-extensions.js')).surviveRejections(config, observe),
  openHooks: async (context) => (await import('./open-hooks.js')).openHooks(context),
  open: async (context) => context.hooks?.open(context) ?? null,
};
