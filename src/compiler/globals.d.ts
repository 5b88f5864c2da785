/**
 * The globals that the compiler may use besides those of the language. They are pure. The library `DOM` of TypeScript would also declare
 * `fetch`, and the types of Node also `process`.
 */

interface TextEncoder {
  encode(text?: string): Uint8Array<ArrayBuffer>;
  encodeInto(text: string, target: Uint8Array): { readonly read: number; readonly written: number };
}
declare const TextEncoder: { new (): TextEncoder };

interface TextDecoder {
  decode(bytes?: ArrayBuffer | ArrayBufferView): string;
}
declare const TextDecoder: {
  new (encoding?: string, options?: { readonly fatal?: boolean; readonly ignoreBOM?: boolean }): TextDecoder;
};

interface URLSearchParams extends Iterable<[string, string]> {
  get(name: string): string | null;
  getAll(name: string): string[];
  set(name: string, value: string): void;
  toString(): string;
}
declare const URLSearchParams: { new (query?: string): URLSearchParams };

declare function structuredClone<Value>(value: Value): Value;
