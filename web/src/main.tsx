/** The Explorer: a shell with the navigation, and the page that the address names. */
import { type ComponentType, type JSX, render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { messageOf, whenLoggedOut } from './api';
import { ChoosePassword } from './choose-password';
import { keepFocus } from './focus';
import { Login } from './login';
import { Navigation } from './navigation';
import { shownPages } from './pages';
import { Palette, paletteOpen } from './palette';
import { PublicBoard } from './public-board';
import {
  findOut,
  go,
  href,
  isDark,
  logOut,
  me,
  model,
  modelError,
  reloadModel,
  route,
  sessionExpired,
  setTheme,
  startError,
  theme,
  toast,
  viewAs,
} from './state';
import './style.css';
import { Button, Empty, ErrorBox, Menu, Toasts } from './ui';
import { ViewAsBanner, ViewAsChoice } from './view-as';

whenLoggedOut(sessionExpired);
keepFocus();
void findOut();

function App(): JSX.Element {
  const known = me.value;
  if (route.value.page === 'choose-password')
    return (
      <>
        <ChoosePassword />
        <Toasts />
      </>
    );
  if (known === undefined && startError.value)
    return (
      <main class="page-pad">
        <ErrorBox text={startError.value} onRetry={() => void findOut()} />
      </main>
    );
  if (known === undefined) return <p class="boot">Loading…</p>;
  if (known === null)
    return (
      <>
        <PublicBoard otherwise={<Login />} />
        <Toasts />
      </>
    );
  return (
    <>
      <a class="skip" href="#content" onClick={focusContent}>
        Skip to the content
      </a>
      <Header />
      <ViewAsBanner />
      <main id="content" tabIndex={0}>
        <Content />
      </main>
      <Palette />
      <Toasts />
    </>
  );
}

function focusContent(event: Event): void {
  event.preventDefault();
  document.getElementById('content')?.focus();
}

type Account = typeof import('./account')['AccountDialog'];

function Header(): JSX.Element {
  const [Account, setAccount] = useState<Account | null>(null);
  const openAccount = (): void =>
    void import('./account').then(
      (loaded) => setAccount(() => loaded.AccountDialog),
      (error: unknown) => toast(messageOf(error), 'bad'),
    );
  return (
    <header class="bar">
      <a class="brand" href="#/data" aria-label="Lateral Explorer">
        <img src="explorer/icon.svg" alt="" width="22" height="22" />
        <span>Lateral</span>
      </a>
      <Navigation />
      <div class="bar-end">
        <ViewAsChoice />
        <button type="button" class="button palette-button" onClick={() => (paletteOpen.value = true)}>
          <span>Go to</span> <kbd>Ctrl K</kbd>
        </button>
        <Button
          label={isDark.value ? 'Use the light theme' : 'Use the dark theme'}
          icon={isDark.value ? 'sun' : 'moon'}
          kind="quiet"
          compact
          onClick={() => setTheme(isDark.value ? 'light' : 'dark')}
        />
        <Menu
          label={`Account: ${me.value?.email}`}
          icon="user"
          kind="quiet"
          compact
          entries={[
            { label: me.value?.email ?? '', icon: 'user' as const, disabled: true, onClick: () => {} },
            { label: 'Your account', icon: 'key' as const, onClick: openAccount },
            ...(theme.value === 'system'
              ? []
              : [{ label: 'Use the theme of the system', onClick: () => setTheme('system') }]),
            { label: 'Reload the schema', icon: 'refresh' as const, onClick: () => void reloadModel() },
            { label: 'Log out', onClick: () => void logOut() },
          ]}
        />
        {Account && <Account onClose={() => setAccount(null)} />}
      </div>
    </header>
  );
}

const loaded = new Map<string, ComponentType>();

function Content(): JSX.Element {
  const { page: name } = route.value;
  const page = shownPages().find((each) => each.name === name);
  const [, setShown] = useState('');
  const [failure, setFailure] = useState<string | null>(null);
  useEffect(() => {
    document.title = `${page?.title ?? 'Not found'} · Lateral`;
    setFailure(null);
    if (!page || loaded.has(name)) return;
    let left = false;
    page.load().then(
      (component) => {
        loaded.set(name, component);
        if (!left) setShown(name);
      },
      (error: unknown) => {
        if (!left) setFailure(messageOf(error));
      },
    );
    return () => {
      left = true;
    };
  }, [page]);
  const isHidden = page === undefined && viewAs.value !== null;
  useEffect(() => {
    if (isHidden) go(href('data'), true);
  }, [isHidden]);
  if (!page)
    return (
      <Empty title="There is no such page" icon="search">
        <a href="#/data">Go to the data</a>
      </Empty>
    );
  if (modelError.value)
    return (
      <div class="page-pad">
        <ErrorBox text={`The schema cannot be read: ${modelError.value}`} onRetry={() => void reloadModel()} />
        <p class="quiet">
          Reading the schema requires a policy with app access, or the permission to read collections, fields and
          relations.
        </p>
      </div>
    );
  if (failure) return <ErrorBox text={`The page could not be loaded: ${failure}`} onRetry={() => location.reload()} />;
  const Shown = loaded.get(name);
  if (!Shown || !model.value) return <p class="boot">Loading…</p>;
  // Another view is another page, and keeps nothing of the previous one.
  return <Shown key={viewAs.value?.value ?? ''} />;
}

const root = document.getElementById('app');
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
