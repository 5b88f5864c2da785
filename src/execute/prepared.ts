/** The statements that a connection keeps, by the names they were prepared under: PostgreSQL holds the plan of each. */
const MOST = 200;

export class Prepared {
  /** By text; of so many as can be kept, the one that was not used for longest is the first. */
  readonly #names = new Map<string, string>();
  #forgotten: string[] = [];
  #made = 0;

  nameOf(text: string): string | undefined {
    const name = this.#names.get(text);
    if (name !== undefined && this.#names.size >= MOST) {
      this.#names.delete(text);
      this.#names.set(text, name);
    }
    return name;
  }

  remember(text: string): string {
    if (this.#names.size >= MOST) {
      const [oldest] = this.#names.keys();
      if (oldest !== undefined) this.forget(oldest);
    }
    const name = `s${++this.#made}`;
    this.#names.set(text, name);
    return name;
  }

  forget(text: string): void {
    const name = this.#names.get(text);
    if (name === undefined) return;
    this.#names.delete(text);
    this.#forgotten.push(name);
  }

  /** Names that the server need not keep any more, each of them once. */
  takeForgotten(): readonly string[] {
    const forgotten = this.#forgotten;
    if (forgotten.length > 0) this.#forgotten = [];
    return forgotten;
  }

  /** The connection is lost, and what it kept. */
  clear(): void {
    this.#names.clear();
    this.#forgotten = [];
  }
}
