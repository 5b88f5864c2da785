/** Values of a recording that are replaced, and the structure that stays. */
import t from 'tap';
import { Redactor } from '../../../src/features/traffic/redact.js';
import type { RecordedRequest } from '../../../src/features/traffic/traffic-file.js';

const base = { t: 0, method: 'GET', user: null, role: null, status: 200, bytes: 1, ms: 1 };

function redact(requests: readonly RecordedRequest[]): RecordedRequest[] {
  const redactor = new Redactor();
  for (const each of requests) redactor.learn(each);
  return requests.map((each) => redactor.redact(each));
}

t.test('redaction keeps types, lengths, equality and structure', async (t) => {
  const requests: RecordedRequest[] = [
    ...[1, 2, 3, 4].map((key) => ({ ...base, path: `/items/film/${key}`, query: 'fields=title&limit=3' })),
    { ...base, path: '/items/film', query: 'filter[title][_eq]=Alice%20Smith&sort=-title' },
    { ...base, path: '/items/film', query: 'filter[title][_eq]=Alice%20Smith&filter[id][_in]=7,8' },
    {
      ...base,
      path: '/items/film',
      query: `filter=${encodeURIComponent('{"title":{"_contains":"Bob"},"owner":"$CURRENT_USER"}')}`,
    },
    { ...base, path: '/items/film', query: 'cursor=abc' },
    {
      ...base,
      method: 'SEARCH',
      path: '/items/film',
      body: '{"query":{"fields":["title"],"filter":{"title":{"_eq":"Carol"}}}}',
    },
    {
      ...base,
      method: 'POST',
      path: '/graphql',
      body: JSON.stringify({
        query: '{ film(limit: 5, filter: {title: {_eq: "Dave"}}) { id } }',
        variables: { name: 'Erin', limit: 'Judy' },
      }),
    },
    ...[7, 8].map((first) => ({
      ...base,
      method: 'POST',
      path: '/graphql',
      body: JSON.stringify({
        query:
          'query ($first: Int, $from: Int, $id: Int) { film(limit: $first, offset:$from, filter: {id: {_eq: $id}}) { id } }',
        variables: { first, from: first * 10, id: first * 100, data: { alias: 'Frank' } },
      }),
    })),
    {
      ...base,
      method: 'POST',
      path: '/transactions',
      body: JSON.stringify({
        operations: [
          { method: 'POST', path: '/items/film?fields=id', body: { title: 'Grace', alias: 'Heidi' } },
          { method: 'PATCH', path: '/items/actor/5', body: { title: 'Ivan', sequel: { $ref: '0' } } },
          { method: 'DELETE', path: '/items/film', key: { $ref: '0' } },
          { method: 'DELETE', path: '/items/actor', key: 6 },
        ],
      }),
    },
  ];
  const redacted = redact(requests);
  const text = JSON.stringify(redacted);
  for (const name of ['Alice', 'Smith', 'Bob', 'Carol', 'Dave', 'Erin', 'Frank', 'Grace', 'Heidi', 'Ivan', 'Judy'])
    t.notOk(text.includes(name), name);
  const keys = redacted.slice(0, 4).map(({ path }) => path);
  t.strictSame(
    [...keys].sort(),
    requests.slice(0, 4).map(({ path }) => path),
    'keys are swapped',
  );
  t.ok(keys.every((path, index) => path !== requests[index]?.path));
  t.ok(
    redacted.slice(0, 4).every(({ query }) => query === 'fields=title&limit=3'),
    'structure stays',
  );
  const [, first] = /_eq\]=(.*?)&/.exec(redacted[4]?.query ?? '') ?? [];
  t.match(decodeURIComponent(first ?? ''), /^[A-Z][a-z]{4} [A-Z][a-z]{4}$/, 'the same length and kinds of characters');
  t.ok(redacted[5]?.query?.includes(`_eq]=${first}&`), 'equal values stay equal');
  t.match(redacted[5]?.query, /\[_in\]=8%2C7$/);
  t.match(decodeURIComponent(redacted[6]?.query ?? ''), /"_contains":"[A-Z][a-z]{2}"\},"owner":"\$CURRENT_USER"/);
  t.match(redacted[7], { omitted: 'cursor' });
  t.match(redacted[8]?.body, /"fields":\["title"\].*"_eq":"[A-Z][a-z]{4}"/);
  t.match(JSON.parse(redacted[9]?.body ?? ''), {
    query: /limit: 5, filter: \{ ?title: \{ ?_eq: "[A-Z][a-z]{3}"/,
    variables: { name: /^[A-Z][a-z]{3}$/, limit: /^[A-Z][a-z]{3}$/ },
  });
  t.match(JSON.parse(redacted[10]?.body ?? ''), { variables: { first: 7, from: 70, id: 800 } }, 'pages stay');
  t.match(
    JSON.parse(redacted[12]?.body ?? ''),
    {
      operations: [
        { method: 'POST', path: '/items/film?fields=id', body: { title: /^[A-Z][a-z]{4}$/, alias: /^[A-Z][a-z]{4}$/ } },
        { method: 'PATCH', path: '/items/actor/6', body: { title: /^[A-Z][a-z]{3}$/, sequel: { $ref: '0' } } },
        { method: 'DELETE', path: '/items/film', key: { $ref: '0' } },
        { method: 'DELETE', path: '/items/actor', key: 5 },
      ],
    },
    'each operation of a transaction is like a request',
  );
});

