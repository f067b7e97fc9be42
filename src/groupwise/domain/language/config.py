"""The language domain as configuration: model, data, rewards, sampling, conversation, evaluation. Imports neither torch
nor transformers.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from groupwise.causal_lm.config import (
    AnyEngine,
    BuiltinEngine,
    CausalLMConfig,
    LoraConfig,
    SamplingConfig,
    SmallModelConfig,
)
from groupwise.config import Config, ConfigError, InModule, OpenKinds, import_paths, is_object, read_json
from groupwise.config.errors import Count, PerStep, Positive, Seed
from groupwise.domain.exported import Card, DomainObjects, EvaluationObjects, Export, RowsObject
from groupwise.domain.language.environment import EnvironmentConfig
from groupwise.domain.language.source import Files, Source, SourceConfig
from groupwise.domain.language.source.base import Nothing
from groupwise.domain.settings import CausalLm, DomainConfig
from groupwise.processes import without_collection
from groupwise.reward import RewardConfig
from groupwise.schedule import Schedule

if TYPE_CHECKING:
    from groupwise.domain.language.domain import LanguageDomain
    from groupwise.domain.language.policy import Policy
    from groupwise.streams import Streams


class LanguageModel(Config):
    """The model of a language domain. Another package adds a kind, for example of a model that a server trains, by an
    entry point of `groupwise.language_models` that names a subclass.
    """

    def open(self, config: LanguageConfig, streams: Streams) -> Policy:
        """Opens the policy.

        Args:
            config: the whole domain, whose sampling and engine the kind may restrict.
            streams: the random streams of the run, from which fresh weights are drawn.

        Raises:
            ConfigError: settings that the kind cannot give, or a model that cannot be reached.
        """
        raise NotImplementedError

    @classmethod
    def saved_in(cls, folder: Path) -> dict[str, Any] | None:
        """Returns the keys of `model` that go on from a model folder of this kind; `None` for a folder of another."""
        return None

    @classmethod
    def export(cls, request: Export) -> Card:
        """Writes a model folder of this kind in a form that others load."""
        raise NotImplementedError


@final
class Pretrained(LanguageModel, CausalLMConfig):
    """Any causal language model of transformers, whole or with LoRA. Only safetensors are read.

    Args:
        path: a local folder, a hub id, a `.gguf` file, or `package:NAME`, an installed package that carries one.
        dtype: dtype of the weights; `auto` takes the file's.
        attention: attention implementation of transformers; unset takes its default.
        dropout: `off` trains without the dropout that the folder's configuration names (an adapter's own stays), so
            that the policy rescored is the one that sampled; `kept` leaves it on while training.
        lora: an adapter to train instead of the whole model; the reference policy is a copy of the adapter.
        revision: a branch, tag or commit of a hub id.

    Example:
        >>> Pretrained(path="models/small").dtype
        'auto'
    """

    kind: Literal["pretrained"] = "pretrained"


@final
class Scratch(LanguageModel):
    """A small Qwen3-shaped model with fresh weights and a tokenizer made for the data; it needs a supervised stage
    before it can earn a reward.

    Args:
        tokenizer: `words` takes what is between spaces (and loses the spaces), `pieces` splits off punctuation and
            digits and loses nothing, `characters` takes one at a time.
        shape: sizes of the model, its width and number of layers among them.
        dtype: dtype of the weights.
        seed: the seed of the weights; unset takes the run's.

    Example:
        >>> Scratch(shape=SmallModelConfig(hidden_size=32)).shape.num_layers
        2
    """

    kind: Literal["scratch"] = "scratch"
    tokenizer: Literal["words", "pieces", "characters"] = "words"
    shape: SmallModelConfig = SmallModelConfig()
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    seed: Seed | None = None


@final
class ModelObjects(LanguageModel):
    """A causal language model of transformers and its tokenizer that a program holds; the model is trained as it is, in
    place. `groupwise.train((model, tokenizer), ...)` writes this.

    Args:
        model: `package.module:name` of the model.
        tokenizer: `package.module:name` of its tokenizer.
        dropout: `off` sets the dropout rates of the model to 0, so that the policy rescored is the one that sampled;
            `kept` leaves them.
        lora: an adapter to train instead of the whole model.

    Example:
        >>> ModelObjects(model="package.module:model", tokenizer="package.module:tokenizer").dropout
        'off'
    """

    kind: Literal["objects"] = "objects"
    model: InModule
    tokenizer: InModule
    dropout: Literal["off", "kept"] = "off"
    lora: LoraConfig | None = None


def _model_config(kind: str, loaded: Any) -> type[LanguageModel]:
    if not (isinstance(loaded, type) and issubclass(loaded, LanguageModel)):
        raise ConfigError(f"model.kind = {kind!r}: its package names {loaded!r}, which extends no LanguageModel")
    return loaded


MODELS = OpenKinds("groupwise.language_models", _model_config)
"""The entry points: `kind = "package.module:Class"`, a `LanguageModel`."""
ModelConfig = Annotated[LanguageModel, MODELS]
"""Any language model, distinguished by `kind`."""


def _kind_of(folder: Path) -> type[LanguageModel] | None:
    """Returns the kind of model that wrote a folder; `None` for a folder of transformers."""
    kinds: list[Any] = [MODELS.config(kind) for kind in MODELS.names() if MODELS.can_read(kind)]
    return next((kind for kind in kinds if kind.saved_in(folder) is not None), None)


def _set_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise ValueError(
            f"{name!r} is no name of an evaluation set, which begins its metrics; write letters, digits, _, - and ."
        )
    return name


SetName = Annotated[str, AfterValidator(_set_name)]
EvaluationSource = Annotated[
    Annotated[str, Tag("file")] | Annotated[SourceConfig, Tag("source")],
    Discriminator(lambda value: "file" if isinstance(value, str) else "source"),
]
"""The path of a file, or any source."""
_EVALUATED_APART = ("held_out_paths", "held_out_path", "held_out_split")
"""Keys of sources that name rows to evaluate on, outside of the rows to train on."""


@final
class DataConfig(Config):
    """The prompts: where they come from, how many are trained on, and how many are held out for evaluation.

    What is held out is never trained on: rows with the same prompt are taken out of the training set, and counted.

    Args:
        source: a task of ours, a reasoning-gym task, files, or a data set of the `datasets` library.
        evaluation: name -> what is evaluated on under that name, the path of a file or a source; its metrics are called
            `NAME/greedy/...`. With any, nothing is held out of `source`. A source that makes its rows makes
            `num_held_out` of them.
        num_train: training prompts; unset takes all there are (a source that makes its rows needs a number).
        num_held_out: prompts kept for evaluation, out of the rows of `source` where it names no others; unset keeps a
            tenth of the rows, at most 256, and 256 of a source that makes its rows.
        seed: the seed of the rows and of the split. It is not the run's seed, so that runs with different seeds are
            judged on the same prompts.
        prompt_column: the column with the prompt, a text or a list of messages.
        prompt_template: the prompt as a text with columns in braces, such as `"{question}\\nAnswer:"`; it replaces the
            prompt column. Nothing is written for a null.
        map: a function `map(row) -> row`, as `package.module:function`, applied first: for prompts or answers that a
            template cannot say.
        answer_column: a column that rewards should find as `answer`.
    """

    source: SourceConfig
    evaluation: Mapping[SetName, EvaluationSource] = Field(default_factory=dict)
    num_train: Positive | None = None
    num_held_out: Positive | None = None
    seed: Seed = 0
    prompt_column: str = "prompt"
    prompt_template: str | None = None
    map: InModule | None = None
    answer_column: str | None = None

    def held_out_of(self, num_rows: int | None) -> int:
        """Returns the number of prompts that are kept for evaluation.

        Args:
            num_rows: the number of rows of the source; None where it makes its rows.

        Example:
            >>> from groupwise.domain.language.source import Texts
            >>> [DataConfig(source=Texts(prompts=("a", "b"))).held_out_of(num) for num in (2, 60, None)]
            [1, 6, 256]
        """
        if self.num_held_out is not None:
            return self.num_held_out
        return _HELD_OUT if num_rows is None else min(_HELD_OUT, max(num_rows // 10, 1))

    @property
    def evaluation_sources(self) -> dict[str, Source]:
        """The source of every evaluation set; that of a file keeps the file's order."""
        return {
            name: Files(paths=(source,), shuffle=False) if isinstance(source, str) else source
            for name, source in self.evaluation.items()
        }

    @property
    def evaluated_apart(self) -> bool:
        """True where the evaluation has rows of its own, so that no rows of the source are held out."""
        return bool(self.evaluation) or any(getattr(self.source, key, None) for key in _EVALUATED_APART)

    @field_validator("prompt_template")
    @classmethod
    def _short(cls, template: str | None) -> str | None:
        """Refuses wide fields: `{prompt:>100000000}` would make every prompt 100 MB long. Padding and rounding are
        allowed.
        """
        try:
            fields = list(string.Formatter().parse(template or ""))
        except ValueError:
            return template  # the error names the row that cannot be filled in
        for _, name, spec, _ in fields:
            if "{" in (spec or "") or any(len(digits) > 4 for digits in re.findall(r"\d+", spec or "")):
                raise ValueError(
                    f"the field {{{name}:{(spec or '')[:40]}}} asks for a width that is not a number below 10,000;"
                    " write a smaller one, or none"
                )
        return template

    @model_validator(mode="after")
    def _counted(self) -> DataConfig:
        elsewhere = [key for key in _EVALUATED_APART if getattr(self.source, key, None)]
        if self.evaluation and elsewhere:
            raise ValueError(
                f"evaluation ({', '.join(self.evaluation)}) and source.{elsewhere[0]} both say what is evaluated on;"
                f" write source.{elsewhere[0]} as a set of evaluation"
            )
        if self.source.endless and self.num_train is None:
            raise ValueError(
                f"num_train is missing: a source of kind {self.source.kind!r} makes as many prompts as it is asked for;"
                " write num_train = 2048"
            )
        return self


