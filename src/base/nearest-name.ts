/** The known name that a misspelt one probably means, for error messages. */

/** Longer names are not compared: it would cost, and columns have at most 63 bytes. */
const LONGEST = 63;

/** The most similar name, or null if none is similar. `names` must hold only names that the caller may see. */
function nearestName(name: string, names: Iterable<string>): string | null {
  if (name.length > LONGEST) return null;
  let nearest: string | null = null;
  let least = name.length < 3 ? 1 : Math.min(2, Math.floor(name.length / 3)) + 0.5;
  for (const each of names) {
    if (each === name || Math.abs(each.length - name.length) > least) continue;
    const distance = each.toLowerCase() === name.toLowerCase() ? 0.5 : distanceOf(name, each);
    if (distance < least || (distance === least && nearest === null)) {
      nearest = each;
      least = distance;
    }
  }
  return nearest;
}

/** Characters to insert, delete, replace, or exchange with the next one. */
export function distanceOf(left: string, right: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: right.length + 1 }, (_, column) => column);
  for (let row = 1; row <= left.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const isSame = left[row - 1] === right[column - 1];
      const isExchanged = left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1];
      current[column] = Math.min(
        (previous[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (previous[column - 1] ?? 0) + (isSame ? 0 : 1),
        row > 1 && column > 1 && isExchanged ? (before[column - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    before = previous;
    previous = current;
  }
  return previous[right.length] ?? 0;
}

/** The suggestion at the end of an error message. */
export function didYouMean(name: string, names: Iterable<string>): string {
  const nearest = nearestName(name, names);
  return nearest === null ? '' : ` Did you mean "${nearest}"?`;
}
