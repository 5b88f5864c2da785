/** Checks a database and the role of the service, and prints the SQL that fixes problems. */
import type { Feature } from '../../server/feature/feature.js';

export const doctor: Feature = {
  name: 'doctor',
  commands: {
    doctor: {
      topic: 'Serve',
      about: 'checks the database and says how to fix problems',
      load: async () => (await import('./command.js')).COMMANDS.doctor,
    },
  },
};
