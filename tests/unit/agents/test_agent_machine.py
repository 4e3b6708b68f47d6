"""What an agent does next, from its conversation alone; and what is read and made of texts. No model, no tools."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from runner.agents import context_window, structured_output, text_tool_protocol
from runner.agents.machine import ERROR, Ask, Done, Fail, Rules, Say, Use, final, next_move

SYSTEM = {"role": "system", "content": "You are r."}
TASK = {"role": "user", "content": "Go."}


def call(name, number=0, arguments="{}"):
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def wants(*calls):
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def result(number, content="r"):
    return {"role": "tool", "tool_call_id": f"c{number}", "name": "t", "content": content}


def says(text):
    return {"role": "assistant", "content": text}


def told(move):
    """What the move tells the model."""
    assert isinstance(move, Say)
    return move.message


BEGUN = [SYSTEM, TASK]
ROUND = [wants(call("t", 0), call("t", 1)), result(0), result(1)]


@pytest.mark.parametrize(
    ("messages", "move"),
    [
        (BEGUN, Ask(tools=True)),
        ([*BEGUN, says("I think.\nFinal Answer: owls")], Done("owls")),
        ([*BEGUN, says(" owls ")], Done("owls")),
        ([*BEGUN, wants(call("t", 0))], Use((call("t", 0),), 0)),
        ([*BEGUN, *ROUND, wants(call("t", 2), call("u", 3))], Use((call("t", 2), call("u", 3)), 2)),
        ([*BEGUN, *ROUND], Ask(tools=True)),
        ([*BEGUN, ROUND[0], result(0)], Use((call("t", 1),), 1)),  # restored in the middle of a round
        ([*BEGUN, wants(call("answer", 0)), result(0, "42")], Done("42")),
        ([*BEGUN, wants(call("answer", 0)), result(0, f"{ERROR}no")], Ask(tools=True)),
    ],
)
def test_what_comes_next(messages, move):
    assert next_move(messages, Rules(answering=frozenset({"answer"}))) == move


def test_after_so_many_rounds_the_model_has_to_answer():
    rules = Rules(max_iter=2)
    messages = [*BEGUN, *ROUND]
    assert next_move(messages, rules) == Ask(tools=True)
    messages += [wants(call("t", 2)), result(2)]
    messages.append(told(next_move(messages, rules)))
    assert "best final answer now" in messages[-1]["content"]
    assert next_move(messages, rules) == Ask(tools=False)
    messages.append(says(""))
    messages.append(told(next_move(messages, rules)))
    assert next_move(messages, rules) == Ask(tools=False), "still none"
    messages.append(says("owls"))
    assert next_move(messages, rules) == Done("owls")
    messages.append({"role": "user", "content": "That answer cannot be taken: shorter\n\nGive a better one."})
    assert next_move(messages, rules) == Ask(tools=True), "whoever objects begins the count anew"


def test_an_empty_answer_is_asked_for_again_so_often():
    messages, asked = list(BEGUN), 0
    while True:
        messages.append(says(" "))
        asked += 1
        move = next_move(messages, Rules())
        if isinstance(move, Fail):
            break
        messages.append(told(move))
    assert (asked, move) == (3, Fail("gave an empty answer 3 times"))


def test_an_answer_that_does_not_fit_is_corrected_so_often():
    rules = Rules(unfit=lambda text: None if text == "{}" else "it is no JSON")
    messages = [*BEGUN, says("a")]
    messages.append(told(next_move(messages, rules)))
    assert "it is no JSON" in messages[-1]["content"]
    messages += [says("Final Answer: {}")]
    assert next_move(messages, rules) == Done("{}")
    messages[-1] = says("b")
    messages += [told(next_move(messages, rules)), says("c")]
    assert next_move(messages, rules) == Fail("it is no JSON")


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.data(), st.integers(0, 4))
def test_whatever_a_model_does_the_loop_ends(data, max_iter):
    """At most ``max_iter`` rounds of tools, a final answer that is asked for, and so many corrections."""
    messages, asked, used = list(BEGUN), 0, 0
    rules = Rules(max_iter=max_iter, unfit=lambda text: None if text == "good" else "no")
    while True:
        match next_move(messages, rules):
            case Say(message):
                messages.append(message)
            case Ask(tools):
                asked += 1
                answer = data.draw(st.sampled_from(["", "bad", "good", *(["call"] if tools else [])]))
                messages.append(wants(call("t", used)) if answer == "call" else says(answer))
            case Use(calls, first):
                assert first == used
                used += len(calls)
                messages += [result(first + i) for i in range(len(calls))]
            case _:
                break
    assert used <= max_iter + 1
    assert asked <= max_iter + 1 + 5


def test_final():
    assert final("Final Answer: a\nFinal Answer: b") == "b"
    assert final(" c ") == "c"


# -- a conversation that fits


def test_what_is_left_out_is_the_middles_of_the_oldest_long_results():
    messages = [*BEGUN, wants(call("t", 0), call("t", 1)), result(0, "a" * 8000), result(1, "b" * 8000)]
    assert context_window.fit(messages, 100_000) == messages
    fitted = context_window.fit(messages, 3000)
    assert context_window.tokens(fitted) <= 3000
    assert "characters left out" in fitted[3]["content"]
    assert fitted[4] == messages[4], "the newest stays as long as it can"
    assert fitted[:3] == messages[:3]
    assert messages[3]["content"] == "a" * 8000, "the conversation itself is whole"
    small = context_window.fit(messages, 300)
    assert context_window.tokens(small) < 600
    assert small[1] == TASK


def test_what_cannot_be_made_to_fit_stays_as_small_as_it_gets():
    assert context_window.fit(BEGUN, 1) == BEGUN


# -- answers in a form


class Bird(BaseModel):
    name: str
    legs: int = 2


@pytest.mark.parametrize(
    "text",
    ['{"name": "owl"}', 'Here:\n```json\n{"name": "owl"}\n```\nDone.', 'It is {"name": "owl"}, I think.'],
)
def test_json_is_found_amid_words(text):
    assert structured_output.read(text, Bird) == (Bird(name="owl"), None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("an owl", "it is no Bird: the whole: Invalid JSON: expected value at line 1 column 1"),
        ('Look: {"legs": 2}', "it is no Bird: name: Field required"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(text, why):
    assert structured_output.read(text, Bird) == (None, why)


# -- models that know of no tools


def test_tools_in_words_there_and_back():
    offered = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"a": 1}}}]
    calls = wants(call("look", 0, '{"q": "owls"}'))
    system, task, asked, seen = text_tool_protocol.format_messages([*BEGUN, calls, result(0, "3 pages")], offered)
    assert system["content"].startswith("You are r.\n\nYou may use these tools:\n- look: Looks.")
    assert task == TASK
    assert asked == {"role": "assistant", "content": 'Action: look\nAction Input: {"q": "owls"}'}
    assert seen == {"role": "user", "content": "Observation: 3 pages"}
    said = text_tool_protocol.read('I look.\nAction: `look`\nAction Input: {"q": "owls"}\nObservation: made up', 7)
    assert said["content"] == "I look."
    [found] = said["tool_calls"]
    assert (found["id"], found["function"]["name"]) == ("call_7", "look")
    assert json.loads(found["function"]["arguments"]) == {"q": "owls"}
    assert text_tool_protocol.read("Final Answer: owls", 0) == says("Final Answer: owls")
