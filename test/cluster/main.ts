/**
 * What needs programs beside those that npm installs: several instances, failover, poolers. Each part is a program of its own; one
 * whose packages are missing is skipped, and it is said how to install them. `node dist/test/cluster/main.js part ...` runs some.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { packagePath } from '../../src/base/package-files.js';
import { findProgram } from '../support/programs.js';

interface Part {
  readonly name: string;
  readonly about: string;
  /** Where it is a test of the suite, made longer. */
  readonly file?: string;
  /** One of these programs, in a package of Debian. */
  readonly needs: readonly { readonly programs: readonly string[]; readonly install: string }[];
}

const PARTS: readonly Part[] = [
  {
    name: 'failover',
    about: 'a primary is lost under load, in three ways, and a standby is promoted; FAILOVER_ROUNDS (20)',
    file: 'server/postgres/failover.test',
    needs: [],
  },
  {
    name: 'pooler',
    about: 'PgBouncer in each of its modes; PGBOUNCER names a program of 1.21 or newer',
    file: 'server/postgres/pooler.test',
    needs: [{ programs: [process.env['PGBOUNCER'] ?? 'pgbouncer'], install: 'apt-get install pgbouncer' }],
  },
  {
    name: 'rolling-restart',
    about: 'two instances behind haproxy are restarted under load',
    needs: [{ programs: ['haproxy'], install: 'apt-get install haproxy' }],
  },
  {
    name: 'redis-limits',
    about: 'three instances count requests in Redis',
    needs: [{ programs: ['redis-server', 'valkey-server'], install: 'apt-get install redis-server' }],
  },
];

const chosen = process.argv.slice(2);
let failed = 0;
for (const { name, about, needs, file = `cluster/${name}` } of PARTS) {
  if (chosen.length > 0 && !chosen.includes(name)) continue;
  console.log(`# ${name}: ${about}`);
  const missing: string[] = [];
  for (const { programs, install } of needs)
    if ((await findProgram(...programs)) === null) missing.push(`${programs[0]} is not installed: ${install}`);
  if (missing.length > 0) {
    console.log(`skipped: ${missing.join('; ')}`);
    continue;
  }
  const child = spawn(process.execPath, [packagePath('dist', 'test', `${file}.js`)], {
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { FAILOVER_ROUNDS: '20', ...process.env, TAP: '1', TAP_TIMEOUT: '3600' },
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) failed++;
  console.log(code === 0 ? `# ${name}: passed\n` : `# ${name}: FAILED\n`);
}
process.exitCode = failed === 0 ? 0 : 1;
