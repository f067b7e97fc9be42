"""A trained selector chooses the demonstrations of a program of DSPy, anew for every question.

    pip install '.[dspy]'
    python examples/selection_in_dspy.py SELECTOR_FOLDER openai/gpt-4o-mini "north gold web kim new atlas"

The folder comes from `groupwise export RUN --out SELECTOR_FOLDER`. Choosing needs no torch.
"""

import sys

import dspy

import groupwise
from groupwise_selection.dspy import FewShot, SelectDemos


def answer(folder: str, model: dspy.BaseLM, question: str, num_demos: int = 3) -> tuple[str, list[str]]:
    """Returns the program's answer, and the questions of the demonstrations that it was shown."""
    select = SelectDemos(groupwise.Selector.load(folder), k=num_demos)
    program = FewShot(dspy.Predict("question -> answer"), select)
    with dspy.context(lm=model):
        answered = program(question=question)
    return answered.answer, [demo.question for demo in select(question)]


if __name__ == "__main__":
    text, shown = answer(sys.argv[1], dspy.LM(sys.argv[2]), sys.argv[3])
    print(*shown, f"-> {text}", sep="\n")
