"""A trained selector as demonstrations of DSPy's predictors. Needs `dspy`; imports no torch."""

from __future__ import annotations

from typing import Any, final

import dspy

from groupwise.config import ConfigError
from groupwise_selection.selector import Order, Selector


@final
class SelectDemos:
    """A callable in the manner of DSPy's retrievers: `select(question)` returns `dspy.Example`s for
    `predict(question=..., demos=...)`.

    Args:
        selector: from `Selector.load`.
        k: number of demonstrations; unset takes as many as in training.
        question_field, answer_field: names of the signature's fields.
        order: place of the first pick in the prompt; unset takes the order of training.

    Example:
        >>> select = SelectDemos(Selector.load("exported"), k=2)  # doctest: +SKIP
        >>> predict = dspy.Predict("question -> answer")
        >>> question = "north gold web kim new atlas"
        >>> predict(question=question, demos=select(question)).answer  # doctest: +SKIP
        'birch'
    """

    def __init__(
        self,
        selector: Selector,
        k: int | None = None,
        *,
        question_field: str = "question",
        answer_field: str = "answer",
        order: Order | None = None,
    ) -> None:
        self.selector, self.k = selector, k
        self.order: Order | None = order
        self.question_field, self.answer_field = question_field, answer_field

    def __call__(self, question: str, k: int | None = None) -> list[dspy.Example]:
        """Chooses demonstrations, in the order in which the prompt shows them.

        Args:
            question: the text of the query.
            k: number of demonstrations; unset takes the `k` of this object.

        Raises:
            ConfigError: as `Selector.select`.
        """
        chosen = self.selector.select(question, self.k if k is None else k, order=self.order)
        return [self._example(example.question, example.answer) for example in chosen]

    def __deepcopy__(self, memory: dict[int, Any]) -> SelectDemos:
        """Returns a copy that shares the selector: DSPy's optimisers copy programs, and an example added later can be
        picked in all copies.
        """
        return SelectDemos(
            self.selector, self.k, question_field=self.question_field, answer_field=self.answer_field, order=self.order
        )

    def add(self, example: dspy.Example) -> str:
        """Adds an example, which can be picked from now on, and returns its id.

        Raises:
            ConfigError: a field is missing; or see `Selector.add`.
        """
        for field in (self.question_field, self.answer_field):
            if not isinstance(example.get(field), str):
                raise ConfigError(
                    f"the example: no text {field!r} among {list(example.keys())}; name it with question_field and"
                    " answer_field"
                )
        return self.selector.add(example[self.question_field], example[self.answer_field])

    def _example(self, question: str, answer: str) -> dspy.Example:
        return dspy.Example(**{self.question_field: question, self.answer_field: answer}).with_inputs(
            self.question_field
        )


@final
class FewShot(dspy.Module):
    """A predictor whose demonstrations are chosen anew for every question.

    Args:
        predict: `dspy.Predict`, `dspy.ChainOfThought` or a module around one that takes `demos`.
        select: chooses the demonstrations of a question.

    Example:
        >>> program = FewShot(
        ...     dspy.Predict("question -> answer"), SelectDemos(Selector.load("exported"))
        ... )  # doctest: +SKIP
        >>> program(question="north gold web kim new atlas").answer  # doctest: +SKIP
        'birch'
    """

    def __init__(self, predict: Any, select: SelectDemos) -> None:
        super().__init__()
        self.predict, self.select = predict, select

    def forward(self, **inputs: Any) -> Any:
        """Returns the predictor's answer after demonstrations for these inputs.

        Raises:
            ConfigError: the question is missing; or see `Selector.select`.
        """
        return self.predict(**inputs, demos=self._demos(inputs))

    async def aforward(self, **inputs: Any) -> Any:
        """Does what `forward` does, for `await program.acall(...)`.

        Raises:
            ConfigError: as `forward`.
        """
        return await self.predict.acall(**inputs, demos=self._demos(inputs))

    def _demos(self, inputs: dict[str, Any]) -> list[dspy.Example]:
        question = inputs.get(self.select.question_field)
        if not isinstance(question, str):
            raise ConfigError(
                f"no text {self.select.question_field!r} among the inputs {list(inputs)}; name it with question_field"
            )
        return self.select(question)
