from google.adk.agents import LlmAgent, SequentialAgent

from .prompts import REVIEW, WRITE

code_writer_agent = LlmAgent(
    name="CodeWriterAgent", model="gemini-2.5-flash", instruction=WRITE, output_key="generated_code"
)
code_reviewer_agent = LlmAgent(
    name="CodeReviewerAgent", model="gemini-2.5-flash", instruction=REVIEW, output_key="review_comments"
)
code_pipeline_agent = SequentialAgent(name="CodePipelineAgent", sub_agents=[code_writer_agent, code_reviewer_agent])

# For ADK tools compatibility, the root agent must be named `root_agent`
root_agent = code_pipeline_agent
