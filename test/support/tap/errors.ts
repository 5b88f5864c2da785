/**
 * Replaces the package `async-hook-domain` in the bundle of tap. To know which test an error belongs to, the package follows every
 * promise of the process, and the service under test makes thousands. Here an uncaught error fails the innermost test that runs.
 */
type Handler = (error: unknown, origin: NodeJS.UncaughtExceptionOrigin) => void;

const running: Domain[] = [];

export class Domain {
  readonly onerror: Handler;

  constructor(onerror: Handler) {
    this.onerror = onerror;
    running.push(this);
    if (running.length === 1) process.on('uncaughtException', failTest);
  }

  destroy(): void {
    const position = running.indexOf(this);
    if (position === -1) return;
    running.splice(position, 1);
    // An error after the last test ends the process with a bad code.
    if (running.length === 0) process.off('uncaughtException', failTest);
  }
}

/** Node raises unhandled rejections as uncaught exceptions of another origin. */
function failTest(error: unknown, origin: NodeJS.UncaughtExceptionOrigin): void {
  running.at(-1)?.onerror(error, origin);
}
