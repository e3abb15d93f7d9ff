"""Test that few docstrings and test names of each folder are not plain, as words.py counts."""

import ast

from .house import ROOT
from .pages import MEAN_WORDS_MAX, PAGES, mean_words, sentences, word_count
from .words import RATIO_MAX, Folder, folders, read

PLANTED = '''
def one():
    """Of requests that have been answered."""
def two():
    """Answer a client whose request is late."""
def test_who_is_elected_leads():
    pass
'''


def test_word_ratios_of_each_folder_are_below_two_percent() -> None:
    places = [
        place
        for folder in folders().values()
        if max(folder.ratios.values()) > RATIO_MAX
        for place in folder.openings + folder.pronouns + folder.names
    ]
    assert not places


def test_word_check_counts_planted_fragments_pronouns_and_names() -> None:
    folder = Folder()
    read(folder, "planted.py", ast.parse(PLANTED))
    assert folder.ratios == {"openings": 0.5, "pronouns": 0.5, "test names": 1.0}


def test_docs_pages_have_a_mean_sentence_length_below_the_limit() -> None:
    means = {str(page.relative_to(ROOT)): mean_words(page) for page in PAGES}
    long = {name: mean for name, mean in means.items() if mean > MEAN_WORDS_MAX}
    assert not long, "python -m tests.tidy.pages -v PAGE shows its sentences"


def test_page_sentences_exclude_code_and_tables() -> None:
    page = "# A title\n\nOne two three. Four `five six` [seven](x.md)!\n\n| a b c |\n\n```\nno\n```"
    assert [word_count(each) for each in sentences(page)] == [3, 3]
