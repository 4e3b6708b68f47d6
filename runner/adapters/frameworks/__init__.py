"""Agents of other frameworks: each framework is one module here, or one of another package."""
