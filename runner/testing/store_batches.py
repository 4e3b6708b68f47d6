"""What every store does about batches: runs that share all but their inputs are each a run as any other."""

from collections.abc import Sequence

from runner.core.states import RunStatus
from runner.providers.records import NewRun
from runner.testing.store_driver import KEEP, StoreDriver, plan_of

PLAN = plan_of("a", "b: a")


def create(
    driver: StoreDriver, *ids: str, batch: str = "b-1", bundle: str = "", total: int | None = None
) -> Sequence[str]:
    """Create these runs, each with its position as its input."""
    runs = [NewRun(id, number, f'{{"n": {number}}}') for number, id in enumerate(ids, 1)]
    return driver.batches.create(batch, PLAN, {**driver.fields_of(PLAN), "bundle": bundle}, runs, total)


class BatchConformance:
    """Law 5, for batches."""

    def test_each_run_of_a_batch_is_a_run(self, driver: StoreDriver) -> None:
        assert create(driver, "r-1", "r-2", "r-3") == ["created"] * 3
        driver.work()
        for number in (1, 2, 3):
            run = driver.runs.get(f"r-{number}")
            assert (run.status, run.inputs) == (RunStatus.completed, {"n": number})
            assert driver.texts(run.id) == {"a": "a()", "b": "b(a())"}
        assert driver.batches.runs("b-1") == [(1, "r-1"), (2, "r-2"), (3, "r-3")]
        assert driver.batches.runs("b-1", after=1, limit=1) == [(2, "r-2")]

    def test_a_run_of_a_batch_is_created_once(self, driver: StoreDriver) -> None:
        driver.submit(PLAN, "r-0")
        create(driver, "r-1", "r-2")
        assert create(driver, "r-1", "r-3", "r-0") == ["exists", "created", "taken"]
        assert create(driver, "r-1", batch="b-2") == ["taken"]
        assert driver.runs.get("r-1").inputs == {"n": 1}
        assert driver.batches.statuses(["r-1", "r-3", "r-9"]) == [RunStatus.running, RunStatus.running, None]
        assert len(list(driver.jobs())) == 4

    def test_a_batch_without_its_code_is_not_accepted(self, driver: StoreDriver) -> None:
        assert create(driver, "r-1", "r-2", bundle="sha") == ["no bundle"]
        driver.runs.put_bundle("sha", b"code")
        assert create(driver, "r-1", "r-2", bundle="sha") == ["created"] * 2
        assert driver.store.plan("r-2") == PLAN

    def test_who_waits_hears_of_each_run_that_is_over(self, driver: StoreDriver) -> None:
        create(driver, "r-1", "r-2")
        start = driver.batches.last_ended("b-1")
        assert driver.batches.ended("b-1", start, 1) == ([], start)
        driver.runs.cancel("r-2", "enough")
        driver.work()
        ended, last = driver.batches.ended("b-1", start, 1)
        assert (ended, driver.batches.last_ended("b-1")) == (["r-2", "r-1"], last)
        assert driver.resume("r-2") == "resumed"
        driver.work()
        assert driver.batches.ended("b-1", last, 1)[0] == ["r-2"]

    def test_a_batch_that_is_stopped_accepts_no_new_runs(self, driver: StoreDriver) -> None:
        assert not driver.batches.stop("b-1", "enough")
        create(driver, "r-1", total=3)
        assert driver.batches.about("b-1") == (3, "")
        assert driver.batches.stop("b-1", "enough")
        assert driver.batches.about("b-1") == (3, "enough")
        assert create(driver, "r-1", "r-2") == ["exists", "stopped"]
        assert create(driver, "r-2", batch="b-2") == ["created"]
        driver.work()
        assert driver.runs.get("r-1").status is RunStatus.completed
        assert driver.batches.stop("b-1", "")
        assert create(driver, "r-1", "r-3") == ["exists", "created"]
        assert driver.batches.about("b-1") == (3, "")

    def test_a_batch_is_kept_as_long_as_its_last_run(self, driver: StoreDriver) -> None:
        create(driver, "r-1", "r-2")
        driver.runs.cancel("r-1", "enough")
        driver.go_on(KEEP + 1000)
        assert [run for _, run in driver.batches.runs("b-1")] == ["r-1", "r-2"]
        driver.runs.cancel("r-2", "enough")
        assert driver.batches.runs("b-1")
