"""Programs without a framework: each has a model look at five things, with a client of its vendor or of HTTP alone."""

from matrix_program import DIG, Row

DURABLE_LOOK = """
import json

from runner import durable

@HEAD@

@durable
def look(i):
    return dig(i)

SCHEMA = {"type": "object", "properties": {"i": {"type": "integer"}}}
TOOL = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": TOOL}]

"""

_OPENAI_LOOP = """
@DEF@main():
    messages = [{"role": "user", "content": "Dig."}]
    while True:
        said = @AWAIT@ask(messages)
        messages.append({key: said[key] for key in ("role", "content", "tool_calls") if said.get(key)})
        if not said.get("tool_calls"):
            return print(said["content"])
        for call in said["tool_calls"]:
            found = look(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})


if __name__ == "__main__":
    @MAIN@
"""
_JOIN = """
def joined(chunks):
    said = {"role": "assistant", "content": "", "tool_calls": []}
    for chunk in chunks:
        for choice in chunk.get("choices") or ():
            delta = choice["delta"]
            said["content"] += delta.get("content") or ""
            for one in delta.get("tool_calls") or ():
                if one.get("id") and one["id"] != "null":
                    said["tool_calls"].append({**one, "function": {**one["function"]}})
                else:
                    said["tool_calls"][-1]["function"]["arguments"] += one["function"]["arguments"]
    return said


def events(lines):
    lines = [one.decode() if isinstance(one, bytes) else one for one in lines]
    return [json.loads(one[5:]) for one in lines if one.startswith("data:") and "[DONE]" not in one]
"""

