"""Claims from what schedulers print: parsed documents in, the demand of each workload out."""

from domain.intake.reading import read_claim
from domain.intake.tally import Intake, IntakeRefused

__all__ = ["Intake", "IntakeRefused", "read_claim"]
