"""The page's server: its access, its addresses, its start and end."""
