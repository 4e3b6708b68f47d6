"""Crews of shell commands: ``crew = ShellCrew(fetch="curl ...", count="wc -l page")``."""


class ShellCrew:
    """Commands that are done one after the other, each a task by its name."""

    def __init__(self, **commands: str) -> None:
        self.commands = commands
