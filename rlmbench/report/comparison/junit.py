"""A comparison as JUnit XML, as CI systems read it: a test case for each pair (is it comparable?), each run (did it end
well?) and, with a gate, each configuration that has a baseline (is it not slower?)."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

from rlmbench.comparison.figures import Alone, Comparison, Configuration, GatePair, Pair, RunFigures
from rlmbench.report.comparison import words

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, such as a terminal's escape (W3C, Extensible Markup Language 1.0, 2.2)."""


def junit(comparison: Comparison) -> bytes:
    """The document. A pair that is not comparable, and a run that did not end well, are failures."""
    root = Xml.Element("testsuites", name="rlmbench compare")
    suite = Xml.SubElement(root, "testsuite", name=words.title(comparison))
    properties = Xml.SubElement(suite, "properties")
    for one in comparison.configurations:
        for head, value in zip(words.HEADLINE[1:], words.headline(one, comparison)[1:], strict=True):
            Xml.SubElement(properties, "property", name=f"{one.key} {head}", value=_clean(value))
        for reason in one.reasons:
            Xml.SubElement(properties, "property", name=f"{one.key} {reason.severity}", value=_clean(reason.sentence))
    for pair in comparison.pairs:
        _pair(suite, pair, comparison)
    for judged in comparison.gate.pairs if comparison.gate else ():
        _gate(suite, judged, comparison)
    for alone in comparison.alone if comparison.gate else ():
        _alone(suite, alone, comparison)
    if comparison.gate and not comparison.gate.pairs and not comparison.gate.missing:
        _nothing_judged(suite, comparison)
    for one in comparison.configurations:
        for run in one.runs:
            _run(suite, run, one)
    cases, failures = len(suite.findall("testcase")), len(suite.findall("testcase/failure"))
    for element in (root, suite):
        element.set("tests", str(cases))
        element.set("failures", str(failures))
    Xml.indent(root)
    return Xml.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _pair(suite: Xml.Element, pair: Pair, comparison: Comparison) -> None:
    a, b = comparison.configuration(pair.a), comparison.configuration(pair.b)
    case = Xml.SubElement(suite, "testcase", classname="comparable", name=_clean(f"{words.named(a)} v {words.named(b)}"))
    told = [f"{reason.severity}: {reason.sentence}" for reason in pair.reasons]
    if pair.verdict == "not comparable":
        failure = Xml.SubElement(case, "failure", type="not comparable", message=_clean(pair.reasons[0].sentence))
        failure.text = _clean("\n".join(told))
    differing = [f"{difference.changes}: {words.differing(difference, pair)}" for difference in pair.differences]
    output = Xml.SubElement(case, "system-out")
    output.text = _clean("\n".join([pair.verdict, words.speed_sentence(pair, comparison), *told, *differing]))


def _gate(suite: Xml.Element, judged: GatePair, comparison: Comparison) -> None:
    """What is slower than its baseline has failed, and what could not be judged too."""
    a, b = comparison.configuration(judged.a), comparison.configuration(judged.b)
    case = Xml.SubElement(suite, "testcase", classname="not slower", name=_clean(f"{words.named(a)} v {words.named(b)}"))
    if judged.outcome != "passed":
        Xml.SubElement(case, "failure", type=judged.outcome, message=_clean(judged.sentence))
    else:
        Xml.SubElement(case, "system-out").text = _clean(judged.sentence)


def _alone(suite: Xml.Element, alone: Alone, comparison: Comparison) -> None:
    """What stands beside nothing has failed, unless that is allowed."""
    case = Xml.SubElement(suite, "testcase", classname="not slower", name=_clean(words.named(comparison.configuration(alone.key))))
    if comparison.gate and comparison.gate.missing:
        Xml.SubElement(case, "failure", type="missing", message=_clean(alone.sentence))
    else:
        Xml.SubElement(case, "system-out").text = _clean(alone.sentence)


def _nothing_judged(suite: Xml.Element, comparison: Comparison) -> None:
    """A gate before which nothing stood has not passed."""
    case = Xml.SubElement(suite, "testcase", classname="not slower", name="any configuration")
    Xml.SubElement(case, "failure", type="not judged", message=words.nothing_to_compare(comparison))


def _run(suite: Xml.Element, run: RunFigures, configuration: Configuration) -> None:
    case = Xml.SubElement(suite, "testcase", classname=_clean(configuration.name), name=_clean(run.id))
    if run.tokens_per_s is None:
        Xml.SubElement(case, "failure", type=_clean(run.failure_class or run.status), message=_clean(words.ending(run)))


def _clean(value: str) -> str:
    return NOT_XML.sub("?", value)
