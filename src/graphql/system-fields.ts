/**
 * Root fields of the system that are no items: logging in, one's own account, the schema, the server. Each calls the action of
 * one REST route, so that both do the same; a field whose route does not exist is left out.
 */
import {
  GraphQLBoolean,
  GraphQLEnumType,
  type GraphQLFieldConfigArgumentMap,
  GraphQLInputObjectType,
  type GraphQLInputType,
  GraphQLList,
  type GraphQLNamedType,
  GraphQLNonNull,
  GraphQLObjectType,
  type GraphQLOutputType,
  GraphQLString,
  getNamedType,
  isObjectType,
} from 'graphql';
import type { Model } from '../mirror/model.js';
import { renamedFields } from './renamed-types.js';
import { BIG_INT_SCALAR, ID_SCALAR, INT_SCALAR, JSON_SCALAR } from './scalars.js';

export interface SystemField {
  readonly operation: 'query' | 'mutation';
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** Named segments are arguments. */
  readonly path: string;
  readonly type: GraphQLOutputType;
  readonly args: GraphQLFieldConfigArgumentMap;
  /** What is sent as the body: the argument `data`, or all arguments that the path does not name; or these in the URL. */
  readonly body: 'none' | 'data' | 'rest' | 'query';
  /** May stand in an operation once: many attempts in one request would go past the limits. */
  readonly once?: true;
}

const text = (name: string): GraphQLFieldConfigArgumentMap => ({ [name]: { type: new GraphQLNonNull(GraphQLString) } });
const optional = (name: string, type: GraphQLInputType = GraphQLString): GraphQLFieldConfigArgumentMap => ({
  [name]: { type },
});
const required = (name: string, type: GraphQLInputType): GraphQLFieldConfigArgumentMap => ({
  [name]: { type: new GraphQLNonNull(type) },
});

const AUTH_MODE = new GraphQLEnumType({ name: 'auth_mode', values: { json: {}, cookie: {}, session: {} } });
const AUTH_TOKENS = new GraphQLObjectType({
  name: 'auth_tokens',
  fields: {
    access_token: { type: GraphQLString },
    expires: { type: BIG_INT_SCALAR },
    refresh_token: { type: GraphQLString },
  },
});
const SECOND_FACTOR = new GraphQLObjectType({
  name: 'users_me_tfa_generate_data',
  fields: { secret: { type: GraphQLString }, otpauth_url: { type: GraphQLString } },
});

function record(name: string, fields: Readonly<Record<string, GraphQLOutputType>>): GraphQLObjectType {
  return new GraphQLObjectType({
    name,
    fields: Object.fromEntries(Object.entries(fields).map(([key, type]) => [key, { type }])),
  });
}

const texts = (...names: readonly string[]): Record<string, GraphQLOutputType> =>
  Object.fromEntries(names.map((name) => [name, GraphQLString]));
const flags = (...names: readonly string[]): Record<string, GraphQLOutputType> =>
  Object.fromEntries(names.map((name) => [name, GraphQLBoolean]));
const values = (...names: readonly string[]): Record<string, GraphQLOutputType> =>
  Object.fromEntries(names.map((name) => [name, JSON_SCALAR]));

const COLLECTION = record('service_collections', {
  collection: GraphQLString,
  meta: record('service_collections_meta', {
    ...texts('collection', 'icon', 'note', 'display_template', 'color', 'archive_field', 'archive_value'),
    ...texts('unarchive_value', 'sort_field', 'search_field', 'accountability', 'group', 'collapse'),
    ...texts('preview_url', 'primary_key'),
    ...flags('hidden', 'singleton', 'archive_app_filter', 'versioning'),
    ...values('translations', 'item_duplication_fields', 'sort'),
  }),
  schema: record('service_collections_schema', texts('schema', 'name', 'kind', 'comment')),
});

