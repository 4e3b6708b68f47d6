"""What a task may return comes back of its type: through JSON, and of classes that its own code names."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import ipaddress
import json
import math
import sys
import uuid
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, HttpUrl, PrivateAttr, RootModel, SecretStr
from pydantic_core import TzInfo

from runner.core import encoding, stored_output
from runner.core import output as outputs
from runner.core.class_names import Names
from runner.core.errors import BadInput, TaskError


class Colour(enum.Enum):
    RED = "red"
    BLUE = (0, 0, 255)


class Binary(enum.Enum):
    ONE = b"\xff"


class Level(enum.IntEnum):
    LOW = 1


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Word(enum.StrEnum):
    YES = "yes"


class Point(NamedTuple):
    x: int
    when: datetime.date


@dataclasses.dataclass
class Row:
    name: str
    seen: set[int]
    best: Point | None = None
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total = len(self.seen)

    @dataclasses.dataclass(frozen=True, slots=True)
    class Inner:
        n: int


class Report(BaseModel):
    title: str = Field(alias="Title")
    at: datetime.datetime
    parts: tuple[Row, ...] = ()


class Loose(BaseModel):
    anything: Any = None


class Recent(BaseModel):
    """Its JSON says neither how long its deque may be, nor which of two hours it was."""

    last: collections.deque[int] = collections.deque()
    at: datetime.datetime = datetime.datetime(2026, 1, 2)


class Numbers(RootModel[list[int]]):
    pass


class Bytes(BaseModel):
    data: bytes = b""
    inner: Loose | None = None


class Private(BaseModel):
    n: int = 0
    _seen: Any = PrivateAttr(default=0)

    def _told(self, **values: Any) -> "Private":
        for name, value in values.items():
            setattr(self, name, value)
        return self

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.n


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0


class Linked(BaseModel):
    at: HttpUrl
    made: uuid.UUID = Field(default_factory=uuid.uuid4)
    inner: Loose = Loose()


@dataclasses.dataclass
class Raw:
    data: bytes
    model: Any = None


def home() -> None:
    """A function of this file."""


NAMES = Names([home])
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
WINTER = datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))


def through(value: Any, names: Names = NAMES) -> Any:
    data, entries = encoding.encode(value, names.name_of)
    data, entries = json.loads(json.dumps([data, entries], allow_nan=False))
    return encoding.decode(data, entries, names.find)


def described(value: Any) -> Any:
    """All that there is to a value, in text, numbers and tuples: told apart by what `encoding` does not look at."""
    of = type(value)
    known: Any = repr(value)
    if isinstance(value, datetime.datetime | datetime.time):
        moment = value if isinstance(value, datetime.datetime) else None
        name = value.tzname() if isinstance(value.tzinfo, datetime.timezone) else repr(value.tzinfo)
        if isinstance(value.tzinfo, TzInfo):  # pydantic's, for what is a fixed offset anywhere else
            name = datetime.timezone(value.tzinfo.utcoffset(None)).tzname(None)
        known = value.replace(tzinfo=None).isoformat(), value.fold, value.utcoffset(), moment and name
    elif isinstance(value, BaseModel):
        fields = {name: one for name, one in vars(value).items() if name in of.model_fields}
        rest = [fields, value.__pydantic_extra__, value.__pydantic_private__]
        known = sorted(value.model_fields_set), [part and sorted(described(part)[1], key=repr) for part in rest]
    elif dataclasses.is_dataclass(value):
        known = [described(getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, set | frozenset):
        known = sorted(map(described, value), key=repr)
    elif isinstance(value, dict):
        known = [(described(key), described(one)) for key, one in value.items()]
        known.append(repr(getattr(value, "default_factory", None)))
    elif isinstance(value, list | tuple | collections.deque):
        known = [*map(described, value), getattr(value, "maxlen", None)]
    return of.__qualname__, known


VALUES = [
    None, True, 0, -1.5, 10**40, "", "text", math.inf, [], {}, (), set(), b"", [1, "a", None, 2.5],
    {"a": [1, {"b": ()}]},
    (1, (2, [3])), {1, 2}, {"a", 1, (2, 3)}, frozenset({"x"}), b"text", b"\xff\x00", bytearray(b"\xfe"),
    datetime.date(2026, 1, 2), NOON, NOON.replace(tzinfo=None), WINTER, WINTER.replace(fold=0),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.timezone(datetime.timedelta(hours=-7))),
    datetime.time(1, 2, 3), datetime.timedelta(days=-400, microseconds=1), datetime.timedelta(0),
    decimal.Decimal("1.10"), decimal.Decimal("NaN"), fractions.Fraction(1, 3), 2 + 3j, uuid.UUID(int=7), Path("a/b"),
    {1: "a", (2, 3): "b", datetime.date(2026, 1, 2): "c", None: "d"}, {Level.LOW: 1, Word.YES: 2},
    collections.Counter("abca"), collections.OrderedDict(b=1, a=2), collections.defaultdict(list, a=[1]),
    collections.deque([1, (2,)]), collections.deque([1, (2,)], maxlen=2), collections.deque(maxlen=0),
    NOON.replace(tzinfo=None, fold=1), NOON.replace(fold=1), datetime.time(1, fold=1), {"a": [WINTER.time()]},
    Colour.RED, Colour.BLUE, Level.LOW, Right.READ, Right.READ | Right.WRITE, Word.YES,
    Point(1, datetime.date(2026, 1, 2)), Row("a", {1, 2}, Point(1, datetime.date(2026, 1, 2))), Row.Inner(3),
    Report(Title="T", at=NOON, parts=(Row("a", {1}),)), Numbers([1, 2]), Loose(anything={"a": [1]}),
    Loose(), Loose(anything=None), Loose(anything=NOON), Loose(anything=[(1,), {2}, Row("a", set())]),
    Open(n=1, m=NOON),
    Bytes(data=b"\xff"), Bytes(inner=Loose()), [Bytes(inner=Loose(anything=b"\xff"))],
    Raw(b"\xff", Bytes(data=b"\xfe")),
    Private(), Private(n=1)._told(_seen=(1, 2)), Private.model_construct(n="no number"),
    Linked(at="https://host/x"), Linked(at="https://host/x", inner=Loose(anything=1)),
    Recent(), Recent(last=collections.deque([1], maxlen=2)), Recent(at=datetime.datetime(2026, 1, 2, fold=1)),
    Recent(at=WINTER), Loose(anything=Colour.BLUE), Loose(anything=Loose()), {b"\xff": 1}, Binary.ONE,
    ipaddress.ip_address("::1"), ipaddress.ip_network("10.0.0.0/8"), AnyUrl("redis://host"),
    NOON.astimezone(datetime.timezone(datetime.timedelta(hours=1), "CET")), {Level.LOW: {1.0}},
    [Report(Title="T", at=NOON), {"rows": (Row("a", set()), Row.Inner(1))}], {"when": [NOON, b"\xff", {NOON}]},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_it_comes_back_as_it_was(value: Any) -> None:
    back = through(value)
    assert encoding.same(back, value)
    assert described(back) == described(value)
    if isinstance(value, datetime.datetime):
        assert (back.utcoffset(), back.fold) == (value.utcoffset(), value.fold)


def test_what_a_deque_holds_and_which_hour_it_was_are_compared() -> None:
    assert through(collections.deque([1], maxlen=2)).maxlen == 2
    assert through(datetime.time(1, fold=1)).fold == 1
    for one, other in [
        (collections.deque([1], 2), collections.deque([1])),
        (collections.deque([1]), collections.deque([True])),
        (datetime.time(1, fold=1), datetime.time(1)),
        (NOON.replace(fold=1), NOON),
    ]:
        assert not encoding.same(one, other)


def test_an_edited_time_has_no_fold_of_the_other() -> None:
    data, entries = encoding.encode(datetime.datetime(2026, 1, 2, fold=1), NAMES.name_of)
    kept = encoding.types_after_edit(entries, data, "2026-01-03T00:00:00")
    assert encoding.decode("2026-01-03T00:00:00", kept, NAMES.find) == datetime.datetime(2026, 1, 3)
    assert encoding.decode("2026-01-03T00:00:00", kept, NAMES.find).fold == 0
    assert encoding.types_after_edit(entries, data, data) == entries


def test_an_edited_deque_loses_nothing_unseen() -> None:
    data, entries = encoding.encode(collections.deque([1], maxlen=2), NAMES.name_of)
    kept = encoding.types_after_edit(entries, data, [2, 3])
    assert encoding.same(encoding.decode([2, 3], kept, NAMES.find), collections.deque([2, 3], maxlen=2))
    with pytest.raises(BadInput, match=r"^there is no deque in \[2, 3, 4\]: it holds at most 2"):
        encoding.types_after_edit(entries, data, [2, 3, 4])


def test_a_number_that_is_none_comes_back() -> None:
    assert math.isnan(through([math.nan])[0])


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary() | st.dates() | st.datetimes(timezones=st.just(datetime.UTC) | st.none()) | st.timedeltas()
    | st.decimals() | st.uuids() | st.sampled_from(Colour),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])) , inner) | st.sets(st.integers() | st.dates()),
    max_leaves=12,
)  # fmt: skip


@settings(deadline=None)
@given(ANY)
def test_whatever_it_is_made_of_comes_back(value: Any) -> None:
    assert encoding.same(through(value), value)
    assert described(through(value)) == described(value)


def _model(of: Any, inner: Any, **fields: Any) -> Any:
    """With any of its fields given, rightly or not, and the others not."""
    given = st.fixed_dictionaries({}, optional=dict.fromkeys(of.model_fields, inner) | fields)
    return given.map(lambda values: of.model_construct(_fields_set=set(values), **values))


class Hidden(BaseModel):
    n: int = 0


def _local() -> Any:
    class Local(BaseModel):
        n: int = 1

    return Local()


@dataclasses.dataclass
class More:
    n: int

    def __post_init__(self) -> None:
        self.other = 1


class Bag(dict[str, int]):
    pass


DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]
ITSELF: list[Any] = []
ITSELF.append(ITSELF)


class Other(datetime.tzinfo):
    """A zone of a library that no name makes again."""

    def utcoffset(self, _: Any) -> datetime.timedelta:
        return datetime.timedelta(hours=1)

    def dst(self, _: Any) -> datetime.timedelta:
        return datetime.timedelta(0)


@dataclasses.dataclass(init=False)
class Mapped(dict[str, int]):
    n: int

    def __init__(self, values: dict[str, int], n: int) -> None:
        super().__init__(values)
        self.n = n


@dataclasses.dataclass
class Fault(Exception):
    why: str


class Marked(Point):
    """Has a place for attributes, which a named tuple has not."""


class Settings(BaseModel):
    key: SecretStr


SETTINGS = Settings(key=SecretStr("sesame"))
LACKING, MARKED, OTHER = Row("a", set()), Marked(1, NOON.date()), Loose()
del LACKING.name
MARKED.more = 1
vars(OTHER)["other"] = 1


ZONES = st.sampled_from([WINTER.tzinfo, datetime.timezone(datetime.timedelta(1 / 24), "X"), Other()])
THINGS = st.recursive(
    ANY | st.builds(NOON.astimezone, ZONES)
    | st.just(Path("a")) | st.sampled_from([object(), Level.LOW, Binary.ONE, SETTINGS, Private()._told(_seen=(1,))]),
    lambda inner: st.one_of(
        *(_model(of, inner) for of in (Bytes, Loose, Recent, Linked, Private)), _model(Open, inner, other=inner),
        inner.map(lambda one: Bytes(inner=Loose(anything=one))), st.builds(Raw, st.binary(), inner),
        st.builds(Row, inner, st.sets(st.integers())), st.builds(Point, inner, inner), st.lists(inner, max_size=3),
        st.dictionaries(st.text("ab") | st.binary(max_size=1) | st.sampled_from(Level), inner, max_size=3),
    ),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # pydantic's, of fields with values of another type
@settings(deadline=None)
@given(THINGS)
@example({"a\nb": object()})
def test_what_is_returned_is_what_comes_or_is_refused(value: Any) -> None:
    before = described(value)
    try:
        output = outputs.typed_output("a", value, lambda: NAMES)
    except TaskError as refused:
        said = str(refused)
    else:
        said = ""
    if said:
        assert said.startswith("task 'a' returned ")
        assert "\n" not in said
        return
    stored = json.loads(outputs.to_text(outputs.record(output)))
    assert described(outputs.from_record(stored, NAMES).value) == before
    assert described(value) == before, "it is left as it was"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), r"^an object, which cannot be passed to the next task unchanged: return text, "),
        ({"rows": [1, object()]}, r"^an object at rows\.1, which cannot"),
        (iter([1]), "^a list_iterator, which"),
        ({}.keys(), "^a dict_keys, which"),
        (Bag(), "^a Bag, which"),
        (
            _local(),
            r"^a _local\.<locals>\.Local, a class that is not in its file, which .* annotate the function: -> Local",
        ),
        (More(1), "^a More with 'other', which is not one of its fields"),
        ([{"a": Loose(anything=[object()])}], r"^an object at 0\.a\.anything\.0, which"),
        (Private()._told(_seen=object()), "^an object at _seen, which"),
        (SETTINGS, "^a SecretStr at key, which"),
        (Mapped({"a": 1}, 1), "^a Mapped that its fields do not restore"),
        (Fault("x"), "^a Fault that its fields do not restore"),
        (LACKING, "^a Row that its fields do not restore"),
        (MARKED, "^a Marked with 'more', which is not one of its fields"),
        (OTHER, "^a Loose with an attribute that is not one of its fields"),
        (NOON.astimezone(Other()), "^a datetime that its text '2026-01-02T13:00:00\\+01:00' does not restore"),
        ({1: "a", "1": "b"}, "^a dict with the keys '1' and '1', which are the same key in JSON"),
        (collections.defaultdict(lambda: 1), "^a defaultdict, which"),
        (ITSELF, "^something that is nested too deeply, or contains itself, which"),
        (DEEP, "^something that is nested too deeply, or contains itself, which"),
        (sys, "^a module, which"),
    ],
)
def test_what_no_json_makes_again_is_refused(value: Any, says: str) -> None:
    with pytest.raises(encoding.NotSerializable, match=says):
        encoding.encode(value, NAMES.name_of)


def test_names_are_those_of_the_code_and_of_nothing_else() -> None:
    """What is stored cannot have anything else made: no module is looked at for it, and no other class."""
    assert NAMES.find("Report") is Report
    assert NAMES.find("Row.Inner") is Row.Inner
    for name in (
        "uuid.UUID",
        "Path",
        "os.system",
        "Report.__init__",
        "object",
        "runner.crews.context.Task",
        "subprocess.Popen",
    ):
        assert NAMES.find(name) is None
        with pytest.raises(BadInput, match=r"which its task's code no longer names"):
            encoding.decode({}, [[[], "class", name]], NAMES.find)


def test_classes_that_a_function_is_annotated_with_are_named() -> None:
    local = type(_local())

    def annotated() -> Any: ...

    annotated.__annotations__["return"] = dict[str, list[local]]
    assert Names([annotated]).find(local.__qualname__) is local
    assert encoding.same(through({"a": [local(n=3)]}, Names([annotated])), {"a": [local(n=3)]})


@pytest.mark.parametrize(
    "entry",
    [[["a"], "date"], [[], "date"], [[], "nonsense"], [[], "class", "Report"], [[0, 1], "tuple"], [[], "decimal"],
     [[], "defaultdict", "eval"], [[], "datetime", "../etc"], [[], "uuid"], [["b", 5], "tuple"]],
)  # fmt: skip
def test_what_does_not_fit_is_said_in_a_line(entry: Any) -> None:
    with pytest.raises(BadInput) as caught:
        encoding.decode({"a": "no date", "b": []}, [entry], NAMES.find)
    assert "\n" not in str(caught.value)


def test_outputs_of_before_are_read_and_ours_are_by_those_who_know_no_types() -> None:
    old: list[tuple[dict[str, Any], Any]] = [
        ({"raw": "42"}, "42"),
        ({"json": [1]}, [1]),
        ({"raw": "x", "json": {}}, {}),
    ]
    for record, value in old:
        assert outputs.from_record(record).value == value
    for value, known in [(42, ("42", None)), ((1, 2), ("[1, 2]", [1, 2])), (NOON.date(), ('"2026-01-02"', None))]:
        assert stored_output.load(outputs.record(outputs.typed_output("a", value, lambda: NAMES))) == known


@pytest.mark.parametrize("value", ["text", "", [1, "a"], {"a": {"b": None}}])
def test_what_json_knows_costs_nothing_more(value: Any) -> None:
    assert "value" not in outputs.record(outputs.typed_output("a", value, lambda: NAMES))
