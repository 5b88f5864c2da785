/** The diagram: drag or scroll to move it, zoom with the buttons or with Ctrl and the wheel, and walk through it with the arrow keys. */
import type { JSX, RefObject } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Field } from '../model';
import { Button } from '../ui';
import type { Box, Diagram } from './layout';

interface DrawingProps {
  readonly diagram: Diagram;
  readonly chosen: string;
  readonly onChoose: (name: string) => void;
}

interface View {
  readonly x: number;
  readonly y: number;
  readonly scale: number;
}

const CLOSEST = 2;
const LONGEST = 23;
const FARTHEST = 0.05;
/** Below this scale the names in boxes are unreadable. */
const READABLE = 0.65;

export function Drawing({ diagram, chosen, onChoose }: DrawingProps): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const moved = useRef(false);
  const { view, show, zoom, fitAll } = useView(frame, diagram, chosen);
  const drag = (event: PointerEvent): void => {
    if ((event.target as Element).closest('button')) return;
    const begun = view;
    moved.current = false;
    followPointer(event, (right, down) => {
      moved.current = true;
      show(() => ({ ...begun, x: begun.x - right / begun.scale, y: begun.y - down / begun.scale }));
    });
  };
  const choose = (name: string): void => {
    if (!moved.current) onChoose(name);
    moved.current = false;
  };
  /** Only one box is in the tab order; the arrow keys lead to the others. */
  const walk = (event: KeyboardEvent, box: Box): void => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      onChoose(box.collection.name);
      return;
    }
    const next = nearest(diagram.boxes, box, event.key);
    if (!next) return;
    event.preventDefault();
    show((now) => bringIn(diagram, next.collection.name, now, frame.current));
    const place = diagram.boxes.indexOf(next);
    frame.current?.querySelectorAll<SVGGElement>('.box')[place]?.focus();
  };
  // A diagram of hundreds of boxes is not drawn again while it moves.
  const content = useMemo(
    () => <Content diagram={diagram} chosen={chosen} onChoose={choose} onKey={walk} />,
    [diagram, chosen, onChoose],
  );
  return (
    <div class={`drawing${diagram.frames.length > 0 ? ' large' : ''}`} ref={frame} onPointerDown={drag}>
      <svg width="100%" height="100%" role="group" aria-label="Diagram of the collections">
        <g transform={`scale(${view.scale}) translate(${-view.x} ${-view.y})`}>{content}</g>
      </svg>
      <div class="zoom">
        <Button label="Zoom in" icon="plus" compact onClick={() => zoom(1.25)} />
        <Button label="Zoom out" icon="minus" compact onClick={() => zoom(0.8)} />
        <Button label="Fit" onClick={fitAll} />
      </div>
    </div>
  );
}

type Frame = RefObject<HTMLDivElement | null>;

interface Point {
  readonly x: number;
  readonly y: number;
}

interface Views {
  readonly view: View;
  /** Moves the diagram as the user wants it. */
  readonly show: (next: (now: View) => View) => void;
  readonly zoom: (factor: number, at?: Point) => void;
  readonly fitAll: () => void;
}

/** The visible part of the diagram. */
function useView(frame: Frame, diagram: Diagram, chosen: string): Views {
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const drawn = useRef<Diagram | null>(null);
  /** Until the user moves the diagram, all of it stays visible, also next to the fields of the selected collection. */
  const isWhole = useRef(true);
  const fit = (): View => {
    isWhole.current = true;
    return fitted(diagram, frame.current);
  };
  const show: Views['show'] = (next) => {
    isWhole.current = false;
    setView(next);
  };
  const zoom: Views['zoom'] = (factor, at) => show((now) => zoomed(now, frame.current, factor, at));
  useEffect(() => {
    const start = drawn.current === diagram && !isWhole.current ? view : fit();
    drawn.current = diagram;
    setView(bringIn(diagram, chosen, start, frame.current));
  }, [chosen, diagram]);
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    // The window changes its size, or a telephone is turned.
    const observer = new ResizeObserver(() => {
      if (isWhole.current) setView(bringIn(diagram, chosen, fit(), element));
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [chosen, diagram]);
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const onWheel = (event: WheelEvent): void => {
      event.preventDefault();
      const { left, top } = element.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey)
        zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, { x: event.clientX - left, y: event.clientY - top });
      else show((now) => ({ ...now, x: now.x + event.deltaX / now.scale, y: now.y + event.deltaY / now.scale }));
    };
    element.addEventListener('wheel', onWheel, { passive: false });
    return () => element.removeEventListener('wheel', onWheel);
  }, []);
  return { view, show, zoom, fitAll: () => setView(fitted(diagram, frame.current, FARTHEST)) };
}

function fitted(diagram: Diagram, frame: HTMLElement | null, least?: number): View {
  const { clientWidth: width = 800, clientHeight: height = 600 } = frame ?? {};
  const whole = Math.min(1, (width - 48) / Math.max(1, diagram.width), (height - 48) / Math.max(1, diagram.height));
  // Frames have titles that are readable at a small scale.
  const scale = Math.max(whole, least ?? (diagram.frames.length > 0 ? FARTHEST : READABLE));
  const spare = Math.max(0, width / scale - diagram.width) / 2;
  return { x: -Math.max(24 / scale, spare), y: -24 / scale, scale };
}

