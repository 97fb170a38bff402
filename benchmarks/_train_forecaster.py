"""Learns the recurrent forecast anew and writes ``src/hippo/network/dynamics/gru.npz``; some minutes on one core.

Run from the source tree: ``python benchmarks/_train_forecaster.py``. Only the train split of the worlds is read.
"""

from __future__ import annotations

from pathlib import Path
from time import process_time

from hippo.network.dynamics import gru
from hippo.network.train.forecaster import Learning, learn, save

if __name__ == "__main__":
    target = Path(gru.__file__).with_name(gru.WEIGHTS)
    save(learn(Learning(), watch=lambda epoch, loss: print(f"{epoch:3d} {loss:9.5f} {process_time():6.0f} s")), target)
    print(f"{target.name}: {target.stat().st_size} bytes")
