/** Programs of the system that some tests use where they are installed, and ports for them. */
import { once } from 'node:events';
import { access, constants } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';

/** The first of them that is there; also where Debian keeps servers, which is not in everybody's PATH. */
export async function findProgram(...names: readonly string[]): Promise<string | null> {
  const folders = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/usr/local/sbin'];
  for (const name of names)
    for (const folder of folders) {
      const path = name.startsWith('/') ? name : join(folder, name);
      const found = await access(path, constants.X_OK).then(
        () => true,
        () => false,
      );
      if (found) return path;
    }
  return null;
}

export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as { port: number };
  probe.close();
  await once(probe, 'close');
  return port;
}
