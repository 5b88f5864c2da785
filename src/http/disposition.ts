/** The Content-Disposition header: what a file is called, in ASCII for old clients and in full for all others (RFC 6266). */
export function contentDisposition(kind: 'attachment' | 'inline', name: string): string {
  const plain = name.replace(/[^\w. -]/g, '_');
  const full = plain === name ? '' : `; filename*=UTF-8''${encodeHeader(name.toWellFormed())}`;
  return `${kind}; filename="${plain}"${full}`;
}

/** As RFC 5987 wants it: stricter than a URL. */
function encodeHeader(text: string): string {
  return encodeURIComponent(text).replace(/['()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}
