-- A small library of articles that has every kind of relation: the tables, their rows and the metadata that names the
-- relations. Loaded as one script into a database that has the service_* tables already.

create table authors (
  id serial primary key,
  name varchar(255) not null,
  email varchar(255) constraint authors_email_unique unique,
  bio text,
  born date,
  score double precision
);

create table articles (
  id serial primary key,
  title varchar(255) not null,
  slug varchar(255),
  body text,
  status varchar(255) default 'draft',
  views integer default 0,
  rating numeric(10, 2),
  published_at timestamp with time zone,
  meta json,
  author integer constraint articles_author_foreign references authors (id) on delete set null
);

create table comments (
  id serial primary key,
  body text,
  created timestamp with time zone,
  article integer constraint comments_article_foreign references articles (id) on delete cascade,
  author integer constraint comments_author_foreign references authors (id)
);

create table tags (
  id serial primary key,
  name varchar(255)
);

create table articles_tags (
  id serial primary key,
  articles_id integer constraint articles_tags_articles_id_foreign references articles (id) on delete cascade,
  tags_id integer constraint articles_tags_tags_id_foreign references tags (id) on delete cascade,
  sort integer
);

create table block_text (
  id serial primary key,
  text text
);

create table block_image (
  id serial primary key,
  url varchar(255),
  caption varchar(255)
);

create table block_quote (
  id serial primary key,
  quote text,
  who varchar(255)
);

create table articles_blocks (
  id serial primary key,
  articles_id integer constraint articles_blocks_articles_id_foreign references articles (id) on delete set null,
  item varchar(255),
  collection varchar(255),
  sort integer
);

insert into authors (id, name, email, bio, born, score) values
  (1, 'Ada Lovelace', 'ada@example.com', 'First programmer', '1815-12-10', 9.5),
  (2, 'Alan Turing', 'alan@example.com', 'Computing pioneer', '1912-06-23', 8.25),
  (3, 'grace hopper', 'grace@example.com', null, '1906-12-09', 7),
  (4, 'Ünïcode Näme', 'unicode@example.com', '', '2000-02-29', 0),
  (5, 'No Articles', null, 'Lonely', null, null);

insert into articles (id, title, slug, body, status, views, rating, published_at, meta, author) values
  (1, 'Hello World', 'hello-world', 'The first body', 'published', 100, 4.50, '2023-01-15T10:00:00Z', '{"k":1,"lang":"en","nested":{"a":[1,2,3]}}', 1),
  (2, 'Second Post', 'second-post', 'Another body', 'published', 250, 3.25, '2023-02-20T12:30:00Z', '{"k":2,"lang":"de"}', 1),
  (3, 'hello lower', 'hello-lower', null, 'draft', 0, null, null, null, 2),
  (4, '100% Sure_thing', 'percent', 'Percent body', 'draft', 50, 5.00, '2023-02-25T23:59:59Z', '[]', 2),
  (5, 'O''Reilly "quoted"', 'quotes', '', 'archived', 1000, 1.10, '2022-12-31T23:00:00Z', '{"k":5}', 3),
  (6, 'Zebra', 'zebra', 'Body with unicode ✓ 漢字', 'published', 999, 2.00, '2024-03-01T00:00:00Z', '{"k":6,"lang":"fr"}', null),
  (7, 'alpha', null, 'a', 'archived', -5, 0.00, '2023-01-15T10:00:00Z', '"string"', 4),
  (8, 'Beta', 'beta', 'b', 'published', 100, 4.50, '2023-07-04T08:15:30.123Z', '{"k":8,"lang":"en"}', 1),
  (9, 'Gamma', 'gamma', 'c', 'draft', 2147483647, 99999999.99, null, 'null', 2),
  (10, 'Delta', 'delta', 'd', 'published', 7, 4.49, '2024-12-25T18:00:00Z', '{"k":10}', 3);

insert into comments (id, body, created, article, author) values
  (1, 'Nice!', '2023-01-16T09:00:00Z', 1, 2),
  (2, 'I disagree', '2023-01-17T09:00:00Z', 1, 3),
  (3, 'Spam', '2023-01-18T09:00:00Z', 1, null),
  (4, 'Great read', '2023-02-21T09:00:00Z', 2, 3),
  (5, 'Hmm', '2023-02-22T09:00:00Z', 2, 4),
  (6, 'zebra fan', '2024-03-02T09:00:00Z', 6, 1),
  (7, null, '2024-03-03T09:00:00Z', 6, 1),
  (8, 'orphan', '2024-03-04T09:00:00Z', null, 2),
  (9, 'on beta', '2023-07-05T09:00:00Z', 8, 1);

insert into tags (id, name) values (1, 'news'), (2, 'tech'), (3, 'fun'), (4, 'unused'), (5, null);

insert into articles_tags (id, articles_id, tags_id, sort) values
  (1, 1, 1, 2), (2, 1, 2, 1), (3, 2, 2, 1), (4, 2, 3, 2), (5, 5, 3, null), (6, 6, 1, 1), (7, 8, 2, 1), (8, 8, null, 2);

insert into block_text (id, text) values (1, 'Intro text'), (2, 'More text'), (3, 'Third');
insert into block_image (id, url, caption) values
  (1, 'https://img.example.com/1.jpg', 'One'), (2, 'https://img.example.com/2.jpg', null);
insert into block_quote (id, quote, who) values (1, 'To be', 'Hamlet'), (2, 'Cogito', 'Descartes');

