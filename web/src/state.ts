/** The state that all pages share: the user, the schema, the address, the theme, and short messages. */
import { computed, effect, signal } from '@preact/signals';
import { ApiError, call, expectSession, messageOf, setView, takeToken } from './api';
import { haveCollectionsChanged, isSameModel, loadModel, type Model } from './model';

export interface Me {
  readonly id: string;
  readonly email: string;
  readonly administrator: boolean;
}

/** The user: undefined until it is known, null if nobody is logged in. */
export const me = signal<Me | null | undefined>(undefined);
/** The reason why the user is unknown. */
export const startError = signal<string | null>(null);
export const model = signal<Model | null>(null);

export interface View {
  readonly value: string;
  readonly label: string;
}

/** The caller whose permissions an administrator views, or null for their own. */
export const viewAs = signal<View | null>(null);
/** Whether the caller may change the schema, policies and everything else that administrators may change. */
export const mayAdminister = computed(() => me.value?.administrator === true && viewAs.value === null);

export async function viewWith(view: View): Promise<void> {
  model.value = null;
  viewAs.value = view;
  setView(view.value);
  await reloadModel();
}

export async function stopViewing(): Promise<void> {
  model.value = null;
  viewAs.value = null;
  setView(null);
  await reloadModel();
}
export const modelError = signal<string | null>(null);

export async function findOut(): Promise<void> {
  // Sent together with the request for the user. A user who may not read it only gets a short refusal.
  const loading = loadModel();
  loading.catch(() => {});
  try {
    const [user, globals] = await Promise.all([
      call<{ id: string; email?: string }>('GET', '/users/me?fields=id,email', { own: true }),
      call<{ admin_access?: boolean }>('GET', '/policies/me/globals', { own: true }),
    ]);
    startError.value = null;
    if (lastUser !== null && lastUser !== user.data.id) forgetAll();
    lastUser = user.data.id;
    expectSession(true);
    me.value = {
      id: user.data.id,
      email: user.data.email ?? user.data.id,
      administrator: globals.data.admin_access === true,
    };
    await takeModel(loading);
  } catch (error) {
    const isRefused = error instanceof ApiError && (error.status === 401 || error.status === 403);
    if (isRefused) me.value = null;
    else startError.value = messageOf(error);
  }
}

/** A user who logs in again after the session has expired continues where they were. Another user does not. */
let lastUser: string | null = null;

export function sessionExpired(): void {
  expectSession(false);
  me.value = null;
  model.value = null;
  modelError.value = null;
}

export function reloadModel(): Promise<void> {
  return takeModel(loadModel());
}

const MODEL_INTERVAL_MS = 10_000;

/** Reloads the schema if other programs or users change it, until the returned function is called. */
export function keepModel(): () => void {
  let isReading = false;
  let checkedAt = Date.now();
  const check = async (isWhole: boolean): Promise<void> => {
    if (isReading || document.visibilityState !== 'visible' || !model.value || !me.value) return;
    isReading = true;
    const [before, view] = [model.value, viewAs.value];
    try {
      if (isWhole || (await haveCollectionsChanged())) {
        checkedAt = Date.now();
        const loaded = await loadModel();
        const isCurrent = model.value === before && viewAs.value === view;
        if (isCurrent && !isSameModel(before, loaded)) model.value = loaded;
      }
    } catch {
      // The next request of the page reports it.
    }
    isReading = false;
  };
  const interval = setInterval(() => void check(false), MODEL_INTERVAL_MS);
  // Fields may have changed while the user was elsewhere.
  const onFocus = (): void => void check(Date.now() - checkedAt > MODEL_INTERVAL_MS);
  addEventListener('focus', onFocus);
  return () => {
    clearInterval(interval);
    removeEventListener('focus', onFocus);
  };
}

async function takeModel(loading: Promise<Model>): Promise<void> {
  try {
    model.value = await loading;
    modelError.value = null;
  } catch (error) {
    modelError.value = messageOf(error);
  }
}

export async function logOut(): Promise<void> {
  await call('POST', '/auth/logout', { body: { mode: 'session' } }).catch(() => {});
  takeToken(null);
  forgetAll();
  sessionExpired();
}

