WRITE = "You are a Python code generator. Write code that fulfills the user's requirement."
REVIEW = "You are an expert code reviewer. Review the code below.\n\n{generated_code}"
