/** The work of a worker thread: it has its own connections and caches, and applies what the main thread broadcasts. */
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { type Event, type Observer, withPlainError } from '../../base/observe.js';
import { createSequence } from '../../base/time-slices.js';
import { Policies } from '../../server/access/policies.js';
import { remoteLimits } from '../../server/http/limiter.js';
import { prepareThread } from '../../server/node/prepare-thread.js';
import { addSystemTables } from '../../server/postgres/catalog/system-tables.js';
import { FollowingMirror } from '../../server/postgres/catalog/watch.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { openDatabase } from '../../server/postgres/pools/open-database.js';
import type { Core, CoreSources, Shared, ThreadMakers } from '../../server/threads/thread-parts.js';
import { ThreadServer } from '../../server/threads/threads.js';
import { FastExecutors } from '../layers/speed.js';
import { SpeedState } from '../layers/speed-state.js';
import { type Assignment, Channel, type MainCalls, type Message, serializeError, type WorkerCalls } from './channel.js';

/** The connection to the main thread. */
type Main = Channel<WorkerCalls, MainCalls>;

async function work(assignment: Assignment, port: MessagePort, makers: ThreadMakers): Promise<void> {
  const { config, closed } = assignment;
  const main: Main = new Channel((message) => port.postMessage(message));
  let server: ThreadServer | null = null;
  const die = (error: unknown): void => {
    main.notify('failed', serializeError(error));
    server?.abandon();
    leave(closed, 1);
  };
  process.on('uncaughtException', die);
  const observe = (event: Event): void => main.notify('observe', withPlainError(event));
  await makers.prepareProcess(config, observe);
  const { core, mirror, shared } = await openCore(assignment, main, observe, makers);
  let url = '';
  const serving = await ThreadServer.create(
    config,
    core,
    sharedOf(assignment, main, () => url),
    { createApp: makers.createApp, observe, onRequest: null },
  );
  server = serving;
  // A model is built with pauses. Rights and the end of sessions do not wait for it; that the database is served again does.
  const inOrder = createSequence();
  main.serve({
    ready: () => {},
    apply: async (message) => {
      try {
        if (message.kind === 'schema') await inOrder(() => mirror.take(message.text, message.version));
        else if (message.kind === 'installation') await inOrder(() => serving.apply(message));
        else await serving.apply(message);
      } catch (error) {
        die(error);
      }
    },
    listen: async (number, ownUrl) => {
      url = ownUrl;
      await serving.listen({ host: config.HOST, port: number, shared: true });
    },
    metrics: () => serving.app.collect(),
    ask: (feature, question) => serving.app.ask(feature, question),
    health: () => serving.app.check(),
    drain: () => serving.drain(),
    stop: () => void end(serving, core.database, shared).then(() => leave(closed, 0), die),
    abandon: () => {
      serving.abandon();
      leave(closed, 1);
    },
  });
  // Messages that were sent before wait until now.
  port.on('message', (message: Message<WorkerCalls>) => main.receive(message));
}

async function openCore(
  assignment: Assignment,
  main: Main,
  observe: Observer,
  { createCore, synonymsOf }: ThreadMakers,
): Promise<{ readonly core: Core; readonly mirror: FollowingMirror; readonly shared: SpeedState }> {
  const { config, databaseUrl, identity, system, tables, schema } = assignment;
  await prepareThread();
  const database = await openDatabase(
    config,
    databaseUrl,
    { checksSessions: false, identity, synonyms: await synonymsOf(config) },
    observe,
  );
  database.system = system;
  addSystemTables(tables);
  const mirror = new FollowingMirror(schema.text, schema.version, database, {
    adopt: ({ text, digest }) => main.call('adopt', text, digest),
    refresh: (certain) => main.call('refresh', certain),
  });
  const policies = new Policies();
  policies.apply(assignment.policies);
  const shared = SpeedState.open(config, assignment.shared);
  const openExecutors: CoreSources['openExecutors'] = (sources) => new FastExecutors(config, sources, shared);
  const core = await createCore(config, { database, mirror, policies, openExecutors }, observe);
  return { core, mirror, shared };
}

function sharedOf({ config, secret }: Assignment, main: Main, url: () => string): Omit<Shared, 'fetch'> {
  const limits = remoteLimits(config, {
    requests: (address) => main.call('countRequest', address),
    registrations: (address) => main.call('countRegistration', address),
    logins: {
      attempt: (address) => main.call('countLogin', address),
      forgive: (address) => main.call('forgiveLogin', address),
      enter: (attempt) => main.call('enterLogin', attempt),
      settle: (attempt, outcome) => main.call('settleLogin', attempt, outcome),
    },
  });
  return {
    secret,
    limits,
    broadcast: (message) => main.call('broadcast', message),
    accessChanged: () => main.call('accessChanged'),
    url,
    events: new Map(),
    gather: () => main.call('gather'),
    ask: (feature, question) => main.call('ask', feature, question),
    health: () => main.call('health'),
  };
}

async function end(server: ThreadServer, database: Database, shared: SpeedState): Promise<void> {
  await server.stop();
  await Promise.all([database.close(), shared.close()]);
}

let leaving = false;

/** Sockets close in the next turn of the event loop; a thread that ends with open ones crashes the process. */
function leave(closed: Int32Array, code: number): void {
  if (leaving) return;
  leaving = true;
  setImmediate(() => {
    Atomics.add(closed, 0, 1);
    Atomics.notify(closed, 0);
    process.exit(code);
  });
}

/** Works as the main thread has assigned to this thread. */
export function runWorker(makers: ThreadMakers): void {
  if (!parentPort) throw new Error('this file is the program of a worker thread');
  const port = parentPort;
  const assignment: Assignment = workerData;
  work(assignment, port, makers).catch((error: unknown) => {
    new Channel<WorkerCalls, MainCalls>((message) => port.postMessage(message)).notify('failed', serializeError(error));
    leave(assignment.closed, 1);
  });
}
