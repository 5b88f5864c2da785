/** Pulse: the current activity of the service. */
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { ApiError, call } from '../api';
import { usePolling } from '../polling';
import { Empty, ErrorBox } from '../ui';
import { Chart, type Line } from './chart';
import { busiestRoutes, type Figures, type Point, pointOf, type Reading, readMetrics } from './metrics';
import './pulse.css';
import { Shapes } from './shapes';

const EVERY_MS = 2_000;
const COLOURS = ['accent', 'warm', 'bad'];
/** Five minutes. */
const MOST = 150;

/** The answer is null if the service has no metrics. */
async function askMetrics(): Promise<string | null> {
  try {
    return (await call('GET', '/server/metrics')).text;
  } catch (failure) {
    if (failure instanceof ApiError && failure.status === 404) return null;
    throw failure;
  }
}

export function PulsePage(): JSX.Element {
  const [points, setPoints] = useState<readonly Point[]>([]);
  const latest = useRef<Reading | null>(null);
  const [isOff, setOff] = useState(false);
  const take = (text: string | null): boolean => {
    if (text === null) {
      setOff(true);
      return false;
    }
    const reading = { at: Date.now(), samples: readMetrics(text) };
    const point = pointOf(reading, latest.current);
    latest.current = reading;
    setPoints((before) => [...before.slice(-MOST), point]);
    return true;
  };
  const [error] = usePolling({ ask: askMetrics, take, everyMs: EVERY_MS }, []);
  const [first] = points;
  const last = points.at(-1);
  return (
    <>
      <header class="toolbar pulse-bar">
        <h1>Pulse</h1>
        <span class="quiet">
          Updated every two seconds, for the last five minutes, without the requests of this page
        </span>
      </header>
      {isOff ? (
        <Empty title="Metrics are off">Start the service without METRICS=off to see them.</Empty>
      ) : (
        <div class="pulse">
          {error && <ErrorBox text={error} />}
          {first && last && points.length > 1 ? (
            <>
              <Charts compared={points.slice(1)} replicas={[...last.lags.keys()]} />
              <section class="pulse-routes">
                <h2>Slowest statements of the last five minutes</h2>
                <Shapes />
              </section>
              <section class="pulse-routes">
                <h2>Busiest routes</h2>
                <Routes now={last} before={first} />
              </section>
            </>
          ) : (
            !error && <p class="boot">Reading the first figures…</p>
          )}
        </div>
      )}
    </>
  );
}

interface ChartsProps {
  readonly compared: readonly Point[];
  readonly replicas: readonly string[];
}

function Charts({ compared, replicas }: ChartsProps): JSX.Element {
  const times = compared.map(({ at }) => at / 1_000);
  const line = (label: string, colour: string, pick: (figures: Figures) => number | null): Line => ({
    label,
    colour,
    values: compared.map((point) => point.figures && pick(point.figures)),
  });
  const charts: readonly (readonly [title: string, unit: string, lines: readonly Line[]])[] = [
    [
      'Requests',
      'per second',
      [line('all', 'accent', (each) => each.perSecond), line('5xx', 'bad', (each) => each.errorsPerSecond)],
    ],
    ['Latency', 'ms', [line('p50', 'accent', (each) => each.p50), line('p99', 'warm', (each) => each.p99)]],
    ['Reads per statement', 'in a batch', [line('mean', 'accent', (each) => each.batch)]],
    ['Statements', 'per request', [line('mean', 'accent', (each) => each.statements)]],
    [
      'Connections',
      '',
      [line('in use', 'accent', (each) => each.busy), line('waiting', 'bad', (each) => each.waiting)],
    ],
    ['Memory', 'MB', [line('resident', 'accent', (each) => each.megabytes)]],
  ];
  const lags = replicas.map((server, at) => ({
    label: server,
    colour: COLOURS[at % COLOURS.length] ?? 'accent',
    values: compared.map((point) => point.lags.get(server) ?? null),
  }));
  return (
    <div class="charts">
      {charts.map(([title, unit, lines]) => (
        <Chart key={title} title={title} unit={unit} times={times} lines={lines} />
      ))}
      {lags.length > 0 && <Chart title="Replicas" unit="ms behind" times={times} lines={lags} />}
    </div>
  );
}

function Routes({ now, before }: { readonly now: Point; readonly before: Point }): JSX.Element {
  const routes = busiestRoutes(now, before);
  if (routes.length === 0) return <p class="quiet">No requests yet.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Route</th>
          <th scope="col">Requests</th>
          <th scope="col">Refused or failed</th>
        </tr>
      </thead>
      <tbody>
        {routes.map(({ route, requests, errors }) => (
          <tr key={route}>
            <td>
              <code>{route}</code>
            </td>
            <td>{requests.toLocaleString('en')}</td>
            <td class={errors > 0 ? 'bad' : ''}>{errors.toLocaleString('en')}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
