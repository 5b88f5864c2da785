/** Creates and changes users for the service itself (registration, sign-in with another provider), through the writes that items go through. */

import { NO_AUTHOR } from '../../../compiler/plan/write/write.js';
import type { Input } from '../../../compiler/request/parse-context.js';
import { CLI_IDENTITY } from '../../access/identity.js';
import type { UserStore } from '../../accounts/external-users.js';
import { NO_CLIENT } from '../stages.js';
import type { WrittenBy } from '../writer.js';
import type { Writes } from '../writes/writes.js';

const COLLECTION = 'service_users';

export async function createUser(writes: Writes, user: Input, { writer, client }: WrittenBy): Promise<void> {
  const request = { kind: 'create', collection: COLLECTION, items: [user], many: false } as const;
  await writes.run({ ...request, idempotencyKey: null, onConflict: null, readBack: null }, writer, client);
}

export async function updateUser(
  writes: Writes,
  key: string,
  data: Input,
  { writer, client }: WrittenBy,
): Promise<void> {
  await writes.run({ kind: 'update-item', collection: COLLECTION, key, data, readBack: null }, writer, client);
}

/** Writes users as the service itself: with all permissions, and without an author. */
export function userStore(writes: Writes): UserStore {
  const service = { writer: { caller: CLI_IDENTITY, author: NO_AUTHOR }, client: NO_CLIENT };
  return {
    create: (user) => createUser(writes, user, service),
    update: (key, change) => updateUser(writes, key, change, service),
  };
}
