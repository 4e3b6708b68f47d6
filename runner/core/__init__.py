"""Values and pure functions: plan, ledger, outputs, settings, errors. Standard library and pydantic alone."""
