-- A version without an item is the draft of one that does not exist yet: promoting it creates the item, which it belongs to from then on.
alter table service_versions alter column item drop not null;
