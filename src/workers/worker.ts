/** The program of a worker thread: it serves with what is its own, and with what the main thread tells it. */
import { parentPort, workerData } from 'node:worker_threads';
import { Policies } from '../access/policies.js';
import { type HttpServer, listen } from '../http/app.js';
import { remoteLimits } from '../http/limiter.js';
import { FollowingMirror } from '../mirror/follow.js';
import { loadGrammar } from '../sql/grammar.js';
import { createCore, createServing, openDatabase } from '../worker-app.js';
import { MainChannel } from './main-channel.js';
import { type Assignment, failureOf } from './messages.js';

async function work(assignment: Assignment): Promise<void> {
  const { config, databaseUrl, system, secret, structure, policies: held, closed } = assignment;
  if (!parentPort) throw new Error('this file is the program of a worker thread');
  const link = new MainChannel(parentPort);
  let http: HttpServer | null = null;
  let url = '';
  const die = (error: unknown): void => {
    link.send({ kind: 'failed', failure: failureOf(error) });
    http?.abandon();
    leave(closed, 1);
  };
  process.on('uncaughtException', die);
  const { observe } = link;
  await loadGrammar();
  const database = await openDatabase(config, databaseUrl, false, observe);
  database.system = system;
  const mirror = new FollowingMirror(structure.text, structure.version, database, link.leader);
  const policies = new Policies();
  policies.take(held);
  const limits = remoteLimits(config, link.counter);
  const core = createCore(config, { database, mirror, policies }, observe);
  const shared = {
    secret,
    limits,
    tell: link.broadcast.bind(link),
    accessChanged: () => link.accessChanged(),
    url: () => url,
    events: new Map(),
    gather: link.gather.bind(link),
    health: link.health.bind(link),
  };
  const { router, take, collect, check, stopping } = await createServing(config, core, shared, observe);
  const begin = async (port: number): Promise<void> => {
    const place = { host: config.HOST, port, shared: true };
    http = await listen(router, { config, place, limit: limits.requests, room: database.responseMemory, observe });
  };
  const end = async (): Promise<void> => {
    stopping();
    await http?.close(config.SHUTDOWN_TIMEOUT);
    await database.close();
  };
  link.follow({
    news: (news) => (news.kind === 'structure' ? mirror.take(news.text, news.version) : take(news)),
    listen: (port, address) => {
      url = address;
      begin(port).then(
        () => link.send({ kind: 'listening' }),
        (error: unknown) => link.send({ kind: 'failed', failure: failureOf(error) }),
      );
    },
    report: { metrics: collect, health: check },
    stop: () => void end().then(() => leave(closed, 0), die),
    abandon: () => {
      http?.abandon();
      leave(closed, 1);
    },
  });
  link.send({ kind: 'ready' });
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

const assignment = workerData as Assignment;
work(assignment).catch((error: unknown) => {
  parentPort?.postMessage({ kind: 'failed', failure: failureOf(error) });
  leave(assignment.closed, 1);
});
