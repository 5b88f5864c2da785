/** The package has no types of its own: these are those of what the tests use. */
declare module 'pg-query-emscripten' {
  interface ParseResult {
    readonly parse_tree: { readonly version: number; readonly stmts: readonly unknown[] };
    readonly error: { readonly message: string; readonly cursorpos: number } | null;
  }

  interface Parser {
    ALLOC_STACK: number;
    parse(text: string): ParseResult;
  }

  const Module: new () => Promise<Parser>;
  // biome-ignore lint/style/noDefaultExport: the package has no other.
  export default Module;
}
