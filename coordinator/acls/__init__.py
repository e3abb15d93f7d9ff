"""Access control lists: values, an index over many of them, and the decision. All is pure."""
