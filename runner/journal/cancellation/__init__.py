"""Cancellation: stops a task from outside, where that does no harm."""
