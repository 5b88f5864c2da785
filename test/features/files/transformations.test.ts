import sharp from 'sharp';
import t from 'tap';
import { OWN_TURN } from '../../../src/base/limiter.js';
import { ImageProcesses } from '../../../src/features/files/images.js';
import { noise, transforms, uploadImage } from '../../support/images.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  makeFolder,
  request,
  startDatabase,
  startTestService,
  type TestOptions,
} from '../../support/service.js';

t.setTimeout(240_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'transformations');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const options: TestOptions & Record<string, string> = { databaseUrl, STORAGE_LOCAL_ROOT: await makeFolder() };
/** Processes of a low priority are slow next to other tests. */
const patient = await startTestService({ ...options, ASSETS_TRANSFORM_TIMEOUT: '30s' });
const small = await uploadImage(patient, await noise(100), 'jpeg');
const flat = (width: number, height: number) =>
  sharp({ create: { width, height, channels: 3, background: 'red' } })
    .png()
    .toBuffer();
const messageOf = ({ json }: Answer): string => (json as { errors: { message: string }[] }).errors[0]?.message ?? '';

t.test('a process that was killed because it was idle gets no further image', async (t) => {
  const idle = 100;
  const processes = new ImageProcesses({ processes: 1, timeout: 30_000, idle });
  const bytes = await flat(10, 20);
  const job = { most: 6_000, transformation: null };
  const measure = async (): Promise<unknown> => (await processes.run(OWN_TURN, async () => bytes, job))?.answer;
  const measured = { kind: 'measured', size: { width: 10, height: 20 } };
  t.strictSame(await measure(), measured);
  // Timers of one duration run one after the other: the process was killed, and its end is not known yet.
  const next = await new Promise((resolve) => setTimeout(() => resolve(measure().catch((error) => error)), idle));
  t.strictSame(next, measured);
  await processes.stop();
});

t.test('a sharp that is installed and cannot be loaded is reported as such, and tried again', async (t) => {
  const other = await startTestService(options);
  const former = process.env['NODE_OPTIONS'];
  // Processes of images inherit it.
  process.env['NODE_OPTIONS'] = '--no-addons';
  const failed = await request(other, 'GET', `/assets/${small}?width=23`).finally(() => {
    if (former === undefined) delete process.env['NODE_OPTIONS'];
    else process.env['NODE_OPTIONS'] = former;
  });
  t.equal(failed.status, 503, failed.text);
  t.match(
    messageOf(failed),
    /The package "sharp" is installed and cannot be loaded: Could not load the "sharp" module/,
  );
  t.match(await request(other, 'GET', `/assets/${small}?width=23`), { status: 200 }, 'it can be loaded now');
  await other.stop();
});

t.test('an image that is smaller than the one side that is given gets no bars', async (t) => {
  const image = await uploadImage(patient, await flat(64, 40), 'png');
  for (const query of [
    'key=system-large-contain',
    'width=80&fit=contain&withoutEnlargement=true',
    'height=80&fit=contain&withoutEnlargement=true',
  ]) {
    const answer = await fetch(`${patient.url}/assets/${image}?${query}`, {
      headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
    });
    const { width, height } = await sharp(Buffer.from(await answer.arrayBuffer())).metadata();
    t.strictSame({ width, height }, { width: 64, height: 40 }, query);
  }
});

t.test('no step of a transformation makes an image beyond the limit', async (t) => {
  const square = await uploadImage(patient, await flat(1_000, 1_000), 'png');
  const strip = await uploadImage(patient, await flat(10, 1_000), 'png');
  const photo = await uploadImage(patient, await flat(5_000, 4_000), 'png');
  const sides = { top: 6_000, bottom: 6_000, left: 6_000, right: 6_000 };
  for (const [id, query] of [
    [square, `width=10&${transforms(['extend', sides])}`],
    [square, `width=10&${transforms(['extend', 6_000])}`],
    [square, transforms(['extend', { left: 3_000, right: 2_500 }], ['resize', 1_000])],
    [square, `width=5000&${transforms(['rotate', 45])}`],
    [photo, transforms(['rotate', 45], ['resize', 100])],
    [square, transforms(['affine', [7, 0, 0, 1]])],
    [
      square,
      transforms(
        [
          'affine',
          [
            [1, 3],
            [0, 1],
          ],
        ],
        ['extend', { right: 2_500 }],
      ),
    ],
    [strip, 'width=100'],
    [strip, transforms(['resize', { width: 6_000, height: 6_000, fit: 'outside' }])],
    [square, transforms(['extract', { left: 0, top: 0, width: 1, height: 1_000 }], ['resize', 100])],
    [strip, transforms(['trim'], ['resize', 100])],
    [strip, `width=6000&height=6000&${transforms(['rotate', 90])}`],
  ] as const) {
    const answer = await request(patient, 'GET', `/assets/${id}?${query}`);
    t.match(
      answer,
      {
        status: 400,
        json: { errors: [{ extensions: { code: 'INVALID_QUERY', option: 'ASSETS_TRANSFORM_IMAGE_MAX_DIMENSION' } }] },
      },
      `${decodeURIComponent(query)}: ${answer.status}`,
    );
  }
  const sizeOf = async (id: string, query: string): Promise<string> => {
    const answer = await fetch(`${patient.url}/assets/${id}?${query}`, {
      headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
    });
    if (!answer.ok) return answer.text();
    const { width, height } = await sharp(Buffer.from(await answer.arrayBuffer())).metadata();
    return `${width} × ${height}`;
  };
  for (const [id, query, size] of [
    [square, `width=10&${transforms(['extend', 20])}`, '50 × 50'],
    [square, transforms(['rotate', 90], ['resize', { width: 300 }], ['extend', { left: 5 }]), '305 × 300'],
    [square, transforms(['trim'], ['resize', { width: 50, height: 20, fit: 'fill' }]), '50 × 20'],
    [
      square,
      transforms([
        'affine',
        [
          [1, 0.5],
          [0, 1],
        ],
      ]),
      '1500 × 1000',
    ],
    [strip, 'width=2000&height=2000', '2000 × 2000'],
    [strip, 'width=5&fit=fill', '5 × 1000'],
  ] as const)
    t.equal(await sizeOf(id, query), size, decodeURIComponent(query));
});

