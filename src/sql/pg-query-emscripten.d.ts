declare module 'pg-query-emscripten' {
  const Grammar: new () => unknown;
  // biome-ignore lint/style/noDefaultExport: the package has a default export
  export default Grammar;
}
