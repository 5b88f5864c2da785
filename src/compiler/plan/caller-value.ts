/** Values of the caller: a field of the caller's user, role, roles or policies, or of items that these refer to. */
import { forbiddenField } from '../../base/errors.js';
import type { Field, Model } from '../model/model.js';
import { isMasked, restrictionOf, unrestrictedModel } from './access.js';
import type { OperandPlan, ValuePlan } from './plan.js';
import { resolveExpression } from './resolve-names.js';

const CALLER_COLLECTIONS: Readonly<Record<string, string>> = {
  $CURRENT_USER: 'service_users',
  $CURRENT_ROLE: 'service_roles',
  $CURRENT_ROLES: 'service_roles',
  $CURRENT_POLICIES: 'service_policies',
};

/**
 * A field of the caller's user, role, roles or policies. These rows are the caller's own and read with the rights of the
 * service; what their relations lead to is read as the model shows it, which is everything where a stored rule asks.
 */
export function planCaller(
  variable: string,
  path: readonly string[],
  model: Model,
): Extract<ValuePlan, { kind: 'caller' }> {
  const collection = unrestrictedModel(model).collections.get(CALLER_COLLECTIONS[variable] ?? '');
  if (!collection) throw new Error('the model lacks the tables of users');
  const text = `${variable}.${path.join('.')}`;
  // The resolver refuses concealed fields: no caller reads secrets, not even the own.
  const operand = resolveExpression({ path, call: null, text }, collection, { model, location: text, many: true });
  return { kind: 'caller', text, variable, collection, operand: checkBackReference(operand, model, text) };
}

/** Which rows point to the caller's own may be known from the alias field that shows them or from the column that says so. */
function checkBackReference(operand: OperandPlan, model: Model, position: string): OperandPlan {
  const [join] = 'through' in operand ? operand.through : [];
  if (join?.kind === 'one' && !join.field.column && restrictionOf(join.target)) {
    const origin = model.collections.get(join.field.collection);
    const isShown = origin?.fields.has(join.field.name) && !isMasked(origin, join.field);
    const mayKnow = (key: Field): boolean => join.target.fields.has(key.name) && !isMasked(join.target, key);
    if (!isShown && !join.key.every(mayKnow)) throw forbiddenField(join.field.name, join.field.collection, position);
  }
  if (operand.kind !== 'first' || operand.through.length > 0 || !restrictionOf(operand.toMany.collection))
    return operand;
  const { collection, field, via, origin } = operand.toMany;
  const visible = model.collections.get(origin.name);
  if (via && visible?.fields.has(via.name) && !isMasked(visible, via)) return operand;
  if (!collection.fields.has(field.name)) throw forbiddenField(via?.name ?? field.name, origin.name, position);
  return { ...operand, toMany: { ...operand.toMany, via: null } };
}
