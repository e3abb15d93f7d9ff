"""`oncelog lesson` is a tutorial in which the reader injects five faults in a temporary cluster."""

from typing import Annotated

from cyclopts import App, Parameter

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.terminal import say, tell
from ..look.page import has_display, has_page

STEPS = 5


def register(app: App) -> None:
    """Add the command of this file to `app`."""
    app.command(lesson)


def lesson(
    *,
    text: Annotated[
        bool, Parameter(help="Run without the page, only in this terminal.", negative=())
    ] = False,
    browser: Annotated[
        bool, Parameter(name="--open", negative="--no-open", help="Open the page in a browser.")
    ] = True,
    first: Annotated[int, Parameter(name="--from", help="The first step, from 1 to 5.")] = 1,
) -> int:
    """Learn about delivery guarantees in ten minutes and five faults.

    The steps are at most once, at least once, exactly once, a zombie producer, and a hanging
    transaction. The lesson starts a cluster of three nodes and its web page. You kill the
    application, here or in another terminal, and see which records are lost or doubled. Nothing is
    left behind.
    """
    if not 1 <= first <= STEPS:
        raise Failure(f"--from is 1 to {STEPS}.", exit_code=2)
    if not text and not has_page():
        raise Failure(
            "The page needs the extra ui: pip install '.[ui]' in a checkout. "
            "Without it: oncelog lesson --text",
            exit_code=2,
        )
    from ...deploy.cluster.local_cluster import Cluster
    from ...proof.lesson.dialogue import Dialogue
    from ...proof.lesson.lesson import CLUSTER_CONFIG, Lesson
    from ...proof.lesson.processes import LessonProcesses

    say("a cluster of three nodes starts")
    with Cluster(3, config=CLUSTER_CONFIG) as cluster:
        processes = LessonProcesses(cluster.data / "lesson", cluster.data)
        try:
            page = "" if text else processes.open_page(in_browser=browser and has_display())
            if page:
                tell(f"The page: {page}", is_wrapped=False)
            Lesson(cluster, processes, Dialogue(), tell, page.partition("/?")[0]).run(first)
        finally:
            processes.close()
    say("the cluster and the applications have ended; nothing is left")
    return 0
