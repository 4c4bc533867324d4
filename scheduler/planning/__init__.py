"""Which plan is fastest: cuts and replicas of a net, layers split over places, operations of a graph."""

from .costs import LayerPair, Link, Profile
from .measured import measure_link
from .partition import Cut, partition
from .placement import Placement, place_graph
from .plan import PipelinePlan, plan_pipeline
from .signatures import LayerSplit, moved, split_layers
from .simulate import simulate
from .timeline import Event, Timeline

__all__ = [
    "Cut",
    "Event",
    "LayerPair",
    "LayerSplit",
    "Link",
    "PipelinePlan",
    "Placement",
    "Profile",
    "Timeline",
    "measure_link",
    "moved",
    "partition",
    "place_graph",
    "plan_pipeline",
    "simulate",
    "split_layers",
]
