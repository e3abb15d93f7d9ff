"""metadata/rules: the effect of each command on the tables, one file a kind of command."""
