"""Writes the report. Every sentence is computed: other interpreters give other findings."""

from collections.abc import Iterable, Sequence
from typing import Any

from chart import bars
from survey import COPY_LINES, HARD

Ranks = dict[str, Any]  # what `rank` returned


def write_report(ranks: Ranks, picture: str) -> str:
    """The whole report as Markdown."""
    if not ranks["library"]["modules"]:
        return nothing(ranks)
    parts = [
        f"# {ranks['title']}, audited\n\n{summary(ranks)}",
        f"## Findings\n\n{findings(ranks)}",
        f"## Size and complexity\n\n![Size against complexity]({picture})\n\n{sizes(ranks)}\n\n{opcodes(ranks)}",
        f"## The hardest functions\n\n{spread(ranks)}\n\n{hardest(ranks)}",
        f"## The least documented packages\n\n{undocumented(ranks)}",
        f"## Imports\n\n{hubs(ranks)}\n\n{heaviest(ranks)}",
        f"## What a reviewer would ask about\n\n{smells(ranks)}\n\n{copies(ranks)}",
        f"## How it was measured\n\n{method(ranks)}",
    ]
    return "\n\n".join(parts) + "\n"


def nothing(ranks: Ranks) -> str:
    """The report on an interpreter that keeps its library in an archive, or an empty folder."""
    return (
        f"# {ranks['title']}, audited\n\n{ranks['python']} has no source files of it here that could be measured "
        f"({counted(len(ranks['skipped']), 'file')} skipped). "
        "Some interpreters keep their library in an archive, compiled: try another one, or name a folder "
        "with the input `root`.\n"
    )


def summary(ranks: Ranks) -> str:
    """What there is, in one paragraph."""
    library, tests = ranks["library"], ranks["tests"]
    words = (
        f"The sources of {ranks['python']}: {library['modules']:,} modules in {len(ranks['packages']):,} packages, "
        f"{library['lines']:,} lines, of which {of(library['code'], library['lines'])} are code, "
        f"{of(library['docs'], library['lines'])} docstrings, {of(library['comments'], library['lines'])} comments "
        f"and {of(library['blank'], library['lines'])} blank. They define {library['functions']:,} functions and "
        f"{library['classes']:,} classes."
    )
    if tests["modules"]:
        words += f" The test suites add {tests['modules']:,} modules with {tests['lines']:,} lines."
    if ranks["skipped"]:
        words += f" {counted(len(ranks['skipped']), 'file')} did not compile and {are(ranks['skipped'])} left out."
    return words


def findings(ranks: Ranks) -> str:
    """The main results, each in a sentence or two."""
    told = (finding(ranks) for finding in (few_are_hard, one_is_hardest, size_says, what_is_explained, annotations))
    more = (finding(ranks) for finding in (hub_says, circles, tests_say))
    return "\n".join(f"- {words}" for words in [*told, *more] if words)


def few_are_hard(ranks: Ranks) -> str:
    """How the complexity is spread."""
    library = ranks["library"]
    hard = sum(count for value, count in library["complexities"] if value > HARD)
    simple = sum(count for value, count in library["complexities"] if value == 1)
    return (
        f"**Most functions are simple.** {of(simple, library['functions'])} make no decision at all. "
        f"{of(hard, library['functions'])} have a complexity above {HARD}, and hold "
        f"{of(library['hard_lines'], library['function_lines'])} of all lines in functions."
    )


def one_is_hardest(ranks: Ranks) -> str:
    """The extreme ones."""
    if not ranks["hardest"]:
        return ""
    module, name, _, lines, complexity, _ = ranks["hardest"][0]
    deep_module, deep_name, *_, depth = ranks["deepest"][0]
    return (
        f"**The hardest function is `{module}.{name}`**, with a complexity of {complexity} in {lines} lines. "
        f"The deepest is `{deep_module}.{deep_name}`: {depth} blocks inside one another."
    )


def size_says(ranks: Ranks) -> str:
    """Whether size and documentation go with complexity."""
    sized, explained = ranks["size_and_complexity"], ranks["documentation_and_complexity"]
    if sized is None or explained is None:
        return ""
    return (
        f"**The size of a package says {tells(sized)} about the complexity of its functions** "
        f"(rank correlation {sized:+.2f}); how much of it is documented says {tells(explained)} ({explained:+.2f})."
    )


