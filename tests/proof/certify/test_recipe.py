"""Test the checks of recipes, and that a verdict belongs to exactly the files of its run."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.certify.board import with_table
from oncelog.proof.certify.certifying import kept_verdicts
from oncelog.proof.certify.recipe import RECIPES, all_recipes, find_recipe, read_recipe
from oncelog.proof.certify.verdict import OURS as OURS_CLUSTER
from oncelog.proof.certify.verdict import CertifiedRun, verdict_fields

COMMITS_FIRST = Path(__file__).parents[1] / "prove/programs/commits_first.py"
OURS = RECIPES / "oncelog-transactional"
USES = 'uses = ["TxnOffsetCommit", "EndTxn"]'
PINS = '[install]\npip = ["confluent-kafka"]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = Path(shutil.copytree(OURS, tmp_path / "mine"))
    expected = copy / "expected.toml"
    expected.write_text(expected.read_text().partition("\n[second_reading]")[0])
    return copy


def test_certify_recipe_of_each_name_is_complete_and_cites_its_promise() -> None:
    recipes = all_recipes()
    assert len(recipes) >= 15
    for recipe in recipes:
        assert recipe.page.startswith("https://") and recipe.says.endswith("."), recipe.name
        pins = [package for packages in recipe.install.values() for package in packages]
        assert not pins or any(recipe.version in pin for pin in pins), recipe.name
        programs = [p.split("{recipe}/")[1].split()[0] for p in recipe.command if "{recipe}/" in p]
        assert all((recipe.folder / program).is_file() for program in programs), recipe.name


def test_find_recipe_accepts_a_known_name_or_a_folder(folder: Path) -> None:
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
        ("expected.toml", "page", "second_reading = 3\npage", "second_reading is a table"),
        ("expected.toml", USES, 'uses = "EndTxn"', "uses is a list of requests"),
        ("expected.toml", USES, 'uses = ["Endtxn"]', "Kafka has no request Endtxn"),
        ("expected.toml", '"exactly once"', '"always"', "promise is one of exactly once"),
        (
            "recipe.toml",
            '"{python}", ',
            '"sh", "-c", "exec {python} x", ',
            "stands among other words",
        ),
        ("expected.toml", "page", "pages", "page is missing"),
    ],
)
def test_read_recipe_names_the_error_and_the_file(folder, file, old, new, words) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    with pytest.raises(Failure, match=words) as told:
        read_recipe(folder)
    assert told.value.exit_code == 2 and file in str(told.value)
    if advised := re.search(r"of its own: (\[.*\])", str(told.value)):
        assert len(tomllib.loads(f"command = {advised[1]}")["command"]) == 5


@pytest.mark.parametrize(
    ("added", "words"),
    [
        (PINS, "confluent-kafka names no version"),
        ('[install]\npip = ["a>=1"]\n', "names no version"),
        ('[install]\npip = ["a==1.0 --index-url=x"]\n', "names no version"),
        ('[install]\nbrew = ["a==1"]\n', "holds lists for pip, npm, maven, go"),
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
        *(
            (f'[install]\ngo = ["{package}"]\n', "names no version as MODULE@v1.2.3")
            for package in ("a/b@latest", "a/b@v1", "a/b@v1.2", "a/b", "-x@v1.2.3")
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
def test_read_recipe_refuses_a_recipe_that_a_run_would_not_accept(
    folder: Path, added, words
) -> None:
    with (folder / "recipe.toml").open("a") as file:
        file.write(added)
    with pytest.raises(Failure, match=words):
        read_recipe(folder)


def test_recipe_digest_depends_on_the_program_and_not_on_promise_or_verdict(folder: Path) -> None:
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


@pytest.mark.parametrize("name", ["lib/helper.py", "z.py", "settings.xml", "notes.md", ".env"])
def test_recipe_digest_changes_with_every_file_that_the_program_may_read(
    folder: Path, name: str
) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("a")
    digest = read_recipe(folder).digest
    file.write_text("b")
    assert read_recipe(folder).digest != digest


def test_recipe_digest_differs_between_two_files_and_one_file_with_both_contents(
    folder: Path,
) -> None:
    (folder / "a").write_text("1\nb\n2")
    digest = read_recipe(folder).digest
    (folder / "a").write_text("1")
    (folder / "b").write_text("2")
    assert read_recipe(folder).digest != digest


@pytest.mark.parametrize("kind", ["many files", "a large file", "a link"])
def test_read_recipe_refuses_files_that_its_digest_would_not_cover(folder: Path, kind) -> None:
    if kind == "many files":
        for number in range(60):
            (folder / f"part{number}.py").write_text("")
    elif kind == "a large file":
        (folder / "data").write_bytes(bytes(1_000_001))
    else:
        (folder / "lib").symlink_to(folder.parent)
    with pytest.raises(Failure, match=r"at most 50 files|more than 1000000 bytes|is a link"):
        read_recipe(folder)


@pytest.mark.parametrize("mode", ["guarantee=exactly_once", 'guarantee="exactly-once"'])
def test_read_recipe_refuses_a_mode_that_the_program_does_not_set(folder: Path, mode: str) -> None:
    text = (folder / "recipe.toml").read_text()
    in_mode = text.replace("consume, transform, produce in a transaction", mode.replace('"', '\\"'))
    assert in_mode != text
    file = folder / "recipe.toml"
    file.write_text(f'{in_mode}\n[prove.environment]\nGUARANTEE = "at_least_once"\n')
    with pytest.raises(Failure, match=r"guarantee=.*neither the program"):
        read_recipe(folder)
    file.write_text(f'{in_mode}\n[prove.environment]\nGUARANTEE = "exactly_once"\n')
    assert read_recipe(folder).mode == mode


READING = """
[second_reading]
on = 2026-11-29
digest = "{digest}"
agrees = {agrees}
note = "It is the example of the page."
"""


def test_review_by_a_second_reader_is_ignored_after_a_change_of_the_program(folder: Path) -> None:
    digest = read_recipe(folder).digest
    with (folder / "expected.toml").open("w") as file:
        file.write('promise = "exactly once"\npage = "https://x"\nsays = "It says so."\n')
        file.write(READING.format(digest=digest, agrees="true"))
    assert read_recipe(folder).second_reading == "2026-11-29"
    with (folder / "copier.py").open("a") as program:
        program.write("# changed after it was read\n")
    changed = read_recipe(folder)
    assert changed.reading is not None and changed.second_reading == ""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("on = 2026-11-29", 'on = "today"', "on of .* is a day"),
        ("agrees = true", 'agrees = "yes"', "agrees of .* is true or false"),
        ("note = ", "notes = ", "digest and note of .* are texts"),
    ],
)
def test_read_recipe_refuses_a_second_reading_table_with_a_wrong_field(
    folder, old, new, words
) -> None:
    text = READING.format(digest="a", agrees="true")
    assert old in text
    with (folder / "expected.toml").open("w") as file:
        file.write('promise = "exactly once"\npage = "https://x"\nsays = "It says so."\n')
        file.write(text.replace(old, new))
    with pytest.raises(Failure, match=words):
        read_recipe(folder)


def test_board_leaves_out_a_program_refused_by_its_second_reader(folder: Path) -> None:
    shutil.copy(COMMITS_FIRST, folder / "copier.py")
    recipe = read_recipe(folder)
    run = CertifiedRun(
        seed=1, cluster=OURS_CLUSTER, on="2026-11-29", fault_seconds=20, is_kept=False,
        verdict="AT MOST ONCE", why="6 lost",
    )  # fmt: skip
    versions = {"oncelog": "0.2.0", "Python": "3"}
    fields = verdict_fields(recipe, [run], versions=versions, machine="m")
    (folder / "verdict.json").write_text(json.dumps(fields))
    assert [each["recipe"] for each in kept_verdicts([recipe])] == ["mine"]
    with (folder / "expected.toml").open("a") as file:
        file.write(READING.format(digest=recipe.digest, agrees="false"))
    refused = read_recipe(folder)
    assert refused.refusal == "It is the example of the page." and refused.second_reading == ""
    assert kept_verdicts([refused]) == []
    page = with_table("by hand", [], refused={"mine": refused.refusal})
    assert "mine has no verdict, because its second reading refused it" in page
