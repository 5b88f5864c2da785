/**
 * Shapes of PostGIS are GeoJSON as RFC 7946 has it, whatever the system of coordinates of their column; input that is none is
 * refused. PostGIS is not part of the PostgreSQL that the other tests run on: where none is installed, this is skipped.
 */
import { existsSync } from 'node:fs';
import t, { type Test } from 'tap';
import { compareGolden, goldenStatement } from '../../support/golden.js';
import { installedVersions, startInstalled } from '../../support/installed-server.js';
import { type Answer, connectSql, get, request, type Sql, startTestService } from '../../support/service.js';

const version = installedVersions().find((each) =>
  existsSync(`/usr/share/postgresql/${each}/extension/postgis.control`),
);
const skip = version === undefined ? 'no PostgreSQL with PostGIS is installed in /usr/lib/postgresql' : false;

const POINT = { type: 'Point', coordinates: [16.606837, 49.195061] };
const POLYGON = {
  type: 'Polygon',
  coordinates: [
    [
      [16, 49],
      [17, 49],
      [17, 50],
      [16, 50],
      [16, 49],
    ],
  ],
};
const ELSEWHERE = { type: 'Point', coordinates: [-120.5, 10.25] };

const COLUMNS: Readonly<Record<string, string>> = {
  world: 'shapes.geometry(Point,4326)',
  mercator: 'shapes.geometry(Point,3857)',
  local: 'shapes.geometry(Point,5514)',
  globe: 'shapes.geography(Point,4326)',
  globe_any: 'shapes.geography',
  any_point: 'shapes.geometry(Point)',
  free: 'shapes.geometry',
};

