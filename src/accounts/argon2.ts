/**
 * argon2id with 19 MiB and two passes. The binary of a platform is an optional dependency of its package: where those are left out it is done
 * in WebAssembly, which takes longer, and on the event loop.
 */
import { randomBytes } from 'node:crypto';

interface Argon2 {
  hash(password: string | Buffer): Promise<string>;
  /** Rejects what is no hash. */
  verify(hash: string, password: string): Promise<boolean>;
}

async function load(): Promise<Argon2> {
  try {
    const { hash, verify } = await import('@node-rs/argon2');
    return { hash: (password) => hash(password), verify: (stored, password) => verify(stored, password) };
  } catch {
    return loadPortable();
  }
}

export async function loadPortable(): Promise<Argon2> {
  const { argon2id, argon2Verify } = await import('hash-wasm');
  const cost = { parallelism: 1, iterations: 2, memorySize: 19_456, hashLength: 32, outputType: 'encoded' as const };
  return {
    hash: (password) => argon2id({ ...cost, password, salt: randomBytes(16) }),
    verify: (hash, password) => argon2Verify({ hash, password }),
  };
}

let loaded: Promise<Argon2> | null = null;

export async function hash(password: string | Buffer): Promise<string> {
  loaded ??= load();
  return (await loaded).hash(password);
}

export async function verify(stored: string, password: string): Promise<boolean> {
  loaded ??= load();
  return (await loaded).verify(stored, password);
}
