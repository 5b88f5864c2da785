/** Behind the last case of a switch: the compiler refuses the call where a kind has no case. */
export function assertNever(value: never): never {
  throw new Error(`unexpected: ${JSON.stringify(value)}`);
}
