"""Stopping a task from outside, at a place where that does no harm."""
