"""security: the commands that list and change ACLs; begin with acls.py."""
