/** The options of the tools for agents. */
import type { ConfigWith } from '../../server/config/config.js';
import { choice, integer, size } from '../../server/config/option-kinds.js';

export const OPTIONS = {
  MCP: choice(
    'off',
    ['off', 'read', 'write'],
    'Serve agents at /mcp by the Model Context Protocol, with the permissions of their tokens; read: without tools that write',
  ),
  MCP_MAX_ROWS: integer('100', 1, 100_000, 'Rows of an answer to an agent, and items that one call may change'),
  MCP_MAX_BYTES: size('64kb', 'Largest answer to an agent'),
  MCP_MAX_QUERY_COST: integer(
    '1000000',
    1,
    2_147_483_647,
    "Highest cost of a read of an agent as PostgreSQL's planner estimates it",
  ),
};

export type McpConfig = ConfigWith<typeof OPTIONS>;
