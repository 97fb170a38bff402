# What every rank runs: torchtitan. Read by launch.sh.
export PYTHONPATH=.
PROGRAM=(
    -m torchtitan.train
    --module hippo_recipe
    --config planned
    ${TRAIN:-}
)
