"""Models that the papers use, and any of the user's own."""

from fairlead.models.base import ExampleShape as ExampleShape
from fairlead.models.base import Model as Model
from fairlead.models.dense import MLP as MLP
from fairlead.models.dense import LogisticRegression as LogisticRegression
from fairlead.models.imported import ImportedModel as ImportedModel
