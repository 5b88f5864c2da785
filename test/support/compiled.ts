/** Compares what `lateral/compiler` makes of a request with the statements that the service sent for it. */
import type { Test } from 'tap';
import type {
  CallerPermissions,
  CompiledRequest,
  CompiledStatement,
  Compiler,
} from '../../src/features/catalog/compiler.js';
import { NoStatement } from '../../src/features/catalog/compiler.js';
import { type GoldenRequest, goldenStatement } from './golden.js';

/** The address from which the tests send requests. */
export const CLIENT = { ip: '127.0.0.1' };

export function compileGolden(
  compiler: Compiler,
  { method, path, body }: GoldenRequest,
  permissions: CallerPermissions,
): Promise<CompiledRequest> {
  if (path !== '/graphql') return compiler.rest({ method, path, body }, permissions);
  const { query, variables = {} } = body as { query: string; variables?: Record<string, unknown> };
  return compiler.graphql(query, variables, permissions);
}

/** The recorded text has the statements in their order, and otherwise only those of the transaction. */
export function equalRecorded(t: Test, { following, ...first }: CompiledRequest, recorded: string): void {
  const statements: readonly CompiledStatement[] = [first, ...following];
  let at = 0;
  for (const { sql, parameters } of statements) {
    const expected = goldenStatement(`${sql};`, parameters);
    const found = recorded.indexOf(expected, at);
    if (found < 0) t.equal(expected, recorded, 'the statement that the service sent');
    else t.pass('the service sent the statement');
    at = Math.max(at, found + expected.length);
  }
  const ended = recorded.split('\n').filter((line) => /(?<!^begin|^commit|set_config\(.*);$/.test(line)).length;
  // A sequence is advanced past a key that the payload supplies, which depends on the result of the write.
  const advanced = recorded.match(/^select pg_catalog\.setval\(/gm)?.length ?? 0;
  t.equal(ended - advanced, statements.length, 'the number of statements');
}

/** Returns null for a request whose statements depend on rows. */
export async function compiledOrNone(compiled: Promise<CompiledRequest>): Promise<CompiledRequest | null> {
  return compiled.catch((error: unknown) => {
    if (error instanceof NoStatement) return null;
    throw error;
  });
}
