"""rlmbench's own word problems: GSM8K in form, made by a program, so that a benchmark needs no download.

Each template draws its numbers and names from a seeded generator and returns a question, the worked solution in
GSM8K's notation (``48/2 = <<48/2=24>>24``, last line ``#### 24``) and the answer, always an integer. Templates differ
in length and number of steps so that prompts differ in length as real ones do.

Only ``random.Random.random`` is drawn from: it is the one method whose stream Python promises to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar

Choice = TypeVar("Choice")

NAMES = (
    "Amara", "Bruno", "Chidi", "Dalia", "Emeka", "Farah", "Goran", "Hana", "Ivo", "Jolanta", "Kofi", "Leila", "Mateus", "Noor", "Oskar",
    "Priya", "Quentin", "Rosa", "Sven", "Tomoko", "Ulrich", "Valeria", "Wanjiru", "Xenia", "Yusuf", "Zofia",
)  # fmt: skip
GOODS = ("notebook", "lamp", "scarf", "mug", "puzzle", "backpack", "football", "poster", "candle", "plant")
PLACES = ("the market", "the corner shop", "the school fair", "a flea market", "the museum shop", "the harbour")
ASIDES = (
    "The weather was fine all day.",
    "Everyone agreed that it had been a good idea.",
    "It was the first time that anybody had tried it.",
    "A neighbour helped with the heavy parts.",
    "There was music in the background the whole time.",
    "Nobody else in the family knew about the plan yet.",
)


class Worked(NamedTuple):
    """A question, its worked solution ending in ``#### answer``, and the answer."""

    question: str
    solution: str
    answer: int


class Draw:
    """Numbers and words for one problem."""

    def __init__(self, key: str) -> None:
        self._random = Random(key)

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def choose(self, options: Sequence[Choice]) -> Choice:
        return options[int(self._random.random() * len(options))]

    def names(self, count: int) -> list[str]:
        """Different first names."""
        left = list(NAMES)
        return [left.pop(int(self._random.random() * len(left))) for _ in range(count)]

    def aside(self) -> str:
        """A sentence without numbers that does not matter, or nothing; with a leading space."""
        return f" {self.choose(ASIDES)}" if self._random.random() < 0.3 else ""


def calc(expression: str, value: int) -> str:
    """A calculation in GSM8K's notation."""
    return f"{expression} = <<{expression}={value}>>{value}"


def worked(question: str, lines: Sequence[str], answer: int) -> Worked:
    return Worked(question, "\n".join([*lines, f"#### {answer}"]), answer)


def change(draw: Draw) -> Worked:
    (name,), thing, place = draw.names(1), draw.choose(GOODS), draw.choose(PLACES)
    count, price = draw.number(2, 9), draw.number(3, 18)
    paid = count * price + draw.number(1, 25)
    return worked(
        f"{name} buys {count} {thing}s at {place} for ${price} each and hands over ${paid}. How many dollars of change does {name} get?",
        [
            f"The {thing}s cost ${calc(f'{count}*{price}', count * price)}.",
            f"The change is ${calc(f'{paid}-{count * price}', paid - count * price)}.",
        ],
        paid - count * price,
    )


def tickets(draw: Draw) -> Worked:
    (name,), half = draw.names(1), draw.number(8, 60)
    first, third = 2 * half, draw.number(5, 40)
    return worked(
        f"{name} sold {first} raffle tickets on Friday, half as many on Saturday, and {third} on Sunday.{draw.aside()} "
        "How many tickets were sold over the three days?",
        [
            f"On Saturday {name} sold {calc(f'{first}/2', half)} tickets.",
            f"Together that makes {calc(f'{first}+{half}+{third}', first + half + third)} tickets.",
        ],
        first + half + third,
    )


