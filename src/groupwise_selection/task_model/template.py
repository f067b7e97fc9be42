"""Templates of prompts from demonstrations and a query: plain text, or the turns of a chat. Imports neither torch nor
transformers.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, final

from pydantic import AfterValidator, Field

from groupwise.config import Config

QUESTION, ANSWER, IMAGE = "{question}", "{answer}", "{image}"

_EXAMPLES = {"question": "Q: {question}\nA:", "answer": " {answer}"}


def _once(text: str, placeholder: str, key: str) -> str:
    if text.count(placeholder) != 1:
        raise ValueError(
            f"{key} = {text!r} holds {placeholder} {text.count(placeholder)} times; write it exactly once, for example"
            f" {key} = {_EXAMPLES[key]!r}"
        )
    if key == "question" and text.count(IMAGE) > 1:
        raise ValueError(f"{key} = {text!r} holds {IMAGE} {text.count(IMAGE)} times; an example has one picture")
    return text


Question = Annotated[str, AfterValidator(lambda text: _once(text, QUESTION, "question"))]
"""The text of a question, with `{question}` in its place."""
Answer = Annotated[str, AfterValidator(lambda text: _once(text, ANSWER, "answer"))]
"""The text of an answer, with `{answer}` in its place."""


@final
class TextTemplate(Config):
    """A prompt as one text: `instruction, (question answer separator) for each demonstration, question`, and the answer
    follows.

    The prompt is tokenised once, as a whole, and the answer (with what `answer` puts before it, usually a space) by
    itself: where the prompt ends and the answer begins is a boundary between tokens, whatever the tokenizer would have
    merged across it.

    Args:
        instruction: beginning of the prompt.
        question: `{question}` is replaced; `{image}` is the place of the picture for an image-text model.
        answer: `{answer}` is replaced; the same text is scored.
        separator: text after each demonstration.
        stop: texts that end a generated answer.

    Example:
        >>> TextTemplate().prompt("2 + 2", [("1 + 1", "2"), ("1 + 2", "3")])
        'Q: 1 + 1\\nA: 2\\n\\nQ: 1 + 2\\nA: 3\\n\\nQ: 2 + 2\\nA:'

    Demonstrations are written in the order of the argument, which `domain.order` decides. Without demonstrations the
    prompt is the instruction and the question.
    """

    kind: Literal["text"] = "text"
    instruction: str = ""
    question: Question = "Q: {question}\nA:"
    answer: Answer = " {answer}"
    separator: str = "\n\n"
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ("\n",)

    @property
    def num_images(self) -> int:
        """The number of images in a question."""
        return self.question.count(IMAGE)

    def prompt(self, question: str, demos: Sequence[tuple[str, str]], image: str = "") -> str:
        """Writes the prompt up to the beginning of the answer.

        Args:
            question: text of the query.
            demos: `(question, answer)` in the order of the prompt.
            image: text in the place of a picture.
        """
        solved = "".join(
            self._ask(demo_question, image) + self.answer_text(answer) + self.separator
            for demo_question, answer in demos
        )
        return self.instruction + solved + self._ask(question, image)

    def answer_text(self, answer: str) -> str:
        """Writes an answer with its surroundings, as it follows its question.

        Example:
            >>> TextTemplate().answer_text("4")
            ' 4'
        """
        return self.answer.replace(ANSWER, answer)

    def _ask(self, question: str, image: str) -> str:
        # The picture is replaced first, since the text of a question may hold `{image}`.
        return self.question.replace(IMAGE, image).replace(QUESTION, question)


@final
class ChatTemplate(Config):
    """A prompt as turns: each demonstration is a question of the user and an answer of the assistant; the model's own
    chat template writes them.

    Args:
        system: the system's message; unset leaves it out.
        question: `{question}` is replaced; with `{image}`, the picture is before the text.
        answer: `{answer}` is replaced; the same text is scored, directly after the template's opening of the
            assistant's turn.
        stop: texts that end a generated answer, in addition to the end of the turn.
        template_arguments: further arguments of the model's chat template, for example `{ enable_thinking = false }`.

    Example:
        >>> [turn["role"] for turn in ChatTemplate(system="Answer shortly.").messages("2 + 2", [("1 + 1", "2")])]
        ['system', 'user', 'assistant', 'user']
    """

    kind: Literal["chat"] = "chat"
    system: str | None = None
    question: Question = "{question}"
    answer: Answer = "{answer}"
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    template_arguments: dict[str, Any] = Field(default_factory=dict)

    @property
    def num_images(self) -> int:
        """The number of images in a question."""
        return self.question.count(IMAGE)

    def messages(self, question: str, demos: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Lists the turns up to the assistant's answer; with pictures, a message's content is a list of parts.

        Args:
            question: text of the query.
            demos: `(question, answer)` in the order of the prompt.
        """
        turns: list[dict[str, Any]] = (
            [] if self.system is None else [{"role": "system", "content": self._content(self.system, 0)}]
        )
        for demo_question, answer in demos:
            turns.append(self._ask(demo_question))
            turns.append({"role": "assistant", "content": self._content(self.answer_text(answer), 0)})
        return [*turns, self._ask(question)]

    def answer_text(self, answer: str) -> str:
        """Writes an answer as the text of the assistant's turn.

        Example:
            >>> ChatTemplate().answer_text("4")
            '4'
        """
        return self.answer.replace(ANSWER, answer)

    def _ask(self, question: str) -> dict[str, Any]:
        text = self.question.replace(IMAGE, "").replace(QUESTION, question)
        return {"role": "user", "content": self._content(text, self.num_images)}

    def _content(self, text: str, num_images: int) -> Any:
        # Where pictures are shown every content is a list of parts: templates of image-text models loop over them.
        return [*[{"type": "image"}] * num_images, {"type": "text", "text": text}] if self.num_images else text


Template = Annotated[TextTemplate | ChatTemplate, Field(discriminator="kind")]
"""Any template, distinguished by `kind`."""
