/**
 * The statement of a write, for its ceiling. The service explains only reads, so its own functions plan and compile the same payloads
 * here.
 */
import { activityLogOf } from '../src/compile/write/activity.js';
import { compileWrite } from '../src/compile/write/write.js';
import { inputValues } from '../src/compile/write/write-input.js';
import { readConfig } from '../src/config/config.js';
import { servedCollection } from '../src/plan/read.js';
import { planCreate, planUpdate } from '../src/plan/write/payload.js';
import type { ItemChange, Payload } from '../src/plan/write/payload-row.js';
import { NO_AUTHOR } from '../src/plan/write/write.js';
import { withCore } from '../src/service/start.js';
import { bind, type Caller } from '../src/sql/parameter.js';
import type { BenchRequest } from './cases.js';
import type { Explained } from './statement.js';

const CALLER: Caller = { user: null, role: null, roles: [], policies: [] };

export function compileWrites(databaseUrl: string, requests: readonly BenchRequest[]): Promise<readonly Explained[]> {
  const config = readConfig({ DATABASE_URL: databaseUrl });
  const silent = (): void => undefined;
  return withCore(config, silent, silent, async ({ mirror: { model } }) =>
    Promise.all(
      requests.map(async ({ path, body }) => {
        const [, , name = '', key] = path.split('?', 1)[0]?.split('/') ?? [];
        const collection = servedCollection(model, name);
        const payload = JSON.parse(body ?? '') as Payload | readonly Payload[];
        const items = [payload].flat() as readonly Payload[];
        const context = {
          model,
          maxRows: null,
          access: null,
          author: NO_AUTHOR,
          variables: { now: new Date().toISOString(), ...CALLER },
        };
        const changes = items.map((data): ItemChange => ({ key: key ?? '', data }));
        const planned =
          key === undefined
            ? await planCreate(collection, items, context)
            : await planUpdate(collection, changes, context);
        const { text, parameters } = compileWrite(planned.plan, { records: null, activityLog: activityLogOf(model) });
        return { sql: text, parameters: bind(parameters, inputValues(planned.input, null), CALLER) };
      }),
    ),
  );
}
