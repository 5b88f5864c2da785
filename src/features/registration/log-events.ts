/** Events of registrations in the log. */
import { warn } from '../../base/log-line.js';
import type { EventOf } from '../../base/observe.js';

export const LOG_EVENTS = {
  'registration-refused': ({ role }: { readonly role: string | null }) =>
    warn('refused a registration: public_registration_role has admin access', { role }),
};

export type RegistrationLogEvent = EventOf<typeof LOG_EVENTS>;
