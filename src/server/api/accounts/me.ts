/** The caller's own account, roles and permissions. */

import { forbidden, forbiddenCollection, ServiceError } from '../../../base/errors.js';
import type { Collection } from '../../../compiler/model/model.js';
import type { WriteAction } from '../../../compiler/plan/access.js';
import type { Parsed } from '../../../compiler/request/ast.js';
import { UrlCache } from '../../../compiler/request/parse-cache.js';
import { parseCountOfKeys, parseOwn, parseSearch, partial, tagged } from '../../../compiler/request/rest.js';
import {
  type Allowed,
  describeAction,
  describePermissions,
  describeSchemaTables,
} from '../../access/describe-permissions.js';
import { CLI_IDENTITY, type Identity, onlyUser } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import { read } from '../../execute/pipeline.js';
import { countOf } from '../../execute/reads/session-reads.js';
import type { Exchange } from '../../http/exchange.js';
import { JSON_TYPE, type Reply } from '../../http/reply.js';
import type { Mirror } from '../../postgres/catalog/watch.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes, dataReply, route } from '../action.js';
import { type ItemsServices, writeItems } from '../items/item-writes.js';
import { taggedReply } from '../items/items.js';
import {
  BOOLEAN,
  done,
  failedPrecondition,
  ITEM_PARAMETERS,
  data as inEnvelope,
  list,
  object,
  ok,
  oneOf,
  parameterRefs,
  RECORD,
  STRING,
} from '../openapi/json-schema.js';

interface MeServices extends ItemsServices {
  readonly mirror: Mirror;
  readonly policies: Policies;
}

const ITEM_QUERY = parameterRefs(ITEM_PARAMETERS);
const ALLOWED = object({ access: oneOf('none', 'partial', 'full'), fields: list(STRING), presets: RECORD }, ['access']);
const OPEN = object({ access: BOOLEAN, fields: list(STRING), presets: RECORD }, ['access']);
const OPEN_ACTIONS = object({ update: OPEN, delete: OPEN, share: OPEN });

export function meRoutes(services: MeServices): ApiRoute[] {
  const action = actionRoutes(services);
  const urls = new UrlCache();
  return [
    route('GET /users/me', (exchange) => readMe(exchange, services), {
      summary: 'Read one’s own account',
      parameters: ITEM_QUERY,
      data: RECORD,
    }),
    {
      ...route('PATCH /users/me', (exchange) => updateMe(exchange, services, urls), {
        summary: 'Change one’s own account',
        parameters: [...ITEM_QUERY, ...parameterRefs(['idempotencyKey', 'ifMatch'])],
        body: RECORD,
        answers: [ok(inEnvelope(RECORD)), done, failedPrecondition],
      }),
      isConditional: true,
    },
    route('GET /roles/me', (exchange) => readRoles(exchange, services), {
      summary: 'Read one’s own roles',
      parameters: ITEM_QUERY,
      data: list(RECORD),
    }),
    action('GET /policies/me/globals', readGlobals, {
      summary: 'Access flags of the caller’s policies',
      allow: 'identified',
      data: object({ app_access: BOOLEAN, admin_access: BOOLEAN, enforce_tfa: BOOLEAN }),
      graphql: { name: 'policies_me_globals' },
    }),
    action('GET /permissions/me', readPermissions, {
      summary: 'Permissions of the caller, by collection and action',
      allow: 'identified',
      data: { type: 'object', additionalProperties: { type: 'object', additionalProperties: ALLOWED } },
      graphql: { name: 'permissions_me' },
    }),
    route('GET /permissions/me/:collection', (exchange) => readAllowed(exchange, services), {
      summary: 'Permissions of the caller for a collection',
      data: OPEN_ACTIONS,
    }),
    route('GET /permissions/me/:collection/:key', (exchange) => readAllowed(exchange, services), {
      summary: 'Permissions of the caller for an item',
      data: OPEN_ACTIONS,
    }),
  ];
}

/** Fields that callers may not see of their own account are left out. Without any, they get its id only. */
async function readMe(exchange: Exchange, services: MeServices): Promise<Reply> {
  const caller = await services.identities.identify(exchange);
  if (caller.share) return dataReply({ data: { share: caller.share.id } });
  const identity = onlyUser(caller);
  const parsed = tagged(parseOwn('service_users', identity.user, exchange.queryString, services.limits));
  const body = await readVisible(parsed, identity, exchange, services);
  return body ? taggedReply(exchange, body, parsed.bare) : dataReply({ data: { id: identity.user } });
}

async function updateMe(exchange: Exchange, services: MeServices, urls: UrlCache): Promise<Reply> {
  const { user: key } = onlyUser(await services.identities.identify(exchange));
  return writeItems(exchange, services, urls, { collection: 'service_users', key });
}

