"""Test that invalid settings are refused with an error message and exit code 2."""

from typing import Any

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.prove.api import candidates
from oncelog.proof.prove.settings import ProveSettings


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rate": 0}, "--rate lies in"),
        ({"seconds": -1}, "--seconds lies in"),
        ({"instances": 0}, "--instances lies in"),
        ({"drain_timeout_s": 0}, "--drain-timeout lies in"),
        ({"inputs": ("a",), "outputs": ("b", "a")}, "input and output of the same"),
        ({"outputs": ()}, "a topic of outputs"),
        ({"final": "m:f", "fanout": 2}, "--final judges"),
        ({"expect": "m:f", "fanout": 2}, "one of them"),
        ({"match": "value"}, "--match value"),
        ({"faults": "stop,noon"}, "no fault noon"),
        ({"faults": "stop,broker@leader", "bootstrap": "a:1"}, "does not kill the brokers"),
        ({"faults": "acl-taken"}, "acl-taken changes users or ACLs"),
        ({"faults": "password-change", "bootstrap": "a:1"}, "only with --secure"),
        ({"faults": "certificate-expires"}, "certificate-expires needs TLS"),
        ({"faults": "certificate-expires", "bootstrap": "a:1"}, "needs TLS"),
        ({"alone": True, "instances": 2}, "is a single process"),
        ({"alone": True, "instances": 1, "faults": "stop,add"}, "which --alone forbids"),
        ({"rate": 5_000, "seconds": 3_600}, "more than 500000 inputs"),
    ],
)
def test_prove_setting_with_a_wrong_value_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(Failure, match=words) as refused:
        ProveSettings(command=("true",), **wrong)
    assert refused.value.exit_code == 2


def test_prove_shrinks_a_plan_starting_with_the_faults_of_the_story() -> None:
    names = ["stop", "cut", "kill@before-commit", "add"]
    tried = list(candidates(names, ["cut", "kill@before-commit"]))
    assert tried[:2] == [("kill@before-commit",) * 2, ("cut",) * 2]
    assert tried[-2:] == [("kill@before-commit", "add"), ("stop", "cut")]
    assert list(candidates([], [])) == []
