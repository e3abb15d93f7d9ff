"""The effect of each command on the tables, with a file for each kind of command."""
