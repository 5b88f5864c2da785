/**
 * The documents are plain English, and so are the comments and strings of the code. Each pattern is a phrase that readers had
 * to read twice; its second column is what to write instead.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import t from 'tap';
import typescript from 'typescript-api';
import { packagePath } from '../../src/base/package-files.js';
import { type Page, readPages } from './docs/pages.js';

const MAX_PAGE_LINES = 150;
/** One is generated, the other is the map of the whole tree. */
const LONG_PAGES = ['docs/configuration.md', 'docs/architecture.md'];
/** Pages outside of the documentation. */
const OTHER_PAGES = [
  'CHANGELOG.md',
  'bench/guide.md',
  'bench/profile-big-reads.md',
  'bench/profile-latency.md',
  'bench/profile-writes.md',
  'bench/profile.md',
  'bench/report.md',
];
const SOURCES: readonly string[] = ['src', 'bench', 'web/src', 'test/program/docs'];
/** Its strings are the texts of a magazine. */
const NOT_PROSE = ['bench/generate.ts'];

const PHRASES: readonly (readonly [phrase: RegExp, instead: string])[] = [
  [/\bwho(m)?ever\b/i, 'name the subject: the caller, the client, another program'],
  [/\b(of|to|for|by|with) who\b/i, 'name the subject: the caller, the subscriber'],
  [/\b(is|are|was|were|be|been) told\b|\btold (of|by|to|that)\b/i, 'send, report, notify'],
  [/\btells?\b/i, 'send, report, show'],
  [/\banew\b/i, 'again, from the beginning'],
  [/\bmend(s|ed|ing)?\b/i, 'fix'],
  [/\b(is|are|was|be) (over|gone)\b/i, 'deleted, expired, closed, lost'],
  [/\bin any case\b/i, 'always'],
  [/\bno matter\b/i, 'say it positively'],
  [/\bnothing but\b|\bno other than\b|\bany ?more\b(?! than)/i, 'say it positively: only, no longer'],
  [/\bthose of others\b|\bthat of others\b/i, "other users' items"],
  [/\bbeside\b/i, 'next to, compared with, in addition to'],
  [/\bwhat is said of\b/i, 'follows the same rules'],
  [/\bsomebody else\b/i, 'another user, another program'],
  [/\b(hands?|handed) on\b/i, 'pass'],
  [/\bcounts? for\b/i, 'apply to'],
  [/\blook(s|ed)? at\b/i, 'check, read'],
  [/\bof (ours|theirs)\b/i, 'name the owner: of the service, of Directus'],
  [/(?<!= |^)\b(null|false|undefined|empty|none) where\b/i, 'null if, or null if'],
  [/\bthat (is|are) there\b/i, 'that exists, existing'],
];
/** A sentence that begins with one of these words has no named subject, unless it is a question. */
const BEGINNINGS = [
  /^(who|whom|whose|what|whoever|null where|null if|null for|the same for|likewise|so many|those (of|that|on|over|who))\b/i,
  /^Of\b/,
];

/** A block, or lines that follow each other. */
const COMMENT = /^[ \t]*(?:\/\*[\s\S]*?\*\/|(?:\/\/.*\n[ \t]*)+)/gm;

interface Passage {
  readonly place: string;
  readonly text: string;
}

t.test('documents use plain English', async (t) => {
  const pages = [...(await readPages()), ...(await Promise.all(OTHER_PAGES.map(readPage)))];
  t.strictSame(
    pages.flatMap(({ path, text }) => complaintsOf(proseOf(path, text))),
    [],
  );
});

t.test('comments and strings use plain English', async (t) => {
  t.strictSame(complaintsOf(await readPassages(SOURCES)), []);
});

t.test('titles of tests have a subject', async (t) => {
  const sample = "it('what is it', f); it('whatnot', f); it(\n  `Who is it`, f);".replaceAll('it(', 't.test(');
  t.strictSame(untitled('a.test.ts', sample), ['a.test.ts: "what is it"', 'a.test.ts: "Who is it"']);
  const files = (await listSources('test')).filter((path) => path.endsWith('.ts'));
  const found = files.map(async (path) => untitled(path, await readFile(packagePath(path), 'utf8')));
  t.strictSame((await Promise.all(found)).flat(), []);
});

