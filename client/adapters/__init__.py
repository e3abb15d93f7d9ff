"""adapters: the block of a dual write in the words of a framework, which the program has installed.

None of them is imported by anything else.
"""
