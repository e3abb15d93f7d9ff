"""Docstrings and test names are plain sentences, folder by folder."""

import ast

from .words import RATIO_MAX, Folder, folders, read

# Folders whose sentences are still to be written anew.
UNWRITTEN = {
    "tests/ui",
    "ui",
}
PLANTED = '''
def one():
    """Of requests that have been answered."""
def two():
    """Answer a client whose request is late."""
def test_who_is_elected_leads():
    pass
'''


def test_sentences_of_the_folders_are_plain() -> None:
    places = [
        place
        for name, folder in folders().items()
        if name not in UNWRITTEN and max(folder.ratios.values()) > RATIO_MAX
        for place in folder.openings + folder.pronouns + folder.names
    ]
    assert not places


def test_fragments_pronouns_and_names_are_found() -> None:
    folder = Folder()
    read(folder, "planted.py", ast.parse(PLANTED))
    assert folder.ratios == {"openings": 0.5, "pronouns": 0.5, "test names": 1.0}