@final
class ChatConfig(Config):
    """The use of the tokenizer's chat template.

    Args:
        use: `auto` renders prompts that are lists of messages and leaves texts as they are; `always` makes a text the
            message of a user; `never` refuses messages.
        system: a system message before every prompt that has none.
        reply_role: role in which an environment's answers are rendered.
        template_arguments: further arguments of the template, such as `enable_thinking = false`.
    """

    use: Literal["auto", "always", "never"] = "auto"
    system: str | None = None
    reply_role: Literal["user", "tool"] = "user"
    template_arguments: Mapping[str, Any] = Field(default_factory=dict)


@final
class DemonstrationsConfig(Config):
    """Texts to learn from by supervision: a warm-up, or a supervised term added to the policy's.

    A turn of the policy ends, in a chat, with the token that its template writes after an assistant's message
    (`<end_of_turn>` of Gemma), where sampling ends at that token; elsewhere with the tokenizer's `eos_token`.

    Args:
        num: prompts made for demonstrations alone, apart from those trained and evaluated on; unset demonstrates the
            training prompts.
        repeats: texts for each prompt, where the source or the writer draws them at random.
        column: the column that holds the text; unset takes what the source writes itself.
        writer: a function `writer(row, seed) -> str | list[str]`, as `package.module:function`, in place of both.
    """

    num: Positive | None = None
    repeats: PerStep = 1
    column: str | None = None
    writer: InModule | None = None

    @model_validator(mode="after")
    def _one_way(self) -> DemonstrationsConfig:
        if self.column is not None and self.writer is not None:
            raise ValueError("column and writer are two ways to get the same text; keep one")
        if self.column is not None and self.repeats > 1:
            raise ValueError(
                f"repeats = {self.repeats} would repeat the same text of column {self.column!r}; write repeats = 1"
            )
        return self


