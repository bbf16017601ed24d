"""The server: runs the spec, or resumes its run."""

from fairlead.flower import RoundRules, make_server_app
from flower_app.task import SPEC, build_model

app = make_server_app(SPEC, build_model, rules=RoundRules(deadline=600.0))
