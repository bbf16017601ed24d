"""The papers behind the parts, by key, as BibTeX fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fairlead.errors import FieldError, did_you_mean


@dataclass(frozen=True)
class Reference:
    """A paper."""

    key: str
    authors: str
    title: str
    venue: str
    year: int
    kind: Literal["inproceedings", "article", "misc"] = "inproceedings"

    def bibtex(self) -> str:
        """A BibTeX entry."""
        venue = {"inproceedings": "booktitle", "article": "journal", "misc": "howpublished"}[self.kind]
        return (
            f"@{self.kind}{{{self.key},\n  author = {{{self.authors}}},\n  title = {{{self.title}}},\n"
            f"  {venue} = {{{self.venue}}},\n  year = {{{self.year}}}\n}}"
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
        "lecun1998mnist",
        "LeCun, Yann and Bottou, Léon and Bengio, Yoshua and Haffner, Patrick",
        "Gradient-Based Learning Applied to Document Recognition",
        "Proceedings of the IEEE",
        1998,
        "article",
    ),
    Reference(
        "xiao2017fashion",
        "Xiao, Han and Rasul, Kashif and Vollgraf, Roland",
        "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
        "arXiv:1708.07747",
        2017,
        "misc",
    ),
    Reference(
        "krizhevsky2009cifar",
        "Krizhevsky, Alex",
        "Learning Multiple Layers of Features from Tiny Images",
        "University of Toronto",
        2009,
        "misc",
    ),
    Reference(
        "li2022niid",
        "Li, Qinbin and Diao, Yiqun and Chen, Quan and He, Bingsheng",
        "Federated Learning on Non-IID Data Silos: An Experimental Study",
        "ICDE",
        2022,
    ),
    Reference(
        "ghosh2020ifca",
        "Ghosh, Avishek and Chung, Jichan and Yin, Dong and Ramchandran, Kannan",
        "An Efficient Framework for Clustered Federated Learning",
        "NeurIPS",
        2020,
    ),
    Reference(
        "hsu2019",
        "Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew",
        "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
        "arXiv:1909.06335",
        2019,
        "misc",
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
        "liang2019vrlsgd",
        "Liang, Xianfeng and Shen, Shuheng and Liu, Jingchang and Pan, Zhen and Chen, Enhong and Cheng, "
        "Yifei",
        "Variance Reduced Local SGD with Lower Communication Complexity",
        "arXiv:1912.12844",
        2019,
        "misc",
    ),
    Reference(
        "acar2021feddyn",
        "Acar, Durmus Alp Emre and Zhao, Yue and Matas Navarro, Ramon and Mattina, Matthew and Whatmough, "
        "Paul and Saligrama, Venkatesh",
        "Federated Learning Based on Dynamic Regularization",
        "ICLR",
        2021,
    ),
    Reference(
        "xu2021fedcm",
        "Xu, Jing and Wang, Sen and Wang, Liwei and Yao, Andrew Chi-Chih",
        "FedCM: Federated Learning with Client-level Momentum",
        "arXiv:2106.10874",
        2021,
        "misc",
    ),
    Reference(
        "xiang2024fedawe",
        "Xiang, Ming and Ioannidis, Stratis and Yeh, Edmund and Joe-Wong, Carlee and Su, Lili",
        "Efficient Federated Learning against Heterogeneous and Non-stationary Client Unavailability",
        "NeurIPS",
        2024,
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
        "article",
    ),
    Reference(
        "wang2022fedams",
        "Wang, Yujia and Lin, Lu and Chen, Jinghui",
        "Communication-Efficient Adaptive Federated Learning",
        "ICML",
        2022,
    ),
    Reference(
        "chen2022optimal",
        "Chen, Wenlin and Horváth, Samuel and Richtárik, Peter",
        "Optimal Client Sampling for Federated Learning",
        "Transactions on Machine Learning Research",
        2022,
        "article",
    ),
    Reference(
        "perazzone2022",
        "Perazzone, Jake and Wang, Shiqiang and Ji, Mingyue and Chan, Kevin S.",
        "Communication-Efficient Device Scheduling for Federated Learning Using Stochastic Optimization",
        "IEEE INFOCOM",
        2022,
    ),
    Reference(
        "jhunjhunwala2022fedvarp",
        "Jhunjhunwala, Divyansh and Sharma, Pranay and Nagarkatti, Aushim and Joshi, Gauri",
        "FedVARP: Tackling the Variance Due to Partial Client Participation in Federated Learning",
        "UAI",
        2022,
    ),
    Reference(
        "gu2021mifa",
        "Gu, Xinran and Huang, Kaixuan and Zhang, Jingzhao and Huang, Longbo",
        "Fast Federated Learning in the Presence of Arbitrary Device Unavailability",
        "NeurIPS",
        2021,
    ),
    Reference(
        "wang2024fedau",
        "Wang, Shiqiang and Ji, Mingyue",
        "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging",
        "ICLR",
        2024,
    ),
    Reference(
        "weng2025fedacs",
        "Weng, Shudi and Ren, Chao and Xiao, Ming and Skoglund, Mikael",
        "Heterogeneity-Aware Client Sampling: A Unified Solution for Consistent Federated Learning",
        "arXiv:2505.11304",
        2025,
        "misc",
    ),
    Reference(
        "caldas2018leaf",
        "Caldas, Sebastian and Duddu, Sai Meher Karthik and Wu, Peter and Li, Tian and Konečný, Jakub and "
        "McMahan, H. Brendan and Smith, Virginia and Talwalkar, Ameet",
        "LEAF: A Benchmark for Federated Settings",
        "arXiv:1812.01097",
        2018,
        "misc",
    ),
    Reference(
        "granqvist2024pfl",
        "Granqvist, Filip and Song, Congzheng and Cahill, Áine and van Dalen, Rogier and Pelikan, Martin and "
        "Chan, Yi Sheng and Feng, Xiaojun and Krishnaswami, Natarajan and Jina, Vojta and Chitnis, Mona",
        "pfl-research: Simulation Framework for Accelerating Research in Private Federated Learning",
        "NeurIPS Datasets and Benchmarks",
        2024,
    ),
    Reference(
        "simonyan2015vgg",
        "Simonyan, Karen and Zisserman, Andrew",
        "Very Deep Convolutional Networks for Large-Scale Image Recognition",
        "ICLR",
        2015,
    ),
    Reference(
        "he2016resnet",
        "He, Kaiming and Zhang, Xiangyu and Ren, Shaoqing and Sun, Jian",
        "Deep Residual Learning for Image Recognition",
        "CVPR",
        2016,
    ),
    Reference(
        "wu2018groupnorm",
        "Wu, Yuxin and He, Kaiming",
        "Group Normalization",
        "ECCV",
        2018,
    ),
    Reference(
        "radford2019gpt2",
        "Radford, Alec and Wu, Jeffrey and Child, Rewon and Luan, David and Amodei, Dario and "
        "Sutskever, Ilya",
        "Language Models are Unsupervised Multitask Learners",
        "OpenAI",
        2019,
        "misc",
    ),
    Reference(
        "zeng2025fedaware",
        "Zeng, Dun and Xu, Zenglin and Liu, Shiyu and Pan, Yu and Wang, Qifan and Tang, Xiaoying",
        "On the Power of Adaptive Weighted Aggregation in Heterogeneous Federated Learning and Beyond",
        "AISTATS",
        2025,
    ),
    Reference(
        "zeng2023gradient",
        "Zeng, Dun and Xu, Zenglin and Pan, Yu and Wang, Qifan and Tang, Xiaoying",
        "Tackling Hybrid Heterogeneity on Federated Optimization via Gradient Diversity Maximization",
        "arXiv:2310.02702",
        2023,
        "misc",
    ),
    Reference(
        "hu2022fedmgda",
        "Hu, Zeou and Shaloudegi, Kiarash and Zhang, Guojun and Yu, Yaoliang",
        "Federated Learning Meets Multi-Objective Optimization",
        "IEEE Transactions on Network Science and Engineering",
        2022,
        "article",
    ),
    Reference(
        "wolfe1976",
        "Wolfe, Philip",
        "Finding the Nearest Point in a Polytope",
        "Mathematical Programming",
        1976,
        "article",
    ),
    Reference(
        "judice1994",
        "Júdice, Joaquim and Pires, Fernanda",
        "A Block Principal Pivoting Algorithm for Large-Scale Strictly Monotone Linear Complementarity "
        "Problems",
        "Computers & Operations Research",
        1994,
        "article",
    ),
    Reference(
        "bonawitz2019",
        "Bonawitz, Keith and Eichner, Hubert and Grieskamp, Wolfgang and Huba, Dzmitry and Ingerman, Alex "
        "and Ivanov, Vladimir and Kiddon, Chloé and Konečný, Jakub and Mazzocchi, Stefano and McMahan, "
        "Brendan and Van Overveldt, Timon and Petrou, David and Ramage, Daniel and Roselander, Jason",
        "Towards Federated Learning at Scale: System Design",
        "MLSys",
        2019,
    ),
    Reference(
        "wang2024unreasonable",
        "Wang, Jianyu and Das, Rudrajit and Joshi, Gauri and Kale, Satyen and Xu, Zheng and Zhang, Tong",
        "On the Unreasonable Effectiveness of Federated Averaging with Heterogeneous Data",
        "Transactions on Machine Learning Research",
        2024,
        "article",
    ),
    Reference(
        "yin2018byzantine",
        "Yin, Dong and Chen, Yudong and Kannan, Ramchandran and Bartlett, Peter",
        "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
        "ICML",
        2018,
    ),
    Reference(
        "sun2019backdoor",
        "Sun, Ziteng and Kairouz, Peter and Suresh, Ananda Theertha and McMahan, Brendan",
        "Can You Really Backdoor Federated Learning?",
        "arXiv:1911.07963",
        2019,
        "misc",
    ),
    Reference(
        "mcmahan2018private",
        "McMahan, Brendan and Ramage, Daniel and Talwar, Kunal and Zhang, Li",
        "Learning Differentially Private Recurrent Language Models",
        "ICLR",
        2018,
    ),
    Reference(
        "mironov2017renyi",
        "Mironov, Ilya",
        "Rényi Differential Privacy",
        "IEEE Computer Security Foundations Symposium",
        2017,
    ),
    Reference(
        "wang2019subsampled",
        "Wang, Yu-Xiang and Balle, Borja and Kasiviswanathan, Shiva Prasad",
        "Subsampled Rényi Differential Privacy and Analytical Moments Accountant",
        "AISTATS",
        2019,
    ),
    Reference(
        "alpaydin1998digits",
        "Alpaydin, Ethem and Kaynak, Cenk",
        "Optical Recognition of Handwritten Digits",
        "UCI Machine Learning Repository",
        1998,
        "misc",
    ),
)

REFERENCES: dict[str, Reference] = {reference.key: reference for reference in _ALL}


def reference(key: str) -> Reference:
    """The paper with the given key."""
    if key not in REFERENCES:
        raise FieldError(f"{key!r} is not the key of a reference." + did_you_mean(key, REFERENCES))
    return REFERENCES[key]
