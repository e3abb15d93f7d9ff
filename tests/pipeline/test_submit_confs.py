"""Test that settings for Spark override the defaults of `spark_session`."""

from pathlib import Path

from oncelog.pipeline.session import decide
from oncelog.pipeline.submit_confs import submit_confs

FILE = """
# of the site
spark.master            spark://far:7077
spark.driver.memory=700m
spark.sql.shuffle.partitions  77
other.name  x
"""


def test_spark_defaults_file_overrides_our_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(FILE)
    found = submit_confs({"SPARK_CONF_DIR": str(tmp_path)}, Path("/nowhere"))
    assert found == {
        "spark.master": "spark://far:7077",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "77",
    }
    decided = decide({}, found, cores=2)
    assert not found.keys() & decided.keys()
    assert "spark.driver.host" not in decided, "a master elsewhere reaches no loopback"
    assert decide({"spark.master": "local[2]"}, found, 2)["spark.master"] == "local[2]"


def test_spark_home_conf_folder_is_read_without_spark_conf_dir(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.ui.enabled true\n")
    assert submit_confs({}, tmp_path) == {"spark.ui.enabled": "true"}
    assert submit_confs({}, tmp_path / "conf") == {}


def test_pyspark_submit_args_override_the_spark_defaults_file(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(FILE)
    words = "--master local[3] --packages a:b:1 -c spark.x='a b' --conf spark.y=c=d pyspark-shell"
    found = submit_confs(
        {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": words}, Path("/nowhere")
    )
    assert found["spark.master"] == "local[3]"
    assert (found["spark.x"], found["spark.y"]) == ("a b", "c=d")
    assert found["spark.driver.memory"] == "700m"
    other = tmp_path / "other.conf"
    other.write_text("spark.driver.memory 2g\n")
    words = f"--properties-file {other} --driver-memory 3g pyspark-shell"
    assert submit_confs({"PYSPARK_SUBMIT_ARGS": words}, tmp_path) == {"spark.driver.memory": "3g"}
