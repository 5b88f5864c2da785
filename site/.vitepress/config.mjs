/** The site of the documentation: README.md, docs/ and what they link to, with search that runs in the browser. */
import { defineConfig } from 'vitepress';

const page = (text, name) => ({ text, link: `/docs/${name}` });

export default defineConfig({
  title: 'Lateral',
  description: 'A REST and GraphQL API over PostgreSQL: one request, one statement',
  srcDir: 'pages',
  outDir: '../dist/site',
  cacheDir: '../dist/site-cache',
  cleanUrls: true,
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
      { text: 'Options', link: '/docs/configuration' },
      { text: 'Changes', link: '/CHANGELOG' },
    ],
    sidebar: [
      {
        text: 'Begin',
        items: [
          { text: 'What is it?', link: '/' },
          page('A tour of five minutes', 'tour'),
          page('Requests and their SQL', 'concepts'),
          page('Explorer', 'explorer'),
        ],
      },
      {
        text: 'Use',
        items: [
          page('REST', 'rest'),
          page('Filters', 'filters'),
          page('Writes', 'writes'),
          page('Content versions', 'versions'),
          page('Shares', 'shares'),
          page('Files', 'files'),
          page('Presets, comments, dashboards', 'app-data'),
          page('GraphQL', 'graphql'),
          page('Functions', 'functions'),
          page('Streams and exports', 'streaming'),
          page('Live queries', 'live'),
        ],
      },
      {
        text: 'Model and access',
        items: [
          page('Database', 'database'),
          page('Schema changes', 'schema-changes'),
          page('Permissions', 'permissions'),
          page('Accounts', 'accounts'),
        ],
      },
      {
        text: 'Operate',
        items: [
          page('Deploy', 'deploy'),
          page('Operations', 'operations'),
          page('Options', 'configuration'),
          page('Topologies and sizing', 'topologies'),
          page('Several instances', 'instances'),
          page('Replicas', 'replicas'),
          page('Failover', 'failover'),
          page('Shards', 'sharding'),
          page('Upgrades and backup', 'upgrades'),
          page('Metrics', 'metrics'),
        ],
      },
      {
        text: 'Judge',
        items: [
          page('Security', 'security'),
          { text: 'Report a vulnerability', link: '/SECURITY' },
          page('Performance', 'benchmarks'),
          { text: 'Bench report', link: '/bench/report' },
          page('Architecture', 'architecture'),
          { text: 'Decisions', link: '/docs/decisions/' },
        ],
      },
      {
        text: 'Move',
        items: [
          page('From Directus', 'from-directus'),
          page('From PostgREST', 'from-postgrest'),
          page('From Hasura', 'from-hasura'),
        ],
      },
      {
        text: 'Take part',
        items: [
          { text: 'Contributing', link: '/CONTRIBUTING' },
          { text: 'Changes', link: '/CHANGELOG' },
        ],
      },
    ],
  },
});
