/** The program of a worker thread: it has its own connections and caches, and applies what the main thread broadcasts. */
import { parentPort, workerData } from 'node:worker_threads';
import { Policies } from '../../access/policies.js';
import { type HttpServer, startHttpServer } from '../../http/app.js';
import { remoteLimits } from '../../http/limiter.js';
import { FollowingMirror } from '../../mirror/follow.js';
import { loadGrammar } from '../../sql/grammar.js';
import { createCore, createWorkerApp, openDatabase, openReplicas } from '../app.js';
import { MainChannel } from './main-channel.js';
import { type Assignment, serializeError } from './messages.js';

async function work(assignment: Assignment): Promise<void> {
  const { config, databaseUrl, identity, system, secret, schema, policies: policyText, closed } = assignment;
  if (!parentPort) throw new Error('this file is the program of a worker thread');
  const channel = new MainChannel(parentPort);
  let http: HttpServer | null = null;
  let url = '';
  const die = (error: unknown): void => {
    channel.send({ kind: 'failed', failure: serializeError(error) });
    http?.abandon();
    leave(closed, 1);
  };
  process.on('uncaughtException', die);
  const { observe } = channel;
  await loadGrammar();
  const database = await openDatabase(config, databaseUrl, { checksSessions: false, identity }, observe);
  database.system = system;
  const mirror = new FollowingMirror(schema.text, schema.version, database, channel.leader);
  const policies = new Policies();
  policies.apply(policyText);
  const replicas = assignment.replicas && openReplicas(config, assignment.replicas);
  const limits = remoteLimits(config, channel.counter);
  const core = createCore(config, { database, mirror, policies, replicas }, observe);
  const shared = {
    secret,
    limits,
    broadcast: channel.broadcast.bind(channel),
    accessChanged: () => channel.accessChanged(),
    url: () => url,
    events: new Map(),
    gather: channel.gather.bind(channel),
    shapes: channel.shapes.bind(channel),
    health: channel.health.bind(channel),
  };
  const app = await createWorkerApp(config, core, shared, observe);
  const { router, sockets, names, apply, collect, check, stopping, endProcesses } = app;
  const begin = async (port: number): Promise<void> => {
    const address = { host: config.HOST, port, shared: true };
    const { responseMemory } = database;
    const limit = limits.requests;
    http = await startHttpServer(router, { config, address, limit, responseMemory, observe, names, sockets });
  };
  const drain = (): void => {
    void stopping();
    http?.drain();
  };
  const end = async (): Promise<void> => {
    drain();
    await Promise.all([endProcesses(), http?.close(config.SHUTDOWN_TIMEOUT)]);
    await stopping();
    await Promise.all([database.close(), replicas?.close()]);
  };
  channel.follow({
    apply: (message) => {
      if (message.kind === 'schema') mirror.take(message.text, message.version);
      else if (message.kind === 'serving') http?.open();
      else apply(message);
    },
    listen: (port, ownUrl) => {
      url = ownUrl;
      begin(port).then(
        () => channel.send({ kind: 'listening' }),
        (error: unknown) => channel.send({ kind: 'failed', failure: serializeError(error) }),
      );
    },
    report: { metrics: collect, health: check, shapes: async () => core.reads.shapeStats.reports },
    drain,
    stop: () => void end().then(() => leave(closed, 0), die),
    abandon: () => {
      http?.abandon();
      leave(closed, 1);
    },
  });
  channel.send({ kind: 'ready' });
}

let leaving = false;

/** Sockets close in the next turn of the loop; a thread that ends with open ones takes the process with it. */
function leave(closed: Int32Array, code: number): void {
  if (leaving) return;
  leaving = true;
  setImmediate(() => {
    Atomics.add(closed, 0, 1);
    Atomics.notify(closed, 0);
    process.exit(code);
  });
}

const assignment: Assignment = workerData;
work(assignment).catch((error: unknown) => {
  parentPort?.postMessage({ kind: 'failed', failure: serializeError(error) });
  leave(assignment.closed, 1);
});
