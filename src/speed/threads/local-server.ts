/** The server of the main thread, for the program that it runs in. */

import type { App } from '../../app/app.js';
import type { Core } from '../../app/core.js';
import type { RequestSource } from '../../server/http/app.js';

export interface LocalServer {
  readonly app: App;
  readonly core: Core;
  fetch(request: Request, source: RequestSource): Promise<Response>;
}
