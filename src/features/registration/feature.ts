/** Registration, invitations, and accounts with a second factor. */
import type { Feature } from '../../server/feature/feature.js';
import { LOG_EVENTS, type RegistrationLogEvent } from './log-events.js';
import { OPTIONS } from './options.js';

export const registration: Feature<unknown, typeof OPTIONS, RegistrationLogEvent> = {
  name: 'registration',
  options: OPTIONS,
  topic: 'Accounts and tokens',
  events: LOG_EVENTS,
  open: async ({ config, core: { policies, writes }, access, limits, observe }) => {
    const { accountRoutes, registrationRoutes } = await import('./account.js');
    const services = { ...access, config, policies, writes, registrationLimit: limits.registrations, observe };
    return { routes: [...accountRoutes({ ...access, config }), ...registrationRoutes(services)] };
  },
};
