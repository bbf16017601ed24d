"""`Diagnosis`: what was found, what to do about it, and the numbers that both rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fairlead.diagnostics.evidence import Evidence
from fairlead.diagnostics.foreseen import Arguments, Foreseen
from fairlead.diagnostics.recipe import SpecFile, compare_command, python_call, spec_table
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
    "aware",
    "consensus",
    "diversity",
    "dynamics",
    "gradients",
]
Number = float | int | None
Numbers = Mapping[str, Number | Mapping[str, Number]]
Decision = Literal["change", "keep", "undecided"]

SECTIONS: Mapping[str, tuple[Kind, ...]] = {
    "What is unequal": ("assumption", "sizes", "labels", "work", "links"),
    "Which objective is optimised": ("foreseen", "measured", "clients", "unheard", "aware"),
    "Whether clients agree": ("consensus", "diversity", "dynamics", "gradients"),
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
    server_lr: float | None
    """Learning rate of the server with which a round goes as far as now; None to leave it as the preset has it."""
    reason: str
    expected: Mapping[str, Number]
    """Misplaced weight, chi-square and step length of the present method and of the preset, by theory."""
    confidence: Confidence
    """In the weights that decided; how fast a method gets there is another matter."""
    alternatives: tuple[str, ...] = ()
    """Other presets that correct the same causes."""
    remarks: tuple[str, ...] = ()

    @property
    def python(self) -> str | None:
        """The preset as an expression; None unless a change is advised."""
        if self._change_to is None:
            return None
        return python_call(self._change_to, self.arguments, self.server_lr)

    @property
    def toml(self) -> str | None:
        """The preset as the `[algorithm]` of a spec; None unless a change is advised and its lr is known."""
        if self._change_to is None:
            return None
        return spec_table(self._change_to, self.arguments, self.server_lr)

    def command(self, spec: SpecFile) -> str | None:
        """`fairlead compare` of the spec with the preset; None unless a change is advised."""
        if self._change_to is None:
            return None
        return compare_command(spec, self._change_to, self.arguments, self.server_lr)

    @property
    def _change_to(self) -> str | None:
        return self.preset if self.decision == "change" else None


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
    spec: SpecFile | None = None
    """Where the experiment is written, if it is."""

    @property
    def command(self) -> str | None:
        """What tries the advice out on the command line; None without a spec or a change."""
        return None if self.spec is None else self.advice.command(self.spec)

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
                "server_lr": advice.server_lr,
                "reason": advice.reason,
                "expected": dict(advice.expected),
                "confidence": advice.confidence,
                "alternatives": list(advice.alternatives),
                "remarks": list(advice.remarks),
                "python": advice.python,
                "toml": advice.toml,
                "command": self.command,
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
        sure = "" if advice.preset is None else f" [{_sure(advice.confidence, ' in the weights:')}]"
        lines += ["", "Advice", f"- {advice.reason}{sure}"]
        lines += [f"- {remark}" for remark in advice.remarks]
        if advice.alternatives:
            lines.append(f"- Other presets that correct the same: {listed(advice.alternatives)}.")
        if self.command is not None:
            lines.append(f"- To try it out: {self.command}")
        if advice.python is not None:
            lines.append(f"- In Python: {advice.python}")
        if advice.toml is not None:
            lines += ["- In a spec:", *(f"    {line}" for line in advice.toml.splitlines())]
        return "\n".join(lines)


def _sure(confidence: Confidence, of: str = "") -> str:
    return "not enough data" if confidence == "none" else f"confidence{of} {confidence}"
