/** The parts of the package's functions. The package has types of these functions alone. */
declare module 'libpg-query/wasm/libpg-query.js' {
  /** Pointers are numbers. */
  export interface Grammar {
    readonly HEAPU8: { readonly buffer: ArrayBuffer };
    _malloc(size: number): number;
    _free(pointer: number): void;
    _wasm_parse_query_raw(text: number): number;
    _wasm_free_parse_result(result: number): void;
  }

  const load: () => Promise<Grammar>;
  // biome-ignore lint/style/noDefaultExport: the package has no other.
  export default load;
}
