"""The outputs of an application: topics or a table, read until nothing moves any more."""
