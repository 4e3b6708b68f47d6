"""Cancellation: stops a task from outside, at a point where that is safe."""
