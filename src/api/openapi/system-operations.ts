/** Operations that are no items: what each takes and answers. The document has an operation for every route, so every route is here. */
import { EXPORT_FORMATS } from '../../request/ast.js';
import { ASSET_PARAMETERS } from './asset-parameters.js';
import {
  type Answer,
  BOOLEAN,
  data,
  done,
  EMAIL,
  either,
  empty,
  FORM,
  file,
  INTEGER,
  json,
  KEY,
  list,
  object,
  ok,
  oneOf,
  orNull,
  RECORD,
  ref,
  type Schema,
  STRING,
  UUID,
} from './json-schema.js';
import { ITEM_PARAMETERS, parameterRefs, queryParameter } from './parameters.js';

export interface SystemOperation {
  readonly summary: string;
  /** Query parameters. */
  readonly parameters?: readonly Schema[];
  /** Media types with their schemas. */
  readonly body?: Schema;
  /** Whether the body may be left out. */
  readonly optional?: true;
  readonly answers: readonly Answer[];
}

const MODE = oneOf('json', 'cookie', 'session');
const CREDENTIALS = object({ email: EMAIL, password: STRING, mode: MODE, otp: STRING }, ['email', 'password']);
const RENEWAL = object({ refresh_token: STRING, mode: MODE });
const PASSWORD = object({ token: STRING, password: STRING }, ['token', 'password']);
const TEXT = file(['text/plain']);
const USER_QUERY = parameterRefs(ITEM_PARAMETERS);
const FORCE = queryParameter('force', BOOLEAN, 'Whether a snapshot of another version is accepted.');
const SINGLE_USE = 'The token of a link works once.';

const ALLOWED = object({ access: oneOf('none', 'partial', 'full'), fields: list(STRING), presets: RECORD }, ['access']);
const OPEN = object({ access: BOOLEAN, fields: list(STRING), presets: RECORD }, ['access']);
const UNINDEXED = object({ schema: STRING, table: STRING, columns: list(STRING), statement: STRING });
const LIMIT = either({ const: false }, object({ points: INTEGER, duration: INTEGER }));

const INFO = object({
  project: object({
    project_name: STRING,
    project_descriptor: orNull(STRING),
    project_color: STRING,
    default_language: STRING,
    public_note: orNull(STRING),
    public_registration: BOOLEAN,
    public_registration_verify_email: BOOLEAN,
  }),
  version: STRING,
  rateLimit: LIMIT,
  rateLimitGlobal: LIMIT,
  queryLimit: object({ default: INTEGER, max: INTEGER }),
});

const HEALTH = object(
  {
    status: oneOf('ok', 'degraded', 'warn', 'error'),
    releaseId: STRING,
    serviceId: STRING,
    checks: { type: 'object', additionalProperties: list(RECORD) },
  },
  ['status'],
);

const SHAPE = {
  id: STRING,
  digest: STRING,
  text: STRING,
  plan: oneOf('generic', 'custom', 'fenced'),
  calls: INTEGER,
  statements: INTEGER,
  failed: INTEGER,
  total: { type: 'number' },
  mean: { type: 'number' },
  p99: { type: 'number' },
  max: { type: 'number' },
  rows: orNull({ type: 'number' }),
};

const GRAPHQL = object({ query: STRING, variables: RECORD, operationName: STRING, extensions: RECORD });
const GRAPHQL_ANSWER = ok(object({ data: orNull(RECORD), errors: list(RECORD), extensions: RECORD }));
const GRAPHQL_GET: SystemOperation = {
  summary: 'Run a GraphQL query',
  parameters: ['query', 'operationName', 'variables', 'extensions'].map((name) =>
    queryParameter(name, STRING, name === 'variables' || name === 'extensions' ? 'As JSON.' : 'A GraphQL response.'),
  ),
  answers: [GRAPHQL_ANSWER],
};
const GRAPHQL_POST: SystemOperation = {
  summary: 'Run a GraphQL operation',
  body: json(GRAPHQL),
  answers: [GRAPHQL_ANSWER],
};

const documents = (schema: Schema): Schema => ({
  ...json(schema),
  'application/yaml': { schema },
  'multipart/form-data': FORM,
});

const Collection = ref('Collection');
const Field = ref('Field');
const Relation = ref('Relation');

