/**
 * Keeps the focus during requests. A browser takes the focus from a control that is disabled, as buttons are while their request runs.
 * Afterwards the control gets it back, or the control that replaced it.
 */

/** A control that was disabled while it had the focus. */
interface Lost {
  readonly control: HTMLElement;
  /** Its ancestors, the closest first, each with the position of the branch that leads to the control. */
  readonly ancestors: readonly (readonly [Element, number])[];
}

let focused: HTMLElement | null = null;
let lost: Lost | null = null;
/** The last control that got the focus from here. */
let given: HTMLElement | null = null;

/** Watches the whole document, for all buttons, inputs and dialogs of all pages. */
export function keepFocus(): void {
  document.addEventListener('focusin', ({ target }) => {
    lost = null;
    focused = target instanceof HTMLElement ? target : null;
  });
  document.addEventListener('focusout', ({ target }) => {
    // The user left it. A window that goes to the background keeps its focus.
    if (target === focused && isUsable(focused) && document.hasFocus()) focused = null;
  });
  document.addEventListener('pointerdown', () => {
    lost = null;
  });
  document.addEventListener('keydown', (event) => {
    // A key that is held down pressed the former button, and must not press the next one.
    if (event.repeat && event.key === 'Enter' && event.target === given) event.preventDefault();
  });
  const observer = new MutationObserver(check);
  observer.observe(document, { subtree: true, childList: true, attributeFilter: ['disabled'] });
}

function check(): void {
  if (focused === null) return;
  if (lost === null && focused.isConnected && focused.matches(':disabled')) lose(focused);
  if (lost === null || !isNowhere(lost.control)) return;
  const next = lost.control.isConnected ? lost.control : replacementOf(lost);
  if (isUsable(next)) {
    given = next;
    // An error may have been scrolled into view.
    next.focus({ preventScroll: true });
  } else if (next !== null && next !== lost.control) lose(next);
}

function lose(control: HTMLElement): void {
  lost = { control, ancestors: ancestorsOf(control) };
}

function isUsable(element: HTMLElement | null): element is HTMLElement {
  return element?.isConnected === true && !element.matches(':disabled');
}

/** Whether the focus was lost and is not anywhere else. The browser may still report the disabled control. */
function isNowhere(control: HTMLElement): boolean {
  const { activeElement } = document;
  return activeElement === null || activeElement === document.body || activeElement === control;
}

function ancestorsOf(control: HTMLElement): Lost['ancestors'] {
  const ancestors: [Element, number][] = [];
  let branch: Element = control;
  for (let parent = branch.parentElement; parent !== null; parent = parent.parentElement) {
    ancestors.push([parent, [...parent.children].indexOf(branch)]);
    branch = parent;
  }
  return ancestors;
}

const CONTROLS = 'button, a[href], [tabindex="0"]';
const USABLE = `:is(${CONTROLS}):not(:disabled)`;

/**
 * The control that is now where the removed one was, or the closest one. A control that is in its place, but is disabled, may wait for the
 * same request. At last it is the content of the page.
 */
function replacementOf({ ancestors }: Lost): HTMLElement | null {
  const content = document.getElementById('content');
  const left = ancestors.filter(([ancestor]) => ancestor.isConnected && !ancestor.contains(content));
  for (const [level, [ancestor, position]] of left.entries()) {
    const found = closest(USABLE, ancestor, position) ?? (level === 0 ? closest(CONTROLS, ancestor, position) : null);
    if (found !== null) return found;
  }
  return content;
}

function closest(selector: string, ancestor: Element, position: number): HTMLElement | null {
  const branches = [...ancestor.children];
  const following = branches.slice(position);
  const preceding = branches.slice(0, position).reverse();
  for (const branch of [...following, ...preceding]) {
    const found = branch.matches(selector) ? branch : branch.querySelector(selector);
    if (found instanceof HTMLElement) return found;
  }
  return null;
}
