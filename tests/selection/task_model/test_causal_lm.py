"""The causal language model behind a template, against one plain forward of each row and transformers' own greedy
generation.
"""

from __future__ import annotations

import shutil
from functools import cache

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from groupwise.causal_lm.config import CausalLMConfig
from groupwise.causal_lm.loading import load
from groupwise.config import ConfigError
from groupwise_selection.task_model import causal_lm
from groupwise_selection.task_model.causal_lm import CausalLMTaskModel
from groupwise_selection.task_model.config import CausalLM
from groupwise_selection.task_model.template import ChatTemplate, TextTemplate

from .conftest import example, query

DEMOS = [example(0, "a + b?", "red"), example(1, "c + d?", "blue"), example(2, "e?", "green")]
QUERIES = [query("q0", "f + a?"), query("q1", "b?"), query("q2", "c + d + e?")]
CHOICES = [[], [DEMOS[0]], [DEMOS[0], DEMOS[1]], [DEMOS[1], DEMOS[0]], [DEMOS[2], DEMOS[1], DEMOS[0]]]
ANSWERS = ["red", "blue", "a1 green", "x"]


@cache
def opened(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()


def naive(folder, prompt_ids: list[int], answer_ids: list[int]) -> float:
    model = opened(folder)
    with torch.no_grad():
        log_p = model(torch.tensor([prompt_ids + answer_ids])).logits[0].log_softmax(-1)
    return sum(log_p[len(prompt_ids) + place - 1, token].item() for place, token in enumerate(answer_ids))


def rows():
    return [(query, demos) for query in QUERIES for demos in CHOICES]


def test_scores_equal_a_plain_forward_of_each_row(causal_folder, causal):
    found = CausalLMTaskModel(causal).score(*map(list, zip(*rows())), [ANSWERS] * 15)
    tokenizer = AutoTokenizer.from_pretrained(causal_folder)
    for (asked, demos), values in zip(rows(), found, strict=True):
        text = "".join(f"Q: {demo.question}\nA: {demo.answer}\n\n" for demo in demos) + f"Q: {asked.question}\nA:"
        expected = [
            naive(causal_folder, tokenizer.encode(text), tokenizer.encode(f" {answer}", add_special_tokens=False))
            for answer in ANSWERS
        ]
        assert values == pytest.approx(expected, abs=1e-9)
    assert len({round(value, 6) for values in found for value in values}) > 50


def test_order_and_batch_do_not_change_a_number(causal):
    whole = CausalLMTaskModel(causal).score(*map(list, zip(*rows())), [ANSWERS] * 15)
    alone = CausalLMTaskModel(causal, batch_tokens=1)
    assert [alone.score([asked], [demos], [ANSWERS])[0] for asked, demos in rows()] == [
        pytest.approx(values, abs=1e-9) for values in whole
    ]


def test_a_chat_is_written_by_the_models_own_template(causal_folder, causal):
    template = ChatTemplate(system="be short")
    found = CausalLMTaskModel(causal, template).score([QUERIES[1]], [[DEMOS[0]]], [["red", "b"]])
    text = "<|system|>be short<|end|><|user|>a + b?<|end|><|assistant|>red<|end|><|user|>b?<|end|><|assistant|>"
    tokenizer = AutoTokenizer.from_pretrained(causal_folder)
    expected = [
        naive(causal_folder, tokenizer.encode(text), tokenizer.encode(answer, add_special_tokens=False))
        for answer in ("red", "b")
    ]
    assert found == [pytest.approx(expected, abs=1e-9)]


def test_an_answer_is_never_merged_with_what_stands_before_it(causal_folder, causal):
    """` red` is one token; after a template that ends in a space, tokenising the whole text again would find it across
    the boundary.
    """
    template = TextTemplate(question="Q: {question}\nA: ", answer="{answer}")
    tokenizer = AutoTokenizer.from_pretrained(causal_folder)
    found = CausalLMTaskModel(causal, template).score([QUERIES[1]], [[]], [["red"]])[0][0]
    ids = tokenizer.encode("Q: b?\nA: ")
    assert tokenizer.encode("Q: b?\nA: red") != ids + tokenizer.encode("red")
    assert found == pytest.approx(
        naive(causal_folder, ids, [tokenizer.convert_tokens_to_ids(letter) for letter in "red"]), abs=1e-9
    )


def test_greedy_answers_equal_transformers_own(causal_folder, causal):
    template = TextTemplate(stop=("zz",))
    found = CausalLMTaskModel(causal, template, max_new_tokens=6).generate(*map(list, zip(*rows())))
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(causal_folder, dtype=torch.float64).eval(),
        AutoTokenizer.from_pretrained(causal_folder),
    )
    for (asked, demos), text in zip(rows(), found, strict=True):
        ids = torch.tensor(
            [tokenizer.encode(template.prompt(asked.question, [(demo.question, demo.answer) for demo in demos]))]
        )
        written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)[
            0, ids.shape[1] :
        ]
        assert text == tokenizer.decode(written, skip_special_tokens=True).strip()
    assert len(set(found)) > 2


def test_a_generated_answer_ends_before_a_stop_text(causal):
    plain = CausalLMTaskModel(causal, TextTemplate(stop=("~",)), max_new_tokens=8)
    (text,) = plain.generate([QUERIES[0]], [[DEMOS[0]]])
    assert len(text) > 2
    cut = CausalLMTaskModel(causal, TextTemplate(stop=(text[2],)), max_new_tokens=8)
    assert cut.generate([QUERIES[0]], [[DEMOS[0]]]) == [text[: text.index(text[2])].strip()]


