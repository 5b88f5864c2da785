/**
 * The statements of a write, for its ceiling: the chain, and the read of the response that follows it. The service explains only reads,
 * so its own functions plan and compile the same payloads here.
 */

import { randomUUID } from 'node:crypto';
import { readConfig } from '../src/app/options.js';
import { withCore } from '../src/app/start.js';
import { compileReadBack } from '../src/compiler/compile/read.js';
import { activityLogOf } from '../src/compiler/compile/write/activity.js';
import { compileWrite } from '../src/compiler/compile/write/write.js';
import { inputValues } from '../src/compiler/compile/write/write-input.js';
import { planRead, servedCollection } from '../src/compiler/plan/read.js';
import { planCreate, planUpdate } from '../src/compiler/plan/write/payload.js';
import type { ItemChange, Payload } from '../src/compiler/plan/write/payload-row.js';
import { NO_AUTHOR } from '../src/compiler/plan/write/write.js';
import { parseReadBack } from '../src/compiler/request/rest.js';
import { bind, type Caller } from '../src/compiler/sql/parameter.js';
import { parseLimits } from '../src/server/config/parse-limits.js';
import type { BenchRequest } from './case.js';

const CALLER: Caller = { user: null, role: null, roles: [], policies: [] };

export interface Explained {
  readonly sql: string;
  readonly parameters: readonly (string | null)[];
}

export interface CompiledWrite extends Explained {
  /** The read-back, or null if the write is a change: its keys are in the request. */
  readonly readBack: string | null;
}

export function compileWrites(
  databaseUrl: string,
  requests: readonly BenchRequest[],
): Promise<readonly CompiledWrite[]> {
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
          newUuid: randomUUID,
          variables: { now: new Date().toISOString(), ...CALLER },
        };
        const changes = items.map((data): ItemChange => ({ key: key ?? '', data }));
        const planned =
          key === undefined
            ? await planCreate(collection, items, context)
            : await planUpdate(collection, changes, context);
        const { text, parameters } = compileWrite(planned.plan, { records: null, activityLog: activityLogOf(model) });
        const { request } = parseReadBack(name, !Array.isArray(payload), '', parseLimits(config));
        const limits = { defaultLimit: config.QUERY_LIMIT_DEFAULT, maxNodes: config.MAX_QUERY_NODES };
        const readBack = compileReadBack(planRead(request, model, limits));
        if (key === undefined && readBack.parameters.length > 0)
          throw new Error('the read of a response has no values but the keys');
        return {
          sql: text,
          parameters: bind(parameters, inputValues(planned.input, null), CALLER),
          readBack: key === undefined ? readBack.text : null,
        };
      }),
    ),
  );
}
