/**
 * The Helm chart of deploy/: what it renders to is what the service offers. `helm` does so where it is installed. Where it is not, the few
 * constructs that the templates use are carried out here, and a template with another one fails the test.
 */
import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { options } from '../../src/app/options.js';
import { packagePath, packageVersion } from '../../src/base/package-files.js';
import { findProgram } from '../support/programs.js';

const run = promisify(execFile);
const folder = packagePath('deploy', 'helm', 'lateral');
const helm = await findProgram('helm');

interface Tree {
  readonly [name: string]: Tree;
}
type Values = Record<string, unknown>;
interface Resource {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels: Record<string, string> };
  readonly spec: Tree;
}

const initial = parse(await readFile(join(folder, 'values.yaml'), 'utf8')) as Values;
const chart = parse(await readFile(join(folder, 'Chart.yaml'), 'utf8')) as Record<string, string>;

/** With some of the values replaced. */
async function render(changed: Values = {}): Promise<Map<string, Resource>> {
  const values = merge(initial, changed);
  const names = (await readdir(join(folder, 'templates'))).filter((name) => name.endsWith('.yaml')).sort();
  const texts = await Promise.all(names.map((name) => readFile(join(folder, 'templates', name), 'utf8')));
  const root = { Values: values, Release: { Name: 'api' }, Chart: { AppVersion: chart['appVersion'] } };
  const documents = texts.flatMap((text) => parseAllDocuments(carryOut(text, root)));
  const found = new Map<string, Resource>();
  for (const document of Array.isArray(documents) ? documents : []) {
    t.strictSame(document.errors, []);
    const resource = document.toJS() as Resource | null;
    if (resource) found.set(`${resource.kind} ${resource.metadata.name}`, resource);
  }
  return found;
}

function merge(one: Values, other: Values): Values {
  const merged: Values = { ...one };
  for (const [name, value] of Object.entries(other)) {
    const before = one[name];
    const nested = isRecord(before) && isRecord(value);
    merged[name] = nested ? merge(before, value) : value;
  }
  return merged;
}

function isRecord(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** `if`, `if not`, `range`, `end`, and values with `quote`, `default` and `toYaml | nindent`. */
function carryOut(text: string, root: Values): string {
  const tokens = text.split(/(\s*\{\{-[^}]*\}\}|\{\{[^}]*\}\})/);
  let position = 0;
  const block = (scope: Values, isShown: boolean): string => {
    let output = '';
    while (position < tokens.length) {
      const token = tokens[position++] ?? '';
      const action = /\{\{-?\s*(.*?)\s*\}\}$/.exec(token)?.[1];
      if (action === undefined) output += token;
      else if (action === 'end') return isShown ? output : '';
      else if (action.startsWith('if ')) output += block(scope, holds(action.slice(3), scope));
      else if (action.startsWith('range ')) output += repeat(action, scope, block);
      else output += evaluate(action, scope);
    }
    return isShown ? output : '';
  };
  const repeat = (action: string, scope: Values, body: typeof block): string => {
    const [, key = '', value = '', path = ''] = /^range (\$\w+), (\$\w+) := (\S+)$/.exec(action) ?? [];
    const start = position;
    const pieces = Object.entries(lookUp(path, scope) as Values)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, each]) => {
        position = start;
        return body({ ...scope, [key]: name, [value]: each }, true);
      });
    return pieces.join('');
  };
  return block(root, true);
}

function holds(condition: string, scope: Values): boolean {
  return condition.startsWith('not ') ? !holds(condition.slice(4), scope) : Boolean(lookUp(condition, scope));
}

function evaluate(action: string, scope: Values): string {
  const [first = '', ...filters] = action.split(' | ');
  let value = lookUp(first.replace(/^toYaml /, ''), scope);
  if (first.startsWith('toYaml ')) value = stringify(value).trimEnd();
  for (const filter of filters) {
    const [name, argument = ''] = filter.split(' ');
    if (name === 'quote') value = JSON.stringify(String(value));
    else if (name === 'default') value = value || lookUp(argument, scope);
    else if (name === 'nindent') value = `\n${String(value).replaceAll(/^/gm, ' '.repeat(Number(argument)))}`;
    else throw new Error(`the test does not know ${filter}`);
  }
  return String(value);
}

function lookUp(path: string, scope: Values): unknown {
  if (path.startsWith('$')) return scope[path];
  if (!/^(\.\w+)+$/.test(path)) throw new Error(`the test does not know ${path}`);
  let value: unknown = scope;
  for (const name of path.slice(1).split('.')) {
    if (!isRecord(value) || !(name in value)) throw new Error(`values.yaml has no ${path}`);
    value = value[name];
  }
  return value;
}

function containerOf<Container>(resources: ReadonlyMap<string, Resource>): Container | undefined {
  const containers: unknown = resources.get('Deployment api')?.spec['template']?.['spec']?.['containers'];
  return Array.isArray(containers) ? containers[0] : undefined;
}

