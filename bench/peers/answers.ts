/**
 * Whether two responses carry the same data. Each service wraps and names things differently, so this compares the texts of the rows and
 * how often each occurs. Each row has a title, so it compares the number of rows too.
 */
const COMPARED = new Set(['title', 'name', 'body', 'status', 'text', 'url', 'caption', 'quote', 'who', 'count']);

export function isSameData(one: unknown, other: unknown): boolean {
  const texts = textsOf(one);
  return texts.length > 0 && texts.join('\n') === textsOf(other).join('\n');
}

function textsOf(document: unknown): readonly string[] {
  const texts: string[] = [];
  collect(document, texts);
  return texts.sort();
}

function collect(node: unknown, texts: string[]): void {
  if (typeof node !== 'object' || node === null) return;
  for (const [name, value] of Object.entries(node)) {
    if (typeof value === 'object') collect(value, texts);
    else if (COMPARED.has(name)) texts.push(`${name}: ${value}`);
  }
}