/** The caller's role and those above it, as far as the caller may see them. */
async function readRoles(exchange: Exchange, services: MeServices): Promise<Reply> {
  const identity = onlyUserOrView(await services.identities.identify(exchange));
  const { roles } = identity;
  if (roles.length === 0) return dataReply({ data: [] });
  const parsed = parseOwn('service_roles', roles, exchange.queryString, services.limits);
  const body = await readVisible(parsed, identity, exchange, services);
  if (body && !body.equals(NO_ITEMS)) return { status: 200, type: JSON_TYPE, body };
  return dataReply({ data: roles.map((id) => ({ id })) });
}

const NO_ITEMS = Buffer.from('{"data":[]}');

async function readVisible(
  parsed: Parsed,
  identity: Identity,
  exchange: Exchange,
  services: MeServices,
): Promise<Buffer | null> {
  const { reads } = services;
  try {
    return await read(
      {
        client: exchange,
        identify: () => identity,
        parse: () => parsed,
        execute: (prepared) => reads.run(prepared, exchange),
      },
      reads,
    );
  } catch (error) {
    if (!(error instanceof ServiceError && error.code === 'FORBIDDEN') || identity.administrator) throw error;
    if (parsed.request.partial) return null;
  }
  return readVisible(partial(parsed), identity, exchange, services);
}

function readGlobals({ caller }: ActionRequest<Identity>): ActionResult {
  const { user, application, administrator, enforceTfa, isView } = caller;
  const data =
    user === null && !isView
      ? { app_access: false }
      : { app_access: application, admin_access: administrator, enforce_tfa: enforceTfa };
  return { data };
}

function readPermissions({ caller }: ActionRequest<Identity>, services: MeServices): ActionResult {
  const identity = onlyUserOrView(caller);
  const { model } = services.mirror;
  const access = services.policies.accessOf(identity);
  const described = describePermissions(model, access);
  return { data: access && identity.application ? { ...describeSchemaTables(model), ...described } : described };
}

/** Whether the caller may update, delete or share an item. For a singleton, the fields and presets of an update are named too. */
async function readAllowed(exchange: Exchange, services: MeServices): Promise<Reply> {
  const [name = '', key = null] = exchange.parameters;
  const identity = onlyUserOrView(await services.identities.identify(exchange));
  const access = services.policies.accessOf(identity);
  const collection = services.mirror.model.collections.get(name);
  if (!collection && !access) throw forbiddenCollection(name);
  const allowed = async (action: WriteAction): Promise<{ readonly access: boolean }> => {
    const { access: extent } = collection ? describeAction(action, collection, services.mirror.model, access) : NOTHING;
    if (!collection || extent === 'none') return { access: false };
    return {
      access: key === null || (await isOpen({ collection, key, exchange, caller: identity }, action, services)),
    };
  };
  const first = collection?.singleton && access && key === null && (await isEmpty(collection, exchange, services));
  const changing = first ? 'create' : 'update';
  const [update, remove, share] = [await allowed(changing), await allowed('delete'), await allowed('share')];
  if (!collection?.singleton || !access || !update.access)
    return dataReply({ data: { update, delete: remove, share } });
  const { fields = [], presets = {} } = describeAction(changing, collection, services.mirror.model, access);
  return dataReply({ data: { update: { ...update, fields, presets }, delete: remove, share } });
}

/** An update of a singleton without an item creates it. */
async function isEmpty({ name }: Collection, exchange: Exchange, { reads, limits }: MeServices): Promise<boolean> {
  const query = parseSearch(name, { query: { aggregate: { count: '*' } } }, '', limits);
  const prepared = { query, compiled: reads.compile(query, CLI_IDENTITY), caller: CLI_IDENTITY };
  return countOf(await reads.run(prepared, exchange)) === 0;
}

const NOTHING: Allowed = { access: 'none' };

interface AskedItem {
  readonly collection: Collection;
  readonly key: string;
  readonly exchange: Exchange;
  readonly caller: Identity;
}

/** Decides as the write itself would: a caller who may change an item need not be able to read it. */
export async function isOpen(
  { collection, key, exchange, caller }: AskedItem,
  action: WriteAction,
  { reads, limits }: Pick<MeServices, 'reads' | 'limits'>,
): Promise<boolean> {
  const parsed = parseCountOfKeys(collection.name, [key], limits);
  try {
    const selectedFor = `any ${action}` as const;
    const compiled = reads.compile(parsed, caller, { selectedFor });
    return countOf(await reads.run({ query: parsed, compiled, caller, selectedFor }, exchange)) === 1;
  } catch (error) {
    // A key that cannot exist.
    if (error instanceof ServiceError && error.code === 'FORBIDDEN') return false;
    throw error;
  }
}

/** A view as the public or a role may read its permissions. */
function onlyUserOrView(identity: Identity): Identity {
  if (identity.user === null && !identity.isView) throw forbidden();
  return identity;
}
