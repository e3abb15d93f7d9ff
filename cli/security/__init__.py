"""The commands that list and change ACLs. Begin with acls.py."""
