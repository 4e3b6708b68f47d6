import asyncio

from llama_index.core import SimpleDirectoryReader, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai import OpenAI

# Create a RAG tool using LlamaIndex
documents = SimpleDirectoryReader("data").load_data()
index = VectorStoreIndex.from_documents(documents, embed_model=OpenAIEmbedding())
query_engine = index.as_query_engine(llm=OpenAI(model="gpt-4o-mini"))


async def search_documents(query: str) -> str:
    """Useful for answering natural language questions about an personal essay."""
    response = await query_engine.aquery(query)
    return str(response)


agent = FunctionAgent(
    tools=[search_documents],
    llm=OpenAI(model="gpt-4o-mini"),
    system_prompt="You are a helpful assistant that searches through documents to answer questions.",
)


async def main():
    response = await agent.run("What did the author do in college?")
    print(response)


if __name__ == "__main__":
    asyncio.run(main())
