/** A plan as a tree: time, estimated and actual rows, buffers. The slowest node is marked. */
import type { JSX } from 'preact';
import type { PlanNode } from './plan';

interface TreeProps {
  readonly node: PlanNode;
  readonly worst: PlanNode;
  /** Milliseconds or cost of the whole plan. */
  readonly whole: number;
  readonly short?: boolean;
}

export function PlanTree({ node, worst, whole, short = false }: TreeProps): JSX.Element {
  return (
    <ul class="plan-tree">
      <PlanItem node={node} worst={worst} whole={whole} short={short} />
    </ul>
  );
}

function PlanItem({ node, worst, whole, short }: TreeProps): JSX.Element {
  const share = whole > 0 ? (node.own ?? node.cost) / whole : 0;
  return (
    <li>
      <div class={`plan-node${node === worst ? ' worst' : ''}`}>
        <div class="plan-head">
          <strong>{node.type}</strong>
          {node.about !== '' && <code>{node.about}</code>}
          {node === worst && <span class="tag warm">{node.own === null ? 'most expensive' : 'slowest'}</span>}
        </div>
        <div class="plan-facts">
          {node.own === null ? (
            <span title="The planner's estimate">cost {node.cost.toLocaleString('en')}</span>
          ) : (
            <span title="Time of this node without its children">{node.own.toFixed(node.own < 10 ? 2 : 0)} ms</span>
          )}
          <span class={isOff(node) ? 'bad' : ''}>
            {node.found === null
              ? `rows: ${rows(node.expected)} expected`
              : `rows: ${rows(node.found)} (${rows(node.expected)} expected)`}
          </span>
          {node.loops > 1 && <span>{rows(node.loops)} loops</span>}
          {node.buffers && (
            <span title="Pages of 8 kB, found in the cache of PostgreSQL or read by it">{node.buffers}</span>
          )}
          {node.own !== null && (
            <meter aria-label="Share of the time" min={0} max={1} value={Math.min(1, share)}>
              {Math.round(share * 100)} %
            </meter>
          )}
        </div>
        {!short && node.details.map((detail) => <code key={detail}>{detail}</code>)}
      </div>
      {node.children.length > 0 && (
        <ul>
          {node.children.map((child, at) => (
            <PlanItem key={at} node={child} worst={worst} whole={whole} short={short ?? false} />
          ))}
        </ul>
      )}
    </li>
  );
}

function isOff({ found, expected, type }: PlanNode): boolean {
  if (found === null || type === 'Limit') return false;
  return Math.max(found, expected) / Math.max(1, Math.min(found, expected)) >= 100;
}

function rows(count: number): string {
  return Math.round(count).toLocaleString('en');
}
