"""Knights and Knaves in letters: the logic of a puzzle without its names, and the search over the roles of its
people.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

# Share of demonstrations that think before they answer.
_WORKED_SHARE = 0.4
# The task's own rule reads the name A as an article, so letters start later in the alphabet.
LETTERS = "PQRSTUVWXYZ"

_CONNECTIVES = {"and": "and", "or": "or", "->": "implies", "<=>": "iff"}


def in_letters(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the row with its people called P, Q, ..., every pair of roles called knight and knave, and what they say
    as a formula.

    A letter says that the person tells the truth. Puzzles that differ in names and wording only become one, which is
    never both trained on and held out.

    Example:
        >>> statements = [["->", ["telling-truth", 0], ["lying", 1]], ["not", ["lying", 0]]]
        >>> row = in_letters({"metadata": {"names": ["Al", "Bo"], "statements": statements, "solution": [True, False]}})
        >>> row["prompt"], row["answer"]
        ('P says P implies not Q. Q says not not P.', 'P is a knight, and Q is a knave.')
    """
    metadata = row["metadata"]
    letters = list(LETTERS[: len(metadata["statements"])])
    statements_text = " ".join(
        f"{letter} says {formula(statement)}."
        for letter, statement in zip(letters, metadata["statements"], strict=True)
    )
    roles = [
        f"{letter} is a {'knight' if honest else 'knave'}"
        for letter, honest in zip(letters, metadata["solution"], strict=True)
    ]
    return {
        **row,
        "prompt": statements_text,
        "answer": f"{', '.join(roles[:-1])}, and {roles[-1]}.",
        "metadata": {**metadata, "names": letters},
    }


def from_logic_rl(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of Logic-RL's parquet files with the puzzle as its prompt and the roles as its answer.

    Its column `prompt` may hold a whole chat, rendered for one family of models; the puzzle is then taken from the
    user's part of it, so that the chat template of the model renders it again.

    Example:
        >>> chat = "<|im_start|>system\\nThink.<|im_end|>\\n<|im_start|>user\\nWho?<|im_end|>\\n<|im_start|>assistant\\n<think>"
        >>> truth = {"ground_truth": {"solution_text_format": "(1) Al is a knight"}}
        >>> row = from_logic_rl({"prompt": [{"role": "user", "content": chat}], "reward_model": truth})
        >>> row["prompt"], row["answer"]
        ('Who?', '(1) Al is a knight')
    """  # noqa: E501
    answer = row.get("solution_text_format")
    if answer is None:
        answer = ((row.get("reward_model") or {}).get("ground_truth") or {}).get("solution_text_format")
    prompt = row.get("quiz") or row.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]["content"].rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0].strip()
    return {**row, "prompt": prompt, "answer": answer}


def write(row: Mapping[str, Any], seed: int) -> str:
    """Writes `<think>...</think> <answer>...</answer>` with the right answer; the thoughts of most are empty."""
    worked = random.Random(f"demonstration {seed} {row['prompt']}").random() < _WORKED_SHARE
    return f"<think>{work(row['metadata']['statements']) if worked else ''}</think> <answer> {row['answer']}</answer>"


def work(statements: Sequence[Any]) -> str:
    """Writes the search over cases, truth first, up to the case that fits all statements; `none` where no case does.

    A case says who tells the truth (a capital letter) and who lies (a small one). Then what P says is written with the
    letters of the case, and whether it is true; then what Q says, ... A case ends at the first statement that does not
    fit its speaker.

    Example:
        >>> work([["->", ["telling-truth", 0], ["lying", 1]], ["<=>", ["telling-truth", 1], ["telling-truth", 0]]])
        ' P Q: P implies not Q false; P q: P implies not q true, q iff P false.'
        >>> work([["lying", 1], ["telling-truth", 0]])
        ' P Q: not Q false; P q: not q true, P true; p Q: not Q false, p false; p q: not q true; none'
    """
    lines = []
    for honest in itertools.product((True, False), repeat=len(statements)):
        judgements, fits = [], False
        for statement, truthful in zip(statements, honest, strict=True):
            value = holds(statement, honest)
            judgements.append(f"{formula(statement, honest)} {'true' if value else 'false'}")
            fits = value == truthful
            if not fits:
                break
        lines.append(f"{' '.join(_letter(person, honest) for person in range(len(honest)))}: {', '.join(judgements)}")
        if fits:
            return f" {'; '.join(lines)}."
    return f" {'; '.join([*lines, 'none'])}"


def formula(statement: Any, honest: Sequence[bool] | None = None, *, inside: bool = False) -> str:
    """Writes a statement of reasoning-gym's puzzles as a formula, with brackets only where they are needed.

    Args:
        statement: nested lists, as the task's metadata hold them.
        honest: who tells the truth; a liar's letter is small. None writes capitals.
        inside: whether it stands inside another formula.

    Example:
        >>> (
        ...     formula(["not", ["and", ["telling-truth", 0], ["lying", 1]]]),
        ...     formula(["or", ["telling-truth", 0], ["lying", 1]], [False, True]),
        ... )
        ('not (P and not Q)', 'p or not Q')
    """
    kind, *operands = statement
    if kind in ("telling-truth", "lying"):
        return _letter(operands[0], honest) if kind == "telling-truth" else f"not {_letter(operands[0], honest)}"
    if kind == "not":
        return f"not {formula(operands[0], honest, inside=True)}"
    text = f" {_CONNECTIVES[kind]} ".join(formula(part, honest, inside=True) for part in operands)
    return f"({text})" if inside else text


def _letter(person: int, honest: Sequence[bool] | None) -> str:
    return LETTERS[person] if honest is None or honest[person] else LETTERS[person].lower()


def holds(statement: Any, honest: Sequence[bool]) -> bool:
    """Evaluates a statement of reasoning-gym's puzzles when `honest[i]` says that person i tells the truth.

    Example:
        >>> holds(["->", ["telling-truth", 0], ["lying", 1]], [True, True])
        False
    """
    kind, *operands = statement
    if kind in ("telling-truth", "lying"):
        return honest[operands[0]] == (kind == "telling-truth")
    values = [holds(part, honest) for part in operands]
    if kind == "not":
        return not values[0]
    if kind in ("and", "or"):
        return all(values) if kind == "and" else any(values)
    if kind == "->":
        return not values[0] or values[1]
    if kind == "<=>":
        return values[0] == values[1]
    raise ValueError(f"{kind!r} is no kind of statement; known are telling-truth, lying, not, and, or, ->, <=>")
