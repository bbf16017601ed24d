"""The papers behind the parts, by key, as BibTeX fields."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.errors import FieldError, did_you_mean


@dataclass(frozen=True)
class Reference:
    """A paper."""

    key: str
    authors: str
    title: str
    venue: str
    year: int

    def bibtex(self) -> str:
        """A BibTeX entry."""
        return (
            f"@inproceedings{{{self.key},\n  author = {{{self.authors}}},\n  title = {{{self.title}}},\n"
            f"  booktitle = {{{self.venue}}},\n  year = {{{self.year}}}\n}}"
        )

    def __str__(self) -> str:
        names = self.authors.split(" and ")
        authors = names[0] if len(names) == 1 else f"{names[0]} et al."
        return f"{authors}: {self.title}. {self.venue}, {self.year}."


_ALL = (
    Reference(
        "mcmahan2017fedavg",
        "McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and Agüera y Arcas, Blaise",
        "Communication-Efficient Learning of Deep Networks from Decentralized Data",
        "AISTATS",
        2017,
    ),
    Reference(
        "hsu2019",
        "Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew",
        "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
        "arXiv:1909.06335",
        2019,
    ),
    Reference(
        "li2020fedprox",
        "Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and Talwalkar, Ameet and "
        "Smith, Virginia",
        "Federated Optimization in Heterogeneous Networks",
        "MLSys",
        2020,
    ),
    Reference(
        "karimireddy2020scaffold",
        "Karimireddy, Sai Praneeth and Kale, Satyen and Mohri, Mehryar and Reddi, Sashank and Stich, "
        "Sebastian and Suresh, Ananda Theertha",
        "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
        "ICML",
        2020,
    ),
    Reference(
        "reddi2021",
        "Reddi, Sashank and Charles, Zachary and Zaheer, Manzil and Garrett, Zachary and Rush, Keith and "
        "Konečný, Jakub and Kumar, Sanjiv and McMahan, Brendan",
        "Adaptive Federated Optimization",
        "ICLR",
        2021,
    ),
    Reference(
        "wang2021fednova",
        "Wang, Jianyu and Liu, Qinghua and Liang, Hao and Joshi, Gauri and Poor, H. Vincent",
        "A Novel Framework for the Analysis and Design of Heterogeneous Federated Learning",
        "IEEE Transactions on Signal Processing",
        2021,
    ),
    Reference(
        "wang2022fedams",
        "Wang, Yujia and Lin, Lu and Chen, Jinghui",
        "Communication-Efficient Adaptive Federated Learning",
        "ICML",
        2022,
    ),
    Reference(
        "weng2025fedacs",
        "Weng, Shudi and Ren, Chao and Xiao, Ming and Skoglund, Mikael",
        "Heterogeneity-Aware Client Sampling: A Unified Solution for Consistent Federated Learning",
        "arXiv",
        2025,
    ),
    Reference(
        "alpaydin1998digits",
        "Alpaydin, Ethem and Kaynak, Cenk",
        "Optical Recognition of Handwritten Digits",
        "UCI Machine Learning Repository",
        1998,
    ),
)

REFERENCES: dict[str, Reference] = {reference.key: reference for reference in _ALL}


def reference(key: str) -> Reference:
    """The paper with the given key."""
    if key not in REFERENCES:
        raise FieldError(f"{key!r} is not the key of a reference." + did_you_mean(key, REFERENCES))
    return REFERENCES[key]