def tells(correlation: float) -> str:
    """A correlation in words."""
    words = ((0.2, "next to nothing"), (0.4, "a little"), (0.6, "something"), (2, "much"))
    return next(word for limit, word in words if round(abs(correlation), 2) < limit)


def what_is_explained(ranks: Ranks) -> str:
    """How much is documented, and by whom least."""
    library = ranks["library"]
    if not library["public"] or not ranks["undocumented"]:
        return ""
    worst = ranks["undocumented"][0]
    return (
        f"**{of(library['documented'], library['public'])} of {library['public']:,} public names have a docstring.** "
        f"The least explained is `{worst['package']}`: {worst['documented']} of {worst['public']}."
    )


def annotations(ranks: Ranks) -> str:
    """How much is annotated, and by whom most."""
    library = ranks["library"]
    if not library["annotated"]:
        return "**No parameter and no result is annotated.**"
    most = max(ranks["packages"], key=lambda package: (package["annotated"], package["package"]))
    return (
        f"**{of(library['annotated'], library['slots'])} of parameters and results are annotated**, "
        f"{of(most['annotated'], library['annotated'])} of those in `{most['package']}`."
    )


def hub_says(ranks: Ranks) -> str:
    """What everything rests on."""
    names = [name for name, *_ in ranks["hubs"]]
    if len(names) < 3:
        return ""
    heavy, brought = ranks["heaviest"][0]
    return (
        f"**Everything leads to {listed(names[:3], 3)}**, by PageRank over {ranks['edges']:,} imports. "
        f"Importing `{heavy}` brings in most: {brought} other modules. "
        f"{counted(ranks['alone'], 'module')} {'imports' if ranks['alone'] == 1 else 'import'} nothing."
    )


def circles(ranks: Ranks) -> str:
    """Who imports in circles."""
    found = ranks["cycles"]
    if not found:
        return "**No modules import each other in a circle.**"
    late = (
        f" Imports inside functions keep it at that: with them, {ranks['late_knot']} modules would hang together."
        if ranks["late_knot"] > len(found[0])
        else ""
    )
    return f"**{counted(len(found), 'import circle')}**, the largest through {listed(found[0], 6)}.{late}"


def tests_say(ranks: Ranks) -> str:
    """How much is tested."""
    if not ranks["tests"]["modules"]:
        return "**No test suites** were read, so nothing is said about tests."
    untested = [name for name in ranks["untested"] if not name.startswith("_")]
    ratio = ranks["tests"]["code"] / max(1, ranks["library"]["code"])
    return (
        f"**{ratio:.1f} lines of test code for each line of code.** "
        f"{counted(len(untested), 'public package')} {are(untested)} in no test's `import` statement: "
        f"{listed(untested, 6)}."
        if untested
        else f"**{ratio:.1f} lines of test code for each line of code**, and a test imports each public package."
    )


def sizes(ranks: Ranks) -> str:
    """The largest packages as bars. By instructions, as some modules are long tables and no code."""
    largest = sorted(ranks["packages"], key=lambda package: (-package["instructions"], package["package"]))[:10]
    rows = [
        (package["package"], package["instructions"], f"{package['instructions']:>7,}  {package['code']:>6,} lines")
        for package in largest
    ]
    return f"The largest packages, in instructions of bytecode:\n\n{block(bars(rows))}"


def spread(ranks: Ranks) -> str:
    """How many functions have which complexity, as bars."""
    ends = [(1, 1), (2, 5), (6, HARD), (HARD + 1, 20), (21, 50), (51, 10**9)]
    names = ["1", "2-5", f"6-{HARD}", f"{HARD + 1}-20", "21-50", "over 50"]
    counts = [sum(n for value, n in ranks["library"]["complexities"] if low <= value <= high) for low, high in ends]
    rows = [(name, count, f"{count:>6,}") for name, count in zip(names, counts, strict=True)]
    return f"How many functions have which complexity:\n\n{block(bars(rows))}"


