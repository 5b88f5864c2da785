/** /shares beyond its items: public information, logging in by a share, and invitations. */

import { forbidden, invalidCredentials, invalidPayload, ServiceError } from '../../base/errors.js';
import { CONCEALED } from '../../compiler/plan/write/column-value.js';
import type { ParseLimits } from '../../compiler/request/parse-context.js';
import { parseRead } from '../../compiler/request/rest.js';
import type { User } from '../../server/access/identity.js';
import { beginShare, findShare } from '../../server/accounts/accounts.js';
import { attempted, issueShare, newSession } from '../../server/accounts/authentication.js';
import { verifyPassword } from '../../server/accounts/passwords.js';
import { type AuthServices, sessionKindOf, tokenResult } from '../../server/api/accounts/auth.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../../server/api/action.js';
import { asEmail, clientOf, readBody, readChoice, readOptionalText, readText } from '../../server/api/body-fields.js';
import {
  EMAIL,
  INTEGER,
  list,
  MODE,
  MODES,
  object,
  orNull,
  STRING,
  UUID,
} from '../../server/api/openapi/json-schema.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import type { Database } from '../../server/postgres/pools/database.js';

interface ShareServices extends AuthServices {
  readonly database: Database;
  readonly reads: Reads;
  readonly limits: ParseLimits;
}

/** The most addresses of one request. */
const MAX_EMAILS = 100;

export function sharesRoutes(services: ShareServices): ApiRoute[] {
  const action = actionRoutes(services);
  return [
    action('GET /shares/info/:key', getInfo, {
      summary: 'The public data of a share',
      data: object({ id: UUID, collection: STRING, item: STRING, password: orNull(STRING) }),
    }),
    action('POST /shares/auth', postAuth, {
      summary: 'Log in by a share',
      body: object({ share: UUID, password: STRING, mode: MODE }, ['share']),
      data: object({ access_token: STRING, refresh_token: STRING, expires: INTEGER }, ['expires']),
    }),
    action('POST /shares/invite', postInvite, {
      summary: 'Mail the link of a share',
      allow: 'users',
      body: object({ share: UUID, emails: list(EMAIL) }, ['share', 'emails']),
    }),
  ];
}

async function getInfo({ parameters: [key = ''] }: ActionRequest, { database }: ShareServices): Promise<ActionResult> {
  const share = await findShare(database, key);
  if (!share) throw forbidden();
  const { id, collection, item, max_uses, times_used } = share;
  const password = share.password === null ? null : CONCEALED;
  const [date_start, date_end] = [share.date_start, share.date_end].map((each) => each && new Date(each).toISOString());
  return { data: { id, collection, item, password, max_uses, times_used, date_start, date_end } };
}

/** Unknown, closed, used up and a wrong password look the same and take the same time. */
async function postAuth(request: ActionRequest, services: ShareServices): Promise<ActionResult> {
  const body = readBody(await request.json());
  const key = readText(body, 'share');
  const password = readOptionalText(body, 'password') ?? '';
  const mode = readChoice(body, 'mode', MODES) ?? 'json';
  const kind = sessionKindOf(mode);
  const client = clientOf(request.client);
  const { database, config } = services;
  const isGuess = (error: unknown): boolean => error instanceof ServiceError && error.code === 'INVALID_CREDENTIALS';
  const issued = await attempted({ account: `share ${key}`, client, isGuess }, services, async () => {
    const share = await findShare(database, key);
    const isOpen = share !== null && share.password === null;
    if (!isOpen && !(await verifyPassword(share?.password ?? null, password, client.ip))) throw invalidCredentials();
    const { token, ...session } = newSession(kind, config);
    if (!share || !(await beginShare(database, share, { kind, ...session, client }))) throw invalidCredentials();
    return issueShare(share, { kind, token }, services);
  });
  return tokenResult(request.client, mode, issued, services);
}

/** For users who may read the share. */
async function postInvite(request: ActionRequest<User>, services: ShareServices): Promise<ActionResult> {
  const { client, caller } = request;
  const body = readBody(await request.json());
  const key = readText(body, 'share');
  const emails = body['emails'];
  if (!Array.isArray(emails) || emails.length === 0 || emails.length > MAX_EMAILS)
    throw invalidPayload(`"emails" must be a list of 1 to ${MAX_EMAILS} addresses`);
  const addresses = emails.map((email) => asEmail(readText({ email }, 'email'), 'emails'));
  const { reads, limits, mailer, loginLimit } = services;
  await loginLimit.attempt(client.address);
  const query = parseRead('service_shares', key, 'fields=id', limits);
  const compiled = await reads.prepare(query, caller, client);
  if ((await reads.run({ query, compiled, caller }, client)) === null) throw forbidden();
  await loginLimit.forgive(client.address);
  const link = `${services.publicUrl()}/shared/${key}`;
  const text = `An item has been shared with you:\n\n${link}`;
  for (const to of addresses) void mailer({ to, subject: 'An item has been shared with you', text, link });
  return {};
}