insert into articles_blocks (id, articles_id, item, collection, sort) values
  (1, 1, '1', 'block_text', 2), (2, 1, '1', 'block_image', 1), (3, 1, '1', 'block_quote', 3), (4, 2, '2', 'block_text', 1),
  (5, 6, '2', 'block_image', 1), (6, 8, '2', 'block_quote', 1), (7, 8, '999', 'block_text', 2);

select setval('authors_id_seq', 5), setval('articles_id_seq', 10), setval('comments_id_seq', 9), setval('tags_id_seq', 5),
  setval('articles_tags_id_seq', 8), setval('block_text_id_seq', 3), setval('block_image_id_seq', 2),
  setval('block_quote_id_seq', 2), setval('articles_blocks_id_seq', 7);

insert into service_collections (collection, hidden, singleton, accountability) values
  ('authors', false, false, 'all'),
  ('articles', false, false, 'all'),
  ('comments', false, false, 'all'),
  ('tags', false, false, 'all'),
  ('articles_tags', true, false, 'all'),
  ('block_text', false, false, 'all'),
  ('block_image', false, false, 'all'),
  ('block_quote', false, false, 'all'),
  ('articles_blocks', true, false, 'all');

insert into service_fields (collection, field, special, interface, readonly, hidden, sort, width) values
  ('authors', 'id', null, 'input', true, true, 1, 'full'),
  ('authors', 'name', null, 'input', false, false, 2, 'full'),
  ('authors', 'email', null, 'input', false, false, 3, 'full'),
  ('authors', 'bio', null, 'input', false, false, 4, 'full'),
  ('authors', 'born', null, 'input', false, false, 5, 'full'),
  ('authors', 'score', null, 'input', false, false, 6, 'full'),
  ('authors', 'articles', 'o2m', 'list-o2m', false, false, 7, 'full'),
  ('articles', 'id', null, 'input', true, true, 1, 'full'),
  ('articles', 'title', null, 'input', false, false, 2, 'full'),
  ('articles', 'slug', null, 'input', false, false, 3, 'full'),
  ('articles', 'body', null, 'input', false, false, 4, 'full'),
  ('articles', 'status', null, 'input', false, false, 5, 'full'),
  ('articles', 'views', null, 'input', false, false, 6, 'full'),
  ('articles', 'rating', null, 'input', false, false, 7, 'full'),
  ('articles', 'published_at', null, 'input', false, false, 8, 'full'),
  ('articles', 'meta', 'cast-json', 'input', false, false, 9, 'full'),
  ('articles', 'author', 'm2o', 'select-dropdown-m2o', false, false, 10, 'full'),
  ('articles', 'comments', 'o2m', 'list-o2m', false, false, 11, 'full'),
  ('articles', 'tags', 'm2m', 'list-m2m', false, false, 12, 'full'),
  ('articles', 'blocks', 'm2a', 'list-m2a', false, false, 13, 'full'),
  ('comments', 'id', null, 'input', true, true, 1, 'full'),
  ('comments', 'body', null, 'input', false, false, 2, 'full'),
  ('comments', 'created', null, 'input', false, false, 3, 'full'),
  ('comments', 'article', 'm2o', 'select-dropdown-m2o', false, false, 4, 'full'),
  ('comments', 'author', 'm2o', 'select-dropdown-m2o', false, false, 5, 'full'),
  ('tags', 'id', null, 'input', true, true, 1, 'full'),
  ('tags', 'name', null, 'input', false, false, 2, 'full'),
  ('articles_tags', 'id', null, 'input', true, true, 1, 'full'),
  ('articles_tags', 'articles_id', null, 'input', false, false, 2, 'full'),
  ('articles_tags', 'tags_id', null, 'input', false, false, 3, 'full'),
  ('articles_tags', 'sort', null, 'input', false, false, 4, 'full'),
  ('block_text', 'id', null, 'input', true, true, 1, 'full'),
  ('block_text', 'text', null, 'input', false, false, 2, 'full'),
  ('block_image', 'id', null, 'input', true, true, 1, 'full'),
  ('block_image', 'url', null, 'input', false, false, 2, 'full'),
  ('block_image', 'caption', null, 'input', false, false, 3, 'full'),
  ('block_quote', 'id', null, 'input', true, true, 1, 'full'),
  ('block_quote', 'quote', null, 'input', false, false, 2, 'full'),
  ('block_quote', 'who', null, 'input', false, false, 3, 'full'),
  ('articles_blocks', 'id', null, 'input', true, true, 1, 'full'),
  ('articles_blocks', 'articles_id', null, 'input', false, false, 2, 'full'),
  ('articles_blocks', 'item', null, 'input', false, false, 3, 'full'),
  ('articles_blocks', 'collection', null, 'input', false, false, 4, 'full'),
  ('articles_blocks', 'sort', null, 'input', false, false, 5, 'full');

insert into service_relations
  (many_collection, many_field, one_collection, one_field, one_collection_field, one_allowed_collections, junction_field, sort_field, one_deselect_action) values
  ('articles', 'author', 'authors', 'articles', null, null, null, null, 'nullify'),
  ('comments', 'article', 'articles', 'comments', null, null, null, null, 'nullify'),
  ('comments', 'author', 'authors', null, null, null, null, null, 'nullify'),
  ('articles_tags', 'articles_id', 'articles', 'tags', null, null, 'tags_id', 'sort', 'delete'),
  ('articles_tags', 'tags_id', 'tags', null, null, null, 'articles_id', null, 'nullify'),
  ('articles_blocks', 'articles_id', 'articles', 'blocks', null, null, 'item', 'sort', 'nullify'),
  ('articles_blocks', 'item', null, null, 'collection', 'block_text,block_image,block_quote', 'articles_id', null, 'nullify');