_ASKS: dict[str, tuple[str, str, str]] = {
    # name: (package, head, the function that asks); those with ``async def`` are awaited
    "OpenAI, sync": (
        "openai",
        'from openai import OpenAI\nclient = OpenAI(base_url="@URL@", api_key="sk-secret")',
        """
def ask(messages):
    said = client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=TOOLS)
    return said.choices[0].message.model_dump(exclude_none=True)
""",
    ),
    "OpenAI, async": (
        "openai",
        'from openai import AsyncOpenAI\nclient = AsyncOpenAI(base_url="@URL@", api_key="sk-secret")',
        """
async def ask(messages):
    said = await client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=TOOLS)
    return said.choices[0].message.model_dump(exclude_none=True)
""",
    ),
    "OpenAI, streamed": (
        "openai",
        'from openai import OpenAI\nclient = OpenAI(base_url="@URL@", api_key="sk-secret")',
        """
def ask(messages):
    said = client.chat.completions.create(model="gpt-4o-mini", messages=messages, tools=TOOLS, stream=True)
    return joined(one.model_dump(exclude_none=True) for one in said)
""",
    ),
    "LiteLLM, sync": (
        "litellm",
        "import litellm",
        """
def ask(messages):
    said = litellm.completion("openai/gpt-4o-mini", messages, tools=TOOLS, api_base="@URL@", api_key="sk-secret")
    return said.choices[0].message.model_dump(exclude_none=True)
""",
    ),
    "LiteLLM, async": (
        "litellm",
        "import litellm",
        """
async def ask(messages):
    where = {"api_base": "@ROOT@", "api_key": "sk-secret"}
    said = await litellm.acompletion("anthropic/claude-sonnet-4-5", messages, tools=TOOLS, **where)
    return said.choices[0].message.model_dump(exclude_none=True)
""",
    ),
    "LiteLLM Google, sync": (
        "litellm",
        "import litellm",
        """
def ask(messages):
    where = {"api_base": "@ROOT@/v1beta", "api_key": "sk-secret"}
    said = litellm.completion("gemini/gemini-2.5-flash", messages, tools=TOOLS, **where)
    return said.choices[0].message.model_dump(exclude_none=True)
""",
    ),
    "LiteLLM, streamed": (
        "litellm",
        "import litellm",
        """
def ask(messages):
    said = litellm.completion("openai/gpt-4o-mini", messages, tools=TOOLS, api_base="@URL@", api_key="sk", stream=True)
    return joined(one.model_dump(exclude_none=True) for one in said)
""",
    ),
    "Mistral, sync": (
        "mistralai",
        'from mistralai.client import Mistral\nclient = Mistral(api_key="sk-secret", server_url="@ROOT@")',
        """
def ask(messages):
    said = client.chat.complete(model="mistral-small", messages=messages, tools=TOOLS)
    return said.choices[0].message.model_dump(exclude_none=True)
""",
    ),
    "Mistral, async streamed": (
        "mistralai",
        'from mistralai.client import Mistral\nclient = Mistral(api_key="sk-secret", server_url="@ROOT@")',
        """
async def ask(messages):
    said = await client.chat.stream_async(model="mistral-small", messages=messages, tools=TOOLS)
    return joined([one.data.model_dump(exclude_none=True) async for one in said])
""",
    ),
    "azure-ai-inference, sync": (
        "azure-ai-inference",
        """from azure.ai.inference import ChatCompletionsClient
from azure.core.credentials import AzureKeyCredential
client = ChatCompletionsClient("@URL@", AzureKeyCredential("sk-secret"))""",
        """
def ask(messages):
    said = client.complete({"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS})
    return said.choices[0].message.as_dict()
""",
    ),
    "azure-ai-inference, async": (
        "azure-ai-inference",
        """from azure.ai.inference.aio import ChatCompletionsClient
from azure.core.credentials import AzureKeyCredential""",
        """
async def ask(messages):
    async with ChatCompletionsClient("@URL@", AzureKeyCredential("sk-secret")) as client:
        said = await client.complete({"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS})
    return said.choices[0].message.as_dict()
""",
    ),
    "azure-ai-inference, streamed": (
        "azure-ai-inference",
        """from azure.ai.inference import ChatCompletionsClient
from azure.core.credentials import AzureKeyCredential
client = ChatCompletionsClient("@URL@", AzureKeyCredential("sk-secret"))""",
        """
def ask(messages):
    said = client.complete({"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS, "stream": True})
    return joined(one.as_dict() for one in said)
""",
    ),
    "requests, sync": (
        "requests",
        "import requests",
        """
def ask(messages):
    body = {"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS}
    return requests.post("@URL@/chat/completions", json=body).json()["choices"][0]["message"]
""",
    ),
    "requests, streamed": (
        "requests",
        "import requests\nsession = requests.Session()",
        """
def ask(messages):
    body = {"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS, "stream": True}
    with session.post("@URL@/chat/completions", json=body, stream=True) as said:
        return joined(events(said.iter_lines()))
""",
    ),
    "aiohttp, async": (
        "aiohttp",
        "import aiohttp",
        """
async def ask(messages):
    body = {"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS}
    async with aiohttp.ClientSession() as session, session.post("@URL@/chat/completions", json=body) as said:
        return (await said.json())["choices"][0]["message"]
""",
    ),
    "aiohttp, streamed": (
        "aiohttp",
        "import aiohttp",
        """
async def ask(messages):
    body = {"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS, "stream": True}
    async with aiohttp.ClientSession() as session, session.post("@URL@/chat/completions", json=body) as said:
        return joined(events([line async for line in said.content]))
""",
    ),
    "httpx, streamed": (
        "httpx",
        "import httpx",
        """
def ask(messages):
    body = {"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS, "stream": True}
    with httpx.stream("POST", "@URL@/chat/completions", json=body, timeout=60) as said:
        return joined(events(said.iter_lines()))
""",
    ),
}

_ANTHROPIC = """
TOOLS = [{"name": "look", "description": "Looks.", "input_schema": TOOL["parameters"]}]


@DEF@main():
    messages = [{"role": "user", "content": "Dig."}]
    while True:
        asked = {"model": "claude-sonnet-4-5", "max_tokens": 500, "messages": messages, "tools": TOOLS}
        @ASK@
        messages.append({"role": "assistant", "content": [one.model_dump(exclude_none=True) for one in said.content]})
        uses = [one for one in said.content if one.type == "tool_use"]
        if not uses:
            return print(said.content[0].text)
        found = [{"type": "tool_result", "tool_use_id": one.id, "content": look(one.input["i"])} for one in uses]
        messages.append({"role": "user", "content": found})


if __name__ == "__main__":
    @MAIN@
"""
_ANTHROPIC_WAYS = {
    "sync": ("Anthropic", "said = client.messages.create(**asked)"),
    "async": ("AsyncAnthropic", "said = await client.messages.create(**asked)"),
    "streamed": (
        "Anthropic",
        "with client.messages.stream(**asked) as stream:\n            said = stream.get_final_message()",
    ),
    "async streamed": (
        "AsyncAnthropic",
        "async with client.messages.stream(**asked) as stream:\n            said = await stream.get_final_message()",
    ),
}

