/** The hooks of extensions in one serving thread or command, and their routes. */
import { StartError } from '../../base/errors.js';
import type { Identities } from '../../server/access/identities.js';
import type { UserHooks } from '../../server/execute/hooks/user-hooks.js';
import type { FeatureContext, FeaturePart, HooksContext, OpenHooks } from '../../server/feature/feature.js';
import { afterWriteHook, keepingKeys } from './after-write.js';
import { BeforeWrites, isExtended } from './before-write.js';
import { extensionRoutes } from './extension-routes.js';
import type { Extensions } from './extensions.js';
import { openExtensions } from './load-extensions.js';
import type { ExtensionLogEvent } from './log-events.js';
import type { OPTIONS } from './options.js';
import { namedCaller, ProgramApi } from './program-api.js';
import { ConditionalReads } from './read-conditions.js';

export async function openHooks(context: HooksContext<typeof OPTIONS, ExtensionLogEvent>): Promise<OpenHooks | null> {
  const { config, mirror, policies, observe } = context;
  const extensions = await openExtensions(config, context.extensions, observe);
  return (
    extensions && {
      writes: writeHooksOf(extensions),
      reads: new ConditionalReads(extensions, mirror, policies),
      open: (thread) => partOf(extensions, thread),
      connect: (identities) => connectCommand(extensions, identities),
      idle: () => extensions.idle(),
    }
  );
}

function writeHooksOf(extensions: Extensions): UserHooks {
  return {
    ...afterWriteHook(extensions),
    follow: (collection) => extensions.hasWriteHooks(collection),
    change: (request, collection, model) => isExtended(extensions, request, collection, model),
    mayChange: ({ name }, model) => extensions.reached('beforeWrite', name, model).size > 0,
    before: (write, open) => new BeforeWrites(extensions, write, open),
    keepingKeys: (planned) => keepingKeys(planned, extensions),
  };
}

function partOf(extensions: Extensions, context: FeatureContext): FeaturePart {
  const { core, identities } = context;
  const api = new ProgramApi(() => context);
  extensions.connect({ api, callerOf: (as) => api.callerOf(as), apiFor: (caller) => api.apiFor(caller) });
  return {
    routes: extensionRoutes({ identities, extensions, responseMemory: core.database.responseMemory }),
    start: () => extensions.start(core.mirror.model),
    end: () => extensions.stop(),
  };
}

/** Hooks of a command write in its transaction. There is no service that they could call. */
function connectCommand(extensions: Extensions, identities: Identities): void {
  const refuse = (): never => {
    throw new StartError('a command has no service to call: use "tx"');
  };
  extensions.connect({
    api: { items: refuse, graphql: refuse },
    apiFor: refuse,
    callerOf: (as) => identities.named(namedCaller(as), ''),
  });
}
