/** Gives each new article a slug, if the client sends none. */
import { defineExtension } from 'lateral';

export default defineExtension({
  name: 'slugs',
  beforeWrite: {
    articles: ({ action, payload }) => {
      if (action !== 'create' || typeof payload.title !== 'string' || payload.slug !== undefined) return;
      payload.slug = slugOf(payload.title);
    },
  },
});

export function slugOf(title) {
  return title
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[^\p{Letter}\p{Number}]+/gu, '-')
    .replace(/^-+|-+$/g, '');
}
