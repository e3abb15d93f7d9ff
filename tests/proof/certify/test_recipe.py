"""Recipes are read with care, and a verdict is bound to the files that it was about."""

import shutil
from pathlib import Path

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.certify.recipe import RECIPES, all_recipes, find_recipe, read_recipe

OURS = RECIPES / "oncelog-transactional"
PINS = '[install]\npip = ["confluent-kafka"]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OURS, tmp_path / "mine"))


def test_every_recipe_of_ours_is_whole_and_says_where_its_promise_stands() -> None:
    recipes = all_recipes()
    assert len(recipes) >= 15
    for recipe in recipes:
        assert recipe.page.startswith("https://") and recipe.says.endswith("."), recipe.name
        pins = [package for packages in recipe.install.values() for package in packages]
        assert not pins or any(recipe.version in pin for pin in pins), recipe.name
        programs = [p.split("{recipe}/")[1].split()[0] for p in recipe.command if "{recipe}/" in p]
        assert all((recipe.folder / program).is_file() for program in programs), recipe.name


def test_find_recipe_takes_a_name_of_ours_and_a_folder(folder: Path) -> None:
    assert find_recipe("oncelog-transactional").folder == OURS
    assert find_recipe(str(folder)).name == "mine"
    with pytest.raises(Failure, match=r"no recipe 'nosuch'.*oncelog-transactional") as told:
        find_recipe("nosuch")
    assert told.value.exit_code == 2


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("recipe.toml", 'system = "oncelog"', "", "system is missing"),
        ("recipe.toml", 'system = "oncelog"', "system = 3", "system is missing, or no text"),
        ("recipe.toml", "command = [", "command = 3 #", "command is a list of texts"),
        ("recipe.toml", "command = [", "command = [[", "cannot be read"),
        ("recipe.toml", "\ncommand", f"\n{PINS}\n[x]\ncommand", "command is a list"),
        ("recipe.toml", "command = [", "install = 5\ncommand = [", "install is no table"),
        ("recipe.toml", "command = [", "prove = [1]\ncommand = [", "prove is no table"),
        ("expected.toml", "page", "second_reading = 3\npage", "second_reading is a day"),
        ("expected.toml", '"exactly once"', '"always"', "promise is one of exactly once"),
        ("expected.toml", "page", "pages", "page is missing"),
    ],
)
def test_read_recipe_says_what_is_wrong_and_where(folder, file, old, new, words) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    with pytest.raises(Failure, match=words) as told:
        read_recipe(folder)
    assert told.value.exit_code == 2 and file in str(told.value)


@pytest.mark.parametrize(
    ("added", "words"),
    [
        (PINS, "confluent-kafka names no version"),
        ('[install]\npip = ["a>=1"]\n', "names no version"),
        ('[install]\npip = ["a==1.0 --index-url=x"]\n', "names no version"),
        ('[install]\nbrew = ["a==1"]\n', "holds lists for pip, npm, maven"),
        ('[install]\npip = ["--index-url=x==1"]\n', "names no version"),
        ("[install]\npip = [1]\n", "names no version"),
        *(
            (f'[install]\nnpm = ["{package}"]\n', "names no version as NAME@1.2.3")
            for package in ("a@latest", "a@1", "a@1.x", "a@1.2.x", "a@^1.2.3", "-a@1.2.3")
        ),
        *(
            (f'[install]\nmaven = ["{package}"]\n', "names no version as GROUP:ARTIFACT")
            for package in ("a:b:LATEST", "a:b:[1,2)", "a:1", "-a:b:1", "a:b:c:1")
        ),
        ("[prove]\nmatch = 5\n", r"match of \[prove\] is no text"),
        ('[prove]\nrate = "9"\n', "rate of .* is no number"),
        ("[prove]\ninstances = 2.5\n", "instances of .* is no whole number"),
        ('[prove]\ninputs = "a"\n', "inputs of .* is no list of texts"),
        ("[prove]\naborts = 1\n", "aborts of .* is no true or false"),
        ("[prove]\nenvironment = 3\n", "environment of .* is no table of texts"),
        ("[prove.environment]\nA = 3\n", "environment of .* is no table of texts"),
        ("[prove]\nseed = 3\n", "does not hold seed"),
        ("[prove]\nnosuch = 3\n", "nosuch"),
        ("[prove]\nrate = 1e9\n", "--rate lies in"),
    ],
)
def test_read_recipe_refuses_what_a_run_would_not_take(folder: Path, added, words) -> None:
    with (folder / "recipe.toml").open("a") as file:
        file.write(added)
    with pytest.raises(Failure, match=words):
        read_recipe(folder)


def test_digest_follows_the_program_and_not_the_promise_or_the_verdict(folder: Path) -> None:
    digest = read_recipe(folder).digest
    (folder / "verdict.json").write_text("{}")
    for name in ("report.md", "certify.lock", "verdict.json.tmp", "verdict.xml.tmp"):
        (folder / name).write_text("what was seen")
    expected = folder / "expected.toml"
    expected.write_text(expected.read_text().replace("exactly once", "at least once", 1))
    assert read_recipe(folder).digest == digest
    with (folder / "copier.py").open("a") as program:
        program.write("\n")
    assert read_recipe(folder).digest != digest
