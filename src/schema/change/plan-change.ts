/** An operation on the schema × the model → the steps that carry it out. Pure: the model is the one the steps will meet. */
import { assertNever } from '../../base/assert-never.js';
import type { Model } from '../../mirror/model.js';
import type { Protected } from '../../postgres/catalog/system-tables.js';
import type { DdlStatement } from './ddl-statement.js';
import type { Operation } from './parse.js';
import { planCreateCollection, planDeleteCollection, planUpdateCollection } from './plan-collections.js';
import { planCreateField, planDeleteField, planUpdateField } from './plan-fields.js';
import { planCreateRelation, planDeleteRelation, planUpdateRelation } from './plan-relations.js';

export function planSchemaOperation(
  operation: Operation,
  model: Model,
  protectedTables: Protected,
): readonly DdlStatement[] {
  switch (operation.kind) {
    case 'create-collection':
      return planCreateCollection(operation, model);
    case 'update-collection':
      return planUpdateCollection(operation.collection, operation.meta, model);
    case 'delete-collection':
      return planDeleteCollection(operation.collection, model, protectedTables);
    case 'create-field':
      return planCreateField(operation.collection, operation.definition, model);
    case 'update-field':
      return planUpdateField(operation.collection, operation.definition, model, protectedTables);
    case 'delete-field':
      return planDeleteField(operation.collection, operation.field, model, protectedTables);
    case 'create-relation':
      return planCreateRelation(operation, model, protectedTables);
    case 'update-relation':
      return planUpdateRelation(operation, model, protectedTables);
    case 'delete-relation':
      return planDeleteRelation(operation.collection, operation.field, model, protectedTables);
    default:
      return assertNever(operation);
  }
}
