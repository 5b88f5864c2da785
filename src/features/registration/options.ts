/** The options of registrations and invitations. */
import type { ConfigWith } from '../../server/config/config.js';
import { duration, text } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  REGISTER_STALL_TIME: duration('750ms', 'Minimum duration of a registration'),
  USER_INVITE_URL_ALLOW_LIST: text('', 'Pages allowed as invite_url (origin and path), comma separated'),
  USER_REGISTER_URL_ALLOW_LIST: text('', 'Pages allowed as verification_url (origin and path), comma separated'),
};

export type RegistrationConfig = ConfigWith<typeof OPTIONS>;