const FIELD = record('service_fields', {
  ...texts('collection', 'field', 'type'),
  meta: record('service_fields_meta', {
    ...texts('collection', 'field', 'special', 'interface', 'display', 'width', 'group', 'note', 'validation_message'),
    ...flags('readonly', 'required', 'hidden', 'searchable'),
    ...values('id', 'options', 'display_options', 'sort', 'translations', 'conditions', 'validation'),
  }),
  schema: record('service_fields_schema', {
    ...texts(
      'name',
      'table',
      'data_type',
      'generation_expression',
      'foreign_key_column',
      'foreign_key_table',
      'comment',
    ),
    ...flags('is_generated', 'is_nullable', 'is_unique', 'is_indexed', 'is_primary_key', 'has_auto_increment'),
    ...values('default_value', 'max_length', 'numeric_precision', 'numeric_scale'),
  }),
});

const RELATION = record('service_relations', {
  ...texts('collection', 'field', 'related_collection'),
  meta: record('service_relations_meta', {
    ...texts('many_collection', 'many_field', 'one_collection', 'one_field', 'one_collection_field'),
    ...texts('junction_field', 'sort_field', 'one_deselect_action'),
    ...values('id', 'one_allowed_collections'),
  }),
  schema: record('service_relations_schema', {
    ...texts('table', 'column', 'foreign_key_table', 'foreign_key_column', 'foreign_key_schema', 'constraint_name'),
    ...texts('on_update', 'on_delete'),
  }),
});

const RATE_LIMIT = record('server_info_rate_limit', { points: INT_SCALAR, duration: INT_SCALAR });

const SERVER_INFO = record('server_info', {
  project: record('server_info_project', {
    ...texts('project_name', 'project_descriptor', 'project_color', 'default_language', 'public_note'),
    ...flags('public_registration', 'public_registration_verify_email'),
  }),
  version: GraphQLString,
  rateLimit: RATE_LIMIT,
  rateLimitGlobal: RATE_LIMIT,
  queryLimit: record('server_info_query_limit', { default: INT_SCALAR, max: INT_SCALAR }),
});

function input(
  name: string,
  needed: readonly string[],
  more: Record<string, GraphQLInputType>,
): GraphQLInputObjectType {
  const entries = needed.map((key) => [key, { type: new GraphQLNonNull(GraphQLString) }]);
  const others = Object.entries({ ...more, meta: JSON_SCALAR, schema: JSON_SCALAR }).map(([key, type]) => [
    key,
    { type },
  ]);
  return new GraphQLInputObjectType({ name, fields: Object.fromEntries([...entries, ...others]) });
}

const FIELD_INPUT = input('create_service_fields_input', ['field', 'type'], {});
const FIELD_CHANGE = input('update_service_fields_input', [], { field: GraphQLString, type: GraphQLString });
const COLLECTION_INPUT = input('create_service_collections_input', ['collection'], {
  fields: new GraphQLList(new GraphQLNonNull(FIELD_INPUT)),
});
const COLLECTION_CHANGE = input('update_service_collections_input', [], {});
const RELATION_INPUT = input('create_service_relations_input', ['collection', 'field'], {
  related_collection: GraphQLString,
});
const RELATION_CHANGE = input('update_service_relations_input', [], { related_collection: GraphQLString });

const DELETED_COLLECTION = record('delete_collection', texts('collection'));
const DELETED_FIELD = record('delete_field', texts('collection', 'field'));
const DELETED_RELATION = record('delete_relation', texts('collection', 'field'));

type Method = SystemField['method'];

function ask(path: string, type: GraphQLOutputType, args: GraphQLFieldConfigArgumentMap = {}): SystemField {
  return { operation: 'query', method: 'GET', path, type, args, body: 'none' };
}

function act(
  method: Method,
  path: string,
  type: GraphQLOutputType,
  args: GraphQLFieldConfigArgumentMap,
  body: SystemField['body'],
): SystemField {
  return { operation: 'mutation', method, path, type, args, body };
}

