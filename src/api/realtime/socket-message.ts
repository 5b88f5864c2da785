/** A message of a client, which is one JSON object in every protocol over WebSockets. */
import { isObject, parseJson } from '../../base/exact-json.js';
import type { Input } from '../../request/parse-context.js';

/** `refuse` makes the error of what is no such object. */
export function readMessage(text: string, refuse: (reason: string) => Error): Input {
  let message: unknown;
  try {
    message = parseJson(text);
  } catch (error) {
    if (error instanceof RangeError) throw error;
    throw refuse('The message is not valid JSON');
  }
  if (!isObject(message)) throw refuse('The message must be an object');
  return message;
}
