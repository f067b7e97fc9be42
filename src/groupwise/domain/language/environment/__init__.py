"""Environments of conversations: who answers the policy, when a conversation ends, and what it earns. The environment's
tokens are read by the policy and never trained on.
"""

from __future__ import annotations

import ast
import operator
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, final, runtime_checkable

from pydantic import Field, field_validator, model_validator

from groupwise.config import CalledFromPath, Config, ConfigError, ImportPath, InModule, user_callable
from groupwise.config.errors import Length, PerStep, Positive, Seconds
from groupwise.domain.language.tools import CallFormat, ToolCall, ToolRunner, ToolSignature, format_of, read_calls

# The interface of an environment: it answers the policy's turns, may reward them, and decides when the conversation is
# over.

Weight = Annotated[float, Field(allow_inf_nan=False)]
"""A factor in the sum of rewards."""


@dataclass(frozen=True)
class Step:
    """The environment's answer to one turn.

    Args:
        text: what the policy reads next; not used once it is over.
        reward: the reward of this turn; None where the turn earns none. A conversation without any earns 0 beside
            other weighted rewards, and cannot be scored where there are none.
        done: whether the conversation is over.
        messages: what the policy reads next, as messages for the chat template, in place of `text`.
        action: the policy's turn as a message, where it is more than a text.
        counts: numbers of this turn by name; their sums over a conversation are averaged over members and logged.
    """

    text: str = ""
    reward: float | None = None
    done: bool = False
    messages: Sequence[Mapping[str, Any]] = ()
    action: Mapping[str, Any] | None = None
    counts: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Environment(Protocol):
    """One member's conversation."""

    def reset(self, columns: Mapping[str, Any]) -> str:
        """Starts on a prompt's columns; the text (often empty) is between the prompt and the policy's
        first turn.
        """
        ...

    def step(self, action: str) -> Step:
        """Answers the text of one turn."""
        ...


class EnvironmentKind(Config):
    """A conversation as configuration. Subclasses add a `kind`, their parameters and `open`."""

    reads_special_tokens: ClassVar[bool] = False
    """True where `step` reads the texts of special tokens too, without the one that ends the turn."""
    answers_any_prompt: ClassVar[bool] = False
    """True where a conversation needs no columns of the data, so that the environment also works on a typed text."""
    needs_template: ClassVar[bool] = False
    """True where the chat template is needed to describe the conversation, so that a tokenizer without a template is
    refused.
    """
    counted: ClassVar[tuple[str, ...]] = ()
    """Names of the counts that are logged even where no step has any."""

    weight: Weight = 1.0
    """Factor of the environment's own reward, which is called `environment`: the sum over the turns. 0 means: measured,
    never trained on.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the data columns the environment reads."""
        return ()

    @property
    def marks_calls(self) -> bool:
        """Whether tool calls are written between `<tool_call>` marks, so that thoughts can be distinguished from
        them.
        """
        return False

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a turn, besides the end-of-sequence token."""
        return ()

    @property
    def replies(self) -> tuple[str, ...]:
        """Texts it can answer with, where they are few: a vocabulary built from scratch must know them."""
        return ()

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        """JSON schemas of tools, which the chat template writes into the prompt; a conversation with any is a chat."""
        return ()

    def for_template(self, template: str) -> Self:
        """Returns the conversation for models of a chat template; called where there are `schemas`.

        Raises:
            ConfigError: the template does not fit.
        """
        return self

    @abstractmethod
    def open(self) -> Environment:
        """Starts a fresh conversation for one member."""


# A calculator as a tool: it evaluates a small expression exactly, and allows nothing else of Python.

_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
# Text with other characters is refused first, because Python's parser would warn about some of it.
_CHARACTERS = re.compile(r"[0-9eE_.+\-*/%^×()\s]*+")
_ALLOWED = "only numbers, + - * / // % ** and brackets"
_MAX_LENGTH = 200
_CALCULATOR_MAX_DIGITS = 60


def calculate(expression: str) -> str:
    """Computes the value of an expression of numbers, `+ - * / // % **` and brackets; an expression without a value
    gives the reason.

    Args:
        expression: of at most 200 characters, such as (2 + 3) * 4.

    Example:
        >>> calculate("(2 + 3) * 4"), calculate("1 / 3"), calculate("1 / 0"), calculate("open('x')")
        ('20', '0.333333', 'error: division by zero', 'error: only numbers, + - * / // % ** and brackets')
    """
    if len(expression) > _MAX_LENGTH:
        return f"error: longer than {_MAX_LENGTH} characters"
    if not _CHARACTERS.fullmatch(expression):
        return f"error: {_ALLOWED}"
    try:
        value = _value(ast.parse(expression.strip().replace("×", "*").replace("^", "**"), mode="eval").body)
        if value.denominator == 1:
            return str(value.numerator)
        return f"{float(value):.6g}"
    except ZeroDivisionError:
        return "error: division by zero"
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"error: {error}" if type(error) is ValueError else "error: no expression"


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _small(Fraction(str(node.value)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        if type(node.op) in _BINARY:
            return _small(Fraction(_BINARY[type(node.op)](left, right)))
    raise ValueError(_ALLOWED)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    # The size is checked before the computation: 9**9**9 would never end.
    digits = max(len(str(abs(base.numerator))), len(str(base.denominator))) * abs(exponent)
    if exponent.denominator != 1 or digits > _CALCULATOR_MAX_DIGITS:
        raise ValueError("exponents are whole numbers, and results at most 60 digits")
    return _small(base**exponent.numerator)


def _small(value: Fraction) -> Fraction:
    if max(len(str(abs(value.numerator))), len(str(value.denominator))) > _CALCULATOR_MAX_DIGITS:
        raise ValueError("exponents are whole numbers, and results at most 60 digits")
    return value


_GUESS_THE_NUMBER_MAX_DIGITS = 100


@final
class GuessTheNumber(EnvironmentKind):
    """The column `secret` is to be guessed in `num_guesses` turns; reward 1 when it is found, 0 when it is not.

    A turn that is not a number is a wasted guess, answered by `number ?`.

    Example:
        >>> game = GuessTheNumber(num_guesses=3).open()
        >>> game.reset({"secret": 6})
        ''
        >>> [(answer.text, answer.reward, answer.done) for answer in (game.step("9"), game.step("6"))]
        [('lower', None, False), ('', 1.0, True)]
    """

    kind: Literal["guess_the_number"] = "guess_the_number"
    num_guesses: Length = 4
    """Guesses of one game."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("secret",)

    @property
    def replies(self) -> tuple[str, ...]:
        return ("higher", "lower", "number ?")

    def open(self) -> _Game:
        return _Game(self.num_guesses)


