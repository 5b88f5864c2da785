/** Tools for agents, by the Model Context Protocol. */
import type { Feature } from '../../server/feature/feature.js';
import { OPTIONS } from './options.js';

export const mcp: Feature<unknown, typeof OPTIONS> = {
  name: 'mcp',
  options: OPTIONS,
  topic: 'Agents',
  open: async ({ config, core, identities, items, access }) => {
    if (config.MCP === 'off') return null;
    const { mcpRoutes } = await import('./mcp.js');
    return { routes: mcpRoutes({ ...core, ...items, config, identities, publicUrl: access.publicUrl }) };
  },
};
