from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph


async def call_model(state: MessagesState):
    return {"messages": [await ChatOpenAI(model="gpt-5-mini").ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node(call_model).add_edge(START, "call_model").compile(name="New Graph")