_GENAI = """
from google import genai
from google.genai import types

client = genai.Client(api_key="sk-secret", http_options=types.HttpOptions(base_url="@ROOT@"))
asked = types.GenerateContentConfig(tools=[look])
"""
_GENAI_WAYS = {
    "sync": """
def main():
    print(client.models.generate_content(model="gemini-2.5-flash", contents="Dig.", config=asked).text)
""",
    "async": """
async def main():
    print((await client.aio.models.generate_content(model="gemini-2.5-flash", contents="Dig.", config=asked)).text)
""",
    "streamed": """
def main():
    for piece in client.models.generate_content_stream(model="gemini-2.5-flash", contents="Dig.", config=asked):
        print(piece.text)
""",
    "async streamed": """
async def main():
    async for piece in await client.aio.models.generate_content_stream(
        model="gemini-2.5-flash", contents="Dig.", config=asked
    ):
        print(piece.text)
""",
}

_BEDROCK = """
import boto3

client = boto3.client("bedrock-runtime", endpoint_url="@ROOT@", region_name="us-east-1",
    aws_access_key_id="sk-secret", aws_secret_access_key="sk-secret")
SPEC = {"toolSpec": {"name": "look", "description": "Looks.", "inputSchema": {"json": TOOL["parameters"]}}}


def streamed(events):
    said = []
    for event in events:
        if "contentBlockStart" in event:
            said.append({"toolUse": {**event["contentBlockStart"]["start"]["toolUse"], "input": ""}})
        if "contentBlockDelta" in event:
            delta = event["contentBlockDelta"]["delta"]
            if "text" in delta:
                said.append({"text": delta["text"]})
            else:
                said[-1]["toolUse"]["input"] += delta["toolUse"]["input"]
    for one in said:
        if "toolUse" in one:
            one["toolUse"]["input"] = json.loads(one["toolUse"]["input"])
    return {"role": "assistant", "content": said}


def main():
    messages = [{"role": "user", "content": [{"text": "Dig."}]}]
    while True:
        asked = {"modelId": "anthropic.claude-sonnet-4", "messages": messages, "toolConfig": {"tools": [SPEC]}}
        said = @ASK@
        messages.append(said)
        uses = [one["toolUse"] for one in said["content"] if "toolUse" in one]
        if not uses:
            return print(said["content"][0]["text"])
        found = [{"toolUseId": one["toolUseId"], "content": [{"text": look(one["input"]["i"])}]} for one in uses]
        messages.append({"role": "user", "content": [{"toolResult": one} for one in found]})


if __name__ == "__main__":
    main()
"""

CLIENTS: dict[str, Row] = {}
for _name, (_package, _head, _ask) in _ASKS.items():
    _awaits = "async def" in _ask
    _code = DIG + DURABLE_LOOK.replace("@HEAD@", _head) + _JOIN + _ask + _OPENAI_LOOP
    _code = _code.replace("@DEF@", "async def " if _awaits else "def ").replace("@AWAIT@", "await " if _awaits else "")
    _code = _code.replace("@MAIN@", "asyncio.run(main())" if _awaits else "main()")
    CLIENTS[_name] = Row("main", _package, _code)
for _way, (_kind, _ask) in _ANTHROPIC_WAYS.items():
    _awaits = "async" in _way
    _head = f'from anthropic import {_kind}\nclient = {_kind}(base_url="@ROOT@", api_key="sk-secret")'
    _code = DIG + DURABLE_LOOK.replace("@HEAD@", _head) + _ANTHROPIC.replace("@ASK@", _ask)
    _code = _code.replace("@DEF@", "async def " if _awaits else "def ")
    CLIENTS[f"Anthropic, {_way}"] = Row(
        "main", "anthropic", _code.replace("@MAIN@", "asyncio.run(main())" if _awaits else "main()")
    )
for _way, _main in _GENAI_WAYS.items():
    _call = "asyncio.run(main())" if "async def" in _main else "main()"
    _look = DIG + DURABLE_LOOK.replace("@HEAD@", "").replace("def look(i):", 'def look(i: int) -> str:\n    "Looks."')
    CLIENTS[f"google-genai, {_way}"] = Row(
        "main", "google-genai", _look + _GENAI + _main + f'\n\nif __name__ == "__main__":\n    {_call}\n'
    )
for _way, _ask in {
    "sync": 'client.converse(**asked)["output"]["message"]',
    "streamed": 'streamed(client.converse_stream(**asked)["stream"])',
}.items():
    CLIENTS[f"boto3 Bedrock, {_way}"] = Row(
        "main", "boto3", DIG + DURABLE_LOOK.replace("@HEAD@", "") + _BEDROCK.replace("@ASK@", _ask)
    )
