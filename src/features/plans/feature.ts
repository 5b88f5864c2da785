/** Plans requests on an empty twin of a database, compares the plans and proposes indexes. */
import type { Feature } from '../../server/feature/feature.js';
import { embedded } from '../embedded/feature.js';
import { indexCandidates } from '../index-candidates/feature.js';
import { snapshots } from '../snapshots/feature.js';
import { traffic } from '../traffic/feature.js';

export const plans: Feature = {
  name: 'plans',
  needs: [embedded, indexCandidates, snapshots, traffic],
  commands: {
    explain: {
      topic: 'Plans and indexes',
      about: "prints the SQL of a read, its parameters and PostgreSQL's plan",
      load: async () => (await import('./explain-command.js')).COMMANDS.explain,
    },
    statistics: {
      topic: 'Plans and indexes',
      about: 'writes what the planner knows about a database to a file, without rows',
      load: async () => (await import('./command.js')).COMMANDS.statistics,
    },
    plans: {
      topic: 'Plans and indexes',
      about: 'plans recorded requests on an empty twin of a database, and fails if a plan got worse',
      load: async () => (await import('./command.js')).COMMANDS.plans,
    },
    advise: {
      topic: 'Plans and indexes',
      about: 'proposes indexes for recorded requests, each tried on the twin',
      load: async () => (await import('./command.js')).COMMANDS.advise,
    },
  },
};
