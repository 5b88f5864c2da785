/**
 * Connects to one of the servers of the connection settings and logs in there, as libpq does. Every connection of the service begins
 * here.
 */
import { on } from 'node:events';
import type { Socket } from 'node:net';
import { asError, codeOf } from '../../../base/narrow.js';
import type { ConnectionSettings, HostAddress, SessionTarget } from '../../config/connection-settings.js';
import { disconnected, failed, REJECTED } from './connection-errors.js';
import type { Settings } from './connection-options.js';
import { Login } from './login.js';
import { DATA_ROW, ERROR_RESPONSE, READY_FOR_QUERY, readError, writeText } from './protocol.js';
import { CellDecoder } from './row-decoder.js';
import { Approach, type SocketOwner, waysTo } from './socket.js';

interface Attempt {
  readonly settings: ConnectionSettings;
  readonly parameters: Settings;
  readonly owner: SocketOwner;
  readonly target: SessionTarget;
}

/** The owner gets all bytes, and emits each message as "data" of the socket until the session is open. */
export async function openSession(
  settings: ConnectionSettings,
  parameters: Settings,
  owner: SocketOwner,
): Promise<Socket> {
  const { hosts, target, isBalanced } = settings;
  const first = isBalanced ? Math.floor(Math.random() * hosts.length) : 0;
  const failures: Error[] = [];
  const attempt = { settings, parameters, owner };
  // The first round looks for a standby, the second takes what there is.
  for (const wanted of target === 'prefer-standby' ? (['standby', 'any'] as const) : [target])
    for (const host of [...hosts.slice(first), ...hosts.slice(0, first)]) {
      try {
        return await openAt(host, { ...attempt, target: wanted });
      } catch (error) {
        failures.push(asError(error));
        if (!mayDiffer(asError(error))) throw error;
      }
    }
  throw failed([...new Set(failures.map(({ message }) => message))].join('; '), failures.at(-1));
}

/** A server that starts or stops does not accept logins. */
const STARTING = '57P03';

/** Whether another host may do. */
function mayDiffer(error: Error): boolean {
  return codeOf(error) === STARTING || (!('severity' in error) && codeOf(error) !== REJECTED);
}

/**
 * With `prefer` and `allow`, the second way is tried only if the server refused the first before it asked for a password: libpq would send
 * the password again, perhaps without TLS.
 */
async function openAt(host: HostAddress, { settings, parameters, owner, target }: Attempt): Promise<Socket> {
  const { connectTimeout } = settings;
  let failure: unknown = null;
  for (const isSecure of waysTo(host, settings)) {
    const approach = new Approach(settings, host, owner);
    let login: Login | null = null;
    let isLate = false;
    const late = (): void => {
      isLate = true;
      approach.destroy(failed(`${host.name} did not answer in time`));
    };
    const timer = connectTimeout === null ? null : setTimeout(late, connectTimeout);
    try {
      const reached = await approach.open(isSecure);
      login = new Login(reached);
      await login.run(parameters);
      if (target !== 'any') await checkTarget(reached.socket, target, host.name);
      return reached.socket;
    } catch (error) {
      approach.destroy();
      const isFinal = isLate || login?.isAsked === true || !approach.isConnected;
      if (failure === null || isFinal) failure = error;
      if (isFinal) break;
    } finally {
      if (timer) clearTimeout(timer);
    }
  }
  throw failure;
}

const STATE = `select pg_catalog.concat(pg_catalog.pg_is_in_recovery(), ' ', pg_catalog.current_setting('default_transaction_read_only'))`;

/** The unwanted states of a server: whether it is a standby, and read-only. */
const UNWANTED: Readonly<Record<SessionTarget, RegExp>> = {
  any: /^$/,
  primary: /^t/,
  'read-write': /^t|on$/,
  'read-only': /^f off$/,
  standby: /^f/,
  'prefer-standby': /^$/,
};

async function checkTarget(socket: Socket, target: SessionTarget, name: string): Promise<void> {
  const messages = on(socket, 'data', { close: ['close', 'end'] });
  const decoder = new CellDecoder();
  socket.write(writeText(STATE));
  for await (const [message] of messages as AsyncIterable<[Buffer]>) {
    if (message[0] === ERROR_RESPONSE) throw readError(message, 5, message.length);
    if (message[0] === DATA_ROW) decoder.row(message, 5, true);
    if (message[0] !== READY_FOR_QUERY) continue;
    if (UNWANTED[target].test(String(decoder.cell)))
      throw failed(`${name} does not meet target_session_attrs=${target}`);
    return;
  }
  throw disconnected();
}
