"""metadata/rules: what each command does to the tables, one file a kind of command."""
