"""The picture of a flow."""

from pathlib import Path

import pytest

from runner.flows import Flow, and_, listen, router, start
from runner.flows.plot import diagram


class Report(Flow):
    @start()
    def collect(self) -> str:
        return "notes"

    @router(collect, emit=["good", "bad"])
    def judge(self) -> str:
        return "good"

    @listen("good")
    def write(self) -> None: ...

    @listen(and_(write, collect))
    def send(self) -> None: ...

    @listen("never said")
    def never(self) -> None: ...


def test_a_flow_is_drawn_as_it_is_defined() -> None:
    assert diagram(Report.flow_definition()).splitlines() == [
        "flowchart TD",
        '    m0(["collect"])',
        '    m1{"judge"}',
        '    m2["write"]',
        '    m3["send"]',
        '    m4["never"]',
        "    m0 --> m1",
        "    m0 --> m3",
        '    m1 -. "good" .-> m2',
        "    m2 --> m3",
        '    m4_10(("never said")) -.-> m4',
    ]


@pytest.mark.parametrize("given", ["flow", "flow.html"])
def test_the_picture_is_a_page(tmp_path: Path, given: str) -> None:
    path = Report().plot(str(tmp_path / given), show=False)
    assert path == str((tmp_path / "flow.html").resolve())
    assert 'm1 -. "good" .-&gt; m2' in Path(path).read_text()
