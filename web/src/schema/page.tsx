/** Model: the collections and their relations as a diagram, and the fields of one, which administrators can change. */
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Collection, Model } from '../model';
import { go, href, mayAdminister, model as modelSignal, route } from '../state';
import { Button, countOf, Empty, Menu } from '../ui';
import { CheckList } from './checks';
import { ChangeCollection, CreateCollection, DeleteCollection } from './collection-form';
import { Drawing } from './drawing';
import { FieldList } from './fields';
import { Functions } from './functions';
import { IndexList } from './indexes';
import { makeDiagram, neighbours } from './layout';
import './schema.css';
import { SuggestedRelations } from './suggestions';

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
          <span class="quiet count">{countOf(own.length, 'collection')}</span>
          {!chosen && own.length > 0 && (
            <span class="quiet small tip">
              {mayAdminister.value ? 'Choose one to see, add and change its fields' : 'Choose one to see its fields'}
            </span>
          )}
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
              <ul class="offers">
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
          <div class="actions">
            {chosen && (
              <Button
                label="Neighbours only"
                icon="filter"
                pressed={isFocused}
                onClick={() => choose(name, !isFocused)}
                hint="Show this collection and those it is related to"
              />
            )}
            {mayAdminister.value && <SuggestedRelations />}
            <Functions />
            {mayAdminister.value && (
              <Button label="New collection" icon="plus" kind="primary" onClick={() => setCreating(true)} />
            )}
          </div>
        </header>
        {own.length === 0 ? (
          <Empty title="No collections yet" icon="table">
            {mayAdminister.value && 'Press New collection to create a table.'}
          </Empty>
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
  const [open, setOpen] = useState<'change' | 'delete' | null>(null);
  return (
    <aside class="details model-side" aria-label={`Collection ${collection.name}`}>
      <header>
        <h2>{collection.name}</h2>
        <span class="grow" />
        <Button label="Data" kind="quiet" onClick={() => go(href('data', [collection.name]))} />
        <Button label="Query" kind="quiet" onClick={() => go(href('query', [collection.name]))} />
        {mayAdminister.value && !collection.system && (
          <Menu
            label={`Change ${collection.name}`}
            icon="more"
            kind="quiet"
            compact
            entries={[
              { label: 'Note, singleton', onClick: () => setOpen('change') },
              { label: 'Delete the collection', icon: 'trash', danger: true, onClick: () => setOpen('delete') },
            ]}
          />
        )}
        <Button label="Close" icon="close" kind="quiet" compact onClick={props.onClose} />
      </header>
      {open === 'change' && <ChangeCollection collection={collection} onClose={() => setOpen(null)} />}
      {open === 'delete' && (
        <DeleteCollection collection={collection} onClose={() => setOpen(null)} onDone={props.onClose} />
      )}
      {collection.note && <p class="quiet">{collection.note}</p>}
      <FieldList collection={collection} model={props.model} />
      {mayAdminister.value && !collection.isView && (
        <>
          <IndexList key={`indexes of ${collection.name}`} collection={collection} />
          <CheckList key={`checks of ${collection.name}`} collection={collection} />
        </>
      )}
    </aside>
  );
}
