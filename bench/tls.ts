/** Lets the bench's PostgreSQL accept TLS connections too, with a certificate that only the bench trusts. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';

const run = promisify(execFile);

/** Returns the URL whose connections are encrypted. */
export async function enableTls(databaseUrl: string): Promise<string> {
  const sql = postgres(databaseUrl, { max: 1, fetch_types: false });
  try {
    const [row] = await sql`select current_setting('ssl') as ssl`;
    if (row?.['ssl'] !== 'on') {
      const { certificate, key } = await makeCertificate();
      await store(sql, 'server.crt', certificate);
      await store(sql, 'server.key', key);
      await sql`alter system set ssl = on`;
      await sql`select pg_reload_conf()`;
    }
  } finally {
    await sql.end({ timeout: 5 });
  }
  const url = new URL(databaseUrl);
  url.searchParams.set('sslmode', 'require');
  return url.href;
}

async function makeCertificate(): Promise<{ readonly certificate: string; readonly key: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'bench-tls-'));
  const [certificate, key] = [join(folder, 'server.crt'), join(folder, 'server.key')];
  try {
    const args = [
      'req',
      '-x509',
      '-nodes',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-days',
      '3650',
    ];
    await run('openssl', [...args, '-subj', '/CN=localhost', '-keyout', key, '-out', certificate]);
    return { certificate: await readFile(certificate, 'utf8'), key: await readFile(key, 'utf8') };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The server writes into its own folder, which may belong to another user. */
async function store(sql: postgres.Sql, name: string, content: string): Promise<void> {
  const lines = content.trim().split('\n');
  const rows = lines.map((line, index) => `(${index}, '${line.replaceAll("'", "''")}')`).join(', ');
  await sql.unsafe(
    `copy (select line from (values ${rows}) as content (number, line) order by number) to program 'umask 077; cat > ${name}'`,
  );
}