class _Game:
    def __init__(self, num_guesses: int) -> None:
        self.left = num_guesses
        self.secret = 0

    def reset(self, columns: Mapping[str, Any]) -> str:
        self.secret = int(columns["secret"])
        return ""

    def step(self, action: str) -> Step:
        self.left -= 1
        text = action.strip()
        # Python refuses to read a number of thousands of digits.
        guess = int(text) if text.isdecimal() and len(text) <= _GUESS_THE_NUMBER_MAX_DIGITS else None
        if guess == self.secret:
            return Step(reward=1.0, done=True)
        if self.left == 0:
            return Step(reward=0.0, done=True)
        return Step("number ?" if guess is None else "higher" if guess < self.secret else "lower")


CALCULATOR = ImportPath("groupwise.domain.language.environment:calculate")


@final
class Tools(EnvironmentKind):
    """`<tool>calculator: 12 * 7</tool>` is answered by `<result>84</result>`; a turn without a call ends the
    conversation.

    A tool is a function of one text that returns one. What it raises, an unknown name or a call above the limit is
    answered by `error: ...`, so that the policy can learn from it. With one tool its name may be left out.

    Example:
        >>> tools = Tools().open()
        >>> tools.reset({})
        ''
        >>> tools.step("that is <tool>calculator: 12 * 7</tool>").text
        '<result>84</result>'
        >>> tools.step("so 84").done
        True
    """

    kind: Literal["tools"] = "tools"
    tools: Mapping[str, InModule] = Field(default_factory=lambda: {"calculator": CALCULATOR})
    """Name -> `package.module:function`."""
    opening: str = "<tool>"
    """The beginning of a call."""
    closing: str = "</tool>"
    """The end of a call; it ends the turn."""
    reply: str = "<result>{result}</result>"
    """The answer; `{result}` stands for what the tool returned."""
    max_calls: Length = 4
    """Calls a member may make; the next one ends the conversation."""
    max_characters: Positive = 400
    """Longest result; the rest is cut off."""

    weight: Weight = 0.0
    """The weight of the environment's own reward; tools earn none."""

    answers_any_prompt = True

    @model_validator(mode="after")
    def _usable(self) -> Tools:
        if not self.tools:
            raise ValueError("tools is empty; name at least one, such as calculator = " + repr(CALCULATOR))
        if not self.opening or not self.closing or "{result}" not in self.reply:
            raise ValueError("opening and closing must not be empty, and reply must contain {result}")
        return self

    @property
    def stop(self) -> tuple[str, ...]:
        return (self.closing,)

    def open(self) -> _Tools:
        functions = {
            name: user_callable(path, f"domain.environment.tools.{name}", write="a function of one text")
            for name, path in self.tools.items()
        }
        return _Tools(self, functions)


