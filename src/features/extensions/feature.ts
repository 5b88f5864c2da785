/** Hooks and routes that users write. */
import type { Feature } from '../../server/feature/feature.js';
import { type ExtensionLogEvent, LOG_EVENTS } from './log-events.js';
import { OPTIONS } from './options.js';

export const extensions: Feature<unknown, typeof OPTIONS, ExtensionLogEvent> = {
  name: 'extensions',
  options: OPTIONS,
  topic: 'Start',
  events: LOG_EVENTS,
  prepareProcess: async (context) => (await import('./load-extensions.js')).surviveRejections(context),
  openHooks: async (context) => (await import('./open-hooks.js')).openHooks(context),
  open: async (context) => context.hooks?.open(context) ?? null,
};
