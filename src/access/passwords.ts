/** Passwords are kept as argon2id hashes, with the library's defaults (19 MiB, two passes). */
import { hash } from '@node-rs/argon2';

export function hashPassword(password: string): Promise<string> {
  return hash(password);
}
