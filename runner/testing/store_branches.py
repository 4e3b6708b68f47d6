"""What every store does about checkpoints and branches, and about plans that grow."""

import pytest

from runner.core.jobs import Claim
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Expansion
from runner.core.states import RunStatus
from runner.testing.store_driver import NOTHING_SERVED as NONE
from runner.testing.store_driver import StoreDriver, plan_of, seen

DIAMOND = plan_of("a", "b: a", "c: a", "d: b c")
WITHIN = ",llm_call_started,llm_call_completed,"
GROWS = Plan("a flow", (PlannedTask("a"), PlannedTask("b")), grows={"name": "F", "methods": []})


class BranchConformance:
    """Law 6, and what a branch inherits."""

    # -- checkpoints: law 6

    @pytest.mark.parametrize("most", [1, 3])
    @pytest.mark.parametrize("triggers", [",task_completed,", ",*,"])
    def test_a_branch_holds_the_newest_checkpoints_exactly(self, driver: StoreDriver, most: int, triggers: str) -> None:
        driver.submit(plan_of("a", "b: a", "c: b", "d: c"), max_checkpoints=str(most), checkpoint_on=triggers)
        every: dict[str, int] = {}
        for job in driver.jobs():
            claim = driver.claim(job)
            assert isinstance(claim, Claim)
            every |= {one.id: one.seq for one in driver.runs.checkpoints("r-1", "main")}
            driver.commit(claim)
            kept = driver.runs.checkpoints("r-1", "main")
            every |= {one.id: one.seq for one in kept}
            assert [one.id for one in kept] == sorted(every, key=every.__getitem__)[-most:]
        assert len(driver.runs.checkpoints("r-1", "main")) == most

    def test_each_checkpoint_names_the_one_before_it(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND, max_checkpoints="1")
        before = ""
        for job in driver.jobs():
            claim = driver.claim(job)
            assert isinstance(claim, Claim)
            driver.commit(claim)
            (newest,) = driver.runs.checkpoints("r-1", "main")
            assert newest.parent == before
            before = newest.id

    def test_pruning_takes_the_oldest_of_one_branch(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        driver.work()
        kept = driver.runs.checkpoints("r-1", "main")
        assert driver.fork("r-1", "side", {"c": "other"}) == "forked"
        driver.work()
        side = driver.runs.checkpoints("r-1", "side")
        assert driver.runs.prune("r-1", "main", 1) == 3
        assert driver.runs.checkpoints("r-1", "main") == kept[3:]
        assert driver.runs.checkpoints("r-1", "side") == side

    # -- branches

    def test_a_resume_from_a_checkpoint_is_a_branch_that_sees_what_was_done_by_then(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a", "b: a", "c: b"))
        driver.work()
        first = driver.runs.checkpoints("r-1", "main")[0]
        assert driver.resume("r-1", "again", start=first) == "resumed"
        assert driver.runs.get("r-1").branch == "again"
        assert driver.store.parent("r-1", "again") == "main"
        assert driver.texts("r-1", "again") == {"a": "a()"}
        driver.work()
        assert driver.texts("r-1", "again") == driver.texts("r-1", "main")
        assert driver.store.outputs("r-1", "again", ["a", "nothing"])["a"].raw == "a()"

    def test_a_fork_does_what_used_an_edited_output_and_nothing_else(self, driver: StoreDriver) -> None:
        driver.submit(DIAMOND)
        driver.work()
        assert driver.fork("r-1", "side", {"b": "another b"}) == "forked"
        assert driver.fork("r-1", "side", {}) == "taken"
        assert driver.states("r-1", "side") == {"d": "queued"}
        driver.work()
        assert driver.texts("r-1", "side") == {**driver.texts("r-1"), "b": "another b", "d": "d(another b, c(a()))"}
        assert driver.texts("r-1")["b"] == "b(a())"
        assert driver.runs.branch("r-1", "side").status is RunStatus.completed

    def test_a_task_in_flight_goes_on_in_a_fork_from_what_it_recorded(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a", "b"))
        claims = driver.take("a", "b")
        driver.task(claims["a"]).record_step("s#1", '"paid"', replayed=NONE)
        assert driver.fork("r-1", "side", {}) == "forked"
        again = driver.take("a", "b")
        assert again["a"].job.branch == "side"
        assert again["a"].recorded == {"s#1": '"paid"'}
        driver.task(claims["a"]).record_step("s#2", "1", replayed=NONE)  # each holds its own

    def test_a_fork_from_within_a_task_begins_from_what_was_recorded_by_then(self, driver: StoreDriver) -> None:
        claim = driver.begun(plan_of("a"), checkpoint_on=WITHIN)
        task = driver.task(claim)
        for step in (1, 2):
            task.record_step(f"s#{step}", str(step), replayed=NONE)
            task.append_event("llm_call_completed", "a", trigger="llm_call_completed")
        task.record_step("s#3", "3", replayed=NONE)
        one, two = driver.runs.checkpoints("r-1", "main")
        for what in ("in flight", "done"):
            assert driver.fork("r-1", f"one {what}", {}, one.id) == "forked"
            assert driver.take("a")["a"].recorded == {"s#1": "1"}
            assert driver.fork("r-1", f"two {what}", {}, two.id) == "forked"
            assert driver.take("a")["a"].recorded == {"s#1": "1", "s#2": "2"}
            if what == "in flight":
                assert driver.fork("r-1", "head", {}) == "forked"
                assert driver.take("a")["a"].recorded == {"s#1": "1", "s#2": "2", "s#3": "3"}
                driver.commit(claim)
        assert driver.texts("r-1") == {"a": "a()"}
        assert driver.texts("r-1", "two done") == {}

    def test_a_fork_of_a_fork_begins_from_what_both_recorded_by_then(self, driver: StoreDriver) -> None:
        driver.submit(plan_of("a"), checkpoint_on=WITHIN)
        branch, where = "main", None
        for step in (1, 2, 3):
            claim = driver.take("a")["a"]
            assert len(claim.recorded) == step - 1
            task = driver.task(claim)
            for name in (f"s#{step}", f"after#{step}"):
                task.record_step(name, str(step), replayed=NONE)
                task.append_event("llm_call_completed", "a", trigger="llm_call_completed")
            driver.commit(claim)
            where = driver.runs.checkpoints("r-1", branch)[0].id
            branch = f"fork {step}"
            assert driver.fork("r-1", branch, {}, where) == "forked"
        assert driver.take("a")["a"].recorded == {"s#1": "1", "s#2": "2", "s#3": "3"}

    def test_a_checkpoint_of_a_later_attempt_has_what_was_recorded_before(self, driver: StoreDriver) -> None:
        first = driver.task(driver.begun(plan_of("a"), checkpoint_on=WITHIN))
        first.record_step("s#1", "1", replayed=NONE)
        first.release(replayed=NONE)
        task = driver.task(driver.take("a")["a"])
        task.append_event("llm_call_started", "a", trigger="llm_call_started")
        (at,) = driver.runs.checkpoints("r-1", "main")
        task.record_step("s#2", "2", replayed=NONE)
        task.append_event("llm_call_completed", "a", trigger="llm_call_completed")
        assert driver.fork("r-1", "side", {}, at.id) == "forked"
        assert driver.take("a")["a"].recorded == {"s#1": "1"}

    def test_a_resume_from_within_a_task_begins_from_what_was_recorded_by_then(self, driver: StoreDriver) -> None:
        claim = driver.begun(plan_of("a"), checkpoint_on=WITHIN)
        task = driver.task(claim)
        for step in (1, 2):
            task.record_step(f"s#{step}", str(step), replayed=NONE)
            task.append_event("llm_call_completed", "a", trigger="llm_call_completed")
        driver.commit(claim)
        first = driver.runs.checkpoints("r-1", "main")[0]
        assert driver.resume("r-1", "again", start=first) == "resumed"
        assert driver.take("a")["a"].recorded == {"s#1": "1"}

    # -- plans that grow

    def test_a_task_brings_others_and_the_last_one_ends_the_branch(self, driver: StoreDriver) -> None:
        driver.submit(GROWS, beginning='{"n": 1}')
        claims, branch = driver.take("a", "b"), driver.store.branch("r-1", "main")
        assert branch.initial_state() == {"n": 1}
        assert branch.shared().version == ""
        grown = Expansion('{"raw": "a"}', (PlannedTask("c"),), {"x": "1", "y": "2"}, (), (("task_log", "a note"),))
        assert driver.expand(claims["a"], grown, "")
        assert driver.states("r-1") == {"b": "running", "c": "queued"}
        assert branch.shared().fields == {"x": "1", "y": "2"}
        assert driver.expand(
            claims["b"], Expansion('{"raw": "b"}', put={"x": "3"}, gone=("y",)), branch.shared().version
        )
        assert branch.shared().fields == {"x": "3"}
        assert driver.expand(driver.take("c")["c"], Expansion('{"raw": "c"}'), branch.shared().version)
        assert driver.runs.get("r-1").status is RunStatus.completed
        assert [one.key for one in branch.history()] == ["a", "b", "c"]
        assert branch.records(["c", "nothing"])["c"]["raw"] == "c"

    def test_a_growth_made_from_older_texts_changes_nothing(self, driver: StoreDriver) -> None:
        driver.submit(GROWS)
        claims, branch = driver.take("a", "b"), driver.store.branch("r-1", "main")
        assert driver.expand(claims["a"], Expansion('{"raw": "a"}', put={"x": "1"}), "")
        before = seen(driver)
        assert not driver.expand(claims["b"], Expansion('{"raw": "b"}', (PlannedTask("never"),), {"x": "2"}), "")
        assert seen(driver) == before
        assert branch.shared().fields == {"x": "1"}
        assert driver.expand(claims["a"], Expansion('{"raw": "a"}', put={"x": "9"}), "")  # heard twice
        assert branch.shared().fields == {"x": "1"}