def hardest(ranks: Ranks) -> str:
    """The hardest functions."""
    rows = [
        (code(f"{module}.{name}"), complexity, lines, depth, line)
        for module, name, line, lines, complexity, depth in ranks["hardest"]
    ]
    return table(("function", "complexity", "lines", "depth", "at line"), rows)


def undocumented(ranks: Ranks) -> str:
    """The packages that explain least."""
    rows = [
        (
            code(package["package"]),
            package["public"],
            package["documented"],
            of(package["documented"], package["public"]),
            f"{package['complexity']:.1f}",
        )
        for package in ranks["undocumented"]
    ]
    return table(("package", "public names", "documented", "share", "mean complexity"), rows)


def hubs(ranks: Ranks) -> str:
    """The modules that everything leads to."""
    rows = [
        (code(name) + ("" if has_source else " (no source)"), f"{rank:.4f}", importers)
        for name, rank, importers, has_source in ranks["hubs"]
    ]
    return table(("module", "PageRank", "imported by"), rows)


def heaviest(ranks: Ranks) -> str:
    """The modules that bring most others in."""
    names = ", ".join(f"{code(name)} ({brought})" for name, brought in ranks["heaviest"])
    return f"Imports that bring in most other modules, one for each package: {names}."


def smells(ranks: Ranks) -> str:
    """What was found, and where most of it."""
    rows = [(name, count, code(most), share) for name, (count, most, share) in ranks["smells"].items()]
    return table(("what", "found", "most in", "of them"), rows)


def copies(ranks: Ranks) -> str:
    """The function bodies that stand more than once."""
    found = ranks["copies"]
    if not found["bodies"]:
        return f"No body of {COPY_LINES} lines or more stands twice."
    lines, names = found["largest"][0]
    return (
        f"{counted(found['bodies'], 'function body', 'function bodies')} of {COPY_LINES} lines or more "
        f"{'stands' if found['bodies'] == 1 else 'stand'} in several places, the same word for word: "
        f"{found['spare_lines']:,} lines to spare. Most would be saved by the {lines} lines of {listed(names, 4)}."
    )


def opcodes(ranks: Ranks) -> str:
    """The most common instructions."""
    total = ranks["opcodes_total"]
    names = ", ".join(f"{code(name)} ({of(count, total)})" for name, count in ranks["opcodes"])
    return f"All of it compiles to {total:,} instructions, most of them {names}."


def method(ranks: Ranks) -> str:
    """What the words mean, and what was left out."""
    left_out = f" Left out: {listed([path for path, _ in ranks['skipped']], 4)}." if ranks["skipped"] else ""
    return (
        "Complexity is McCabe's: one for a function and one for each decision in it (`if`, `for`, `while`, `except`, "
        "`case`, `and`, `or`, comprehensions), nested functions counted apart. A package is everything below one "
        "top-level name. Public names are modules, classes and functions without a leading underscore in any part. "
        "Imports are read from the sources, on all platforms' branches; the packages around a module are not counted "
        "as imported by it. Locals never read include loop variables and unpacked values; an unused import may be "
        f"there for others to import. Test suites are left out where nothing else is said.{left_out}"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; numbers stand to the right."""
    rows = [list(row) for row in rows]
    left = [index == 0 or any(str(row[index]).startswith("`") for row in rows) for index in range(len(head))]
    lines = [head, [":--" if to_left else "--:" for to_left in left], *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Any) -> str:
    """A value in a table, thousands set apart."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def block(text: str) -> str:
    """Text that is shown as it is."""
    return f"```text\n{text}\n```"


def of(part: int, whole: int) -> str:
    """A share in percent."""
    return f"{part / max(1, whole):.0%}" if part * 10 >= whole or not part else f"{part / max(1, whole):.1%}"


def counted(number: int, name: str, names: str = "") -> str:
    """A number with its noun, in the singular or the plural."""
    return f"{number:,} {name if number == 1 else names or name + 's'}"


def are(found: Sequence[Any]) -> str:
    """The verb for that many."""
    return "is" if len(found) == 1 else "are"


def listed(names: Sequence[str], most: int) -> str:
    """Some names in a sentence, and how many more there are."""
    shown = [code(name) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def code(name: str) -> str:
    """A name as code."""
    return f"`{name}`"
