/** Model: the collections and their relations as a diagram, and the fields of one, which administrators may change. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Collection, Model } from '../model';
import { go, href, me, model as modelSignal, route } from '../state';
import { Button, Empty } from '../ui';
import { CreateCollection } from './changes';
import { FieldList } from './fields';
import { type Diagram, makeDiagram, neighbours } from './layout';
import './schema.css';

export function ModelPage(): JSX.Element {
  const model = modelSignal.value as Model;
  const [name = ''] = route.value.rest;
  const isFocused = route.value.parameters.get('focus') === 'true';
  const [typed, setTyped] = useState('');
  const [creating, setCreating] = useState(false);
  const own = useMemo(() => [...model.values()].filter((each) => !each.system), [model]);
  const diagram = useMemo(() => {
    const near = isFocused && model.has(name) ? neighbours(model, name) : null;
    return makeDiagram(near ? [...model.values()].filter((each) => near.has(each.name)) : own);
  }, [model, isFocused, isFocused ? name : '']);
  const chosen = model.get(name);
  const wanted = typed.trim().toLowerCase();
  const found = wanted === '' ? [] : own.filter((each) => each.name.toLowerCase().includes(wanted));
  const choose = (next: string, focus = isFocused): void => go(href('model', [next], focus ? { focus: 'true' } : {}));
  return (
    <div class={`model${chosen ? ' with-side' : ''}`}>
      <section class="model-main">
        <header class="toolbar model-bar">
          <h1>Model</h1>
          <span class="quiet">{own.length} collections</span>
          <span class="grow" />
          <div class="model-search">
            <input
              type="search"
              aria-label="Find a collection"
              placeholder="Find a collection"
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
              onKeyDown={(event) => {
                const [first] = found;
                if (event.key !== 'Enter' || !first) return;
                choose(first.name);
                setTyped('');
              }}
            />
            {found.length > 0 && (
              <ul>
                {found.slice(0, 12).map((each) => (
                  <li key={each.name}>
                    <button
                      type="button"
                      onClick={() => {
                        choose(each.name);
                        setTyped('');
                      }}
                    >
                      {each.name}
                    </button>
                  </li>
                ))}
              </ul>
            )}
          </div>
          {chosen && (
            <Button
              label="Neighbours only"
              pressed={isFocused}
              onClick={() => choose(name, !isFocused)}
              hint="Show this collection and those it is related to"
            />
          )}
          {me.value?.administrator && (
            <Button label="New collection" icon="plus" kind="primary" onClick={() => setCreating(true)} />
          )}
        </header>
        {own.length === 0 ? (
          <Empty title="No collections yet" icon="table" />
        ) : (
          <Drawing diagram={diagram} chosen={name} onChoose={choose} />
        )}
      </section>
      {chosen && <Side collection={chosen} model={model} onClose={() => go(href('model'))} />}
      {creating && <CreateCollection onClose={() => setCreating(false)} onMade={(made) => choose(made)} />}
    </div>
  );
}

function Side(props: {
  readonly collection: Collection;
  readonly model: Model;
  readonly onClose: () => void;
}): JSX.Element {
  const { collection } = props;
  return (
    <aside class="model-side" aria-label={`Collection ${collection.name}`}>
      <header>
        <h2>{collection.name}</h2>
        <span class="grow" />
        <Button label="Data" kind="quiet" onClick={() => go(href('data', [collection.name]))} />
        <Button label="Query" kind="quiet" onClick={() => go(href('query', [collection.name]))} />
        <Button label="Close" icon="close" kind="quiet" compact onClick={props.onClose} />
      </header>
      {collection.note && <p class="quiet">{collection.note}</p>}
      <FieldList collection={collection} model={props.model} />
    </aside>
  );
}

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

function Drawing({ diagram, chosen, onChoose }: DrawingProps): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const fitted = (): View => {
    const { clientWidth: width = 800, clientHeight: height = 600 } = frame.current ?? {};
    const scale = Math.min(1, (width - 48) / Math.max(1, diagram.width), (height - 48) / Math.max(1, diagram.height));
    const readable = Math.max(scale, 0.28);
    return { x: -24 / readable, y: -24 / readable, scale: readable };
  };
  const drawn = useRef<Diagram | null>(null);
  useEffect(() => {
    const start = drawn.current === diagram ? view : fitted();
    drawn.current = diagram;
    setView(bringIn(diagram, chosen, start, frame.current));
  }, [chosen, diagram]);
  const zoom = (factor: number, at?: { readonly x: number; readonly y: number }): void =>
    setView((now) => {
      const scale = Math.min(2, Math.max(0.1, now.scale * factor));
      const { clientWidth = 0, clientHeight = 0 } = frame.current ?? {};
      const point = at ?? { x: clientWidth / 2, y: clientHeight / 2 };
      return {
        scale,
        x: now.x + point.x / now.scale - point.x / scale,
        y: now.y + point.y / now.scale - point.y / scale,
      };
    });
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const onWheel = (event: WheelEvent): void => {
      event.preventDefault();
      const { left, top } = element.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey)
        zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, { x: event.clientX - left, y: event.clientY - top });
      else setView((now) => ({ ...now, x: now.x + event.deltaX / now.scale, y: now.y + event.deltaY / now.scale }));
    };
    element.addEventListener('wheel', onWheel, { passive: false });
    return () => element.removeEventListener('wheel', onWheel);
  }, []);
  const drag = (event: PointerEvent): void => {
    if ((event.target as Element).closest('[role=button], button')) return;
    const element = event.currentTarget as HTMLElement;
    element.setPointerCapture(event.pointerId);
    const [startX, startY] = [event.clientX, event.clientY];
    const begun = view;
    const move = (moved: PointerEvent): void =>
      setView({
        ...begun,
        x: begun.x - (moved.clientX - startX) / begun.scale,
        y: begun.y - (moved.clientY - startY) / begun.scale,
      });
    element.addEventListener('pointermove', move);
    element.addEventListener('pointerup', () => element.removeEventListener('pointermove', move), { once: true });
  };
  return (
    <div class="drawing" ref={frame} onPointerDown={drag}>
      <svg width="100%" height="100%" role="group" aria-label="Diagram of the collections">
        <g transform={`scale(${view.scale}) translate(${-view.x} ${-view.y})`}>
          {diagram.edges.map((edge) => (
            <path
              key={edge.id}
              d={edge.path}
              class={`edge${edge.from === chosen || edge.to === chosen ? ' near' : ''}`}
            />
          ))}
          {diagram.boxes.map((box) => (
            <g
              key={box.collection.name}
              class={`box${box.collection.name === chosen ? ' chosen' : ''}`}
              transform={`translate(${box.x} ${box.y})`}
              role="button"
              tabindex={0}
              aria-pressed={box.collection.name === chosen}
              onClick={() => onChoose(box.collection.name)}
              onKeyDown={(event) => event.key === 'Enter' && onChoose(box.collection.name)}
            >
              <rect width={box.width} height={box.height} rx={6} />
              <text x={10} y={20} class="box-name">
                {clip(box.collection.name, 25)}
              </text>
              {box.fields.map((field, at) => (
                <g key={field.name}>
                  <text x={10} y={44 + at * 19} class={field.isKey ? 'box-key' : 'box-field'}>
                    {clip(field.name, 18)}
                  </text>
                  <text x={box.width - 10} y={44 + at * 19} class="box-type">
                    {clip(field.relation?.kind === 'one' ? `→ ${field.relation.to}` : field.type, 13)}
                  </text>
                </g>
              ))}
              {box.fields.length > 0 && box.fields.length < box.collection.fields.size && (
                <text x={10} y={44 + box.fields.length * 19} class="box-type start">
                  {box.collection.fields.size - box.fields.length} more
                </text>
              )}
            </g>
          ))}
        </g>
      </svg>
      <div class="zoom">
        <Button label="Zoom in" icon="plus" compact onClick={() => zoom(1.25)} />
        <Button label="Zoom out" icon="minus" compact onClick={() => zoom(0.8)} />
        <Button label="Fit" onClick={() => setView(fitted())} />
      </div>
    </div>
  );
}

/** Moved, where the chosen one would be out of sight. */
function bringIn(diagram: Diagram, chosen: string, view: View, frame: HTMLElement | null): View {
  const box = diagram.boxes.find((each) => each.collection.name === chosen);
  if (!box || !frame) return view;
  const [width, height] = [frame.clientWidth / view.scale, frame.clientHeight / view.scale];
  const isIn =
    box.x >= view.x && box.y >= view.y && box.x + box.width <= view.x + width && box.y + 40 <= view.y + height;
  if (isIn) return view;
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
