/**
 * The caller's GraphQL schema, loaded type by type: the schema of a large database has tens of thousands of types, and an editor needs a
 * few.
 */
import { call } from '../../api';

export interface TypeReference {
  readonly kind: string;
  readonly name: string | null;
  readonly ofType?: TypeReference | null;
}

export interface InputValue {
  readonly name: string;
  readonly description: string | null;
  readonly type: TypeReference;
}

export interface OutputField extends InputValue {
  readonly args: readonly InputValue[];
}

export interface NamedType {
  readonly kind: string;
  readonly name: string;
  readonly description: string | null;
  readonly fields: readonly OutputField[] | null;
  readonly inputFields: readonly InputValue[] | null;
  readonly enumValues: readonly { readonly name: string; readonly description: string | null }[] | null;
  readonly possibleTypes: readonly { readonly name: string }[] | null;
}

export type Operation = 'query' | 'mutation';

const REFERENCE = 'kind name ofType { kind name ofType { kind name ofType { kind name } } }';
const TYPE = `query ($name: String!) { __type(name: $name) { kind name description
  fields { name description args { name description type { ${REFERENCE} } } type { ${REFERENCE} } }
  inputFields { name description type { ${REFERENCE} } }
  enumValues { name description } possibleTypes { name } } }`;
const ROOTS = '{ __schema { queryType { name } mutationType { name } } }';

export class Types {
  readonly #endpoint: string;
  readonly #known = new Map<string, Promise<NamedType | null>>();
  #roots: Promise<Readonly<Record<Operation, string | null>>> | null = null;

  constructor(endpoint: string) {
    this.#endpoint = endpoint;
  }

  roots(): Promise<Readonly<Record<Operation, string | null>>> {
    this.#roots ??= this.#ask<{ __schema: Record<'queryType' | 'mutationType', { name: string } | null> }>(ROOTS).then(
      ({ __schema: { queryType, mutationType } }) => ({
        query: queryType?.name ?? null,
        mutation: mutationType?.name ?? null,
      }),
    );
    return this.#roots;
  }

  type(name: string): Promise<NamedType | null> {
    const known = this.#known.get(name);
    if (known) return known;
    const asked = this.#ask<{ __type: NamedType | null }>(TYPE, { name }).then(({ __type }) => __type);
    this.#known.set(name, asked);
    asked.catch(() => this.#known.delete(name));
    return asked;
  }

  async #ask<Data>(query: string, variables = {}): Promise<Data> {
    const { data } = await call<Data>('POST', this.#endpoint, { body: { query, variables } });
    return data;
  }
}

/** The type inside lists and exclamation marks. */
export function namedOf(type: TypeReference): string {
  let inner: TypeReference = type;
  while (inner.ofType) inner = inner.ofType;
  return inner.name ?? '';
}

/** As it is written in a document: `[articles!]!`. */
export function writtenType({ kind, name, ofType }: TypeReference): string {
  const inner = ofType ? writtenType(ofType) : (name ?? '');
  return kind === 'NON_NULL' ? `${inner}!` : kind === 'LIST' ? `[${inner}]` : inner;
}
