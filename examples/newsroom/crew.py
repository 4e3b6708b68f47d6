"""A newsroom: a researcher reads the sources beside this file, a writer writes, an editor edits.

runner submit examples/newsroom/crew.py --demo              # no model, no key: to see it run
runner submit examples/newsroom/crew.py --offline           # a very small model on this machine
OPENAI_API_KEY=... runner submit examples/newsroom/crew.py  # or any server: OPENAI_BASE_URL, OPENAI_MODEL_NAME
"""

import os

from tools import list_sources, read_source, search_sources

from runner import LLM, Agent, Crew, Task

llm = LLM(os.environ.get("OPENAI_MODEL_NAME") or "gpt-4o-mini", temperature=0.2, max_tokens=400)

researcher = Agent(
    role="researcher",
    goal="Find what the sources say about barn owls, and nothing else",
    backstory="You read sources with your tools and note facts with the name of their source.",
    llm=llm,
    tools=[list_sources, read_source, search_sources],
    max_iter=6,
)
writer = Agent(role="writer", goal="Write short, plain articles from notes", llm=llm)
editor = Agent(role="editor", goal="Leave out what the notes do not say", llm=llm)

notes = Task(
    name="notes",
    description="Read the sources and note what they say about barn owls.",
    expected_output="three to six facts, one a line, each with its source",
    agent=researcher,
)
draft = Task(
    name="draft",
    description="Write an article of two short paragraphs about barn owls from the notes.",
    expected_output="the article, with a title",
    agent=writer,
    context=[notes],
)
article = Task(
    name="article",
    description="Edit the article about barn owls: correct what differs from the notes, and cut what is not needed.",
    expected_output="the article as it is to be printed",
    agent=editor,
    context=[notes, draft],
    output_file="article.md",
)

crew = Crew(name="newsroom", agents=[researcher, writer, editor], tasks=[notes, draft, article])
