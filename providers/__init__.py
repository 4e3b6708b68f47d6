"""Everything that stores; this folder installs as ``runner.providers``."""

if __name__ != "runner.providers":
    raise ImportError(f"import runner.providers, not {__name__}: see CONTRIBUTING.md, Layout")
