"""What a run tells about its clients: differential privacy and secure aggregation."""

from fairlead.privacy.accounting import PrivacyStatement as PrivacyStatement
from fairlead.privacy.client_privacy import ClientPrivacy as ClientPrivacy
from fairlead.privacy.secure_aggregation import looks_at_single_updates as looks_at_single_updates
