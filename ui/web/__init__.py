"""The page's server, with its access, its addresses, its start and end."""
