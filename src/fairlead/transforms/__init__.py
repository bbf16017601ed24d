"""Changes to the direction that the server follows."""

from fairlead.transforms.aware_projection import AwareProjection as AwareProjection
from fairlead.transforms.base import DirectionTransform as DirectionTransform
from fairlead.transforms.clip import Clip as Clip
