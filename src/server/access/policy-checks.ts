/** Checks of policies and permissions that their columns cannot express. Every way to write them uses these. */
import { invalidPayload } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import type { Model } from '../../compiler/model/model.js';
import { planRule, readRuleFilter, readValidation } from '../../compiler/plan/rules.js';
import type { Payload } from '../../compiler/plan/write/payload-row.js';
import { addressTest } from './addresses.js';

/**
 * A rule that cannot be parsed, or names what does not exist, would allow nothing without an error. Values that the change leaves out are
 * not checked.
 */
export function checkRule({ permissions, validation, presets, ...rest }: Payload, model: Model): void {
  const name = rest['collection'];
  if (rest['action'] === 'execute') {
    checkCall(name, [permissions, validation, presets], model);
    return;
  }
  const collection = typeof name === 'string' ? model.collections.get(name) : undefined;
  if (typeof name === 'string' && !collection && !model.folders.has(name))
    throw invalidPayload(`Collection "${name}" doesn't exist`);
  const [where, valid] = [readRuleFilter(permissions), readValidation(validation)];
  if (where === undefined) throw invalidPayload('"permissions" must be a filter');
  if (valid === undefined) throw invalidPayload('"validation" must be a filter');
  if (presets !== undefined && presets !== null && !isObject(presets))
    throw invalidPayload('"presets" must be an object');
  if (!collection) return;
  for (const [name, filter] of Object.entries({ permissions: where, validation: valid })) {
    if (!planRule(filter, collection, model))
      throw invalidPayload(`"${name}" does not match the fields of "${collection.name}"`);
  }
  const unknownName = Object.keys(presets ?? {}).find((name) => !collection.fields.has(name));
  if (unknownName !== undefined)
    throw invalidPayload(`"presets": "${unknownName}" is not a field of "${collection.name}"`);
}

/** A call has no rows to filter and no payload to validate or fill. */
function checkCall(name: unknown, limits: readonly unknown[], model: Model): void {
  if (typeof name === 'string' && !model.functions.has(name)) throw invalidPayload(`Function "${name}" doesn't exist`);
  const isEmpty = (limit: unknown): boolean => !limit || (isObject(limit) && Object.keys(limit).length === 0);
  if (!limits.every(isEmpty))
    throw invalidPayload('A permission with the action "execute" cannot have "permissions", "validation" or "presets"');
}

/** Refuses addresses that cannot be parsed. Without the error, they would silently match no caller. */
export function checkAddresses({ ip_access: list }: Payload): void {
  addressTest(String(list ?? ''), (entry) => {
    throw invalidPayload(`"ip_access" must contain addresses, networks or ranges, not ${JSON.stringify(entry)}`);
  });
}