def savings(draw: Draw) -> Worked:
    (name,), thing = draw.names(1), draw.choose(("bicycle", "guitar", "camera", "tent", "telescope"))
    had, weekly, weeks = draw.number(15, 90), draw.number(6, 30), draw.number(3, 14)
    price = had + weekly * weeks + draw.number(5, 120)
    saved, total = weekly * weeks, had + weekly * weeks
    return worked(
        f"{name} wants a {thing} and already has ${had}. Every week {name} puts another ${weekly} aside, and does so for {weeks} weeks."
        f"{draw.aside()} The {thing} costs ${price}. How many dollars are still missing?",
        [
            f"In that time {name} saves ${calc(f'{weekly}*{weeks}', saved)}.",
            f"With the money from before it is ${calc(f'{had}+{saved}', total)}.",
            f"So ${calc(f'{price}-{total}', price - total)} are missing.",
        ],
        price - total,
    )


def journey(draw: Draw) -> Worked:
    (name,) = draw.names(1)
    hours, speed, more_hours, more_speed = draw.number(2, 6), draw.number(40, 90), draw.number(1, 5), draw.number(25, 70)
    first, second = hours * speed, more_hours * more_speed
    return worked(
        f"{name} drives for {hours} hours at {speed} km per hour and then, on a smaller road, for {more_hours} hours at {more_speed} km per "
        "hour. How many kilometres is the whole trip?",
        [
            f"The first part is {calc(f'{hours}*{speed}', first)} km long.",
            f"The second part is {calc(f'{more_hours}*{more_speed}', second)} km long.",
            f"The trip is {calc(f'{first}+{second}', first + second)} km.",
        ],
        first + second,
    )


def boxes(draw: Draw) -> Worked:
    count, packs, pencils = draw.number(2, 12), draw.number(3, 9), draw.number(4, 12)
    total = count * packs * pencils
    given = draw.number(5, total - 5)
    return worked(
        f"A school orders {count} boxes. Each box holds {packs} packs of {pencils} pencils. Teachers hand out {given} pencils in the first "
        f"week.{draw.aside()} How many pencils are left?",
        [
            f"There are {calc(f'{count}*{packs}', count * packs)} packs.",
            f"They hold {calc(f'{count * packs}*{pencils}', total)} pencils.",
            f"After the first week {calc(f'{total}-{given}', total - given)} are left.",
        ],
        total - given,
    )


def bakery(draw: Draw) -> Worked:
    (name,), size, bags = draw.names(1), draw.number(3, 9), draw.number(4, 20)
    batches, packed = draw.number(2, 6), size * bags
    per_batch = packed // batches + 1
    total = batches * per_batch
    eaten = total - packed
    return worked(
        f"{name} bakes {batches} trays of {per_batch} biscuits. The children eat {eaten} of them while they are warm, and the others are "
        f"packed into bags of {size} for {draw.choose(PLACES)}. How many bags does {name} fill?",
        [
            f"{name} bakes {calc(f'{batches}*{per_batch}', total)} biscuits.",
            f"For the bags {calc(f'{total}-{eaten}', packed)} are left.",
            f"That fills {calc(f'{packed}/{size}', bags)} bags.",
        ],
        bags,
    )


def overtime(draw: Draw) -> Worked:
    (name,), wage = draw.names(1), draw.number(11, 34)
    hours, extra = draw.number(20, 40), draw.number(2, 12)
    regular, bonus = wage * hours, 2 * wage * extra
    return worked(
        f"{name} earns ${wage} an hour, and twice as much for every hour of overtime. Last week {name} worked {hours} regular hours and {extra} "
        "hours of overtime. What did the week bring, in dollars?",
        [
            f"The regular hours bring ${calc(f'{wage}*{hours}', regular)}.",
            f"An hour of overtime pays ${calc(f'2*{wage}', 2 * wage)}.",
            f"Overtime brings ${calc(f'{2 * wage}*{extra}', bonus)}.",
            f"Together it is ${calc(f'{regular}+{bonus}', regular + bonus)}.",
        ],
        regular + bonus,
    )


def reading(draw: Draw) -> Worked:
    (name,), daily, days = draw.names(1), draw.number(8, 30), draw.number(3, 9)
    faster, rest = draw.number(12, 45), draw.number(2, 12)
    read, left = daily * days, faster * rest
    return worked(
        f"{name} is reading a novel of {read + left} pages: {daily} pages a day for the first {days} days.{draw.aside()} From then on it is {faster} "
        f"pages a day. How many more days does {name} need?",
        [
            f"At first {name} reads {calc(f'{daily}*{days}', read)} pages.",
            f"Then {calc(f'{read + left}-{read}', left)} pages are left.",
            f"They take {calc(f'{left}/{faster}', rest)} days.",
        ],
        rest,
    )


