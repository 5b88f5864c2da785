/** Registration, invitations, and accounts with a second factor. */
import type { Feature } from '../../server/feature/feature.js';

export const registration: Feature = {
  name: 'registration',
  open: async ({ core: { policies, writes }, access, limits, observe }) => {
    const { accountRoutes, registrationRoutes } = await import('./account.js');
    const services = { ...access, policies, writes, registrationLimit: limits.registrations, observe };
    return { routes: [...accountRoutes(access), ...registrationRoutes(services)] };
  },
};
