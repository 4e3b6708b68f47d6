"""What docs/concepts.md says of numpy, which comes with what many crews import, and not with this product."""

import json

import pytest

from runner.core import encoding


def test_values_of_numpy_are_numbers_and_text_or_refused() -> None:
    numpy = pytest.importorskip("numpy")
    for value, plain in ((numpy.float64(1.5), 1.5), (numpy.str_("owl"), "owl")):
        data, entries = encoding.encode(value, lambda _: None)
        back = encoding.decode(json.loads(json.dumps(data)), entries, lambda _: None)
        assert (back, type(back)) == (plain, type(plain))
    for value in (numpy.int64(3), numpy.bool_(True), numpy.array([1, 2])):
        with pytest.raises(encoding.NotSerializable):
            encoding.encode(value, lambda _: None)
        for plain in (value.tolist(), value[0].item() if value.shape else value.item()):
            encoding.encode(plain, lambda _: None)
