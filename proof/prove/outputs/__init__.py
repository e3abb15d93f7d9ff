"""The outputs of an application: topics or a table, read until they no longer change."""
