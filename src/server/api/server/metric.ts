/** Metrics as Prometheus knows them, and how a thread makes one. */

/** As prom-client writes a metric as JSON. */
export interface Metric {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram' | 'summary';
  /** How the values of several threads become one. */
  readonly aggregator: string;
  readonly values: readonly Value[];
}

export interface Value {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
}

export function labelled(type: 'counter' | 'gauge', name: string, help: string, values: readonly Value[]): Metric {
  return { name, help, type, aggregator: 'sum', values };
}

export function counter(name: string, help: string, value: number): Metric {
  return labelled('counter', name, help, [{ labels: {}, value }]);
}

export function gauge(name: string, help: string, value: number): Metric {
  return labelled('gauge', name, help, [{ labels: {}, value }]);
}

export function byLabel(label: string, numbers: Readonly<Record<string, number>>): Value[] {
  return Object.entries(numbers).map(([name, value]) => ({ labels: { [label]: name }, value }));
}

interface Histogram {
  readonly bounds: readonly number[];
  readonly buckets: Float64Array;
  readonly sum: number;
}

/** Prometheus expects each bucket to include those below it. */
export function histogramValues(name: string, { bounds, buckets, sum }: Histogram, labels: Value['labels']): Value[] {
  let count = 0;
  const values = [...buckets].map((number, position): Value => {
    count += number;
    return { metricName: `${name}_bucket`, labels: { le: bounds[position] ?? '+Inf', ...labels }, value: count };
  });
  return [
    ...values,
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: count },
  ];
}
