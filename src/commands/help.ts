/** `lateral --help`: the commands and the options by topic, the most used options first. */
import { packageVersion } from '../base/package-files.js';
import { optionTopics } from '../config/option-topics.js';

const COMMANDS = `Lateral ${packageVersion}: a REST and GraphQL API over PostgreSQL. One request, one statement.

Usage: lateral [COMMAND] [--option value ...]
       lateral COMMAND --help
       lateral --help | --version

Serve
  start       serves the API; this is the default command
  doctor      checks the database and says how to fix problems
  webhooks    lists, tests and pauses webhooks, and sends deliveries again
  live        makes or drops the triggers for live queries without the log of PostgreSQL
  files       finds stored files without a row, and rows without a stored file

Data and schema
  import      writes the rows of a JSON, NDJSON or CSV file to a collection
  schema      exports the schema to a file, compares it with a file, or applies a file
  relations   finds the relations that foreign keys imply
  types       prints the collections as a TypeScript schema for @directus/sdk
  adopt       takes over an installation of Directus in the same database

Plans and indexes
  explain     prints the SQL of a read, its parameters and PostgreSQL's plan
  statistics  writes what the planner knows about a database to a file, without rows
  plans       plans recorded requests on an empty twin of a database, and fails if a plan got worse
  advise      proposes indexes for recorded requests, each tried on the twin

Traffic
  record      records the traffic of a running service
  replay      sends recorded traffic to a service, and checks limits of latency and errors
  capacity    finds the highest rate of recorded traffic within limits, and what limits it

Examples
  lateral --database-url postgres://user:password@localhost/shop
  lateral explain "GET /items/articles?fields=title,author.name&limit=5"
  lateral import articles.csv

Exit codes: 0 done, 1 failed or a check found a problem, 2 wrong command line or option value.
`;

/** Options as environment variables or flags. */
export function help(): string {
  const topics = optionTopics();
  const width = Math.max(...topics.flatMap(({ rows }) => rows.map(({ name }) => name.length)));
  const sections = topics.map(({ title, rows }) => {
    const lines = rows.map(({ name, about, initial }) => {
      const shown = initial === '' ? '' : ` [${initial}]`;
      return `  ${name.padEnd(width)}  ${about}${shown}`;
    });
    return `${title}\n${lines.join('\n')}`;
  });
  return `${COMMANDS}\nOptions, as environment variables or flags (PORT=9000 or --port 9000)\n\n${sections.join('\n\n')}`;
}
