/** Types that the compiler cannot see by itself, checked or vouched for in one place. */

/** An element that is known to be there: a missing one is a broken invariant. */
export function elementAt<Element>(list: ArrayLike<Element>, position: number): Element {
  const element = list[position];
  if (element === undefined) throw new Error(`a list of ${list.length} has no element ${position}`);
  return element;
}

/** The element of a list that has exactly one, else null. */
export function onlyOf<Element>(list: readonly Element[]): Element | null {
  return list.length === 1 ? elementAt(list, 0) : null;
}

export function isOneOf<Name>(names: readonly Name[], value: unknown): value is Name {
  const known: readonly unknown[] = names;
  return known.includes(value);
}

/** Any value with properties, such as an error. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

/** The properties of whatever was thrown or sent. */
export function propertiesOf(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

export function asError(value: unknown): Error {
  return value instanceof Error ? value : new Error(String(value));
}

/** The message of whatever was thrown, also of an error that was cloned for another thread. */
export function messageOf(error: unknown): string {
  const { message } = propertiesOf(error);
  return typeof message === 'string' ? message : String(error);
}

/** The code of whatever was thrown, such as an SQLSTATE or `ENOENT`; an empty string if it has none. */
export function codeOf(error: unknown): string {
  return String(propertiesOf(error)['code'] ?? '');
}

/** Whether the promise is fulfilled. */
export function succeeds(work: Promise<unknown>): Promise<boolean> {
  return work.then(
    () => true,
    () => false,
  );
}

/** For `catch` of a promise: throws all errors but those with this code. */
export function unless(code: string): (error: unknown) => undefined {
  return (error) => {
    if (codeOf(error) !== code) throw error;
  };
}

/** JSON of the service itself, made by one of its statements or by another thread: its type is that of its maker. */
export function parseOwnJson<Type>(text: string): Type {
  return JSON.parse(text) as Type;
}

/** In the order in which keys are first met. */
export function groupBy<Entry>(
  entries: readonly Entry[],
  keyOf: (entry: Entry) => string,
): ReadonlyMap<string, Entry[]> {
  const groups = new Map<string, Entry[]>();
  for (const entry of entries) {
    const group = groups.get(keyOf(entry));
    if (group) group.push(entry);
    else groups.set(keyOf(entry), [entry]);
  }
  return groups;
}
