"""A trained selector as LangChain's example selector, for `FewShotPromptTemplate` and its chat form. Needs
`langchain-core`; imports no torch.
"""

from typing import Any, final

from langchain_core.example_selectors import BaseExampleSelector

from groupwise.config import ConfigError
from groupwise_selection.selector import Order, Selector


@final
class GroupwiseExampleSelector(BaseExampleSelector):
    """Examples chosen by a trained policy, in the order in which the prompt shows them.

    Args:
        selector: from `Selector.load`.
        k: number of examples; unset takes as many as in training.
        question_key, answer_key: names of the prompt's variables, in examples and inputs.
        order: place of the first pick in the prompt; unset takes the order of training.

    Example:
        >>> from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate
        >>> example_prompt = PromptTemplate.from_template("Q: {question}\\nA: {answer}")
        >>> example_selector = GroupwiseExampleSelector(Selector.load("exported"), k=2)  # doctest: +SKIP
        >>> prompt = FewShotPromptTemplate(  # doctest: +SKIP
        ...     example_selector=example_selector,
        ...     example_prompt=example_prompt,
        ...     suffix="Q: {question}\\nA:",
        ...     input_variables=["question"],
        ... )
        >>> print(prompt.format(question="north gold web kim new atlas"))  # doctest: +SKIP
    """

    def __init__(
        self,
        selector: Selector,
        k: int | None = None,
        *,
        question_key: str = "question",
        answer_key: str = "answer",
        order: Order | None = None,
    ) -> None:
        self.selector, self.k = selector, k
        self.order: Order | None = order
        self.question_key, self.answer_key = question_key, answer_key

    def select_examples(self, input_variables: dict[str, str]) -> list[dict[str, Any]]:
        """Chooses examples for these inputs; each is a dictionary of question and answer.

        Raises:
            ConfigError: the question is missing; or see `Selector.select`.
        """
        question = self._value(input_variables, self.question_key, "the inputs")
        chosen = self.selector.select(question, self.k, order=self.order)
        return [{self.question_key: example.question, self.answer_key: example.answer} for example in chosen]

    def add_example(self, example: dict[str, str]) -> str:
        """Adds an example, which can be picked from now on, and returns its id.

        Raises:
            ConfigError: question or answer is missing; or see `Selector.add`.
        """
        return self.selector.add(
            self._value(example, self.question_key, "the example"), self._value(example, self.answer_key, "the example")
        )

    def _value(self, table: dict[str, str], key: str, subject: str) -> str:
        if not isinstance(table.get(key), str):
            raise ConfigError(
                f"{subject}: no text {key!r} among {', '.join(map(repr, table)) or 'nothing'}; name it with"
                " question_key and answer_key"
            )
        return table[key]