t.test('operations take the parameters that they have, within ranges', async (t) => {
  const large = await request(patient, 'GET', `/assets/${small}?${transforms(['resize', 50_000])}`);
  t.match(large.text, /argument 1 of .*resize.* must be null, or a whole number from 1 to 6000/, large.text);
  for (const operation of [
    ...[
      ['median', 900],
      ['median', 1.5],
      ['median', '3'],
      ['blur', 900],
      ['blur', 0],
      ['blur', { sigma: 500 }],
    ],
    ...[
      ['dilate', 100],
      ['erode', 100],
      ['sharpen', 10_000],
      ['sharpen', { sigma: 1, m1: -1 }],
      ['gamma', 9],
    ],
    ...[
      ['clahe', { width: 5_000, height: 5_000 }],
      ['linear', [1, 2, 3, 4, 5]],
      ['tint', 'x'.repeat(1_000)],
    ],
    ...[
      ['convolve', { width: 101, height: 101, kernel: [] }],
      ['convolve', { width: 3, height: 3, kernel: [1] }],
    ],
    ...[
      ['resize', { width: 10, kernel: 'slow' }],
      ['resize', 10, 10, { file: '/etc/passwd' }],
      ['resize', -1],
    ],
    ...[
      ['extend', { left: -1 }],
      ['extend', { extendWith: 'x' }],
      ['extract', { left: 0, top: 0, width: 5 }],
    ],
    ...[
      ['rotate', 1e9],
      ['affine', [1, 2, 3]],
      ['affine', [1, 0, 0, 1], { interpolator: 'x' }],
      ['flip', 1, 2],
    ],
    ...[
      ['recomb', [[1]]],
      ['modulate', { brightness: -1 }],
      ['threshold', 999],
      ['negate', {}, {}],
      ['toFile', 'x'],
    ],
    ...[['toColourspace', 'x'], ['normalise', { lower: 200 }], ['trim', { background: {} }], ['trim', 'x'], {}, 7],
  ]) {
    const answer = await request(patient, 'GET', `/assets/${small}?${transforms(operation)}`);
    t.match(answer, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } }, answer.text);
    t.match(messageOf(answer), /"transforms"|The image cannot be transformed/, JSON.stringify(operation));
  }
  for (const operation of [
    ...[['median'], ['median', 3], ['blur'], ['blur', 5], ['blur', { sigma: 3 }], ['dilate'], ['erode', 2]],
    ...[['sharpen'], ['sharpen', 2], ['sharpen', { sigma: 2, m1: 0, m2: 3 }], ['gamma'], ['gamma', 2.2, 2]],
    ...[
      ['clahe', { width: 3, height: 3, maxSlope: 5 }],
      ['linear', 0.5, 10],
      ['linear', [1, 1, 1], [0, 0, 0]],
    ],
    ...[['convolve', { width: 3, height: 3, kernel: [-1, 0, 1, -2, 0, 2, -1, 0, 1] }], ['tint', '#f80'], ['trim']],
    ...[
      ['resize', 10],
      ['resize', 10, 10, { fit: 'contain', background: '#00000000' }],
      ['resize', null, 10],
    ],
    ...[['resize', { width: 10, height: 20, position: 'right top', kernel: 'mitchell' }], ['flip'], ['flop', false]],
    ...[
      ['extend', { top: 3, extendWith: 'mirror' }],
      ['extract', { left: 0, top: 0, width: 5, height: 5 }],
    ],
    ...[
      ['rotate', 30, { background: { r: 1, g: 2, b: 3, alpha: 0.5 } }],
      ['flatten', { background: 'white' }],
    ],
    ...[
      [
        'recomb',
        [
          [1, 0, 0],
          [0, 1, 0],
          [0, 0, 1],
        ],
      ],
      ['modulate', { brightness: 2, hue: 90 }],
      ['threshold', 99],
    ],
    ...[['negate'], ['negate', { alpha: false }], ['normalise'], ['normalize', { lower: 1, upper: 99 }], ['unflatten']],
    ...[
      ['greyscale'],
      ['grayscale', true],
      ['toColourspace', 'b-w'],
      ['toColorspace', 'srgb'],
      ['trim', { threshold: 5 }],
    ],
    ...[['affine', [1, 0.1, 0, 1], { background: 'white', interpolator: 'nohalo' }], 'greyscale'],
  ]) {
    const answer = await request(patient, 'GET', `/assets/${small}?${transforms(operation)}`);
    t.equal(answer.status, 200, `${JSON.stringify(operation)}: ${answer.status === 200 ? '' : answer.text}`);
  }
});
