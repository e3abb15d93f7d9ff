"""The commands that list and change ACLs; begin with acls.py."""