const CANARY = 'Canary';

t.test('a value is kept only where the grammar of requests has no data', async (t) => {
  const json = (value: unknown): string => JSON.stringify(value);
  const film = { ...base, path: '/items/film' };
  const graphql = { ...base, path: '/graphql', method: 'POST' };
  const names = ['group', 'version', 'format', 'count', 'alias', 'page', 'meta', 'extensions', 'limit', 'sort'];
  const item = Object.fromEntries(names.map((name) => [name, CANARY]));
  const filter = Object.fromEntries(names.map((name) => [name, { _eq: CANARY }]));
  const conditions = names.map((name) => `${name}: {_eq: "${CANARY}"}`).join(', ');
  const replaced: RecordedRequest[] = [
    { ...film, query: names.map((name) => `filter[${name}][_eq]=${CANARY}`).join('&') },
    {
      ...film,
      query: ['group', 'format', 'count', 'extensions', 'limit', 'page'].map((name) => `${name}=${CANARY}`).join('&'),
    },
    { ...film, query: `version=${CANARY}&meta=${CANARY}&export=${CANARY}&filter[at][_gt]=$NOW(${CANARY})` },
    { ...film, query: `filter=${encodeURIComponent(json(filter))}&deep[cast][_filter][_limit][_eq]=${CANARY}` },
    { ...film, query: `deep=${encodeURIComponent(json({ cast: { _filter: filter } }))}` },
    { ...film, path: `/items/film/${CANARY}` },
    { ...film, method: 'POST', body: json([item]) },
    { ...film, method: 'PATCH', body: json({ query: { filter }, data: item }) },
    { ...film, method: 'SEARCH', body: json({ query: { filter, search: CANARY } }) },
    { ...base, path: '/rpc/find', method: 'POST', body: json({ ...item, [`${CANARY}@example.com`]: 1 }) },
    {
      ...graphql,
      body: json({ query: `# ${CANARY}\n{ film(filter: {${conditions}}) @x(limit: "${CANARY}") { id } }` }),
    },
    { ...graphql, body: json({ query: `{ film(filter: {title: ${CANARY}}) { id } }`, ...item }) },
    { ...graphql, body: json({ query: `query ($limit: String = "${CANARY}") { id }`, variables: item }) },
    {
      ...graphql,
      body: json({
        query: 'query ($n: Int) { film(limit: $n, filter: {a: {_eq: $n}}) { id } }',
        variables: { n: CANARY },
      }),
    },
    {
      ...base,
      path: '/transactions',
      method: 'POST',
      body: json({
        operations: [{ method: 'PATCH', path: '/items/film', key: 1, body: item, if_match: CANARY }],
        ...item,
      }),
    },
    {
      ...base,
      path: `/assets/0d6b5a4c-5f0e-4a53-9a6d-0a3c7a1f2b11/${CANARY}%20file.jpg`,
      query: `key=${CANARY}&fit=${CANARY}`,
    },
  ];
  for (const [index, each] of redact(replaced).entries()) {
    t.notMatch(decodeURIComponent(json(each)), /Canary/i, `${json(replaced[index])}`);
    t.equal(each.omitted, undefined, json(replaced[index]));
  }
  const dropped: RecordedRequest[] = [
    { ...film, method: 'POST', body: `{"title":"${CANARY}` },
    { ...film, query: CANARY },
    { ...film, query: `filter[%zz]=${CANARY}` },
    { ...film, query: `filter[a@${CANARY}][_eq]=1` },
    { ...film, path: `/items/film/1/${CANARY}` },
    { ...film, query: `c%75rsor=${CANARY}` },
    { ...film, method: 'SEARCH', body: json({ query: { cursor: CANARY } }) },
    { ...graphql, body: json({ query: `{ film(search: "${CANARY}"` }) },
    { ...graphql, body: json({ variables: { id: CANARY } }) },
    { ...graphql, body: json([{ query: `{ film(search: "${CANARY}") { id } }` }]) },
    { ...base, path: '/transactions', method: 'POST', body: json({ operations: [CANARY] }) },
  ];
  for (const [index, each] of redact(dropped).entries()) {
    t.notMatch(json(each), /Canary/i, json(replaced[index]));
    t.match(each, { omitted: /^(unreadable|cursor)$/, path: /^\/(items\/:collection|graphql|transactions)/ });
  }
});

