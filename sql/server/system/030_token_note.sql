-- The note is shown next to the input, and callers write the token itself.
comment on column service_users.token is 'The static token. It is stored as a digest and never shown.';
