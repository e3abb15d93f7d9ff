"""What an application has written: topics or a table, read until nothing moves any more."""
