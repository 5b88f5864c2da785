/** The credentials of a connection that stays open. They are checked repeatedly, as if the client sent them with each request. */
import type { RequestCredentials } from '../../server/access/identities.js';
import type { Identity } from '../../server/access/identity.js';

/** The credentials that a connection began with. */
type Presented = Pick<RequestCredentials, 'headers' | 'accessToken' | 'address' | 'cookie'>;

/** A class, because each of ten thousand subscriptions is checked twice a second. */
export class LastingCredentials implements RequestCredentials {
  cookieRefused = false;
  fromAdministrator = false;
  identity: Identity | null = null;

  constructor(private readonly presented: Presented) {}

  get headers(): RequestCredentials['headers'] {
    return this.presented.headers;
  }

  get accessToken(): string {
    return this.presented.accessToken;
  }

  get address(): string {
    return this.presented.address;
  }

  /** Now: credentials that have expired meanwhile are not valid. */
  get begun(): number {
    return performance.now();
  }

  cookie(name: string): string {
    return this.presented.cookie(name);
  }

  viewedAs(): void {}
}