class _Tools:
    def __init__(self, config: Tools, functions: Mapping[str, Callable[[str], Any]]) -> None:
        self.config, self.functions, self.calls = config, functions, 0

    def reset(self, columns: Mapping[str, Any]) -> str:
        self.calls = 0
        return ""

    def step(self, action: str) -> Step:
        config = self.config
        _, opening, call = action.rpartition(config.opening)
        if not opening or not call.rstrip().endswith(config.closing):
            return Step(done=True)
        self.calls += 1
        if self.calls > config.max_calls:
            return Step(done=True)
        result = self._result(call.rstrip().removesuffix(config.closing).strip())
        return Step(config.reply.replace("{result}", result[: config.max_characters]))

    def _result(self, call: str) -> str:
        name, separator, argument = call.partition(":")
        if not separator or name.strip() not in self.functions:
            if len(self.functions) > 1 or (separator and name.strip().isidentifier()):
                return f"error: no tool {name.strip()!r}; there are {', '.join(sorted(self.functions))}"
            name, argument = next(iter(self.functions)), call
        try:
            return str(self.functions[name.strip()](argument.strip()))
        except Exception as error:  # a tool's failure is answered to the policy and does not end the run
            return f"error: {type(error).__name__}: {error}"


CALLS, FAILED_CALLS = "tools/call_frequency", "tools/failed_calls"


@final
class ChatTools(EnvironmentKind):
    """Python functions that the chat template shows as tools; the policy's calls are read in its model's format, and
    results go back as messages of the role `tool`.

    A call that is not JSON, an unknown tool, a wrong argument, a tool that raises or takes too long is answered by one
    line `error: ...`, and the run continues. A turn without a call ends the conversation.

    Example:
        >>> path = "groupwise.domain.language.environment:calculate"
        >>> conversation = ChatTools(tools=(path,), parser="hermes").open()
        >>> call = '<tool_call>{"name": "calculate", "arguments": {"expression": "12 * 7"}}</tool_call>'
        >>> conversation.step(call).messages[0]["content"]
        '84'
        >>> conversation.step("so 84").done
        True
    """

    kind: Literal["chat_tools"] = "chat_tools"
    tools: tuple[InModule, ...]
    """`package.module:function` of each tool. Its docstring describes it, with a line under `Args:` for every
    parameter; every parameter has a type hint. An asynchronous function is awaited.
    """
    parser: Literal["auto"] | CallFormat = "auto"
    """The format of the calls; `auto` finds it in the chat template."""
    max_turns: Length = 8
    """Turns of the policy; calls of the last one are not made."""
    max_calls: PerStep = 8
    """Calls in one turn; further ones are not made, and the last result reports that."""
    seconds: Seconds = 10.0
    """Deadline of one call."""
    max_characters: Positive = 2000
    """Longest result; the rest is cut off."""

    weight: Weight = 0.0
    """The weight of the environment's own reward; tools earn none."""

    reads_special_tokens = True
    answers_any_prompt = True
    needs_template = True
    counted = (CALLS, FAILED_CALLS)

    @field_validator("tools")
    @classmethod
    def _some(cls, tools: tuple[InModule, ...]) -> tuple[InModule, ...]:
        if not tools:
            raise ValueError('tools is empty; name at least one, tools = ["my_tools:search"]')
        return tools

    @cached_property
    def signatures(self) -> Mapping[str, ToolSignature]:
        """The tools by name.

        Raises:
            ConfigError: a function cannot be loaded or described, or two have one name.
        """
        signatures: dict[str, ToolSignature] = {}
        for position, path in enumerate(self.tools):
            key = f"domain.environment.tools[{position}]"
            signature = ToolSignature(user_callable(path, key), f"{key} = {str(path)!r}")
            if signature.name in signatures:
                raise ConfigError(f"{key} = {str(path)!r}: two tools are called {signature.name}; rename one")
            signatures[signature.name] = signature
        return signatures

    @property
    def marks_calls(self) -> bool:
        return self.parser == "hermes"

    @cached_property
    def runner(self) -> ToolRunner:
        """The caller of the tools, one for all members."""
        return ToolRunner(self.seconds, self.max_characters)

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        return tuple(signature.schema for signature in self.signatures.values())

    def for_template(self, template: str) -> Self:
        if self.parser != "auto":
            return self
        call_format = format_of(template)
        if call_format is None:
            raise ConfigError(
                "domain.environment.parser = 'auto': the chat template writes calls in none of the formats that are"
                " read; write parser = 'hermes' (<tool_call>{...}</tool_call>), 'llama' ({\"name\": ...,"
                " \"parameters\": ...}) or 'mistral' ([TOOL_CALLS][...]), if the model can"
            )
        return self.model_copy(update={"parser": call_format})

    def open(self) -> _Conversation:
        return _Conversation(self)