const forgetting: (() => void)[] = [];

/** The memory of a page belongs to the user who was logged in. */
export function whenForgotten(forget: () => void): void {
  forgetting.push(forget);
}

function forgetAll(): void {
  for (const forget of forgetting) forget();
  leftAt.clear();
  toasts.value = [];
  viewAs.value = null;
  setView(null);
}

/** The address: `#/data/articles?sort=-views`. */
export interface Route {
  readonly page: string;
  readonly rest: readonly string[];
  readonly parameters: URLSearchParams;
}

const hash = signal(location.hash);
addEventListener('hashchange', () => {
  clearTimeout(writing);
  writing = undefined;
  hash.value = location.hash;
});

export const route = computed<Route>(() => {
  const [path = '', query = ''] = splitOnce(hash.value.replace(/^#\/?/, ''), '?');
  const [page = '', ...rest] = path.split('/').map(decode);
  return { page: page === '' ? 'data' : page, rest, parameters: new URLSearchParams(query) };
});

export function href(page: string, rest: readonly string[] = [], parameters: Record<string, string> = {}): string {
  const path = [page, ...rest].map(encodeURIComponent).join('/');
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== '')).toString();
  return `#/${path}${query === '' ? '' : `?${query}`}`;
}

/** The last address of each page, while the document lives. */
const leftAt = new Map<string, string>();
effect(() => {
  leftAt.set(route.value.page, hash.value);
});

/** The last address of a page, or at first the collection that is currently shown. */
export function addressOfPage(name: string): string {
  const { page, rest } = route.value;
  if (page === name) return href(name);
  const [collection = ''] = rest;
  const isOfCollection = (name === 'query' || name === 'model') && model.value?.has(collection);
  return leftAt.get(name) ?? href(name, isOfCollection ? [collection] : []);
}

export function go(address: string, replace = false): void {
  if (address === hash.value) return;
  if (!replace) {
    writeAddress();
    location.hash = address;
    return;
  }
  hash.value = address;
  // The address changes with each typed key, but browsers refuse hundreds of changes in a few seconds.
  writing ??= setTimeout(writeAddress, 300);
}

let writing: ReturnType<typeof setTimeout> | undefined;

/** Updates the address of the browser. */
export function writeAddress(): void {
  if (writing === undefined) return;
  clearTimeout(writing);
  writing = undefined;
  history.replaceState(null, '', hash.value);
}
addEventListener('pagehide', writeAddress);
addEventListener('pointerdown', writeAddress, true);

function splitOnce(text: string, mark: string): [string, string] {
  const at = text.indexOf(mark);
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export type Theme = 'system' | 'light' | 'dark';

export const theme = signal<Theme>(readTheme());
const darkScheme = matchMedia('(prefers-color-scheme: dark)');
const prefersDark = signal(darkScheme.matches);
darkScheme.addEventListener('change', ({ matches }) => {
  prefersDark.value = matches;
});
export const isDark = computed(() => (theme.value === 'system' ? prefersDark.value : theme.value === 'dark'));
effect(() => {
  document.documentElement.dataset['theme'] = isDark.value ? 'dark' : 'light';
});

export function setTheme(chosen: Theme): void {
  theme.value = chosen;
  remember('theme', chosen);
}

function readTheme(): Theme {
  const kept = remembered('theme');
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

/** The browser stores only preferences, never a token or data. */
export function remember(name: string, value: string): void {
  try {
    localStorage.setItem(`lateral.${name}`, value);
  } catch {
    // A browser may forbid storage. Then the preference lasts as long as the page.
  }
}

export function remembered(name: string): string | null {
  try {
    return localStorage.getItem(`lateral.${name}`);
  } catch {
    return null;
  }
}

export interface Toast {
  readonly id: number;
  readonly text: string;
  readonly kind: 'good' | 'bad';
}

export const toasts = signal<readonly Toast[]>([]);
let lastToast = 0;

export function toast(text: string, kind: Toast['kind'] = 'good'): void {
  const id = ++lastToast;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind }];
  setTimeout(() => dismiss(id), kind === 'good' ? 4_000 : 10_000);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}
