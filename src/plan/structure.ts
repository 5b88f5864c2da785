/** An operation on the structure × the model → the steps that carry it out. Pure: the model is the one the steps will meet. */
import type { Model } from '../mirror/model.js';
import type { Operation } from '../request/structure.js';
import type { Step } from './steps.js';
import { planCreateCollection, planDeleteCollection, planUpdateCollection } from './structure-collections.js';
import { planCreateField, planDeleteField, planUpdateField } from './structure-fields.js';
import { planCreateRelation, planDeleteRelation, planUpdateRelation } from './structure-relations.js';

/** What belongs to the service itself. */
export interface Protected {
  /** Whether a field of a system collection is one of ours; others are the user's own. */
  isSystemField(collection: string, field: string): boolean;
  /** Whether a table of the service is called so. */
  isSystemTable(collection: string): boolean;
}

export function planOperation(operation: Operation, model: Model, ours: Protected): readonly Step[] {
  switch (operation.kind) {
    case 'create-collection':
      return planCreateCollection(operation, model);
    case 'update-collection':
      return planUpdateCollection(operation.collection, operation.meta, model);
    case 'delete-collection':
      return planDeleteCollection(operation.collection, model, ours);
    case 'create-field':
      return planCreateField(operation.collection, operation.definition, model);
    case 'update-field':
      return planUpdateField(operation.collection, operation.definition, model, ours);
    case 'delete-field':
      return planDeleteField(operation.collection, operation.field, model, ours);
    case 'create-relation':
      return planCreateRelation(operation, model, ours);
    case 'update-relation':
      return planUpdateRelation(operation, model, ours);
    case 'delete-relation':
      return planDeleteRelation(operation.collection, operation.field, model, ours);
  }
}
