"""Adapters for frameworks. Each is a package that the engine finds by its entry point."""
