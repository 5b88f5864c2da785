/**
 * The `tap` that test files import in dist. In a process that runs several files, `t` is the test of the file that runs now: its
 * teardowns are called when that file ends.
 */
import root, { type Test } from 'tap';

declare global {
  /** Set by test/group.ts. */
  var testFile: Test | undefined;
}

export * from 'tap';

// biome-ignore lint/style/noDefaultExport: test files import the default export of tap
export default new Proxy({} as Test, {
  get(_, name) {
    const test = globalThis.testFile ?? root;
    const value = Reflect.get(test, name, test);
    return typeof value === 'function' ? value.bind(test) : value;
  },
  set: (_, name, value) => Reflect.set(globalThis.testFile ?? root, name, value),
});
