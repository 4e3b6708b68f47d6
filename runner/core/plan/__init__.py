"""Plans: which tasks a run has, what each waits for, which grow, and what a branch does again. Pure."""

from runner.core.plan.plan import THREAD, Plan, PlannedTask, frontier, refuse_cycles, sequential_order, waits

__all__ = ["THREAD", "Plan", "PlannedTask", "frontier", "refuse_cycles", "sequential_order", "waits"]
