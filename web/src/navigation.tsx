/** The navigation: a link for each page, a menu for each group of pages, and on narrow screens one menu for all. */
import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { type Page, shownPages } from './pages';
import { addressOfPage, route } from './state';
import { Icon, type IconName, Popover } from './ui';

const narrow = matchMedia('(max-width: 979px)');
const isNarrow = signal(narrow.matches);
narrow.addEventListener('change', ({ matches }) => {
  isNarrow.value = matches;
});

interface Entry {
  readonly label: string;
  readonly pages: readonly Page[];
}

/** A group stands where its last page is. A group of one page is that page. */
function entriesOf(pages: readonly Page[]): Entry[] {
  return pages.flatMap((page, at): Entry[] => {
    const together = pages.filter(({ group }) => group !== undefined && group === page.group);
    if (together.length < 2) return [{ label: page.title, pages: [page] }];
    return pages.lastIndexOf(together.at(-1) as Page) === at ? [{ label: page.group ?? '', pages: together }] : [];
  });
}

export function Navigation(): JSX.Element {
  const shown = shownPages();
  const current = shown.find(({ name }) => name === route.value.page);
  const entries = entriesOf(shown);
  return (
    <nav aria-label="Pages">
      {isNarrow.value ? (
        <PageMenu label={current?.title ?? 'Pages'} icon="menu" entries={entries} isCurrent={false} />
      ) : (
        entries.map((entry) => {
          const [first] = entry.pages;
          return entry.pages.length === 1 && first ? (
            <PageLink key={entry.label} page={first} />
          ) : (
            <PageMenu
              key={entry.label}
              label={entry.label}
              entries={[entry]}
              isCurrent={current !== undefined && entry.pages.includes(current)}
            />
          );
        })
      )}
    </nav>
  );
}

function PageLink({ page, onClick }: { readonly page: Page; readonly onClick?: () => void }): JSX.Element {
  return (
    <a
      href={addressOfPage(page.name)}
      aria-current={route.value.page === page.name ? 'page' : undefined}
      onClick={() => onClick?.()}
    >
      {page.title}
    </a>
  );
}

interface PageMenuProps {
  readonly label: string;
  readonly icon?: IconName;
  readonly entries: readonly Entry[];
  readonly isCurrent: boolean;
}

function PageMenu({ label, icon, entries, isCurrent }: PageMenuProps): JSX.Element {
  const anchor = useRef<HTMLButtonElement>(null);
  const [open, setOpen] = useState(false);
  const close = (): void => setOpen(false);
  return (
    <>
      <button
        type="button"
        class={`nav-menu${isCurrent ? ' current' : ''}`}
        aria-expanded={open}
        ref={anchor}
        onClick={() => setOpen(!open)}
      >
        {icon && <Icon name={icon} />}
        <span>{label}</span>
        <Icon name="down" />
      </button>
      {open && (
        <Popover anchor={anchor} label={label} onClose={close} width={200}>
          <div class="menu nav-list" onKeyDown={moveFocus}>
            {entries.map(({ label: group, pages }) => (
              <div key={group}>
                {entries.length > 1 && pages.length > 1 && <small>{group}</small>}
                {pages.map((page) => (
                  <PageLink key={page.name} page={page} onClick={close} />
                ))}
              </div>
            ))}
          </div>
        </Popover>
      )}
    </>
  );
}

function moveFocus(event: KeyboardEvent): void {
  const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
  if (step === 0) return;
  event.preventDefault();
  const links = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>('a')];
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[(at + step + links.length) % links.length]?.focus();
}
