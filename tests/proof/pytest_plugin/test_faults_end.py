"""Test that the faults of a test end with the test, however it ends, and before its report."""

import pytest

STUB = """
    import pytest
    from oncelog.proof.pytest_plugin import plugin

    class Stub:
        def __init__(self, problem):
            self.problem, self.stops = problem, 0

        def stop_faults(self):
            self.stops += 1
            if self.problem is not None:
                raise self.problem

        def sections(self):
            return [("stub", f"stopped {self.stops} times")]

    @pytest.fixture
    def hold(request):
        item = request.node
        item.config.stash.setdefault(plugin.CLUSTERS, None)
        marker = item.get_closest_marker("stub")
        item.stash[plugin.HANDLE] = stub = Stub(*(marker.args if marker else (None,)))
        yield stub
        print(f"{item.name}: {stub.stops} stops, failed {item.stash[plugin.HAS_FAILED]}")
        del item.stash[plugin.HANDLE]
"""


def run(pytester: pytest.Pytester, source: str) -> pytest.RunResult:
    pytester.makeconftest(STUB)
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", "-s", "-rA")


def test_plugin_faults_end_once_however_a_test_ends(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        def test_passes(hold):
            assert not hold.stops

        def test_fails(hold):
            assert hold.stops

        def test_skips(hold):
            pytest.skip("not here")

        @pytest.fixture
        def broken(hold):
            raise OSError("no disk")

        def test_never_begins(broken):
            pass
        """,
    )
    result.assert_outcomes(passed=1, failed=1, skipped=1, errors=1)
    for name, has_failed in {
        "passes": False, "fails": True, "skips": True, "never_begins": True,
    }.items():  # fmt: skip
        result.stdout.fnmatch_lines([f"*test_{name}: 1 stops, failed {has_failed}"])
    assert result.stdout.str().count("stopped 1 times") == 2  # in the reports of both that failed


@pytest.mark.in_turn
def test_plugin_fault_that_cannot_end_fails_only_its_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.stub(RuntimeError("a node does not start"))
        def test_passes(hold):
            pass

        def test_after(hold):
            pass
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_plugin_marker_without_the_fixture_is_an_error_unless_the_test_is_skipped(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.oncelog(faults="kill")
        def test_runs():
            pass

        @pytest.mark.skip
        @pytest.mark.oncelog(faults="kill")
        def test_is_skipped():
            pass
        """,
    )
    result.assert_outcomes(errors=1, skipped=1)


@pytest.mark.parametrize("problem", ["KeyboardInterrupt()", "pytest.exit.Exception('over')"])
def test_plugin_test_interrupted_does_not_wait_for_faults(
    pytester: pytest.Pytester, problem: str
) -> None:
    source = f"""
        import pytest

        def test_ends(hold):
            hold.problem = AssertionError("stopped")
            raise {problem}
    """
    result = run(pytester, source)
    assert "stopped" not in result.stdout.str() + result.stderr.str()