def ages(draw: Draw) -> Worked:
    older, younger = draw.names(2)
    gap, years = draw.number(2, 15), draw.number(3, 12)
    then = years + draw.number(4, 40)
    now = then - years
    return worked(
        f"{older} is {gap} years older than {younger}. In {years} years {younger} will be {then}. How old is {older} today?",
        [f"{younger} is {calc(f'{then}-{years}', now)} today.", f"{older} is {calc(f'{now}+{gap}', now + gap)}."],
        now + gap,
    )


def fence(draw: Draw) -> Worked:
    length, width, price = draw.number(8, 60), draw.number(4, 40), draw.number(5, 25)
    half, around = length + width, 2 * (length + width)
    return worked(
        f"A rectangular vegetable garden is {length} metres long and {width} metres wide. A fence around it costs ${price} per metre. "
        "What does the fence cost in dollars?",
        [
            f"Length and width are {calc(f'{length}+{width}', half)} metres.",
            f"The fence is {calc(f'2*{half}', around)} metres long.",
            f"It costs ${calc(f'{around}*{price}', around * price)}.",
        ],
        around * price,
    )


def discount(draw: Draw) -> Worked:
    (name,), thing = draw.names(1), draw.choose(("jacket", "armchair", "suitcase", "desk", "coat"))
    price, percent, count = 20 * draw.number(2, 15), 5 * draw.number(1, 12), draw.number(2, 6)
    less = price * percent // 100
    return worked(
        f"In the sale a {thing} that used to cost ${price} is {percent}% cheaper. {name} orders {count} of them for a small hotel. "
        "How much is the bill in dollars?",
        [
            f"The reduction is ${calc(f'{price}*{percent}/100', less)}.",
            f"A {thing} costs ${calc(f'{price}-{less}', price - less)} now.",
            f"The bill is ${calc(f'{count}*{price - less}', count * (price - less))}.",
        ],
        count * (price - less),
    )


def tank(draw: Draw) -> Worked:
    leak, minutes = draw.number(2, 9), draw.number(6, 45)
    inflow = leak + draw.number(3, 20)
    gain = inflow - leak
    return worked(
        f"A pump brings {inflow} litres of water a minute into an empty tank, but a crack loses {leak} litres a minute. The tank holds "
        f"{gain * minutes} litres.{draw.aside()} After how many minutes is it full?",
        [
            f"Each minute adds {calc(f'{inflow}-{leak}', gain)} litres.",
            f"The tank is full after {calc(f'{gain * minutes}/{gain}', minutes)} minutes.",
        ],
        minutes,
    )


def recipe(draw: Draw) -> Worked:
    (name,), people, grams, factor = draw.names(1), draw.number(2, 8), 10 * draw.number(8, 60), draw.number(2, 7)
    return worked(
        f"A soup for {people} people takes {grams} grams of lentils. {name} cooks it for {people * factor} guests. How many grams of lentils are needed?",
        [
            f"That is {calc(f'{people * factor}/{people}', factor)} times the recipe.",
            f"It takes {calc(f'{factor}*{grams}', factor * grams)} grams.",
        ],
        factor * grams,
    )


def outing(draw: Draw) -> Worked:
    buses, seats, adults = draw.number(2, 9), draw.number(20, 56), draw.number(3, 15)
    total = buses * seats
    empty = draw.number(1, 18)
    return worked(
        f"For the outing the school hires {buses} buses with {seats} seats each. On the day {empty} seats stay empty, and {adults} of the passengers "
        "are adults. How many children come along?",
        [
            f"The buses have {calc(f'{buses}*{seats}', total)} seats.",
            f"Of these {calc(f'{total}-{empty}', total - empty)} are taken.",
            f"So {calc(f'{total - empty}-{adults}', total - empty - adults)} children come along.",
        ],
        total - empty - adults,
    )


