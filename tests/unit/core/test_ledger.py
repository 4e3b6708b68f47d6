"""The account of a run's steps: what is counted, and how it is handed to the store."""

from runner.core.ledger import STEP, AccountKey, Counters, LedgerRow, counters_text, text_of_one, usage_in
from runner.core.prices import Price, Prices, Usage

CALL = AccountKey("model", "Reporter", "gpt-ü")
PRICES = Prices({"gpt-ü": Price(prompt=2.0, completion=10.0)})


def tally() -> Counters:
    found = Counters({STEP: 2})
    found.served(CALL, Usage(100, 20))
    found.served(CALL, Usage(50, 5))
    return found


def test_a_tally_is_read_back_from_its_text() -> None:
    again = Counters.read(tally().text())
    assert again == {STEP: 2, CALL: 2}
    assert again.tokens[CALL] == 175
    assert (Counters.read(""), Counters().text()) == ({}, "")
    assert Counters.read(text_of_one(CALL)) == {CALL: 1}


def test_a_number_is_of_a_persons_steps() -> None:
    assert Counters.read(counters_text(3)) == {STEP: 3}
    assert counters_text(0) == ""
    assert counters_text(tally()) == tally().text()


def test_what_is_more_is_counted_once() -> None:
    before, after = tally(), tally()
    after.served(CALL, Usage(7, 0))
    more = after.beyond(before)
    assert (more, more.tokens[CALL]) == ({CALL: 1}, 7)
    assert before.beyond(after) == {}
    before.add(more)
    assert (before, before.tokens[CALL]) == (after, after.tokens[CALL])


def test_the_tokens_of_a_recorded_answer_are_with_or_without_details() -> None:
    assert usage_in({"usage": [10, 2]}) == Usage(10, 2)
    assert usage_in({"usage": [10, 2], "details": [4, 0, 0, 1]}) == Usage(10, 2, 4, 0, 0, 1)


def test_a_line_has_its_cost_where_the_price_is_known() -> None:
    line = LedgerRow("main", "t", "Reporter", "gpt-ü", 1, 0, 0, 1_000_000, 100_000)
    told = line.to_dict(PRICES)
    assert (told["agent"], told["prompt_tokens"], told["cost"]) == ("Reporter", 1_000_000, 3.0)
    assert LedgerRow("main", "t", "", "other", 1, 0, 0, 10, 1).to_dict(PRICES)["cost"] is None
