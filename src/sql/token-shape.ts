/**
 * A statement without its quoted identifiers and its constants: its tokens. PostgreSQL's grammar reads tokens, so statements of the
 * same tokens have the same tree, whatever the identifiers and constants in it are; a tree has to be made of one of them only.
 * What a lexer could take for something else is not understood here: such a text is read as it is.
 */

interface TokenShape {
  readonly tokens: string;
  /** The quoted identifiers, in their order. */
  readonly identifiers: readonly string[];
}

/** The last alternative is a quote that is never closed. */
const QUOTED = /"(?:[^"]|"")*"|'(?:[^']|'')*'|["']/g;

/** Comments, dollar quotes, and quotes that mean something else behind a letter or `&`. */
const OTHER_TOKENS = /--|\/\*|\$(?![0-9])|\\|[\w&$\u0080-\uffff]['"]|\0/;
const IDENTIFIER = '""';
const CONSTANT = "''";

export function tokenShapeOf(text: string): TokenShape | null {
  const identifiers: string[] = [];
  let isPlain = true;
  const tokens = text.replace(QUOTED, (quoted) => {
    if (quoted.length === 1 || quoted === '""') isPlain = false;
    if (quoted.startsWith("'")) return CONSTANT;
    identifiers.push(quoted.slice(1, -1).replaceAll('""', '"'));
    return IDENTIFIER;
  });
  if (!isPlain || OTHER_TOKENS.test(tokens)) return null;
  return { tokens, identifiers };
}

/** A statement of these tokens, each identifier of which is its number. */
export function numberedText({ tokens }: TokenShape): string {
  let number = 0;
  return tokens.replaceAll(IDENTIFIER, () => `"${MARK}${number++}"`);
}

/** Begins no identifier that stands without quotes. */
const MARK = '%';

/** The name that stood where a numbered statement has this one. */
export function nameIn({ identifiers }: TokenShape, name: string): string {
  return name.startsWith(MARK) ? (identifiers[Number(name.slice(MARK.length))] ?? name) : name;
}