def sharing(draw: Draw) -> Worked:
    (name,), people, each, aside = draw.names(1), draw.number(3, 12), draw.number(4, 40), draw.number(5, 50)
    total = people * each + aside
    return worked(
        f"{name} collected {total} shells, keeps {aside} of the prettiest and shares the others equally among {people} friends. "
        "How many does every friend get?",
        [
            f"There are {calc(f'{total}-{aside}', total - aside)} shells to share.",
            f"Every friend gets {calc(f'{total - aside}/{people}', each)}.",
        ],
        each,
    )


def points(draw: Draw) -> Worked:
    (name,), win, loss = draw.names(1), draw.number(5, 15), draw.number(1, 4)
    won, lost = draw.number(6, 20), draw.number(1, 6)
    return worked(
        f"A round won brings {win} points and a round lost takes {loss} away. {name} wins {won} rounds and loses {lost}. How many points is that?",
        [
            f"The wins bring {calc(f'{won}*{win}', won * win)} points.",
            f"The losses take {calc(f'{lost}*{loss}', lost * loss)}.",
            f"That is {calc(f'{won * win}-{lost * loss}', won * win - lost * loss)} points.",
        ],
        won * win - lost * loss,
    )


def collections(draw: Draw) -> Worked:
    first, second, third = draw.names(3)
    stamps, factor, fewer = draw.number(12, 70), draw.number(2, 6), draw.number(3, 20)
    many, some = stamps * factor, stamps * factor - fewer
    return worked(
        f"Three friends collect stamps and compare their albums one rainy afternoon. {first} has {stamps} of them. {second} started much earlier, "
        f"trades with people all over the world and has {factor} times as many as {first}. {third} has {fewer} fewer than {second}, most of them with "
        f"birds.{draw.aside()} For an exhibition in the library they put all their stamps together. How many stamps can visitors see?",
        [
            f"{second} has {calc(f'{stamps}*{factor}', many)} stamps.",
            f"{third} has {calc(f'{many}-{fewer}', some)}.",
            f"Together they have {calc(f'{stamps}+{many}+{some}', stamps + many + some)} stamps.",
        ],
        stamps + many + some,
    )


def laps(draw: Draw) -> Worked:
    (name,), lap, days, daily = draw.names(1), 50 * draw.number(4, 16), draw.number(3, 6), draw.number(2, 9)
    return worked(
        f"{name} runs {daily} laps of {lap} metres on each of {days} days. How many metres is that in all?",
        [
            f"A day is {calc(f'{daily}*{lap}', daily * lap)} metres.",
            f"All days are {calc(f'{days}*{daily * lap}', days * daily * lap)} metres.",
        ],
        days * daily * lap,
    )


def factory(draw: Draw) -> Worked:
    machines, hours, part = draw.number(3, 12), draw.number(4, 10), draw.number(4, 10)
    hourly = part * draw.number(2, 12)
    made = machines * hourly * hours
    bad = made // part
    return worked(
        f"A workshop makes springs on {machines} machines of the same kind. Each machine makes {hourly} springs an hour and runs for {hours} hours a "
        f"day. At the end of the day an inspector looks at every spring and finds that 1 out of {part} bends too easily.{draw.aside()} Those are melted "
        "down, and the good ones are sent to a customer the same evening. How many springs does the customer receive?",
        [
            f"In an hour the machines make {calc(f'{machines}*{hourly}', machines * hourly)} springs.",
            f"In a day that is {calc(f'{machines * hourly}*{hours}', made)}.",
            f"The inspector rejects {calc(f'{made}/{part}', bad)}.",
            f"The customer receives {calc(f'{made}-{bad}', made - bad)}.",
        ],
        made - bad,
    )


def telephone(draw: Draw) -> Worked:
    (name,), base, free, price = draw.names(1), draw.number(8, 35), 10 * draw.number(3, 20), draw.number(2, 5)
    over = draw.number(5, 60)
    return worked(
        f"{name}'s telephone contract costs ${base} a month and includes {free} minutes. Every further minute costs ${price}. In May {name} talked for "
        f"{free + over} minutes. How many dollars was the bill?",
        [
            f"Not included are {calc(f'{free + over}-{free}', over)} minutes.",
            f"They cost ${calc(f'{over}*{price}', over * price)}.",
            f"The bill was ${calc(f'{base}+{over * price}', base + over * price)}.",
        ],
        base + over * price,
    )


