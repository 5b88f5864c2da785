/** An OpenID Connect provider that states whatever a test wants, without a page of its own. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import t from 'tap';

type Claims = Readonly<Record<string, unknown>>;
type Keys = Awaited<ReturnType<typeof generateKeyPair>>;

export interface StubProvider {
  readonly url: string;
  readonly keys: Keys;
  /** The claims of the next id token, and the answer of the userinfo endpoint. */
  idToken: Claims;
  userInfo: Claims;
  /** The key that signs the next id token. */
  signedWith: Keys;
  /** Whether the endpoint that publishes the keys fails. */
  keysAreDown: boolean;
}

/** `clientId` is the audience of its tokens. All of these providers call their key "one". */
export async function startStubProvider(clientId: string): Promise<StubProvider> {
  const keys = await generateKeyPair('RS256', { extractable: true });
  const published = { ...(await exportJWK(keys.publicKey)), kid: 'one', alg: 'RS256', use: 'sig' };
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.closeAllConnections());
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const provider: StubProvider = { url, keys, idToken: {}, userInfo: {}, signedWith: keys, keysAreDown: false };
  let nonce = '';

  const documents: Record<string, () => Promise<unknown>> = {
    '/.well-known/openid-configuration': async () => ({
      issuer: url,
      authorization_endpoint: `${url}/authorize`,
      token_endpoint: `${url}/token`,
      userinfo_endpoint: `${url}/userinfo`,
      jwks_uri: `${url}/keys`,
      response_types_supported: ['code'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['RS256'],
    }),
    '/keys': async () => ({ keys: [published] }),
    '/userinfo': async () => provider.userInfo,
    '/token': async () => ({
      access_token: 'an-access-token',
      token_type: 'Bearer',
      id_token: await new SignJWT({ nonce, ...provider.idToken })
        .setProtectedHeader({ alg: 'RS256', kid: 'one' })
        .setIssuer(url)
        .setAudience(clientId)
        .setIssuedAt()
        .setExpirationTime('5m')
        .sign(provider.signedWith.privateKey),
    }),
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '/', url);
    if (pathname === '/authorize') {
      nonce = searchParams.get('nonce') ?? '';
      const back = new URL(searchParams.get('redirect_uri') ?? url);
      back.search = String(new URLSearchParams({ code: 'a-code', state: searchParams.get('state') ?? '' }));
      response.writeHead(302, { location: back.href }).end();
      return;
    }
    const isDown = pathname === '/keys' && provider.keysAreDown;
    const document = isDown ? undefined : documents[pathname];
    if (document) response.setHeader('content-type', 'application/json');
    response.writeHead(document ? 200 : 500).end(document && JSON.stringify(await document()));
  }
  return provider;
}