const once = (field: SystemField): SystemField => ({ ...field, once: true });
const many = (type: GraphQLOutputType): GraphQLOutputType => new GraphQLList(new GraphQLNonNull(type));
const COLLECTION_AND_FIELD = { ...text('collection'), ...text('field') };

export const SYSTEM_FIELDS: Readonly<Record<string, SystemField>> = {
  server_ping: ask('/server/ping', GraphQLString),
  server_info: ask('/server/info', SERVER_INFO),
  server_health: ask('/server/health', JSON_SCALAR),
  server_shapes: ask('/server/shapes', JSON_SCALAR),
  server_shapes_by_id: ask('/server/shapes/:id', JSON_SCALAR, text('id')),
  server_specs_oas: ask('/server/specs/oas', JSON_SCALAR),
  server_specs_graphql: ask('/server/specs/graphql/:scope', GraphQLString, text('scope')),
  collections: ask('/collections', many(COLLECTION)),
  collections_by_name: ask('/collections/:name', COLLECTION, text('name')),
  fields: ask('/fields', many(FIELD)),
  fields_in_collection: ask('/fields/:collection', many(FIELD), text('collection')),
  fields_by_name: ask('/fields/:collection/:field', FIELD, COLLECTION_AND_FIELD),
  relations: ask('/relations', many(RELATION)),
  relations_in_collection: ask('/relations/:collection', many(RELATION), text('collection')),
  relations_by_name: ask('/relations/:collection/:field', RELATION, COLLECTION_AND_FIELD),
  permissions_me: ask('/permissions/me', JSON_SCALAR),
  policies_me_globals: ask('/policies/me/globals', JSON_SCALAR),
  auth_login: once(
    act(
      'POST',
      '/auth/login',
      AUTH_TOKENS,
      { ...text('email'), ...text('password'), ...optional('mode', AUTH_MODE), ...optional('otp') },
      'rest',
    ),
  ),
  auth_refresh: once(
    act('POST', '/auth/refresh', AUTH_TOKENS, { ...optional('refresh_token'), ...optional('mode', AUTH_MODE) }, 'rest'),
  ),
  auth_logout: act(
    'POST',
    '/auth/logout',
    GraphQLBoolean,
    { ...optional('refresh_token'), ...optional('mode', AUTH_MODE) },
    'rest',
  ),
  auth_password_request: once(
    act('POST', '/auth/password/request', GraphQLBoolean, { ...text('email'), ...optional('reset_url') }, 'rest'),
  ),
  auth_password_reset: once(
    act('POST', '/auth/password/reset', GraphQLBoolean, { ...text('token'), ...text('password') }, 'rest'),
  ),
  users_me_tfa_generate: once(act('POST', '/users/me/tfa/generate', SECOND_FACTOR, text('password'), 'rest')),
  users_me_tfa_enable: once(
    act('POST', '/users/me/tfa/enable', GraphQLBoolean, { ...text('otp'), ...text('secret') }, 'rest'),
  ),
  users_me_tfa_disable: once(act('POST', '/users/me/tfa/disable', GraphQLBoolean, text('otp'), 'rest')),
  users_invite: act(
    'POST',
    '/users/invite',
    GraphQLBoolean,
    { ...required('email', new GraphQLList(GraphQLString)), ...text('role'), ...optional('invite_url') },
    'rest',
  ),
  users_invite_accept: once(
    act('POST', '/users/invite/accept', GraphQLBoolean, { ...text('token'), ...text('password') }, 'rest'),
  ),
  users_register: once(
    act(
      'POST',
      '/users/register',
      GraphQLBoolean,
      {
        ...text('email'),
        ...text('password'),
        ...optional('first_name'),
        ...optional('last_name'),
        ...optional('verification_url'),
      },
      'rest',
    ),
  ),
  users_register_verify: once(act('GET', '/users/register/verify-email', GraphQLBoolean, text('token'), 'query')),
  utils_random_string: act('GET', '/utils/random/string', GraphQLString, optional('length', INT_SCALAR), 'query'),
  utils_cache_clear: act('POST', '/utils/cache/clear', GraphQLBoolean, {}, 'none'),
  utils_sort: act(
    'POST',
    '/utils/sort/:collection',
    GraphQLBoolean,
    { ...text('collection'), ...required('item', ID_SCALAR), ...required('to', ID_SCALAR) },
    'rest',
  ),
  import_file: act('POST', '/files/import', JSON_SCALAR, { ...text('url'), ...optional('data', JSON_SCALAR) }, 'rest'),
  create_collections_item: act('POST', '/collections', COLLECTION, required('data', COLLECTION_INPUT), 'data'),
  update_collections_item: act(
    'PATCH',
    '/collections/:collection',
    COLLECTION,
    { ...text('collection'), ...required('data', COLLECTION_CHANGE) },
    'data',
  ),
  delete_collections_item: act('DELETE', '/collections/:collection', DELETED_COLLECTION, text('collection'), 'none'),
  create_fields_item: act(
    'POST',
    '/fields/:collection',
    FIELD,
    { ...text('collection'), ...required('data', FIELD_INPUT) },
    'data',
  ),
  update_fields_item: act(
    'PATCH',
    '/fields/:collection/:field',
    FIELD,
    { ...COLLECTION_AND_FIELD, ...required('data', FIELD_CHANGE) },
    'data',
  ),
  update_fields_items: act(
    'PATCH',
    '/fields/:collection',
    many(FIELD),
    { ...text('collection'), ...required('data', new GraphQLList(new GraphQLNonNull(FIELD_CHANGE))) },
    'data',
  ),
  delete_fields_item: act('DELETE', '/fields/:collection/:field', DELETED_FIELD, COLLECTION_AND_FIELD, 'none'),
  create_relations_item: act('POST', '/relations', RELATION, required('data', RELATION_INPUT), 'data'),
  update_relations_item: act(
    'PATCH',
    '/relations/:collection/:field',
    RELATION,
    { ...COLLECTION_AND_FIELD, ...required('data', RELATION_CHANGE) },
    'data',
  ),
  delete_relations_item: act('DELETE', '/relations/:collection/:field', DELETED_RELATION, COLLECTION_AND_FIELD, 'none'),
};

