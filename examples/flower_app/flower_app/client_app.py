"""The client: does the local work that the server asks for, within limits."""

from fairlead.flower import ClientLimits, make_client_app
from flower_app.task import build_model, get_data

app = make_client_app(build_model, get_data, limits=ClientLimits(steps=10_000, batch_size=1024))
