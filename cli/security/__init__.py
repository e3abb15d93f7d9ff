"""security: commands about who may do what; begin with acls.py."""