class _Conversation:
    def __init__(self, config: ChatTools) -> None:
        self.config, self.turns = config, 0

    def reset(self, columns: Mapping[str, Any]) -> str:
        self.turns = 0
        return ""

    def step(self, action: str) -> Step:
        config = self.config
        assert config.parser != "auto", "for_template has not been called"
        self.turns += 1
        content, calls = read_calls(action, config.parser)
        if not calls:
            return Step(done=True)
        written: dict[str, Any] = {"role": "assistant", "content": content}
        readable = [_record(call, self._id(place)) for place, call in enumerate(calls[: config.max_calls]) if call.name]
        if readable:
            written["tool_calls"] = readable
        if self.turns >= config.max_turns:
            return Step(done=True, action=written)
        messages: list[dict[str, Any]] = []
        num_failed = len(calls[config.max_calls :])
        for place, call in enumerate(calls[: config.max_calls]):
            text, succeeded = self._answer(call)
            num_failed += not succeeded
            # A template writes the name unchanged. So it must be a tool's name, and not a text of the policy.
            name = call.name if call.name in config.signatures else "unknown"
            messages.append({"role": "tool", "name": name, "content": text, "tool_call_id": self._id(place)})
        if num_left := len(calls[config.max_calls :]):
            # The last result reports it, because a template may write no result without a call.
            reason = f"a turn may hold {config.max_calls} calls; {num_left} were left out"
            messages[-1]["content"] += f"; {config.runner.error(reason)}"
        counts = {CALLS: float(len(calls)), FAILED_CALLS: float(num_failed)}
        return Step(messages=messages, action=written, counts=counts)

    def _answer(self, call: ToolCall) -> tuple[str, bool]:
        signatures, runner = self.config.signatures, self.config.runner
        if call.problem:
            return runner.error(call.problem), False
        if call.name not in signatures:
            return runner.error(f"no tool {call.name[:60]!r}; there are {', '.join(signatures)}"), False
        arguments, problem = signatures[call.name].read(call.arguments)
        if problem:
            return runner.error(problem), False
        return runner.call(call.name, partial(signatures[call.name].function, **arguments))

    def _id(self, place: int) -> str:
        # Mistral's templates insist on nine letters and digits.
        return f"{self.turns % 10_000:04d}{place % 100_000:05d}"


def _record(call: ToolCall, call_id: str) -> dict[str, Any]:
    return {"type": "function", "id": call_id, "function": {"name": call.name, "arguments": call.arguments}}


# A user's environment: any class with `reset` and `step`, by import path.


@final
class CallableEnvironment(CalledFromPath, EnvironmentKind):
    """`path` names a class (or function) that makes one conversation a member: `reset(columns) -> str` and `step(text)
    -> Step`, or `(text, reward, done)`.

    Example:
        >>> path = "groupwise.domain.language.environment:example"
        >>> CallableEnvironment(path=path).open().step("anything").done
        True
    """

    stop_texts: tuple[str, ...] = ()
    """Texts that end a turn, besides the end-of-sequence token."""

    @property
    def stop(self) -> tuple[str, ...]:
        return self.stop_texts

    def open(self) -> Environment:
        wanted = "an object with reset(columns) and step(text)"
        return _Checked(self.made(Environment, wanted, "domain.environment.path"))


class _Checked:
    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def reset(self, columns: Mapping[str, Any]) -> str:
        return self.environment.reset(columns) or ""

    def step(self, action: str) -> Step:
        answer = self.environment.step(action)
        return answer if isinstance(answer, Step) else Step(*answer)


def example() -> Any:
    """Makes an environment that is over after one turn."""

    class Once:
        def reset(self, columns: Mapping[str, Any]) -> str:
            return ""

        def step(self, action: str) -> tuple[str, float | None, bool]:
            return "", None, True

    return Once()


EnvironmentConfig = Annotated[GuessTheNumber | Tools | ChatTools | CallableEnvironment, Field(discriminator="kind")]
"""Any environment, distinguished by `kind`."""
