"""`Diagnosis`: what was found, what to do about it, and the numbers that both rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fairlead.diagnostics.evidence import Evidence
from fairlead.diagnostics.foreseen import Arguments, Foreseen
from fairlead.diagnostics.spread import Confidence
from fairlead.diagnostics.wording import counted, listed

Kind = Literal[
    "assumption",
    "sizes",
    "labels",
    "work",
    "links",
    "foreseen",
    "measured",
    "clients",
    "unheard",
    "consensus",
    "diversity",
    "gradients",
]
Number = float | int | None
Numbers = Mapping[str, Number | Mapping[str, Number]]
Decision = Literal["change", "keep", "undecided"]

SECTIONS: Mapping[str, tuple[Kind, ...]] = {
    "What is unequal": ("assumption", "sizes", "labels", "work", "links"),
    "Which objective is optimised": ("foreseen", "measured", "clients", "unheard"),
    "Whether clients agree": ("consensus", "diversity", "gradients"),
}


@dataclass(frozen=True)
class Finding:
    """One statement, and the named numbers from which it was made."""

    kind: Kind
    statement: str
    evidence: Numbers
    confidence: Confidence


@dataclass(frozen=True)
class Advice:
    """What to use, why, and what to expect of it."""

    decision: Decision
    preset: str | None
    """The preset that is right here, whether it is used already or not; None without enough data."""
    arguments: Arguments
    """Of the preset, so that clients do what they do now."""
    reason: str
    expected: Mapping[str, Number]
    """Misplaced weight, chi-square and step length of the present method and of the preset, by theory."""
    confidence: Confidence
    alternatives: tuple[str, ...] = ()
    """Other presets that correct the same causes."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Findings and advice on one federation; `print` it, or take `to_dict` for programs."""

    source: str
    rounds: int
    clients: int
    findings: tuple[Finding, ...]
    advice: Advice
    against: tuple[Foreseen, ...]
    """Presets that were asked about."""
    evidence: Evidence = field(repr=False)
    advised: Foreseen | None = field(repr=False)
    """The advised preset under the present conditions; None without advice."""

    def finding(self, kind: Kind) -> Finding | None:
        """The statement of a kind, if there is one."""
        return next((finding for finding in self.findings if finding.kind == kind), None)

    def to_dict(self) -> dict[str, object]:
        """All of it as plain data; infinities are left to whoever writes them."""
        advice = self.advice
        return {
            "source": self.source,
            "rounds": self.rounds,
            "clients": self.clients,
            "findings": [
                {
                    "kind": finding.kind,
                    "statement": finding.statement,
                    "evidence": dict(finding.evidence),
                    "confidence": finding.confidence,
                }
                for finding in self.findings
            ],
            "advice": {
                "decision": advice.decision,
                "preset": advice.preset,
                "arguments": dict(advice.arguments),
                "reason": advice.reason,
                "expected": dict(advice.expected),
                "confidence": advice.confidence,
                "alternatives": list(advice.alternatives),
                "remarks": list(advice.remarks),
            },
            "against": [
                {
                    "preset": method.preset,
                    "chi_square": method.chi_square,
                    "misplaced_weight": method.misplaced,
                    "step_length": method.step_length,
                    "says": method.surrogate.says,
                }
                for method in self.against
            ],
        }

    def __str__(self) -> str:
        lines = [
            f"Diagnosis of {self.source}: {counted(self.clients, 'client')}, {counted(self.rounds, 'round')}"
        ]
        for title, kinds in SECTIONS.items():
            told = [finding for kind in kinds for finding in self.findings if finding.kind == kind]
            if told:
                lines += ["", title]
                lines += [f"- {finding.statement} [{_sure(finding.confidence)}]" for finding in told]
        advice = self.advice
        sure = "" if advice.preset is None else f" [{_sure(advice.confidence)}]"
        lines += ["", "Advice", f"- {advice.reason}{sure}"]
        lines += [f"- {remark}" for remark in advice.remarks]
        if advice.alternatives:
            lines.append(f"- Other presets that correct the same: {listed(advice.alternatives)}.")
        if advice.decision == "change":
            named = [f"{name}={value!r}" for name, value in advice.arguments.items()]
            arguments = ", ".join(named if "lr" in advice.arguments else ["lr=...", *named])
            lines.append(f"- In Python: fl.presets.{advice.preset}({arguments})")
        return "\n".join(lines)


def _sure(confidence: Confidence) -> str:
    return "not enough data" if confidence == "none" else f"confidence {confidence}"