let family: Readonly<Record<string, SystemField>> | null = null;

/** With the names that collections have in the model. */
export function systemFieldsOf({ synonyms }: Pick<Model, 'synonyms'>): Readonly<Record<string, SystemField>> {
  if (!synonyms) return SYSTEM_FIELDS;
  family ??= renamedFields(SYSTEM_FIELDS);
  return family;
}

/** Types that documents may name. */
export function systemFieldTypes(fields: Readonly<Record<string, SystemField>> = SYSTEM_FIELDS): GraphQLNamedType[] {
  const types = new Set<GraphQLNamedType>();
  const add = (type: GraphQLNamedType): void => {
    if (types.has(type)) return;
    types.add(type);
    if (isObjectType(type)) for (const field of Object.values(type.getFields())) add(getNamedType(field.type));
  };
  for (const { type, args } of Object.values(fields)) {
    add(getNamedType(type));
    for (const argument of Object.values(args)) add(getNamedType(argument.type));
  }
  return [...types];
}

/** A route, whatever its named segments are called. */
export function routeKey(method: string, path: string): string {
  return `${method} ${path.replace(/:\w+/g, ':')}`;
}

/** The fields whose routes there are. */
export function availableSystemFields(
  routes: readonly { readonly method: string; readonly path: string }[],
): Set<string> {
  const known = new Set(routes.map(({ method, path }) => routeKey(method, path)));
  const fields = Object.entries(SYSTEM_FIELDS).filter(([, { method, path }]) => known.has(routeKey(method, path)));
  return new Set(fields.map(([name]) => name));
}
