"""Several devices, processes or hosts, with DTensor, TensorFlow's way to run one program on many devices."""

from rfho2.distribute.cluster import chief, initialize
from rfho2.distribute.columns import forward_columns, real_time_columns, same_checkpoint
from rfho2.distribute.engine import on_mesh
from rfho2.distribute.placement import gather, mesh, ordinary, replicate, shard, split

__all__ = [
    "chief",
    "forward_columns",
    "gather",
    "initialize",
    "mesh",
    "on_mesh",
    "ordinary",
    "real_time_columns",
    "replicate",
    "same_checkpoint",
    "shard",
    "split",
]