t.test('structure stays', async (t) => {
  const query =
    'fields=id,cast.*&sort=-title&limit=5&page=2&deep[cast][_limit]=3&deep[cast][_sort]=name&meta=*&export=csv';
  const document = 'query Q($n: Int = 5) { film(limit: $n, offset: 10, sort: ["-title"]) { id } }';
  const [rest, graphql, me, image] = redact([
    { ...base, path: '/items/film', query },
    {
      ...base,
      path: '/graphql',
      query: `query=${encodeURIComponent(document)}&variables=${encodeURIComponent('{"n":7}')}&operationName=Q`,
    },
    { ...base, path: '/users/me', query: 'fields=*' },
    {
      ...base,
      path: '/assets/0d6b5a4c-5f0e-4a53-9a6d-0a3c7a1f2b11',
      query: 'width=100&format=webp&fit=cover&download',
    },
  ]);
  t.equal(decodeURIComponent(rest?.query ?? ''), query);
  t.match(
    decodeURIComponent(graphql?.query ?? '').replace(/\s+/g, ' '),
    /limit: \$n, offset: 10, sort: \["-title"\].*"n":7.*operationName=Q/,
  );
  t.match(me, { path: '/users/me', query: 'fields=*' });
  t.equal(image?.query, 'width=100&format=webp&fit=cover&download');
});

t.test('a value that is alone in its place is invented, of the same kind', async (t) => {
  const kinds: Readonly<Record<string, RegExp>> = {
    '0': /^[1-9]$/,
    '10': /^1[1-9]$/,
    '2147483647': /^[12]\d{9}$/,
    '-12.50': /^-1\d\.\d\d$/,
    '2024-02-29': /^2024-\d\d-\d\d$/,
    '2024-02-29T23:59:59.5Z': /^2024-\d\d-\d\dT\d\d:\d\d:\d\d\.\dZ$/,
    '0d6b5a4c-5f0e-4a53-9a6d-0a3c7a1f2b11': /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/,
    '0170 1234': /^\d{4} \d{4}$/,
    A: /^[B-Z]$/,
  };
  for (let round = 0; round < 50; round++)
    for (const [value, kind] of Object.entries(kinds)) {
      const request = { ...base, path: '/items/film', query: `filter[a][_eq]=${encodeURIComponent(value)}` };
      const [one, two] = redact([request, request]);
      const invented = decodeURIComponent(one?.query?.split('=')[1] ?? '');
      t.match(invented, kind, value);
      t.not(invented, value);
      if (value.startsWith('2024')) t.notOk(Number.isNaN(Date.parse(invented)), invented);
      if (value === '2147483647') t.ok(Number(invented) < 2_147_483_647);
      t.equal(one?.query, two?.query, 'equal values stay equal');
    }
});
