"""The page's server: who may see it, what lies at which address, how it begins and ends."""