/** The given point, or the centre, stays where it is. */
function zoomed(now: View, frame: HTMLElement | null, factor: number, at?: Point): View {
  const scale = Math.min(CLOSEST, Math.max(FARTHEST, now.scale * factor));
  const { clientWidth = 0, clientHeight = 0 } = frame ?? {};
  const point = at ?? { x: clientWidth / 2, y: clientHeight / 2 };
  return {
    scale,
    x: now.x + point.x / now.scale - point.x / scale,
    y: now.y + point.y / now.scale - point.y / scale,
  };
}

/** Reports the distance from the start, until the pointer is released. */
function followPointer(event: PointerEvent, onMove: (right: number, down: number) => void): void {
  const element = event.currentTarget as HTMLElement;
  const [startX, startY] = [event.clientX, event.clientY];
  let hasMoved = false;
  const move = (now: PointerEvent): void => {
    const [right, down] = [now.clientX - startX, now.clientY - startY];
    // The pointer moves a little during a click.
    if (!hasMoved && Math.abs(right) + Math.abs(down) < 5) return;
    if (!hasMoved) element.setPointerCapture(event.pointerId);
    hasMoved = true;
    onMove(right, down);
  };
  const end = (): void => {
    element.removeEventListener('pointermove', move);
    element.removeEventListener('pointerup', end);
    element.removeEventListener('pointercancel', end);
  };
  element.addEventListener('pointermove', move);
  element.addEventListener('pointerup', end);
  element.addEventListener('pointercancel', end);
}

interface ContentProps extends DrawingProps {
  readonly onKey: (event: KeyboardEvent, box: Box) => void;
}

function Content({ diagram, chosen, onChoose, onKey }: ContentProps): JSX.Element {
  const entry = diagram.boxes.find(({ collection }) => collection.name === chosen) ?? diagram.boxes[0];
  const near = diagram.edges.filter(({ from, to }) => from === chosen || to === chosen);
  return (
    <>
      {diagram.frames.map((each) => (
        <g key={each.name} class="frame">
          <rect x={each.x} y={each.y} width={each.width} height={each.height} rx={10} />
          <text x={each.x + 18} y={each.y + 44}>
            {clip(each.name, Math.floor((each.width - 36) / 22))}
          </text>
        </g>
      ))}
      <path class="edge" d={diagram.edges.map(({ path }) => path).join('')} />
      {near.map((edge) => (
        <path key={edge.id} d={edge.path} class="edge near" />
      ))}
      {diagram.boxes.map((box) => (
        <g
          key={box.collection.name}
          class={`box${box.collection.name === chosen ? ' chosen' : ''}`}
          transform={`translate(${box.x} ${box.y})`}
          role="button"
          tabindex={box === entry ? 0 : -1}
          aria-pressed={box.collection.name === chosen}
          onClick={() => onChoose(box.collection.name)}
          onKeyDown={(event) => onKey(event, box)}
        >
          <BoxContent box={box} />
        </g>
      ))}
    </>
  );
}

function BoxContent({ box: { collection, fields, width, height } }: { readonly box: Box }): JSX.Element {
  return (
    <>
      {collection.name.length > LONGEST && <title>{collection.name}</title>}
      <rect width={width} height={height} rx={6} />
      <text x={10} y={20} class="box-name">
        {clip(collection.name, LONGEST)}
      </text>
      {fields.map((field, at) => {
        const type = clip(shortType(field), 13);
        return (
          <g key={field.name}>
            <text x={10} y={44 + at * 19} class={field.isKey ? 'box-key' : 'box-field'}>
              {clip(field.name, (field.isKey ? 24 : 27) - type.length)}
            </text>
            <text x={width - 10} y={44 + at * 19} class="box-type">
              {type}
            </text>
          </g>
        );
      })}
      {fields.length > 0 && fields.length < collection.fields.size && (
        <text x={10} y={44 + fields.length * 19} class="box-type start">
          {collection.fields.size - fields.length} more
        </text>
      )}
    </>
  );
}

/** Types without a name in the API, such as arrays, have the name of the database. */
function shortType({ relation, type, column }: Field): string {
  if (relation?.kind === 'one') return `→ ${relation.to}`;
  return type === 'unknown' ? (column?.data_type ?? type) : type;
}

/** The next box in the direction of an arrow key: a box straight ahead counts as nearer. */
function nearest(boxes: readonly Box[], from: Box, key: string): Box | null {
  const [right, down] = DIRECTIONS[key] ?? [0, 0];
  if (right === 0 && down === 0) return null;
  let best: Box | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const box of boxes) {
    const x = box.x + box.width / 2 - from.x - from.width / 2;
    const y = box.y + box.height / 2 - from.y - from.height / 2;
    const ahead = x * right + y * down;
    const aside = Math.abs(x * down) + Math.abs(y * right);
    if (ahead <= 1 || ahead + 3 * aside >= least) continue;
    least = ahead + 3 * aside;
    best = box;
  }
  return best;
}

const DIRECTIONS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
};

/** Moves the view if the selected box would be out of sight or too small to read. */
function bringIn(diagram: Diagram, chosen: string, view: View, frame: HTMLElement | null): View {
  const box = diagram.boxes.find((each) => each.collection.name === chosen);
  if (!box || !frame) return view;
  const [width, height] = [frame.clientWidth / view.scale, frame.clientHeight / view.scale];
  const isIn =
    box.x >= view.x && box.y >= view.y && box.x + box.width <= view.x + width && box.y + 40 <= view.y + height;
  if (isIn && view.scale >= READABLE) return view;
  const scale = Math.max(view.scale, 0.7);
  return {
    scale,
    x: box.x + box.width / 2 - frame.clientWidth / scale / 2,
    y: box.y + box.height / 2 - frame.clientHeight / scale / 2,
  };
}

function clip(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
