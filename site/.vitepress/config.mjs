/** The site of the documentation: README.md, docs/ and what they link to, with search that runs in the browser. */
import { defineConfig } from 'vitepress';

const page = (text, name) => ({ text, link: `/docs/${name}` });

export default defineConfig({
  title: 'Lateral',
  description: 'A REST and GraphQL API over PostgreSQL: one request, one statement',
  srcDir: 'pages',
  outDir: '../dist/site',
  cacheDir: '../dist/site-cache',
  // Links end with .html, so that any static server finds the pages. SITE_BASE is the path below which they are served.
  base: process.env.SITE_BASE ?? '/',
  // Files of the repository that are no pages; every other link that leads nowhere ends the build.
  ignoreDeadLinks: [/LICENSE$/, /report\.html$/],
  markdown: { languageAlias: { pgsql: 'sql', haproxy: 'ini' } },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Tour', link: '/docs/tour' },
      { text: 'REST', link: '/docs/rest' },
      { text: 'GraphQL', link: '/docs/graphql' },
      { text: 'Configuration', link: '/docs/configuration' },
      { text: 'Changes', link: '/CHANGELOG' },
    ],
    sidebar: [
      {
        text: 'Start',
        items: [
          { text: 'Introduction', link: '/' },
          page('Tour', 'tour'),
          page('Requests and their SQL', 'concepts'),
          page('Explorer', 'explorer'),
          page('Boards', 'boards'),
        ],
      },
      {
        text: 'Read',
        items: [
          page('REST', 'rest'),
          page('Filters', 'filters'),
          page('Filters on PostgreSQL types', 'filter-types'),
          page('Functions, aggregates, counts', 'aggregates'),
          page('Full-text search', 'search'),
          page('Values in JSON', 'values'),
          page('Errors', 'errors'),
          page('GraphQL', 'graphql'),
          page('Large lists and exports', 'streaming'),
        ],
      },
      {
        text: 'Write',
        items: [
          page('Items', 'writes'),
          page('Update operators', 'update-operators'),
          page('Transactions', 'transactions'),
          page('Upsert and idempotency', 'upsert'),
          page('Conditional writes', 'conditional-writes'),
          page('Import', 'import'),
          page('Files', 'files'),
          page('Images', 'image-transforms'),
          page('Content versions', 'versions'),
        ],
      },
      {
        text: 'Call functions',
        items: [page('Functions', 'functions'), page('Computed fields', 'computed-fields')],
      },
      {
        text: 'Subscribe',
        items: [
          page('Live queries', 'live'),
          page('GraphQL subscriptions', 'live-graphql'),
          page('Change events', 'live-events'),
          page('Set up PostgreSQL', 'live-setup'),
          page('Triggers', 'live-triggers'),
          page('Webhooks', 'webhooks'),
          page('Webhook limits', 'webhook-limits'),
          page('Agents', 'agents'),
        ],
      },
      {
        text: 'Model',
        items: [
          page('Your database', 'database'),
          page('Keys', 'keys'),
          page('Relations', 'relations'),
          page('Change the schema', 'schema-changes'),
          page('Snapshots of the schema', 'snapshots'),
        ],
      },
      {
        text: 'Control access',
        items: [
          page('Permissions', 'permissions'),
          page('Row-level security', 'row-level-security'),
          page('Accounts', 'accounts'),
          page('Browsers on other origins', 'cors'),
          page('Sign in with a provider', 'sign-in'),
          page('Shares', 'shares'),
          page('Presets, comments, dashboards', 'app-data'),
          page('Security', 'security'),
          { text: 'Report a vulnerability', link: '/SECURITY' },
        ],
      },
      {
        text: 'Extend',
        items: [
          page('Hooks and routes', 'extending'),
          page('In a Node program', 'node-program'),
          page('Write a feature', 'own-features'),
          page('Compile without a database', 'compiler'),
        ],
      },
      {
        text: 'Deploy',
        items: [
          page('Deploy', 'deploy'),
          page('Configuration', 'configuration'),
          page('Command line', 'command-line'),
          page('Proxies', 'proxies'),
          page('Connection strings', 'connection-strings'),
          page('Managed PostgreSQL', 'managed-postgresql'),
          page('Poolers', 'poolers'),
          page('Upgrades and backup', 'upgrades'),
        ],
      },
      {
        text: 'Operate',
        items: [
          page('Health, threads, shutdown', 'operations'),
          page('Logs and traces', 'logs'),
          page('Metrics', 'metrics'),
          page('Database outages', 'outages'),
          page('Plan checks', 'plan-checks'),
          page('Advice about indexes', 'index-advice'),
        ],
      },
      {
        text: 'Scale',
        items: [
          page('Topologies', 'topologies'),
          page('Sizing', 'sizing'),
          page('Several instances', 'instances'),
          page('Replicas', 'replicas'),
          page('Reads from memory', 'caching'),
          page('Failover', 'failover'),
          page('Partitions and shards', 'sharding'),
          page('Citus and TimescaleDB', 'citus'),
          page('Benchmarks', 'benchmarks'),
          page('Benchmark your own traffic', 'benchmark-your-own'),
          { text: 'Bench report', link: '/bench/report' },
        ],
      },
      {
        text: 'Contribute',
        items: [
          { text: 'Contributing', link: '/CONTRIBUTING' },
          page('Architecture', 'architecture'),
          { text: 'Decisions', link: '/docs/decisions/' },
          { text: 'Changes', link: '/CHANGELOG' },
        ],
      },
      {
        text: 'Move',
        items: [
          page('From Directus', 'from-directus'),
          page('Directus differences', 'directus-differences'),
          page('Tools made for Directus', 'directus-tools'),
          page('From PostgREST', 'from-postgrest'),
          page('From Supabase', 'from-supabase'),
          page('From Hasura', 'from-hasura'),
        ],
      },
    ],
  },
});
