/** /ext/<name>: the routes of extensions. */
import type { Identities } from '../access/identities.js';
import { type Identity, onlyAdministrator, onlyUser } from '../access/identity.js';
import { StartError } from '../base/errors.js';
import { elementAt } from '../base/narrow.js';
import type { Extension, ExtensionRouter, RouteOptions, RouteRequest } from '../engine/extensions/definition.js';
import { type Extensions, hookCaller } from '../engine/extensions/extensions.js';
import type { Exchange } from '../http/exchange.js';
import type { Reply } from '../http/reply.js';
import { type ApiRoute, type Description, dataReply, route } from './action.js';
import { checkInput, checkSchema } from './extension-input.js';

interface ExtensionRoute {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** Below `/ext/<name>`; '' for that itself. */
  readonly path: string;
  readonly options: RouteOptions;
  readonly handle: (request: RouteRequest<never>) => unknown;
}

interface ExtensionRouteServices {
  readonly identities: Identities;
  readonly extensions: Extensions | null;
}

export function extensionRoutes({ identities, extensions }: ExtensionRouteServices): ApiRoute[] {
  if (extensions === null) return [];
  return extensions.all.flatMap((extension) =>
    routesOf(extension).map((own) => apiRoute(own, extension.name, identities, extensions)),
  );
}

const SEGMENT = /^:?[a-z0-9_.-]+$/;
const ALLOWED = ['anyone', 'users', 'administrators'];

function routesOf(extension: Extension): ExtensionRoute[] {
  const routes: ExtensionRoute[] = [];
  const add =
    (method: ExtensionRoute['method']) =>
    (path: string, options: RouteOptions, handle: ExtensionRoute['handle']): void => {
      const place = `the route ${method} ${path} of the extension "${extension.name}"`;
      const segments = path.split('/').slice(1);
      const isValid = path === '/' || (path.startsWith('/') && segments.every((each) => SEGMENT.test(each)));
      if (!isValid) throw new StartError(`${place}: its path must look like /orders/:id, in lower case`);
      if (typeof handle !== 'function') throw new StartError(`${place}: it needs options and a handler`);
      if (options.allow !== undefined && !ALLOWED.includes(options.allow))
        throw new StartError(`${place}: "allow" must be one of ${ALLOWED.join(', ')}`);
      for (const schema of [options.body, options.answer]) if (schema !== undefined) checkSchema(schema, place);
      const own = path === '/' ? '' : path;
      if (routes.some((each) => each.method === method && each.path === own))
        throw new StartError(`${place}: it exists`);
      routes.push({ method, path: own, options, handle });
    };
  const router: ExtensionRouter = { get: add('GET'), post: add('POST'), patch: add('PATCH'), delete: add('DELETE') };
  extension.routes?.(router);
  return routes;
}

function apiRoute(own: ExtensionRoute, name: string, identities: Identities, extensions: Extensions): ApiRoute {
  const { method, options } = own;
  const path = `/ext/${name}${own.path}`;
  const description: Description = {
    summary: options.summary ?? `${method} of the extension ${name}`,
    ...(options.body && { body: { ...options.body } }),
    ...(options.answer && { data: { ...options.answer } }),
  };
  const names = path.split('/').flatMap((each) => (each.startsWith(':') ? [each.slice(1)] : []));
  return route(
    `${method} ${path}` as `${string} /${string}`,
    async (exchange) => {
      const caller = allowed(await identities.identify(exchange), options.allow ?? 'users');
      const hasBody = method === 'POST' || method === 'PATCH';
      const body = hasBody ? await exchange.json() : undefined;
      if (options.body) checkInput(body, options.body);
      const request = requestOf(exchange, { names, caller, body, extensions });
      const call = {
        extension: name,
        kind: `${method} ${path}`,
        collection: null,
        call: current(own, name, extensions),
      };
      return replyOf(await extensions.run(call, request));
    },
    description,
  );
}

/** After a reload, the handler of the new definition. */
function current(own: ExtensionRoute, name: string, extensions: Extensions): (request: RouteRequest<never>) => unknown {
  if (extensions.generation === 0) return own.handle;
  const extension = extensions.all.find((each) => each.name === name);
  const found = extension && routesOf(extension).find(({ method, path }) => method === own.method && path === own.path);
  return (found ?? own).handle;
}

function allowed(identity: Identity, allow: NonNullable<RouteOptions['allow']>): Identity {
  if (allow === 'administrators') return onlyAdministrator(identity);
  // A program calls as an administrator without a user.
  return allow === 'users' && !identity.administrator ? onlyUser(identity) : identity;
}

function requestOf(
  { method, parameters, queryString, id }: Exchange,
  {
    names,
    caller,
    body,
    extensions,
  }: { names: readonly string[]; caller: Identity; body: unknown; extensions: Extensions },
): RouteRequest<never> {
  return {
    method,
    parameters: Object.fromEntries(names.map((name, position) => [name, elementAt(parameters, position)])),
    query: new URLSearchParams(queryString),
    // The schema of the route says what it is.
    body: body as never,
    caller: hookCaller(caller),
    requestId: id,
    api: extensions.services.apiFor(caller),
  };
}

async function replyOf(result: unknown): Promise<Reply> {
  if (!(result instanceof Response)) return dataReply(result === undefined ? {} : { data: result });
  const headers = Object.fromEntries([...result.headers].filter(([name]) => !OWN_HEADERS.has(name)));
  const body = Buffer.from(await result.arrayBuffer());
  return { status: result.status, type: result.headers.get('content-type') ?? '', body, headers };
}

/** The service writes these itself. */
const OWN_HEADERS: ReadonlySet<string> = new Set(['content-type', 'content-length', 'connection', 'transfer-encoding']);
