"""A picture of a flow: its methods, and what each waits for, as a page that shows a Mermaid diagram."""

import html
from pathlib import Path

from runner.flows.definition import FlowDefinition

_PAGE = """<!doctype html>
<title>{name}</title>
<pre class="mermaid">
{diagram}
</pre>
<script type="module">
import mermaid from "https://cdn.jsdelivr.net/npm/mermaid@11/dist/mermaid.esm.min.mjs";
mermaid.initialize({{startOnLoad: true}});
</script>
"""


def diagram(definition: FlowDefinition) -> str:
    """The flow in Mermaid's words: an arrow for each name that a method listens for, dotted where it is a label."""
    ids = {name: f"m{number}" for number, name in enumerate(definition.methods)}
    lines = ["flowchart TD"]
    for name, method in definition.methods.items():
        shape = ("([{}])" if method.start else "{{{}}}" if method.router else "[{}]").format(f'"{name}"')
        lines.append(f"    {ids[name]}{shape}")
    for name, listeners in definition.listeners.items():
        sources = [name] if name in ids else [one for one, method in definition.methods.items() if name in method.emit]
        for method in listeners:
            for source in sources:
                arrow = "-->" if source == name else f'-. "{name}" .->'
                lines.append(f"    {ids[source]} {arrow} {ids[method.name]}")
            if not sources:
                lines.append(f'    {ids[method.name]}_{len(lines)}(("{name}")) -.-> {ids[method.name]}')
    return "\n".join(lines)


def write(definition: FlowDefinition, filename: str) -> Path:
    """Write the page. Returns where it is."""
    path = Path(filename)
    path = path if path.suffix == ".html" else path.with_name(f"{path.name}.html")
    page = _PAGE.format(name=html.escape(definition.name), diagram=html.escape(diagram(definition), quote=False))
    path.write_text(page, "utf-8")
    return path.resolve()
