"""Plans: a run's tasks, their dependencies, dynamic plans, and what a branch runs again. Pure."""

from runner.core.plan.plan import THREAD, Plan, PlannedTask, frontier, queue_for, refuse_cycles, sequential_order, waits

__all__ = ["THREAD", "Plan", "PlannedTask", "frontier", "queue_for", "refuse_cycles", "sequential_order", "waits"]
