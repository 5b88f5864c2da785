-- Records the changes of a schema, $1, and their author, $2: an entry of the activity for each, and a revision for those with data.
with entry as materialized (
  select * from json_to_recordset($1::json) as entry (action text, collection text, item text, data json, delta json)
), noted as (
  insert into service_activity (action, collection, item, "user", ip, user_agent, origin)
  select entry.action, entry.collection, entry.item, author."user", author.ip, author.user_agent, author.origin
  from entry cross join json_to_record($2::json) as author ("user" uuid, ip text, user_agent text, origin text)
  returning id, action, collection, item
)
insert into service_revisions (activity, collection, item, data, delta)
select noted.id, noted.collection, noted.item, entry.data, entry.delta
from noted join entry
  on entry.action = noted.action and entry.collection = noted.collection and entry.item = noted.item
where entry.data is not null