def test_what_begins_alike_is_forwarded_once(causal, monkeypatch):
    fed = []
    score = causal_lm.continuation_log_probs.__globals__["scoring"].score

    def seen(backbone, inputs, **named):
        prompts = {tuple(prompt) for prompt in inputs.prompts}
        fed.append(sum(map(len, prompts)) + sum(int(row.nonzero().max()) + 1 for row in inputs.mask))
        return score(backbone, inputs, **named)

    monkeypatch.setattr(causal_lm.continuation_log_probs.__globals__["scoring"], "score", seen)
    CausalLMTaskModel(causal).score(
        [QUERIES[0]] * 4, [[DEMOS[0], DEMOS[1], DEMOS[2]]] * 4, [["red"], ["blue"], ["green"], ["x"]]
    )
    prompt = (
        len("Q: a + b?\nA:") + 1 + 2 + len("Q: c + d?\nA:") + 1 + 2 + len("Q: e?\nA:") + 1 + 2 + len("Q: f + a?\nA:")
    )
    assert fed == [prompt + 1 + 1 + 1 + 2]


def test_a_tokenizer_that_puts_a_space_before_every_text(tmp_path):
    """SentencePiece's habit: `Paris` alone becomes `▁Paris`, which is not how it stands after `is `."""
    pieces = [*"<unk> <s> </s> ▁ ▁Q ▁A Q A : ▁red red ▁b b ? e d r".split(" "), "\n"]  # noqa: SIM905
    backend = Tokenizer(models.Unigram([(piece, -1.0 if len(piece) > 1 else -2.0) for piece in pieces], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    config = LlamaConfig(
        vocab_size=len(pieces),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("red", add_special_tokens=False)) == ["▁red"]
    ids = CausalLMTaskModel(load(CausalLMConfig(path=str(tmp_path)))).__dict__["_answers"].ids
    assert tokenizer.convert_ids_to_tokens(ids("red", "q")) == ["▁red"]  # the template's own space
    bare = (
        CausalLMTaskModel(load(CausalLMConfig(path=str(tmp_path))), TextTemplate(answer="{answer}"))
        .__dict__["_answers"]
        .ids
    )
    assert tokenizer.convert_ids_to_tokens(bare("red", "q")) == ["red"]


def test_errors_name_the_query(causal):
    model = CausalLMTaskModel(causal)
    with pytest.raises(ConfigError, match=r"query 'q0'.*answer ' ' becomes 2 tokens and no word"):
        model.score([QUERIES[0]], [[]], [[" "]])
    with pytest.raises(
        ConfigError,
        match=r"query 'q2' with 10 demonstrations and the answer takes \d+ tokens, above the model's context of 160",
    ):
        model.score([QUERIES[2]], [[DEMOS[0]] * 10], [["red"]])
    with pytest.raises(ConfigError, match=r"query 'q1' with 8 demonstrations"):
        CausalLMTaskModel(causal, max_new_tokens=40).generate([QUERIES[1]], [[DEMOS[0]] * 8])
    with pytest.raises(ConfigError, match="which a causal language model cannot see"):
        CausalLMTaskModel(causal, TextTemplate(question="{image} {question}"))
    with pytest.raises(ConfigError, match=r"query 'q'.*becomes no token"):
        CausalLMTaskModel(causal, TextTemplate(question="{question}")).score([query("q", "")], [[]], [["red"]])
    assert model.score([QUERIES[0]], [[]], [[]]) == [[]]


def test_no_chat_template_no_pad_token(causal_folder, tmp_path):
    shutil.copytree(causal_folder, tmp_path / "bare")
    (tmp_path / "bare" / "chat_template.jinja").unlink()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "bare")
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path / "bare")
    config = CausalLM(path=str(tmp_path / "bare"), dtype="float64", cache=False)
    assert config.open().score([QUERIES[0]], [[DEMOS[0]]], [["red"]]) == [
        pytest.approx(
            CausalLM(path=str(causal_folder), dtype="float64", cache=False)
            .open()
            .score([QUERIES[0]], [[DEMOS[0]]], [["red"]])[0],
            abs=1e-9,
        )
    ]
    with pytest.raises(ConfigError, match="the tokenizer has no chat template"):
        config.model_copy(update={"template": ChatTemplate()}).open()


def test_the_fingerprint_is_of_weights_and_template(causal, causal_folder):
    first = CausalLMTaskModel(causal).fingerprint()
    assert first == CausalLMTaskModel(load(CausalLMConfig(path=str(causal_folder), dtype="float64"))).fingerprint()
    others = [
        CausalLMTaskModel(causal, TextTemplate(separator="\n")),
        CausalLMTaskModel(causal, TextTemplate(answer="  {answer}")),
    ]
    changed = load(CausalLMConfig(path=str(causal_folder), dtype="float64"))
    with torch.no_grad():
        next(changed.model.parameters()).view(-1)[0] += 1e-6
    assert len({first, *(model.fingerprint() for model in [*others, CausalLMTaskModel(changed)])}) == 4


def test_a_prompt_has_one_beginning_and_no_end_that_the_tokenizer_appends(causal_folder):
    plain = CausalLMTaskModel(load(CausalLMConfig(path=str(causal_folder), dtype="float64")))
    ending = load(CausalLMConfig(path=str(causal_folder), dtype="float64"))
    tokenizer = ending.tokenizer
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", tokenizer.eos_token_id)]
    )
    demos = [DEMOS[:1]] * 3
    assert CausalLMTaskModel(ending).score(QUERIES, demos, [ANSWERS] * 3) == plain.score(QUERIES, demos, [ANSWERS] * 3)
    assert CausalLMTaskModel(ending).generate(QUERIES, demos) == plain.generate(QUERIES, demos)
