/** DATABASE_SETTINGS: settings that the transactions of a caller have under names of their own. */
import type { Option } from './option-kinds.js';

/** Where the value of a setting comes from. */
type SettingSource =
  | { readonly kind: 'claim'; readonly path: readonly [name: string, ...members: string[]] }
  /** The id of the caller in `service_users`, or of the caller's role in `service_roles`. */
  | { readonly kind: 'user' | 'role' }
  | { readonly kind: 'text'; readonly text: string };

export interface DatabaseSetting {
  readonly name: string;
  readonly source: SettingSource;
}

export function databaseSettings(about: string): Option<readonly DatabaseSetting[]> {
  return { initial: '', about, parse: parseSettings };
}

/** An entry ends at a comma outside of quotation marks. */
const ENTRY = /\s*((?:"[^"]*"|[^",])*?)\s*(,|$)/y;

function parseSettings(text: string): readonly DatabaseSetting[] {
  const settings: DatabaseSetting[] = [];
  const names = new Set<string>();
  const entry = new RegExp(ENTRY);
  for (let isLast = text.trim() === ''; !isLast; ) {
    const rest = text.slice(entry.lastIndex);
    const match = entry.exec(text);
    if (match === null) throw malformed(rest);
    const setting = parseSetting(match[1] ?? '');
    if (names.has(setting.name.toLowerCase())) throw new Error(`${setting.name} is set twice`);
    names.add(setting.name.toLowerCase());
    settings.push(setting);
    isLast = match[2] === '';
  }
  return settings;
}

function parseSetting(entry: string): DatabaseSetting {
  const [, name, source] = /^([^=\s]+)\s*=\s*(.+)$/s.exec(entry) ?? [];
  if (name === undefined || source === undefined) throw malformed(entry);
  checkName(name);
  return { name, source: parseSource(name, source) };
}

function malformed(entry: string): Error {
  return new Error(`must look like app.tenant=claim:tenant,app.user=user, not "${entry}"`);
}

/** The service sets these itself. */
const OWN = /^(request\.(jwt\.claims|method|path)$|lateral\.|service\.)/i;

function checkName(name: string): void {
  if (!name.includes('.'))
    throw new Error(`"${name}" must have a dot in it, such as app.${/^\w+$/.test(name) ? name : 'tenant'}`);
  if (name.length > MAX_NAME || !/^[a-z_]\w*(\.[a-z_]\w*)+$/i.test(name))
    throw new Error(`"${name}" must be names of letters, digits and "_" with dots in between`);
  if (OWN.test(name)) throw new Error(`${name} is set by the service: choose another name`);
  // PostgreSQL reserves these names as soon as a session has called a function of PL/pgSQL.
  if (/^plpgsql\./i.test(name)) throw new Error(`${name} is reserved for PL/pgSQL: choose another name`);
}

const MAX_NAME = 200;

function parseSource(name: string, source: string): SettingSource {
  if (source === 'user' || source === 'role') return { kind: source };
  const [, kind, value = ''] = /^(claim|text):\s*(.*)$/s.exec(source) ?? [];
  if (kind === 'text') return { kind, text: unquoted(value) };
  const [first, ...members] = kind === 'claim' ? parsePath(value) : [];
  if (first === undefined) throw new Error(`"${source}" of ${name} must be claim:NAME, user, role or text:VALUE`);
  return { kind: 'claim', path: [first, ...members] };
}

/** Names with dots between them. A name with dots in it stands in quotation marks. Nothing if the text is no such path. */
function parsePath(text: string): string[] {
  if (!/^("[^"]+"|[^".\s]+)(\.("[^"]+"|[^".\s]+))*$/.test(text)) return [];
  return [...text.matchAll(/"[^"]+"|[^".]+/g)].map(([part]) => unquoted(part));
}

function unquoted(text: string): string {
  return /^"[^"]*"$/.test(text) ? text.slice(1, -1) : text;
}