const MATCHED = { 'app.kubernetes.io/name': 'lateral', 'app.kubernetes.io/instance': 'api' };

t.test('the deployment is unprivileged, read-only and checked by the admin listener', async (t) => {
  const resources = await render();
  t.strictSame([...resources.keys()].sort(), [
    'Deployment api',
    'PodDisruptionBudget api',
    'Service api',
    'Service api-admin',
  ]);
  const deployment = resources.get('Deployment api');
  const pod = deployment?.spec['template']?.['spec'];
  const container = containerOf<Tree>(resources);
  t.match(pod?.['securityContext'], { runAsNonRoot: true, runAsUser: 1000 });
  t.strictSame(container?.['securityContext'], {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  });
  t.equal(container?.['image'], `lateral:${packageVersion}`, 'the image is of this version');
  t.equal(chart['version'], packageVersion);
  for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
    t.equal(container?.[probe]?.['httpGet']?.['port'], 'admin');
  t.equal(container?.['readinessProbe']?.['httpGet']?.['path'], '/server/ready');
  t.match(container?.['volumeMounts'], [{ mountPath: '/tmp' }], 'what is written goes to /tmp');
  t.equal(deployment?.spec['replicas'], 2);
  t.match(deployment?.spec['selector']?.['matchLabels'], MATCHED);
  t.match(deployment?.spec['template']?.['metadata']?.['labels'], MATCHED);
  t.match(resources.get('Service api')?.spec['selector'], MATCHED);
  t.match(resources.get('PodDisruptionBudget api')?.spec, { minAvailable: 1, selector: { matchLabels: MATCHED } });
  const grace = Number(pod?.['terminationGracePeriodSeconds']);
  t.ok(grace > Number(initial['drainDelay']) + Number(initial['shutdownTimeout']), 'the stop has its time');
});

t.test('the options that it sets exist', async (t) => {
  const resources = await render({ options: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' } });
  const container = containerOf<{ readonly env: readonly { readonly name: string; readonly value: string }[] }>(
    resources,
  );
  const known = new Set(options.rows().map(({ name }) => name));
  for (const { name, value } of container?.env ?? []) {
    t.ok(known.has(name), name);
    t.type(value, 'string', `${name} is a text, as Kubernetes wants it`);
  }
  t.match(container?.env.at(-1), { name: 'WORKERS', value: '1' });
  t.ok(container?.env.some(({ value }) => value === 'http://collector:4318'));
});

t.test('parts that are off by default can be turned on', async (t) => {
  const resources = await render({
    autoscaling: { enabled: true },
    ingress: { enabled: true, className: 'nginx', tlsSecretName: 'tls' },
    serviceMonitor: true,
    nodeSelector: { disk: 'fast' },
    tolerations: [{ key: 'a', operator: 'Exists' }],
  });
  const scaler = resources.get('HorizontalPodAutoscaler api')?.spec;
  t.match(scaler, { scaleTargetRef: { kind: 'Deployment', name: 'api' }, minReplicas: 2, maxReplicas: 6 });
  t.match(scaler?.['metrics'], [
    { type: 'Pods', pods: { metric: { name: 'lateral_pool_waiting' } } },
    { type: 'Resource' },
  ]);
  t.notOk('replicas' in (resources.get('Deployment api')?.spec ?? {}), 'the autoscaler alone decides how many');
  t.match(resources.get('Ingress api')?.spec, { ingressClassName: 'nginx', tls: [{ secretName: 'tls' }] });
  t.match(
    resources.get('ServiceMonitor api')?.spec['selector']?.['matchLabels'],
    resources.get('Service api-admin')?.metadata.labels,
  );
  t.match(resources.get('Deployment api')?.spec['template']?.['spec'], {
    nodeSelector: { disk: 'fast' },
    tolerations: [{ key: 'a' }],
  });
  const metrics = await readFile(packagePath('docs', 'metrics.md'), 'utf8');
  t.match(metrics, /lateral_pool_waiting/);
});

t.test('the schema of the values knows each of them, and no other', async (t) => {
  interface Schema {
    readonly properties?: Record<string, Schema>;
    readonly additionalProperties?: unknown;
  }
  const schema = JSON.parse(await readFile(join(folder, 'values.schema.json'), 'utf8')) as Schema;
  const compare = (known: Schema, given: Values, place: string): void => {
    if (known.additionalProperties !== false) return;
    const names = Object.keys(known.properties ?? {}).filter((name) => name !== 'global');
    t.strictSame(names.sort(), Object.keys(given).sort(), place);
    for (const [name, value] of Object.entries(given))
      if (isRecord(value)) compare(known.properties?.[name] ?? {}, value, `${place}.${name}`);
  };
  compare(schema, initial, 'values');
});

t.test('helm reads it', { skip: helm === null && 'helm is not installed' }, async (t) => {
  await t.resolves(run('helm', ['lint', '--strict', folder]));
  const { stdout } = await run('helm', ['template', 'api', folder, '--set', 'autoscaling.enabled=true']);
  t.match(stdout, /HorizontalPodAutoscaler/);
});
