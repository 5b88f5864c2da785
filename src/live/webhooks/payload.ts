/** The body of a delivery. */

interface Envelope {
  readonly collection: string;
  readonly event: string;
  /** When the change was made. */
  readonly timestamp: string;
  /** The key as in the path of the item, or null. */
  readonly key: string | null;
}

/** `data` and `previous` are JSON: the item, and for an update the item before. */
export function payloadOf(
  { collection, event, timestamp, key }: Envelope,
  data: string | null,
  previous: string | null,
): string {
  const head = JSON.stringify({ type: `${collection}.${event}`, timestamp, collection, event, key });
  return `${head.slice(0, -1)},"data":${data ?? 'null'}${previous === null ? '' : `,"previous":${previous}`}}`;
}
