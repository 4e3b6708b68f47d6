"""Adapters to other people's frameworks, each a package of its own that the engine knows by its entry point."""
