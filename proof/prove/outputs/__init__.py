"""The outputs of an application, topics or a table, which are read until they no longer change."""
