"""Reads a crew file in a separate process, so its side effects do not reach the submitting process."""