@final
class EvaluationConfig(Config):
    """The evaluation of held-out prompts. The random numbers are the same every time, so that two evaluations differ by
    the model alone.

    Args:
        num_prompts: of the held-out prompts, the first so many; unset takes all.
        greedy: the most likely completion of each prompt.
        sampled: completions at the sampling temperature.
        num_samples: sampled completions a prompt; above 1, `pass@k` is reported for the first reward with a weight.
        num_texts: prompts whose completions are written down.
    """

    num_prompts: Positive | None = None
    greedy: bool = True
    sampled: bool = True
    num_samples: PerStep = 1
    num_texts: Count = 8

    @model_validator(mode="after")
    def _something(self) -> EvaluationConfig:
        if not self.greedy and not self.sampled:
            raise ValueError("greedy and sampled are both false, so nothing is evaluated; set one of them to true")
        return self


@final
class LanguageConfig(DomainConfig):
    """A causal language model, its prompts, and how its completions are drawn and rewarded.

    Args:
        model: a model folder (`kind = "pretrained"`), a small one with fresh weights (`kind = "scratch"`), an
            adapter on a server that trains (`kind = "tinker"`), or one that a program holds (`kind = "objects"`).
        data: where prompts come from.
        rewards: name -> reward. Those with `role = "judge"` are measured in evaluation only.
        sampling: temperature, truncation, limits, stop texts.
        engine: what samples: the built-in sampler, `model.generate`, or a vLLM server.
        sampling_schedule: a schedule over the steps for any number of `sampling`; the value used is stored with the
            rollouts.
        chat: when the tokenizer's chat template is used.
        environment: who answers the policy, for conversations; unset is one turn.
        demonstrations: texts for supervised stages and terms.
        max_prompt_tokens: longest prompt; unset is what the model's context leaves after `sampling.max_new_tokens`.
        overlong: what happens to a longer one: `error` before anything is computed, `drop` it, or `truncate` it on the
            left; both are counted.
        evaluation: how held-out prompts are evaluated.
    """

    extra: ClassVar[str] = "language"
    whole_run: ClassVar[frozenset[str]] = frozenset({"model"})
    """Keys that no stage may change."""

    kind: Literal["language"] = "language"
    model: ModelConfig
    data: DataConfig
    rewards: Mapping[str, RewardConfig] = Field(default_factory=dict)
    sampling: SamplingConfig = SamplingConfig()
    engine: AnyEngine = BuiltinEngine()
    sampling_schedule: Mapping[Literal["temperature", "top_p", "top_k", "max_new_tokens"], Schedule] = Field(
        default_factory=dict
    )
    chat: ChatConfig = ChatConfig()
    environment: EnvironmentConfig | None = None
    demonstrations: DemonstrationsConfig | None = None
    max_prompt_tokens: Positive | None = None
    overlong: Literal["error", "drop", "truncate"] = "error"
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sound(self) -> LanguageConfig:
        if not any(reward.trains for reward in self.rewards.values()) and (
            self.environment is None or self.environment.weight == 0
        ):
            raise ValueError(
                "rewards names nothing to train on; write for example [domain.rewards.correct] with kind ="
                ' "exact_answer"'
            )
        if "environment" in self.rewards:
            raise ValueError("rewards.environment: the name is taken by the environment's own reward; choose another")
        if self.sampling.greedy:
            raise ValueError(
                "sampling.greedy = true gives a group of equal members, from which nothing is learned; leave it out"
                " (evaluation is greedy as well)"
            )
        for name, schedule in self.sampling_schedule.items():
            for value in schedule.extremes():
                sampling_value = int(value) if name in ("top_k", "max_new_tokens") else value
                try:
                    SamplingConfig.model_validate({name: sampling_value})
                except ValidationError as error:
                    allowed = error.errors()[0]["msg"].replace("Input should be", "must be", 1)
                    raise ValueError(f"sampling_schedule.{name} comes to {value:g}: {allowed} at every step") from None
        return self

    @classmethod
    def on_model(cls, folder: str) -> dict[str, Any]:
        """Returns the keys that put the domain on a saved model: its folder, or the state of a server that it names."""
        kind = _kind_of(Path(folder))
        return super().on_model(folder) if kind is None else {"model": kind.saved_in(Path(folder))}

    @classmethod
    def on_prompts(cls, path: str) -> dict[str, Any]:
        """Returns the keys that train on the rows of a file."""
        return {"data": {"source": {"kind": "files", "paths": [path]}}}

    @classmethod
    def on_objects(cls, objects: DomainObjects) -> dict[str, Any]:
        """Returns the keys that put the domain on a model, rewards and rows that a program holds."""
        table = super().on_objects(replace(objects, model=None, data=None, eval_data=None, tools=None))
        if objects.tools is not None:
            table["environment"] = {"kind": "chat_tools", "tools": list(map(str, objects.tools))}
        if isinstance(objects.model, tuple):
            model, tokenizer = objects.model
            table["model"] = {"kind": "objects", "model": str(model), "tokenizer": str(tokenizer)}
        elif objects.model is not None:
            table |= cls.on_model(objects.model)
        data = _rows(objects.data, objects.eval_data)
        return table | ({"data": data} if data else {})

    @property
    def pretrained(self) -> bool:
        """True where the model comes from a folder."""
        return isinstance(self.model, Pretrained)

    @property
    def longest_completion(self) -> int:
        """The largest `max_new_tokens` of the run, its schedule included."""
        schedule = self.sampling_schedule.get("max_new_tokens")
        return max(self.sampling.max_new_tokens, 0 if schedule is None else int(schedule.extremes()[1]))

    def to_sample(self, *, data: bool) -> LanguageConfig:
        """Returns the settings that `groupwise sample` opens: model and tokenizer, and the prompts with their
        environment where `data` asks for them. Tools answer a typed text too, unless they are Python objects that no
        file describes. A server is not called.

        Args:
            data: whether training prompts are.
        """
        stop = () if self.environment is None else self.environment.stop
        changes: dict[str, Any] = {
            "rewards": {},
            "demonstrations": None,
            "sampling": self.sampling.model_copy(update={"stop": (*self.sampling.stop, *stop)}),
        }
        if not data:
            changes |= {"data": self.data.model_copy(update={"source": Nothing(), "map": None})}
            if not _can_answer(self.environment):
                changes |= {"environment": None}
        if self.engine.has_servers:
            changes["engine"] = BuiltinEngine()
        return self.model_copy(update=changes)

    @classmethod
    def of_folder(cls, folder: Path, *, raw: bool = False) -> LanguageConfig | None:
        """Returns the settings that ask a plain transformers folder by itself; None of any other folder.

        Args:
            folder: a folder of any kind.
            raw: a text is asked as it is; otherwise it is a user's message where the folder has a chat template.
        """
        model_config = folder / "config.json"
        described = read_json(model_config) if model_config.is_file() else {}
        if "model_type" not in described:
            return None
        contexts = [described.get(key) for key in ("max_position_embeddings", "n_positions")]
        # `groupwise sample` takes no keys of an experiment, so question and answer share a short context.
        halves = [context // 2 for context in contexts if isinstance(context, int) and context > 1]
        config = folder / "tokenizer_config.json"
        has_template = (folder / "chat_template.jinja").is_file() or (
            config.is_file() and bool(read_json(config).get("chat_template"))
        )
        settings = cls.model_validate(
            {
                "model": {"kind": "pretrained", "path": str(folder)},
                "data": {"source": {"kind": "texts", "prompts": ("", " ")}},
                "rewards": {"length": {"kind": "length", "target": 1}},
                "chat": {"use": "always" if has_template and not raw else "auto"},
                "sampling": {"max_new_tokens": min([SamplingConfig().max_new_tokens, *halves])},
            }
        )
        return settings.to_sample(data=False)

    def asked_like(self, prompt: Any) -> LanguageConfig:
        """Returns the settings that make a typed text the message of a user, under the same system message, where the
        recorded prompt is a list of messages.
        """
        if not isinstance(prompt, list) or self.chat.use == "never":
            return self
        systems = [
            message["content"] for message in prompt if isinstance(message, Mapping) and message.get("role") == "system"
        ]
        system = self.chat.system if self.chat.system is not None or not systems else str(systems[0])
        return self.model_copy(update={"chat": self.chat.model_copy(update={"use": "always", "system": system})})

    def asked_raw(self) -> LanguageConfig:
        """Returns the settings that ask a text without the chat template, and so without tools that it describes."""
        if self.environment is None or not self.environment.needs_template:
            return self
        return self.model_copy(update={"environment": None})

    def costs(self, *, streams: Streams) -> CausalLm:
        """Describes the model to `groupwise estimate`: of a folder or a hub id config.json alone is read. A small model
        with fresh weights is built, because its data decide its vocabulary.
        """
        model: Any = self.model
        if not isinstance(model, Pretrained | Scratch | ModelObjects):
            raise ConfigError(
                f"model.kind = {model.kind!r}: the step is computed at {model.address}, whose machine is not known"
                " here; estimate a local model, `--model FOLDER`"
            )
        has_weights, dtype = True, getattr(model, "dtype", "auto")
        if isinstance(model, Pretrained):
            from groupwise.causal_lm.gguf import plain_folder
            from groupwise.causal_lm.loading import read_config

            path = plain_folder(model.path)
            config: Any = read_config(model.model_copy(update={"path": path}))
            if config is None:
                raise ConfigError(
                    f"model.path = {model.path!r}: no config.json can be read from it; give a model folder, its"
                    " config.json, or a hub id"
                )
            has_weights = not Path(path).exists() or any(Path(path).glob("*.safetensors"))
        else:
            domain: Any = self.open(streams=streams)
            config = domain.module.config
            domain.close()
        dtype = str(config.dtype).removeprefix("torch.") if dtype == "auto" else dtype
        return CausalLm(
            config=config,
            max_new_tokens=self.sampling.max_new_tokens,
            weight_bytes={"bfloat16": 2, "float16": 2, "float64": 8}.get(dtype, 4),
            lora=getattr(model, "lora", None),
            has_weights=has_weights,
            served=self.engine.sends_weights,
            server_share=self.engine.memory_share,
            server_sleeps=self.engine.server_sleeps,
        )

    @classmethod
    def export(cls, request: Export) -> Card:
        """Copies the trained model; that of a server is downloaded as an adapter."""
        kind = _kind_of(request.model) if request.examples is None else None
        return super().export(request) if kind is None else kind.export(request)

    @classmethod
    def card(cls, request: Export) -> Card:
        """Describes a folder of transformers, its adapter merged."""
        return Card(
            loading=f'transformers.AutoModelForCausalLM.from_pretrained("{request.out}")',
            library="transformers",
            task="text-generation",
        )

    def open(self, *, streams: Streams, device: str = "cpu") -> LanguageDomain:
        """Opens the domain: data read and split, model and tokenizer loaded.

        Raises:
            ConfigError: data or model that cannot be used.
        """
        with without_collection():
            from groupwise.domain.language.domain import LanguageDomain

            return LanguageDomain(self, streams=streams, device=device)

    def open_to_spread(self, *, streams: Streams, device: str = "cpu") -> LanguageDomain:
        """Opens the domain on the CPU, from where its weights are spread. Two models stay on `device`: one with flash
        attention, which has to be tried on a GPU, and one that a program holds.
        """
        from groupwise.domain.language.domain import LanguageDomain

        stays = isinstance(self.model, ModelObjects) or getattr(self.model, "attention", "") == "flash_attention_2"
        return LanguageDomain(self, streams=streams, device=device if stays else "cpu", spreads=not stays)


_HELD_OUT = 256
"""The most prompts that are held out of a program's rows. At most a tenth of the rows is held out."""


def _can_answer(environment: EnvironmentConfig | None) -> bool:
    """Returns whether an environment works on a typed text, in a process that holds no objects of a program."""
    return (
        environment is not None
        and environment.answers_any_prompt
        and not any(is_object(named.path) for named in import_paths(environment))
    )


def _rows(data: RowsObject | str | None, eval_data: EvaluationObjects) -> dict[str, Any]:
    """Returns the data table for rows that a program holds or for files."""
    if data is None:
        if eval_data is not None:
            raise ConfigError(
                "eval_data: what is trained on comes from the experiment, and eval_data alone does not say its source;"
                " give data as well"
            )
        return {}
    sets = eval_data if isinstance(eval_data, Mapping) else {}
    alone = None if isinstance(eval_data, Mapping) else eval_data
    table: dict[str, Any] = {
        "evaluation": {
            name: rows if isinstance(rows, str) else {**_object_source(rows), "shuffle": False}
            for name, rows in sets.items()
        }
    }
    if isinstance(data, str) or isinstance(alone, str):
        if not isinstance(data, str) or not isinstance(alone, str | None):
            raise ConfigError(
                "eval_data: one of data and eval_data is a file and the other one rows; give both as files, or both as"
                " rows, or eval_data as a dict of sets"
            )
        held_out = {} if alone is None else {"held_out_paths": [alone]}
        return {**table, "source": {"kind": "files", "paths": [data], **held_out}, "num_train": None}
    table["source"] = {**_object_source(data), "held_out_path": None if alone is None else str(alone.path)}
    if data.num_rows is not None:
        table["num_train"] = None
    if alone is not None:
        table["num_held_out"] = _HELD_OUT if alone.num_rows is None else max(alone.num_rows, 1)
    return table


def _object_source(rows: RowsObject) -> dict[str, Any]:
    return {"kind": "rows", "path": str(rows.path), "streamed": rows.num_rows is None}
