"""Writes patients.csv: made-up patients of three hospitals that differ in size and in whom they see."""

import csv
from pathlib import Path

import numpy as np

HOSPITALS = {"Bonn": (60, 48.0), "Kiel": (30, 70.0), "Ulm": (120, 58.0)}
"""Patients, and their mean age."""


def main(path: Path) -> None:
    generator = np.random.default_rng(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["hospital", "age", "pressure", "pulse", "ill"])
        for hospital, (patients, age) in HOSPITALS.items():
            ages = generator.normal(age, 12, patients)
            pressures = 100 + 0.5 * ages + generator.normal(0, 12, patients)
            pulses = generator.normal(72, 9, patients)
            ill = generator.random(patients) < 1 / (1 + np.exp(-0.08 * (pressures - 130)))
            for row, values in enumerate(zip(ages, pressures, pulses, ill, strict=True)):
                missing = row % 25 == 24
                pressure = "" if missing else f"{values[1]:.0f}"
                writer.writerow([hospital, f"{values[0]:.0f}", pressure, f"{values[2]:.0f}", int(values[3])])


if __name__ == "__main__":
    main(Path(__file__).with_name("patients.csv"))