t.test('PostGIS', { skip }, async (t) => {
  const databaseUrl = await startInstalled(version as string);
  const sql = connectSql(databaseUrl);
  await sql.unsafe(`
    create schema shapes; create extension postgis schema shapes;
    create table places (id int primary key generated always as identity, ${Object.entries(COLUMNS).map(([name, type]) => `${name} ${type}`)}, name text);
    create table areas (id int primary key, area shapes.geometry(Polygon,3857));
    create table odd (id int primary key, shape shapes.geometry);
    insert into odd values (1, shapes.st_geomfromewkt('CIRCULARSTRING(0 0, 1 1, 2 0)')), (2, shapes.st_geomfromewkt('POINT EMPTY')),
      (3, shapes.st_geomfromewkt('SRID=3857;POINT(0 0)')), (4, null), (5, shapes.st_geomfromewkt('POINT(1 2)'));`);
  const service = await startTestService({ databaseUrl });
  const headers = { 'content-type': 'application/json' };
  const send = (method: string, path: string, body: unknown): Promise<Answer> =>
    request(service, method, path, { headers, body: JSON.stringify(body) });
  const search = (filter: unknown): Promise<Answer> =>
    send('SEARCH', '/items/places', { query: { fields: ['id'], sort: ['id'], filter } });

  await t.test('GeoJSON in and out, in every system of coordinates', async (t) => {
    const shape = Object.fromEntries(Object.keys(COLUMNS).map((name) => [name, POINT]));
    const created = await send('POST', '/items/places', { ...shape, name: 'Brno' });
    t.equal(created.status, 200, created.text);
    const { data } = created.json as { data: Record<string, typeof POINT> };
    for (const [name, type] of Object.entries(COLUMNS)) {
      const [x = 0, y = 0] = data[name]?.coordinates ?? [];
      t.equal(data[name]?.type, 'Point', `${type}: ${JSON.stringify(data[name])}`);
      t.ok(Math.abs(x - 16.606837) < 1e-6 && Math.abs(y - 49.195061) < 1e-6, `${type} is in WGS 84`);
    }
    t.strictSame(data['world'], POINT, 'no digit is lost where nothing is projected');
    const [kept] =
      await sql`select shapes.st_srid(mercator) as mercator, shapes.st_x(mercator)::int as x, shapes.st_srid(free) as free from places`;
    t.strictSame({ ...kept }, { mercator: 3857, x: 1_848_665, free: 4326 }, 'columns keep their own');
    const query = '{ places { world mercator globe free } }';
    const graphql = await send('POST', '/graphql', { query });
    const { world, mercator, globe, free } = data;
    t.strictSame(graphql.json, { data: { places: [{ world, mercator, globe, free }] } }, graphql.text);
    const area = await send('POST', '/items/areas', { id: 1, area: POLYGON });
    t.match(area.json, { data: { area: { type: 'Polygon' } } }, area.text);
    await testRoundTrip(t, data, sql);
  });

  async function testRoundTrip(t: Test, data: Record<string, unknown>, sql: Sql): Promise<void> {
    for (const [name, type] of Object.entries(COLUMNS)) {
      t.strictSame(
        (await search({ [name]: { _eq: data[name] } })).json,
        { data: [{ id: 1 }] },
        `${type}: _eq of what is shown`,
      );
      t.strictSame((await search({ [name]: { _neq: data[name] } })).json, { data: [] }, `${type}: _neq`);
      const kept = () =>
        sql.unsafe(`select ${name}::text as kept from places`).then(([row]) => row?.['kept'] as string);
      const before = await kept();
      t.equal((await send('PATCH', '/items/places/1', { [name]: data[name] })).status, 200);
      if (/4326|y$|Point\)$/.test(type)) t.equal(await kept(), before, `${type}: sent back it changes nothing`);
    }
  }

  await t.test('a value that replaces another keeps its system of coordinates', async (t) => {
    const shapes = (): Promise<unknown> =>
      sql`select id, shapes.st_asewkt(shape) as shape from odd where id in (3, 4, 5) order by id`.then((rows) =>
        rows.map(({ shape }) => shape),
      );
    const { json } = await get(service, '/items/odd?filter[id][_in]=3,5&sort=id');
    const { data } = json as { data: { id: number; shape: unknown }[] };
    t.strictSame(
      data.map(({ shape }) => shape),
      [
        { type: 'Point', coordinates: [0, 0] },
        { type: 'Point', coordinates: [1, 2] },
      ],
    );
    for (const { id, shape } of data) t.equal((await send('PATCH', `/items/odd/${id}`, { shape })).status, 200);
    t.match(await shapes(), [/^SRID=3857;POINT\(0 -?[\d.e-]+\)$/, null, 'POINT(1 2)'], 'by PATCH');
    const upserted = await send('POST', '/utils/import/odd', data);
    t.equal(upserted.status, 200, upserted.text);
    t.match(await shapes(), [/^SRID=3857;/, null, 'POINT(1 2)'], 'by an import');
    t.equal((await send('PATCH', '/items/odd/4', { shape: POINT })).status, 200);
    t.equal((await send('PATCH', '/items/odd/5', { shape: POINT })).status, 200);
    t.match(await shapes(), [/^SRID=3857;/, /^SRID=4326;POINT\(16/, /^POINT\(16/], 'other values');
    await sql.unsafe(`update odd set shape = case id when 5 then shapes.st_geomfromewkt('POINT(1 2)')
      when 3 then shapes.st_geomfromewkt('SRID=3857;POINT(0 0)') end where id in (3, 4, 5)`);
  });

  await t.test('filters by shapes, in every system of coordinates', async (t) => {
    for (const [name, type] of Object.entries(COLUMNS)) {
      for (const [operator, shape, found] of [
        ['_intersects', POLYGON, true],
        ['_intersects', ELSEWHERE, false],
        ['_nintersects', ELSEWHERE, true],
        ['_intersects_bbox', POLYGON, true],
        ['_intersects_bbox', ELSEWHERE, false],
        ['_nintersects_bbox', POLYGON, false],
      ] as const) {
        const answer = await search({ [name]: { [operator]: shape } });
        t.strictSame(answer.json, { data: found ? [{ id: 1 }] : [] }, `${type} ${operator}: ${answer.text}`);
      }
    }
    const query = 'query ($shape: GraphQLGeoJSON) { places(filter: {mercator: {_intersects: $shape}}) { id } }';
    const graphql = await send('POST', '/graphql', { query, variables: { shape: POLYGON } });
    t.strictSame(graphql.json, { data: { places: [{ id: '1' }] } }, graphql.text);
  });

  await t.test('shapes within others, and within a distance of them', async (t) => {
    const near = { type: 'Point', coordinates: [16.606837, 49.196] };
    for (const [name, type] of Object.entries(COLUMNS)) {
      const metres = /geography|3857|5514/.test(type);
      for (const [operator, value, found] of [
        ['_within', POLYGON, true],
        ['_covers', POINT, !/5514|3857/.test(type)],
        ['_covers', ELSEWHERE, false],
        ['_dwithin', { geometry: near, distance: metres ? 200 : 0.002 }, true],
        ['_dwithin', { geometry: near, distance: metres ? 50 : 0.0005 }, false],
      ] as const) {
        // What was projected and back is not the same point to the last digit.
        if (operator === '_covers' && value === POINT && !found) continue;
        const answer = await search({ [name]: { [operator]: value } });
        t.strictSame(answer.json, { data: found ? [{ id: 1 }] : [] }, `${type} ${operator}: ${answer.text}`);
      }
    }
    const area = await send('SEARCH', '/items/areas', {
      query: { filter: { area: { _covers: POINT } }, fields: ['id'] },
    });
    t.strictSame(area.json, { data: [{ id: 1 }] }, area.text);
    const path = `filter[globe][_dwithin][geometry]=${JSON.stringify(near)}&filter[globe][_dwithin][distance]=200`;
    const url = await get(service, encodeURI(`/items/places?fields=id&${path}`));
    t.strictSame(url.json, { data: [{ id: 1 }] }, url.text);
    const query = 'query ($near: JSON) { places(filter: {globe: {_dwithin: $near}}) { id } }';
    const graphql = await send('POST', '/graphql', { query, variables: { near: { geometry: near, distance: 200 } } });
    t.strictSame(graphql.json, { data: { places: [{ id: '1' }] } }, graphql.text);
    for (const [value, text] of [
      [{ geometry: near }, /_dwithin.* of .*world.* needs a .*distance/],
      [{ geometry: near, distance: -1 }, /distance/],
      [{ geometry: near, distance: 'far' }, /distance/],
      [{ geometry: near, distance: null }, /distance/],
      [{ distance: 5 }, /_dwithin.* of .*world.* needs GeoJSON as .*geometry/],
      [{ geometry: { type: 'Point' }, distance: 5 }, /_dwithin.* of field .*world.*GeoJSON/],
      [{ geometry: near, distance: 5, unit: 'km' }, /not .*unit/],
      [5, /_dwithin of world/],
    ] as const)
      t.match(await search({ world: { _dwithin: value } }), { status: 400, text }, JSON.stringify(value));
    t.match(await search({ world: { _within: { type: 'Point' } } }), {
      status: 400,
      text: /_within.* of field .*world/,
    });
    t.match(await search({ name: { _covers: POINT } }), { status: 400, text: /does not contain the .*_covers/ });
  });

  await t.test('indexes serve them', async (t) => {
    await sql.unsafe(`
      create table dots (id int primary key, plane shapes.geometry(Point,3857), globe shapes.geography(Point,4326), area shapes.geometry(Polygon,4326));
      insert into dots select n, shapes.st_setsrid(shapes.st_makepoint(n * 10, n * 10), 3857), shapes.st_makepoint(n / 200.0 - 50, n / 500.0 - 20)::shapes.geography,
        shapes.st_makeenvelope(n / 200.0 - 50, 0, n / 200.0 - 49.99, 0.01, 4326) from generate_series(1, 20000) n;
      create index dots_plane on dots using gist (plane); create index dots_globe on dots using gist (globe); create index dots_area on dots using gist (area);
      analyze dots`);
    await request(service, 'POST', '/utils/cache/clear');
    const near = { type: 'Point', coordinates: [0.001, 0.001] };
    for (const [filter, index] of [
      [{ plane: { _dwithin: { geometry: near, distance: 50 } } }, 'dots_plane'],
      [{ globe: { _dwithin: { geometry: near, distance: 50 } } }, 'dots_globe'],
      [{ globe: { _within: POLYGON } }, 'dots_globe'],
      [
        {
          plane: {
            _within: {
              type: 'Polygon',
              coordinates: [
                [
                  [0, 0],
                  [0.001, 0],
                  [0.001, 0.001],
                  [0, 0],
                ],
              ],
            },
          },
        },
        'dots_plane',
      ],
      [{ area: { _covers: near } }, 'dots_area'],
    ] as const) {
      const path = `/items/dots?fields=id&limit=-1&filter=${encodeURIComponent(JSON.stringify(filter))}`;
      const { json, text } = await get(service, path, { headers: { prefer: 'explain' } });
      t.match(JSON.stringify((json as { data: { plan: unknown } }).data.plan), `"Index Name":"${index}"`, text);
    }
  });

  await t.test('the statement', async (t) => {
    const near = { type: 'Point', coordinates: [16.6, 49.2] };
    const filter = {
      globe: { _dwithin: { geometry: near, distance: 500 } },
      mercator: { _within: POLYGON },
      free: { _covers: near },
    };
    const path = `/items/places?fields=id&filter=${JSON.stringify(filter)}`;
    const { json } = await get(service, encodeURI(path), { headers: { prefer: 'explain' } });
    const { data } = json as { data: { sql: string; parameters: readonly string[] } };
    await compareGolden(
      t,
      'reads',
      'filter-geometry',
      `-- ${path.slice(6)}\n${goldenStatement(data.sql, data.parameters)}`,
    );
  });

  await t.test('an export as GeoJSON', async (t) => {
    const file = await get(service, '/items/places?export=geojson&fields=id,name,world&limit=-1');
    t.match(file.headers, { 'content-type': /^application\/geo\+json/, 'content-disposition': /places\.geojson/ });
    const feature = { type: 'Feature', id: 1, geometry: POINT, properties: { id: 1, name: 'Brno' } };
    t.strictSame(file.json, { type: 'FeatureCollection', features: [feature] }, file.text);
    const named = await get(service, '/items/places?export=geojson&fields=name,world,globe&geometry=globe');
    const { features } = named.json as { features: { id?: number; geometry: unknown; properties: object }[] };
    t.match(features, [{ geometry: { type: 'Point' }, properties: { name: 'Brno', world: POINT } }]);
    t.notOk(features[0] && 'id' in features[0], 'without the key there is no id');
    const odd = await get(service, '/items/odd?export=geojson&sort=id');
    t.match(odd.json, {
      features: [
        { id: 1, geometry: null, properties: { shape: 'CIRCULARSTRING(0 0,1 1,2 0)' } },
        { id: 2, geometry: { type: 'Point', coordinates: [] } },
        { id: 3 },
        { id: 4, geometry: null },
        { id: 5 },
      ],
    });
    const none = await get(service, '/items/odd?export=geojson&filter[id][_gt]=99');
    t.strictSame(none.json, { type: 'FeatureCollection', features: [] });
    const body = { format: 'geojson', query: { fields: ['world', 'globe'], geometry: 'world' } };
    t.match((await send('POST', '/utils/export/places', body)).json, { features: [{ geometry: POINT }] });
    for (const [query, text] of [
      ['fields=id,world,globe', /needs .*geometry.*: one of world, globe/],
      ['fields=id,name', /needs a geometry field among the selected fields/],
      ['fields=id,world&geometry=name', /name.* is not a geometry/],
      ['fields=id,world&geometry=globe', /globe.* is not a geometry/],
      ['fields=id,world&geometry[a]=globe', /must be the name of a field/],
    ] as const)
      t.match(await get(service, `/items/places?export=geojson&${query}`), { status: 400, text }, query);
    const all = await get(service, '/items/dots?export=geojson&fields=id,plane&limit=-1');
    t.equal((all.json as { features: unknown[] }).features.length, 20_000, 'streamed');
  });

  await t.test('values other than GeoJSON of WGS 84 are refused, in payloads and filters', async (t) => {
    const wrong: readonly unknown[] = [
      'POINT(3 4)',
      'garbage',
      5,
      true,
      [1, 2],
      {},
      { type: 'Point' },
      { type: 'Point', coordinates: ['a', 'b'] },
      { type: 'Point', coordinates: [1] },
      { type: 'Point', coordinates: [[1, 2]] },
      { type: 'Point', coordinates: [{ toString: 1, valueOf: 1 }, 2] },
      { ...POINT, crs: { type: 'name', properties: { name: { toString: 1, valueOf: 1 } } } },
      { ...POINT, crs: { type: 'name', properties: null } },
      { type: 'Circle', coordinates: [1, 2] },
      { type: 'constructor', coordinates: [1, 2] },
      { type: 'LineString', coordinates: [[1, 2]] },
      {
        type: 'Polygon',
        coordinates: [
          [
            [0, 0],
            [1, 1],
            [0, 0],
          ],
        ],
      },
      {
        type: 'Polygon',
        coordinates: [
          [
            [0, 0],
            [1, 1],
            [1, 0],
            [5, 5],
          ],
        ],
      },
      { type: 'Feature', geometry: POINT },
      { ...POINT, crs: { type: 'name', properties: { name: 'EPSG:3857' } } },
      { type: 'GeometryCollection', geometries: [{ type: 'Point', coordinates: [] }, null] },
    ];
    for (const name of ['world', 'mercator', 'globe', 'free'])
      for (const shape of wrong) {
        const label = `${name}: ${JSON.stringify(shape)}`;
        const written = await send('POST', '/items/places', { [name]: shape });
        t.equal(written.status, 400, `${label}: ${written.text}`);
        for (const operator of ['_eq', '_intersects', '_intersects_bbox']) {
          const answer = await search({ [name]: { [operator]: shape } });
          t.equal(answer.status, 400, `${label} ${operator}: ${answer.text}`);
        }
      }
    const other = await send('POST', '/items/places', { world: POLYGON });
    t.equal(other.status, 400, `a polygon is no point: ${other.text}`);
    const far = await send('POST', '/items/places', { mercator: { type: 'Point', coordinates: [0, 1e6] } });
    t.equal(far.status, 400, `what cannot be projected: ${far.text}`);
    const unseen = await search({ mercator: { _intersects: { type: 'Point', coordinates: [0, 1e6] } } });
    t.equal(unseen.status, 400, `nor can a filter: ${unseen.text}`);
    t.equal((await sql`select from places`).length, 1, 'nothing of it is there');
  });

  await t.test('shapes that GeoJSON does not have come back as they were sent', async (t) => {
    const shapes = [
      'SRID=4326;POINTM(1 2 3)',
      'SRID=3857;POINT(1 2 3 4)',
      'LINESTRINGM(0 0 0.30000000000000004,1 1 2)',
      'MULTIPOINTM(1 2 3,2 3 4)',
      'SRID=4326;POINTM EMPTY',
      'CIRCULARSTRING(0 0,1 1,2 0)',
      'SRID=3857;COMPOUNDCURVE(CIRCULARSTRING(0 0,1 1,1 0),(1 0,0 1))',
      'CURVEPOLYGON((0 0,1 1,1 0,0 0))',
      'MULTICURVE((0 0,5 5),CIRCULARSTRING(4 0,4 4,8 4))',
      'MULTISURFACE(((7 8,10 10,6 14,4 11,7 8)))',
      'POLYHEDRALSURFACE(((0 0 0,0 0 1,0 1 1,0 1 0,0 0 0)))',
      'TRIANGLE((0 0,0 9,9 0,0 0))',
      'TIN(((0 0 0,0 0 1,0 1 0,0 0 0)))',
      'GEOMETRYCOLLECTION(POINT(1 1),TRIANGLE((0 0,0 9,9 0,0 0)))',
      'GEOMETRYCOLLECTION(CURVEPOLYGON((0 0,1 1,1 0,0 0)))',
    ];
    await sql.unsafe(`
      create table exotic (id int primary key, shape shapes.geometry, m shapes.geometry(pointm,4326), zm shapes.geography(pointzm),
        plane shapes.geometry(pointm,3857));
      insert into exotic (id, shape) select n, shapes.st_geomfromewkt(shape)
        from unnest(array[${shapes.map((shape) => `'${shape}'`).join()}]) with ordinality s (shape, n);
      update exotic set m = 'SRID=4326;POINTM(1 2 3)', zm = 'SRID=4326;POINTZM(1 2 3 4)', plane = 'SRID=3857;POINTM(9 8 7)' where id = 1`);
    await request(service, 'POST', '/utils/cache/clear');
    const stored = async (): Promise<unknown[]> => [...(await sql`select exotic::text from exotic order by id`)];
    const before = await stored();
    const { json } = await get(service, '/items/exotic?sort=id');
    const { data } = json as { data: { id: number; shape: string }[] };
    t.strictSame(
      data.map(({ shape }) => shape),
      shapes,
    );
    t.match(data[0], {
      m: 'SRID=4326;POINTM(1 2 3)',
      zm: 'SRID=4326;POINT(1 2 3 4)',
      plane: 'SRID=3857;POINTM(9 8 7)',
    });
    for (const { id, ...item } of data) {
      for (const [name, shape] of Object.entries(item).filter(([, each]) => each !== null)) {
        const query = { fields: ['id'], filter: { [name]: { _eq: shape } } };
        t.strictSame((await send('SEARCH', '/items/exotic', { query })).json, { data: [{ id }] }, `${name}: ${shape}`);
      }
      t.match(await send('PATCH', `/items/exotic/${id}?fields=shape`, item), {
        status: 200,
        json: { data: { shape: item.shape } },
      });
      t.equal((await send('POST', '/items/exotic', { ...item, id: id + 100 })).status, 200);
      t.equal((await send('DELETE', `/items/exotic/${id + 100}`, {})).status, 204);
    }
    t.strictSame(await stored(), before, 'by PATCH');
    t.equal((await send('POST', '/utils/import/exotic', data)).status, 200);
    t.strictSame(await stored(), before, 'by an import');
    const found = await send('SEARCH', '/items/exotic', {
      query: { fields: ['id'], filter: { m: { _intersects: 'SRID=4326;POINTM(1 2 9)' } } },
    });
    t.strictSame(found.json, { data: [{ id: 1 }] }, found.text);
    const near = { geometry: 'SRID=4326;POINTM(1 2 9)', distance: 1 };
    const close = await send('SEARCH', '/items/exotic', {
      query: { fields: ['id'], filter: { m: { _dwithin: near } } },
    });
    t.strictSame(close.json, { data: [{ id: 1 }] }, close.text);
    const query = 'mutation ($shape: GraphQLGeoJSON) { update_exotic_item(id: 2, data: {shape: $shape}) { shape } }';
    const graphql = await send('POST', '/graphql', { query, variables: { shape: shapes[1] } });
    t.strictSame(graphql.json, { data: { update_exotic_item: { shape: shapes[1] } } }, graphql.text);
    for (const wrong of [
      'POINTM(1 2)',
      'TIN(((0 0)))',
      'CIRCULARSTRING(a b)',
      'SRID=99;TIN EMPTY',
      'POINTM(1 2 3',
      'SRID=3857;POINTM(1 2 3)',
      POINT,
    ])
      for (const [method, path, body] of [
        ['PATCH', '/items/exotic/1', { m: wrong }],
        ['SEARCH', '/items/exotic', { query: { filter: { m: { _intersects: wrong === POINT ? 'POINTM' : wrong } } } }],
      ] as const)
        t.match(await send(method, path, body), { status: 400 }, `${method} ${JSON.stringify(wrong)}`);
    t.strictSame(await stored(), before);
  });

  await t.test('a raster is found by what is shown of it, and other texts are refused', async (t) => {
    await sql.unsafe(`
      create extension postgis_raster schema shapes;
      create table tiles (id int primary key, tile shapes.raster);
      insert into tiles values (1, '0100000000${'0'.repeat(12)}F03F${'0'.repeat(12)}F0BF${'0'.repeat(72)}02000200'), (2, null)`);
    await request(service, 'POST', '/utils/cache/clear');
    const find = (filter: unknown): Promise<Answer> =>
      send('SEARCH', '/items/tiles', { query: { fields: ['id'], filter: { tile: filter } } });
    const { json } = await get(service, '/items/tiles/1');
    const { tile } = (json as { data: { tile: string } }).data;
    t.strictSame((await find({ _eq: tile })).json, { data: [{ id: 1 }] });
    for (const wrong of ['text', '5', 5, true, '']) {
      const found = await find({ _eq: wrong });
      t.match(found, { status: 400, text: /tile/ }, `${JSON.stringify(wrong)}: ${found.text}`);
      const written = await send('PATCH', '/items/tiles/2', { tile: wrong });
      t.match(written, { status: 400, text: /tile/ }, `${JSON.stringify(wrong)}: ${written.text}`);
    }
  });

  await t.test('shapes that GeoJSON does not have are shown as text, and none fails the list', async (t) => {
    const { json, text } = await get(service, '/items/odd?sort=id');
    t.strictSame(
      json,
      {
        data: [
          { id: 1, shape: 'CIRCULARSTRING(0 0,1 1,2 0)' },
          { id: 2, shape: { type: 'Point', coordinates: [] } },
          { id: 3, shape: { type: 'Point', coordinates: [0, 0] } },
          { id: 4, shape: null },
          { id: 5, shape: { type: 'Point', coordinates: [1, 2] } },
        ],
      },
      text,
    );
    const filter = encodeURIComponent(
      JSON.stringify({ shape: { _intersects: { type: 'Point', coordinates: [0, 0] } } }),
    );
    const found = await get(service, `/items/odd?fields=id&sort=id&filter=${filter}`);
    t.strictSame(found.json, { data: [{ id: 1 }, { id: 3 }] }, found.text);
  });
  await service.stop();
  await sql.end();
});
