"""Models that the papers use, and any of the user's own."""

from fairlead.models.base import ExampleShape as ExampleShape
from fairlead.models.base import Model as Model
from fairlead.models.convolutional import DropoutCNN as DropoutCNN
from fairlead.models.convolutional import FedAvgCNN as FedAvgCNN
from fairlead.models.convolutional import FiveLayerCNN as FiveLayerCNN
from fairlead.models.convolutional import PooledCNN as PooledCNN
from fairlead.models.convolutional import UnpooledCNN as UnpooledCNN
from fairlead.models.dense import MLP as MLP
from fairlead.models.dense import LogisticRegression as LogisticRegression
from fairlead.models.images import ImageModel as ImageModel
from fairlead.models.imported import ImportedModel as ImportedModel
from fairlead.models.lstm import CharLSTM as CharLSTM
from fairlead.models.resnet import ResNet18 as ResNet18
from fairlead.models.tokens import TokenModel as TokenModel
from fairlead.models.transformer import TextTransformer as TextTransformer
from fairlead.models.vgg import VGG11 as VGG11
from fairlead.models.windows import WindowCNN as WindowCNN
