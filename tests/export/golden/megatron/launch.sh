#!/usr/bin/env bash
# Starts the ranks of one host of the plan:  bash launch.sh DOMAIN POSITION
# POSITION counts the hosts of the domain from 0, in the order of the table in README.md.
set -euo pipefail
cd "$(dirname "$0")"
: "${MASTER_ADDR:?the address of the first host of the table, reachable from every other host}"
export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500}
source ./program.sh

pids=()
# agent NODE_RANK RANKS GPU..: one torchrun; GPUs are counted among those that this host may use
agent() {
    local turn=$1 ranks=$2 seen chosen=(); shift 2
    IFS=, read -ra seen <<< "${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 127)}"
    for gpu in "$@"; do chosen+=("${seen[$gpu]}"); done
    CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${chosen[*]}") \
        torchrun --nnodes=2 --nproc-per-node="$ranks" --node-rank="$turn" --rdzv-backend=static \
        --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "${PROGRAM[@]}" &
    pids+=($!)
}

case "${1:?domain}/${2:?position}" in
dc-a/0) agent 0 8 0 1 2 3 4 5 6 7 ;;  # node 0 of the plan, ranks 0-7
dc-b/0) agent 1 8 0 1 2 3 4 5 6 7 ;;  # node 0 of the plan, ranks 8-15
*) echo "launch.sh: the plan has no host $1/$2" >&2; exit 2 ;;
esac
for pid in "${pids[@]}"; do wait "$pid" || { kill "${pids[@]}" 2>/dev/null || true; exit 1; }; done
