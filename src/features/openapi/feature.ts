/** The OpenAPI document of the service. */
import type { Feature } from '../../server/feature/feature.js';

export const openapi: Feature = {
  name: 'openapi',
};
