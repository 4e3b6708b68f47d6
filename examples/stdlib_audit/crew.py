"""Audits the Python standard library of the interpreter it runs on, and writes a report with a plot.

    runner submit examples/stdlib_audit/crew.py

Nothing but Python is needed: no key, no network. `collect` deals the files out in equal shares, the `analyse_*` tasks
measure them in parallel, `rank` joins what they found, `plot` draws it and `report` writes it up.
"""

from audit import SHARES, analyse, collect, plot, rank, report

from runner import Crew, Process, Task

collecting = Task(
    name="collect",
    description="Find the library's source files and deal them out in shares of equal size.",
    expected_output="The shares: for each analysing task, its files in chunks.",
    run=collect,
)

analysing = [
    Task(
        name=share,
        description="Measure the files of one share.",
        expected_output="For each module its size, functions, documentation, imports and smells.",
        run=analyse,
        context=[collecting],
        async_execution=True,  # all shares run at the same time, on whatever workers there are
    )
    for share in SHARES
]

ranking = Task(
    name="rank",
    description="Join the shares: rank functions, packages and imports.",
    expected_output="The rankings and totals that the plot and the report show.",
    run=rank,
    context=[collecting, *analysing],
)

plotting = Task(
    name="plot",
    description="Plot the packages: size against complexity.",
    expected_output="An SVG picture.",
    run=plot,
    context=[ranking],
    output_file="stdlib_audit.svg",
)

reporting = Task(
    name="report",
    description="Write up what was found.",
    expected_output="A Markdown report that shows the plot.",
    run=report,
    context=[ranking],
    output_file="stdlib_audit.md",
)

crew = Crew(
    name="stdlib-audit",
    tasks=[collecting, *analysing, ranking, plotting, reporting],
    process=Process.sequential,
)
