from __future__ import annotations

from groupwise.domain.language.environment import GuessTheNumber
from groupwise.domain.language.source.hidden_number import HiddenNumber, patient


def test_demonstrations_are_games_the_environment_would_play():
    source = HiddenNumber(num_guesses=4, careless_share=0.0)
    found = 0
    for row in source.rows(200, seed=0):
        turns = source.demonstration(row, seed=0)
        game = GuessTheNumber(num_guesses=4).open()
        game.reset(row)
        for number, guess in enumerate(turns[::2]):
            step = game.step(guess)
            if not step.done:
                assert turns[2 * number + 1] == step.text
        assert step.done
        found += step.reward == 1.0
        assert len(turns[::2]) <= 4
        messages = [
            {"role": "assistant" if place % 2 == 0 else "user", "content": text} for place, text in enumerate(turns)
        ]
        assert patient([messages], [row["low"]], [row["high"]], [row["secret"]]) == [1.0]
    # Guessing anything still possible finds the number sometimes, not always: that is what is left to learn.
    assert 40 < found < 160


def test_a_careless_player_wins_less_often_and_its_share_is_as_asked():
    rows = HiddenNumber().rows(300, seed=0)
    won = {}
    for share in (0.0, 0.4, 1.0):
        games = [HiddenNumber(careless_share=share).demonstration(row, seed=0) for row in rows]
        won[share] = sum(int(game[-1]) == row["secret"] for game, row in zip(games, rows, strict=True))
    assert won[0.0] > won[0.4] > won[1.0]
    # Four careless guesses at one of 16 numbers find it in about 1 - (15/16)^4 = .23 of the games; five standard errors
    # are .12.
    assert abs(won[1.0] / 300 - 0.23) < 0.12


def test_the_judge_by_hand():
    def game(*guesses: str):
        return [{"role": "assistant", "content": guess} for guess in guesses]

    # The secret is 6 in 1..15. After 9 (lower) 12 is out; after 4 (higher) 4 is out; a word is never possible.
    games = [game("9", "4", "6"), game("9", "12"), game("4", "4"), game("16"), game("x"), []]
    assert patient(games, [1] * 6, [15] * 6, [6] * 6) == [1, 0, 0, 0, 0, 0]


def test_two_rows_with_the_same_range_and_another_secret_are_two_prompts():
    source = HiddenNumber(largest=12, min_size=12, max_size=12)
    rows = source.rows(50, seed=0)
    assert sorted(row["secret"] for row in rows) == list(range(1, 13))