const ASSET: SystemOperation = {
  summary: 'Read the content of a file',
  parameters: ASSET_PARAMETERS,
  answers: [
    file(['application/octet-stream']),
    { status: 206, description: 'A part of it, as the header `Range` says.' },
  ],
};

export const SERVICES: Readonly<Record<string, SystemOperation>> = {
  'GET /server/ping': { summary: 'Whether the service is running', answers: [TEXT] },
  'GET /server/ready': { summary: 'Whether the service is ready for requests', answers: [TEXT] },
  'GET /server/health': {
    summary: 'Health of the service',
    answers: [file(['application/health+json'], HEALTH)],
  },
  'GET /server/info': { summary: 'Information about the service', answers: [ok(data(INFO))] },
  'GET /server/metrics': { summary: 'Metrics for Prometheus', answers: [TEXT] },
  'GET /server/shapes': {
    summary: 'The statements with the largest total time in the last five minutes',
    parameters: [queryParameter('limit', INTEGER, 'Maximum number, at most 1,000; 20 by default.')],
    answers: [ok(data(list(object(SHAPE))))],
  },
  'GET /server/shapes/:id': {
    summary: 'One of these statements, with its plan',
    answers: [ok(data(object({ ...SHAPE, explain: list(RECORD) })))],
  },
  'GET /server/specs/oas': { summary: 'This document', answers: [ok(RECORD)] },
  'GET /server/specs/graphql': { summary: 'The GraphQL schema of the items', answers: [TEXT] },
  'GET /server/specs/graphql/:scope': { summary: 'A GraphQL schema: items or system', answers: [TEXT] },

  'GET /auth': {
    summary: 'Login methods other than the password',
    answers: [ok(object({ data: list(RECORD), disableDefault: BOOLEAN }))],
  },
  'POST /auth/login': { summary: 'Log in', body: json(CREDENTIALS), answers: [ok(data(ref('Tokens')))] },
  'POST /auth/login/default': { summary: 'Log in', body: json(CREDENTIALS), answers: [ok(data(ref('Tokens')))] },
  'POST /auth/refresh': {
    summary: 'Renew a login',
    body: json(RENEWAL),
    optional: true,
    answers: [ok(data(ref('Tokens')))],
  },
  'POST /auth/logout': { summary: 'Log out', body: json(RENEWAL), optional: true, answers: [done] },
  'POST /auth/password/request': {
    summary: 'Request an email with a link to set a new password',
    body: json(object({ email: EMAIL, reset_url: STRING }, ['email'])),
    answers: [done],
  },
  'POST /auth/password/reset': { summary: `Set a new password. ${SINGLE_USE}`, body: json(PASSWORD), answers: [done] },

  'GET /users/me': { summary: 'Read one’s own account', parameters: USER_QUERY, answers: [ok(data(RECORD))] },
  'PATCH /users/me': {
    summary: 'Change one’s own account',
    parameters: USER_QUERY,
    body: json(RECORD),
    answers: [ok(data(RECORD)), done],
  },
  'POST /users/me/tfa/generate': {
    summary: 'Generate the secret of a second factor',
    body: json(object({ password: STRING }, ['password'])),
    answers: [ok(data(object({ secret: STRING, otpauth_url: STRING })))],
  },
  'POST /users/me/tfa/enable': {
    summary: 'Enable the second factor',
    body: json(object({ secret: STRING, otp: STRING }, ['secret', 'otp'])),
    answers: [done],
  },
  'POST /users/me/tfa/disable': {
    summary: 'Disable the second factor',
    body: json(object({ otp: STRING }, ['otp'])),
    answers: [done],
  },
  'POST /users/:key/tfa/disable': { summary: 'Disable the second factor of a user', answers: [done] },
  'POST /users/invite': {
    summary: 'Invite users by email',
    body: json(object({ email: either(EMAIL, list(EMAIL)), role: UUID, invite_url: STRING }, ['email', 'role'])),
    answers: [done],
  },
  'POST /users/invite/accept': {
    summary: `Accept an invitation. ${SINGLE_USE}`,
    body: json(PASSWORD),
    answers: [done],
  },
  'POST /users/register': {
    summary: 'Register an account',
    body: json(
      object({ email: EMAIL, password: STRING, first_name: STRING, last_name: STRING, verification_url: STRING }, [
        'email',
        'password',
      ]),
    ),
    answers: [done],
  },
  'GET /users/register/verify-email': {
    summary: 'Verify the email address of a new account',
    parameters: [{ ...queryParameter('token', STRING, 'From the link in the email.'), required: true }],
    answers: [{ status: 302, description: 'Redirects to the page of the project.' }],
  },
  'GET /users/register/verified': { summary: 'Confirmation page after verification', answers: [TEXT] },

  'GET /roles/me': { summary: 'Read one’s own roles', parameters: USER_QUERY, answers: [ok(data(list(RECORD)))] },
  'GET /policies/me/globals': {
    summary: 'Access flags of the caller’s policies',
    answers: [ok(data(object({ app_access: BOOLEAN, admin_access: BOOLEAN, enforce_tfa: BOOLEAN })))],
  },
  'GET /permissions/me': {
    summary: 'Permissions of the caller, by collection and action',
    answers: [ok(data({ type: 'object', additionalProperties: { type: 'object', additionalProperties: ALLOWED } }))],
  },
  'GET /permissions/me/:collection': {
    summary: 'Permissions of the caller for a collection',
    answers: [ok(data(object({ update: OPEN, delete: OPEN, share: OPEN })))],
  },
  'GET /permissions/me/:collection/:key': {
    summary: 'Permissions of the caller for an item',
    answers: [ok(data(object({ update: OPEN, delete: OPEN, share: OPEN })))],
  },

  'GET /collections': { summary: 'Read collections', answers: [ok(data(list(Collection)))] },
  'POST /collections': {
    summary: 'Create collections',
    body: json(either(Collection, list(Collection))),
    answers: [ok(data(either(Collection, list(Collection))))],
  },
  'PATCH /collections': {
    summary: 'Update collections',
    body: json(list(Collection)),
    answers: [ok(data(list(Collection)))],
  },
  'GET /collections/:collection': { summary: 'Read a collection', answers: [ok(data(Collection))] },
  'PATCH /collections/:collection': {
    summary: 'Update a collection',
    body: json(Collection),
    answers: [ok(data(Collection))],
  },
  'DELETE /collections/:collection': { summary: 'Delete a collection with its items', answers: [done] },
  'GET /fields': { summary: 'Read fields', answers: [ok(data(list(Field)))] },
  'GET /fields/:collection': { summary: 'Read the fields of a collection', answers: [ok(data(list(Field)))] },
  'POST /fields/:collection': { summary: 'Create a field', body: json(Field), answers: [ok(data(Field))] },
  'PATCH /fields/:collection': {
    summary: 'Update fields',
    body: json(list(Field)),
    answers: [ok(data(list(Field)))],
  },
  'GET /fields/:collection/:field': { summary: 'Read a field', answers: [ok(data(Field))] },
  'PATCH /fields/:collection/:field': { summary: 'Update a field', body: json(Field), answers: [ok(data(Field))] },
  'DELETE /fields/:collection/:field': { summary: 'Delete a field with its values', answers: [done] },
  'GET /relations': { summary: 'Read relations', answers: [ok(data(list(Relation)))] },
  'POST /relations': { summary: 'Create a relation', body: json(Relation), answers: [ok(data(Relation))] },
  'GET /relations/:collection': {
    summary: 'Read the relations of a collection',
    answers: [ok(data(list(Relation)))],
  },
  'GET /relations/:collection/:field': { summary: 'Read a relation', answers: [ok(data(Relation))] },
  'PATCH /relations/:collection/:field': {
    summary: 'Update a relation',
    body: json(Relation),
    answers: [ok(data(Relation))],
  },
  'DELETE /relations/:collection/:field': { summary: 'Delete a relation; the field stays', answers: [done] },

  'GET /schema/snapshot': {
    summary: 'Snapshot of the schema',
    parameters: [
      queryParameter('export', oneOf('json', 'yaml'), 'As a file, without an envelope.'),
      queryParameter('includeCollections', STRING, 'Collections to include, separated by commas.'),
      queryParameter('excludeCollections', STRING, 'Collections to exclude, separated by commas.'),
    ],
    answers: [
      {
        ...ok({}),
        content: { ...json(either(data(ref('Snapshot')), ref('Snapshot'))), 'text/yaml': { schema: STRING } },
      },
    ],
  },
  'POST /schema/diff': {
    summary: 'Compare the schema with a snapshot',
    parameters: [queryParameter('mode', oneOf('mirror', 'merge'), 'merge: nothing is deleted.'), FORCE],
    body: documents(ref('Snapshot')),
    answers: [ok(data(ref('Difference'))), done],
  },
  'POST /schema/apply': {
    summary: 'Apply a snapshot or diff to the schema',
    parameters: [FORCE],
    body: documents(ref('Difference')),
    answers: [done],
  },
  'GET /schema/suggestions': {
    summary: 'Relations that foreign keys imply and that do not exist yet, and foreign keys without an index',
    answers: [ok(data(object({ relations: list(ref('Suggestion')), indexes: list(UNINDEXED) })))],
  },
  'POST /schema/suggestions': {
    summary: 'Add suggested relations; all if none are named',
    body: json(object({ relations: list(object({ collection: STRING, field: STRING }, ['collection', 'field'])) })),
    optional: true,
    answers: [ok(data(object({ relations: list(ref('Suggestion')) })))],
  },

  'GET /shares/info/:key': {
    summary: 'What anybody may know of a share',
    answers: [ok(data(object({ id: UUID, collection: STRING, item: STRING, password: orNull(STRING) })))],
  },
  'POST /shares/auth': {
    summary: 'Log in by a share',
    body: json(object({ share: UUID, password: STRING, mode: MODE }, ['share'])),
    answers: [ok(data(object({ access_token: STRING, refresh_token: STRING, expires: INTEGER }, ['expires'])))],
  },
  'POST /shares/invite': {
    summary: 'Mail the link of a share',
    body: json(object({ share: UUID, emails: list(EMAIL) }, ['share', 'emails'])),
    answers: [done],
  },
  'GET /versions/:key/compare': {
    summary: 'Compare a content version with its item',
    answers: [ok(data(object({ outdated: BOOLEAN, mainHash: STRING, current: RECORD, main: RECORD })))],
  },
  'POST /versions/:key/save': {
    summary: 'Save changes of an item to a content version',
    body: json(RECORD),
    answers: [ok(data(RECORD))],
  },
  'POST /versions/:key/promote': {
    summary: 'Update the item with the changes of a content version',
    body: json(object({ mainHash: STRING, fields: list(STRING) }, ['mainHash'])),
    answers: [ok(data(STRING))],
  },

  'POST /utils/sort/:collection': {
    summary: 'Move an item to the place of another',
    body: json(object({ item: KEY, to: KEY }, ['item', 'to'])),
    answers: [empty],
  },
  'POST /files/import': {
    summary: 'Import a file from a URL',
    body: json(object({ url: STRING, data: RECORD }, ['url'])),
    answers: [ok(data(RECORD)), done],
  },
  'GET /assets/:id': ASSET,
  'GET /assets/:id/:filename': ASSET,
  'POST /utils/import/:collection': {
    summary: 'Import a file',
    body: {
      ...json(list(RECORD)),
      'application/x-ndjson': { schema: STRING },
      'text/csv': { schema: STRING },
      'multipart/form-data': FORM,
    },
    answers: [ok(data(object({ imported: INTEGER })))],
  },
  'POST /utils/export/:collection': {
    summary: 'Export items to a file: the response, or one that is stored where the body has a `file`',
    body: json(object({ format: oneOf(...EXPORT_FORMATS), query: ref('Query'), file: RECORD }, ['format'])),
    answers: [
      {
        ...ok({}),
        content: {
          ...json(list(RECORD)),
          ...file(['text/csv', 'text/xml', 'text/yaml', 'application/x-ndjson', 'application/geo+json']).content,
        },
      },
      done,
    ],
  },
  'GET /utils/random/string': {
    summary: 'A random string',
    parameters: [queryParameter('length', { ...INTEGER, minimum: 1, maximum: 500, default: 32 }, 'Its characters.')],
    answers: [ok(data(STRING))],
  },
  'POST /utils/cache/clear': { summary: 'Reload users, policies and the schema', answers: [empty] },

  'GET /graphql': GRAPHQL_GET,
  'GET /graphql/system': GRAPHQL_GET,
  'POST /graphql': GRAPHQL_POST,
  'POST /graphql/system': GRAPHQL_POST,
};
