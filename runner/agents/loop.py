"""The agent loop: performs what `runner.agents.machine` decides, until there is an answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from runner.agents import Agent, hook_calls, model_call, structured_output, tool_call
from runner.agents.agent_state import AgentState, at_work
from runner.agents.machine import NONE, REPAIRS, Ask, Done, Fail, Rules, Say, Summary, Use, next_move
from runner.agents.steps import AgentAction, AgentFinish
from runner.agents.tools import as_tools, schema_of
from runner.core.errors import ModelError, TaskError
from runner.core.idempotency import origin as origin_here
from runner.engine.work import Conversation
from runner.journal.journal import Journal
from runner.llm.llm import BaseLLM, model_for
from runner.llm.recording import calling

Message = dict[str, Any]


def model_of(agent: Agent) -> BaseLLM:
    """Return an agent's model. Raises `ModelError`."""
    model = model_for(agent.llm)
    if model is not None:
        return model
    if agent.llm is None:
        raise ModelError(
            f"the agent {agent.role!r} has no model: give it llm=..., "
            "or set OPENAI_MODEL_NAME in the environment of the workers"
        )
    raise ModelError(
        f"the agent {agent.role!r} has {agent.llm!r:.60}, which cannot be called: "
        "give it the name of a model, an LLM, or a subclass of runner.llm.llm.BaseLLM with a call() of its own"
    )


def state_for(
    agent: Agent,
    conversation: Conversation,
    journal: Journal,
    *,
    tools: Iterable[Any] = (),
    task: Any = None,
    response_model: type[BaseModel] | None = None,
    origin: str | None = None,
    role: str = "",
    callbacks: Sequence[Callable[[Any], Any] | None] = (),
    reported: bool = True,
    failed: int = 0,
) -> AgentState:
    """Return the state of an agent about to work: model and tools resolved, and callbacks if it is to be ``reported``.

    Raises `ModelError`, or `BadCrew` for something that is not a tool.
    """
    return AgentState(
        agent=agent,
        model=model_of(agent),
        conversation=conversation,
        journal=journal,
        tools=as_tools(tools),
        task=task,
        response_model=response_model,
        origin=origin_here() if origin is None else origin,
        role=role or agent.role,
        failed=failed,
        callbacks=tuple(one for one in (agent.step_callback, *callbacks) if one is not None and reported),
    )


def work(state: AgentState) -> str:
    """Run the agent from the current state of its conversation, and return its answer; JSON for a ``response_model``.

    Raises `ModelError` if the model gives no answer, `TaskError` if the answer does not fit.
    """
    form = state.response_model
    offered = [schema_of(tool, name) for name, tool in state.tools.items()]
    rules = Rules(
        max_iter=state.agent.max_iter,
        repairs=REPAIRS + state.failed * (REPAIRS + 1),
        answering=frozenset(name for name, tool in state.tools.items() if tool.result_as_answer) if offered else NONE,
        unfit=None if form is None else lambda text: structured_output.read(text, form)[1],
    )
    tool_call.recall(state)
    summary = Summary()
    with at_work(state), calling(state.agent.role):
        hook_calls.after_model_call(state)  # where a restored conversation ends with an answer
        while True:
            match next_move(state.conversation.messages, rules, summary):
                case Say(message):
                    state.conversation.say(message)
                case Ask(tools):
                    if _ask(state, offered if tools else []):
                        summary = Summary(state.from_hooks)
                case Use(calls, first):
                    results = tool_call.use(state, calls, first, lambda call, text: _tell_use(state, call, text))
                    state.conversation.say(*results)
                case Done(text):
                    answer = _fitted(text, form)
                    _call_back(state, AgentFinish(thought="", output=answer, text=text))
                    return answer
                case Fail(reason) if form is not None and not reason.startswith("gave"):
                    what = reason.removeprefix("it is ")
                    raise TaskError(f"the answer of {state.agent.role!r} is {what}")
                case Fail(reason):
                    raise ModelError(f"the model {state.model.model!r} of the agent {state.agent.role!r} {reason}")


def _ask(state: AgentState, tools: Sequence[Message]) -> bool:
    """Call the model and add its answer; return whether hooks changed the conversation."""
    conversation, changed = state.conversation, hook_calls.before_model_call(state)

    def take(message: Message) -> None:
        if not tools:  # none was offered: a call of one means nothing
            message = {name: value for name, value in message.items() if name != "tool_calls"}
        conversation.say(message)

    watch = model_call.StepObserver(state, take, tools)
    about = calling(
        state.role,
        per_minute=state.agent.max_rpm,
        announced=watch.reports,
        on_result=watch.on_result,
        leaving=watch.began,
    )
    with about, hook_calls.asking():
        message = model_call.ask(state, conversation.messages, tools, watch)
    if not watch.taken:  # it was replayed
        take(message)
    return hook_calls.after_model_call(state) or changed


def _fitted(text: str, model: type[BaseModel] | None) -> str:
    if model is None:
        return text
    found, _ = structured_output.read(text, model)
    return str(found.model_dump_json())


def _tell_use(state: AgentState, call: Mapping[str, Any], text: str) -> None:
    tool, given = call["function"]["name"], call["function"]["arguments"]
    answers = (one.get("content") for one in reversed(state.conversation.messages) if one["role"] == "assistant")
    thought = str(next(answers, None) or "")
    _call_back(state, AgentAction(thought=thought, tool=tool, tool_input=given, text=thought, result=text))


def _call_back(state: AgentState, step: AgentAction | AgentFinish) -> None:
    for callback in state.callbacks:
        callback(step)
