/** The OpenAPI document of the service. */
import type { Feature } from '../../server/feature/feature.js';

export const openapi: Feature = {
  name: 'openapi',
  open: async ({ core, identities, routes, access }) => {
    const { openApiRoutes } = await import('./oas-routes.js');
    return { routes: openApiRoutes({ ...core, identities, routes, publicUrl: access.publicUrl }) };
  },
};
