/** Tools for agents, by the Model Context Protocol. */
import type { Feature } from '../../server/feature/feature.js';

export const mcp: Feature = {
  name: 'mcp',
};
