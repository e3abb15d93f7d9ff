"""node/membership: is this broker alive to the others, and are they to it?"""
