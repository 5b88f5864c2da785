/**
 * What the routes were asked and how fast they answered. Counted in plain arrays, because every request passes here; they are
 * turned into metrics only when somebody asks.
 */

/** Upper bounds in seconds; what took longer falls into one more bucket. */
export const DURATIONS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

/** The client has left before its answer was written. */
export const LEFT = 499;

export interface Answers {
  /** The how manieth that there were: what was counted first stays first. */
  readonly number: number;
  /** By duration: each request is in one bucket. */
  readonly buckets: Float64Array;
  seconds: number;
}

let created = 0;

export class RouteStats {
  readonly method: string;
  /** As the route names it: what clients put into it is nobody's label. */
  readonly path: string;
  readonly answers = new Map<number, Answers>();

  constructor(method: string, path: string) {
    this.method = method;
    this.path = path;
  }

  count(status: number, milliseconds: number): void {
    let answers = this.answers.get(status);
    if (!answers) {
      answers = { number: ++created, buckets: new Float64Array(DURATIONS.length + 1), seconds: 0 };
      this.answers.set(status, answers);
    }
    const seconds = milliseconds / 1_000;
    let bucket = 0;
    while (bucket < DURATIONS.length && seconds > (DURATIONS[bucket] as number)) bucket++;
    answers.buckets[bucket] = (answers.buckets[bucket] as number) + 1;
    answers.seconds += seconds;
  }
}