def orchard(draw: Draw) -> Worked:
    owner, helper = draw.names(2)
    rows, trees, crate, price = draw.number(3, 9), draw.number(4, 12), draw.number(5, 12), draw.number(4, 15)
    pears = crate * draw.number(2, 8)
    all_trees = rows * trees
    fruit = all_trees * pears
    crates = fruit // crate
    return worked(
        f"{owner}'s orchard has {rows} rows with {trees} pear trees in each. This autumn every tree carries {pears} pears, which is more than last year, "
        f"and {helper} comes over to help with the ladders.{draw.aside()} They pack {crate} pears into a crate and sell all crates to a juice maker for "
        f"${price} each. How many dollars does the juice maker pay?",
        [
            f"The orchard has {calc(f'{rows}*{trees}', all_trees)} trees.",
            f"They carry {calc(f'{all_trees}*{pears}', fruit)} pears.",
            f"That fills {calc(f'{fruit}/{crate}', crates)} crates.",
            f"The juice maker pays ${calc(f'{crates}*{price}', crates * price)}.",
        ],
        crates * price,
    )


def burning(draw: Draw) -> Worked:
    hours, rate = draw.number(2, 7), draw.number(2, 4)
    length = hours * rate + draw.number(3, 20)
    return worked(
        f"A candle {length} cm long gets {rate} cm shorter every hour. How long is it after {hours} hours, in cm?",
        [
            f"It loses {calc(f'{hours}*{rate}', hours * rate)} cm.",
            f"It is {calc(f'{length}-{hours * rate}', length - hours * rate)} cm long.",
        ],
        length - hours * rate,
    )


def library(draw: Draw) -> Worked:
    start, monthly, months, worn = draw.number(200, 900), draw.number(5, 40), draw.number(3, 12), draw.number(10, 120)
    bought = monthly * months
    return worked(
        f"The village library owned {start} books. It bought {monthly} new ones a month for {months} months, and when the shelves were cleaned it gave away "
        f"{worn} that were falling apart. How many books does it own now?",
        [
            f"It bought {calc(f'{monthly}*{months}', bought)} books.",
            f"That made {calc(f'{start}+{bought}', start + bought)}.",
            f"Now it owns {calc(f'{start + bought}-{worn}', start + bought - worn)}.",
        ],
        start + bought - worn,
    )


def choir(draw: Draw) -> Worked:
    percent, unit = 10 * draw.number(2, 8), draw.number(2, 12)
    pupils = 20 * unit
    singers = pupils * percent // 100
    rest = pupils - singers
    return worked(
        f"A music school teaches {pupils} pupils. {percent}% of them sing in the choir, half of the others play in the orchestra, and everybody else only "
        f"takes lessons.{draw.aside()} How many pupils only take lessons?",
        [
            f"In the choir there are {calc(f'{pupils}*{percent}/100', singers)} pupils.",
            f"That leaves {calc(f'{pupils}-{singers}', rest)}.",
            f"Half of them, {calc(f'{rest}/2', rest // 2)}, play in the orchestra.",
            f"So {calc(f'{rest}-{rest // 2}', rest - rest // 2)} only take lessons.",
        ],
        rest - rest // 2,
    )


TEMPLATES: Mapping[str, Callable[[Draw], Worked]] = {
    template.__name__: template
    for template in (
        change, tickets, savings, journey, boxes, bakery, overtime, reading, ages, fence, discount, tank, recipe, outing, sharing, points, collections,
        laps, factory, telephone, orchard, burning, library, choir,
    )
}  # fmt: skip


def problems(seed: int) -> Iterator[Worked]:
    """Different problems without end, the same for the same `seed` everywhere; the first n do not depend on how many follow."""
    names, seen, index = sorted(TEMPLATES), set(), 0
    while True:
        draw = Draw(f"{seed}:{index}")
        problem = TEMPLATES[draw.choose(names)](draw)
        index += 1
        if problem.question not in seen:
            seen.add(problem.question)
            yield problem
