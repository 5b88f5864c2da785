/** The server of the main thread, for the program that it runs in. */
import type { RequestSource } from '../../http/app.js';
import type { App } from '../app.js';
import type { Core } from '../core.js';

export interface LocalServer {
  readonly app: App;
  readonly core: Core;
  fetch(request: Request, source: RequestSource): Promise<Response>;
}
