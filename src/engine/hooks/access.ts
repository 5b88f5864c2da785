/** Users, roles, policies, permissions and settings: at least one administrator must remain, and cached permissions are invalidated. */
import { checkAccess, checkRegistration, concernsAccess, watchAdministrators } from '../../accounts/administrators.js';
import type { WriteHook } from './write-hook.js';

export const access: WriteHook = {
  concerns: ({ collection, action }, model) => concernsAccess(collection.name, action === 'delete', model),
  open: ({ planned, database, session, writer, accessChanged }) => {
    let compare = async (): Promise<void> => {};
    return {
      beforeWrite: async () => {
        if (planned) checkAccess(planned);
        compare = await watchAdministrators(database, session, writer.caller);
      },
      afterWrite: async () => {
        await compare();
        if (planned) await checkRegistration(planned, database, session);
      },
      afterCommit: accessChanged,
    };
  },
};
