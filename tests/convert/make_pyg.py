"""Writes the files of made_by_torch/; run where PyTorch and PyTorch Geometric are.

They were made with PyTorch 2.15.0 and PyTorch Geometric 2.8.1.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from tests.convert.one_graph import CLASSES, EDGES, FEATURES, NODES, WEIGHTS

FOLDER = Path(__file__).parent / "made_by_torch"


def made() -> Data:
    train = torch.arange(NODES) < 8
    return Data(
        x=torch.tensor(FEATURES),
        y=torch.tensor(CLASSES),
        edge_index=torch.tensor(EDGES).t().contiguous(),
        edge_weight=torch.tensor(WEIGHTS),
        train_mask=train,
        val_mask=~train & (torch.arange(NODES) < 10),
        test_mask=torch.arange(NODES) >= 10,
    )


class Tiny(InMemoryDataset):
    """A data set whose file is written."""


data = made()
torch.save(data, FOLDER / "data.pt")
torch.save(data, FOLDER / "protocol_5.pt", pickle_protocol=5)
Tiny.save([data], FOLDER / "dataset.pt")
Tiny.save([data, data], FOLDER / "two_graphs.pt")
# Views of one storage, transposed and with an offset; other types.
both = torch.tensor([*EDGES, *EDGES]).t().contiguous()
views = {
    "x": torch.tensor(FEATURES).t().contiguous().t().to(torch.bfloat16),
    "y": torch.tensor([CLASSES, CLASSES], dtype=torch.int16)[1],
    "edge_index": both[:, len(EDGES) :],
    "edge_attr": torch.tensor(WEIGHTS).half()[:, None],
}
torch.save(views, FOLDER / "views.pt")
torch.save(data, FOLDER / "old.pt", _use_new_zipfile_serialization=False)
hetero = HeteroData()
hetero["person"].x = data.x
hetero["person", "knows", "person"].edge_index = data.edge_index
torch.save(hetero, FOLDER / "hetero.pt")
