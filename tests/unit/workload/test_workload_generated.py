import re
from collections.abc import Callable
from fractions import Fraction
from itertools import islice
from statistics import quantiles

import pytest

from rlmbench.workload import generated
from rlmbench.workload.verifier import extract

# The answer from the question's numbers alone, in the order in which they are written.
SOLVED: dict[str, Callable[..., Fraction]] = {
    "change": lambda count, price, paid: paid - count * price,
    "tickets": lambda friday, sunday: friday + friday / 2 + sunday,
    "savings": lambda had, weekly, weeks, price: price - (had + weekly * weeks),
    "journey": lambda hours, speed, more, slower: hours * speed + more * slower,
    "boxes": lambda count, packs, pencils, given: count * packs * pencils - given,
    "bakery": lambda trays, each, eaten, size: (trays * each - eaten) / size,
    "overtime": lambda wage, hours, extra: wage * (hours + 2 * extra),
    "reading": lambda pages, daily, days, faster: (pages - daily * days) / faster,
    "ages": lambda gap, years, then: then - years + gap,
    "fence": lambda length, width, price: (length + width + length + width) * price,
    "discount": lambda price, percent, count: count * price * (1 - percent / 100),
    "tank": lambda inflow, leak, holds: holds / (inflow - leak),
    "recipe": lambda people, grams, guests: grams / people * guests,
    "outing": lambda buses, seats, empty, adults: buses * seats - empty - adults,
    "sharing": lambda total, kept, people: (total - kept) / people,
    "points": lambda win, loss, won, lost: win * won - loss * lost,
    "collections": lambda stamps, factor, fewer: stamps + 2 * stamps * factor - fewer,
    "laps": lambda daily, lap, days: daily * lap * days,
    "factory": lambda machines, hourly, hours, one, part: machines * hourly * hours * (1 - one / part),
    "telephone": lambda base, free, price, talked: base + (talked - free) * price,
    "orchard": lambda rows, trees, pears, crate, price: rows * trees * pears / crate * price,
    "burning": lambda length, rate, hours: length - rate * hours,
    "library": lambda start, monthly, months, worn: start + monthly * months - worn,
    "choir": lambda pupils, percent: pupils * (1 - percent / 100) / 2,
}


def test_every_template_is_solved_independently() -> None:
    assert set(SOLVED) == set(generated.TEMPLATES)


@pytest.mark.parametrize("name", generated.TEMPLATES)
def test_answers_follow_from_the_question(name: str) -> None:
    for key in range(60):
        problem = generated.TEMPLATES[name](generated.Draw(f"test:{key}"))
        numbers = [Fraction(number) for number in re.findall(r"\d+", problem.question)]
        assert SOLVED[name](*numbers) == problem.answer > 0, problem.question


@pytest.mark.parametrize("name", generated.TEMPLATES)
def test_worked_solutions_are_right_line_by_line(name: str) -> None:
    for key in range(20):
        problem = generated.TEMPLATES[name](generated.Draw(f"test:{key}"))
        lines = problem.solution.splitlines()
        assert lines[-1] == f"#### {problem.answer}"
        assert extract(problem.solution) == problem.answer
        calculations = re.findall(r"(\S+) = <<(\S+)=(\d+)>>(\d+)", problem.solution)
        assert len(calculations) == len(lines) - 1 >= 2
        for written, expression, value, result in calculations:
            assert written.lstrip("$") == expression and value == result
            assert calculate(expression) == int(value), expression
        assert int(calculations[-1][3]) == problem.answer


def calculate(expression: str) -> Fraction:
    """Left to right; sums never hold a product here."""
    first, *rest = re.findall(r"[-+*/]|\d+", expression)
    value = Fraction(first)
    for operator, number in zip(rest[::2], rest[1::2], strict=True):
        value = {"+": value + int(number), "-": value - int(number), "*": value * int(number), "/": value / int(number)}[operator]
    return value


def test_problems_are_different_reproducible_and_of_different_length() -> None:
    first = list(islice(generated.problems(0), 1024))
    assert first == list(islice(generated.problems(0), 1024))
    assert first[:100] == list(islice(generated.problems(0), 100))
    assert len({problem.question for problem in first}) == 1024
    other = {problem.question for problem in islice(generated.problems(1), 1024)}
    assert len(other & {problem.question for problem in first}) < 100
    words = quantiles([len(problem.question.split()) for problem in first], n=20)
    assert words[0] < 25 and words[-1] > 60