/** Titles that begin with "who" or "what": `An unreachable host is an error` names its subject. */
function untitled(path: string, text: string): string[] {
  const titles = text.matchAll(/\btest\(\s*(['"`])((?:who|whom|whose|what|whoever|whatever)\b.*?)\1/gi);
  return [...titles].map(([, , title]) => `${path}: "${title}"`);
}

t.test('each file begins with a sentence about its purpose', async (t) => {
  const files = await listSources('src');
  const texts = await Promise.all(files.map((path) => readFile(packagePath(path), 'utf8')));
  t.strictSame(
    files.filter((_, index) => !/^(#!.*\n)?\/\*\*/.test(texts[index] ?? '')),
    [],
  );
});

t.test('pages of the documentation are short', async (t) => {
  const long = (await readPages()).filter(
    ({ path, text }) => !LONG_PAGES.includes(path) && text.trimEnd().split('\n').length > MAX_PAGE_LINES,
  );
  t.strictSame(
    long.map(({ path }) => path),
    [],
  );
});

t.test('phrases are found in documents and in code', async (t) => {
  const page = 'Who asks is told.\n\nWhat is it? It is over.\n\n```sh\nwho\n```\n\nWrite `anew`, and\nmend it.\n';
  t.strictSame(complaintsOf(proseOf('page.md', page)), [
    'page.md: "Who asks is told": begins with "Who"',
    'page.md: "Who asks is told": "is told": send, report, notify',
    'page.md: "It is over": "is over": deleted, expired, closed, lost',
    'page.md: "Write `…`, and mend it": "mend": fix',
  ]);
  const code =
    "// Whoever asks.\nconst a = 'what';\nconst b = 'Unknown key, whatever it is';\nthrow new E('Who may not is told');\n";
  t.match(complaintsOf(passagesOf('a.ts', code)), [
    /"Whoever asks": begins with "Whoever"/,
    /"Whoever asks": "Whoever"/,
    /"Who may not is told": begins with "Who"/,
    /"Who may not is told": "is told"/,
  ]);
  t.strictSame(complaintsOf(passagesOf('a.ts', '/** Null where nothing is. */\nexport {};')), [
    'a.ts:1: "Null where nothing is": begins with "Null where"',
  ]);
  t.match(complaintsOf(passagesOf('a.ts', '/** Those of it. So many rows. Likewise. */\nexport {};')), [
    /begins with "Those of"/,
    /begins with "So many"/,
    /begins with "Likewise"/,
  ]);
  const union =
    'type A =\n  /** Of a row. The same for it. Null if none. */\n  | 1\n  // One line, and\n  // anew.\n  | 2;\n';
  t.match(complaintsOf(passagesOf('a.ts', union)), [
    /^a.ts:2: "Of a row": begins with "Of"/,
    /begins with "The same for"/,
    /begins with "Null if"/,
    /^a.ts:4: "One line, and anew": "anew"/,
  ]);
});

/** Paragraphs, list items and cells of tables, without code and links. The generated table is checked where it is written, in src/server/config. */
function proseOf(path: string, text: string): Passage[] {
  const prose = text
    .replaceAll(/^\s*```[\s\S]*?^\s*```$/gm, '')
    .replaceAll(/<!-- options -->[\s\S]*?<!-- \/options -->/g, '')
    .replaceAll(/`[^`]*`/g, '`…`')
    .replaceAll(/\]\([^)]*\)/g, ']');
  return prose
    .split(/\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=\|)|\n(?=#)|\|/)
    .map((block) => block.replaceAll(/\s+/g, ' ').trim())
    .filter((block) => block !== '')
    .map((block) => ({ place: path, text: block.replace(/^(?:[-*#]+|\d+\.) /, '') }));
}

/** Comments on lines of their own, and strings that are sentences. */
function passagesOf(path: string, text: string): Passage[] {
  const file = typescript.createSourceFile(path, text, typescript.ScriptTarget.Latest, true);
  const placeOf = (position: number): string => `${path}:${file.getLineAndCharacterOfPosition(position).line + 1}`;
  const found: Passage[] = [];
  for (const { 0: comment, index } of text.matchAll(COMMENT)) {
    found.push({ place: placeOf(index + comment.search(/\S/)), text: commentText(comment.trim()) });
  }
  const visit = (node: typescript.Node): void => {
    if (isText(node) && node.text.includes(' ')) found.push({ place: placeOf(node.getStart()), text: node.text });
    typescript.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

function isText(node: typescript.Node): node is typescript.LiteralLikeNode {
  return typescript.isStringLiteralLike(node) || typescript.isTemplateLiteralToken(node) || typescript.isJsxText(node);
}

function commentText(comment: string): string {
  const lines = comment.replace(/^\/\*+|\*+\/$/g, '').split('\n');
  return lines
    .map((line) => line.trim().replace(/^(\/\/+|\*)\s*/, ''))
    .join(' ')
    .replaceAll(/`[^`]*`/g, '`…`')
    .trim();
}

function complaintsOf(passages: readonly Passage[]): string[] {
  return passages.flatMap(({ place, text }) => sentencesOf(text).flatMap((sentence) => judge(place, sentence)));
}

function sentencesOf(text: string): string[] {
  return text.split(/(?<=[.!?])\s+(?=[\p{Lu}`*"])/u);
}

function judge(place: string, sentence: string): string[] {
  if (sentence.endsWith('?')) return [];
  const plain = sentence.replace(/[.!:]+$/, '');
  const where = `${place}: "${plain.length > 100 ? `${plain.slice(0, 100)}…` : plain}"`;
  const beginning = BEGINNINGS.map((pattern) => pattern.exec(plain)?.[0]).find((found) => found !== undefined);
  const phrases = PHRASES.flatMap(([phrase, instead]) => {
    const found = phrase.exec(plain)?.[0];
    return found === undefined ? [] : [`${where}: "${found}": ${instead}`];
  });
  return beginning === undefined ? phrases : [`${where}: begins with "${beginning}"`, ...phrases];
}

async function readPassages(paths: readonly string[]): Promise<Passage[]> {
  const files = (await Promise.all(paths.map(listSources))).flat();
  const passages = files.map(async (path) => passagesOf(path, await readFile(packagePath(path), 'utf8')));
  return (await Promise.all(passages)).flat();
}

async function readPage(path: string): Promise<Page> {
  return { path, text: await readFile(packagePath(path), 'utf8') };
}

async function listSources(path: string): Promise<string[]> {
  if (/\.tsx?$/.test(path)) return [path];
  const entries = await readdir(packagePath(path), { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name));
  const found = files.map((entry) => relative(packagePath(), join(entry.parentPath, entry.name)));
  return found.filter((name) => !NOT_PROSE.includes(name)).sort();
}
