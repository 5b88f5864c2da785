/** How many items an answer holds: found in its bytes, because PostgreSQL writes all of them as one cell. */

/** Of a longer answer only its beginning is read: the rest is taken to be like it. */
const MAX_READ_BYTES = 65_536;

const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c];
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];

/** `{"meta":{...},"data":[...]}`, `{"data":{...}}`, or of an operation of GraphQL `{"data":{"articles":[...],"tags_by_id":{...}}}`. */
export function countRows(answer: Buffer | null, isOperation: boolean): number {
  if (answer === null) return 0;
  const end = Math.min(answer.length, MAX_READ_BYTES);
  const level = isOperation ? 3 : 2;
  let depth = 0;
  let rows = 0;
  let inList = false;
  let hasLists = false;
  let objects = 0;
  for (let at = 0; at < end; at++) {
    const byte = answer[at];
    if (byte === QUOTE) at = endOfString(answer, at + 1, end);
    else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) {
      depth++;
      if (depth === level) {
        inList = byte === OPEN_ARRAY;
        if (!inList) objects++;
        else if (answer[at + 1] !== CLOSE_ARRAY) rows++;
        hasLists ||= inList;
      }
    } else if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) depth--;
    else if (byte === COMMA && inList && depth === level) rows++;
  }
  if (isOperation) rows += objects;
  else if (!hasLists) return Math.min(objects, 1);
  return end === answer.length ? rows : Math.round((rows * answer.length) / end);
}

function endOfString(answer: Buffer, start: number, end: number): number {
  let at = start;
  while (at < end && answer[at] !== QUOTE) at += answer[at] === BACKSLASH ? 2 : 1;
  return at;
}
