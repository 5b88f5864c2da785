/** A transport of mails that keeps them in a file: what a test's users find in their mailboxes. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFolder, waitFor } from './service.js';

export interface Mailbox {
  /** For EMAIL_TRANSPORT. */
  readonly transport: string;
  /** In the mails to an address, oldest first. */
  links(to: string): Promise<string[]>;
  /** The next one to an address that was not asked for before: mails leave behind the answer. */
  link(to: string): Promise<string>;
}

export async function mailbox(): Promise<Mailbox> {
  const folder = await makeFolder();
  const file = join(folder, 'mails.ndjson');
  const transport = join(folder, 'transport.mjs');
  await writeFile(file, '');
  await writeFile(
    transport,
    `import { appendFileSync } from 'node:fs';
     export const send = (mail) => appendFileSync(${JSON.stringify(file)}, JSON.stringify(mail) + '\\n');`,
  );
  const links = async (to: string): Promise<string[]> => {
    const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '');
    const sent = lines.map((line) => JSON.parse(line) as { to: string; text: string });
    return sent.filter((mail) => mail.to === to).map(({ text }) => /https?:\S+/.exec(text)?.[0] ?? '');
  };
  const taken = new Map<string, number>();
  const link = async (to: string): Promise<string> => {
    const position = taken.get(to) ?? 0;
    taken.set(to, position + 1);
    await waitFor(async () => (await links(to)).length > position, 10_000);
    return (await links(to))[position] as string;
  };
  return { transport, links, link };
}
