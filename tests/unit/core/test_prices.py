"""What calls cost: by the list, by prices of one's own, with each kind of token at its own price."""

from pathlib import Path

import pytest

from runner.core.errors import UsageError
from runner.core.ledger import LedgerRow, Usage, costs, summed
from runner.core.prices import NO_PRICES, cost_in_a_cell, cost_in_words, money
from runner.llm.list_prices import VARIABLE, configured

LONG = Usage(92_500, 0, 90_000, 2_000)


def test_cached_and_written_tokens_have_prices_of_their_own() -> None:
    """At the list's $3, $0.30, $3.75 and $6 a million."""
    prices = configured()
    assert prices.cost("claude-sonnet-4-5", LONG, 1) == pytest.approx(0.0015 + 0.027 + 0.0075)
    an_hour = LONG._replace(cache_write_1h_tokens=2_000)
    assert prices.cost("claude-sonnet-4-5", an_hour, 1) == pytest.approx(0.0015 + 0.027 + 0.012)
    assert prices.cost("gpt-4o-mini", Usage(10_000, 100, 8_000), 1) == pytest.approx(0.0003 + 0.0006 + 0.00006)


def test_reasoning_is_part_of_the_answer() -> None:
    assert configured().cost("gpt-5", Usage(0, 1_000, reasoning_tokens=900), 1) == pytest.approx(0.01)


def test_long_prompts_cost_more_by_the_call_and_not_by_their_sum() -> None:
    """Gemini costs twice as much from 200,000 tokens of one prompt on."""
    prices = configured()
    short, long = prices.cost("gemini-2.5-pro", Usage(150_000), 1), prices.cost("gemini-2.5-pro", Usage(300_000), 1)
    assert short is not None
    assert long == pytest.approx(short * 4)
    assert prices.cost("gemini-2.5-pro", Usage(1_500_000), 10) == pytest.approx(short * 10)


@pytest.mark.parametrize(
    "model",
    ["gpt-4o", "openai/gpt-4o", "gpt-4o-2024-08-06", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5",
     "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "gemini/gemini-2.5-flash", "text-embedding-3-small"],
)  # fmt: skip
def test_models_are_found_by_the_names_they_are_asked_by(model: str) -> None:
    cost = configured().cost(model, Usage(1_000_000), 1)
    assert cost is not None
    assert 0.01 < cost < 20


@pytest.mark.parametrize("model", ["", "gpt", "scripted", "my-model", "a/b/c"])
def test_a_model_that_is_in_no_list_has_no_price(model: str) -> None:
    assert configured().cost(model, Usage(1000, 10), 1) is None


def test_own_prices_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = tmp_path / "prices.json"
    given.write_text(
        '{"gpt-4o-mini": [100, 200], "claude-*": {"prompt": 3, "completion": 15, "cached": 1}, "o1": null}'
    )
    monkeypatch.setenv(VARIABLE, str(given))
    prices = configured()
    assert prices.cost("openai/gpt-4o-mini", Usage(10_000, 1_000, 5_000), 2) == pytest.approx(1.2)
    assert prices.cost("claude-x", Usage(3_000, 0, 1_000, 1_000), 1) == pytest.approx(0.003 + 0.001 + 0.003)
    assert prices.cost("o1", Usage(1), 1) is None
    assert prices.cost("gpt-4o", Usage(1_000_000), 1) == pytest.approx(2.5), "the list has the others"
    assert prices.currency == "USD"


def test_prices_in_other_money_are_not_mixed_with_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, '{"currency": "eur", "mine": [1, 2]}')
    prices = configured()
    assert prices.currency == "EUR"
    assert prices.cost("mine", Usage(1_000_000), 1) == 1
    assert prices.cost("gpt-4o", Usage(1_000_000), 1) is None


@pytest.mark.parametrize(
    "given",
    ['{"m": [1]}', '{"m": [1, 2, 3]}', '{"m": [1, -2]}', '{"m": {"prompt": 1}}',
     '{"m": {"prompt": 1, "completion": 2, "x": 3}}',
     '{"m": [1, "two"]}', '{"m": 1}', '{"currency": 3}', '{"currency": "12"}', "{"],
)  # fmt: skip
def test_what_is_no_price_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(UsageError, match="RUNNER_PRICES must be JSON like"):
        configured()


def test_what_nobody_paid_for_costs_nothing() -> None:
    line = LedgerRow("main", "t", "", "gpt-4o", 0, 4, 0, 0, 0, replayed_tokens=100)
    assert line.cost(configured()) == 0
    assert line.cost(NO_PRICES) == 0
    paid = LedgerRow("main", "t", "", "gpt-4o", 1, 0, 0, 1000, 0, cached_tokens=400)
    assert paid.cost(NO_PRICES) is None
    both = summed([line, paid], configured())
    assert both["cost"] == pytest.approx(0.0015 + 0.0005)
    assert (both["currency"], both["prompt_tokens"], both["cached_tokens"]) == ("USD", 1000, 400)


def test_a_part_of_the_cost_is_not_told_as_the_cost() -> None:
    priced = LedgerRow("main", "t", "", "gpt-4o", 1, 0, 0, 1000, 0)
    local = LedgerRow("main", "t", "", "mine", 2, 0, 0, 1000, 10)
    silent = LedgerRow("main", "u", "", "gpt-4o", 1, 0, 0, 0, 0)  # its service told no tokens
    served = LedgerRow("main", "u", "", "mine", 0, 3, 0, 0, 0)
    for lines, known, unpriced in (
        ([priced, served], 0.0025, {}),
        ([priced, local], 0.0025, {"mine": 2}),
        ([local, silent, local], 0, {"mine": 4, "gpt-4o": 1}),
        ([], 0, {}),
    ):
        told = summed(lines, configured())
        assert (told["cost_known"], told["unpriced"]) == (pytest.approx(known), unpriced)
        assert told["cost"] == (None if unpriced or not lines else told["cost_known"])
    assert summed([local], NO_PRICES)["unpriced"] == {}, "a stand-in's answer has no cost to be known"


def test_a_cost_is_told_in_words() -> None:
    def words(*calls: tuple[str, int, float | None]) -> tuple[str, str]:
        spent = {**costs(calls), "currency": "USD"}
        return cost_in_words(spent), cost_in_a_cell(spent, "USD")

    assert words() == ("", "")
    assert words(("gpt-4o", 2, 0.5)) == ("cost $0.500", "$0.500")
    assert words(("a", 2, 0.5), ("b", 1, None)) == ("cost at least $0.500 (not known: 1 call of b)", "≥ $0.500")
    assert words(("b", 1, None), ("a", 1200, None)) == ("cost not known (1 call of b, 1,200 calls of a)", "not known")
    assert words(*((name, 1, None) for name in "abcde"))[0].endswith("1 call of c and 2 more models)")


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "$0.00"), (7.725e-05, "$0.0000772"), (0.0001692, "$0.000169"), (0.0405, "$0.0405"), (0.999, "$0.999"),
     (1, "$1.00"), (1234.5, "$1,234.50")],
)  # fmt: skip
def test_money_is_told_as_money(amount: float, shown: str) -> None:
    assert money(amount) == shown
    assert money(amount, "CHF") == f"{shown[1:]} CHF"
