"""The one sentence added to a benchmark's own question: where the answer should stand. Ours, the
same for all."""

BOXED = "Reason step by step and end with the final answer in \\boxed{}."
LETTER = "Reason step by step and end with the letter of the right option in \\boxed{}."
YES_NO = "Reason step by step and end with yes or no in \\boxed{}."
LISTED = "End with a list of texts in quotes, in order, between answer tags: <answer>[...]</answer>"
FUNCTION = "Write the function in Python, in one fenced code block, with the imports it needs."
PROGRAM = "Write a Python program that reads standard input and writes standard output, in one fenced code block."
