/** Items, live queries and GraphQL over WebSockets. */
import type { Feature } from '../../server/feature/feature.js';
import { live } from '../live/feature.js';

export const sockets: Feature = {
  name: 'sockets',
  needs: [live],
};
