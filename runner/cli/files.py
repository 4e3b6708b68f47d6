"""``runner files``: lists or writes the output files of a run."""

from pathlib import Path
from typing import Any

import click

from runner.cli import options
from runner.cli.stdio import only, say
from runner.client import Client
from runner.client.files import write_files
from runner.core.errors import BadInput, Exit, LeadsOutside
from runner.core.plain_text import json_text


@click.command()
@options.run_id
@options.branch("The files of this branch. Default: the current one.")
@options.text("--out", metavar="DIR", help="Write them to this folder, each at its own path.")
@options.json_and_url
def files(run_id: str, branch: str | None, out: str | None, as_json: bool) -> int:
    """List the output files of RUN's finished tasks, or write them below DIR.

    Output files are stored with the run, wherever the task ran. A path that leads out of DIR is reported and not
    written; an absolute path is taken relative to DIR.
    """
    with only() as write, Client() as client:
        handle = client.run(run_id, branch)
        found = handle.files()
        rows: list[dict[str, Any]] = [{"task": one.task, "path": one.path, "bytes": one.size} for one in found]
        code = 0
        if out is not None:
            try:
                for one, done in zip(rows, write_files(found, Path(out)), strict=True):
                    if isinstance(done, LeadsOutside):
                        say(f"error: the output file {done}")
                        one["refused"] = str(done)
                        code = int(Exit.FAILED)
                    else:
                        one["written"] = str(done)
            except OSError as error:
                raise BadInput(f"an output file cannot be written: {error}; try another folder with --out") from None
        if as_json:
            write(json_text({"run_id": handle.id, "branch": branch or handle.record.branch, "files": rows}) + "\n")
            return code
        for one in rows:
            write(f"{one.get('written') or one['path']}  {one['task']}  {one['bytes']:,} bytes\n")
        if not found:
            write("no files: no completed task has an output_file\n")
    return code
